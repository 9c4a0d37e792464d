"""Store: what a broker appends to and reads from.

A small machine: memory operations are done at once, everything that may block is a job. The owner hands `jobs` to its
driver, brings their ends back by `done`, and asks `next_deadline`.
Owns: one data directory from its opening to its end, its parts and what each job means to them, which queues there are.
Leaves to others: how messages come in (`writing`) and are found (`reader`, and `cold_reads`
where a disk would be waited for).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

from mqproto.engine.store.disk.disk import DiskFiles
from mqproto.engine.store.disk.files import Files, Lock
from mqproto.engine.store.disk.folders import make_durable_folder
from mqproto.engine.store.errors import StoreError, StoreLocked, StoreUnwritable
from mqproto.engine.store.flush.checkpoint import Checkpoint
from mqproto.engine.store.flush.closing import CloseStore, DirectoryClaim
from mqproto.engine.store.flush.flush_jobs import FlushLog, RemoveQueues, WriteQueues
from mqproto.engine.store.flush.flusher import Flusher
from mqproto.engine.store.index.index import AllocateIndex, Index
from mqproto.engine.store.log.commit_log import AllocateLog, CommitLog, CreateLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.reads.cold_reads import Reads
from mqproto.engine.store.reads.reader import Reader
from mqproto.engine.store.recovery.recovery import Recovery
from mqproto.engine.store.report import Recover, RecoveryReport
from mqproto.engine.store.retention.retention import Retention, RetentionJob
from mqproto.engine.store.retention.trimming import Trimmer
from mqproto.engine.store.settings import StoreSettings
from mqproto.engine.store.writing import Writer
from mqproto.state.node.contract import Job
from mqproto.wire.names import HALF_TOPIC, LIGHT_QUEUE_PREFIX, OP_HALF_TOPIC, SCHEDULE_TOPIC

#: Queues of the broker's own, whose offsets must not begin again.
_KEPT_TOPICS: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC})


class Store:
    """Store over one open data directory."""

    __slots__ = (
        "_abort",
        "_claim",
        "_files",
        "_flusher",
        "_index",
        "_log",
        "_queues",
        "_retention",
        "jobs",
        "notices",
        "reader",
        "reads",
        "recovery",
        "settings",
        "sync",
        "writer",
    )

    def __init__(self, settings: StoreSettings, files: Files, lock: Lock, utc_offset_ms: int) -> None:
        root = settings.store_path_root_dir
        self.settings = settings
        #: Jobs to run; the owner empties the list and answers each by `done`.
        self.jobs: list[Job] = []
        #: What an operator should know; the owner reports and empties it.
        self.notices: list[str] = []
        self._files = files
        self._claim = DirectoryClaim(lock)
        self._abort = f"{root}/abort"
        self._log = CommitLog(files, settings, self.jobs)
        self._queues = ConsumeQueues(files, settings)
        self._index = Index(files, settings, self.jobs, utc_offset_ms)
        checkpoint = Checkpoint(files, f"{root}/checkpoint")
        self._flusher = Flusher(files, settings, self._log, self._queues, self._index, checkpoint, self.jobs)
        trimmer = Trimmer(files, settings, self._log, self._queues, self._index, self._flusher.rounds, self.jobs)
        self._retention = Retention(
            files, settings, self._log, self._flusher, trimmer, self.jobs, self.notices, utc_offset_ms
        )
        memory = files.memory()
        #: Reads at once, which may wait for a disk.
        self.reader = Reader(settings, self._log, self._queues, self._index, self._flusher, memory)
        #: Reads that never wait for a disk: where they would have to they are jobs.
        self.reads = Reads(settings, files, self._log, self._queues, self._index, self._flusher, self.reader, memory)
        #: Where messages come in.
        self.writer = Writer(settings, self._log, self._queues, self._index, self._flusher)
        #: SYNC_FLUSH: messages become visible by `done`, not by `Writer.append`.
        self.sync = self._flusher.sync
        #: What was found at opening.
        self.recovery = RecoveryReport()

    @classmethod
    def open(
        cls,
        settings: StoreSettings,
        files: Files | None = None,
        *,
        wall: int,
        utc_offset_ms: int = 0,
        recover: Recover = Recover.REFUSE,
        thorough: bool = False,
    ) -> Store:
        """Open a data directory, or make one. Blocks.

        `wall` and `utc_offset_ms` (local time minus UTC) name new index files and decide at which hours old files go.
        Raises StoreLocked; StoreDamaged when opening would drop what is known to have been durable, unless `recover`
        says what to do then; StoreUnwritable. `thorough`: the whole log is checked, however long that takes. What was
        found is in `recovery`.
        """
        port = files or DiskFiles()
        root = settings.store_path_root_dir
        store: Store | None = None
        lock: Lock | None = None
        try:
            make_durable_folder(port, root)
            lock = port.lock(f"{root}/lock")
            if lock is None:
                raise StoreLocked(f"{root}/lock")
            make_durable_folder(port, settings.commit_log_folder)
            for folder in (f"{root}/consumequeue", f"{root}/index"):
                port.make_folder(folder)
            store = cls(settings, port, lock, utc_offset_ms)
            if settings.enable_consume_queue_ext:
                port.make_folder(store._queues.extension.folder)
            store._start(wall, recover, thorough)
            return store
        except (OSError, StoreError) as failure:
            if store is not None:
                store.release()
            elif lock is not None:
                lock.release()
            if isinstance(failure, OSError):
                raise StoreUnwritable(str(failure.filename or root), failure.strerror or str(failure)) from failure
            raise

    def _start(self, wall: int, recover: Recover, thorough: bool) -> None:
        flusher = self._flusher
        recovery = Recovery(
            self._files, self.settings, self._log, self._queues, self._index, flusher.checkpoint, self._abort
        )
        self.recovery = recovery.run(wall, recover, thorough)
        self.writer.begin(wall, self.recovery.full)
        self._queues.begin_extension()
        flusher.begin(self.recovery.dispatched > 0)
        self.reads.begin()
        self._retention.begin()
        flusher.checkpoint.make()
        self._files.write(self._abort, b"")
        self._files.remove(f"{self.settings.store_path_root_dir}/manifest")
        self._files.sync_folder(self.settings.store_path_root_dir)

    def configure(self) -> None:
        """Values of `settings` that take effect at once have changed (`Setting.live`); no others may, as long as the
        store is open.
        """
        self.writer.configure()
        self.reader.configure()
        self.reads.configure()
        self._retention.configure()

    def release(self) -> None:
        """Give the directory back without making anything durable: the next opening recovers as after a crash.

        For owners that give up. Harmless at any time and from any thread: where closing has begun to work, that gives
        the directory back.
        """
        lock = self._claim.take()
        if lock is not None:
            self._flusher.fail(StoreError("the store was given up"))
            self._let_go(lock)

    def _let_go(self, lock: Lock) -> None:
        """Give back files, maps and the lock."""
        try:
            self._log.close()
            self._index.close()
            self._queues.forget_maps()
        finally:
            lock.release()

    # --- queues ---

    def queue(self, topic: str, queue_id: int) -> Queue:
        """The queue, made in memory when there is none; files follow with its messages.

        ValueError for an impossible topic.
        """
        return self._queues.queue(topic, queue_id)

    def find_queue(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, if there is one."""
        return self._queues.by_key.get((topic, queue_id))

    def queues(self) -> Iterator[Queue]:
        """All queues."""
        return iter(self._queues.by_key.values())

    def delete_queues(self, unwanted: Callable[[Queue], bool], among: Iterable[Queue] | None = None) -> list[Queue]:
        """Forget the queues that `unwanted` names, of all or of those in `among`, and have their files removed. A queue
        made later under the same name begins at 0.
        """
        found = [queue for queue in (self._queues.by_key.values() if among is None else among) if unwanted(queue)]
        self._flusher.rounds.remove(found)
        return found

    def delete_dead_queues(self, among: Iterable[Queue] | None = None) -> list[Queue]:
        """Delete the queues of which the log has no message any more, as request 306 asks for; gives them. A queue that
        never had one stays, and so do those in which the broker keeps delayed messages and transactions.
        """
        return self.delete_queues(
            lambda queue: 0 < queue.next_offset == queue.min_offset and queue.topic not in _KEPT_TOPICS, among
        )

    def delete_queues_but(self, topics: Container[str], among: Iterable[Queue] | None = None) -> list[Queue]:
        """Delete the queues of all topics but these, as request 316 asks for; gives them. Those of delayed messages, of
        transactions and light queues are in no table of topics and stay.
        """
        return self.delete_queues(
            lambda queue: (
                not (queue.topic in topics or queue.topic in _KEPT_TOPICS or queue.topic.startswith(LIGHT_QUEUE_PREFIX))
            ),
            among,
        )

    def delete_old_files(self) -> None:
        """Let files of the log that are older than `fileReservedTime` go now, whatever the hour, as request 329 asks
        for; jobs do it.
        """
        self._retention.request()

    @property
    def end(self) -> int:
        """Where the next record goes (physical offset)."""
        return self._log.end

    @property
    def last_time(self) -> int:
        """Store time of the last record; 0 if there was none."""
        return self._log.last_time

    @property
    def flushed(self) -> int:
        """Everything below is durable."""
        return self._flusher.flushed

    @property
    def min_physical(self) -> int:
        """Where the log begins."""
        return self._log.start

    # --- the machine ---

    def want_flush(self) -> None:
        """Make everything appended so far durable as soon as possible; `flushed` says when it is.

        Under SYNC_FLUSH one call after any number of appends is enough: while a flush is under way, its end starts the
        next one.
        """
        self._flusher.flush()

    def take_visible(self) -> list[Queue]:
        """Queues in which messages became visible since the last call (SYNC_FLUSH only)."""
        visible = self._flusher.visible
        if not visible:
            return []
        found = list(visible)
        visible.clear()
        return found

    def done(self, job: Job, failure: Exception | None, now: int, wall: int) -> bool:
        """A job ended. False: it is none of the store's."""
        if isinstance(job, FlushLog):
            self._flusher.flush_done(job, failure)
        elif isinstance(job, WriteQueues):
            self._flusher.rounds.written(job, failure)
        elif isinstance(job, AllocateLog | CreateLog):
            self._log.prepared(job, failure)
        elif isinstance(job, AllocateIndex):
            self._index.prepared(job, failure, wall)
            if self._index.behind:
                self._log.soft = 0
        elif isinstance(job, RemoveQueues):
            self._flusher.rounds.removed(failure)
        elif isinstance(job, RetentionJob):
            self._retention.done(job, now, wall)
        else:
            return False
        return True

    def run_jobs(self, now: int, wall: int) -> None:
        """Run all jobs here, for owners that have no loop beside which they could run. Blocks."""
        while self.jobs:
            job = self.jobs.pop(0)
            failure: OSError | None = None
            try:
                job.run()
            except OSError as raised:
                failure = raised
            self.done(job, failure, now, wall)

    def timer(self, now: int, wall: int) -> None:
        """Time has passed (`now` monotonic, both in ms)."""
        if self._index.late:  # there was no room for them, and no new key may ever come to ask again
            self._index.retry(wall)
        self._flusher.timer(now)
        if self._flusher.failure is None:
            self._retention.timer(now, wall)

    def next_deadline(self) -> int | None:
        """When `timer` wants to be called (monotonic; 0: at once); None when everything is durable and no disk is
        looked at.
        """
        if self._flusher.failure is not None:
            return None
        due, other = self._flusher.next_deadline(), self._retention.next_deadline()
        return other if due is None or (other is not None and other < due) else due

    def begin_closing(self, wall: int) -> CloseStore:
        """The job that makes everything durable and marks the end as orderly. No other job may be under way; nothing is
        stored or read from now on.

        It gives the directory back, also when the disk fails: then the next opening recovers as after a crash. It
        raises StoreUnwritable if the disk fails only now.
        """
        flusher = self._flusher
        orderly = flusher.failure is None
        flusher.fail(StoreError("the store is closed"))
        root = self.settings.store_path_root_dir
        return CloseStore(self._files, root, self._abort, flusher if orderly else None, self._claim, self._let_go, wall)

    def close(self, wall: int) -> None:
        """The same at once. Blocks. Raises StoreUnwritable."""
        self.begin_closing(wall).run()

    # --- what is reported ---

    def disk_ratios(self) -> tuple[float, float]:
        """Used part of the disks of the log and of the queues when they were last looked at, 0 to 1 in whole
        hundredths, rounded up;
        -1 where unknown.
        """
        return self._retention.watermarks.ratios

    def disk_usage(self) -> tuple[int, int] | None:
        """Bytes of the disk of the log in use, and free for us, when it was last looked at; None where unknown."""
        return self._retention.watermarks.usage

    @property
    def dispatch_behind(self) -> int:
        """Bytes of the log that queues and index do not know yet: always 0, both get each message at once."""
        return 0
