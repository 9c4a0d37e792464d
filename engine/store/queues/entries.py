"""Entries of a consume queue (docs/protocol/store.md 4): what one says, searches among them, and reading them where
their files are not mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mqproto.engine.store.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE, HOLE_CODE, offset_name
from mqproto.engine.store.queues.queue import Queue

#: Path, start and end to bytes of a file; fewer where it ends or is gone.
ReadPart: TypeAlias = Callable[[str, int, int], bytes | memoryview]


def entry_of(data: bytes | memoryview | bytearray) -> tuple[int, int, int] | None:
    """Physical offset, size and tags code of the entry that `data` begins with; None for a blank one, or none."""
    if not data:
        return None
    physical, size, code = ENTRY.unpack_from(data)
    return None if size == BLANK_SIZE or size <= 0 or code == HOLE_CODE else (physical, size, code)


def chunk_of(
    queue: Queue, per_file: int, offset: int, count: int, stop: int, read: ReadPart
) -> bytes | memoryview | bytearray:
    """See `ConsumeQueues.chunk`, which does the same over maps."""
    start = offset % per_file
    stop = min(stop, offset + count, offset - start + per_file)
    written = queue.written
    if offset >= written:
        return queue.tail[(offset - written) * ENTRY_SIZE : (stop - written) * ENTRY_SIZE]
    low = start * ENTRY_SIZE
    high = low + (min(stop, written) - offset) * ENTRY_SIZE
    found = read(f"{queue.folder}/{offset_name((offset - start) * ENTRY_SIZE)}", low, high)
    if len(found) < high - low:
        return b""
    return found if stop <= written else bytes(found) + queue.tail[: (stop - written) * ENTRY_SIZE]


def first_kept(place: Callable[[int], tuple[int, int]], low: int, high: int, log_start: int) -> int:
    """The first offset from `low` on whose record a log from `log_start` on still has; `high` if there is none below.
    `place` gives physical offset and size of an entry.
    """
    while low < high:
        middle = (low + high) // 2
        physical, size = place(middle)
        if physical < log_start or (size == BLANK_SIZE and physical == 0):
            low = middle + 1
        else:
            high = middle
    return low


def good_entries(read: Callable[[int, int], bytes], count: int, below: int | None = None) -> int:
    """How many of the first `count` entries of a file are set and, if `below` is given, lie below that physical offset.
    Entries follow each other, so the end is searched by halving.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        physical, size, _ = ENTRY.unpack(read(middle * ENTRY_SIZE, ENTRY_SIZE).ljust(ENTRY_SIZE, b"\0"))
        if size > 0 and physical >= 0 and (below is None or physical < below):
            low = middle + 1
        else:
            high = middle
    return low
