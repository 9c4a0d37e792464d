"""Scan of the log: a walk over its records, and the search for records where the walk broke off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.engine.store.layout import MAGIC_FILLER
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.log.records import BROKEN, FILLER, NOTHING, SEEN_MIN, has_gap, measure, next_record, time_of
from mqproto.wire.record_layout import SIZE_MAGIC

_CHUNK: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK)


class Scan:
    """Scan of a part of the log. The numbers are those of the records that were passed.

    `durable`: of records that were stored at this time or later, properties with a gap were not written to their end.
    That holds for the last record of the log, and if `power_lost` for all of them.
    """

    __slots__ = ("_check_crc", "_durable", "_log", "_power_lost", "count", "end", "last_time", "latest_time")

    def __init__(self, log: CommitLog, check_crc: bool, durable: int | None = None, power_lost: bool = False) -> None:
        self._log = log
        self._check_crc = check_crc
        self._durable = durable
        self._power_lost = power_lost
        self.count = 0
        #: Behind the last record, or the start of the next file if a filler follows it.
        self.end = 0
        #: Store time of the last record, and the latest of all; they differ when the clock went back.
        self.last_time = 0
        self.latest_time = -1

    def records(self, start: int) -> Iterator[tuple[int, memoryview]]:
        """Offset and bytes of each good record from `start` on, up to the first place where there is none."""
        log = self._log
        offset = start
        while (log_file := log.log_file_at(offset)) is not None:
            view = log.view_of(log_file)
            base = log_file.start
            while (size := measure(view, offset - base, offset, self._check_crc)) > 0:
                record = view[offset - base : offset - base + size]
                time = time_of(record)
                if (
                    self._durable is not None
                    and time >= self._durable
                    and self._torn(record, view, offset, offset - base + size)
                ):
                    size = BROKEN
                    break
                self.last_time = time
                if time > self.latest_time:
                    self.latest_time = time
                self.count += 1
                yield offset, record
                offset += size
            if size != FILLER:
                break
            offset = base + log.file_size
        self.end = offset

    def _torn(self, record: memoryview, view: memoryview, offset: int, behind: int) -> bool:
        if not has_gap(record):
            return False
        return self._power_lost or measure(view, behind, offset + len(record), False) in (NOTHING, BROKEN)

    def run(self, start: int) -> None:
        """Walk to the end."""
        for _ in self.records(start):
            pass


def known_records(log: CommitLog, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
    """Offset and bytes of each record between two offsets that a scan has passed: nothing is checked again."""
    offset = start
    while offset < end and (log_file := log.log_file_at(offset)) is not None:
        view = log.view_of(log_file)
        base = log_file.start
        stop = min(end, base + log.file_size)
        while offset < stop:
            size, magic = SIZE_MAGIC.unpack_from(view, offset - base)
            if magic != MAGIC_FILLER:
                yield offset, view[offset - base : offset - base + size]
            offset += size


def next_nonzero(log: CommitLog, start: int) -> int:
    """Where the first block of up to 1 MiB from `start` on begins that is not all zeros; -1 if there is none."""
    offset = start
    while (log_file := log.log_file_at(offset)) is not None:
        file = log.file_of(log_file)
        at = file.next_data(offset - log_file.start)
        while at < log.file_size:
            data = file.read(at, _CHUNK)
            if data != _ZEROS[: len(data)]:
                return log_file.start + at
            at = file.next_data(at + len(data))
        offset = log_file.start + log.file_size
    return -1


def search(log: CommitLog, start: int) -> int:
    """The first good record from `start` on; -1 if there is none.

    It may begin anywhere, not only where a walk comes by.
    """
    offset = next_nonzero(log, start)
    while offset >= 0 and (log_file := log.log_file_at(offset)) is not None:
        data = log.file_of(log_file).read(offset - log_file.start, _CHUNK + SEEN_MIN)
        found = next_record(data, 0, offset)
        if found < 0 or found >= _CHUNK:
            offset = next_nonzero(log, min(offset + _CHUNK, log_file.start + log.file_size))
        elif measure(log.view_of(log_file), offset + found - log_file.start, offset + found, True) > 0:
            return offset + found
        else:
            offset += found + 1
    return -1


def bytes_behind(log: CommitLog, end: int) -> int:
    """How many bytes from `end` to the last one that is not zero."""
    last = end
    offset = next_nonzero(log, end)
    while offset >= 0 and (log_file := log.log_file_at(offset)) is not None:
        data = log.file_of(log_file).read(offset - log_file.start, _CHUNK)
        last = offset + len(data.rstrip(b"\0"))
        offset = next_nonzero(log, offset + len(data))
    return last - end
