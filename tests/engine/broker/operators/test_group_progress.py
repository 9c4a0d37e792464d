"""Where groups stand, for operators: 300, 303, 308, 314, 343, 345 (docs/protocol/broker.md 2.18, 2.19)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupList,
    GroupSubscription,
    QueueTimeSpan,
    SubscriptionData,
    TopicList,
)
from tests.engine.broker.harness import WALL, Peer, World, heartbeat


def commit(peer: Peer, group: str, topic: str, queue: int, offset: int) -> None:
    peer.ask(15, {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)})


def subscribe(world: World, group: str, *topics: str) -> Peer:
    peer = world.connect()
    subscriptions = [{"topic": topic, "subString": "a", "subVersion": 7} for topic in topics]
    peer.heartbeat(heartbeat("c1", (group,), subscriptionDataSet=subscriptions))
    return peer


def groups(peer: Peer, topic: str) -> list[str]:
    return GroupList.from_json(peer.ask(300, {"topic": topic}).body).groups


def offsets(world: World, group: str, topic: str) -> dict[int, int]:
    return dict(world.broker.offsets.of(group, topic))


class TestWhoConsumesWhat:
    def test_groups_of_a_topic(self, world: World, peer: Peer) -> None:
        subscribe(world, "online", "T", "U")
        subscribe(world, "both", "T")
        commit(peer, "both", "T", 0, 1)
        commit(peer, "offline", "T", 0, 1)
        commit(peer, "other", "T2", 0, 1)
        assert groups(peer, "T") == ["online", "both", "offline"]
        assert groups(peer, "U") == ["online"]
        assert peer.ask(300, {"topic": "nobody"}).body == b'{"groupList":[]}'
        assert peer.ask(300, {}).code == 1

    def test_topics_of_a_group(self, world: World, peer: Peer) -> None:
        for topic in ("T", "U"):
            commit(peer, "G", topic, 0, 1)
        commit(peer, "GG", "V", 0, 1)
        commit(peer, "x@G", "W", 0, 1)
        assert TopicList.from_json(peer.ask(343, {"group": "G"}).body).topics == ["T", "U"]
        assert TopicList.from_json(peer.ask(343, {"group": "x@G"}).body).topics == ["W"]
        assert peer.ask(343, {}).code == 1

    def test_who_committed_what_is_known_after_a_start_and_forgotten_with_the_offsets(
        self, world: World, peer: Peer
    ) -> None:
        for group, topic in (("G", "T"), ("G", "U"), ("H", "T")):
            commit(peer, group, topic, 0, 1)
        world.close()
        later = World(files=world.files)
        reader = later.connect()
        assert groups(reader, "T") == ["G", "H"]
        reader.ask(207, {"groupName": "G", "removeOffset": "true"})
        assert groups(reader, "T") == ["H"]
        assert groups(reader, "U") == []
        commit(reader, "G", "U", 0, 1)
        assert groups(reader, "U") == ["G"]
        assert later.broker.offsets.topics_of("G") == ["U"]

    def test_what_a_group_subscribes(self, world: World, peer: Peer) -> None:
        subscribe(world, "G", "T")
        answer = GroupSubscription.from_json(peer.ask(345, {"group": "G", "topic": "T"}).body)
        assert answer == GroupSubscription("G", "T", SubscriptionData("T", "a", version=7))
        for group, topic in (("G", "U"), ("H", "T")):
            body = peer.ask(345, {"group": group, "topic": topic}).body
            assert GroupSubscription.from_json(body) == GroupSubscription(group, topic)
        assert peer.ask(345, {"group": "G"}).code == 1


class TestTimeSpans:
    def ask(self, peer: Peer, **changes: str) -> dict[int, QueueTimeSpan]:
        answer = peer.ask(303, {"topic": "T", "group": "G"} | changes)
        assert answer.code == 0
        spans = ConsumeTimeSpans.from_json(answer.body).spans
        assert {(span.queue.topic, span.queue.broker_name) for span in spans} == {("T", "broker-a")}
        return {span.queue.queue_id: span for span in spans}

    @pytest.mark.parametrize("distance", [1 << 30, 1], ids=["near", "cold"])
    def test_places_of_a_group(self, distance: int) -> None:
        world = World(store={"cold_read_distance": distance})
        peer = world.connect()
        for time in (2000, 3000, 4000):
            world.advance(time - world.now)
            peer.send("T", e="0")
            peer.send("T", e="1")
        commit(peer, "G", "T", 0, 2)
        commit(peer, "G", "T", 1, 3)
        world.advance(1000)
        spans = self.ask(peer)
        first, last = WALL + 2000, WALL + 4000
        assert spans == {
            0: QueueTimeSpan(MessageQueue("T", "broker-a", 0), first, last, WALL + 3000, 1000),
            1: QueueTimeSpan(MessageQueue("T", "broker-a", 1), first, last, last, 0),
            2: QueueTimeSpan(MessageQueue("T", "broker-a", 2), -1, -1, -1, 0),
            3: QueueTimeSpan(MessageQueue("T", "broker-a", 3), -1, -1, -1, 0),
        }
        assert world.store.find_queue("T", 2) is None, "looking makes no queues"
        assert self.ask(peer, group="new")[0] == QueueTimeSpan(
            MessageQueue("T", "broker-a", 0), first, last, first, 3000
        )

    def test_places_beyond_the_queue(self, world: World, peer: Peer) -> None:
        peer.send("T", e="0")
        commit(peer, "G", "T", 0, 1000)
        commit(peer, "G", "T", 1, 1000)
        spans = self.ask(peer)
        assert spans[0] == QueueTimeSpan(MessageQueue("T", "broker-a", 0), WALL + 1000, WALL + 1000, WALL + 1000, 0)
        assert spans[1] == QueueTimeSpan(MessageQueue("T", "broker-a", 1), -1, -1, -1, 0)

    def test_what_is_refused(self, peer: Peer) -> None:
        answer = peer.ask(303, {"topic": "T", "group": "G"})
        assert (answer.code, answer.remark) == (17, "topic[T] not exist")
        assert peer.ask(303, {"topic": "T"}).code == 1
        assert peer.ask(303, {"group": "G"}).code == 1


class TestCorrection:
    NONE = (1 << 63) - 1

    def ask(self, peer: Peer, **changes: str) -> dict[int, int]:
        answer = peer.ask(308, {"topic": "T", "compareGroup": "C"} | changes)
        assert answer.code == 0
        return CorrectionOffsets.from_json(answer.body).offsets

    @pytest.mark.parametrize("slice_size", [100, 1])
    def test_the_lowest_of_all_groups(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch, slice_size: int
    ) -> None:
        monkeypatch.setattr("mqproto.engine.broker.operators.group_progress._GROUPS_OF_A_SLICE", slice_size)
        for group, queue, offset in (("A", 0, 5), ("B", 0, 3), ("A", 1, 9), ("C", 0, 8), ("C", 1, 2), ("C", 2, 4)):
            commit(peer, group, "T", queue, offset)
        commit(peer, "A", "U", 0, 1)
        peer.tell(308, {"topic": "T", "compareGroup": "C", "filterGroups": "B,X"})
        world.advance(0)
        (answer,) = peer.read()
        assert CorrectionOffsets.from_json(answer.body).offsets == {0: 5, 1: 2, 2: 4}
        peer.tell(308, {"topic": "T", "compareGroup": "A", "filterGroups": "A,C"})
        world.advance(0)
        (answer,) = peer.read()
        assert CorrectionOffsets.from_json(answer.body).offsets == {0: 3, 1: self.NONE}
        assert offsets(world, "B", "T") == {0: 3}, "Apache loses the offsets of the groups that it passes over"

    def test_offsets_before_the_queue_begins_do_not_count(self, world: World, peer: Peer) -> None:
        peer.send("T", e="0")
        commit(peer, "A", "T", 0, 5)
        commit(peer, "B", "T", 0, 3)
        queue = world.store.find_queue("T", 0)
        assert queue is not None
        queue.min_offset = 4
        assert self.ask(peer) == {0: 5}

    def test_nothing_there(self, peer: Peer) -> None:
        assert self.ask(peer) == {}
        assert peer.ask(308, {"topic": "T"}).code == 1
        assert peer.ask(308, {"compareGroup": "C"}).code == 1


class TestClone:
    @pytest.fixture(autouse=True)
    def _topics(self, peer: Peer) -> None:
        for topic in ("T", "U"):
            peer.send(topic)

    def ask(self, peer: Peer, **changes: Any) -> int:
        return peer.ask(314, {"srcGroup": "A", "destGroup": "B", "topic": "T", "offline": "true"} | changes).code

    def test_one_topic(self, world: World, peer: Peer) -> None:
        commit(peer, "A", "T", 0, 5)
        commit(peer, "A", "U", 0, 6)
        commit(peer, "B", "T", 3, 7)
        assert self.ask(peer) == 0
        assert offsets(world, "B", "T") == {0: 5}
        assert offsets(world, "B", "U") == {}
        commit(peer, "A", "T", 0, 9)
        assert offsets(world, "B", "T") == {0: 5}, "a copy"
        world.close()
        later = World(files=world.files)
        assert offsets(later, "B", "T") == {0: 5}

    @pytest.mark.parametrize("slice_size", [500, 1])
    def test_all_topics(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch, slice_size: int) -> None:
        """Apache copies nothing then: it asks its table for a topic without a name."""
        monkeypatch.setattr("mqproto.engine.broker.operators.group_progress._TOPICS_OF_A_SLICE", slice_size)
        for topic in ("T", "U", "gone"):
            commit(peer, "A", topic, 0, 5)
        peer.tell(314, {"srcGroup": "A", "destGroup": "B", "topic": "", "offline": "true"})
        world.advance(0)
        assert [answer.code for answer in peer.read()] == [0]
        assert [offsets(world, "B", topic) for topic in ("T", "U", "gone")] == [{0: 5}, {0: 5}, {}]

    def test_what_an_online_group_has_left(self, world: World, peer: Peer) -> None:
        for topic in ("T", "U"):
            commit(peer, "A", topic, 0, 5)
        subscribe(world, "A", "U")
        for topic in ("T", "U"):
            assert self.ask(peer, topic=topic, offline="false") == 0
        assert [offsets(world, "B", topic) for topic in ("T", "U")] == [{}, {0: 5}]
        assert self.ask(peer) == 0
        assert offsets(world, "B", "T") == {0: 5}

    def test_nothing_to_copy(self, world: World, peer: Peer) -> None:
        commit(peer, "B", "T", 0, 5)
        assert self.ask(peer) == 0
        assert offsets(world, "B", "T") == {0: 5}
        assert self.ask(peer, srcGroup="B") == 0
        assert offsets(world, "B", "T") == {0: 5}

    def test_the_table_is_bounded(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        commit(peer, "A", "T", 0, 5)
        monkeypatch.setattr("mqproto.engine.broker.tables.consumer_offsets.OFFSETS_MAX", 1)
        answer = peer.ask(314, {"srcGroup": "A", "destGroup": "B", "topic": "T"})
        assert (answer.code, answer.remark) == (1, "this broker keeps no more offsets")

    def test_what_is_replaced_makes_room(self, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        commit(peer, "A", "T", 0, 5)
        monkeypatch.setattr("mqproto.engine.broker.tables.consumer_offsets.OFFSETS_MAX", 3)
        assert [self.ask(peer) for _ in range(3)] == [0, 0, 0]

    @pytest.mark.parametrize("missing", ["srcGroup", "destGroup"])
    def test_what_is_refused(self, peer: Peer, missing: str) -> None:
        fields = {"srcGroup": "A", "destGroup": "B"}
        del fields[missing]
        assert peer.ask(314, fields).code == 1
        assert peer.ask(314, {"srcGroup": "A", "destGroup": ""}).code == 1
