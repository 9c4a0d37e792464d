"""One index file (docs/protocol/store.md 5.1): a head, slots by key hash, and entries that are chained from their
slots.

Leaves to others: which keys a message has, and when a file is made or full (`index`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.layout import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT

_I32_MAX: Final = 0x7FFFFFFF
HEAD_SIZE: Final = INDEX_HEAD.size
SLOT_SIZE: Final = INDEX_SLOT.size
ENTRY_SIZE: Final = INDEX_ENTRY.size
#: So many entries that are too new are passed one by one.
_NEWER_MAX: Final = 1000


class IndexFile:
    """A file, its head in memory. It is mapped when first written or searched.

    `count` is the number of the next entry; entry 0 is never used. Entries below `ready` have blocks; 0: not even the
    slots.
    """

    __slots__ = (
        "_files",
        "begin",
        "begin_time",
        "count",
        "end",
        "end_time",
        "entries_at",
        "file",
        "path",
        "ready",
        "slots",
        "slots_used",
        "view",
    )

    def __init__(self, files: Files, path: str, slots: int, file: File | None = None) -> None:
        self._files = files
        self.path = path
        self.file = file
        self.slots = slots
        self.entries_at = HEAD_SIZE + SLOT_SIZE * slots
        self.view = memoryview(b"")
        self.ready = 0
        reading = file or files.open(path)
        data = reading.read(0, HEAD_SIZE)
        if file is None:
            reading.close()
        head = INDEX_HEAD.unpack(data)
        self.begin_time: int = head[0]
        self.end_time: int = head[1]
        self.begin: int = head[2]
        self.end: int = head[3]
        self.slots_used: int = head[4]
        self.count: int = max(head[5], 1)

    def map(self) -> File:
        """See to it that `view` is the file."""
        if self.file is None:
            self.file = self._files.open(self.path)
        if not self.view:
            self.view = self.file.view()
        return self.file

    def close(self) -> None:
        self.view = memoryview(b"")
        if self.file is not None:
            self.file.close()
            self.file = None

    def write_head(self) -> None:
        """Put the head into the file; it must be mapped."""
        INDEX_HEAD.pack_into(
            self.view, 0, self.begin_time, self.end_time, self.begin, self.end, self.slots_used, self.count
        )

    def begin_after(self, before: IndexFile) -> None:
        """A file that follows another one starts with the other one's end (docs/protocol/store.md 5.3)."""
        self.begin_time = self.end_time = before.end_time
        self.begin = self.end = before.end

    def add(self, key_hash: int, physical: int, wall: int) -> None:
        """Put an entry; the file must be mapped and have room and blocks for it."""
        number = self.count
        view = self.view
        slot_at = HEAD_SIZE + SLOT_SIZE * (key_hash % self.slots)
        previous: int = INDEX_SLOT.unpack_from(view, slot_at)[0]
        if not 0 < previous < number:
            previous = 0
            self.slots_used += 1
        seconds = (wall - self.begin_time) // 1000 if self.begin_time > 0 else 0
        if not 0 <= seconds <= _I32_MAX:
            seconds = 0 if seconds < 0 else _I32_MAX
        INDEX_ENTRY.pack_into(view, self.entries_at + ENTRY_SIZE * number, key_hash, physical, seconds, previous)
        INDEX_SLOT.pack_into(view, slot_at, number)
        if number == 1:
            self.begin_time = wall
            self.begin = physical
        self.count = number + 1
        self.end = physical
        self.end_time = wall

    def slot(self, key_hash: int) -> int:
        """Number of the newest entry in the slot of a hash."""
        found: int = INDEX_SLOT.unpack_from(self.view, HEAD_SIZE + SLOT_SIZE * (key_hash % self.slots))[0]
        return found

    def set_slot(self, key_hash: int, number: int) -> None:
        INDEX_SLOT.pack_into(self.view, HEAD_SIZE + SLOT_SIZE * (key_hash % self.slots), number)

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds since `begin_time` and previous entry."""
        found: tuple[int, int, int, int] = INDEX_ENTRY.unpack_from(self.view, self.entries_at + ENTRY_SIZE * number)
        return found

    def covers(self, begin: int, end: int) -> bool:
        """Whether a message of this file may have been stored between two times."""
        return self.begin_time <= end and begin <= self.end_time

    def find(self, key_hash: int, begin: int, end: int) -> Iterator[int]:
        """Physical offsets under a hash, newest first; -1 for an entry of another hash or time, so that the caller can
        count.

        Entries hold whole seconds: messages stored up to a second before `begin` may be among them.
        """
        self.map()
        return self.follow(key_hash, begin, end)

    def follow(self, key_hash: int, begin: int, end: int) -> Iterator[int]:
        """The same once the file is mapped.

        A chain of one key may be as long as the file. Where it begins with many entries that are too new, it is gone on
        with at the place where its entries become old enough.
        """
        number = self.slot(key_hash)
        newer = 0
        while 0 < number < self.count:
            found, physical, seconds, previous = self.entry(number)
            stored = self.begin_time + seconds * 1000
            if seconds < 0 or stored + 1000 <= begin:
                return
            yield physical if found == key_hash and stored <= end else -1
            if previous >= number:
                return
            number = previous
            newer = newer + 1 if stored > end else 0
            if newer == _NEWER_MAX:
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
