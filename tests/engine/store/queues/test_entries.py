"""Entries of queues over bytes that a test makes up."""

from __future__ import annotations

import pytest

from mqproto.engine.store.layout import BLANK, BLANK_SIZE, ENTRY, ENTRY_SIZE, HOLE_CODE
from mqproto.engine.store.queues.entries import chunk_of, entry_of, first_kept, good_entries
from mqproto.engine.store.queues.queue import Queue


def entries(*physical: int) -> bytes:
    return b"".join(ENTRY.pack(each, 100, 7) for each in physical)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (entries(300), (300, 100, 7)),
        (b"", None),
        (BLANK, None),
        (bytes(ENTRY_SIZE), None),
        (ENTRY.pack(300, 100, HOLE_CODE), None),
        (ENTRY.pack(300, -1, 7), None),
    ],
)
def test_what_an_entry_says(data: bytes, found: tuple[int, int, int] | None) -> None:
    assert entry_of(data) == found


@pytest.mark.parametrize(("below", "good"), [(None, 3), (1000, 3), (201, 3), (200, 2), (1, 1), (0, 0)])
def test_the_end_of_what_is_set(below: int | None, good: int) -> None:
    data = entries(0, 100, 200) + bytes(2 * ENTRY_SIZE + 3)
    assert good_entries(lambda at, size: data[at : at + size], 6, below) == good


def test_the_first_one_that_a_log_still_has() -> None:
    places = [(0, BLANK_SIZE), (0, BLANK_SIZE), (0, 100), (100, 100), (200, 100)]
    assert first_kept(places.__getitem__, 0, 5, 0) == 2
    assert first_kept(places.__getitem__, 0, 5, 150) == 4
    assert first_kept(places.__getitem__, 0, 5, 201) == 5


def test_entries_of_files_and_of_memory() -> None:
    """Four entries fit a file; those from 6 on are in memory."""
    queue = Queue("T", 0, "folder")
    queue.written = 6
    queue.tail += entries(600, 700)
    files = {f"folder/{0:020d}": entries(0, 100, 200, 300), f"folder/{80:020d}": entries(400, 500) + bytes(40)}
    asked: list[tuple[str, int, int]] = []

    def read(path: str, start: int, end: int) -> bytes:
        asked.append((path, start, end))
        return files.get(path, b"")[start:end]

    def chunk(offset: int, count: int, stop: int = 8) -> list[int]:
        return [physical for physical, _, _ in ENTRY.iter_unpack(chunk_of(queue, 4, offset, count, stop, read))]

    assert chunk(1, 2) == [100, 200]
    assert chunk(1, 9) == [100, 200, 300], "no further than the file"
    assert chunk(4, 9) == [400, 500, 600, 700]
    assert chunk(4, 9, stop=7) == [400, 500, 600]
    assert asked[-1] == (f"folder/{80:020d}", 0, 40)
    asked.clear()
    assert chunk(6, 1) == [600]
    assert asked == []
    del files[f"folder/{80:020d}"]
    assert chunk(4, 9) == []
