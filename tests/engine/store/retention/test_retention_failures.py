"""Files that cannot be deleted, disks without room, crashes during a deletion."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mqproto.engine.store import MemoryFiles
from mqproto.engine.store.flush.flush_jobs import WriteQueues
from mqproto.engine.store.retention.trimming import RemoveQueueFiles
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig, memory_rig
from tests.engine.store.oldfiles import DAY, HOUR, NOW, aged, check, fill, log_files, log_path, set_time


class TestFailures:
    def test_a_file_that_cannot_be_removed_is_tried_again(
        self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on Windows, where an open file is not let go."""
        rig = aged(make_rig)
        remove = rig.files.remove
        tried: list[str] = []

        def refuse(path: str) -> None:
            tried.append(path)
            raise PermissionError(13, "the file is in use", path)

        monkeypatch.setattr(rig.files, "remove", refuse)
        rig.pass_time(100_000)
        assert tried == [log_path(rig, 0)]
        assert log_files(rig) == [0, 1, 2, 3, 4]
        assert rig.store.min_physical == 2 * 4096, "for readers they are gone"
        rig.send(body=b"goes on")
        rig.pass_time(30_000)
        assert tried == [log_path(rig, 0)] * 2
        monkeypatch.setattr(rig.files, "remove", remove)
        rig.pass_time(119_000)
        assert log_files(rig) == [2, 3, 4]
        assert rig.store.queue("Topic", 0).min_offset > 0
        assert rig.store.writer.writable

    @pytest.mark.parametrize("restarted", [False, True])
    def test_the_same_with_files_of_queues_and_index(
        self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, restarted: bool
    ) -> None:
        rig = aged(make_rig, files=12, file_reserved_time=30 * 4, max_index_num=10)
        remove = rig.files.remove

        def refuse(path: str) -> None:
            if "consumequeue" in path or "/index/" in path:
                raise PermissionError(13, "the file is in use", path)
            remove(path)

        monkeypatch.setattr(rig.files, "remove", refuse)
        rig.pass_time(100_000)
        folder, index = f"{rig.root}/consumequeue/Topic/0", f"{rig.root}/index"
        assert rig.files.names(folder)[0] == f"{0:020d}"
        check(rig)
        if restarted:
            rig.kill()
            monkeypatch.undo()
            rig.open()
            folder, index = f"{rig.root}/consumequeue/Topic/0", f"{rig.root}/index"
            check(rig)
        count = len(rig.files.names(index))
        assert count > 5
        monkeypatch.undo()
        rig.pass_time(1000 if restarted else 121_000)
        assert rig.files.names(folder)[0] == f"{800:020d}"
        assert len(rig.files.names(index)) < count
        check(rig)

    def test_queue_files_are_worked_on_one_by_one(self, rig: Rig) -> None:
        rig.send()
        rig.store.timer(0, rig.wall)
        assert "WriteQueues" in [type(job).__name__ for job in rig.store.jobs]
        job = RemoveQueueFiles(rig.files, [])
        rig.store._flusher.rounds.in_turn(job)
        assert job not in rig.store.jobs
        assert rig.run_jobs()[-1] == "RemoveQueueFiles"

    def test_index_files_that_are_not_durable_stay(self, make_rig: MakeRig) -> None:
        rig = make_rig(max_index_num=10)
        fill(rig, 5)
        index = rig.store._index
        assert len(index.full) == 2
        assert index.drop_below(1 << 60) == []
        rig.settle()
        assert len(index.drop_below(1 << 60)) == 2
        assert len(index.index_files) == 1

    def test_without_room_for_entries_of_queues_files_stay(
        self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(job: WriteQueues) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(WriteQueues, "run", full)
        rig = aged(make_rig)
        rig.pass_time(HOUR // 4)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        monkeypatch.undo()
        rig.pass_time(HOUR // 4)
        assert log_files(rig) == [2, 3, 4]


class TestCrashes:
    """Memory only: it can tell what a crash at some moment would have left."""

    def rig(self, **settings: Any) -> Rig:
        rig = memory_rig(
            **{
                "clean_resource_interval": 10_000,
                "delete_when": NOW,
                "max_index_num": 10,
                "file_reserved_time": 120,
                **settings,
            }
        )
        fill(rig, 12)
        rig.send("Rare")
        rig.pass_time(59_000)
        for number in range(9):
            set_time(rig, log_path(rig, number), rig.wall - 10 * DAY)
        return rig

    @pytest.mark.parametrize("ext", [False, True])
    def test_at_every_change_of_a_deletion(self, ext: bool) -> None:
        rig = self.rig(enable_consume_queue_ext=ext, mapped_file_size_consume_queue_ext=128)
        files = rig.files
        assert isinstance(files, MemoryFiles)
        left: list[MemoryFiles] = []

        def crash(change: str, path: str) -> None:
            left.append(files.process_death())
            left.extend(files.power_loss(names=count) for count in range(files.pending_names + 1))

        files.before_change = crash
        rig.pass_time(HOUR // 2)
        files.before_change = lambda change, path: None
        crash("", "")
        assert rig.store.min_physical == 9 * 4096
        last = rig.store.queue("Topic", 0).max_offset
        assert len(left) > 60
        begins = set()
        for found in left:
            begins.add(self.reopened(found, last))
        assert begins == {number * 4096 for number in range(10)}

    def reopened(self, found: MemoryFiles, last: int) -> int:
        """What is there after a crash is whole, goes on, and is deleted from then on as if nothing had been.

        Gives where the log begins.
        """
        again = Rig(found, "/store", **{**self.rig_settings, "clean_resource_interval": 0})
        check(again)
        queue = again.store.queue("Topic", 0)
        assert queue.max_offset == last
        begin = again.store.min_physical
        again.send(body=f"Topic-{last}".encode(), uniq_key=f"Topic-{last}")
        again.send("Rare")
        assert again.store.queue("Rare", 0).next_offset == 2
        again.store.delete_old_files()
        again.settle()
        assert again.store.min_physical == 9 * 4096
        check(again)
        again.reopen()
        check(again)
        again.close()
        return begin

    rig_settings: ClassVar[dict[str, Any]] = {"delete_when": NOW, "max_index_num": 10, "file_reserved_time": 120}

    def test_a_file_that_stayed_is_found_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It could not be removed, so queues keep what leads into it."""
        rig = self.rig()

        def refuse(path: str) -> None:
            raise PermissionError(13, "the file is in use", path)

        monkeypatch.setattr(rig.files, "remove", refuse)
        rig.pass_time(HOUR // 2)
        assert rig.store.min_physical == 9 * 4096
        rig.kill()
        rig.open()
        assert rig.store.min_physical == 0
        check(rig)
