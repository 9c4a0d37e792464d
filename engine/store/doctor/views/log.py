"""Log of a data directory, read without touching it: walking over records, and looking for them where a walk broke
off.

Only `pread` is used, in windows of 1 MiB, so that files may end, be deleted or be written meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from mqproto.engine.store.disk.files import Files, ReadFile
from mqproto.engine.store.doctor.views.parts import most_common, offset_files
from mqproto.engine.store.layout import MAGIC_FILLER
from mqproto.engine.store.log.records import BROKEN, FILLER, NOTHING, SEEN_MIN, measure, next_record
from mqproto.wire.record_layout import SIZE_MAGIC

_WINDOW: Final = 1 << 20
_HEAD: Final = SIZE_MAGIC.size
#: What is read for one record, unless it is longer.
_PAGE: Final = 4096
_OPEN_MAX: Final = 8
_NONE: Final = memoryview(b"")


class LogPart(NamedTuple):
    """File of the log."""

    start: int
    path: str
    size: int


class Stop(Enum):
    """Reason why a walk ended."""

    #: It came as far as it was asked to.
    THERE = "there"
    #: Nothing follows: space that was never written, or no file.
    NOTHING = "nothing"
    #: Something follows that is no good record.
    BROKEN = "broken"


class LogView:
    """Files of the log, sorted; there may be gaps between them, and odd sizes."""

    __slots__ = ("_by_start", "_open", "file_size", "files", "folder", "parts", "strange", "tolerant", "unreadable")

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder
        #: Names in the folder that are no names of log files.
        self.strange: list[str] = []
        self.parts = [LogPart(start, path, size) for start, path, size in offset_files(files, folder, self.strange)]
        #: Bytes of a file: what most of them have.
        self.file_size = most_common([part.size for part in self.parts if part.size], 1)
        #: Files that the disk does not give count as empty and are listed here with the reason, instead of raising
        #: OSError.
        self.tolerant = False
        self.unreadable: dict[str, str] = {}
        self._by_start = {part.start: part for part in self.parts}
        self._open: dict[str, ReadFile] = {}

    @property
    def start(self) -> int:
        """Where the log begins."""
        return self.parts[0].start if self.parts else 0

    @property
    def limit(self) -> int:
        """Where the last file ends."""
        return self.parts[-1].start + self.file_size if self.parts else 0

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    # --- reading ---

    def part_at(self, offset: int) -> LogPart | None:
        """The file that holds an offset."""
        return self._by_start.get(offset - offset % self.file_size)

    def _file(self, part: LogPart) -> ReadFile | None:
        """The file, opened; None when it was deleted meanwhile, or cannot be read."""
        if part.path in self.unreadable:
            return None
        file = self._open.get(part.path)
        if file is None:
            try:
                file = self.files.open_to_read(part.path)
            except FileNotFoundError:
                return None
            if len(self._open) >= _OPEN_MAX:
                self._open.pop(next(iter(self._open))).close()
            self._open[part.path] = file
        return file

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset on; fewer at the end of its file, none where there is no file. Raises OSError."""
        part = self.part_at(offset)
        file = None if part is None else self._file(part)
        if part is None or file is None:
            return b""
        at = offset - part.start
        try:
            return file.read(at, min(size, self.file_size - at))
        except OSError as failure:
            if not self.tolerant:
                raise OSError(failure.errno, failure.strerror, part.path) from failure
            self.unreadable[part.path] = failure.strerror or str(failure)
            return b""

    def record(self, offset: int, check_crc: bool = False) -> memoryview | None:
        """The record that begins at an offset; None if none does. Raises OSError."""
        data = self.read(offset, _PAGE)
        if len(data) < _HEAD:
            return None
        size: int = SIZE_MAGIC.unpack_from(data)[0]
        if len(data) < size <= self.file_size:
            data = self.read(offset, size)
        view = memoryview(data)
        size = measure(view, 0, offset, check_crc)
        return view[:size] if size > 0 else None

    # --- looking for something ---

    def next_data(self, offset: int) -> int:
        """The first offset from `offset` on that may hold anything but zeros; -1 if there is none."""
        for part in self.parts:
            end = part.start + self.file_size
            file = self._file(part) if end > offset else None
            if file is not None:
                at = file.next_data(max(offset - part.start, 0))
                if part.start + at < min(end, part.start + part.size):
                    return part.start + at
        return -1

    def next_nonzero(self, offset: int) -> int:
        """The first byte from `offset` on that is not zero; -1 if there is none."""
        while (offset := self.next_data(offset)) >= 0:
            data = self.read(offset, _WINDOW)
            left = data.lstrip(b"\0")
            if left:
                return offset + len(data) - len(left)
            offset += max(len(data), 1)
        return -1

    def search(self, offset: int, end: int | None = None) -> int:
        """The first good record from `offset` on, and below `end`; -1 if there is none. It may begin anywhere."""
        stop = self.limit if end is None else end
        while 0 <= offset < stop:
            data = self.read(offset, _WINDOW + SEEN_MIN)
            found = next_record(data, 0, offset) if len(data) >= SEEN_MIN else -1
            if found < 0 or found >= _WINDOW:
                behind = offset + min(max(len(data), 1), _WINDOW)
                offset = self.next_data(min(behind, offset - offset % self.file_size + self.file_size))
            elif self.record(offset + found, True) is not None:
                return offset + found if offset + found < stop else -1
            else:
                offset += found + 1
        return -1

    def bytes_from(self, offset: int) -> int:
        """How many bytes from `offset` to the last one that is not zero."""
        last = offset
        begin = offset
        while (begin := self.next_nonzero(begin)) >= 0:
            data = self.read(begin, _WINDOW)
            last = begin + len(data.rstrip(b"\0"))
            begin += len(data)
        return last - offset


class Walk:
    """Walk over records that follow each other, from file to file."""

    __slots__ = ("_check_crc", "_log", "count", "end", "stop")

    def __init__(self, log: LogView, check_crc: bool = True) -> None:
        self._log = log
        self._check_crc = check_crc
        #: Records that were passed.
        self.count = 0
        #: Where the walk ended: behind the last record, or at the start of the next file if a filler follows it.
        self.end = 0
        self.stop = Stop.THERE

    def records(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Offset and bytes of each good record that begins in a range, up to the first place where there is none.

        Raises OSError.
        """
        log, check_crc, file_size = self._log, self._check_crc, self._log.file_size
        offset = start
        file_end = offset - offset % file_size + file_size
        window, at = _NONE, 0
        size = BROKEN
        while offset < end:
            if len(window) - at < _HEAD:
                window, at = memoryview(log.read(offset, _WINDOW)), 0
            if len(window) - at < _HEAD:
                size = BROKEN if any(window[at:]) else NOTHING
                break
            size, magic = SIZE_MAGIC.unpack_from(window, at)
            if magic == MAGIC_FILLER:
                if size != file_end - offset:
                    size = BROKEN
                    break
                offset, window, at, size = file_end, _NONE, 0, FILLER
                file_end += file_size
                continue
            if len(window) - at < size <= file_end - offset:
                window, at = memoryview(log.read(offset, max(size, _WINDOW))), 0
            size = measure(window, at, offset, check_crc)
            if size <= 0:
                break
            self.count += 1
            yield offset, window[at : at + size]
            offset += size
            at += size
        self.end = offset
        self.stop = (
            Stop.THERE if offset >= end or size > 0 else Stop.NOTHING if size in (NOTHING, FILLER) else Stop.BROKEN
        )
