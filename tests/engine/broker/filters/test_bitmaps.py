"""Bitmaps of filters: worked out when a message is stored, used by pulls, and never of any consequence but for the time
they take (docs/protocol/broker.md 4.6).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.codec import Command
from mqproto.engine.broker.filters import consumer_filters
from mqproto.engine.broker.filters.message_filters import _SqlJudge
from mqproto.engine.store import Store
from mqproto.wire.batch import BatchEntry, encode_batch
from mqproto.wire.filters.bloom import passes
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import Peer, World, send_fields
from tests.engine.broker.sql import heartbeat, send_numbers, subscribed

WITH: dict[str, Any] = {"enable_consume_queue_ext": True}


def bitmap_world(*, store: dict[str, Any] | None = None, **changes: Any) -> World:
    return World(
        **({"enable_property_filter": True, "enable_calc_filter_bit_map": True} | changes), store=WITH | (store or {})
    )


@pytest.fixture
def world() -> World:
    return bitmap_world()


def bits(store: Store, offset: int, topic: str = "T", queue_id: int = 0) -> bytes:
    unit = store.reader.unit(store.queue(topic, queue_id), offset)
    assert unit is not None
    return unit.bits


def mask(world: World, group: str = "G", topic: str = "T") -> int:
    bloom = world.broker.filters.bloom
    return bloom.mask(bloom.positions(group, topic))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What every look at a bitmap said."""
    looks: list[bool] = []
    look = _SqlJudge.may_take

    def may_take(self: _SqlJudge, data: bytes) -> bool:
        looks.append(look(self, data))
        return looks[-1]

    monkeypatch.setattr(_SqlJudge, "may_take", may_take)
    return looks


class TestStoring:
    def test_none_before_anybody_filters(self, world: World, peer: Peer) -> None:
        send_numbers(peer, 1)
        assert bits(world.store, 0) == b""

    def test_each_group_whose_expression_it_passes(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("n > 1", group="G"))
        peer.heartbeat(heartbeat("n > 2", group="H"))
        send_numbers(peer, 1, 2, 3)
        bloom = world.broker.filters.bloom
        assert [bits(world.store, offset) for offset in range(3)] == [
            bytes(14),
            bloom.bitmap([mask(world)]),
            bloom.bitmap([mask(world), mask(world, "H")]),
        ]

    @pytest.mark.parametrize("fast", [False, True])
    def test_ordinary_messages_by_either_way(self, world: World, peer: Peer, fast: bool) -> None:
        peer.heartbeat(heartbeat())
        if fast:
            send_numbers(peer, 1)
            assert peer.link.header_templates  # type: ignore[attr-defined]
        send_numbers(peer, 7)
        assert passes(bits(world.store, int(fast)), mask(world))

    def test_unusual_ones(self, world: World, peer: Peer) -> None:
        """Messages that are stored by way of a dict: a delayed one, when it comes out."""
        peer.heartbeat(heartbeat("n > 1 AND DELAY = '1'"))
        peer.send(properties="n\x012\x02DELAY\x011\x02")
        world.advance(1100)
        assert passes(bits(world.store, 0), mask(world)) is (peer.messages()[0].properties.get("DELAY") == "1")

    def test_members_of_a_batch(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        body = encode_batch([BatchEntry(b"1", b"n\x011\x02"), BatchEntry(b"2", b"n\x012\x02")])
        assert peer.ask(320, send_fields(m="true"), body).code == 0
        assert [passes(bits(world.store, offset), mask(world)) for offset in (0, 1)] == [False, True]

    def test_committed_transactions(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        answer = peer.send(properties="n\x012\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02", f="4")
        place = int(answer.fields["msgId"][-16:], 16)
        end = {
            "producerGroup": "PG",
            "tranStateTableOffset": answer.fields["queueOffset"],
            "commitLogOffset": str(place),
        }
        assert peer.ask(37, end | {"commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "u"}).code == 0
        assert passes(bits(world.store, 0), mask(world))

    def test_switched_while_it_runs(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        send_numbers(peer, 2)
        world.broker.settings.enable_calc_filter_bit_map = False
        send_numbers(peer, 2)
        world.broker.settings.enable_calc_filter_bit_map = True
        send_numbers(peer, 2)
        assert [len(bits(world.store, offset)) for offset in range(3)] == [14, 0, 14]
        assert len(decode_records(peer.ask(11, subscribed()).body)) == 3

    def test_groups_that_are_gone_are_still_judged(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        peer.ask(35, {"clientID": "c1", "consumerGroup": "G"})
        send_numbers(peer, 2)
        assert passes(bits(world.store, 0), mask(world))

    def test_without_the_extension_there_is_no_place(self) -> None:
        world = World(enable_property_filter=True, enable_calc_filter_bit_map=True)
        peer = world.connect()
        peer.heartbeat(heartbeat())
        send_numbers(peer, 1, 2)
        assert [message.body for message in decode_records(peer.ask(11, subscribed()).body)] == [b"2"]


class TestReading:
    def test_what_does_not_pass_is_not_looked_at(
        self, peer: Peer, judged: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        peer.heartbeat(heartbeat("n > 7"))
        send_numbers(peer, 1, 8, 2, 9)
        looked: list[memoryview] = []
        takes = _SqlJudge.takes

        def look(self: _SqlJudge, record: memoryview) -> bool:
            looked.append(record)
            return takes(self, record)

        monkeypatch.setattr(_SqlJudge, "takes", look)
        answer = peer.ask(11, subscribed())
        assert [message.body for message in decode_records(answer.body)] == [b"8", b"9"]
        assert (judged, len(looked)) == ([False, True, False, True], 2)

    def test_only_those_stored_since_the_expression_is_known(
        self, world: World, peer: Peer, judged: list[bool]
    ) -> None:
        peer.heartbeat(heartbeat("n > 7", 5))
        send_numbers(peer, 1, 8)
        peer.heartbeat(heartbeat("n < 7", 6))
        send_numbers(peer, 2, 9)
        answer = peer.ask(11, subscribed(version=6))
        assert [message.body for message in decode_records(answer.body)] == [b"1", b"2"]
        assert judged == [True, False]

    def test_a_clock_that_was_set_back(self, world: World, peer: Peer) -> None:
        """By the times the first message came after the second expression, which it was not judged by."""
        peer.heartbeat(heartbeat("n > 7", 5))
        send_numbers(peer, 1)
        world.set_wall(-60_000)
        peer.heartbeat(heartbeat("n < 7", 6))
        assert [message.body for message in decode_records(peer.ask(11, subscribed(version=6)).body)] == [b"1"]

    def test_those_of_an_earlier_run_are_not_believed(self, world: World, peer: Peer, judged: list[bool]) -> None:
        """The file of the first run knows nothing of the second expression, by which the message was judged."""
        peer.heartbeat(heartbeat("n > 7", 5))
        world.advance(10_000)
        text = world.files.read("/store/config/consumerFilter.json")
        peer.heartbeat(heartbeat("n < 7", 6))
        send_numbers(peer, 8)
        world.close()
        world.files.write("/store/config/consumerFilter.json", text)
        later = World(files=world.files, store=WITH, enable_property_filter=True, enable_calc_filter_bit_map=True)
        peer = later.connect()
        peer.heartbeat(heartbeat("n > 7", 5))
        send_numbers(peer, 1)
        assert [message.body for message in decode_records(peer.ask(11, subscribed()).body)] == [b"8"]
        assert judged == [False]

    def test_bits_of_another_shape(self, world: World, peer: Peer) -> None:
        """They are too long for the extension as it is configured, and left out."""
        other = bitmap_world(expect_consumer_num_use_filter=64)
        peer = other.connect()
        peer.heartbeat(heartbeat())
        send_numbers(peer, 1, 2)
        assert bits(other.store, 0) == b""
        assert [message.body for message in decode_records(peer.ask(11, subscribed()).body)] == [b"2"]

    def test_groups_beyond_the_bound_are_read_for(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(consumer_filters, "CALCULATED_MAX", 1)
        peer.heartbeat(heartbeat("n > 1", group="G"))
        peer.heartbeat(heartbeat("n > 2", group="H"))
        send_numbers(peer, 1, 2, 3)
        assert passes(bits(world.store, 2), mask(world))
        assert not passes(bits(world.store, 2), mask(world, "H"))
        assert [message.body for message in decode_records(peer.ask(11, subscribed(consumerGroup="H")).body)] == [b"3"]

    def test_an_expression_that_went_leaves_its_place(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(consumer_filters, "CALCULATED_MAX", 2)
        peer.heartbeat(heartbeat(group="H"))
        for version, expression in enumerate(("n > 100", "n > 200", "n > 3"), 1):
            peer.heartbeat(heartbeat(expression, version))
        send_numbers(peer, 4)
        assert passes(bits(world.store, 0), mask(world))

    def test_long_expressions_are_not_worked_out_for_every_message(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("n > 1 OR " * 200 + "n > 1"))
        send_numbers(peer, 1, 2)
        assert bits(world.store, 1) == b""
        assert [message.body for message in decode_records(peer.ask(11, subscribed()).body)] == [b"2"]


EXPRESSIONS = ("n > 1", "n > 2", "n < 2", "color = 'red'", "n IS NULL", "n > >", "NOT (n = 2)")
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 4)),
    st.tuples(st.just("subscribe"), st.sampled_from("GH"), st.sampled_from(EXPRESSIONS)),
    st.tuples(st.just("leave"), st.sampled_from("GH")),
    st.tuples(st.just("calculate"), st.booleans()),
    st.tuples(st.just("clock"), st.integers(-5000, 5000)),
    st.tuples(st.just("wait"), st.sampled_from([1, 10_000])),
    st.tuples(st.just("restart")),
    st.tuples(st.just("pull"), st.sampled_from("GH"), st.integers(0, 6)),
)


class Pair:
    """Two brokers to which the same happens, one of them with bitmaps."""

    def __init__(self) -> None:
        self.worlds = [World(enable_property_filter=True), bitmap_world()]
        self.peers = [world.connect() for world in self.worlds]
        self.version = 0
        self.answers: list[list[tuple[Any, ...]]] = [[], []]

    def step(self, step: tuple[Any, ...]) -> None:
        self.version += 1
        for number in (0, 1):
            answer = self.apply(number, *step)
            if answer is not None:
                messages = (
                    [(message.queue_offset, message.body) for message in decode_records(answer.body)]
                    if answer.code == 0
                    else []
                )
                self.answers[number].append((answer.code, answer.remark, answer.fields, messages))

    def apply(self, number: int, verb: str, *values: Any) -> Command | None:
        world, peer = self.worlds[number], self.peers[number]
        match verb, values:
            case "send", (n,):
                send_numbers(peer, n)
            case "subscribe", (group, expression):
                peer.heartbeat(heartbeat(expression, self.version, group=group))
            case "leave", (group,):
                peer.tell(35, {"clientID": "c1", "consumerGroup": group})
                peer.read()
            case "calculate", (wanted,):
                world.broker.settings.enable_calc_filter_bit_map = wanted
            case "clock", (ahead,):
                world.set_wall(ahead)
            case "wait", (ms,):
                world.advance(ms)
            case "restart", ():
                world.close()
                store = WITH if number else {}
                options: dict[str, Any] = {"enable_property_filter": True, "enable_calc_filter_bit_map": True}
                self.worlds[number] = World(files=world.files, store=store, now=world.now, **options)
                self.peers[number] = self.worlds[number].connect()
            case "pull", (group, offset):
                return peer.ask(11, subscribed(offset, version=0, consumerGroup=group))
        return None


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_answers_are_the_same_with_and_without(steps: list[tuple[Any, ...]]) -> None:
    pair = Pair()
    for step in steps:
        pair.step(step)
    for group in "GH":
        pair.step(("pull", group, 0))
    assert pair.answers[0] == pair.answers[1]
