"""How far queues and groups are: 202, 208, 317 (docs/protocol/broker.md 2.18)."""

from __future__ import annotations

import pytest

from mqproto.codec import ONEWAY_FLAG, Command
from mqproto.engine.broker.operators import consume_stats
from mqproto.engine.store import ColdRead, Queue, Store
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.engine.store.reads.cold_reads import Reads
from mqproto.message import MessageQueue
from mqproto.wire.bodies import ConsumeOffsets, ConsumeStats, ConsumeStatsList, TopicConfig, TopicOffset, TopicStats
from tests.engine.broker.harness import ADDRESS, WALL, Peer, World, heartbeat


def place(queue_id: int = 0, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def make(peer: Peer, topic: str, read: int, write: int) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(read),
        "writeQueueNums": str(write),
        "perm": "6",
    }
    assert peer.ask(17, fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}).code == 0


def commit(peer: Peer, offset: int, queue: int = 0, topic: str = "T", group: str = "G") -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)}
    assert peer.ask(15, fields).code == 0


def ends(peer: Peer, topic: str = "T") -> dict[MessageQueue, TopicOffset]:
    answer = peer.ask(202, {"topic": topic})
    assert answer.code == 0
    return TopicStats.from_json(answer.body).offsets


def progress(peer: Peer, group: str = "G", **more: str) -> ConsumeStats:
    answer = peer.ask(208, {"consumerGroup": group} | more)
    assert answer.code == 0
    return ConsumeStats.from_json(answer.body)


def everything(peer: Peer, order: str = "false") -> tuple[dict[str, list[ConsumeStats]], int]:
    answer = peer.ask(317, {"isOrder": order})
    assert answer.code == 0
    body = ConsumeStatsList.from_json(answer.body)
    assert body.broker_address == ADDRESS
    return {group: rows for entry in body.stats for group, rows in entry.items()}, body.total_diff


class TestTopic:
    def test_the_ends_of_the_queues_that_can_be_written_to(self, world: World, peer: Peer) -> None:
        make(peer, "T", 4, 2)
        peer.send(e="1")
        world.advance(500)
        peer.send(e="1")
        peer.send(e="3")
        assert ends(peer) == {place(0): TopicOffset(), place(1): TopicOffset(0, 2, world.wall)}

    def test_a_time_that_cannot_be_read(self, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        peer.send()
        monkeypatch.setattr(Reads, "near_store_time", lambda *_: -1)
        assert ends(peer)[place()].last_update_timestamp == -1

    def test_no_topic(self, peer: Peer) -> None:
        answer = peer.ask(202, {"topic": "X"})
        assert (answer.code, answer.remark) == (17, "topic[X] not exist")

    @pytest.mark.parametrize(("code", "names"), [(202, ["topic"]), (208, ["consumerGroup"])])
    def test_fields_that_are_missing(self, peer: Peer, code: int, names: list[str]) -> None:
        answer = peer.ask(code, {})
        assert answer.code == 1
        assert names[0] in (answer.remark or "")


class TestGroup:
    def test_progress_on_the_queues_that_can_be_read(self, world: World, peer: Peer) -> None:
        make(peer, "T", 2, 4)
        for n in range(4):
            peer.send(e=str(n % 2))
            world.advance(1000)
        peer.send(e="3")
        commit(peer, 1)
        world.advance(10_000)
        assert progress(peer) == ConsumeStats(
            {place(0): ConsumeOffsets(2, 1, WALL + 1000), place(1): ConsumeOffsets(2, 0, 0)},
        )

    def test_the_rate_of_the_last_minute(self, world: World, peer: Peer) -> None:
        for topic in ("T", "U"):
            for _ in range(10):
                peer.send(topic)
            peer.pull(topic, maxMsgNums="10")
            commit(peer, 10, topic=topic)
        world.advance(10_000)
        assert progress(peer).tps == 2.0, "of all topics"
        assert progress(peer, topic="U").tps == 1.0
        assert set(progress(peer, topic="U").offsets) == {place(n, "U") for n in range(4)}

    def test_one_topic_or_all_that_the_group_has_offsets_of(self, peer: Peer) -> None:
        for topic in ("T", "U", "V"):
            peer.send(topic)
        commit(peer, 1)
        commit(peer, 1, topic="U")
        commit(peer, 1, topic="Gone")
        commit(peer, 1, topic="V", group="Other")
        assert {queue.topic for queue in progress(peer).offsets} == {"T", "U"}
        assert {queue.topic for queue in progress(peer, topic=" ").offsets} == {"T", "U"}
        assert {queue.topic for queue in progress(peer, topic="V").offsets} == {"V"}, "asked for"
        assert progress(peer, topic="X") == ConsumeStats()
        assert progress(peer, "Nobody") == ConsumeStats()

    def test_what_an_online_group_has_not_subscribed_is_left_out(self, peer: Peer) -> None:
        for topic in ("T", "U"):
            peer.send(topic)
            commit(peer, 1, topic=topic)
        peer.heartbeat(heartbeat())
        assert {queue.topic for queue in progress(peer).offsets} == {"T"}
        assert progress(peer, topic="U") == ConsumeStats()

    def test_an_online_group_without_subscriptions_is_shown(self, peer: Peer) -> None:
        peer.send()
        commit(peer, 1)
        peer.heartbeat(heartbeat(subscriptionDataSet=[]))
        assert {queue.topic for queue in progress(peer).offsets} == {"T"}

    def test_messages_that_are_gone_have_no_time(self, world: World, peer: Peer) -> None:
        peer.send()
        commit(peer, 7)
        assert progress(peer).offsets[place()] == ConsumeOffsets(1, 7, 0)


class TestAllGroups:
    def test_every_group_with_its_topics(self, world: World, peer: Peer) -> None:
        make(peer, "T", 4, 2)
        peer.send()
        peer.send()
        peer.pull(group="H")
        commit(peer, 1)
        commit(peer, 2, group="H")
        peer.pull("T", "G")
        found, total = everything(peer)
        assert set(found) >= {"G", "H", "TOOLS_CONSUMER"}
        assert found["TOOLS_CONSUMER"] == []
        assert found["G"] == [ConsumeStats({place(0): ConsumeOffsets(2, 1, world.wall), place(1): ConsumeOffsets()})]
        assert found["H"] == [ConsumeStats({place(0): ConsumeOffsets(2, 2, world.wall), place(1): ConsumeOffsets()})]
        assert total == 1

    def test_ordered_topics_only(self, world: World, peer: Peer) -> None:
        for topic in ("T", "U"):
            peer.send(topic)
            commit(peer, 1, topic=topic)
            peer.pull(topic)
        world.broker.topics.set_ordered(["U"], world.wall)
        found, _ = everything(peer, "true")
        assert [{queue.topic for queue in stats.offsets} for stats in found["G"]] == [{"U"}]
        found, _ = everything(peer)
        assert len(found["G"]) == 2

    def test_a_broker_without_messages(self, peer: Peer) -> None:
        found, total = everything(peer)
        assert set(map(len, found.values())) == {0}
        assert total == 0

    def test_one_way_requests_do_nothing(self, peer: Peer) -> None:
        peer.tell(317, {"isOrder": "false"}, flag=ONEWAY_FLAG)
        assert peer.read() == []

    def test_an_answer_that_no_frame_takes(self, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(consume_stats, "_BODY_MAX", 100)
        answer = peer.ask(317, {"isOrder": "false"})
        assert answer.code == 1
        assert "more than a frame takes" in (answer.remark or "")


class TestTimesOnDisk:
    @pytest.fixture
    def files(self) -> MemoryFiles:
        """A directory with three queues of messages, and a group in the middle of each."""
        files = MemoryFiles()
        world = World(files=files)
        peer = world.connect()
        for queue in range(3):
            for _ in range(2):
                peer.send(e=str(queue))
                world.advance(100)
            commit(peer, 1, queue)
        world.close()
        return files

    def ask(self, files: MemoryFiles, code: int, fields: dict[str, str]) -> tuple[World, Peer, list[Command]]:
        world = World(files=files, now=100_000)
        world.hold_jobs = True
        peer = world.connect()
        peer.tell(code, fields)
        return world, peer, peer.read()

    @pytest.mark.parametrize("at_a_time", [1, 2, 100])
    def test_they_are_read_by_jobs(self, files: MemoryFiles, at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(consume_stats, "_TIMES_AT_A_TIME", at_a_time)
        world, peer, answers = self.ask(files, 202, {"topic": "T"})
        assert answers == []
        reads = 0
        while any(isinstance(job, ColdRead) for job in world.jobs):
            reads += 1
            world.run_held()
        assert reads == -(-3 // at_a_time)
        (answer,) = peer.read()
        times = {
            queue.queue_id: row.last_update_timestamp
            for queue, row in TopicStats.from_json(answer.body).offsets.items()
        }
        assert times == {0: WALL + 1100, 1: WALL + 1300, 2: WALL + 1500, 3: 0}
        peer.tell(208, {"consumerGroup": "G"})
        while world.jobs:
            world.run_held()
        (answer,) = peer.read()
        stats = ConsumeStats.from_json(answer.body)
        assert [stats.offsets[place(n)].last_timestamp for n in range(4)] == [WALL + 1000, WALL + 1200, WALL + 1400, 0]

    def test_a_disk_that_fails(self, files: MemoryFiles) -> None:
        world, peer, _ = self.ask(files, 202, {"topic": "T"})
        (job,) = [job for job in world.jobs if isinstance(job, ColdRead)]
        world.broker.done(job, OSError(5, "Input/output error"), world.now)
        (answer,) = peer.read()
        assert answer.code == 1
        assert "could not be read" in (answer.remark or "")

    def test_a_link_that_is_over(self, files: MemoryFiles) -> None:
        world, peer, _ = self.ask(files, 317, {"isOrder": "false"})
        peer.close()
        while world.jobs:
            world.run_held()
        assert peer.read() == []
        assert len(world.broker.waiting_reads) == 0


def test_many_topics_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it takes more than some hundred queues at a time, and others are served between."""
    world = World()
    peer, other = world.connect(), world.connect("192.0.2.9:1")
    for n in range(300):
        world.broker.topics.table[f"T{n}"] = TopicConfig(f"T{n}", 4, 4, 6)
        for queue_id in range(4):
            world.broker.offsets.commit("G", f"T{n}", queue_id, 0)
    found: list[tuple[str, int]] = []
    find = world.store.find_queue

    def counted(_: Store, topic: str, queue_id: int) -> Queue | None:
        found.append((topic, queue_id))
        return find(topic, queue_id)

    monkeypatch.setattr(Store, "find_queue", counted)
    peer.tell(208, {"consumerGroup": "G"})
    assert 0 < len(found) <= 200
    assert peer.read() == []
    assert other.send().code == 0
    world.advance(10)
    (answer,) = peer.read()
    assert len(ConsumeStats.from_json(answer.body).offsets) == 1200
    assert len(found) == 1200
