"""Many queues: none of them costs a map, a file descriptor or a long turn of the loop."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from mqproto.engine.store import DiskFiles, Files, Queue, Store, StoreSettings
from mqproto.engine.store.disk.files import File
from mqproto.engine.store.flush import queue_rounds
from mqproto.engine.store.flush.flush_jobs import WriteQueues
from mqproto.state.node.contract import Job
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig, memory_rig

COUNT = 50


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_rounds, "_SLICE", 8)


def topics(count: int = COUNT) -> list[str]:
    return [f"Topic{number}" for number in range(count)]


def send_each(rig: Rig, times: int = 1) -> None:
    for topic in topics():
        for _ in range(times):
            rig.send(topic)


def counts(rig: Rig) -> set[int]:
    return {len(rig.read(topic)) for topic in topics()}


class CountingFile:
    """A file that tells whether it is mapped and open."""

    def __init__(self, files: CountingFiles, file: File) -> None:
        self._files = files
        self._file = file
        self._mapped = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def view(self) -> memoryview:
        self._files.maps += 1 - self._mapped
        self._mapped = 1
        self._files.most_maps = max(self._files.most_maps, self._files.maps)
        return self._file.view()

    def close(self) -> None:
        self._files.maps -= self._mapped
        self._files.opened -= 1
        self._mapped = 0
        self._file.close()


class CountingFiles(DiskFiles):
    """Files that count maps and file descriptors."""

    maps = most_maps = opened = most_opened = 0

    def _counted(self, file: File) -> File:
        self.opened += 1
        self.most_opened = max(self.most_opened, self.opened)
        counted: Any = CountingFile(self, file)
        return counted  # type: ignore[no-any-return]

    def open(self, path: str) -> File:
        return self._counted(super().open(path))

    def create(self, path: str, size: int) -> File:
        return self._counted(super().create(path, size))


@pytest.mark.parametrize("extension", [False, True])
def test_maps_and_descriptors_are_bounded(tmp_path: Any, extension: bool) -> None:
    files = CountingFiles()
    rig = Rig(files, str(tmp_path / "store"), mapped_queue_files=7, enable_consume_queue_ext=extension)
    for _ in range(2):
        send_each(rig, 3)
        rig.settle()
        assert len(counts(rig)) == 1
        send_each(rig)
        rig.reopen()
    assert counts(rig) == {8}
    log_files = len(rig.files.names(f"{rig.root}/commitlog"))
    assert files.most_maps <= 7 + log_files + 1
    assert files.most_opened <= 7 + log_files + 4
    rig.close()
    assert (files.maps, files.opened) == (0, 0)


def test_a_queue_takes_a_block(tmp_path: Any) -> None:
    """Files have Apache's size, and blocks where there are entries."""
    store = Store.open(
        StoreSettings(store_path_root_dir=str(tmp_path), max_index_num=1000, max_hash_slot_num=100), wall=1
    )
    for topic in topics(20):
        host = bytes(8)
        for _ in range(3):
            store.writer.append(store.queue(topic, 0), b"body", b"", 0, 0, 1, host, host, 0, 0, 0, "k", None, 1)
    store.close(1)
    files = [path for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()]
    assert {path.stat().st_size for path in files} == {6_000_000}
    assert sum(path.stat().st_blocks for path in files) * 512 <= 20 * 8192
    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks for path in everything) * 512 < 100 << 20


def test_a_round_comes_in_slices(make_rig: MakeRig) -> None:
    rig = make_rig()
    send_each(rig)
    sizes = []

    def look(job: Job) -> None:
        if isinstance(job, WriteQueues):
            sizes.append((len(job.stops), job.last, bool(job.sync)))

    rig.run_jobs()
    rig.store.timer(0, rig.wall)
    rig.run_jobs(look)
    assert sizes == [(8, False, False)] * 6 + [(2, True, True)]
    rig.settle()
    assert rig.store._queues.dirty == []
    assert counts(rig) == {1}


def test_messages_and_deletions_between_slices(make_rig: MakeRig) -> None:
    rig = make_rig()
    send_each(rig)
    rig.run_jobs()
    turns = 0

    def meanwhile(job: Job) -> None:
        nonlocal turns
        if isinstance(job, WriteQueues):
            turns += 1
            if turns < 4:
                for topic in topics():
                    if rig.store.find_queue(topic, 0):
                        rig.send(topic)
                rig.store.delete_queues(lambda queue: queue.topic.endswith(str(turns)))

    rig.store.timer(0, rig.wall)
    rig.run_jobs(meanwhile)
    rig.settle()
    rig.reopen()
    gone = {topic for topic in topics() if topic[-1] in "123"}
    assert {topic for topic in topics() if rig.store.find_queue(topic, 0) is None} == gone
    assert {len(rig.read(topic)) for topic in topics() if topic not in gone} == {4}


def run_one_slice(rig: Rig) -> None:
    """The jobs that there are, and none that follow from them."""
    jobs, rig.store.jobs[:] = list(rig.store.jobs), []
    for job in jobs:
        job.run()
        rig.store.done(job, None, rig.now, rig.wall)


@pytest.mark.parametrize("at", range(0, 9, 2))
def test_the_end_comes_between_slices(make_rig: MakeRig, at: int) -> None:
    """Jobs that were asked for and did not run are made good at the end."""
    rig = make_rig()
    send_each(rig)
    rig.run_jobs()
    rig.store.timer(0, rig.wall)
    for _ in range(at):
        run_one_slice(rig)
    rig.store.jobs.clear()
    rig.store.close(rig.wall)
    rig.open()
    assert (counts(rig), rig.store.recovery.dispatched) == ({1}, 0)


@pytest.mark.parametrize("at", range(8))
def test_power_goes_between_slices(at: int) -> None:
    """The checkpoint does not speak of queues before the last slice."""
    rig = memory_rig(flush_disk_type="SYNC_FLUSH")
    send_each(rig)
    rig.store.want_flush()
    rig.run_jobs()
    rig.wall += 60_000
    send_each(rig)
    rig.store.want_flush()
    rig.run_jobs()
    rig.store.timer(0, rig.wall)
    for _ in range(at):
        run_one_slice(rig)
    rig.cut_power()
    rig.open()
    assert counts(rig) == {2}
    rig.store.close(rig.wall)


@pytest.mark.parametrize("at", [0, 2, 6])
def test_a_full_disk_interrupts_a_round(make_rig: MakeRig, at: int) -> None:
    rig = make_rig()
    send_each(rig)
    rig.run_jobs()
    turns = 0

    def full(job: Job) -> Exception | None:
        nonlocal turns
        if isinstance(job, WriteQueues):
            turns += 1
            return OSError(errno.ENOSPC, "No space left on device") if turns == at + 1 else None
        return None

    rig.store.timer(0, rig.wall)
    rig.run_jobs(full)
    assert turns == at + 1
    assert len(rig.store._queues.dirty) == COUNT - 8 * at
    assert counts(rig) == {1}
    send_each(rig)
    rig.settle()
    rig.kill()
    rig.open()
    assert (counts(rig), rig.store.recovery.notes) == ({2}, [])


@pytest.mark.parametrize("turn", [2, 7])
def test_a_clock_that_goes_back_during_a_round(make_rig: MakeRig, turn: int) -> None:
    rig = make_rig()
    send_each(rig)
    rig.run_jobs()
    back = rig.wall - 3_600_000
    turns = 0

    def meanwhile(job: Job) -> None:
        nonlocal turns
        if isinstance(job, WriteQueues):
            turns += 1
            if turns == turn:
                rig.send("Topic0", at=back)

    rig.store.timer(0, rig.wall)
    rig.run_jobs(meanwhile)
    assert turns == 7, "the last one writes the checkpoint"
    assert rig.store._flusher.checkpoint.queue_time <= back


def test_queues_with_many_entries_are_written_early(make_rig: MakeRig) -> None:
    """Between thorough rounds nothing is synced, and the checkpoint says nothing new of queues."""
    rig = make_rig(mapped_file_size_commit_log=1 << 20)
    send_each(rig)
    rig.settle()
    before = rig.store._flusher.checkpoint.queue_time
    for topic in topics(10):
        for _ in range(410):
            rig.send(topic, b"")
        rig.send("Topic40")
    rig.run_jobs()
    seen = []

    def look(job: Job) -> None:
        if isinstance(job, WriteQueues):
            seen.append((len(job.stops), job.last, bool(job.sync)))

    rig.now += 1000
    rig.store._flusher.rounds._thorough_due = rig.now + 1
    rig.store.timer(rig.now, rig.wall)
    rig.run_jobs(look)
    assert seen == [(8, False, False), (2, True, False)]
    assert rig.store._flusher.checkpoint.queue_time == before
    assert [queue.topic for queue in rig.store._queues.dirty] == ["Topic40"]


def test_what_an_unbegun_job_was_to_sync_is_synced_at_the_end() -> None:
    rig = memory_rig()
    send_each(rig)
    rig.run_jobs()
    rig.store.timer(0, rig.wall)
    while True:
        jobs, rig.store.jobs[:] = list(rig.store.jobs), []
        if any(isinstance(job, WriteQueues) and job.last for job in jobs):
            break
        for job in jobs:
            job.run()
            rig.store.done(job, None, rig.now, rig.wall)
    rig.store.close(rig.wall)
    rig.cut_power()
    rig.open()
    assert (counts(rig), rig.store.recovery.dispatched) == ({1}, 0)
    rig.store.close(rig.wall)


def test_many_queues_are_deleted_at_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    send_each(rig)
    kept: list[Queue] = [rig.store.queue(topic, 0) for topic in topics(2)]
    rig.store.delete_queues(lambda queue: queue not in kept)
    rig.settle()
    assert list(rig.store.queues()) == kept
    assert len({path for path in rig.tree() if path.startswith("consumequeue/")}) == 2


def test_files_are_counted(tmp_path: Any) -> None:
    files: Files = CountingFiles()
    file = files.create(str(tmp_path / "file"), 4096)
    file.view()
    assert isinstance(files, CountingFiles)
    assert (files.maps, files.opened) == (1, 1)
    file.close()
    assert (files.maps, files.opened) == (0, 0)
