"""Index file of the store: its head in memory, its slots and entries in a map that entries are added to.

Leaves to others: which keys a message has, and when a file is made or full (`index`); how it is searched
(`index_reader`).
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.index.index_reader import ENTRY_SIZE, HEAD_SIZE, SLOT_SIZE, IndexHead, IndexReader
from mqproto.engine.store.layout import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT

_I32_MAX: Final = 0x7FFFFFFF


class IndexFile(IndexReader):
    """Index file, mapped when first used. Entries below `ready` have blocks; 0: not even the slots have."""

    __slots__ = ("_files", "begin", "end", "file", "path", "ready", "slots_used", "view")

    def __init__(self, files: Files, path: str, slots: int, file: File | None = None) -> None:
        reading = file or files.open(path)
        head = IndexHead.read(reading.read(0, HEAD_SIZE))
        if file is None:
            reading.close()
        super().__init__(self._mapped, slots, max(head.next_number, 1), head.begin_time, head.end_time)
        self._files = files
        self.path = path
        self.file = file
        self.view = memoryview(b"")
        self.ready = 0
        self.begin = head.begin
        self.end = head.end
        self.slots_used = head.slots_used

    def _mapped(self, at: int, size: int) -> memoryview:
        if not self.view:
            self.map()
        return self.view[at : at + size]

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

    def set_slot(self, key_hash: int, number: int) -> None:
        INDEX_SLOT.pack_into(self.view, HEAD_SIZE + SLOT_SIZE * (key_hash % self.slots), number)
