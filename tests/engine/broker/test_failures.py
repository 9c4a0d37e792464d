"""Disks that are full or fail, records that are damaged: what is said, and that the rest goes on."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.engine.broker.sends.message_writer import NewMessage
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.engine.store.reads.reader import Reader
from mqproto.wire import properties as names
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields


def no_space(what: str, path: str) -> None:
    raise OSError(28, "No space left on device", path)


def put(world: World, topic: str, queue: int, properties: dict[str, str], due: int) -> None:
    """Store a record as it should not be, past all checks."""
    host = bytes(8)
    place = world.store.queue(topic, queue)
    world.store.writer.append(
        place, b"x", names.encode_bytes(properties), 0, 0, 1, host, host, 0, 0, due, None, None, world.wall
    )


class TestFullDisk:
    def full(self) -> tuple[World, Peer]:
        world = World(store={"mapped_file_size_commit_log": 1 << 16, "allocation_window": 1 << 16})
        peer = world.connect()
        peer.send()
        world.files.space = 0
        return world, peer

    def fill(self, peer: Peer) -> Command:
        for _ in range(100):
            answer = peer.send(body=bytes(1000))
            if answer.code:
                return answer
        raise AssertionError("the disk is not full")

    def test_sends_are_refused_and_reads_go_on(self) -> None:
        _, peer = self.full()
        answer = self.fill(peer)
        assert answer.code == 14
        assert answer.remark is not None
        assert "disk is full" in answer.remark
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert len(peer.messages()) > 10
        large = str(peer.messages()[1].physical_offset)
        assert peer.ask(36, {"offset": large, "group": "G", "delayLevel": "0"}).remark == "SERVICE_NOT_AVAILABLE"
        assert peer.ask(320, send_fields(m="true"), b"\0\0\0\x17" + bytes(12) + b"\0\0\0\x01x\0\0").code == 14

    def test_it_goes_on_when_there_is_room_again(self) -> None:
        world, peer = self.full()
        self.fill(peer)
        world.files.space = None
        world.advance(2000)
        assert peer.send(body=bytes(1000)).code == 0

    def test_delayed_messages_wait_for_room(self) -> None:
        world, peer = self.full()
        peer.send(body=bytes(1000), properties="DELAY\x011\x02", e="3")
        self.fill(peer)
        world.advance(5000)
        world.files.space = None
        world.advance(5000)
        assert [message.body for message in world.connect().messages(queue=3)] == [bytes(1000)]

    def test_a_nearly_full_disk_takes_nothing_until_it_has_room_again(self) -> None:
        world = World(
            files=MemoryFiles(space=2_000_000), store={"clean_resource_interval": 10_000, "disk_free_files_enough": 0}
        )
        world.files.capacity = 20_000_000
        peer = world.connect()
        peer.send(properties="DELAY\x014\x02", e="3")
        world.files.space = 1_000_000
        world.advance(10_000)
        answer = peer.send()
        assert answer.code == 14
        assert answer.remark is not None
        assert "the disk of /store/commitlog is 95 % full with 0 MiB free" in answer.remark
        assert "CL:  0.95 CQ:  0.95" in answer.remark
        assert any("messages are refused" in notice for notice in world.broker.notices)
        world.advance(30_000)
        assert peer.messages(queue=3) == []
        world.files.space = 2_000_000
        world.advance(11_000)
        assert any("messages are taken again" in notice for notice in world.broker.notices)
        assert peer.send().code == 0
        assert len(peer.messages(queue=3)) == 1, "a delayed one has waited"

    def test_a_parked_pull_outlives_the_deletion_of_everything_before_it(self) -> None:
        files = MemoryFiles()
        world = World(files=files, store={"mapped_file_size_commit_log": 1 << 16, "file_reserved_time": 0})
        files.clock = lambda: world.wall
        peer = world.connect()
        for _ in range(100):
            peer.send(body=bytes(2000))
        world.advance(61_000)
        waiting = world.connect()
        waiting.tell(11, pull_fields("T", "G", 0, 100, sysFlag="6", suspendTimeoutMillis="20000"))
        world.store.delete_old_files()
        world.advance(15_000)
        queue = world.store.queue("T", 0)
        assert (queue.min_offset, queue.max_offset) == (queue.min_offset, 100)
        assert queue.min_offset > 50
        assert waiting.read() == []
        assert peer.ask(31, {"topic": "T", "queueId": "0"}).fields["offset"] == str(queue.min_offset)
        early = peer.pull(offset=0)
        assert (early.code, early.fields["nextBeginOffset"]) == (21, str(queue.min_offset))
        peer.send(body=b"new")
        (answer,) = waiting.read()
        assert (answer.code, answer.fields["minOffset"]) == (0, str(queue.min_offset))


class TestScheduleTopic:
    """MSG-11: a bad record in the schedule topic is left out and noted; those behind it come."""

    @pytest.mark.parametrize(
        "properties",
        [
            {},
            {"REAL_TOPIC": "T"},
            {"REAL_TOPIC": "a b", "REAL_QID": "0"},
            {"REAL_TOPIC": "T", "REAL_QID": "x"},
            {"REAL_TOPIC": "T", "REAL_QID": "-1"},
            {"REAL_TOPIC": "t" * 200, "REAL_QID": "0"},
            {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        ],
    )
    def test_bad_records(self, world: World, peer: Peer, properties: dict[str, str]) -> None:
        put(world, "SCHEDULE_TOPIC_XXXX", 0, properties, world.wall + 500)
        peer.send(body=b"good", properties="DELAY\x011\x02")
        world.advance(2000)
        assert [message.body for message in peer.messages()] == [b"good"]
        assert bool(world.broker.notices) == ("RMQ_SYS" not in properties.get("REAL_TOPIC", ""))

    def test_a_message_that_no_store_takes(self, world: World, peer: Peer) -> None:
        """Delivery must not wait for ever for one that will never be taken."""
        world.broker.delay_levels.arrived(1)
        fields = {"REAL_TOPIC": "T", "REAL_QID": "0", "K": "v" * 30_000}
        put(world, "SCHEDULE_TOPIC_XXXX", 0, fields, world.wall + 500)
        message_writer = world.broker.send_requests.message_writer
        message_writer.append(
            NewMessage("SCHEDULE_TOPIC_XXXX", 1, b"", {}, born_time=0, born_host=bytes(8), store_host=bytes(8))
        )
        world.store.settings.max_message_size = 0
        world.advance(2000)
        assert any("left out" in notice for notice in world.broker.notices)

    def test_a_queue_that_lost_its_beginning(self, world: World, peer: Peer) -> None:
        for n in range(3):
            peer.send(body=b"%d" % n, properties="DELAY\x011\x02")
        queue = world.store.find_queue("SCHEDULE_TOPIC_XXXX", 0)
        assert queue is not None
        queue.min_offset = 2
        world.advance(2000)
        assert [message.body for message in peer.messages()] == [b"2"]


class TestDamagedRecords:
    """Requests that name a record which cannot be read."""

    @pytest.mark.parametrize(
        ("code", "fields"),
        [
            (36, {"group": "G", "delayLevel": "0", "offset": "0"}),
            (
                37,
                {
                    "producerGroup": "PG",
                    "tranStateTableOffset": "0",
                    "commitLogOffset": "0",
                    "commitOrRollback": "8",
                    "msgId": "x",
                },
            ),
        ],
    )
    def test_damaged(self, peer: Peer, monkeypatch: pytest.MonkeyPatch, code: int, fields: dict[str, str]) -> None:
        peer.send()
        record = bytearray(peer.world.store.reader.record(0) or b"")
        record[84:88] = b"\xff\xff\xff\xff"
        monkeypatch.setattr(Reader, "record", lambda reader, offset: memoryview(bytes(record)))
        answer = peer.ask(code, fields)
        assert answer.code == 1
        assert answer.remark is not None
        assert "failed" in answer.remark

    def test_a_half_that_does_not_say_where_it_belongs(self, world: World, peer: Peer) -> None:
        put(world, "RMQ_SYS_TRANS_HALF_TOPIC", 0, {"PGROUP": "PG"}, 0)
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": "0",
            "commitLogOffset": "0",
            "commitOrRollback": "8",
            "msgId": "x",
        }
        answer = peer.ask(37, fields)
        assert (answer.code, answer.remark) == (1, "the prepared message does not say where it belongs")


class TestTheEnd:
    def test_a_disk_that_fails_at_the_end_is_noted_and_nothing_unsafe_is_acknowledged(self) -> None:
        world = World(store={"flush_disk_type": "SYNC_FLUSH"})
        peer = world.connect()
        peer.send()
        world.hold_jobs = True
        peer.tell(310, send_fields(), b"x")

        def broken(what: str, path: str) -> None:
            if what in ("sync", "write", "rename"):
                raise OSError(5, "Input/output error", path)

        world.files.before_change = broken
        world.close()
        while world.jobs:
            world.run_held()
        assert world.broker.ended
        assert peer.ended()
        assert world.broker.notices
        assert peer.read() == []

    def test_a_table_that_cannot_be_saved_at_the_end_is_noted(self, world: World, peer: Peer) -> None:
        peer.send()
        peer.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"})
        world.files.before_change = lambda what, path: no_space(what, path) if "config" in path else None
        world.close()
        assert world.broker.ended
        assert any("No space left" in notice for notice in world.broker.notices)


def test_a_deleted_queue_lets_its_waiting_pulls_go(world: World, peer: Peer) -> None:
    peer.send()
    reader = world.connect()
    reader.tell(11, pull_fields(offset=1, sysFlag="6"))
    peer.ask(215, {"topic": "T"})
    (answer,) = reader.read()
    assert answer.code == 17
    assert len(world.broker.parked_pulls) == 0


def test_notes_go_to_who_listens(world: World, peer: Peer) -> None:
    heard: list[str] = []
    world.broker.on_notice = heard.append
    peer.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert len(heard) == 1
    assert not world.broker.notices


def test_notes_are_bounded(world: World) -> None:
    for n in range(2000):
        world.broker.notice(str(n))
    assert len(world.broker.notices) == 1000
    assert world.broker.notices[-1] == "1999"


def test_files_of_the_harness_are_apart() -> None:
    """Two worlds share nothing."""
    files: Any = MemoryFiles()
    World(files=files).close()
    assert World().connect().pull().code == 17
