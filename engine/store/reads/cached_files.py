"""Log and queues as far as the system has their bytes in its cache: what a read of far messages works on without
waiting.

Owns: nothing; the files are those of the store, read where the system says at once whether it would have to wait
(`ReadFile.read_cached`). Maps cannot say that: touching one waits.
"""

from __future__ import annotations

from mqproto.engine.store.disk.files import File
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.entries import chunk_of, entry_of
from mqproto.engine.store.queues.extension import Unit
from mqproto.engine.store.queues.queue import Queue


class NotCachedError(Exception):
    """Bytes that are not cached: reading on would wait for a disk, or the system cannot tell."""


def _read(file: File, start: int, end: int) -> memoryview:
    found = file.read_cached(start, end - start)
    if found is None:
        raise NotCachedError
    return memoryview(found)


class CachedLog:
    """Log in the cache. Its slices are bytes of their own."""

    __slots__ = ("_log", "file_size")

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.file_size = log.file_size

    @property
    def start(self) -> int:
        return self._log.start

    @property
    def end(self) -> int:
        return self._log.end

    def slice(self, start: int, end: int) -> memoryview | None:
        """Bytes of the log, if they lie in one file."""
        log = self._log
        log_file = log.log_file_at(start)
        if log_file is None or end > log_file.start + log.file_size:
            return None
        log.view_of(log_file)  # which bounds how many are open
        return _read(log.file_of(log_file), start - log_file.start, end - log_file.start)


class CachedQueues:
    """Queue entries in the cache. Units of an extension are left to others."""

    __slots__ = ("_queues", "per_file")

    def __init__(self, queues: ConsumeQueues) -> None:
        self._queues = queues
        self.per_file = queues.per_file

    def chunk(self, queue: Queue, offset: int, count: int, stop: int) -> bytes | bytearray | memoryview:
        """See `ConsumeQueues.chunk`."""
        return chunk_of(queue, self.per_file, offset, count, stop, self._read)

    def _read(self, path: str, start: int, end: int) -> memoryview:
        file = self._queues.file_at(path)
        return memoryview(b"") if file is None else _read(file, start, end)

    def entry(self, queue: Queue, offset: int) -> tuple[int, int, int] | None:
        """See `ConsumeQueues.entry`."""
        if not queue.min_offset <= offset < queue.next_offset:
            return None
        return entry_of(self.chunk(queue, offset, 1, queue.next_offset))

    def unit(self, queue: Queue, address: int) -> Unit | None:
        raise NotCachedError
