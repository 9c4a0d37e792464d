"""Deleted topics, dead queues, unused topics, old files: 215, 306, 316, 329 (docs/protocol/broker.md 2.14, 2.21;
TXN-08).
"""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.engine.store import Queue
from tests.engine.broker.harness import Peer, World, pull_fields


def commit(peer: Peer, topic: str, offset: int, queue: int = 0, group: str = "G") -> None:
    peer.ask(15, {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)})


def queues(world: World) -> list[tuple[str, int]]:
    """All queues but those of transactions, which are always there."""
    found = [(queue.topic, queue.queue_id) for queue in world.store.queues()]
    return sorted(one for one in found if "_TRANS_" not in one[0])


def offsets(world: World) -> dict[str, dict[int, int]]:
    return world.broker.offsets.table


def kill(world: World, topic: str) -> Queue:
    """The queues of a topic as they are when their messages have gone from the log."""
    found = [queue for queue in world.store.queues() if queue.topic == topic]
    for queue in found:
        queue.min_offset = queue.max_offset
    return found[0]


class TestDeletedTopics:
    def test_queues_and_offsets_go(self, world: World, peer: Peer) -> None:
        """A topic that is made again begins anew, for its consumers too (Apache sends them past its first messages)."""
        for queue in ("0", "1"):
            peer.send("T", e=queue)
        peer.send("TT")
        commit(peer, "T", 1)
        commit(peer, "T", 1, queue=1, group="H")
        commit(peer, "TT", 1)
        assert peer.ask(215, {"topic": "T"}).code == 0
        assert queues(world) == [("TT", 0)]
        assert offsets(world) == {"TT@G": {0: 1}}
        peer.send("T")
        assert peer.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": "0"}).fields["offset"] == "0"

    def test_who_waits_there_is_told(self, world: World, peer: Peer) -> None:
        peer.send("T")
        peer.tell(11, pull_fields("T", offset=1, sysFlag="6"))
        other = world.connect()
        assert peer.read() == []
        other.ask(215, {"topic": "T"})
        assert [answer.code for answer in peer.read()] == [17]
        assert len(world.broker.parked_pulls) == 0

    def test_queues_that_shrinking_had_hidden(self, world: World, peer: Peer) -> None:
        fields = {
            "topic": "T",
            "defaultTopic": "TBW102",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        peer.ask(17, fields | {"readQueueNums": "4", "writeQueueNums": "4"})
        peer.send("T", e="3")
        peer.ask(17, fields | {"readQueueNums": "1", "writeQueueNums": "1"})
        peer.ask(215, {"topic": "T"})
        assert queues(world) == []

    def test_the_hidden_queues_stay(self, world: World, peer: Peer) -> None:
        """TXN-08: those of delayed messages, of half messages and of finished transactions."""
        peer.send("T", properties="DELAY\x015\x02")
        peer.send("T", properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02", f="4")
        assert world.store.find_queue("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) is not None
        world.store.queue("rmq_sys_other", 0)
        before = list(world.store.queues())
        for code in (215, 316, 306):
            assert peer.ask(code, {"topic": "U"}).code == 0
        assert list(world.store.queues()) == before

    def test_it_goes_on_when_the_operator_leaves(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mqproto.engine.broker.operators.cleaning._QUEUES_OF_A_SLICE", 1)
        monkeypatch.setattr("mqproto.engine.broker.operators.cleaning._OFFSETS_OF_A_SLICE", 1)
        for topic in ("A", "B", "C", "D"):
            peer.send(topic)
            commit(peer, topic, 1)
        for topic in ("B", "D"):
            world.broker.topics.delete(topic, world.wall)
        operator = world.connect()
        operator.tell(215, {"topic": "C"})
        assert ("C", 0) not in queues(world), "its own queues go at once: it may be made again"
        assert operator.read() == []
        operator.close()
        world.advance(0)
        assert queues(world) == [("A", 0)]
        assert offsets(world) == {"A@G": {0: 1}}

    def test_nothing_is_done_when_too_much_waits(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        peer.send("T")
        monkeypatch.setattr("mqproto.engine.slices.WORKS_MAX", 0)
        assert peer.ask(215, {"topic": "T"}).code == 2
        assert world.broker.topics.find("T") is not None
        assert peer.ask(316).code == 2


class TestCleaning:
    def test_dead_queues(self, world: World, peer: Peer) -> None:
        for topic in ("Dead", "Alive"):
            peer.send(topic)
            peer.send(topic, e="1")
            commit(peer, topic, 2)
            commit(peer, topic, 2, queue=3)
        kill(world, "Dead")
        peer.tell(11, pull_fields("Dead", offset=1, sysFlag="6"))
        other = world.connect()
        assert other.ask(306).code == 0
        assert queues(world) == [("Alive", 0), ("Alive", 1)]
        assert offsets(world) == {"Dead@G": {3: 2}, "Alive@G": {0: 2, 3: 2}}
        assert [answer.code for answer in peer.read()] == [21], "it waits no longer, and begins where the queue does"
        assert world.broker.offsets._count == 3

    def test_unused_topics(self, world: World, peer: Peer) -> None:
        for topic in ("Known", "Unknown"):
            peer.send(topic)
        world.broker.topics.delete("Unknown", world.wall)
        assert peer.ask(316).code == 0
        assert queues(world) == [("Known", 0)]

    def test_many_queues_are_looked_at_in_slices(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mqproto.engine.broker.operators.cleaning._QUEUES_OF_A_SLICE", 2)
        for number in range(5):
            peer.send(f"T{number}")
            kill(world, f"T{number}")
        peer.tell(306)
        assert len(queues(world)) > 2
        assert peer.read() == []
        (last,) = [queue for queue in world.store.queues() if queue.topic == "T4"]
        world.store.delete_queues(lambda queue: queue is last)
        again = world.store.queue("T4", 0)
        world.advance(0)
        assert queues(world) == [("T4", 0)]
        assert world.store.find_queue("T4", 0) is again, "a queue that was made anew meanwhile is another one"
        assert [answer.code for answer in peer.read()] == [0]

    def test_old_files(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[bool] = []
        monkeypatch.setattr(type(world.store), "delete_old_files", lambda store: asked.append(True))
        assert peer.ask(329).code == 0
        assert asked == [True]

    @pytest.mark.parametrize("code", [306, 316, 329])
    def test_neither_fields_nor_body_matter(self, peer: Peer, code: int) -> None:
        answer: Command = peer.ask(code, {"strange": "field"}, b"\xff")
        assert (answer.code, answer.fields, answer.body) == (0, {}, b"")
