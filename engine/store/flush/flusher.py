"""Flush of the log, and which messages are visible yet (docs/protocol/store.md 7).

Owns: when the log becomes durable, as jobs and deadlines, and what happens when a disk fails; the rounds that write
queues (`QueueRounds`).
Under ASYNC_FLUSH a flush is due when enough pages came together or the thorough interval is over; under SYNC_FLUSH
whenever something is not durable, and one flush makes durable whatever came before it. When nothing is left to do there
is no deadline.
"""

from __future__ import annotations

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.flush.checkpoint import Checkpoint
from mqproto.engine.store.flush.flush_jobs import FlushLog
from mqproto.engine.store.flush.manifest import write_manifest
from mqproto.engine.store.flush.queue_rounds import QueueRounds
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.layout import PAGE_BITS
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.settings import SYNC_FLUSH, StoreSettings
from mqproto.state.node.contract import Job


class Flusher:
    """Flusher of the log. `flushed` is how far the log is durable, `visible_end` how far readers may see."""

    __slots__ = (
        "_files",
        "_flush_due",
        "_flush_thorough",
        "_flushing",
        "_manifest_path",
        "_sealed",
        "_settings",
        "checkpoint",
        "failure",
        "flushed",
        "index",
        "jobs",
        "log",
        "queues",
        "rounds",
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
        self.rounds = QueueRounds(files, settings, log, queues, index, checkpoint, jobs, self.fail)

    @property
    def visible_end(self) -> int:
        return self.flushed if self.sync else self.log.end

    def begin(self, changed: bool) -> None:
        """The log is open, and everything in it is durable; so are queues and index, unless opening `changed` them."""
        self.flushed = self.log.end
        self.rounds.begin(changed)

    # --- deadlines ---

    def next_deadline(self) -> int | None:
        """When `timer` wants to be called; 0 is now, None never."""
        if self.failure is not None:
            return None
        due: int | None = None
        end = self.log.end
        if end != self.flushed and not self._flushing:
            due = self._flush_time(end)
        other = self.rounds.next_deadline(self.flushed if self.sync else end)
        return other if due is None or (other is not None and other < due) else due

    def _flush_time(self, end: int) -> int:
        if self.sync:
            return 0
        if (end >> PAGE_BITS) - (self.flushed >> PAGE_BITS) >= self._settings.flush_commit_log_least_pages:
            return self._flush_due
        return max(self._flush_due, self._flush_thorough)

    def timer(self, now: int) -> None:
        if self.failure is not None:
            return
        end = self.log.end
        if end != self.flushed and not self._flushing and now >= self._flush_time(end):
            self._flush_due = now + self._settings.flush_interval_commit_log
            self._flush_thorough = now + self._settings.flush_commit_log_thorough_interval
            self.flush()
        self.rounds.timer(now, self.visible_end)

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
        self.checkpoint.log_time = min(self.checkpoint.log_time, wall)
        self.rounds.clock_went_back(wall)

    def fail(self, failure: Exception) -> None:
        """Stop taking messages for good: after a failed sync the kernel has forgotten which pages were not written."""
        self.failure = failure
        self.log.stop()

    # --- the end ---

    def finish(self, wall: int) -> None:
        """Make everything durable at once. Blocks. Raises OSError."""
        log = self.log
        self.index.settle(wall)
        self.rounds.finish_removals()
        self._seal()
        FlushLog(self._files, log.files_between(self.flushed, log.end), log.folder, log.end, log.last_time).run()
        self._flushed_to(log.end, log.last_time)
        times = self.rounds.finish()
        write_manifest(self._files, self._manifest_path, log, self.queues, self.index, times)
