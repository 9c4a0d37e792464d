"""Rounds of writing queue entries to their files, with the index and the checkpoint (docs/protocol/store.md 7).

Owns: the jobs that work on queue files, of which one runs at a time, removals of queues too; when a round is due; how
far queues are durable. A round takes as many jobs as it needs, and a thorough one makes files durable, so that the
checkpoint can say so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Final

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.flush.checkpoint import Checkpoint
from mqproto.engine.store.flush.flush_jobs import RemoveQueues, WriteQueues
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
    """Round: one writing of queues, in as many jobs as it takes."""

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


class QueueRounds:
    """Rounds that keep queues and index durable. Messages below `settled` have durable entries in files of queues."""

    __slots__ = (
        "_checkpoint",
        "_clock_floor",
        "_due",
        "_fail",
        "_files",
        "_in_turn",
        "_index",
        "_jobs",
        "_log",
        "_made",
        "_queues",
        "_removals",
        "_removing",
        "_round",
        "_round_end",
        "_settings",
        "_sync",
        "_thorough_due",
        "_thorough_end",
        "_unsynced",
        "_writing",
        "settled",
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
        fail: Callable[[Exception], None],
    ) -> None:
        """`fail` gets what a disk failed with."""
        self._files = files
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._jobs = jobs
        self._fail = fail
        self._sync = settings.flush_disk_type == SYNC_FLUSH
        self._writing = False
        self._due = 0
        self._thorough_due = 0
        #: End of the log at the last round, and at the last thorough one.
        self._round_end = self._thorough_end = log.end
        #: Queue files that were written and are not durable, and which of them are new.
        self._unsynced: set[str] = set()
        self._made: set[str] = set()
        #: Folders of deleted queues that no job knows yet, and those that a job removes.
        self._removals: list[str] = []
        self._removing: list[str] = []
        #: Jobs of others that work on queue files and wait for their turn.
        self._in_turn: deque[Job] = deque()
        self.settled = 0
        self._round: Round | None = None
        #: The earliest time that the clock went back to during the round.
        self._clock_floor = _NEVER

    def begin(self, changed: bool) -> None:
        """The log is open, and so are queues and index, durable unless opening `changed` them."""
        self._round_end = self._thorough_end = self._log.end
        if changed:
            self._thorough_end = -1
        else:
            self.settled = self._log.end

    # --- deadlines ---

    def next_deadline(self, visible_end: int) -> int | None:
        """When `timer` wants to be called; 0 is now, None never."""
        if self._writing:
            return None
        if self._log.end != self._round_end:
            return self._due
        if visible_end != self._thorough_end or self._checkpoint.changed:
            return max(self._due, self._thorough_due)
        return None

    def timer(self, now: int, visible_end: int) -> None:
        due = self.next_deadline(visible_end)
        if due is not None and now >= due:
            self._due = now + self._settings.flush_interval_consume_queue
            thorough = now >= self._thorough_due
            if thorough:
                self._thorough_due = now + self._settings.flush_consume_queue_thorough_interval
            self._begin_round(thorough, visible_end)

    def clock_went_back(self, wall: int) -> None:
        """A store time is before the last one. The checkpoint must not claim times that come again."""
        self._checkpoint.queue_time = min(self._checkpoint.queue_time, wall)
        self._clock_floor = min(self._clock_floor, wall)
        self._due = 0

    # --- rounds ---

    def _begin_round(self, thorough: bool, visible_end: int) -> None:
        """Start a round. Queues with few entries wait for a thorough one, or until all queues together have many.

        Delay queues do not wait: 4.9 fills in what it misses after a crash with other times, and delivers at once
        (docs/protocol/store.md 8.6).
        """
        queues = self._queues
        sizes = [len(queue.tail) for queue in queues.dirty]
        waiting = sum(sizes) + queues.extension.waiting
        enough = self._settings.flush_consume_queue_least_pages << PAGE_BITS
        self._round_end = visible_end
        self._log.refuse("queues", "the disk does not take queue entries" if waiting >= _ENTRIES_MAX else "")
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
        time = self._checkpoint.log_time if self._sync else self._log.last_time
        self._round = Round(chosen, thorough, visible_end, time)
        self._go_on(self._round)

    def _go_on(self, round_: Round) -> None:
        """Start the next job of a round, or end it when nothing is left to do."""
        job = self._next_job(round_)
        if job.writes or job.sync or self._checkpoint.changed or job.times != self._checkpoint.times:
            self._writing = True
            round_.job = job
            self._jobs.append(job)
        else:
            if round_.thorough:  # recovery has left nothing to do
                self.settled = max(self.settled, job.settled)
            self._keep(job)
            self._round = None

    def _next_job(self, round_: Round) -> WriteQueues:
        """A job with the next queues of a round that have something to write."""
        job = WriteQueues(self._files, self._checkpoint)
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
        self._queues.dirty += [queue for queue, _ in job.stops if queue.tail]

    def _add_writes(self, job: WriteQueues, queue: Queue) -> None:
        stop = queue.max_offset  # never what is not durable under SYNC_FLUSH
        units = queue.units
        if units is not None and units.tail:  # entries must not lead to what was never there
            self._take(job, self._queues.extension.unwritten(units))
            job.unit_stops.append((units, units.written + len(units.tail)))
        self._take(job, self._queues.unwritten(queue, stop))
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
        index = self._index
        index_time = self._checkpoint.index_time
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
        job.times = (self._checkpoint.log_time, queue_time, index_time)

    def written(self, job: WriteQueues, failure: Exception | None) -> None:
        """The job ended."""
        self._writing = False
        round_ = self._round
        assert round_ is not None
        round_.job = None
        if failure is not None:
            self._unsynced |= job.sync
            self._made |= job.made
            self._thorough_end = -1
            self._queues.dirty += [queue for queue in round_.left if queue.tail]
            round_.left.clear()
            if not (isinstance(failure, OSError) and failure.errno in NO_ROOM):
                self._fail(failure)
        else:
            for queue, stop in job.stops:
                self._queues.wrote(queue, stop)
            for units, stop in job.unit_stops:
                self._queues.extension.wrote(units, stop)
            if job.last:
                _, queue_time, self._checkpoint.index_time = job.times
                self._checkpoint.queue_time = min(queue_time, self._clock_floor)
                self._checkpoint.saved(job.times)
                self._index.full = [each for each in self._index.full if each not in job.full]
                self.settled = max(self.settled, job.settled)
        self._keep(job)
        if failure is None and not job.last:
            self._go_on(round_)
        else:
            self._round = None
        self._next_turn()

    # --- removing queues, and jobs of others ---

    def remove(self, unwanted: list[Queue]) -> None:
        """Forget queues and have their files removed."""
        for queue in unwanted:
            self._queues.remove(queue)
            self._removals += self._queues.folders_of(queue)
        self._next_turn()

    def _next_turn(self) -> None:
        """Start what waits. One job at a time works on queue files, so that a queue made anew under an old name is not
        removed with the old one.
        """
        if self._removals and not self._writing:
            self._writing = True
            self._removing, self._removals = self._removals, []
            self._jobs.append(RemoveQueues(self._files, self._removing))
        elif self._in_turn and not self._writing:
            self._writing = True
            self._jobs.append(self._in_turn.popleft())

    def in_turn(self, job: Job) -> None:
        """Start a job that works on queue files when no other does. `turn_over` has to be called at its end."""
        self._in_turn.append(job)
        self._next_turn()

    def turn_over(self) -> None:
        """The job that had its turn ended."""
        self._writing = False
        self._next_turn()

    def removed(self, failure: Exception | None) -> None:
        """The job that removed queues ended."""
        self._writing = False
        self._removing = []
        if failure is not None:
            self._fail(failure)
        self._next_turn()

    # --- the end ---

    def finish_removals(self) -> None:
        """Remove what is left of deleted queues, whatever their job has come to: it would be taken for whole. Blocks.
        Raises OSError.
        """
        if self._removing or self._removals:
            RemoveQueues(self._files, self._removing + self._removals).run()

    def finish(self) -> tuple[int, int, int]:
        """Make queues and index durable at once; gives the times of the checkpoint. Blocks. Raises OSError."""
        interrupted = self._round
        if interrupted is not None and interrupted.job is not None:  # asked for, and never begun
            self._unsynced |= interrupted.job.sync
            self._made |= interrupted.job.made
        everything = [queue for queue in self._queues.by_key.values() if queue.tail]
        job = WriteQueues(self._files, self._checkpoint)
        for queue in everything:
            self._add_writes(job, queue)
        job.last = True
        self._make_thorough(job, Round([], True, self._log.end, self._log.last_time))
        job.run()
        return job.times
