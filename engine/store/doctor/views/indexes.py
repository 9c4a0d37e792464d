"""One index file of a data directory, read without touching it (docs/protocol/store.md 5).

How many slots and entries a file has is not written in it. They are settings; the size of the file leaves many pairs.
The usual ones are tried first, then the slots are looked for: the first entry, which is known to hold the first offset
of the head, lies behind them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mqproto.engine.store.disk.files import Files, ReadFile
from mqproto.engine.store.layout import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT
from mqproto.wire.ids import index_hash

HEAD_SIZE: Final = INDEX_HEAD.size
ENTRY_SIZE: Final = INDEX_ENTRY.size
SLOT_SIZE: Final = INDEX_SLOT.size
#: Slots and entries by default.
USUAL: Final = (5_000_000, 20_000_000)
_WINDOW: Final = 1 << 20
_LOOKED_AT_MAX: Final = 50_000


class IndexHead(NamedTuple):
    """First and last store time, first and last physical offset, slots in use, number of the next entry."""

    begin_time: int
    end_time: int
    begin: int
    end: int
    slots_used: int
    following: int


class IndexView:
    """One file. `slots` and `entries_max` are 0 when they are not known; then only the head can be read."""

    __slots__ = ("entries_at", "entries_max", "file", "head", "name", "path", "size", "slots")

    def __init__(self, files: Files, path: str, pair: tuple[int, int] | None = None) -> None:
        """`pair`: slots and entries, where they are known. Raises OSError."""
        self.path = path
        self.name = path.rpartition("/")[2]
        self.file: ReadFile = files.open_to_read(path)
        self.size = self.file.size
        data = self.file.read(0, HEAD_SIZE).ljust(HEAD_SIZE, b"\0")
        self.head = IndexHead._make(INDEX_HEAD.unpack(data))
        self.slots = self.entries_max = self.entries_at = 0
        found = _pair(self.file, self.head, pair)
        if found is not None:
            self.slots, self.entries_max = found
            self.entries_at = HEAD_SIZE + SLOT_SIZE * self.slots

    @property
    def count(self) -> int:
        """Number of the next entry; entry 0 is never used."""
        return max(self.head.following, 1)

    def close(self) -> None:
        self.file.close()

    def entries(self, number: int, count: int) -> bytes:
        """Bytes of up to `count` entries. Raises OSError."""
        data = self.file.read(
            self.entries_at + ENTRY_SIZE * number, ENTRY_SIZE * max(min(count, self.entries_max - number), 0)
        )
        return data[: len(data) - len(data) % ENTRY_SIZE]

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds since the first store time, previous entry of the slot; zeros where there is
        nothing.
        """
        data = self.entries(number, 1)
        found: tuple[int, int, int, int] = INDEX_ENTRY.unpack(data) if data else (0, 0, 0, 0)
        return found

    def slot(self, number: int) -> int:
        """The newest entry of a slot."""
        data = self.file.read(HEAD_SIZE + SLOT_SIZE * number, SLOT_SIZE)
        return int(INDEX_SLOT.unpack(data)[0]) if len(data) == SLOT_SIZE else 0

    def find(self, topic: str, key: str) -> list[int]:
        """Physical offsets of messages that may have a key, newest first: those whose key has the same hash."""
        if not self.slots:
            return []
        key_hash = index_hash(f"{topic}#{key}")
        found = []
        number = self.slot(key_hash % self.slots)
        for _ in range(_LOOKED_AT_MAX):
            if not 0 < number < self.entries_max:
                break
            hash_found, physical, _, previous = self.entry(number)
            if hash_found == key_hash:
                found.append(physical)
            if previous >= number:
                break
            number = previous
        return found


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
    if head.following <= 1:
        return True
    data = file.read(HEAD_SIZE + SLOT_SIZE * slots, 2 * ENTRY_SIZE)
    if len(data) < 2 * ENTRY_SIZE or any(data[:ENTRY_SIZE]):
        return False
    key_hash, physical, _, previous = INDEX_ENTRY.unpack_from(data, ENTRY_SIZE)
    if (exact and physical != head.begin) or previous != 0 or key_hash < 0:
        return False
    slot = file.read(HEAD_SIZE + SLOT_SIZE * (key_hash % slots), SLOT_SIZE)
    return len(slot) == SLOT_SIZE and INDEX_SLOT.unpack(slot)[0] > 0


def _search(file: ReadFile, head: IndexHead) -> tuple[int, int] | None:
    """Look for the first entry."""
    wanted = head.begin.to_bytes(8, "big", signed=True)
    at = file.next_data(HEAD_SIZE)
    while head.following > 1 and at < file.size:
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
