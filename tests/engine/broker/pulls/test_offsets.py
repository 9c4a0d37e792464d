"""Offsets of consumers and queues (docs/protocol/broker.md 2.5, 2.6)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.wire.bodies import OffsetTable
from tests.engine.broker.harness import Peer, World


def where(topic: str = "T", queue: int = 0, **more: Any) -> dict[str, str]:
    return {"topic": topic, "queueId": str(queue)} | more


class TestCommitted:
    def commit(self, peer: Peer, offset: int, group: str = "G", topic: str = "T", queue: int = 0) -> None:
        assert peer.ask(15, where(topic, queue, consumerGroup=group, commitOffset=str(offset))).code == 0

    def query(self, peer: Peer, group: str = "G", topic: str = "T", queue: int = 0) -> tuple[int, str | None]:
        answer = peer.ask(14, where(topic, queue, consumerGroup=group))
        return answer.code, answer.fields.get("offset")

    def test_what_was_committed_is_found(self, peer: Peer) -> None:
        self.commit(peer, 7)
        assert self.query(peer) == (0, "7")
        self.commit(peer, 5)
        assert self.query(peer) == (0, "5"), "a lower one counts too"

    def test_zero_is_an_offset(self, peer: Peer) -> None:
        """REB-06."""
        self.commit(peer, 0)
        assert self.query(peer) == (0, "0")

    def test_minus_one_is_none(self, peer: Peer) -> None:
        """Node commits -1 for every queue whose offset is 0."""
        self.commit(peer, 7)
        self.commit(peer, -1)
        assert self.query(peer) == (0, "7")

    def test_a_new_group_starts_at_the_beginning_of_a_young_queue(self, peer: Peer) -> None:
        assert self.query(peer, topic="Nowhere") == (0, "0")
        peer.send()
        assert self.query(peer, group="New") == (0, "0")

    def test_a_client_that_wants_no_zero_gets_none(self, peer: Peer) -> None:
        assert peer.ask(14, where(consumerGroup="New", setZeroIfNotFound="false")).code == 22
        assert peer.ask(14, where(consumerGroup="New", setZeroIfNotFound="true")).code == 0

    def test_a_queue_that_lost_its_beginning_is_not_young(self, world: World, peer: Peer) -> None:
        peer.send()
        queue = world.store.find_queue("T", 0)
        assert queue is not None
        queue.min_offset = 1
        answer = peer.ask(14, where(consumerGroup="New"))
        assert (answer.code, answer.remark) == (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    def test_the_dump_lists_all(self, peer: Peer) -> None:
        self.commit(peer, 3)
        self.commit(peer, 8, queue=1)
        self.commit(peer, 1, group="H", topic="%RETRY%H")
        table = OffsetTable.from_json(peer.ask(43).body).offsets
        assert table == {"T@G": {0: 3, 1: 8}, "%RETRY%H@H": {0: 1}}

    def test_they_are_saved_five_seconds_after_a_change_and_only_then(self, world: World, peer: Peer) -> None:
        self.commit(peer, 3)
        world.advance(4999)
        assert not world.files.exists("/store/config/consumerOffset.json")
        world.advance(1)
        saved = world.files.read("/store/config/consumerOffset.json")
        assert OffsetTable.from_json(saved).offsets == {"T@G": {0: 3}}
        self.commit(peer, 3)
        self.commit(peer, 4)
        world.advance(5000)
        assert OffsetTable.from_json(world.files.read("/store/config/consumerOffset.json")).offsets == {"T@G": {0: 4}}

    def test_they_are_bounded(self, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.broker.tables.consumer_offsets.OFFSETS_MAX", 2)
        for queue in (0, 1):
            self.commit(peer, 1, queue=queue)
        assert peer.ask(15, where(queue=2, consumerGroup="G", commitOffset="1")).code == 1
        self.commit(peer, 2, queue=1)

    def test_offsets_of_a_group_go_only_when_asked_and_only_its_own(self, peer: Peer) -> None:
        """REB-09."""
        for group in ("g", "gg"):
            for topic in ("t", "t_g"):
                self.commit(peer, 9, group, topic)
        peer.ask(207, {"groupName": "g"})
        assert len(OffsetTable.from_json(peer.ask(43).body).offsets) == 4
        peer.ask(207, {"groupName": "g", "removeOffset": "true"})
        assert set(OffsetTable.from_json(peer.ask(43).body).offsets) == {"t@gg", "t_g@gg"}


class TestQueues:
    def ask(self, peer: Peer, code: int, **more: Any) -> str:
        answer = peer.ask(code, where(**more))
        assert answer.code == 0
        return answer.fields["timestamp" if code == 32 else "offset"]

    def test_a_queue_that_is_not_there(self, peer: Peer) -> None:
        assert [self.ask(peer, code) for code in (30, 31, 32)] == ["0", "0", "-1"]
        assert self.ask(peer, 29, timestamp="0") == "0"

    def test_where_it_begins_and_ends(self, world: World, peer: Peer) -> None:
        for _ in range(3):
            peer.send()
            world.advance(10)
        assert [self.ask(peer, code) for code in (30, 31)] == ["3", "0"]
        assert self.ask(peer, 32) == str(world.wall - 30)

    def test_by_time(self, world: World, peer: Peer) -> None:
        """REB-08: the first message at or after the time; the end for a time in the future."""
        times = []
        for step in (100, 100, 0, 0, 100):
            world.advance(step)
            times.append(world.wall)
            peer.send()
        first = times[0]
        asked = (first - 50, first, first + 50, first + 100, first + 150, first + 200, first + 201)
        assert [self.ask(peer, 29, timestamp=str(time)) for time in asked] == ["0", "0", "1", "1", "4", "4", "5"]
