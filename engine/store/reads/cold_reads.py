"""Reads that never wait for a disk: the answer at once from memory, or a job (docs/protocol/store.md 13.6, 14.2).

Owns: what counts as near, and the jobs that read everything else from files, because a page fault of a map holds the
interpreter lock. What is far and yet in the system's cache is read from files without a job, where the system can tell
(Linux).

Near is what this store has written itself and what lies at most `coldReadDistance` bytes behind the end of the log, or
the part of the memory that Apache takes as its reach if that is less: such pages are in the system's cache, unless
memory is very short. Everything else may be cold, also what lies near the end but was written before the start: the
machine may have been started anew since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.flush.flusher import Flusher
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.layout import ENTRY, ENTRY_SIZE
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.reads.cached_files import CachedLog, CachedQueues, NotCachedError
from mqproto.engine.store.reads.cold_files import ColdIndex, ColdLog, ColdQueues
from mqproto.engine.store.reads.read_filter import ReadFilter
from mqproto.engine.store.reads.reader import Reader
from mqproto.engine.store.results import GetResult, QueryResult
from mqproto.engine.store.settings import StoreSettings

T = TypeVar("T")

#: Queues that are looked at in one go; of more a job reads.
_QUEUES_AT_ONCE: Final = 32
#: No byte of the log lies there.
_NOWHERE: Final = 1 << 62


class ColdRead(Generic[T]):
    """Job: a read of what may not be in memory. `result` has the answer afterwards; `run` raises OSError when the disk
    fails.

    It works on the store as it was when the job was made, and nothing of the store waits for it or has to know of
    its end.
    """

    __slots__ = ("_index", "_log", "_queues", "_read", "_reader", "_results")

    def __init__(
        self,
        settings: StoreSettings,
        memory: int | None,
        log: ColdLog,
        queues: ColdQueues,
        index: ColdIndex | None,
        read: Callable[[Reader], T],
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._reader = Reader(settings, log, queues, index, log, memory)
        self._read = read
        self._results: list[T] = []

    def run(self) -> None:
        try:
            self._results.append(self._read(self._reader))
        finally:
            self._log.close()
            self._queues.close()
            if self._index is not None:
                self._index.close()

    @property
    def result(self) -> T:
        """The answer. Only after `run` has ended well."""
        return self._results[0]


#: An answer, or the job that will have it.
Read: TypeAlias = T | ColdRead[T]


class Reads:
    """Reads of one store. Each gives its answer at once if all it has to look at is near, and a job otherwise.

    Whoever gets a job runs it; jobs that are not run any more are just dropped.
    """

    __slots__ = (
        "_cache_reader",
        "_distance",
        "_files",
        "_flusher",
        "_index",
        "_log",
        "_memory",
        "_off",
        "_opened_at",
        "_queues",
        "_reader",
        "_settings",
    )

    def __init__(
        self,
        settings: StoreSettings,
        files: Files,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        flusher: Flusher,
        reader: Reader,
        memory: int | None,
    ) -> None:
        self._settings = settings
        self._files = files
        self._log = log
        self._queues = queues
        self._index = index
        self._flusher = flusher
        self._reader = reader
        self._cache_reader = Reader(settings, CachedLog(log), CachedQueues(queues), None, flusher, memory)
        self._memory = memory
        #: Everything is near.
        self._off = settings.cold_read_distance == 0
        #: How far behind the end of the log a byte is near, in bytes.
        self._distance = max(1, reader.near)
        queues.mark_spacing = max(1, self._distance // 2)
        #: Where the log ended when the store was opened: what lies before that was not written by it.
        self._opened_at = _NOWHERE

    def begin(self) -> None:
        """The store is open: what is appended from now on is its own."""
        self._opened_at = self._reader.trusted_from = self._log.end

    def configure(self) -> None:
        """Take over what is set for how far memory reaches."""
        self._cache_reader.configure()

    # --- what is near ---

    def _edge(self) -> int:
        """Where in the log that begins which is near."""
        return 0 if self._off else max(self._log.end - self._distance, self._opened_at)

    def _is_near(self, queue: Queue, offset: int) -> bool:
        """Whether everything that a read from an offset looks at is near."""
        if self._off or not queue.min_offset <= offset < queue.max_offset:
            return True  # outside of the queue there is nothing to look at
        edge = self._edge()
        if offset < queue.written:
            return queue.is_new(offset, edge)
        physical: int = ENTRY.unpack_from(queue.tail, (offset - queue.written) * ENTRY_SIZE)[0]
        return physical >= edge

    # --- reads ---

    def get(
        self,
        queue: Queue,
        offset: int,
        max_count: int,
        codes: frozenset[int] | None,
        read_filter: ReadFilter | None = None,
    ) -> Read[GetResult]:
        """See `Reader.get`."""
        edge = self._log.end - self._distance
        if edge < self._opened_at:
            edge = self._opened_at
        mark = queue.old_mark  # nearly all reads are behind it, so what `_is_near` finds out is left to the others
        if (mark[1] >= edge and offset >= mark[0]) or self._is_near(queue, offset):
            return self._reader.get(queue, offset, max_count, codes, read_filter)
        if read_filter is None:  # one that has begun to count cannot begin again
            found = self._cached(queue, offset, max_count, codes)
            if found is not None:
                return found
        twin = queue.picture()
        return self._job(lambda reader: reader.get(twin, offset, max_count, codes, read_filter))

    def record(self, physical: int) -> Read[memoryview | None]:
        """See `Reader.record`."""
        if physical >= self._edge() or physical < self._log.start:
            return self._reader.record(physical)
        return self._job(lambda reader: reader.record(physical))

    def begins_in_memory(self, queue: Queue) -> Read[bool]:
        """Whether the first message of a queue lies where memory reaches (`Reader.on_disk`); true if there is none."""
        if not self._reader.on_disk(self._log.start):
            return True  # as all messages do
        if self._is_near(queue, queue.min_offset):
            return self._reader.begins_in_memory(queue)
        twin = queue.picture()
        return self._job(lambda reader: reader.begins_in_memory(twin))

    def offset_by_time(self, queue: Queue, timestamp: int) -> Read[int]:
        """See `Reader.offset_by_time`."""
        if self._is_near(queue, queue.min_offset):
            return self._reader.offset_by_time(queue, timestamp)
        twin = queue.picture()
        return self._job(lambda reader: reader.offset_by_time(twin, timestamp))

    def earliest_store_time(self, queue: Queue) -> Read[int]:
        """See `Reader.earliest_store_time`."""
        if self._is_near(queue, queue.min_offset):
            return self._reader.earliest_store_time(queue)
        twin = queue.picture()
        return self._job(lambda reader: reader.earliest_store_time(twin))

    def across(self, queues: Sequence[Queue], read: Callable[[Reader, Sequence[Queue]], T]) -> Read[T]:
        """What `read` finds out of some queues.

        It may look at everything in them, and at nothing else; a job gives it pictures of them.
        """
        filled = sum([queue.min_offset < queue.max_offset for queue in queues])
        if filled <= _QUEUES_AT_ONCE and all(self._is_near(queue, queue.min_offset) for queue in queues):
            return read(self._reader, queues)
        twins = [queue.picture() for queue in queues]
        return self._job(lambda reader: read(reader, twins))

    def near_store_time(self, queue: Queue, offset: int) -> int | None:
        """See `Reader.store_time`. None where that may have to be read from the disk."""
        if not queue.min_offset <= offset < queue.max_offset:
            return -1
        return self._reader.store_time(queue, offset) if self._is_near(queue, offset) else None

    def store_times(self, places: list[tuple[Queue, int]]) -> ColdRead[list[int]]:
        """The same for many places, by a job."""
        twins = [(queue.picture(), offset) for queue, offset in places]
        return self._job(lambda reader: [reader.store_time(twin, offset) for twin, offset in twins])

    def query(self, topic: str, key: str, max_count: int, begin: int, end: int) -> Read[QueryResult]:
        """See `Reader.query`. Always a job, unless nothing can be cold: a chain of the index may lead anywhere."""
        if self._off:
            return self._reader.query(topic, key, max_count, begin, end)
        return self._job(
            lambda reader: reader.query(topic, key, max_count, begin, end), ColdIndex(self._files, self._index)
        )

    def warm(self, queue: Queue, offset: int, count: int) -> ColdRead[int] | None:
        """A job that brings messages from an offset on into memory, so that soon after it they are read at once without
        waiting; its result is the first offset that was not looked at. None where they are near.
        """
        if self._is_near(queue, offset):
            return None
        twin = queue.picture()
        return self._job(lambda reader: reader.warm(twin, offset, count))

    def _cached(self, queue: Queue, offset: int, max_count: int, codes: frozenset[int] | None) -> GetResult | None:
        """The answer at once, if the system has all that it needs in its cache: what is far from the end of the log is
        often read by several consumers, one soon after the other, or was read ahead. None if a disk would have to be
        waited for.
        """
        try:
            return self._cache_reader.get(queue, offset, max_count, codes, None)
        except (NotCachedError, OSError):  # a job meets the same fault where its failure is handled
            return None

    def _job(self, read: Callable[[Reader], T], index: ColdIndex | None = None) -> ColdRead[T]:
        log = ColdLog(self._files, self._log, self._flusher.visible_end)
        return ColdRead(self._settings, self._memory, log, ColdQueues(self._files, self._queues), index, read)
