"""What the broker counts and VIEW_BROKER_STATS_DATA 315 shows (docs/protocol/broker.md 9)."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.engine.broker.statistics import broker_stats, sampling
from mqproto.engine.counters import WINDOWS
from mqproto.wire.bodies import BrokerStats, StatsItem
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields

TEN_MINUTES, HOUR, DAY = 600_000, 3_600_000, 86_400_000


@pytest.fixture
def world() -> World:
    """A broker whose links may be idle for long."""
    return World(server_channel_max_idle_time_seconds=1_000_000)


def asked(peer: Peer, name: str, key: str) -> Command:
    return peer.ask(315, {"statsName": name, "statsKey": key})


def shown(peer: Peer, name: str, key: str = "T") -> BrokerStats | None:
    answer = asked(peer, name, key)
    if answer.code != 0:
        assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")
        return None
    return BrokerStats.from_json(answer.body)


def sums(peer: Peer, name: str, key: str = "T") -> tuple[int, int, int] | None:
    found = shown(peer, name, key)
    return None if found is None else (found.minute.total, found.hour.total, found.day.total)


class TestWhatIsCounted:
    def test_sends_by_topic_queue_and_broker(self, world: World, peer: Peer) -> None:
        """The general way and the fast path, and batches, whose messages count and whose sends are the events."""
        begin = world.store.end
        peer.send(e="1")
        for _ in range(4):
            peer.send()
        body = b"".join(encode_batch_entry(b"x" * n) for n in range(3))
        peer.ask(320, send_fields(m="true"), body)
        size = world.store.end - begin
        world.advance(10_000)
        item = StatsItem(8, 0.8, 8 / 6)
        assert shown(peer, "TOPIC_PUT_NUMS") == BrokerStats(item, StatsItem(), StatsItem())
        found = shown(peer, "TOPIC_PUT_SIZE")
        assert found is not None
        assert found.minute == StatsItem(size, size / 10, size / 6)
        assert sums(peer, "QUEUE_PUT_NUMS", "T@0") == (7, 0, 0)
        assert sums(peer, "QUEUE_PUT_NUMS", "T@1") == (1, 0, 0)
        assert sums(peer, "QUEUE_PUT_SIZE", "T@2") is None
        found = shown(peer, "BROKER_PUT_NUMS", "DefaultCluster")
        assert found is not None
        assert found.minute == StatsItem(8, 0.8, 0.0), "of the broker, events are not counted"
        assert world.store.writer.put_count == 8

    @pytest.mark.pure
    def test_the_fast_path_counts_as_the_general_way(self, world: World, peer: Peer) -> None:
        other = world.connect("192.0.2.9:1")
        for one in (peer, other):
            for n in range(50):
                one.send(properties=f"UNIQ_KEY\x01{n:032X}\x02")
                if one is other:
                    world.broker.send_requests.fast.take = lambda *_: False  # type: ignore[method-assign]
        world.advance(10_000)
        found = shown(peer, "TOPIC_PUT_NUMS")
        assert found is not None
        assert (found.minute.total, found.minute.average) == (100, 1.0)
        records = sum(
            message.store_size for offset in range(0, 100, 10) for message in peer.messages(offset=offset)[:10]
        )
        assert sums(peer, "TOPIC_PUT_SIZE") == (records, 0, 0)

    def test_pulls_by_topic_and_group(self, world: World, peer: Peer) -> None:
        for _ in range(6):
            peer.send()
        peer.send(e="1")
        first = peer.pull(maxMsgNums="4")
        second = peer.pull(offset=4)
        third = peer.pull(queue=1)
        size = sum(len(answer.body) for answer in (first, second, third))
        assert peer.pull(offset=6).code == 19, "which counts nowhere but in the store's misses"
        world.advance(10_000)
        found = shown(peer, "GROUP_GET_NUMS", "T@G")
        assert found is not None
        assert found.minute == StatsItem(7, 0.7, 7 / 3)
        assert sums(peer, "GROUP_GET_SIZE", "T@G") == (size, 0, 0)
        assert sums(peer, "QUEUE_GET_NUMS", "T@0@G") == (6, 0, 0)
        assert sums(peer, "QUEUE_GET_SIZE", "T@1@G") == (len(third.body), 0, 0)
        assert sums(peer, "GROUP_GET_LATENCY", "0@T@G") == (0, 0, 0)
        assert sums(peer, "GROUP_GET_NUMS", "T@H") is None
        assert sums(peer, "GROUP_GET_LATENCY", "2@T@G") is None
        assert sums(peer, "BROKER_GET_NUMS", "DefaultCluster") == (7, 0, 0)
        assert sums(peer, "BROKER_GET_NUMS", "Other") is None

    def test_a_parked_pull_counts_when_it_is_answered(self, world: World, peer: Peer) -> None:
        peer.send()
        peer.tell(11, pull_fields(offset=1, sysFlag="6"))
        assert world.broker.reads_missed == 1
        world.connect("192.0.2.9:1").send()
        assert len(peer.read()) == 1
        world.advance(10_000)
        assert sums(peer, "GROUP_GET_NUMS", "T@G") == (1, 0, 0)
        assert (world.broker.reads_found, world.broker.reads_missed) == (1, 1)

    def test_what_was_fetched_from_the_disk_took_time(self) -> None:
        world = World(store={"cold_read_distance": 1})
        peer = world.connect()
        peer.send()
        peer.send("Other")
        world.hold_jobs = True
        peer.tell(11, pull_fields())
        world.now += 30
        world.run_held()
        assert len(peer.read()) == 1
        world.hold_jobs = False
        world.advance(10_000)
        found = shown(peer, "GROUP_GET_LATENCY", "0@T@G")
        assert found is not None
        assert found.minute == StatsItem(30, 3.0, 30.0)

    def test_delayed_messages_count_where_they_wait_and_where_they_go(self, world: World, peer: Peer) -> None:
        peer.send(properties="DELAY\x011\x02")
        world.advance(10_000)
        assert sums(peer, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == (1, 0, 0)
        assert sums(peer, "GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER") == (1, 0, 0)
        assert sums(peer, "TOPIC_PUT_NUMS") == (1, 0, 0)
        assert sums(peer, "BROKER_PUT_NUMS", "DefaultCluster") == (2, 0, 0)
        assert world.broker.reads_found == 0

    def test_delivery_counts_nowhere_where_that_is_set(self) -> None:
        world = World(store={"enable_schedule_message_stats": False})
        peer = world.connect()
        peer.send(properties="DELAY\x011\x02")
        world.advance(10_000)
        assert len(peer.messages()) == 1
        assert sums(peer, "TOPIC_PUT_NUMS") is None
        assert sums(peer, "BROKER_PUT_NUMS", "DefaultCluster") == (1, 0, 0)

    def test_halves_count_and_their_ends_do_not(self, world: World, peer: Peer) -> None:
        answer = peer.send(properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01u\x02", f="4")
        offset = int(answer.fields["msgId"][-16:], 16)
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": "0",
            "commitLogOffset": str(offset),
            "commitOrRollback": "8",
        }
        assert peer.ask(37, fields | {"fromTransactionCheck": "false", "msgId": "u", "transactionId": "u"}).code == 0
        world.advance(10_000)
        assert sums(peer, "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC") == (1, 0, 0)
        assert sums(peer, "TOPIC_PUT_NUMS") is None
        assert sums(peer, "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_OP_HALF_TOPIC") is None
        assert world.store.writer.put_count == 3

    def test_messages_given_back_count_on_the_topic_that_they_came_from(self, world: World, peer: Peer) -> None:
        peer.send()
        (message,) = peer.messages()
        for _ in range(2):
            fields = {"offset": str(message.physical_offset), "group": "G", "delayLevel": "1"}
            assert peer.ask(36, fields).code == 0
            world.advance(10_000)
            message = peer.messages("%RETRY%G")[0]
        found = shown(peer, "SNDBCK_PUT_NUMS", "T@G")
        assert found is not None
        assert (found.minute.total, found.minute.average) == (2, 1.0)
        assert sums(peer, "SNDBCK_PUT_NUMS", "%RETRY%G@G") is None

    @pytest.mark.parametrize(
        "name", ["GROUP_GET_FROM_DISK_NUMS", "COMMERCIAL_SEND_TIMES", "GROUP_GET_FALL_SIZE", "X", ""]
    )
    def test_sets_that_hold_nothing(self, peer: Peer, name: str) -> None:
        peer.send()
        assert sums(peer, name) is None

    @pytest.mark.parametrize("fields", [{}, {"statsName": "TOPIC_PUT_NUMS"}, {"statsKey": "T"}])
    def test_fields_that_are_missing(self, peer: Peer, fields: dict[str, str]) -> None:
        answer = peer.ask(315, fields)
        assert answer.code == 1
        assert "is missing" in (answer.remark or "")


def encode_batch_entry(body: bytes) -> bytes:
    """One message of a batch, without properties."""
    size = 4 + 4 + 4 + 4 + 4 + len(body) + 2
    return size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big") + body + bytes(2)


class TestWhenItIsShown:
    def test_nothing_before_the_first_tick(self, world: World, peer: Peer) -> None:
        assert sums(peer, "TOPIC_PUT_NUMS") is None
        world.advance(4000)
        peer.send()
        assert shown(peer, "TOPIC_PUT_NUMS") == BrokerStats()
        world.advance(5999)
        assert sums(peer, "TOPIC_PUT_NUMS") == (0, 0, 0)
        world.advance(1)
        assert sums(peer, "TOPIC_PUT_NUMS") == (1, 0, 0)

    def test_the_windows_move_on(self, world: World, peer: Peer) -> None:
        """Seven samples span a minute and an hour, 25 a day."""
        for _ in range(8):
            peer.send()
            world.advance(10_000)
        found = shown(peer, "TOPIC_PUT_NUMS")
        assert found is not None
        assert found.minute == StatsItem(6, 0.1, 1.0)
        world.advance(TEN_MINUTES)
        assert sums(peer, "TOPIC_PUT_NUMS") == (0, 8, 0)
        world.advance(HOUR)
        assert sums(peer, "TOPIC_PUT_NUMS") == (0, 0, 8)
        world.advance(DAY)
        assert sums(peer, "TOPIC_PUT_NUMS") == (0, 0, 0)

    def test_a_rest_costs_nothing_and_loses_nothing(self, world: World, peer: Peer) -> None:
        """No alarm rings when nothing is counted, and what comes after hours of rest counts from then on."""
        peer.send()
        world.advance(3 * HOUR)
        alarms = world.broker.alarms
        waited = [
            alarms.when(each)
            for each in (world.broker.statistics.sampler.sample, world.broker.statistics.store_stats.sample)
        ]
        assert waited == [None, None]
        world.advance(123_456)
        peer.send()
        world.advance(10_000)
        assert sums(peer, "TOPIC_PUT_NUMS") == (1, 0, 1)
        world.advance(TEN_MINUTES)
        assert sums(peer, "TOPIC_PUT_NUMS") == (0, 1, 1)
        world.advance(HOUR)
        assert sums(peer, "TOPIC_PUT_NUMS") == (0, 0, 2)

    def test_many_counters_are_marked_in_slices(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Others get their turn between, and all are marked at the same tick."""
        monkeypatch.setattr(sampling, "_AT_A_TIME", 3)
        for n in range(10):
            peer.send(f"T{n}")
        world.now = 11_000
        turns = 0
        while world.broker.next_deadline() == world.now or not turns:
            world.broker.timer(world.now)
            turns += 1
        assert turns >= 3
        assert {sums(peer, "TOPIC_PUT_NUMS", f"T{n}") for n in range(10)} == {(1, 0, 0)}
        world.advance(HOUR)
        assert {sums(peer, "TOPIC_PUT_NUMS", f"T{n}") for n in range(10)} == {(0, 1, 1)}


class TestBounds:
    def test_they_go_with_their_topic(self, world: World, peer: Peer) -> None:
        self.fill(world, peer)
        peer.ask(215, {"topic": "T"})
        assert [sums(peer, *each) for each in self.NAMES] == [None] * 3
        assert world.broker.statistics._count == 2
        peer.send()
        world.advance(10_000)
        assert sums(peer, "TOPIC_PUT_NUMS") == (1, 0, 0)

    def test_they_go_with_their_group(self, world: World, peer: Peer) -> None:
        self.fill(world, peer)
        peer.ask(207, {"groupName": "G"})
        assert [sums(peer, *each) for each in self.NAMES] == [(1, 0, 0), None, None]
        peer.pull()
        world.advance(10_000)
        assert sums(peer, "GROUP_GET_NUMS", "T@G") == (1, 0, 0)

    NAMES = (("TOPIC_PUT_NUMS", "T"), ("GROUP_GET_NUMS", "T@G"), ("SNDBCK_PUT_NUMS", "T@G"))

    def fill(self, world: World, peer: Peer) -> None:
        peer.send()
        peer.send("U")
        peer.pull("U")
        peer.pull()
        (message,) = peer.messages()
        peer.ask(36, {"offset": str(message.physical_offset), "group": "G", "delayLevel": "-1"})
        world.advance(10_000)
        assert [sums(peer, *each) for each in self.NAMES] == [(1, 0, 0)] * 3

    def test_no_more_than_so_many(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        """What finds no place counts in the totals; those that rested for a day make place for others."""
        peer.send()
        monkeypatch.setattr(broker_stats, "COUNTERS_MAX", 3)
        for group in ("A", "B", "C"):
            peer.pull(group=group)
        peer.send("U")
        world.advance(10_000)
        names = [
            ("TOPIC_PUT_NUMS", "T"),
            ("TOPIC_PUT_NUMS", "U"),
            *(("GROUP_GET_NUMS", f"T@{group}") for group in "ABC"),
        ]
        assert [sums(peer, *each) for each in names] == [(1, 0, 0), None, (1, 0, 0), (1, 0, 0), None]
        assert sums(peer, "BROKER_GET_NUMS", "DefaultCluster") == (3, 0, 0)
        world.advance(WINDOWS[-1].keep * WINDOWS[-1].period + HOUR)
        peer.pull(group="C")
        peer.send("U")
        world.advance(10_000)
        assert [sums(peer, *each) for each in names[1:]] == [(1, 0, 0), None, None, (1, 0, 0)]


def test_how_far_behind_a_reader_was(world: World, peer: Peer) -> None:
    """From the begin of the last message that it got to the end of the log then."""
    for _ in range(3):
        peer.send(body=b"x" * 100)
    (size,) = {message.store_size for message in peer.messages()}
    peer.pull(maxMsgNums="1")
    readers = {reader.behind for reader in world.broker.statistics.readers()}
    assert readers == {3 * size, size}
