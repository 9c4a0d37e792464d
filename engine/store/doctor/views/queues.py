"""Consume queue of a data directory, read without touching it (docs/protocol/store.md 4)."""

from __future__ import annotations

from typing import NamedTuple

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.doctor.views.parts import offset_files
from mqproto.engine.store.layout import ENTRY, ENTRY_SIZE
from mqproto.engine.store.queues.entries import entry_of, first_kept, good_entries


class QueuePart(NamedTuple):
    """File of a queue; `first` is the number of its first entry."""

    first: int
    path: str
    size: int


class QueueView:
    """Files of a queue, sorted; there may be gaps between them, and odd sizes."""

    __slots__ = ("_by_first", "_files", "folder", "parts", "per_file", "queue_id", "strange", "topic")

    def __init__(self, files: Files, folder: str, topic: str, queue_id: int, file_size: int) -> None:
        self._files = files
        self.folder = folder
        self.topic = topic
        self.queue_id = queue_id
        #: Entries of a file.
        self.per_file = max(file_size // ENTRY_SIZE, 1)
        #: Names in the folder that are no names of queue files.
        self.strange: list[str] = []
        self.parts = [
            QueuePart(start // ENTRY_SIZE, path, size)
            for start, path, size in offset_files(files, folder, self.strange)
        ]
        self._by_first = {part.first: part for part in self.parts}

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    @property
    def first(self) -> int:
        """Number of the first entry that a file has room for."""
        return self.parts[0].first if self.parts else 0

    @property
    def limit(self) -> int:
        """Behind the last entry that a file has room for."""
        return self.parts[-1].first + self.per_file if self.parts else 0

    def part_at(self, place: int) -> QueuePart | None:
        """The file that holds an entry."""
        return self._by_first.get(place - place % self.per_file)

    def chunk(self, place: int, count: int) -> bytes:
        """Up to `count` entries from `place` on, all of one file; none where there is no file. Raises OSError."""
        part = self.part_at(place)
        if part is None:
            return b""
        count = min(count, part.first + self.per_file - place)
        try:
            file = self._files.open_to_read(part.path)
        except FileNotFoundError:
            return b""
        try:
            data = file.read((place - part.first) * ENTRY_SIZE, count * ENTRY_SIZE)
        finally:
            file.close()
        return data[: len(data) - len(data) % ENTRY_SIZE]

    def raw_entry(self, place: int) -> tuple[int, int, int]:
        """Physical offset, size and tags code as they are; zeros where there is nothing."""
        data = self.chunk(place, 1)
        found: tuple[int, int, int] = ENTRY.unpack(data) if data else (0, 0, 0)
        return found

    def entry(self, place: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of a message; None for a place that has none. Raises OSError."""
        found = entry_of(self.chunk(place, 1))
        return found if found is not None and found[0] >= 0 else None

    def end(self) -> int:
        """Behind the last entry that is set, found by halving as they follow each other; `first` if there is none.

        Raises OSError.
        """
        for part in reversed(self.parts):
            set_entries = self._set_entries(part)
            if set_entries:
                return part.first + set_entries
        return self.first

    def _set_entries(self, part: QueuePart) -> int:
        """How many entries of a file are set."""
        try:
            file = self._files.open_to_read(part.path)
        except FileNotFoundError:
            return 0
        try:
            return good_entries(file.read, min(self.per_file, part.size // ENTRY_SIZE))
        finally:
            file.close()

    def begin(self, log_start: int, end: int) -> int:
        """The first place below `end` whose message a log from `log_start` on still has; `end` if there is none
        (docs/protocol/store.md 4.4).
        """
        return first_kept(lambda place: self.raw_entry(place)[:2], self.first, end, log_start)
