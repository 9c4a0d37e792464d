"""What becomes durable when (docs/protocol/store.md 7).

Owns: the flush of the log, the writing of queue entries, index and checkpoint, as jobs and deadlines; under SYNC_FLUSH
which messages are visible yet.
Under ASYNC_FLUSH a flush is due when enough pages came together or the thorough interval is over; under SYNC_FLUSH
whenever something is not durable, and one flush makes durable whatever came before it. When nothing is left to do there
is no deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import compress
from typing import Final

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.flush.checkpoint import Checkpoint
from mqproto.engine.store.flush.flush_jobs import FlushLog, RemoveQueues, WriteQueues
from mqproto.engine.store.flush.manifest import write_manifest
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.layout import ENTRY_SIZE, PAGE_BITS
from mqproto.engine.store.log.commit_log import NO_ROOM, CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.queues.queue_io import FileWrite
from mqproto.engine.store.settings import SYNC_FLUSH, StoreSettings
from mqproto.state.node.contract import Job
from mqproto.wire.names import SCHEDULE_TOPIC

#: Queue entries in memory, in bytes: from the first bound on they are written however few each queue has; beyond the
#: second one (the disk does not keep up, or is full) messages are refused.
_PRESSURE: Final = 16 << 20
_ENTRIES_MAX: Final = 128 << 20
#: Queues and bytes of one job that writes queues: what its making and its end cost the loop.
_SLICE: Final = 500
_SLICE_BYTES: Final = 4 << 20
_NEVER: Final = 1 << 62


class Round:
    """One writing of queues, in as many jobs as it takes."""

    __slots__ = ("end", "job", "left", "thorough", "time")

    def __init__(self, left: list[Queue], thorough: bool, end: int, time: int) -> None:
        #: Queues that no job has been made for.
        self.left = left
        self.thorough = thorough
        #: What is visible below this end of the log is in files afterwards, and with it whatever was stored up to this
        #: time.
        self.end = end
        self.time = time
        #: The job that is under way.
        self.job: WriteQueues | None = None


class Flusher:
    """Keeps data durable. `flushed` is how far the log is; `visible_end` how far readers may see."""

    __slots__ = (
        "_clock_floor",
        "_files",
        "_flush_due",
        "_flush_thorough",
        "_flushing",
        "_in_turn",
        "_made",
        "_manifest_path",
        "_queue_due",
        "_queue_thorough",
        "_removals",
        "_removing",
        "_round",
        "_round_end",
        "_sealed",
        "_settings",
        "_thorough_end",
        "_unsynced",
        "_writing",
        "checkpoint",
        "failure",
        "flushed",
        "index",
        "jobs",
        "log",
        "queues",
        "settled",
        "sync",
        "unflushed",
        "visible",
    )

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        checkpoint: Checkpoint,
        jobs: list[Job],
    ) -> None:
        self._files = files
        self._settings = settings
        self._manifest_path = f"{settings.store_path_root_dir}/manifest"
        self.log = log
        self.queues = queues
        self.index = index
        self.checkpoint = checkpoint
        self.jobs = jobs
        self.sync = settings.flush_disk_type == SYNC_FLUSH
        self.flushed = log.end
        #: SYNC_FLUSH: queues with messages for which no flush has begun, and what the flush under way will make
        #: visible.
        self.unflushed: list[Queue] = []
        self._sealed: list[tuple[Queue, int]] = []
        #: Queues in which messages became visible by a flush.
        self.visible: dict[Queue, None] = {}
        #: Set for good when the disk failed: nobody knows what it lost.
        self.failure: Exception | None = None
        self._flushing = False
        self._flush_due = 0
        self._flush_thorough = 0
        self._writing = False
        self._queue_due = 0
        self._queue_thorough = 0
        #: End of the log at the last round that wrote queues, and at the last thorough one.
        self._round_end = self._thorough_end = log.end
        #: Queue files that were written and are not durable, and which of them are new.
        self._unsynced: set[str] = set()
        self._made: set[str] = set()
        #: Folders of deleted queues that no job knows yet, and those that a job removes.
        self._removals: list[str] = []
        self._removing: list[str] = []
        #: Jobs of others that work on queue files and wait for their turn.
        self._in_turn: deque[Job] = deque()
        #: Messages below have durable entries in files of queues.
        self.settled = 0
        self._round: Round | None = None
        #: The earliest time that the clock went back to during the round.
        self._clock_floor = _NEVER

    @property
    def visible_end(self) -> int:
        return self.flushed if self.sync else self.log.end

    def begin(self, changed: bool) -> None:
        """The log is open, and everything in it is durable; so are queues and index, unless opening `changed` them."""
        self.flushed = self._round_end = self._thorough_end = self.log.end
        if changed:
            self._thorough_end = -1
        else:
            self.settled = self.log.end

    # --- deadlines ---

    def next_deadline(self) -> int | None:
        """When `timer` wants to be called; 0 is now, None never."""
        if self.failure is not None:
            return None
        due: int | None = None
        end = self.log.end
        if end != self.flushed and not self._flushing:
            due = self._flush_time(end)
        if not self._writing:
            queue_due = self._queue_time(end)
            if queue_due is not None and (due is None or queue_due < due):
                due = queue_due
        return due

    def _flush_time(self, end: int) -> int:
        if self.sync:
            return 0
        if (end >> PAGE_BITS) - (self.flushed >> PAGE_BITS) >= self._settings.flush_commit_log_least_pages:
            return self._flush_due
        return max(self._flush_due, self._flush_thorough)

    def _queue_time(self, end: int) -> int | None:
        if end != self._round_end:
            return self._queue_due
        if self.visible_end != self._thorough_end or self.checkpoint.changed:
            return max(self._queue_due, self._queue_thorough)
        return None

    def timer(self, now: int) -> None:
        if self.failure is not None:
            return
        end = self.log.end
        if end != self.flushed and not self._flushing and now >= self._flush_time(end):
            self._flush_due = now + self._settings.flush_interval_commit_log
            self._flush_thorough = now + self._settings.flush_commit_log_thorough_interval
            self.flush()
        if not self._writing:
            queue_due = self._queue_time(end)
            if queue_due is not None and now >= queue_due:
                self._queue_due = now + self._settings.flush_interval_consume_queue
                thorough = now >= self._queue_thorough
                if thorough:
                    self._queue_thorough = now + self._settings.flush_consume_queue_thorough_interval
                self._write_queues(thorough)

    # --- the log ---

    def flush(self) -> None:
        """Make durable what there is, unless a flush is under way: its end starts the next one under SYNC_FLUSH."""
        log = self.log
        if self._flushing or self.failure is not None or log.end == self.flushed:
            return
        self._flushing = True
        folder = log.folder if log.unsynced_names else ""
        log.unsynced_names = False
        self._seal()
        self.jobs.append(
            FlushLog(self._files, log.files_between(self.flushed, log.end), folder, log.end, log.last_time)
        )

    def flush_done(self, job: FlushLog, failure: Exception | None) -> None:
        self._flushing = False
        if failure is not None:
            self.fail(failure)
            return
        self._flushed_to(job.end, job.time)
        if self.sync:
            self.flush()

    def _flushed_to(self, end: int, time: int) -> None:
        self.flushed = end
        self.checkpoint.log_time = time
        for queue, offset in self._sealed:
            queue.max_offset = offset
            self.visible[queue] = None
        self._sealed.clear()

    def _seal(self) -> None:
        """What is in the queues now becomes visible when the log is durable up to its end of now."""
        for queue in self.unflushed:
            queue.unflushed = False
            self._sealed.append((queue, queue.next_offset))
        self.unflushed.clear()

    def clock_went_back(self, wall: int) -> None:
        """A store time is before the last one. The checkpoint must not claim times that come again."""
        checkpoint = self.checkpoint
        checkpoint.log_time = min(checkpoint.log_time, wall)
        checkpoint.queue_time = min(checkpoint.queue_time, wall)
        self._clock_floor = min(self._clock_floor, wall)
        self._queue_due = 0

    def fail(self, failure: Exception) -> None:
        """Stop taking messages for good: after a failed sync the kernel has forgotten which pages were not written."""
        self.failure = failure
        self.log.stop()

    # --- queues, index and checkpoint ---

    def _write_queues(self, thorough: bool) -> None:
        """Start a round. Queues with few entries wait for a thorough one, or until all queues together have many.

        Delay queues do not wait: 4.9 fills in what it misses after a crash with other times, and delivers at once
        (docs/protocol/store.md 8.6).
        """
        queues = self.queues
        sizes = [len(queue.tail) for queue in queues.dirty]
        waiting = sum(sizes) + queues.extension.waiting
        enough = self._settings.flush_consume_queue_least_pages << PAGE_BITS
        self._round_end = self.visible_end
        self.log.refuse("queues", "the disk does not take queue entries" if waiting >= _ENTRIES_MAX else "")
        if thorough or waiting >= _PRESSURE:
            chosen, queues.dirty = queues.dirty, []
        else:
            large = [
                size >= enough or queue.topic == SCHEDULE_TOPIC for queue, size in zip(queues.dirty, sizes, strict=True)
            ]
            chosen = list(compress(queues.dirty, large))
            if chosen:
                queues.dirty = [queue for queue, is_large in zip(queues.dirty, large, strict=True) if not is_large]
        self._clock_floor = _NEVER
        self._round = Round(
            chosen, thorough, self.visible_end, self.checkpoint.log_time if self.sync else self.log.last_time
        )
        self._go_on(self._round)

    def _go_on(self, round_: Round) -> None:
        """Start the next job of a round, or end it when nothing is left to do."""
        job = self._next_job(round_)
        if job.writes or job.sync or self.checkpoint.changed or job.times != self.checkpoint.times:
            self._writing = True
            round_.job = job
            self.jobs.append(job)
        else:
            if round_.thorough:  # recovery has left nothing to do
                self.settled = max(self.settled, job.settled)
            self._keep(job)
            self._round = None

    def _next_job(self, round_: Round) -> WriteQueues:
        """A job with the next queues of a round that have something to write."""
        job = WriteQueues(self._files, self.checkpoint)
        size = 0
        while round_.left and len(job.stops) < _SLICE and size < _SLICE_BYTES:
            queue = round_.left.pop()
            if not queue.removed:
                size += (queue.max_offset - queue.written) * ENTRY_SIZE
                self._add_writes(job, queue)
            if not job.writes and len(job.stops) >= _SLICE:
                self._keep(job)
                job.stops.clear()
        if not round_.left:
            job.last = True
            if round_.thorough:
                self._make_thorough(job, round_)
        return job

    def _keep(self, job: WriteQueues) -> None:
        """The queues of a job may have, or have got, entries that are not in files."""
        self.queues.dirty += [queue for queue, _ in job.stops if queue.tail]

    def _add_writes(self, job: WriteQueues, queue: Queue) -> None:
        stop = queue.max_offset  # never what is not durable under SYNC_FLUSH
        units = queue.units
        if units is not None and units.tail:  # entries must not lead to what was never there
            self._take(job, self.queues.extension.unwritten(units))
            job.unit_stops.append((units, units.written + len(units.tail)))
        self._take(job, self.queues.unwritten(queue, stop))
        job.stops.append((queue, stop))

    def _take(self, job: WriteQueues, writes: Iterator[FileWrite]) -> None:
        for write in writes:
            job.writes.append(write)
            self._unsynced.add(write.path)
            if write.at == 0:
                self._made.add(write.path)

    def _make_thorough(self, job: WriteQueues, round_: Round) -> None:
        """Let the job make everything durable, so that the checkpoint can say so."""
        job.sync, self._unsynced = self._unsynced, set()
        job.made, self._made = self._made, set()
        index = self.index
        index_time = self.checkpoint.index_time
        job.full = list(index.full)
        for index_file in job.full:
            job.index_files.append(index_file.map())
            index_time = index_file.end_time
        if index.current is not None and index.current.view:
            index.current.write_head()
            job.index_files.append(index.current.map())
        self._thorough_end = job.settled = round_.end
        queue_time = min(round_.time, self._clock_floor)
        if index.late:  # what is indexed is behind: recovery has to begin before that
            queue_time = min(queue_time, index.late[0][2] - 1)
            self._thorough_end = -1
        job.times = (self.checkpoint.log_time, queue_time, index_time)

    def written(self, job: WriteQueues, failure: Exception | None) -> None:
        self._writing = False
        round_ = self._round
        assert round_ is not None
        round_.job = None
        if failure is not None:
            self._unsynced |= job.sync
            self._made |= job.made
            self._thorough_end = -1
            self.queues.dirty += [queue for queue in round_.left if queue.tail]
            round_.left.clear()
            if not (isinstance(failure, OSError) and failure.errno in NO_ROOM):
                self.fail(failure)
        else:
            for queue, stop in job.stops:
                self.queues.wrote(queue, stop)
            for units, stop in job.unit_stops:
                self.queues.extension.wrote(units, stop)
            if job.last:
                _, queue_time, self.checkpoint.index_time = job.times
                self.checkpoint.queue_time = min(queue_time, self._clock_floor)
                self.checkpoint.saved(job.times)
                self.index.full = [each for each in self.index.full if each not in job.full]
                self.settled = max(self.settled, job.settled)
        self._keep(job)
        if failure is None and not job.last:
            self._go_on(round_)
        else:
            self._round = None
        self._remove_queues()

    def remove(self, unwanted: list[Queue]) -> None:
        """Forget queues and have their files removed."""
        for queue in unwanted:
            self.queues.remove(queue)
            self._removals += self.queues.folders_of(queue)
        self._remove_queues()

    def _remove_queues(self) -> None:
        """One job at a time works on queue files, so that a queue made anew under an old name is not removed with
        it.
        """
        if self._removals and not self._writing:
            self._writing = True
            self._removing, self._removals = self._removals, []
            self.jobs.append(RemoveQueues(self._files, self._removing))
        elif self._in_turn and not self._writing:
            self._writing = True
            self.jobs.append(self._in_turn.popleft())

    def in_turn(self, job: Job) -> None:
        """Start a job that works on queue files when no other does. Its end is told by `turn_over`."""
        self._in_turn.append(job)
        self._remove_queues()

    def turn_over(self) -> None:
        self._writing = False
        self._remove_queues()

    def removed(self, failure: Exception | None) -> None:
        self._writing = False
        self._removing = []
        if failure is not None:
            self.fail(failure)
        self._remove_queues()

    # --- the end ---

    def finish(self, wall: int) -> None:
        """Make everything durable at once. Blocks. Raises OSError."""
        log = self.log
        self.index.settle(wall)
        if (
            self._removing or self._removals
        ):  # whatever their job has come to: what is left of a deleted queue would be taken for whole
            RemoveQueues(self._files, self._removing + self._removals).run()
        self._seal()
        FlushLog(self._files, log.files_between(self.flushed, log.end), log.folder, log.end, log.last_time).run()
        self._flushed_to(log.end, log.last_time)
        interrupted = self._round
        if interrupted is not None and interrupted.job is not None:  # asked for, and never begun
            self._unsynced |= interrupted.job.sync
            self._made |= interrupted.job.made
        everything = [queue for queue in self.queues.by_key.values() if queue.tail]
        job = WriteQueues(self._files, self.checkpoint)
        for queue in everything:
            self._add_writes(job, queue)
        job.last = True
        self._make_thorough(job, Round([], True, log.end, log.last_time))
        job.run()
        write_manifest(self._files, self._manifest_path, log, self.queues, self.index, job.times)
