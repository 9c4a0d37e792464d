"""Cutting the index back to what is known to be whole, before recovery adds the rest again from the log.

Apache deletes an index file that was written at a crash, and with it the keys of messages that recovery does not read again (store.md
8.4). Entries lie in the order of the log and hold their hash, so everything before the point of recovery can be kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from sys import byteorder
from typing import Final

from engine.store.index import Index
from engine.store.indexfile import ENTRY_SIZE, HEAD_SIZE, SLOT_SIZE, IndexFile
from engine.store.layout import PAGE_BITS

_CHUNK: Final = 1 << 16
#: A disk loses whole pages, so one entry in each page is looked at.
_ENTRIES_OF_PAGE: Final = (1 << PAGE_BITS) // ENTRY_SIZE
_NO_ENTRY: Final = (0, 0, 0, 0)


def cut_index(index: Index, offset: int, store_time: Callable[[int], int], notes: list[str]) -> None:
    """Drop all entries of messages at or behind a physical offset. Blocks.

    `store_time` gives the store time of the record at a physical offset. A file in which pages are missing is removed; `notes`
    tells so.
    """
    while index.index_files:
        last = index.index_files[-1]
        if last.count > 1 and last.begin < offset and _cut(last, offset, store_time, notes):
            break
        last.close()
        index.files.remove(last.path)
        index.index_files.pop()
    index.current = index.index_files[-1] if index.index_files else None


def _cut(index_file: IndexFile, offset: int, store_time: Callable[[int], int], notes: list[str]) -> bool:
    """Cut one file; False when nothing good is left of it."""
    file = index_file.map()
    count = _first_behind(index_file, offset)
    if not _whole(index_file, count):
        notes.append(f"{index_file.path} has lost pages and was removed: older keys in it cannot be found")
        return False
    if count == 1:
        return False
    last = index_file.entry(count - 1)
    index_file.count = count
    index_file.end = last[1]
    stored = store_time(last[1])
    index_file.end_time = stored if stored > 0 else index_file.begin_time + 1000 * last[2]
    _unlink(index_file, count)
    index_file.write_head()
    file.sync()
    return True


def _first_behind(index_file: IndexFile, offset: int) -> int:
    """Number of the first entry at or behind an offset. An entry of zeros is one that did not reach the disk."""
    low, high = 1, index_file.count
    while low < high:
        middle = (low + high) // 2
        entry = index_file.entry(middle)
        if entry[1] < offset and (entry != _NO_ENTRY or middle == 1):
            low = middle + 1
        else:
            high = middle
    return low


def _whole(index_file: IndexFile, count: int) -> bool:
    """Whether the entries below `count` are all there: those of one place in each page are in order."""
    before = 0
    for number in range(1, count, _ENTRIES_OF_PAGE):
        entry = index_file.entry(number)
        if entry[1] < before or (entry == _NO_ENTRY and number > 1):
            return False
        before = entry[1]
    return True


def _unlink(index_file: IndexFile, count: int) -> None:
    """Let every slot point to its newest entry below `count`."""
    broken: dict[int, int] = {}
    used = 0
    for slot, number in _used_slots(index_file):
        newest = number
        while newest >= count:
            key_hash, _, _, previous = index_file.entry(newest) if newest < _entries(index_file) else (-1, 0, 0, newest)
            if key_hash % index_file.slots != slot or not 0 <= previous < newest:
                broken[slot] = newest = 0
                break
            newest = previous
        if newest != number:
            index_file.set_slot(slot, newest)
        used += newest > 0
    if broken:
        for number in range(1, count):
            slot = index_file.entry(number)[0] % index_file.slots
            if slot in broken:
                broken[slot] = number
        for slot, number in broken.items():
            index_file.set_slot(slot, number)
            used += number > 0
    index_file.slots_used = used


def _entries(index_file: IndexFile) -> int:
    return (len(index_file.view) - index_file.entries_at) // ENTRY_SIZE


def _used_slots(index_file: IndexFile) -> list[tuple[int, int]]:
    """Slots that point somewhere, without touching what was never written."""
    file = index_file.map()
    found: list[tuple[int, int]] = []
    end = HEAD_SIZE + SLOT_SIZE * index_file.slots
    at = HEAD_SIZE
    while at < end:
        data_at = file.next_data(at)
        at += (data_at - at) // SLOT_SIZE * SLOT_SIZE
        if at >= end:
            break
        stop = min(at + _CHUNK, end)
        numbers = array("i", bytes(index_file.view[at:stop]))
        if byteorder == "little":
            numbers.byteswap()
        first = (at - HEAD_SIZE) // SLOT_SIZE
        found += [(first + place, number) for place, number in enumerate(numbers) if number]
        at = stop
    return found
