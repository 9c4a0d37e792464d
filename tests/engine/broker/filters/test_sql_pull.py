"""Pulls that filter by the properties of messages: checks and codes, reading, waiting (docs/protocol/broker.md 2.4,
4).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.engine.broker.filters import message_filters
from mqproto.engine.broker.pulls import pull
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields
from tests.engine.broker.sql import carried, heartbeat, send_numbers, subscribed

NO_SQL = "The broker does not support consumer to filter message by SQL92"
UNREADABLE = "parse the consumer's subscription failed"
NOT_EXIST = "The broker's consumer filter data is not exist!Your expression may be wrong!"


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == 0, answer
    return [bytes(message.body) for message in decode_records(answer.body)]


def refusal(peer: Peer, fields: dict[str, str]) -> tuple[int, str | None]:
    answer = peer.ask(11, fields)
    assert (answer.fields, answer.body) == ({}, b"")
    return answer.code, answer.remark


@pytest.fixture
def world() -> World:
    return World(enable_property_filter=True)


@pytest.fixture
def filled(peer: Peer) -> Peer:
    send_numbers(peer, 0, 1, 2, 3, 4)
    return peer


class TestCarried:
    """The expression comes with the pull."""

    def test_found(self, filled: Peer) -> None:
        answer = filled.ask(11, carried("n > 1 AND color = 'red'"))
        assert bodies(answer) == [b"2", b"3", b"4"]
        assert (answer.fields["nextBeginOffset"], answer.fields["maxOffset"]) == ("5", "5")

    def test_so_many(self, filled: Peer) -> None:
        answer = filled.ask(11, carried("n <> 1", maxMsgNums="2"))
        assert bodies(answer) == [b"0", b"2"]
        assert answer.fields["nextBeginOffset"] == "3"

    def test_nothing_matches(self, filled: Peer) -> None:
        answer = filled.ask(11, carried("n > 7"))
        assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "5")

    @pytest.mark.parametrize("expression", ["n > > 1", "n >", "'text'", "-"])
    def test_what_cannot_be_read(self, filled: Peer, expression: str) -> None:
        """Apache gives everything to whoever asks for nonsense."""
        assert refusal(filled, carried(expression)) == (23, UNREADABLE)

    def test_no_expression(self, filled: Peer) -> None:
        assert refusal(filled, carried("") | {"subscription": ""}) == (23, UNREADABLE)

    def test_a_kind_that_nobody_knows(self, filled: Peer) -> None:
        assert refusal(filled, carried("a") | {"expressionType": "XPATH"}) == (23, UNREADABLE)

    def test_the_kind_of_tags_may_be_empty(self, filled: Peer) -> None:
        assert len(bodies(filled.ask(11, pull_fields(expressionType="")))) == 5

    def test_switched_while_it_runs(self, world: World, filled: Peer) -> None:
        world.broker.settings.enable_property_filter = False
        assert refusal(filled, carried()) == (1, NO_SQL)
        assert refusal(filled, carried("n > >")) == (1, NO_SQL)
        assert refusal(filled, carried() | {"expressionType": "X"}) == (1, NO_SQL.replace("SQL92", "X"))
        world.broker.settings.enable_property_filter = True
        assert len(bodies(filled.ask(11, carried()))) == 3

    def test_messages_without_properties(self, peer: Peer) -> None:
        peer.send()
        assert peer.ask(11, carried("n IS NOT NULL")).code == 20
        assert peer.ask(11, carried("n IS NULL")).code == 0

    def test_apaches_default_is_off(self) -> None:
        peer = World().connect()
        peer.send()
        assert refusal(peer, carried()) == (1, NO_SQL)


class TestSubscribed:
    """The expression came with a heartbeat."""

    def test_found(self, filled: Peer) -> None:
        filled.heartbeat(heartbeat())
        assert bodies(filled.ask(11, subscribed())) == [b"2", b"3", b"4"]

    def test_codes_in_order(self, world: World, filled: Peer) -> None:
        assert refusal(filled, subscribed())[0] == 24  # the group is not there
        filled.heartbeat(heartbeat("*", kind="TAG", topic="Other"))
        assert refusal(filled, subscribed())[0] == 24  # it does not subscribe the topic
        filled.heartbeat(heartbeat("n > > 1", 5))
        assert refusal(filled, subscribed(version=6)) == (25, "the consumer's subscription not latest")
        assert refusal(filled, subscribed(version=5)) == (27, NOT_EXIST)
        world.broker.settings.enable_property_filter = False
        assert refusal(filled, subscribed(version=5)) == (27, NOT_EXIST)
        filled.heartbeat(heartbeat("n > 1", 7))
        assert refusal(filled, subscribed(version=7)) == (1, NO_SQL)

    def test_an_older_version_passes(self, filled: Peer) -> None:
        filled.heartbeat(heartbeat(version=5))
        assert len(bodies(filled.ask(11, subscribed(version=3)))) == 3

    def test_a_newer_expression(self, filled: Peer) -> None:
        filled.heartbeat(heartbeat("n > 1", 5))
        filled.heartbeat(heartbeat("n > 3", 6))
        assert bodies(filled.ask(11, subscribed(version=6))) == [b"4"]
        filled.heartbeat(heartbeat("n > 0", 6))  # of the same version: not taken
        assert bodies(filled.ask(11, subscribed(version=6))) == [b"4"]

    def test_the_filter_data_is_not_the_latest(self, world: World, filled: Peer) -> None:
        """The version of the subscription rose, but what was kept of the expression did not."""
        filled.heartbeat(heartbeat(version=5))
        data = world.broker.filters.find("G", "T")
        assert data is not None
        data.entry.version = 4
        assert refusal(filled, subscribed(version=5)) == (28, "the consumer's consumer filter data not latest")

    def test_a_wrong_expression_ends_the_old_one(self, filled: Peer) -> None:
        filled.heartbeat(heartbeat("n > 1", 5))
        filled.heartbeat(heartbeat("n > >", 6))
        assert refusal(filled, subscribed(version=6)) == (27, NOT_EXIST)
        filled.heartbeat(heartbeat("n > 2", 7))
        assert bodies(filled.ask(11, subscribed(version=7))) == [b"3", b"4"]

    def test_class_filters_take_everything(self, filled: Peer) -> None:
        body = json.loads(heartbeat())
        body["consumerDataSet"][0]["subscriptionDataSet"][0]["classFilterMode"] = True
        filled.heartbeat(json.dumps(body).encode())
        assert len(bodies(filled.ask(11, subscribed()))) == 5


class TestWaiting:
    def test_only_what_matches_wakes(self, world: World, filled: Peer) -> None:
        filled.heartbeat(heartbeat())
        waiter = world.connect()
        waiter.tell(11, subscribed(5, wait=True))
        send_numbers(filled, 0, 1)
        assert waiter.read() == []
        assert len(world.broker.parked_pulls) == 1
        send_numbers(filled, 9)
        (answer,) = waiter.read()
        assert bodies(answer) == [b"9"]
        assert answer.fields["nextBeginOffset"] == "8"
        assert len(world.broker.parked_pulls) == 0
        assert world.broker.parked_pulls.weight == 0

    def test_one_that_brought_its_expression(self, world: World, filled: Peer) -> None:
        waiter = world.connect()
        waiter.tell(11, carried("n = 9", 5, wait=True))
        send_numbers(filled, 8)
        assert waiter.read() == []
        send_numbers(filled, 9)
        assert bodies(waiter.read()[0]) == [b"9"]

    def test_what_was_passed_over_is_told_at_the_end(self, world: World, filled: Peer) -> None:
        waiter = world.connect()
        waiter.tell(11, carried("n = 9", 5, wait=True))
        send_numbers(filled, 8)
        world.advance(15_000)
        (answer,) = waiter.read()
        assert (answer.code, answer.fields["nextBeginOffset"]) == (20, "6")

    def test_the_tag_is_not_asked(self, world: World, filled: Peer) -> None:
        """Nor does a message without properties of its own wake anybody."""
        waiter = world.connect()
        waiter.tell(11, carried("TAGS = 'a'", 5, wait=True))
        filled.send(properties="TAGS\x01b\x02")
        filled.send()
        assert waiter.read() == []
        filled.send(properties="TAGS\x01a\x02")
        assert waiter.read()[0].fields["nextBeginOffset"] == "8"

    @pytest.mark.pure
    def test_one_whose_filter_takes_too_much_room(
        self, world: World, filled: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is woken by anything, and asks again itself."""
        monkeypatch.setattr(pull, "HELD_LENGTH_MAX", 10)
        waiter = world.connect()
        waiter.tell(11, carried("n = 9", 5, wait=True))
        waiter.tell(11, carried("n = 8888", 5, wait=True))
        send_numbers(filled, 7)
        (answer,) = waiter.read()
        assert (answer.opaque, answer.code, answer.fields["nextBeginOffset"]) == (2, 20, "5")
        assert world.broker.parked_pulls.weight == len("n = 9")
        waiter.tell(11, carried("n = 8888", 6, wait=True))
        world.advance(15_000)
        assert [(answer.opaque, answer.code) for answer in waiter.read()] == [(1, 20), (3, 19)]

    def test_a_burst_is_judged_by_and_by(self, world: World, filled: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        waiter = world.connect()
        waiter.tell(11, carried("n = 99", 5, wait=True))
        monkeypatch.setattr(message_filters, "_WORK_MAX", 10)
        frames = [filled.frame(310, send(number)) for number in range(5)]
        filled.feed(b"".join(frames))
        (answer,) = waiter.read()
        assert answer.code == 20
        assert 5 < int(answer.fields["nextBeginOffset"]) < 10

    def test_checked_once_more(self, world: World, filled: Peer) -> None:
        filled.heartbeat(heartbeat())
        waiter = world.connect()
        waiter.tell(11, subscribed(5, wait=True))
        world.broker.settings.enable_property_filter = False
        send_numbers(filled, 9)
        assert waiter.read()[0].code == 1


def send(number: int) -> dict[str, str]:
    return send_fields(properties=f"n\x01{number}\x02")


class TestWork:
    """One read never works for long."""

    def progress(self, peer: Peer, expression: str) -> int:
        answer = peer.ask(11, carried(expression))
        assert answer.code == 20
        return int(answer.fields["nextBeginOffset"])

    def test_ordinary_expressions_see_800_messages(self, peer: Peer) -> None:
        send_numbers(peer, *[1] * 810)
        assert self.progress(peer, "n > 1 AND color = 'red' AND TAGS IS NOT NULL") == 800

    def test_long_ones_see_fewer(self, peer: Peer) -> None:
        send_numbers(peer, *[1] * 50)
        long = " OR ".join(["n = 2"] * 2000)
        assert self.progress(peer, long) == 3
        assert len(bodies(peer.ask(11, carried("n = 1 OR " + long)))) == 3

    def test_long_properties_count(self, peer: Peer) -> None:
        for _ in range(20):
            peer.send(properties=f"n\x011\x02long\x01{'x' * 30_000}\x02")
        assert 1 < self.progress(peer, "n = 2") < 20


class TestRetries:
    """FLT-05: what came back is not judged by the expression of the retry topic."""

    def come_back(self, world: World, peer: Peer, *numbers: int) -> None:
        """Messages of topic T that group G gave back, as they lie in its retry topic."""
        for number in numbers:
            answer = peer.send("T", b"%d" % number, f"n\x01{number}\x02TAGS\x01A\x02")
            offset = int(answer.fields["msgId"][-16:], 16)
            fields = {"group": "G", "offset": str(offset), "delayLevel": "1", "originTopic": "T", "unitMode": "false"}
            assert peer.ask(36, fields).code == 0
        world.advance(1100)

    def pull(self, peer: Peer, **changes: Any) -> Command:
        return peer.ask(11, subscribed(topic="%RETRY%G", expressionType="TAG", **changes))

    def test_by_default_all_come(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("n > 1", 5, more="%RETRY%G"))
        self.come_back(world, peer, 1, 2)
        peer.heartbeat(heartbeat("n > 5", 6, more="%RETRY%G"))
        assert bodies(self.pull(peer)) == [b"1", b"2"]

    def test_by_default_all_come_for_tags_too(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("A", 5, kind="TAG", more="%RETRY%G"))
        self.come_back(world, peer, 1, 2)
        peer.heartbeat(heartbeat("B", 6, kind="TAG", more="%RETRY%G"))
        assert bodies(self.pull(peer)) == [b"1", b"2"]

    def test_judged_by_the_topic_that_they_came_from(self, world: World, peer: Peer) -> None:
        world.broker.settings.filter_support_retry = True
        peer.heartbeat(heartbeat("n > 1", 5, more="%RETRY%G"))
        self.come_back(world, peer, 1, 2)
        assert bodies(self.pull(peer)) == [b"2"]
        peer.heartbeat(heartbeat("n > 5", 6, more="%RETRY%G"))
        assert self.pull(peer).code == 20

    def test_of_a_topic_without_an_expression(self, world: World, peer: Peer) -> None:
        world.broker.settings.filter_support_retry = True
        peer.heartbeat(heartbeat("n > 1", 5, topic="Other", more="%RETRY%G"))
        self.come_back(world, peer, 1, 2)
        assert bodies(self.pull(peer)) == [b"1", b"2"]


class TestCheck:
    """CHECK_CLIENT_CONFIG 46."""

    def check(self, peer: Peer, expression: str = "n > 1", kind: str | None = "SQL92") -> tuple[int, str | None]:
        wanted = {"topic": "T", "subString": expression, "subVersion": 1, "expressionType": kind}
        answer = peer.ask(46, None, json.dumps({"clientId": "c", "group": "G", "subscriptionData": wanted}).encode())
        return answer.code, answer.remark

    def test_good(self, world: World, peer: Peer) -> None:
        assert self.check(peer) == (0, None)
        assert len(world.broker.filters) == 0

    @pytest.mark.parametrize("kind", ["TAG", "", None])
    def test_tags_are_not_read(self, peer: Peer, kind: str | None) -> None:
        assert self.check(peer, "||", kind) == (0, None)

    def test_nothing_to_check(self, peer: Peer) -> None:
        assert peer.ask(46).code == 0
        assert peer.ask(46, None, b'{"clientId":"c"}').code == 0

    @pytest.mark.parametrize(
        ("expression", "kind", "why"),
        [("n > > 1", "SQL92", "'>'"), ("", "SQL92", "the end"), ("n > 1", "XPATH", "XPATH")],
    )
    def test_wrong(self, peer: Peer, expression: str, kind: str, why: str) -> None:
        for _ in range(2):  # the second time it is remembered
            code, remark = self.check(peer, expression, kind)
            assert code == 23
            assert remark is not None
            assert why in remark

    def test_a_long_wrong_one_is_not_sent_back_whole(self, peer: Peer) -> None:
        code, remark = self.check(peer, "n > " * 10_000)
        assert code == 23
        assert remark is not None
        assert len(remark) < 1000

    def test_off(self) -> None:
        assert self.check(World().connect()) == (1, NO_SQL)

    @pytest.mark.parametrize(
        "body", [b"{", b"[]", b'{"subscriptionData":[]}', b'{"subscriptionData":{"subVersion":"x"}}']
    )
    def test_malformed(self, peer: Peer, body: bytes) -> None:
        assert peer.ask(46, None, body).code == 1
        assert not peer.ended()


def test_switched_by_request() -> None:
    """UPDATE_BROKER_CONFIG 25."""
    peer = World().connect()
    send_numbers(peer, 1, 2)
    assert refusal(peer, carried()) == (1, NO_SQL)
    peer.ask(25, None, b"enablePropertyFilter=true\n")
    assert bodies(peer.ask(11, carried())) == [b"2"]
    peer.ask(25, None, b"enablePropertyFilter=false\n")
    assert refusal(peer, carried()) == (1, NO_SQL)


class TestFromDisk:
    """What may not be in memory is judged beside the loop."""

    @pytest.fixture
    def world(self) -> World:
        store = {"cold_read_distance": 1, "enable_consume_queue_ext": True}
        return World(store=store, enable_property_filter=True, enable_calc_filter_bit_map=True)

    @pytest.mark.parametrize("by_heartbeat", [False, True])
    def test_it_waits_and_is_answered(self, world: World, peer: Peer, by_heartbeat: bool) -> None:
        peer.heartbeat(heartbeat())
        send_numbers(peer, 0, 1, 2, 3, 4)
        world.hold_jobs = True
        peer.tell(11, subscribed() if by_heartbeat else carried())
        assert peer.read() == []
        # What changes meanwhile changes nothing for a read that is under way.
        peer.heartbeat(heartbeat("n > 3", 6))
        world.run_held()
        (answer,) = peer.read()
        assert bodies(answer) == [b"2", b"3", b"4"]
        assert answer.fields["nextBeginOffset"] == "5"

    def test_nothing_matches(self, world: World, peer: Peer) -> None:
        send_numbers(peer, 0, 1)
        assert peer.ask(11, carried("n > 7")).fields["nextBeginOffset"] == "2"

    def test_retries(self, world: World, peer: Peer) -> None:
        world.broker.settings.filter_support_retry = True
        peer.heartbeat(heartbeat(more="%RETRY%G"))
        TestRetries().come_back(world, peer, 1, 2)
        assert bodies(peer.ask(11, subscribed(topic="%RETRY%G", expressionType="TAG"))) == [b"2"]
