"""Flush: what becomes durable when, and what is visible until then (docs/protocol/store.md 7)."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest

from mqproto.engine.store import MemoryFiles, PutRefused, PutStatus, Store, StoreUnwritable
from mqproto.engine.store.flush.flush_jobs import FlushLog, RemoveQueues, WriteQueues
from mqproto.state.node.contract import Job
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import START, Rig, memory_rig

SYNC = {"flush_disk_type": "SYNC_FLUSH"}
DISK_FAILED = OSError(errno.EIO, "Input/output error")


def checkpoint(rig: Rig) -> tuple[int, int, int]:
    log, queues, index = struct.unpack_from(">qqq", rig.files.read(f"{rig.root}/checkpoint"))
    return log, queues, index


def take_jobs(store: Store) -> list[Job]:
    jobs, store.jobs[:] = list(store.jobs), []
    return jobs


# --- ASYNC_FLUSH ---


def test_an_idle_store_has_no_deadline(rig: Rig) -> None:
    assert rig.store.next_deadline() is None
    rig.send(uniq_key="a")
    rig.settle()
    assert rig.store.next_deadline() is None
    assert rig.store.flushed == rig.store.end
    assert rig.pass_time(3_600_000) == []
    assert checkpoint(rig) == (START, START, 0)


def test_few_pages_wait_for_the_thorough_flush(make_rig: MakeRig) -> None:
    rig = make_rig(mapped_file_size_commit_log=1 << 20)
    rig.settle()
    rig.send()
    assert "FlushLog" in rig.pass_time(0), "the last one was long ago"
    rig.send()
    began = rig.now
    assert "FlushLog" not in rig.pass_time(9000)
    rig.pass_time(1500)
    assert rig.store.flushed == rig.store.end
    assert rig.now - began <= 10_500
    rig.send_many(60, size=300)
    assert "FlushLog" in rig.pass_time(500), "more than four pages"
    assert rig.store.flushed == rig.store.end


def test_flush_crosses_files_in_one_job(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.send_many(40, size=300)
    rig.store.want_flush()
    (job,) = [job for job in take_jobs(rig.store) if isinstance(job, FlushLog)]
    assert len(job.log_files) >= 3
    job.run()
    rig.store.done(job, None, 0, 0)
    assert rig.store.flushed == rig.store.end


def test_queue_entries_are_written_in_rounds(make_rig: MakeRig) -> None:
    rig = make_rig(mapped_file_size_consume_queue=40_000, mapped_file_size_commit_log=1 << 20)
    rig.send_many(3)
    rig.settle()
    rig.send_many(500, "Busy", size=10)
    rig.send("Quiet")
    began = rig.now
    rig.pass_time(1000)
    assert rig.files.exists(f"{rig.root}/consumequeue/Busy/0")
    assert not rig.files.exists(f"{rig.root}/consumequeue/Quiet/0"), "less than two pages wait"
    rig.pass_time(60_000)
    assert rig.files.exists(f"{rig.root}/consumequeue/Quiet/0")
    assert checkpoint(rig)[1] >= START
    assert rig.now - began == 61_000
    assert len(rig.read("Busy")) == 500


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
def test_entries_of_delay_queues_are_in_their_file_soon(make_rig: MakeRig, settings: dict[str, str]) -> None:
    """4.9 takes the place of a broker that was killed, and delivers at once whatever it has to make the entry of
    (docs/protocol/store.md 8.6).
    """
    rig = make_rig(**settings)
    rig.send_many(3)
    rig.settle()
    rig.pass_time(5000)
    rig.send("SCHEDULE_TOPIC_XXXX", tags_code=START + 3_600_000)
    rig.send("Quiet")
    rig.pass_time(2_000)
    entry = rig.files.read(f"{rig.root}/consumequeue/SCHEDULE_TOPIC_XXXX/0/{0:020d}")[:20]
    assert struct.unpack(">qiq", entry)[2] == START + 3_600_000
    assert not rig.files.exists(f"{rig.root}/consumequeue/Quiet/0")


def test_a_write_that_finds_no_room_is_tried_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    full = OSError(errno.ENOSPC, "No space left on device")
    rig.send()
    for _ in range(3):
        rig.now += 60_000
        rig.store.timer(rig.now, START)
        rig.run_jobs(lambda job: full if isinstance(job, WriteQueues) else None)
    assert rig.store.writer.writable
    assert rig.bodies() == [b"body"]
    rig.settle()
    assert len(rig.files.read(f"{rig.root}/consumequeue/Topic/0/{0:020d}")) == 200


def test_clock_set_back_lowers_the_checkpoint(rig: Rig) -> None:
    rig.send()
    rig.settle()
    assert checkpoint(rig)[:2] == (START, START)
    rig.send(at=START - 5000)
    rig.pass_time(1)
    assert max(checkpoint(rig)) == START - 5000


# --- SYNC_FLUSH ---


def test_nothing_is_visible_before_it_is_durable(make_rig: MakeRig) -> None:
    """REC-08."""
    rig = make_rig(**SYNC)
    queue = rig.store.queue("Topic", 0)
    offset = rig.send(uniq_key="a")
    rig.run_jobs(lambda job: None if not isinstance(job, FlushLog) else pytest.fail("nobody asked"))
    rig.store.want_flush()
    assert (queue.next_offset, queue.max_offset) == (1, 0)
    assert rig.bodies() == []
    assert rig.store.reader.record(offset) is None
    assert rig.store.reader.entry(queue, 0) is None
    assert rig.found("a") == []
    assert rig.store.take_visible() == []
    rig.run_jobs()
    assert rig.store.take_visible() == [queue]
    assert rig.store.take_visible() == []
    assert (rig.bodies(), rig.found("a"), queue.max_offset) == ([b"body"], [0], 1)
    assert rig.store.reader.record(offset) is not None


def test_one_flush_answers_everything_below_it(make_rig: MakeRig) -> None:
    rig = make_rig(**SYNC)
    rig.run_jobs()
    rig.send("A")
    rig.send("B")
    below = rig.store.end
    rig.store.want_flush()
    (job,) = take_jobs(rig.store)
    rig.send("A")
    rig.store.want_flush()
    rig.store.want_flush()
    assert rig.store.jobs == [], "one at a time"
    job.run()
    rig.store.done(job, None, 0, 0)
    assert rig.store.flushed == below
    assert {queue.topic for queue in rig.store.take_visible()} == {"A", "B"}
    (following,) = take_jobs(rig.store)
    following.run()
    rig.store.done(following, None, 0, 0)
    assert rig.store.flushed == rig.store.end
    assert len(rig.read("A")) == 2


def test_flush_is_due_at_once(make_rig: MakeRig) -> None:
    """Also when nobody asks, as for messages with WAIT=false."""
    rig = make_rig(**SYNC)
    rig.send()
    assert rig.store.next_deadline() == 0
    assert "FlushLog" in rig.pass_time(0)
    assert rig.bodies() == [b"body"]


def test_queue_files_never_run_ahead_of_the_log(make_rig: MakeRig) -> None:
    rig = make_rig(**SYNC)
    rig.send(body=b"durable")
    rig.settle()
    rig.send(body=b"not yet")
    rig.now += 120_000
    rig.store.timer(rig.now, START)
    jobs = take_jobs(rig.store)
    held = [job for job in jobs if isinstance(job, FlushLog)]
    for job in jobs:
        if job not in held:
            job.run()
            rig.store.done(job, None, rig.now, START)
    assert not any(rig.files.read(f"{rig.root}/consumequeue/Topic/0/{0:020d}")[20:])
    for job in held:
        job.run()
        rig.store.done(job, None, rig.now, START)
    rig.settle()
    assert any(rig.files.read(f"{rig.root}/consumequeue/Topic/0/{0:020d}")[20:])


def test_new_log_file_is_durable_with_its_name() -> None:
    rig = memory_rig(**SYNC)
    bodies = rig.send_many(40, size=300)  # more than the job for the next file could keep up with
    rig.store.want_flush()
    for job in take_jobs(rig.store):
        if isinstance(job, FlushLog):
            job.run()
            rig.store.done(job, None, 0, 0)
    rig.cut_power()
    rig.open()
    assert rig.bodies() == bodies


# --- failures ---


@pytest.mark.parametrize("settings", [SYNC, {}])
def test_after_a_failed_sync_nothing_is_taken_any_more(make_rig: MakeRig, settings: dict[str, str]) -> None:
    rig = make_rig(**settings)
    rig.run_jobs()
    rig.send(body=b"good")
    rig.settle()
    rig.send(body=b"lost?")
    rig.store.want_flush()
    flushed = rig.store.flushed
    rig.store.take_visible()
    rig.run_jobs(lambda job: DISK_FAILED)
    assert not rig.store.writer.writable
    assert rig.store.flushed == flushed
    assert rig.store.take_visible() == []
    with pytest.raises(PutRefused) as caught:
        rig.send()
    assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert rig.store.next_deadline() is None
    rig.store.timer(1 << 40, 0)
    assert rig.store.jobs == []
    assert rig.bodies()[0] == b"good", "reading goes on"
    rig.store.close(START)
    assert rig.files.exists(f"{rig.root}/abort")
    assert not rig.open().recovery.clean


def test_failed_write_of_queues_stops_the_store(rig: Rig) -> None:
    rig.send()
    rig.now += 120_000
    rig.store.timer(rig.now, START)
    rig.run_jobs(lambda job: DISK_FAILED if isinstance(job, WriteQueues) else None)
    assert not rig.store.writer.writable


def test_close_that_fails_leaves_the_mark_of_a_crash(rig: Rig) -> None:
    rig.send_many(3)
    rig.run_jobs()
    file = rig.store._log.files_between(0, 1)[0]

    class Broken:
        def sync(self) -> None:
            raise DISK_FAILED

        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

    rig.store._log.log_files[0].file = Broken()  # type: ignore[assignment]
    with pytest.raises(StoreUnwritable, match="Input/output error"):
        rig.store.close(START)
    assert rig.files.exists(f"{rig.root}/abort")
    store = rig.open()
    assert not store.recovery.clean
    assert len(rig.read()) == 3


def test_strange_jobs_are_not_the_stores(rig: Rig) -> None:
    class Other:
        def run(self) -> None: ...

    assert rig.store.done(Other(), None, 0, 0) is False


# --- space ---


def fill(rig: Rig, fails: Callable[[Job], Exception | None] = lambda job: None) -> tuple[int, str]:
    """Send until a message is refused; gives how many were taken, and why the next one was not."""
    for count in range(1000):
        try:
            rig.send(body=bytes(300), uniq_key=f"id-{count}")
        except PutRefused as refusal:
            return count, refusal.why
        rig.run_jobs(fails)
    raise AssertionError("the disk was never full")


def test_full_disk_refuses_and_recovers() -> None:
    files = MemoryFiles(forgetful=True, space=12_000)
    rig = Rig(files, "/store", message_index_enable=False)
    stored, why = fill(rig)
    assert "full" in why
    assert 20 < stored < 30
    with pytest.raises(PutRefused):
        rig.send()
    assert len(rig.read()) == stored
    files.space = 100_000
    with pytest.raises(PutRefused):
        rig.send(body=b"too soon to ask the disk again", at=rig.wall + 500)
    rig.send(body=b"again", at=rig.wall + 1000)
    assert rig.store.writer.writable
    assert rig.bodies()[stored:] == [b"again"]
    rig.reopen()
    assert len(rig.read()) == stored + 1


def test_nothing_is_written_where_no_blocks_are() -> None:
    """A map that the disk cannot back kills the process."""

    files = MemoryFiles(space=100_000)
    rig = Rig(files, "/store", mapped_file_size_commit_log=1 << 20, allocation_window=8192)
    log = rig.store._log
    for number in range(300):
        rig.send(body=bytes(number * 7 % 3000))
        assert log.end + 8 <= log.limit <= log.base + log.file_size
        if number % 5 == 0:
            rig.run_jobs()
        if not rig.store.writer.writable:
            break
        assert files.space is not None
        files.space = max(files.space, 30_000)


@pytest.mark.pure
def test_index_without_room_makes_the_store_wait(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.engine.store.index.index.LATE_MAX", 5)
    rig = make_rig()
    full = OSError(errno.ENOSPC, "No space left on device")
    count, why = fill(rig, lambda job: full if type(job).__name__ == "AllocateIndex" else None)
    assert "index" in why
    assert (count, len(rig.read())) == (6, 6)
    rig.run_jobs()
    rig.send(uniq_key="after")
    assert rig.store.writer.writable
    assert rig.found("after") == [count]
    assert rig.found("id-0") == [0]


# --- deleting queues ---


def test_deleted_queues_begin_anew(rig: Rig) -> None:
    rig.send_many(12)
    rig.send("Other")
    rig.settle()
    rig.send_many(2)
    old = rig.store.queue("Topic", 0)
    assert rig.store.delete_queues(lambda queue: queue.topic == "Topic") == [old]
    assert rig.store.find_queue("Topic", 0) is None
    with pytest.raises(PutRefused, match="deleted"):
        rig.store.writer.append(old, b"", b"", 0, 0, 0, bytes(8), bytes(8), 0, 0, 0, None, None, START)
    rig.send(body=b"new")
    assert rig.store.queue("Topic", 0).next_offset == 1
    assert rig.run_jobs()[0] == "RemoveQueues"
    assert not rig.files.exists(f"{rig.root}/consumequeue/Topic/0")
    rig.settle()
    assert rig.bodies() == [b"new"]
    rig.reopen()
    assert (rig.bodies(), len(rig.read("Other"))) == ([b"new"], 1)


def test_a_write_under_way_does_not_bring_a_queue_back(rig: Rig) -> None:
    rig.send_many(12)
    rig.now += 120_000
    rig.store.timer(rig.now, START)
    jobs = take_jobs(rig.store)
    rig.store.delete_queues(lambda queue: True)
    assert not any(isinstance(job, RemoveQueues) for job in rig.store.jobs)
    for job in jobs:
        job.run()
        rig.store.done(job, None, rig.now, START)
    rig.settle()
    assert rig.files.names(f"{rig.root}/consumequeue") == []


def test_after_a_crash_a_queue_made_anew_has_its_new_messages_only(rig: Rig) -> None:
    rig.send_many(7)
    rig.store.delete_queues(lambda queue: True)
    rig.run_jobs()
    rig.send_many(3, size=50)
    rig.kill()
    rig.open()
    assert [len(body) for body in rig.bodies()] == [50] * 3
    assert any("anew" in note for note in rig.store.recovery.notes)


def test_disk_ratios(make_rig: MakeRig) -> None:
    rig = make_rig(clean_resource_interval=10_000)
    for ratio in rig.store.disk_ratios():
        assert ratio == -1 if isinstance(rig.files, MemoryFiles) else 0 < ratio < 1
    assert rig.store.dispatch_behind == 0


@pytest.mark.parametrize("changes", range(1, 12))
def test_a_queue_is_deleted_as_a_whole_or_not_at_all(changes: int) -> None:
    """Whenever the process dies while the files go; what is left of them goes with the next start, as the deletion was
    asked for.
    """
    rig = memory_rig()
    rig.send_many(35)
    rig.send_many(3, "Other")
    rig.settle()
    for _ in range(2):
        rig.wall += 10_000
        rig.send_many(40, "Other")  # so that a recovery begins behind the messages of the queue
        rig.settle()
    rig.store.delete_queues(lambda queue: queue.topic == "Topic")
    left = changes

    def before_change(change: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    files = rig.files
    assert isinstance(files, MemoryFiles)
    files.before_change = before_change
    with suppress(KeyboardInterrupt):
        rig.run_jobs()
    rig.files = files.process_death()
    rig.open()
    assert len(rig.bodies()) in (0, 35)
    assert not [path for path in rig.tree() if ".deleted" in path]
