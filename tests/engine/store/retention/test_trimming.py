"""Trimming: what readers, queues and index see of a deletion."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles, GetStatus
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import records
from tests.engine.store.oldfiles import HOUR, NOW, aged, check, fill, log_files, log_path


class TestReaders:
    def test_a_view_outlives_its_file(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig)
        result = rig.store.reader.get(rig.store.queue("Topic", 0), 0, 3, None)
        before = [bytes(view) for view in result.views]
        path = log_path(rig, 0)
        rig.pass_time(1000)
        assert not rig.files.exists(path)
        if isinstance(rig.files, DiskFiles) and Path("/proc/self/maps").exists():
            assert f"{path} (deleted)" in Path("/proc/self/maps").read_text()
        assert [bytes(view) for view in result.views] == before
        assert len(records(result.views)) == 3
        for view in result.views:
            view.release()
        result.views.clear()
        if isinstance(rig.files, DiskFiles) and Path("/proc/self/maps").exists():
            assert f"{path} (deleted)" not in Path("/proc/self/maps").read_text()

    def test_readers_behind_the_beginning(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig)
        queue = rig.store.queue("Topic", 0)
        end = queue.max_offset
        while rig.store.min_physical == 0:
            rig.pass_time(10)
        assert rig.store.reader.record(0) is None
        rig.pass_time(5000)
        result = rig.store.reader.get(queue, 0, 32, None)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, queue.min_offset)
        assert rig.store.reader.get(queue, end, 32, None).status is GetStatus.OFFSET_OVERFLOW_ONE
        rig.send(body=b"later")
        assert [bytes(message.body) for message in rig.read(start=end)] == [b"later"]

    def test_between_log_and_queues_messages_are_passed_over(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig)
        queue = rig.store.queue("Topic", 0)
        rig.store.timer(rig.now + 1000, rig.wall)
        look = rig.store.jobs.pop()
        look.run()
        rig.store.done(look, None, rig.now + 1000, rig.wall)
        assert (queue.min_offset, rig.store.min_physical) == (0, 2 * 4096)
        result = rig.store.reader.get(queue, 0, 32, None)
        first = records(result.views)[0] if result.views else None
        assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING)
        assert first is None or first.physical_offset == 2 * 4096
        assert result.next_offset > 0


class TestFollowing:
    def test_files_of_queues_and_index_follow(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, files=12, file_reserved_time=30 * 4, max_index_num=10)
        queue_files = [f"consumequeue/Topic/0/{start:020d}" for start in range(0, 2000, 200)]
        before = rig.tree()
        assert set(queue_files[:7]) <= set(before)
        index_before = [path for path in before if path.startswith("index/")]
        assert len(index_before) > 4
        rig.pass_time(HOUR // 2)
        queue = rig.store.queue("Topic", 0)
        assert log_files(rig) == [8, 9, 10, 11]
        assert queue.min_offset == 48
        left = [path for path in rig.tree() if path.startswith("consumequeue/")]
        assert left == [path for path in before if path.startswith("consumequeue/")][4:]
        index_left = [path for path in rig.tree() if path.startswith("index/")]
        assert 0 < len(index_left) < len(index_before)
        assert index_left == index_before[-len(index_left) :]
        check(rig)
        rig.reopen()
        check(rig)

    def test_files_of_the_extension_follow(self, make_rig: MakeRig) -> None:
        rig = aged(
            make_rig,
            files=12,
            file_reserved_time=30 * 4,
            enable_consume_queue_ext=True,
            mapped_file_size_consume_queue_ext=128,
        )
        before = [path for path in rig.tree() if path.startswith("consumequeue_ext/")]
        rig.store.reader.get(rig.store.queue("Topic", 0), 0, 1, frozenset((1,)))  # lets the first one be mapped
        rig.pass_time(HOUR // 2)
        left = [path for path in rig.tree() if path.startswith("consumequeue_ext/")]
        assert left == before[48 // 6 :], "six units lie in a file"
        check(rig)
        rig.reopen()
        check(rig)

    def test_the_last_file_of_a_queue_stays_so_that_its_offsets_go_on(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, files=1, file_reserved_time=0)
        for _ in range(20):
            rig.send("Idle")
        fill(rig, 4)
        rig.pass_time(HOUR // 2)
        idle = rig.store.queue("Idle", 0)
        assert (idle.min_offset, idle.max_offset) == (20, 20)
        assert rig.files.names(idle.folder) == [f"{200:020d}"]
        assert rig.store.reader.get(idle, 3, 1, None).next_offset == 20
        rig.reopen()
        idle = rig.store.queue("Idle", 0)
        assert (idle.min_offset, idle.max_offset) == (20, 20)
        rig.send("Idle")
        assert [message.queue_offset for message in rig.read("Idle")] == [20]
        rig.kill()
        rig.open()
        assert [message.queue_offset for message in rig.read("Idle")] == [20]

    def test_many_queues_are_gone_through_in_slices(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.store.retention.trimming._LOOKED_AT", 20)
        monkeypatch.setattr("mqproto.engine.store.retention.trimming._READ", 7)
        rig = aged(make_rig, files=1, file_reserved_time=0)
        for number in range(100):
            rig.send(f"T{number % 10}", b"x" * 50, number // 10)
        fill(rig, 10)
        for number in range(10):
            rig.send(f"T{number % 10}", b"y" * 50, number // 10)
        kinds = rig.pass_time(HOUR // 2)
        assert 15 <= kinds.count("FindMinimums") < 60
        for number in range(100):
            queue = rig.store.queue(f"T{number % 10}", number // 10)
            assert (queue.min_offset, queue.max_offset) == (1, 2 if number < 10 else 1)
        kinds = rig.pass_time(HOUR // 4)
        assert set(kinds) == {"LookAround"}, "nothing was deleted, nothing is gone through"

    def test_a_queue_with_one_message(self, make_rig: MakeRig) -> None:
        rig = make_rig(clean_resource_interval=10, delete_when=NOW, file_reserved_time=0)
        rig.pass_time(120_000)
        fill(rig, 3)
        rig.send("Tail")
        fill(rig, 6)
        rig.pass_time(70_000)
        queue = rig.store.queue("Tail", 0)
        assert (queue.min_offset, queue.max_offset) == (1, 1)
        rig.send("Tail")
        assert [message.queue_offset for message in rig.read("Tail")] == [1]

    def test_a_queue_made_anew_keeps_its_files(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, files=1, file_reserved_time=0)
        for _ in range(20):
            rig.send("Again")
        fill(rig, 3)
        rig.pass_time(1000)
        while rig.store.find_queue("Again", 0) is not None and rig.store.queue("Again", 0).first == 0:
            due = rig.store.next_deadline()
            assert due is not None
            rig.now = max(rig.now, due)
            rig.store.timer(rig.now, rig.wall)
            rig.run_jobs()
        rig.store.delete_queues(lambda queue: queue.topic == "Again")
        rig.run_jobs()
        rig.send("Again", b"new")
        rig.store.timer(rig.now + 60_000, rig.wall)
        rig.pass_time(HOUR)
        assert [(message.queue_offset, bytes(message.body)) for message in rig.read("Again")] == [(0, b"new")]
        rig.reopen()
        assert [(message.queue_offset, bytes(message.body)) for message in rig.read("Again")] == [(0, b"new")]
