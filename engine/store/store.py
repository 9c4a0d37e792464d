"""The store: what a broker appends to and reads from.

A small machine: memory operations are done at once, everything that may block is a job. The owner hands `jobs` to its driver,
brings their ends back by `done`, and asks `next_deadline`.
Owns: the way of a message into log, queue and index in one step, so that none of them is ever behind the others in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final
from zlib import crc32

from engine.store.checkpoint import Checkpoint
from engine.store.closing import Claim, CloseStore
from engine.store.coldreads import Reads
from engine.store.commitlog import NO_ROOM, AllocateLog, CommitLog, CreateLog
from engine.store.config import ConfigFile
from engine.store.consumequeue import ConsumeQueues
from engine.store.disk import DiskFiles
from engine.store.errors import PutRefused, PutStatus, StoreError, StoreLocked, StoreUnwritable
from engine.store.extension import Unit
from engine.store.files import Files, Lock
from engine.store.flushing import Flusher
from engine.store.flushjobs import FlushLog, RemoveQueues, WriteQueues
from engine.store.folders import make_durable_folder
from engine.store.following import Follower
from engine.store.index import AllocateIndex, Index
from engine.store.judging import Judge
from engine.store.layout import ENTRY, ENTRY_SIZE, FILLER_SIZE, HEAD_V4, HEADS, HOLE_CODE, IPV6_EXTRA, LENGTH, MAGIC_V1
from engine.store.queue import NO_SIZE, Queue
from engine.store.reading import Reader
from engine.store.recovery import Recovery
from engine.store.report import Recover, RecoveryReport
from engine.store.results import BatchEntry, GetResult, QueryResult
from engine.store.retention import Retention, RetentionJob
from engine.store.settings import StoreSettings
from mqproto.flags import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from mqproto.names import HALF_TOPIC, LIGHT_QUEUE_PREFIX, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqproto.state.node import Job

_PROPERTIES_MAX: Final = 32_767
_HOST_V4: Final = 8
_V4: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)
#: How long a full disk is left alone before it is tried again.
_RETRY_MS: Final = 1000
#: Queues of the broker's own, whose offsets must not begin again.
_KEPT_TOPICS: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC})


class Store:
    """One data directory, open."""

    __slots__ = (
        "_abort",
        "_claim",
        "_extended",
        "_files",
        "_flusher",
        "_index",
        "_index_enabled",
        "_log",
        "_opened_at",
        "_queues",
        "_reader",
        "_retention",
        "_retry_at",
        "_unflushed",
        "jobs",
        "notices",
        "put_count",
        "reads",
        "recovery",
        "settings",
        "sync",
    )

    def __init__(self, settings: StoreSettings, files: Files, lock: Lock, utc_offset_ms: int) -> None:
        root = settings.store_path_root_dir
        self.settings = settings
        #: Jobs to run; the owner empties the list and answers each by `done`.
        self.jobs: list[Job] = []
        #: What an operator should know; the owner tells and empties it.
        self.notices: list[str] = []
        self._files = files
        self._claim = Claim(lock)
        self._abort = f"{root}/abort"
        self._log = CommitLog(files, settings, self.jobs)
        self._queues = ConsumeQueues(files, settings)
        self._index = Index(files, settings, self.jobs, utc_offset_ms)
        self._extended = settings.enable_consume_queue_ext
        self._index_enabled = settings.message_index_enable
        checkpoint = Checkpoint(files, f"{root}/checkpoint")
        self._flusher = Flusher(files, settings, self._log, self._queues, self._index, checkpoint, self.jobs)
        follower = Follower(files, settings, self._log, self._queues, self._index, self._flusher, self.jobs)
        self._retention = Retention(files, settings, self._log, self._flusher, follower, self.jobs, self.notices, utc_offset_ms)
        memory = files.memory()
        reader = self._reader = Reader(settings, self._log, self._queues, self._index, self._flusher, memory)
        #: Reads that do not wait for the disk; the other verbs for reading do where it has to be.
        self.reads = Reads(settings, files, self._log, self._queues, self._index, self._flusher, reader, memory)
        #: SYNC_FLUSH: messages become visible by `done`, not by `append`.
        self.sync = self._flusher.sync
        self._unflushed = self._flusher.unflushed
        self._retry_at = 0
        #: Messages stored since it was opened, and where the log ended then.
        self.put_count = 0
        self._opened_at = 0
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

        `wall` and `utc_offset_ms` (local time minus UTC) name new index files and tell at which hours old files go. Raises
        StoreLocked; StoreDamaged when opening would drop what is known to have been durable, unless `recover` says what to do then;
        StoreUnwritable. `thorough`: the whole log is checked, however long that takes. What was found is in `recovery`.
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
            if store._extended:
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
        log, flusher = self._log, self._flusher
        recovery = Recovery(self._files, self.settings, log, self._queues, self._index, flusher.checkpoint, self._abort)
        self.recovery = recovery.run(wall, recover, thorough)
        if self.recovery.full:
            self._retry_at = wall
        self._opened_at = log.end
        self._queues.begin_extension()
        flusher.begin(self.recovery.dispatched > 0)
        self.reads.begin()
        self._retention.begin()
        flusher.checkpoint.make()
        self._files.write(self._abort, b"")
        self._files.remove(f"{self.settings.store_path_root_dir}/manifest")
        self._files.sync_folder(self.settings.store_path_root_dir)

    def configure(self) -> None:
        """Values of `settings` that take effect at once have changed (`Setting.live`); no others may, as long as the store is open."""
        self._index_enabled = self.settings.message_index_enable
        self._reader.configure()
        self.reads.configure()
        self._retention.configure()

    def release(self) -> None:
        """Give the directory back without making anything durable: the next opening recovers as after a crash.

        For owners that give up. Harmless at any time and from any thread: where closing has begun to work, that gives the directory back.
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
        """The queue, made in memory when there is none; files follow with its messages. ValueError for an impossible topic."""
        return self._queues.queue(topic, queue_id)

    def find_queue(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, if there is one."""
        return self._queues.by_key.get((topic, queue_id))

    def queues(self) -> Iterator[Queue]:
        """All queues."""
        return iter(self._queues.by_key.values())

    def delete_queues(self, unwanted: Callable[[Queue], bool], among: Iterable[Queue] | None = None) -> list[Queue]:
        """Forget the queues that `unwanted` names, of all or of those in `among`, and have their files removed. A queue made later under
        the same name begins at 0."""
        found = [queue for queue in (self._queues.by_key.values() if among is None else among) if unwanted(queue)]
        self._flusher.remove(found)
        return found

    def skip_to(self, queue: Queue, offset: int) -> None:
        """Let the next message of a queue get a higher offset. The places in between stay blank; a queue that never had a message
        begins there (store.md 4.3).

        For messages that move from one directory to another. The file that a queue begins with is durable at once; whatever a crash
        leaves of blank places, the message that follows brings them back. Blocks; no job may be under way. Raises ValueError for an
        offset that the queue has passed, and OSError.
        """
        queues = self._queues
        if offset < queue.next_offset or queue.next_offset != queue.max_offset:
            raise ValueError(f"{queue} cannot go on at offset {offset}")
        if offset == queue.next_offset:
            return
        if queue.next_offset or queue.removed:
            queues.skip(queue, offset, self._log.end)
        else:
            queues.begin_at(queue, offset)
            queues.write_beginning(queue)

    def lead_over(self, queue: Queue, places: int) -> None:
        """Let as many places before the last message of a queue lead to that message, for the sake of Apache's brokers (`HOLE_CODE`).

        For places that `skip_to` left in the middle of a queue, right after the message was stored: no job may have run since.
        """
        physical, size, _ = ENTRY.unpack_from(queue.tail, len(queue.tail) - ENTRY_SIZE)
        begin = len(queue.tail) - (places + 1) * ENTRY_SIZE
        queue.tail[begin:-ENTRY_SIZE] = ENTRY.pack(physical, size, HOLE_CODE) * places

    def delete_dead_queues(self, among: Iterable[Queue] | None = None) -> list[Queue]:
        """Delete the queues of which the log has no message any more, as request 306 asks for; gives them. A queue that never had one
        stays, and so do those in which the broker keeps delayed messages and transactions."""
        return self.delete_queues(lambda queue: 0 < queue.next_offset == queue.min_offset and queue.topic not in _KEPT_TOPICS, among)

    def delete_queues_but(self, topics: Container[str], among: Iterable[Queue] | None = None) -> list[Queue]:
        """Delete the queues of all topics but these, as request 316 asks for; gives them. Those of delayed messages, of transactions and
        light queues are in no table of topics and stay."""
        return self.delete_queues(
            lambda queue: not (queue.topic in topics or queue.topic in _KEPT_TOPICS or queue.topic.startswith(LIGHT_QUEUE_PREFIX)), among
        )

    def delete_old_files(self) -> None:
        """Let files of the log that are older than `fileReservedTime` go now, whatever the hour, as request 329 asks for; jobs do it."""
        self._retention.request()

    def begin_log_file(self) -> None:
        """Let the next message begin a new file of the log. Blocks. Raises OSError when the disk has no room."""
        self._log.begin_file()

    # --- writing ---

    def append(
        self, queue: Queue, body: bytes | memoryview, properties: bytes, flag: int, sys_flag: int, born_time: int, born_host: bytes,
        store_host: bytes, reconsume_times: int, prepared_offset: int, tags_code: int, uniq_key: str | None, keys: str | None, wall: int,
        filter_bits: bytes = b"",
    ) -> int:  # fmt: skip
        """Store a message; gives its physical offset. Its queue offset is `queue.next_offset - 1` afterwards.

        Prepared and rolled back messages (by the sysFlag) are stored, but have no place in the queue.

        Hosts are 8 or 20 bytes (address and port); the IPv6 bits of the sysFlag are set from their lengths. `tags_code` is the
        hash of the tag, for the schedule topic the deliver time. `filter_bits` is a bitmap of the filters that the message passes; it is
        kept where the consume queue has an extension and no longer than configured. Raises PutRefused; then nothing was stored.
        """
        log = self._log
        body_size = len(body)
        properties_size = len(properties)
        size = queue.fixed_size + body_size + properties_size
        head = HEAD_V4
        flags = sys_flag & _V4
        if len(born_host) != _HOST_V4 or len(store_host) != _HOST_V4:
            head, flags, size = _with_hosts(flags, size, born_host, store_host)
        start = log.end
        if start + size + FILLER_SIZE > log.soft or properties_size > _PROPERTIES_MAX or body_size > self.settings.max_message_size:
            self._check(queue, size, body_size, properties_size)
            self._make_room(size, wall)
            start = log.end
        placeless = flags & TRANSACTION_PREPARED  # prepared and rolled back messages have no place in the queue (store.md 2.4)
        offset = 0 if placeless else queue.next_offset
        try:
            fields = head.pack(
                size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue.queue_id, flag, offset, start, flags, born_time, born_host, wall,
                store_host, reconsume_times, prepared_offset, body_size,
            )  # fmt: skip
            if self._extended and not placeless:
                tags_code = self._queues.extend(queue, tags_code, wall, filter_bits)
            entry = ENTRY.pack(start, size, tags_code)
        except StructError as failure:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a field is out of its range: {failure}") from None
        at = start - log.base
        log.view[at : at + size] = b"".join((fields, body, queue.topic_field, LENGTH.pack(properties_size), properties))
        end = start + size
        log.end = end
        self.put_count += 1
        if wall < log.last_time:
            self._flusher.clock_went_back(wall)
        log.last_time = wall
        if not placeless:
            tail = queue.tail
            if not tail:
                self._queues.dirty.append(queue)
            tail += entry
            queue.next_offset = offset + 1
            if self.sync:
                if not queue.unflushed:
                    queue.unflushed = True
                    self._unflushed.append(queue)
            else:
                queue.max_offset = offset + 1
        if (uniq_key or keys) and self._index_enabled and flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._index.add(queue, uniq_key, keys, start, wall)
        return start

    def append_batch(
        self,
        queue: Queue,
        entries: Sequence[BatchEntry],
        sys_flag: int,
        born_time: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        wall: int,
    ) -> list[int]:
        """Store messages with consecutive offsets in one file, all or none; gives their physical offsets. Raises PutRefused."""
        _, _, extra = _with_hosts(0, 0, born_host, store_host)
        total = 0
        for entry in entries:
            size = queue.fixed_size + extra + len(entry.body) + len(entry.properties)
            self._check(queue, size, len(entry.body), len(entry.properties))
            if not (-0x80000000 <= entry.flag <= 0x7FFFFFFF and -(1 << 63) <= entry.tags_code < 1 << 63):
                raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "a field is out of its range")
            total += size
        if total > self.settings.mapped_file_size_commit_log - FILLER_SIZE:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a batch of {total} bytes does not fit a file of the log")
        self._make_room(total, wall)
        self._log.soft = self._log.limit  # there is room for all of them: none may be refused on the way
        offsets = [
            self.append(
                queue, entry.body, entry.properties, entry.flag, sys_flag, born_time, born_host, store_host, reconsume_times, 0,
                entry.tags_code, entry.uniq_key, entry.keys, wall, entry.filter_bits,
            )
            for entry in entries
        ]  # fmt: skip
        self._log.look_ahead()
        return offsets

    def _check(self, queue: Queue, size: int, body_size: int, properties_size: int) -> None:
        """Raises PutRefused for a message that no store takes."""
        settings = self.settings
        if queue.removed:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, f"the queue {queue.queue_id} of {queue.topic} was deleted")
        if queue.fixed_size == NO_SIZE:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"the topic {queue.topic} is too long for a record of this store")
        if body_size > settings.max_message_size:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a body of {body_size} bytes is longer than {settings.max_message_size}")
        if properties_size > _PROPERTIES_MAX:
            raise PutRefused(PutStatus.PROPERTIES_SIZE_EXCEEDED, f"properties of {properties_size} bytes are longer than {_PROPERTIES_MAX}")
        if size > settings.largest_record:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a record of {size} bytes is longer than {settings.largest_record}")

    def _make_room(self, size: int, wall: int) -> None:
        """The slow way of an append: prepare the place of a record, or refuse the message."""
        flusher = self._flusher
        if flusher.failure is not None:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, f"the disk failed: {flusher.failure}")
        if self._log.refusals:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "; ".join(self._log.refusals.values()))
        if self._index.behind:
            self._index.retry(wall)
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk has no room for the index")
        if wall < self._retry_at:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        try:
            self._log.make_room(size)
        except OSError as failure:
            if failure.errno in NO_ROOM:
                self._retry_at = wall + _RETRY_MS
                raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full") from failure
            flusher.fail(failure)
            raise PutRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, str(failure)) from failure
        self._retry_at = 0

    @property
    def writable(self) -> bool:
        """Whether the last message could be stored; false when the disk failed, or was full when last tried."""
        flusher = self._flusher
        return flusher.failure is None and not self._log.refusals and not self._retry_at and not self._index.behind

    @property
    def end(self) -> int:
        """Where the next record goes (physical offset)."""
        return self._log.end

    @property
    def put_size(self) -> int:
        """Bytes of the messages stored since it was opened."""
        return self._log.end - self._opened_at - self._log.skipped

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

    @property
    def needs_room(self) -> bool:
        """Whether one of the next messages may have to wait until the disk has given the log more blocks."""
        log = self._log
        return log.limit - log.end < min(self.settings.largest_record, log.file_size // 8)

    def config_file(self, name: str) -> ConfigFile:
        """A file of configuration in the data directory (store.md 10)."""
        return ConfigFile(f"{self.settings.store_path_root_dir}/config/{name}", self._files)

    # --- the machine ---

    def want_flush(self) -> None:
        """Make everything appended so far durable as soon as possible; `flushed` tells when it is.

        Under SYNC_FLUSH one call after any number of appends is enough: while a flush is under way, its end starts the next one.
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
            self._flusher.written(job, failure)
        elif isinstance(job, AllocateLog | CreateLog):
            self._log.prepared(job, failure)
        elif isinstance(job, AllocateIndex):
            self._index.prepared(job, failure, wall)
            if self._index.behind:
                self._log.soft = 0
        elif isinstance(job, RemoveQueues):
            self._flusher.removed(failure)
        elif isinstance(job, RetentionJob):
            self._retention.done(job, now, wall)
        else:
            return False
        return True

    def timer(self, now: int, wall: int) -> None:
        """Time has passed (`now` monotonic, both in ms)."""
        if self._index.late:  # there was no room for them, and no new key may ever come to ask again
            self._index.retry(wall)
        self._flusher.timer(now)
        if self._flusher.failure is None:
            self._retention.timer(now, wall)

    def next_deadline(self) -> int | None:
        """When `timer` wants to be called (monotonic; 0: at once); None when everything is durable and no disk is looked at."""
        if self._flusher.failure is not None:
            return None
        due, other = self._flusher.next_deadline(), self._retention.next_deadline()
        return other if due is None or (other is not None and other < due) else due

    def begin_closing(self, wall: int) -> CloseStore:
        """The job that makes everything durable and marks the end as orderly. No other job may be under way; nothing is stored or read
        from now on.

        It gives the directory back, also when the disk fails: then the next opening recovers as after a crash. It raises StoreUnwritable
        if the disk fails only now.
        """
        flusher = self._flusher
        orderly = flusher.failure is None
        flusher.fail(StoreError("the store is closed"))
        root = self.settings.store_path_root_dir
        return CloseStore(self._files, root, self._abort, flusher if orderly else None, self._claim, self._let_go, wall)

    def close(self, wall: int) -> None:
        """The same at once. Blocks. Raises StoreUnwritable."""
        self.begin_closing(wall).run()

    # --- reading ---

    def get(
        self,
        queue: Queue,
        offset: int,
        max_count: int,
        codes: frozenset[int] | None,
        judge: Judge | None = None,
    ) -> GetResult:
        """Read messages from a queue (store.md 14). `codes`: wanted tag hashes, None for all; `judge` decides on those that have one."""
        return self._reader.get(queue, offset, max_count, codes, judge)

    def record(self, physical_offset: int) -> memoryview | None:
        """The visible record that begins at a physical offset; None if none begins there."""
        return self._reader.record(physical_offset)

    def entry(self, queue: Queue, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of a visible message; in place of a code that is lost its address in the extension."""
        return self._reader.entry(queue, offset)

    def unit(self, queue: Queue, offset: int) -> Unit | None:
        """What the extension of the consume queue keeps of a visible message; None if there is nothing."""
        return self._reader.unit(queue, offset)

    def offset_by_time(self, queue: Queue, timestamp: int) -> int:
        """The first offset whose message was stored at or after `timestamp`; the queue's maximum if there is none."""
        return self._reader.offset_by_time(queue, timestamp)

    def store_time(self, queue: Queue, offset: int) -> int:
        """When a message was stored; -1 if it cannot be read."""
        return self._reader.store_time(queue, offset)

    def earliest_store_time(self, queue: Queue | None = None) -> int:
        """Store time of the oldest message of a queue, or of the log; -1 if there is none."""
        return self._reader.earliest_store_time(queue)

    def on_disk(self, physical_offset: int) -> bool:
        """Whether a record lies further behind the end of the log than memory is taken to reach (store.md 13.6)."""
        return self._reader.on_disk(physical_offset)

    def query(self, topic: str, key: str, max_count: int, begin: int, end: int) -> QueryResult:
        """Messages with a key (or unique id), stored between two wall times, both included (store.md 5.4)."""
        return self._reader.query(topic, key, max_count, begin, end)

    def disk_ratios(self) -> tuple[float, float]:
        """Used part of the disks of the log and of the queues when they were last looked at, 0 to 1 in whole hundredths, rounded up;
        -1 where unknown."""
        return self._retention.marks.ratios

    def disk_usage(self) -> tuple[int, int] | None:
        """Bytes of the disk of the log in use, and free for us, when it was last looked at; None where unknown."""
        return self._retention.marks.usage

    @property
    def dispatch_behind(self) -> int:
        """Bytes of the log that queues and index do not know yet: always 0, both are told with the message."""
        return 0


def _with_hosts(flags: int, size: int, born_host: bytes, store_host: bytes) -> tuple[Struct, int, int]:
    """Layout, sysFlag and size of a record whose hosts may be IPv6."""
    born_v6, store_v6 = len(born_host) != _HOST_V4, len(store_host) != _HOST_V4
    for host in (born_host, store_host):
        if len(host) not in (_HOST_V4, _HOST_V4 + IPV6_EXTRA):
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a host has 8 or 20 bytes, not {len(host)}")
    flags |= BORN_HOST_V6 * born_v6 | STORE_HOST_V6 * store_v6
    return HEADS[born_v6 | store_v6 << 1], flags, size + IPV6_EXTRA * (born_v6 + store_v6)
