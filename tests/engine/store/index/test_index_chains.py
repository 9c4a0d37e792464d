"""Queries by key look at a bounded number of index entries, whatever the chains are like."""

from __future__ import annotations

import pytest

from mqproto.engine.store.index import index, index_reader
from mqproto.engine.store.index.index_reader import IndexReader
from mqproto.engine.store.layout import INDEX_ENTRY
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import START, Rig

COUNT = 4000


@pytest.fixture(params=[1, 100])
def rig(request: pytest.FixtureRequest, make_rig: MakeRig) -> Rig:
    """Four thousand messages with one key, ten a second, and one in ten with another key, of the same slot or of
    another one.
    """
    rig = make_rig(mapped_file_size_commit_log=1 << 20, max_index_num=10_000, max_hash_slot_num=request.param)
    for number in range(COUNT):
        rig.send(keys="hot" if number % 10 else "rare", at=START + 100 * number)
        rig.run_jobs()
    return rig


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the index entries that were looked at."""
    looked_at: list[int] = []
    entry = IndexReader.entry

    def counted(self: IndexReader, number: int) -> tuple[int, int, int, int]:
        looked_at.append(number)
        return entry(self, number)

    monkeypatch.setattr(IndexReader, "entry", counted)
    monkeypatch.setattr(index_reader, "_NEWER_MAX", 50)
    return looked_at


def test_old_messages_of_a_long_chain_are_found(rig: Rig, numbers: list[int]) -> None:
    begin, end = START + 50_000, START + 51_000
    expected = [number for number in range(500, 511) if number % 10]
    assert rig.found("hot", begin=begin, end=end) == expected
    assert len(numbers) < 120
    assert rig.found("rare", begin=begin, end=end) == [500, 510]
    numbers.clear()
    assert rig.found("hot", begin=START - 5000, end=START - 1) == []
    assert len(numbers) < 120
    assert rig.found("hot", begin=0, end=START + 350) == [1, 2, 3]


def test_the_newest_are_found_first(rig: Rig, numbers: list[int]) -> None:
    assert rig.found("hot", count=3) == [COUNT - 3, COUNT - 2, COUNT - 1]
    assert len(numbers) <= 4
    assert rig.found("rare", count=2) == [COUNT - 20, COUNT - 10]


@pytest.mark.pure
def test_a_query_gives_up_in_time(rig: Rig, numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that nobody has, in the slot of many others."""
    monkeypatch.setattr(index, "_LOOKED_AT_MAX", 700)
    assert rig.found("none") == []
    assert len(numbers) == (700 if rig.changes["max_hash_slot_num"] == 1 else 0)


@pytest.mark.parametrize("link", [COUNT, COUNT - 1, 5000, -7, 0x7FFFFFFF, 0])
def test_links_that_lead_nowhere_or_in_circles_end_the_search(rig: Rig, numbers: list[int], link: int) -> None:
    current = rig.store._index.current
    assert current is not None
    at = current.entries_at + 20 * (COUNT - 1)
    key_hash, physical, seconds, _ = INDEX_ENTRY.unpack_from(current.view, at)
    INDEX_ENTRY.pack_into(current.view, at, key_hash, physical, seconds, link)
    assert rig.found("hot") == [COUNT - 2, COUNT - 1]
    assert len(numbers) <= 2


@pytest.mark.pure
def test_a_chain_goes_on_in_the_file_before(make_rig: MakeRig) -> None:
    rig = make_rig(max_index_num=100, max_hash_slot_num=10, mapped_file_size_commit_log=1 << 20)
    for number in range(500):
        rig.send(keys="hot", at=START + 1000 * number)
        rig.run_jobs()
    assert len(rig.files.names(f"{rig.root}/index")) == 6
    assert rig.found("hot", begin=START + 90_000, end=START + 110_000) == list(range(90, 111))
    assert rig.found("hot", count=64) == list(range(436, 500))
    rig.reopen()
    assert rig.found("hot", begin=START + 90_000, end=START + 110_000) == list(range(90, 111))
