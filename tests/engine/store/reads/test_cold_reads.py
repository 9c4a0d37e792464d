"""Reads off the loop: the same answers as through the maps, from files, and only where something may not be in
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.engine.store import ColdRead, Files, GetResult, GetStatus, Queue, Read
from mqproto.engine.store.disk.disk import DiskFile
from mqproto.engine.store.disk.files import ReadFile
from mqproto.engine.store.disk.memory import MemoryFile
from mqproto.engine.store.index.index import AllocateIndex
from mqproto.engine.store.index.index_file import IndexFile
from mqproto.engine.store.layout import ENTRY
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.wire.ids import java_hash
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import ALWAYS, HOST, HOST_V6, START, Rig, memory_rig, records

T = TypeVar("T")

TAGS = (None, frozenset({java_hash("a")}), frozenset({java_hash("a"), java_hash("b")}), frozenset({7}))


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether the system has files in its cache. Unless a test asks, it has nothing."""

    def set_cached(cached: bool) -> None:
        monkeypatch.setattr(MemoryFile, "read_cached", MemoryFile.read if cached else lambda *arguments: None)
        monkeypatch.setattr(DiskFile, "read_cached", DiskFile.read if cached else lambda *arguments: None)

    set_cached(False)
    return set_cached


@pytest.fixture
def no_maps(monkeypatch: pytest.MonkeyPatch) -> Callable[[ColdRead[T]], T]:
    """Runs a job; touching a map meanwhile fails."""

    def touched(*arguments: object) -> object:
        raise AssertionError("a map was touched")

    def run(job: ColdRead[T]) -> T:
        with monkeypatch.context() as patch:
            patch.setattr(CommitLog, "view_of", touched)
            patch.setattr(CommitLog, "slice", touched)
            patch.setattr(ConsumeQueues, "_view", touched)
            patch.setattr(IndexFile, "map", touched)
            job.run()
        return job.result

    return run


def cold(read: Read[T]) -> ColdRead[T]:
    """The job, where a read has to be one."""
    assert isinstance(read, ColdRead)
    return read


def now(read: Read[T]) -> T:
    """The answer, where it has to be there at once."""
    assert not isinstance(read, ColdRead)
    return read


def ran(job: ColdRead[T]) -> T:
    job.run()
    return job.result


def told(result: GetResult) -> tuple[object, ...]:
    """A read as it can be compared: adjacent records may come in one view or in several."""
    data = b"".join(result.views)
    assert len(data) == result.size
    return (
        result.status,
        result.next_offset,
        result.min_offset,
        result.max_offset,
        data,
        result.count,
        result.suggest_slave,
    )


def fill(rig: Rig, count: int = 60) -> Queue:
    """Messages of two topics in several files, some with keys and IPv6 hosts, their queue entries partly in files."""
    for number in range(count):
        if number == count - 7:
            rig.settle()
        rig.wall += 10
        body = f"{number}".encode().ljust(number % 5 * 60 + 1, b".")
        host = HOST_V6 if number % 4 == 0 else HOST
        rig.send(body=body, tags="ab"[number % 2], keys=f"k{number % 3} all", uniq_key=f"u{number}", born_host=host)
        if number % 3 == 0:
            rig.send("Other", body, tags="a")
        if rig.store.sync:
            rig.store.want_flush()
        rig.run_jobs()
    if rig.store.sync:
        rig.send(body=b"not visible yet")
    queue = rig.store.find_queue("Topic", 0)
    assert queue is not None
    return queue


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"flush_disk_type": "SYNC_FLUSH"},
        {"enable_consume_queue_ext": True},
        {"max_transfer_bytes_on_message_in_disk": 500},
    ],
    ids=["plain", "sync", "extension", "short"],
)
def test_the_same_answers_as_through_maps(
    make_rig: MakeRig, no_maps: Callable[[Any], Any], changes: dict[str, Any]
) -> None:
    rig = make_rig(cold_read_distance=1, **changes)
    queue = fill(rig)
    store, reads = rig.store, rig.store.reads
    assert store.end > 3 * 4096
    for offset in range(queue.max_offset - 1):
        for codes in TAGS:
            for count in (1, 5, 32):
                read = reads.get(queue, offset, count, codes)
                if not isinstance(read, ColdRead):  # the last entries are in memory and may tell that nothing is wanted
                    assert read.count == 0
                found = no_maps(read) if isinstance(read, ColdRead) else read
                assert told(found) == told(store.reader.get(queue, offset, count, codes))
        entry = store.reader.entry(queue, offset)
        assert entry is not None
        for physical in (entry[0], entry[0] + 1, entry[0] + 2):
            assert no_maps(cold(reads.record(physical))) == store.reader.record(physical)
    for time in range(START - 5, rig.wall + 20, 15):
        assert no_maps(cold(reads.offset_by_time(queue, time))) == store.reader.offset_by_time(queue, time)
    assert no_maps(cold(reads.earliest_store_time(queue))) == store.reader.earliest_store_time(queue)
    for key in ("k0", "k1", "all", "u3", "u59", "none"):
        for begin, end in (ALWAYS, (START + 100, START + 300)):
            found = no_maps(cold(reads.query("Topic", key, 5, begin, end)))
            assert found == store.reader.query("Topic", key, 5, begin, end)


@pytest.mark.parametrize("changes", [{}, {"flush_disk_type": "SYNC_FLUSH"}], ids=["plain", "sync"])
def test_what_the_system_has_in_its_cache_is_given_at_once(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, cached: Callable[[bool], None], changes: dict[str, Any]
) -> None:
    rig = make_rig(cold_read_distance=1, **changes)
    queue = fill(rig)
    cached(True)
    expected = {
        (offset, codes, count): told(rig.store.reader.get(queue, offset, count, codes))
        for offset in range(queue.max_offset - 1)
        for codes in TAGS
        for count in (1, 5, 32)
    }
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "slice", None)
        for (offset, codes, count), answer in expected.items():
            assert told(now(rig.store.reads.get(queue, offset, count, codes))) == answer


def test_a_part_that_is_not_in_the_cache_makes_it_a_job(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(cold_read_distance=1)
    queue = fill(rig)
    for kind in (MemoryFile, DiskFile):
        monkeypatch.setattr(
            kind, "read_cached", lambda file, start, size: None if size > 640 else file.read(start, size)
        )
    assert ran(cold(rig.store.reads.get(queue, 0, 32, None))).count > 1


def test_what_is_not_durable_is_not_there(make_rig: MakeRig, no_maps: Callable[[Any], Any]) -> None:
    rig = make_rig(cold_read_distance=1, flush_disk_type="SYNC_FLUSH")
    physical = [rig.send(keys="k") for _ in range(3)]
    for visible in (False, True):
        assert (no_maps(cold(rig.store.reads.record(physical[1]))) is not None) is visible
        assert len(no_maps(cold(rig.store.reads.query("Topic", "k", 9, *ALWAYS))).views) == 3 * visible
        rig.store.want_flush()
        rig.run_jobs()


def test_keys_that_wait_for_their_place_are_found(rig: Rig, no_maps: Callable[[Any], Any]) -> None:
    for _ in range(3):
        rig.send(keys="k")
    job = cold(rig.store.reads.query("Topic", "k", 9, *ALWAYS))
    rig.run_jobs()
    assert len(no_maps(job).views) == 3


@pytest.mark.parametrize("offset", [-1, 67, 68, 1000])
def test_what_lies_outside_is_told_at_once(rig: Rig, offset: int) -> None:
    queue = fill(rig, 67)
    assert told(now(rig.store.reads.get(queue, offset, 32, None))) == told(
        rig.store.reader.get(queue, offset, 32, None)
    )
    assert now(rig.store.reads.record(rig.store.end)) is None
    assert now(rig.store.reads.record(-1)) is None
    assert now(rig.store.reads.get(rig.store.queue("New", 0), 0, 1, None)).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_near_and_far(make_rig: MakeRig) -> None:
    """What this store wrote not long ago is given at once, from the queue's tail and from its files."""
    rig = make_rig(cold_read_distance=3000)
    sizes = []
    for _ in range(100):
        sizes.append(rig.store.end)
        rig.send(body=bytes(100))
        rig.pass_time(70_000)
    store = rig.store
    queue = store.queue("Topic", 0)
    assert queue.written > 95
    kinds = [type(store.reads.get(queue, offset, 1, None)) is GetResult for offset in range(100)]
    first_near = kinds.index(True)
    assert kinds == [False] * first_near + [True] * (100 - first_near)
    assert 1500 - 250 <= store.end - sizes[first_near] <= 3000
    edge = next(number for number in range(100) if sizes[number] >= store.end - 3000)
    for number in (0, edge - 1):
        assert ran(cold(store.reads.record(sizes[number]))) == store.reader.record(sizes[number])
    for number in (edge, 99):
        assert now(store.reads.record(sizes[number])) == store.reader.record(sizes[number])
    cold(store.reads.offset_by_time(queue, START))
    cold(store.reads.earliest_store_time(queue))


def test_a_tail_that_fell_behind_is_far(make_rig: MakeRig) -> None:
    rig = make_rig(cold_read_distance=3000)
    rig.send("Slow")
    now(rig.store.reads.get(rig.store.queue("Slow", 0), 0, 1, None))
    rig.send_many(30)
    assert rig.store.queue("Slow", 0).written == 0
    assert ran(cold(rig.store.reads.get(rig.store.queue("Slow", 0), 0, 1, None))).count == 1


def test_what_was_there_at_the_start_is_far(make_rig: MakeRig) -> None:
    """The machine may have been started anew since it was written."""
    rig = make_rig()
    rig.send(body=b"before", keys="k")
    rig.reopen()
    queue = rig.store.queue("Topic", 0)
    physical = rig.store.end
    rig.send(body=b"after", keys="k")
    assert records(ran(cold(rig.store.reads.get(queue, 0, 32, None))).views)[0].body == b"before"
    assert records(now(rig.store.reads.get(queue, 1, 32, None)).views)[0].body == b"after"
    cold(rig.store.reads.record(0))
    now(rig.store.reads.record(physical))
    rig.settle()
    now(rig.store.reads.get(queue, 1, 32, None))


def test_turned_off(make_rig: MakeRig) -> None:
    rig = make_rig(cold_read_distance=0)
    queue = fill(rig)
    rig.reopen()
    queue = rig.store.queue("Topic", 0)
    reads = rig.store.reads
    assert now(reads.get(queue, 0, 32, None)).count == 10  # as many as a queue file has
    assert now(reads.record(0)) is not None
    assert now(reads.offset_by_time(queue, START)) == 0
    assert now(reads.earliest_store_time(queue)) > 0
    assert len(now(reads.query("Topic", "all", 3, *ALWAYS)).views) == 3


def test_a_machine_whose_memory_reaches_nowhere(make_rig: MakeRig) -> None:
    rig = make_rig(access_message_in_memory_max_ratio=0)
    queue = fill(rig)
    assert ran(cold(rig.store.reads.get(queue, 0, 32, None))).count == 8


def test_little_at_a_time(make_rig: MakeRig) -> None:
    """docs/protocol/store.md 14.2: eight messages, or 65,536 bytes, or one that is longer."""
    rig = make_rig(access_message_in_memory_max_ratio=0, mapped_file_size_commit_log=1 << 20, allocation_window=1 << 20)
    for size in (100, 20_000, 100_000):
        for _ in range(10):
            rig.send(f"Topic{size}", bytes(size))
    rig.send()
    counts = [
        ran(cold(rig.store.reads.get(rig.store.queue(f"Topic{size}", 0), 0, 32, None))).count
        for size in (100, 20_000, 100_000)
    ]
    assert counts == [8, 3, 1]


def test_the_store_goes_on_meanwhile(make_rig: MakeRig, no_maps: Callable[[Any], Any]) -> None:
    rig = make_rig(cold_read_distance=1)
    queue = fill(rig)
    store, reads = rig.store, rig.store.reads
    expected = (
        told(store.reader.get(queue, 5, 5, None)),
        told(store.reader.get(queue, 57, 32, None)),
        store.reader.query("Topic", "all", 64, *ALWAYS),
    )
    jobs = (
        cold(reads.get(queue, 5, 5, None)),
        cold(reads.get(queue, 57, 32, None)),
        cold(reads.query("Topic", "all", 64, *ALWAYS)),
    )
    rig.send_many(100)
    rig.settle()
    store.delete_queues(lambda queue: queue.topic == "Other")
    rig.run_jobs()
    assert (told(no_maps(jobs[0])), told(no_maps(jobs[1]))) == expected[:2]
    found = [message.body for message in records(no_maps(jobs[2]).views)]
    assert found == [message.body for message in records(expected[2].views)]


class TestWhatIsDeletedMeanwhile:
    """Told as removed, as if it had been gone before; what was read stays."""

    def test_the_log(self, make_rig: MakeRig) -> None:
        rig = make_rig(cold_read_distance=1)
        queue = fill(rig)
        reads = rig.store.reads
        jobs = cold(reads.get(queue, 0, 4, None)), cold(reads.record(0)), cold(reads.query("Topic", "all", 64, *ALWAYS))
        earliest, by_time = cold(reads.earliest_store_time(queue)), cold(reads.offset_by_time(queue, START))
        rig.files.remove(rig.store._log.path_of(0))
        for job in (*jobs, earliest, by_time):
            job.run()
        assert jobs[0].result.status is GetStatus.MESSAGE_WAS_REMOVING
        assert jobs[0].result.next_offset == 4
        assert not jobs[0].result.damaged, "nobody looks for damage where files were deleted in order"
        assert jobs[1].result is None
        assert 0 < len(jobs[2].result.views) < 60
        assert earliest.result == -1
        assert by_time.result > 4

    def test_queue_and_index(self, make_rig: MakeRig) -> None:
        rig = make_rig(cold_read_distance=1)
        queue = fill(rig)
        reads = rig.store.reads
        get = cold(reads.get(queue, 0, 4, None))
        query = cold(reads.query("Topic", "all", 64, *ALWAYS))
        rig.files.remove_tree(queue.folder)
        rig.files.remove_tree(f"{rig.root}/index")
        for job in (get, query):
            job.run()
        assert (get.result.status, get.result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 10)
        assert query.result.views == []

    def test_what_was_read_outlives_its_file(self, make_rig: MakeRig) -> None:
        rig = make_rig(cold_read_distance=1)
        queue = fill(rig)
        job = cold(rig.store.reads.get(queue, 0, 4, None))
        job.run()
        rig.files.remove(rig.store._log.path_of(0))
        assert [message.queue_offset for message in records(job.result.views)] == [0, 1, 2, 3]


class CountedFile:
    def __init__(self, file: ReadFile, files: CountedFiles) -> None:
        self._file = file
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, start: int, size: int) -> bytes:
        if self._files.broken:
            raise OSError(5, "Input/output error")
        self._files.reads.append(size)
        return self._file.read(start, size)

    def close(self) -> None:
        self._files.open_now -= 1
        self._file.close()


class CountedFiles:
    """Files that know how many are open and what was read, and may be broken."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.open_now = 0
        self.reads: list[int] = []
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_to_read(self, path: str) -> Any:
        file = self._files.open_to_read(path)
        self.open_now += 1
        return CountedFile(file, self)


def counted(rig: Rig) -> CountedFiles:
    files = CountedFiles(rig.files)
    rig.store.reads._files = files
    return files


def test_a_disk_that_fails(make_rig: MakeRig) -> None:
    rig = make_rig(cold_read_distance=1)
    queue = fill(rig)
    files = counted(rig)
    reads = rig.store.reads
    files.broken = True
    for job in (
        cold(reads.get(queue, 0, 4, None)),
        cold(reads.record(0)),
        cold(reads.query("Topic", "all", 64, *ALWAYS)),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            job.run()
        assert files.open_now == 0


def test_what_a_read_costs(make_rig: MakeRig) -> None:
    """Few system calls, few bytes, and every file given back."""
    rig = make_rig(
        cold_read_distance=1,
        mapped_file_size_commit_log=1 << 20,
        allocation_window=1 << 20,
        mapped_file_size_consume_queue=20_000,
    )
    for _ in range(1000):
        rig.send(body=bytes(500), keys="k")
        rig.run_jobs()
    rig.settle()
    rig.send()
    files = counted(rig)
    queue = rig.store.queue("Topic", 0)
    for job, calls, size in (
        (cold(rig.store.reads.get(queue, 100, 32, None)), 3, 70_000),
        (cold(rig.store.reads.record(0)), 2, 1000),
        (cold(rig.store.reads.offset_by_time(queue, START)), 20, 2000),
    ):
        files.reads.clear()
        job.run()
        assert files.open_now == 0
        assert len(files.reads) <= calls
        assert sum(files.reads) <= size


def test_the_slots_of_an_index_from_before_are_read_before_keys_are_added(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends would look at one after the other, each from disk."""
    rig = make_rig(max_hash_slot_num=1_000_000)
    rig.send(keys="k")
    rig.reopen()
    rig.send(keys="k")
    (job,) = [job for job in rig.store.jobs if isinstance(job, AllocateIndex)]
    assert job.file is not None
    sizes: list[int] = []
    read = type(job.file).read

    def noted(file: Any, start: int, size: int) -> bytes:
        sizes.append(size)
        data: bytes = read(file, start, size)
        return data

    monkeypatch.setattr(type(job.file), "read", noted)
    job.run()
    assert sum(sizes) == 40 + 4 * 1_000_000
    assert max(sizes) <= 1 << 20


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_near_is_never_far(data: st.DataObject) -> None:
    """Whatever is written when: entries that are called near lead to where the log is near, and a read by maps or not
    tells the same.
    """
    distance = data.draw(st.integers(1, 6000))
    rig = memory_rig(cold_read_distance=distance)
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.integers(0, 9)):
            case 0:
                rig.pass_time(1000)
            case 1:
                rig.pass_time(61_000)
            case 2 if data.draw(st.booleans()):
                rig.reopen()
            case _:
                rig.send_many(data.draw(st.integers(1, 8)), data.draw(st.sampled_from(["A", "B"])))
    begun = rig.store.reads._opened_at
    for queue in rig.store.queues():
        for offset in range(queue.min_offset, queue.max_offset):
            read = rig.store.reads.get(queue, offset, 8, None)
            if not isinstance(read, ColdRead):
                physical = ENTRY.unpack(bytes(rig.store._queues.chunk(queue, offset, 1, queue.max_offset)))[0]
                assert physical >= max(begun, rig.store.end - distance)
            assert told(ran(read) if isinstance(read, ColdRead) else read) == told(
                rig.store.reader.get(queue, offset, 8, None)
            )
