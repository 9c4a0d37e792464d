"""Index file of a data directory, read without touching it (docs/protocol/store.md 5).

How many slots and entries a file has is not written in it. They are settings; the size of the file leaves many pairs.
The usual ones are tried first, then the slots are looked for: the first entry, which is known to hold the first offset
of the head, lies behind them.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mqproto.engine.store.disk.files import Files, ReadFile
from mqproto.engine.store.index.index_reader import ENTRY_SIZE, HEAD_SIZE, NO_ENTRY, SLOT_SIZE, IndexHead, IndexReader
from mqproto.wire.ids import index_hash

#: Slots and entries by default.
USUAL: Final = (5_000_000, 20_000_000)
_WINDOW: Final = 1 << 20
_LOOKED_AT_MAX: Final = 50_000


class IndexView:
    """Index file. `slots` and `entries_max` are 0 when they are not known; then only the head can be read."""

    __slots__ = ("_reader", "entries_max", "file", "head", "name", "path", "size")

    def __init__(self, files: Files, path: str, pair: tuple[int, int] | None = None) -> None:
        """`pair`: slots and entries, where they are known. Raises OSError."""
        self.path = path
        self.name = path.rpartition("/")[2]
        self.file: ReadFile = files.open_to_read(path)
        self.size = self.file.size
        self.head = IndexHead.read(self.file.read(0, HEAD_SIZE))
        slots, self.entries_max = _pair(self.file, self.head, pair) or (0, 0)
        self._reader = _reader(self.file, slots, self.entries_max)

    @property
    def slots(self) -> int:
        return self._reader.slots

    @property
    def entries_at(self) -> int:
        """Where the entries begin."""
        return self._reader.entries_at

    @property
    def count(self) -> int:
        """Number of the next entry; entry 0 is never used."""
        return max(self.head.next_number, 1)

    def close(self) -> None:
        self.file.close()

    def entries(self, number: int, count: int) -> bytes:
        """Bytes of up to `count` entries. Raises OSError."""
        data = self.file.read(
            self.entries_at + ENTRY_SIZE * number, ENTRY_SIZE * max(min(count, self.entries_max - number), 0)
        )
        return data[: len(data) - len(data) % ENTRY_SIZE]

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds since the first store time, previous entry of the slot; zeros for none."""
        return self._reader.entry(number) if number < self.entries_max else NO_ENTRY

    def find(self, topic: str, key: str) -> list[int]:
        """Physical offsets of messages that may have a key, newest first: those whose key has the same hash."""
        if not self.slots:
            return []
        found = self._reader.find(index_hash(f"{topic}#{key}"), None, None)
        return [physical for physical in islice(found, _LOOKED_AT_MAX) if physical >= 0]


def _reader(file: ReadFile, slots: int, entries_max: int) -> IndexReader:
    """Entries that the head does not count yet are read too: a broker may be adding them."""
    return IndexReader(file.read, slots, entries_max, 0, 0)


def _pair(file: ReadFile, head: IndexHead, given: tuple[int, int] | None) -> tuple[int, int] | None:
    """Slots and entries of a file; None when no pair fits."""
    by_ratio = (file.size - HEAD_SIZE) // (SLOT_SIZE + 4 * ENTRY_SIZE)
    tried = [given] if given is not None else [USUAL, (by_ratio, 4 * by_ratio)]
    tried = [
        pair for pair in tried if pair[0] > 0 and HEAD_SIZE + SLOT_SIZE * pair[0] + ENTRY_SIZE * pair[1] == file.size
    ]
    if given is not None:
        return tried[0] if tried else None
    exact = next((pair for pair in tried if _fits(file, head, pair[0], True)), None) or _search(file, head)
    return exact or next((pair for pair in tried if _fits(file, head, pair[0], False)), None)


def _fits(file: ReadFile, head: IndexHead, slots: int, exact: bool) -> bool:
    """Whether the entries, if there are any, may lie behind so many slots: the first one is in its slot, and if `exact`
    holds the first offset of the head.
    """
    if head.next_number <= 1:
        return True
    reader = _reader(file, slots, 2)
    key_hash, physical, _, previous = reader.entry(1)
    if reader.entry(0) != NO_ENTRY:
        return False
    if (exact and physical != head.begin) or previous != 0 or key_hash < 0:
        return False
    return reader.slot(key_hash % slots) > 0


def _search(file: ReadFile, head: IndexHead) -> tuple[int, int] | None:
    """Look for the first entry."""
    wanted = head.begin.to_bytes(8, "big", signed=True)
    at = file.next_data(HEAD_SIZE)
    while head.next_number > 1 and at < file.size:
        data = file.read(at, _WINDOW + ENTRY_SIZE)
        found = data.find(wanted)
        while 0 <= found < _WINDOW:
            slots, left = divmod(at + found - 4 - ENTRY_SIZE - HEAD_SIZE, SLOT_SIZE)
            behind = file.size - HEAD_SIZE - SLOT_SIZE * slots
            if left == 0 and slots > 0 and behind % ENTRY_SIZE == 0 and _fits(file, head, slots, True):
                return slots, behind // ENTRY_SIZE
            found = data.find(wanted, found + 1)
        at = file.next_data(at + _WINDOW)
    return None
