"""Repair of the index after a crash: it is cut back to what is known to be whole, before recovery adds the rest again
from the log.

Apache deletes an index file that was written at a crash, and with it the keys of messages that recovery does not read
again (docs/protocol/store.md 8.4). Entries lie in the order of the log and hold their hash, so everything before the
point of recovery can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import unpack
from typing import Final

from mqproto.engine.store.index.index import Index
from mqproto.engine.store.index.index_file import IndexFile
from mqproto.engine.store.index.index_reader import ENTRY_SIZE, HEAD_SIZE, NO_ENTRY, SLOT_SIZE
from mqproto.engine.store.layout import INDEX_ENTRY, PAGE_BITS

_CHUNK: Final = 1 << 16
#: A disk loses whole pages, so it is enough to look at one entry in each of them.
_ENTRIES_OF_PAGE: Final = (1 << PAGE_BITS) // ENTRY_SIZE


def cut_index(index: Index, offset: int, store_time: Callable[[int], int], intact: bool, notes: list[str]) -> None:
    """Drop all entries of messages at or behind a physical offset. Blocks.

    `store_time` gives the store time of the record at a physical offset. `intact`: everything that was written is
    there, as after the death of a process; otherwise only what lies before the offset is. A file is cut before the
    first page that is missing, and `notes` says so.
    """
    removed = False
    while index.index_files:
        last = index.index_files[-1]
        if last.count > 1 and last.begin < offset and _cut(last, offset, store_time, intact, notes):
            break
        last.close()
        index.files.remove(last.path)
        index.index_files.pop()
        removed = True
    if removed:
        index.files.sync_folder(index.folder)
    index.begin_again()


def _cut(index_file: IndexFile, offset: int, store_time: Callable[[int], int], intact: bool, notes: list[str]) -> bool:
    """Cut one file; False when nothing good is left of it."""
    file = index_file.map()
    count, lost = _first_behind(index_file, offset)
    if lost:
        notes.append(f"{index_file.path} has lost pages: some older keys cannot be found")
    if count <= 1:
        return False
    last = index_file.entry(count - 1)
    index_file.count = count
    index_file.end = last[1]
    stored = store_time(last[1])
    index_file.end_time = stored if stored > 0 else index_file.begin_time + 1000 * last[2]
    _unlink(index_file, count, intact and not lost)
    index_file.write_head()
    file.sync()
    return True


def _first_behind(index_file: IndexFile, offset: int) -> tuple[int, bool]:
    """Number of the first entry at or behind an offset, or that is missing; and whether one was missing before.

    An entry of zeros is one that did not reach the disk: none is expected before one that lies below the offset.
    """
    low = before = 0
    missing = lost = False
    for number in range(1, index_file.count, _ENTRIES_OF_PAGE):
        entry = index_file.entry(number)
        if entry == NO_ENTRY and number > 1:
            missing = True
        elif entry[1] >= offset:
            break
        elif missing or entry[1] < before:
            lost = True
            break
        else:
            low, before = number, entry[1]
    number = max(low, 1)
    while number < index_file.count:
        # One by one: behind what is durable there may be any mixture, even of parts of entries.
        entry = index_file.entry(number)
        if not before <= entry[1] < offset or (entry == NO_ENTRY and number > 1):
            break
        before = entry[1]
        number += 1
    return number, lost


def _unlink(index_file: IndexFile, count: int, intact: bool) -> None:
    """Let every slot point to its newest entry below `count`: along the chain where the entries behind are intact, by
    looking at all entries otherwise.
    """
    newest: dict[int, int] = {}
    used = 0
    entries_max = (len(index_file.view) - index_file.entries_at) // ENTRY_SIZE
    for slot, number in _used_slots(index_file):
        if number >= (count if not intact else entries_max):
            newest[slot] = 0
            continue
        kept = number
        while kept >= count:
            previous = index_file.entry(kept)[3]
            kept = previous if previous < kept else 0
        if kept != number:
            index_file.set_slot(slot, kept)
        used += kept > 0
    if newest:
        entries = index_file.view[index_file.entries_at : index_file.entries_at + ENTRY_SIZE * count]
        for number, (key_hash, _, _, _) in enumerate(INDEX_ENTRY.iter_unpack(entries)):
            slot = key_hash % index_file.slots
            if slot in newest:
                newest[slot] = number
        for slot, number in newest.items():
            index_file.set_slot(slot, number)
            used += number > 0
    index_file.slots_used = used


def _used_slots(index_file: IndexFile) -> Iterator[tuple[int, int]]:
    """Slots that point somewhere, without touching what was never written."""
    file = index_file.map()
    end = HEAD_SIZE + SLOT_SIZE * index_file.slots
    at = HEAD_SIZE
    while at < end:
        at += (file.next_data(at) - at) // SLOT_SIZE * SLOT_SIZE
        stop = min(at + _CHUNK, end)
        if at < stop:
            first = (at - HEAD_SIZE) // SLOT_SIZE
            for place, number in enumerate(unpack(f">{(stop - at) // SLOT_SIZE}i", index_file.view[at:stop])):
                if number:
                    yield first + place, number
        at = stop
