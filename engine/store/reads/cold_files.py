"""Pictures of log, queues and index that are read from files, not from maps: what a read works on beside the loop.

Owns: files that nobody else has open, read by `pread`, each for one read.
A picture keeps the bounds of the moment it was made. The store may go on writing and delete files meanwhile: a file
that is gone holds nothing, as for a reader of the maps. Everything here may block and raises OSError when the disk
fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.engine.store.disk.files import Files, ReadFile
from mqproto.engine.store.index.index import Index, candidates
from mqproto.engine.store.index.index_file import IndexFile
from mqproto.engine.store.index.index_reader import IndexReader
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.entries import chunk_of, entry_of
from mqproto.engine.store.queues.extension import Unit, Units
from mqproto.engine.store.queues.queue import Queue

#: Bytes that a read which goes on where the last one ended takes along: as many as an answer from disk has
#: (docs/protocol/store.md 14.2).
_AHEAD: Final = 65_536
#: Bytes that are read for one small item of a file: its neighbours are often wanted next.
_BLOCK: Final = 4096


class Parts:
    """Bytes of one file after another, the last ones kept."""

    __slots__ = ("_at", "_data", "_file", "_files", "_path")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file: ReadFile | None = None
        self._path = ""
        self._data = memoryview(b"")
        #: Where `_data` begins.
        self._at = 0

    def read(self, path: str, start: int, end: int, low: int, high: int) -> memoryview:
        """Bytes of a file, fewer where it ends and none if it is gone.

        Unless they are there already `low` to `high` is read.
        """
        if path != self._path:
            self.close()
            try:
                self._file = self._files.open_to_read(path)
            except FileNotFoundError:
                return self._data
            self._path = path
        if start < self._at or end > self._at + len(self._data):
            assert self._file is not None
            self._data = memoryview(self._file.read(low, high - low))
            self._at = low
        return self._data[start - self._at : end - self._at]

    @property
    def gone(self) -> bool:
        """Whether the file that was asked for last is not there."""
        return not self._path

    def close(self) -> None:
        self._path = ""
        self._data = memoryview(b"")
        self._at = 0
        if self._file is not None:
            self._file.close()
            self._file = None


class ColdLog:
    """Log in files. Its slices are bytes of their own."""

    __slots__ = ("_log", "_parts", "_stopped_at", "end", "file_size", "start", "visible_end")

    def __init__(self, files: Files, log: CommitLog, visible_end: int) -> None:
        self._log = log
        self._parts = Parts(files)
        #: Where the slice ended that was given last.
        self._stopped_at = -1
        self.start = log.start
        self.end = log.end
        self.file_size = log.file_size
        self.visible_end = visible_end

    def slice(self, start: int, end: int) -> memoryview | None:
        """Bytes of the log, if they lie in one file that is still there."""
        base = start - (start - self.start) % self.file_size
        stop = base + self.file_size
        if start < self.start or end > stop:
            return None
        high = max(end, min(start + _AHEAD, stop, self.visible_end)) if start == self._stopped_at else end
        found = self._parts.read(self._log.path_of(base), start - base, end - base, start - base, high - base)
        self._stopped_at = end
        if self._parts.gone:  # deleted meanwhile: the log begins behind it
            self.start = stop
        return found if len(found) == end - start else None

    def close(self) -> None:
        self._parts.close()


class ColdQueues:
    """Queue entries and units in files. A queue has to be a picture of itself (`Queue.picture`)."""

    __slots__ = ("_entries", "_queues", "_units", "per_file")

    def __init__(self, files: Files, queues: ConsumeQueues) -> None:
        self._queues = queues
        self._entries = Parts(files)
        self._units = Parts(files)
        self.per_file = queues.per_file

    def chunk(self, queue: Queue, offset: int, count: int, stop: int) -> bytes | bytearray | memoryview:
        """See `ConsumeQueues.chunk`."""
        return chunk_of(queue, self.per_file, offset, count, stop, self._read)

    def _read(self, path: str, start: int, end: int) -> memoryview:
        return self._entries.read(path, start, end, start, end)

    def entry(self, queue: Queue, offset: int) -> tuple[int, int, int] | None:
        """See `ConsumeQueues.entry`."""
        if not queue.min_offset <= offset < queue.next_offset:
            return None
        return entry_of(self.chunk(queue, offset, 1, queue.next_offset))

    def unit(self, queue: Queue, address: int) -> Unit | None:
        """See `ConsumeQueues.unit`."""
        extension = self._queues.extension
        units = queue.units or Units(extension.folder_of(queue.topic, queue.queue_id))
        return extension.find(units, address, self._part_of_units)

    def _part_of_units(self, path: str, start: int, size: int) -> memoryview:
        return self._units.read(path, start, start + size, start, start + max(size, _BLOCK))

    def close(self) -> None:
        self._entries.close()
        self._units.close()


class ColdIndexFile(IndexReader):
    """Index file that is read. Entries that are added meanwhile may be found or not."""

    __slots__ = ("_parts", "_path")

    def __init__(self, files: Files, of: IndexFile, entries_max: int | None) -> None:
        count = of.count if entries_max is None or of.count == 1 else entries_max
        super().__init__(self._read, of.slots, count, of.begin_time, of.end_time)
        self._parts = Parts(files)
        self._path = of.path

    def _read(self, at: int, size: int) -> memoryview:
        """Chains lead towards the beginning, so what lies before an entry is read with it."""
        end = at + size
        return self._parts.read(self._path, at, end, at if at < self.entries_at else max(0, end - _BLOCK), end)

    def close(self) -> None:
        self._parts.close()


class ColdIndex:
    """Index as it was when the read was asked for."""

    __slots__ = ("_index_files", "_late", "last")

    def __init__(self, files: Files, index: Index) -> None:
        self._late = list(index.late)
        current = index.current
        self._index_files = [
            ColdIndexFile(files, each, index.entries_max if each is current else None) for each in index.index_files
        ]
        self.last = index.last

    def candidates(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """See `Index.candidates`."""
        return candidates(self._late, self._index_files, topic, key, begin, end)

    def close(self) -> None:
        for each in self._index_files:
            each.close()
