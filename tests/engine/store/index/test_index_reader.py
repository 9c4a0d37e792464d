"""Reader of an index file over bytes that a test makes up."""

from __future__ import annotations

import pytest

from mqproto.engine.store.index.index_reader import HEAD_SIZE, NO_ENTRY, IndexHead, IndexReader
from mqproto.engine.store.layout import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT

SLOTS = 2
BEGIN = 1_000_000


def reader(*entries: tuple[int, int, int, int], slots: tuple[int, int], size: int | None = None) -> IndexReader:
    head = INDEX_HEAD.pack(BEGIN, BEGIN, 0, 0, 0, len(entries) + 1)
    table = b"".join(map(INDEX_SLOT.pack, slots))
    data = (head + table + b"".join(INDEX_ENTRY.pack(*each) for each in (NO_ENTRY, *entries)))[:size]
    return IndexReader(lambda at, count: data[at : at + count], SLOTS, len(entries) + 1, BEGIN, BEGIN)


def test_a_chain_is_followed_to_its_beginning() -> None:
    found = reader((4, 100, 0, 0), (2, 200, 1, 1), (5, 300, 2, 0), (4, 400, 3, 2), slots=(4, 3))
    assert list(found.find(4, None, None)) == [400, -1, 100]
    assert list(found.find(5, None, None)) == [300]
    assert list(found.find(4, BEGIN + 1999, None)) == [400, -1], "an entry holds whole seconds"
    assert list(found.find(4, 0, BEGIN + 2999)) == [-1, -1, 100]


@pytest.mark.parametrize("link", [2, 3, -1, 9])
def test_a_link_that_leads_nowhere_ends_the_chain(link: int) -> None:
    found = reader((4, 100, 0, 0), (4, 200, 0, link), slots=(2, 0))
    assert list(found.find(4, None, None)) == [200]


def test_a_time_that_no_broker_writes() -> None:
    """Searches by time end there, as in Apache's broker; those for whatever is there do not."""
    found = reader((4, 100, 0, 0), (4, 200, -5, 1), slots=(2, 0))
    assert list(found.find(4, 0, BEGIN)) == []
    assert list(found.find(4, None, None)) == [200, 100]


def test_what_lies_behind_the_file_is_nothing() -> None:
    found = reader((4, 100, 0, 0), (4, 200, 0, 1), slots=(2, 1), size=HEAD_SIZE + 8 + 2 * 20)
    assert found.entry(1) == (4, 100, 0, 0)
    assert found.entry(2) == NO_ENTRY
    assert reader(slots=(2, 1), size=HEAD_SIZE + 6).slot(1) == 0


def test_a_head_that_breaks_off_is_filled_up() -> None:
    assert IndexHead.read(b"") == (0, 0, 0, 0, 0, 0)
    assert IndexHead.read(INDEX_HEAD.pack(1, 2, 3, 4, 5, 6)) == (1, 2, 3, 4, 5, 6)
