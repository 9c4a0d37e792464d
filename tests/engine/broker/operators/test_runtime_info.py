"""GET_BROKER_RUNTIME_INFO 28: every key, in Apache's forms of text (docs/protocol/broker.md 2.17)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mqproto.engine.broker.operators.runtime_info import readable
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.wire.bodies import KVTable
from tests.engine.broker.harness import WALL, Peer, World, pull_fields
from tests.golden.golden import GOLDEN

HOUR, DAY = 3_600_000, 86_400_000


def info(peer: Peer) -> dict[str, str]:
    answer = peer.ask(28)
    assert answer.code == 0
    return KVTable.from_json(answer.body).table


def recorded(version: str) -> dict[str, str]:
    """What Apache's broker answered, with the name of its folder as ours."""
    (text,) = [
        body.text for body in GOLDEN.bodies() if (body.code, body.side, body.version) == (28, "response", version)
    ]
    table = KVTable.from_json(text.partition("\n")[2]).table
    return {re.sub(r"^(commitLogDiskRatio_).*", r"\1/store/commitlog", name): value for name, value in table.items()}


def form(value: str) -> str:
    """A text with its numbers masked."""
    return re.sub(r"-?\d+(\.\d+)?([Ee]-?\d+)?", "N", value)


#: These depend on what was measured so far: Apache leaves numbers out where there are too few samples.
SPANS = {"putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps"}


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7"])
def test_the_keys_and_forms_of_apache(version: str, peer: Peer) -> None:
    theirs, ours = recorded(version), info(peer)
    assert set(theirs) - set(ours) == set()
    mine = {"commitLogDiskRatio_/store/commitlog", "putMessageFailedTimes", "putLatency99", "putLatency999"}
    assert set(ours) - set(theirs) == (mine if version == "4.4.0" else set())
    # Where nothing is flushed yet or no disk was looked at, the unit is another one.
    masked = {"remainHowManyDataToFlush", "commitLogDirCapacity", "brokerVersionDesc"}
    assert {name: form(ours[name]) for name in set(theirs) - SPANS - masked} == {
        name: form(value) for name, value in theirs.items() if name not in SPANS | masked
    }
    assert (ours["brokerVersionDesc"], ours["brokerVersion"]) == ("V4_9_7", "407")
    assert re.fullmatch(
        r"Total : \d+(\.\d [KMGTPE]i| )B, Free : \d+(\.\d [KMGTPE]i| )B\.", ours["commitLogDirCapacity"]
    )
    assert {len(ours[name].split(" ")) for name in SPANS} == {3}


class TestStart:
    def test_how_long_it_runs(self) -> None:
        world = World(server_channel_max_idle_time_seconds=1_000_000)
        peer = world.connect()
        world.advance(2 * DAY + 3 * HOUR + 4 * 60_000 + 5999)
        found = info(peer)
        assert found["bootTimestamp"] == str(WALL + 1000)
        assert found["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"
        world.set_wall(-3 * DAY)
        assert info(peer)["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]", "the clock was set back"

    def test_an_empty_store(self, peer: Peer) -> None:
        found = info(peer)
        assert found["earliestMessageTimeStamp"] == "-1"
        assert found["putMessageTimesTotal"] == "1", "never below that, for averages"
        assert found["putMessageAverageSize"] == "0.0"
        assert found["commitLogDiskRatio"] == "-1.0"
        assert found["commitLogDirCapacity"] == "Total : 0 B, Free : 0 B."

    def test_the_disk_as_it_was_found(self) -> None:
        files = MemoryFiles()
        files.space, files.capacity = 1448 << 20, 2048 << 20
        world = World(files=files, store={"clean_resource_interval": 10_000})
        found = info(world.connect())
        assert found["commitLogDirCapacity"] == "Total : 2.0 GiB, Free : 1.4 GiB."
        assert (
            found["commitLogDiskRatio"]
            == found["consumeQueueDiskRatio"]
            == found["commitLogDiskRatio_/store/commitlog"]
            == "0.3"
        )


class TestMessages:
    def test_what_was_put(self, world: World, peer: Peer) -> None:
        begin = world.store.end
        for _ in range(4):
            peer.send()
        size = world.store.end - begin
        found = info(peer)
        assert (found["putMessageTimesTotal"], found["putMessageSizeTotal"]) == ("4", str(size))
        assert found["putMessageAverageSize"] == str(size / 4)
        assert found["putMessageDistributeTime"].startswith("[<=0ms]:4 [0~10ms]:0 ")
        assert found["putMessageDistributeTime"].endswith(" [5~10s]:0 [10s~]:0 ")
        assert found["earliestMessageTimeStamp"] == str(world.wall)
        assert (found["commitLogMinOffset"], found["commitLogMaxOffset"]) == ("0", str(world.store.end))
        assert found["remainHowManyDataToFlush"] == f"{size} B"
        assert (found["putMessageEntireTimeMax"], found["putLatency99"], found["putMessageFailedTimes"]) == (
            "0",
            "0.00",
            "0",
        )

    def test_sizes_leave_out_what_is_between_files(self) -> None:
        world = World(store={"mapped_file_size_commit_log": 2000})
        peer = world.connect()
        sizes = 0
        for n in range(20):
            peer.send(body=b"x" * (300 + n))
        for offset in range(20):
            (message,) = peer.messages(offset=offset)[:1]
            sizes += message.store_size
        assert world.store.end > sizes
        assert info(peer)["putMessageSizeTotal"] == str(sizes)

    def test_a_store_that_was_there_counts_from_now_on(self) -> None:
        files = MemoryFiles()
        world = World(files=files)
        world.connect().send()
        world.close()
        again = World(files=files)
        peer = again.connect()
        assert info(peer)["putMessageSizeTotal"] == "0"
        assert info(peer)["earliestMessageTimeStamp"] == str(WALL + 1000)

    def test_refused_messages(self, world: World, peer: Peer) -> None:
        assert peer.send(properties="K\x01" + "v" * 40_000).code == 13
        assert info(peer)["putMessageFailedTimes"] == "1"

    def test_delay_levels(self, world: World, peer: Peer) -> None:
        peer.send(properties="DELAY\x011\x02")
        world.advance(15_000)
        for _ in range(2):
            peer.send(properties="DELAY\x011\x02")
        found = {name: value for name, value in info(peer).items() if name.startswith("schedule")}
        assert found == {"scheduleMessageOffset_1": "1,3"}

    def test_the_oldest_message_may_have_to_be_read(self) -> None:
        files = MemoryFiles()
        world = World(files=files)
        world.connect().send()
        world.close()
        again = World(files=files, now=50_000)
        again.hold_jobs = True
        peer = again.connect()
        peer.tell(28)
        assert peer.read() == []
        again.run_held()
        (answer,) = peer.read()
        assert KVTable.from_json(answer.body).table["earliestMessageTimeStamp"] == str(WALL + 1000)


class TestRates:
    def traffic(self, world: World, peer: Peer, seconds: int) -> None:
        """A second: two messages, one pull that gets both, and one that gets nothing."""
        for _ in range(seconds):
            offset = int(peer.send().fields["queueOffset"])
            peer.send()
            peer.pull(offset=offset)
            peer.pull(offset=offset + 2)
            world.advance(1000)

    def test_spans_of_ten_sixty_and_six_hundred_seconds(self) -> None:
        world = World(server_channel_max_idle_time_seconds=1_000_000)
        peer = world.connect()
        self.traffic(world, peer, 9)
        assert info(peer)["putTps"] == "0.0 0.0 0.0", "too young to tell"
        assert info(peer)["getTotalTps"] == "0.0 0.0 0.0"
        self.traffic(world, peer, 21)
        assert info(peer)["putTps"] == "2.0 0.0 0.0"
        self.traffic(world, peer, 30)
        assert info(peer)["putTps"] == "2.0 2.0 0.0"
        world.advance(30_000)
        found = info(peer)
        assert found["putTps"] == "0.0 1.0 0.0"
        assert found["getFoundTps"] == found["getMissTps"] == "0.0 0.5 0.0"
        assert found["getTotalTps"] == "0.0 1.0 0.0"
        assert found["getTransferedTps"] == "0.0 1.0 0.0"
        world.advance(510_000)
        assert info(peer)["putTps"] == "0.0 0.0 0.2"
        world.advance(600_000)
        assert info(peer)["putTps"] == "0.0 0.0 0.0"

    def test_a_rest_ends_with_the_first_message(self) -> None:
        world = World(server_channel_max_idle_time_seconds=1_000_000)
        peer = world.connect()
        self.traffic(world, peer, 1)
        world.advance(7_777_123)
        self.traffic(world, peer, 5)
        assert info(peer)["putTps"].startswith("1.0 ")
        world.advance(100_000)
        while world.broker.statistics.sampler.elapsed % 10_000 != 1000:  # a tick of the counters would wake it, too
            world.advance(1)
            world.broker.timer(world.now)
        peer.send()
        world.advance(5000)
        for _ in range(2):
            peer.send()
        world.advance(3000)
        assert info(peer)["putTps"].startswith("0.3 "), "seconds without a message do not end it at once"
        world.advance(100_000)
        peer.pull(offset=99)
        world.advance(1000)
        assert info(peer)["getMissTps"].startswith("0.1 "), "reads that find nothing wake the sampling, too"

    def test_put_times_are_those_of_the_minute(self, world: World, peer: Peer) -> None:
        for _ in range(3):
            peer.send()
        world.advance(58_000)
        peer.send()
        assert info(peer)["putMessageDistributeTime"].startswith("[<=0ms]:4 ")
        world.advance(2000)
        assert info(peer)["putMessageDistributeTime"].startswith("[<=0ms]:0 ")
        peer.send()
        assert info(peer)["putMessageDistributeTime"].startswith("[<=0ms]:1 ")


class TestWaiting:
    def world(self, **store: Any) -> World:
        world = World(store={"flush_disk_type": "SYNC_FLUSH"} | store)
        world.connect("192.0.2.9:1").send()
        world.act()
        world.hold_jobs = True
        return world

    @pytest.mark.parametrize(
        ("waited", "bucket"),
        [(1, "[0~10ms]"), (9, "[0~10ms]"), (10, "[10~50ms]"), (999, "[500ms~1s]"), (4500, "[4~5s]")],
    )
    def test_a_put_takes_until_the_disk_has_it(self, waited: int, bucket: str) -> None:
        world = self.world()
        peer = world.connect()
        for _ in range(3):
            peer.tell(
                310,
                {
                    "a": "PG",
                    "b": "T",
                    "c": "TBW102",
                    "d": "4",
                    "e": "0",
                    "f": "0",
                    "g": "1",
                    "h": "0",
                    "i": "",
                    "j": "0",
                },
            )
        world.now += waited
        other = world.connect("192.0.2.9:2")
        found = info(other)
        assert (found["sendThreadPoolQueueSize"], found["sendThreadPoolQueueHeadWaitTimeMills"]) == ("3", str(waited))
        while world.jobs:
            world.run_held()
        assert len(peer.read()) == 3
        found = info(other)
        assert (found["sendThreadPoolQueueSize"], found["sendThreadPoolQueueHeadWaitTimeMills"]) == ("0", "0")
        assert found["putMessageEntireTimeMax"] == str(waited)
        assert f"{bucket}:3 " in found["putMessageDistributeTime"]
        assert found["putMessageDistributeTime"].startswith("[<=0ms]:1 ")
        assert found["putLatency99"] == "0.00", "of the last whole minute"
        world.advance(60_000)
        found = info(other)
        assert (found["putLatency99"], found["putLatency999"]) == (f"{waited}.00", f"{waited}.00")
        world.advance(60_000)
        assert info(world.connect("192.0.2.9:3"))["putLatency99"] == "0.00"

    def test_a_read_takes_until_the_disk_gave_it(self) -> None:
        world = World(store={"cold_read_distance": 1})
        peer = world.connect()
        peer.send()
        peer.send("Other")
        world.hold_jobs = True
        peer.tell(11, pull_fields())
        world.now += 40
        other = world.connect("192.0.2.9:2")
        other.tell(28)
        world.run_held()
        (answer,) = other.read()
        table = KVTable.from_json(answer.body).table
        assert table["getMessageEntireTimeMax"] == "40"
        assert int(table["queryThreadPoolQueueSize"]) == len(world.broker.waiting_reads)
        assert table["queryThreadPoolQueueHeadWaitTimeMills"] == "0"

    def test_limits_as_they_are_set(self, world: World, peer: Peer) -> None:
        settings = world.broker.settings
        settings.send_thread_pool_queue_capacity = 7
        settings.pull_thread_pool_queue_capacity = 8
        settings.query_thread_pool_queue_capacity = 9
        found = info(peer)
        assert [found[f"{name}ThreadPoolQueueCapacity"] for name in ("send", "pull", "query")] == ["7", "8", "9"]


class TestDays:
    def test_totals_of_local_days(self) -> None:
        """Two hours east of UTC, begun at 22:00 local time."""
        world = World(server_channel_max_idle_time_seconds=10_000_000, utc_offset_ms=2 * HOUR)
        world.set_wall(-WALL + 19_000 * DAY + 20 * HOUR - world.now)
        world.broker.statistics.store_stats.begin()
        peer = world.connect()

        def totals() -> list[str]:
            found = info(peer)
            return [
                found[f"msg{way}Total{when}"]
                for way in ("Put", "Get")
                for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
            ]

        for _ in range(3):
            peer.send()
        peer.pull()
        assert totals() == ["0", "0", "3", "0", "0", "3"]
        world.advance(2 * HOUR - 1)
        peer.send()
        assert totals() == ["0", "0", "4", "0", "0", "3"]
        world.advance(1000)
        peer.send()
        assert totals() == ["0", "4", "5", "0", "3", "3"]
        world.advance(DAY)
        assert totals() == ["4", "5", "5", "3", "3", "3"]
        world.advance(3 * DAY)
        assert totals() == ["5", "5", "5", "3", "3", "3"]
        peer.send()
        assert totals() == ["5", "5", "6", "3", "3", "3"]
        world.advance(2000)
        world.broker.wall_ahead -= DAY
        assert totals() == ["5", "5", "6", "3", "3", "3"], "a clock that is set back begins no day"
        world.broker.wall_ahead += DAY
        assert totals() == ["5", "5", "6", "3", "3", "3"], "nor does it begin one twice"
        world.advance(3 * DAY)
        assert totals() == ["6", "6", "6", "3", "3", "3"]
        world.broker.wall_ahead -= 9 * DAY
        assert totals() == ["6", "6", "6", "3", "3", "3"]
        peer.send()
        world.advance(DAY)
        assert totals() == ["6", "7", "7", "3", "3", "3"], "days go on from there"


def test_sizes_as_apache_writes_them() -> None:
    for vector in GOLDEN.vectors("human-bytes"):
        assert readable(vector.input) == vector.output()["binary"]
