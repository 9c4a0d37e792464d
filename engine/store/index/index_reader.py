"""Reader of one index file (docs/protocol/store.md 5.1): a head, slots by key hash, and entries that are chained from
their slots.

Owns: where slots and entries lie, and how a chain is followed. Whoever makes a reader gives it the bytes: of a map, or
read from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, TypeAlias

from mqproto.engine.store.layout import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT

HEAD_SIZE: Final = INDEX_HEAD.size
SLOT_SIZE: Final = INDEX_SLOT.size
ENTRY_SIZE: Final = INDEX_ENTRY.size
#: An entry that was never written.
NO_ENTRY: Final = (0, 0, 0, 0)
#: So many entries that are too new are passed one by one.
_NEWER_MAX: Final = 1000

#: Position and size to bytes of a file; fewer where it ends.
BytesAt: TypeAlias = Callable[[int, int], bytes | memoryview]


class IndexHead(NamedTuple):
    """Head of a file: first and last store time and physical offset, slots in use, number of the next entry."""

    begin_time: int
    end_time: int
    begin: int
    end: int
    slots_used: int
    next_number: int

    @classmethod
    def read(cls, data: bytes | memoryview) -> IndexHead:
        """The head that a file begins with; zeros where the file is shorter."""
        return cls._make(INDEX_HEAD.unpack(bytes(data).ljust(HEAD_SIZE, b"\0")))


class IndexReader:
    """Slots and entries of a file. `count` is the number of the next entry; entry 0 is never used."""

    __slots__ = ("_bytes_at", "begin_time", "count", "end_time", "entries_at", "slots")

    def __init__(self, bytes_at: BytesAt, slots: int, count: int, begin_time: int, end_time: int) -> None:
        self._bytes_at = bytes_at
        self.slots = slots
        self.entries_at = HEAD_SIZE + SLOT_SIZE * slots
        self.count = count
        self.begin_time = begin_time
        self.end_time = end_time

    def slot(self, number: int) -> int:
        """Number of the newest entry of a slot; 0 if there is none, or the file ends before."""
        data = self._bytes_at(HEAD_SIZE + SLOT_SIZE * number, SLOT_SIZE)
        return int(INDEX_SLOT.unpack(data)[0]) if len(data) == SLOT_SIZE else 0

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds since `begin_time`, previous entry of the slot; zeros behind the file."""
        data = self._bytes_at(self.entries_at + ENTRY_SIZE * number, ENTRY_SIZE)
        if len(data) < ENTRY_SIZE:
            return NO_ENTRY
        found: tuple[int, int, int, int] = INDEX_ENTRY.unpack(data)
        return found

    def covers(self, begin: int, end: int) -> bool:
        """Whether a message of this file may have been stored between two times."""
        return self.begin_time <= end and begin <= self.end_time

    def find(self, key_hash: int, begin: int | None, end: int | None) -> Iterator[int]:
        """Physical offsets under a hash, newest first; -1 for an entry of another hash or time, so that the caller can
        count.

        `begin` and `end` are store times, None for no limit. Entries hold whole seconds: messages stored up to a second
        before `begin` may be among them. A chain of one key may be as long as the file. Where it begins with many
        entries that are too new, it is gone on with at the place where its entries become old enough.
        """
        number = self.slot(key_hash % self.slots)
        newer = 0
        while 0 < number < self.count:
            found, physical, seconds, previous = self.entry(number)
            stored = self.begin_time + seconds * 1000
            if begin is not None and (seconds < 0 or stored + 1000 <= begin):
                return
            too_new = end is not None and stored > end
            yield -1 if too_new or found != key_hash else physical
            if previous >= number:
                return
            number = previous
            newer = newer + 1 if too_new else 0
            if end is not None and newer == _NEWER_MAX:
                number = yield from self._old_enough(number, key_hash % self.slots, end)

    def _old_enough(self, number: int, slot: int, end: int) -> Generator[int, None, int]:
        """The newest entry of a slot, up to a given one, that was stored no later than `end`; 0 if there is none.
        Entries are in the order of time, unless the clock went back. Gives -1 for each entry that it looks at.
        """
        low, high = 1, number + 1
        while low < high:
            middle = (low + high) // 2
            yield -1
            if self.begin_time + self.entry(middle)[2] * 1000 <= end:
                low = middle + 1
            else:
                high = middle
        for earlier in range(low - 1, 0, -1):
            yield -1
            if self.entry(earlier)[0] % self.slots == slot:
                return earlier
        return 0
