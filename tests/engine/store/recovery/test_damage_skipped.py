"""Damage that is stepped over: everything good behind it stays, in its place (docs/protocol/store.md 8)."""

from __future__ import annotations

import contextlib
import random

import pytest

from mqproto.engine.store import Ending, GetStatus, LostRange, MemoryFiles, Recover, StoreError
from mqproto.engine.store.doctor import check
from mqproto.engine.store.log.records import facts_of, measure
from mqproto.engine.store.recovery.damage import SMALLEST, blank_record
from tests.engine.store.harness import SMALL, START, Rig, damaged, memory_rig, opening_fails, records


def places(rig: Rig, topic: str = "Topic") -> dict[int, bytes]:
    """What a consumer gets that reads a queue from its beginning: bodies by place."""
    queue = rig.store.queue(topic, 0)
    found: dict[int, bytes] = {}
    offset = queue.min_offset
    while offset < queue.max_offset:
        result = rig.store.reader.get(queue, offset, 32, None)
        assert result.next_offset > offset
        assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING)
        found |= {message.queue_offset: bytes(message.body) for message in records(result.views)}
        offset = result.next_offset
    return found


def doctor(rig: Rig) -> list[str]:
    """What `store check` finds in the directory, after an orderly end."""
    rig.close()
    report = check(rig.files, rig.root, index_pair=(SMALL["max_hash_slot_num"], SMALL["max_index_num"]))
    rig.open()
    return [] if report.clean else [str(finding) for finding in report.findings]


def end_as(rig: Rig, ending: str) -> None:
    if ending == "clean":
        rig.close()
    else:
        if ending == "settled":
            rig.settle()
        rig.kill()


ENDINGS = ["clean", "killed", "settled"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("at", [0, 4, 8, 12, 20, 28, 36, 84, 90, 200])
def test_messages_behind_the_damage_stay(rig: Rig, ending: str, at: int) -> None:
    """Wherever one record is damaged: the others keep their places and keys."""
    bodies = rig.send_many(8)
    others = rig.send_many(3, "Other")
    bad = rig.store.reader.entry(rig.store.queue("Topic", 0), 4)
    assert bad is not None
    end_as(rig, ending)
    before = rig.log()
    rig.set_log(bad[0] + at, bytes((before[bad[0] + at] ^ 0x55,)))
    damage = rig.log()[bad[0] : bad[0] + bad[1]]
    failure = opening_fails(rig)
    if failure is None:
        return  # no checksum covers this part of a record
    assert "keeps the 6 good messages" in failure.remedy
    assert "--recover cut" in str(failure)
    report = rig.open(recover=Recover.SKIP).recovery
    assert report.ending is Ending.SKIPPED
    assert report.skipped == [(bad[0], bad[0] + bad[1])]
    assert report.lost == [LostRange("Topic", 0, 4, 4)]
    assert rig.files.read(f"{rig.root}/recovered/{bad[0]:020d}") == damage
    for _ in range(3):
        assert places(rig) == {number: body for number, body in enumerate(bodies) if number != 4}
        assert rig.bodies("Other") == others
        assert [rig.found(f"Topic-{number}") for number in range(8)] == [
            [number] if number != 4 else [] for number in range(8)
        ]
        rig.reopen()
        assert rig.store.recovery.notes == []
    assert doctor(rig) == []
    rig.send(body=b"next", uniq_key="next")
    for _ in range(2):
        rig.kill()
        assert rig.open().recovery.skipped == []
        assert places(rig)[8] == b"next"
        assert len(places(rig)) == 8
        assert rig.found("next") == [8]
        assert {queue.topic for queue in rig.store.queues()} == {"Topic", "Other"}


@pytest.mark.parametrize("hole", [1, 3, 4, 6])
def test_a_search_by_time_is_not_misled_by_a_hole(rig: Rig, hole: int) -> None:
    times = [START + 10 * (number // 3) for number in range(8)]
    for number, time in enumerate(times):
        rig.send(body=b"%d" % number, at=time)
    queue = rig.store.queue("Topic", 0)
    bad = rig.store.reader.entry(queue, hole)
    assert bad is not None
    rig.close()
    rig.set_log(bad[0] + 88, b"?")
    queue = rig.open(recover=Recover.SKIP).queue("Topic", 0)
    there = set(places(rig))
    assert there == set(range(8)) - {hole}
    for time in (*times, START - 1, START + 1, START + 11, START + 21):
        found = rig.store.reader.offset_by_time(queue, time)
        assert {number for number in there if number >= found} == {number for number in there if times[number] >= time}


@pytest.mark.parametrize("ending", ENDINGS)
def test_several_places_and_several_files(rig: Rig, ending: str) -> None:
    """Damage that reaches over a border of files, and a file that is damaged as a whole."""
    bodies = rig.send_many(80, size=300)
    entries = [rig.store.reader.entry(rig.store.queue("Topic", 0), number) or (0, 0, 0) for number in range(80)]
    end_as(rig, ending)
    size = len(rig.log())

    def ruin(start: int, stop: int) -> None:
        for at in range(start, stop):
            rig.set_log(at % size, b"\xee", at - at % size)

    ruin(1000, 1100)
    ruin(size - 700, size + 10)
    ruin(2 * size, 3 * size)
    ruins = ((1000, 1100), (size - 700, size + 10), (2 * size, 3 * size))
    lost = {
        number
        for number, (at, length, _) in enumerate(entries)
        if any(at < stop and at + length > start for start, stop in ruins)
    }
    assert damaged(rig, thorough=True).offset is not None
    rig.open(recover=Recover.SKIP, thorough=True)
    assert {number for each in rig.store.recovery.lost for number in range(each.first, each.last + 1)} == lost
    assert len(rig.store.recovery.skipped) == 3
    for _ in range(2):
        assert places(rig) == {number: body for number, body in enumerate(bodies) if number not in lost}
        rig.reopen()
        rig.kill()
        rig.open()
        assert places(rig) == {number: body for number, body in enumerate(bodies) if number not in lost}
    assert doctor(rig) == []


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("missing", [[1], [1, 2], [1, 3]])
def test_missing_files(rig: Rig, ending: str, missing: list[int]) -> None:
    bodies = rig.send_many(80, size=300)
    entries = [rig.store.reader.entry(rig.store.queue("Topic", 0), number) for number in range(80)]
    end_as(rig, ending)
    size = len(rig.log())
    for number in missing:
        rig.files.remove(f"{rig.root}/commitlog/{number * size:020d}")
    failure = damaged(rig)
    assert "missing" in failure.reasons[0]
    assert "--recover skip" in str(failure)
    untouched = rig.files.process_death() if isinstance(rig.files, MemoryFiles) else None
    rig.open(recover=Recover.SKIP)
    lost = {number for number, entry in enumerate(entries) if entry and entry[0] // size in missing}
    assert {number for each in rig.store.recovery.lost for number in range(each.first, each.last + 1)} == lost
    for _ in range(2):
        assert places(rig) == {number: body for number, body in enumerate(bodies) if number not in lost}
        rig.reopen()
        rig.kill()
        rig.open()
    assert doctor(rig) == []
    if untouched is not None:
        rig.files = untouched
        assert rig.open(recover=Recover.CUT).recovery.ending is Ending.CUT
        assert rig.store.end == size
        assert places(rig) == {number: body for number, body in enumerate(bodies) if number < min(lost)}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("left", [0, 1, 1500])
def test_file_that_lost_its_end(rig: Rig, ending: str, left: int) -> None:
    bodies = rig.send_many(40, size=300)
    end_as(rig, ending)
    path = f"{rig.root}/commitlog/{4096:020d}"
    rig.files.write(path, rig.files.read(path)[:left])
    assert "lengthens" in damaged(rig).remedy
    rig.open(recover=Recover.SKIP)
    kept = places(rig)
    assert kept == {number: body for number, body in enumerate(bodies) if number in kept}
    lost = {number for each in rig.store.recovery.lost for number in range(each.first, each.last + 1)}
    assert kept.keys() | lost == set(range(40))
    assert len(lost) <= 10
    rig.kill()
    rig.open()
    assert places(rig) == kept


def test_last_message_leaves_its_place_to_the_next_one(rig: Rig) -> None:
    """Nothing follows it, so no blank entry is needed; the report tells where the queue ends now."""
    bodies = rig.send_many(3)
    rig.wall += 10
    start = rig.send(body=b"the last one")
    end = rig.store.end
    rig.close()
    rig.set_log(start + 90, b"?")
    assert "no good message follows" in damaged(rig).remedy
    report = rig.open(recover=Recover.SKIP).recovery
    assert (report.ending, report.skipped, report.end) == (Ending.SKIPPED, [(start, end)], end)
    assert report.lost == [LostRange("Topic", 0, 3, 3)]
    assert any("ends at 3 now" in note for note in report.notes)
    assert rig.send(body=b"next") == end
    for _ in range(2):
        assert rig.bodies() == [*bodies, b"next"]
        rig.reopen()


def test_what_looks_like_a_record_within_a_message_is_none(rig: Rig) -> None:
    """Who knows where a message will lie can put a whole record into it. Its head tells where it really ends."""
    rig.send()
    start = rig.store.end
    fake = blank_record(start + 200, 150, 1)
    rig.send(body=bytes(112) + fake + bytes(100))
    rig.send(body=b"after")
    rig.close()
    assert rig.log()[start + 200 : start + 350] == fake
    rig.set_log(start + 95, b"?")
    assert rig.open(recover=Recover.SKIP).recovery.skipped == [(start, start + 88 + 362 + 1 + 5 + 2)]
    assert places(rig) == {0: b"body", 2: b"after"}


def test_stale_records_are_not_brought_back(rig: Rig) -> None:
    """Behind the last record of Apache's may lie what it once cut off (docs/protocol/store.md 8.4): that is no part of
    the log.
    """
    rig.send_many(2)
    rig.wall += 10_000
    start = rig.send(body=b"damaged")
    end = rig.store.end
    rig.send(body=b"cut long ago")
    gap = rig.store.end
    rig.send(body=b"stale", at=rig.wall - 20_000)
    stale = rig.log()[gap : rig.store.end]
    rig.close()
    rig.set_log(end, bytes(4096 - end))
    rig.open(recover=Recover.CUT)
    rig.close()
    rig.set_log(gap, stale)
    rig.set_log(start + 90, b"?")
    rig.open(recover=Recover.SKIP)
    assert set(places(rig)) == {0, 1}
    rig.send(body=b"next")
    rig.reopen()
    assert rig.bodies()[2:] == [b"next"]


def test_cut_and_skip_ask_for_nothing_where_nothing_is_damaged(rig: Rig) -> None:
    bodies = rig.send_many(8)
    for recover in (Recover.SKIP, Recover.CUT):
        rig.reopen(recover=recover)
        assert (rig.store.recovery.ending, rig.store.recovery.notes) == (Ending.WHOLE, [])
        rig.kill()
        rig.open(recover=recover)
        assert (rig.store.recovery.ending, rig.store.recovery.notes) == (Ending.WHOLE, [])
    assert rig.bodies() == bodies


@pytest.mark.parametrize("steps", range(22))
def test_power_loss_while_it_is_stepped_over(steps: int) -> None:
    """Skipping that was broken off is begun again, and the damaged bytes of the first time are still there."""
    rig = memory_rig()
    bodies = rig.send_many(8)
    bad = rig.store.reader.entry(rig.store.queue("Topic", 0), 4)
    assert bad is not None
    rig.close()
    rig.set_log(bad[0] + 90, b"?")
    damage = rig.log()[bad[0] : bad[0] + bad[1]]
    assert isinstance(rig.files, MemoryFiles)
    left = steps

    def die(change: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "power is gone")

    rig.files.before_change = die
    with contextlib.suppress(OSError, StoreError):
        rig.open(recover=Recover.SKIP)
    rig.cut_power(lambda path, sector: sector % 2 == 0)
    rig.open(recover=Recover.SKIP)
    assert places(rig) == {number: body for number, body in enumerate(bodies) if number != 4}
    kept = rig.files.names(f"{rig.root}/recovered")
    assert damage in [rig.files.read(f"{rig.root}/recovered/{name}") for name in kept]


@pytest.mark.parametrize("size", [SMALLEST, SMALLEST + 1, 105, 106, 107, 4000])
def test_blank_records(size: int) -> None:
    record = memoryview(blank_record(4096, size, 17))
    assert measure(record, 0, 4096, True) == size
    facts = facts_of(record)
    assert not facts.has_entry
    assert not facts.is_indexed
    assert facts.store_time == 17


@pytest.mark.parametrize("seed", range(20))
def test_any_damage(seed: int) -> None:
    """Bytes are overwritten anywhere. What is served afterwards is what was stored, and what is missing was damaged."""
    rng = random.Random(seed)
    rig = memory_rig()
    bodies = rig.send_many(60, size=rng.choice((20, 150, 300)))
    entries = [rig.store.reader.entry(rig.store.queue("Topic", 0), number) or (0, 0, 0) for number in range(60)]
    end = rig.store.end
    end_as(rig, rng.choice(ENDINGS))
    ruined = set()
    for _ in range(rng.randrange(1, 5)):
        start = rng.randrange(end)
        for at in range(start, min(start + rng.choice((1, 20, 500)), end)):
            rig.set_log(at % 4096, rng.randbytes(1), at - at % 4096)
            ruined.add(at)
    touched = {number for number, entry in enumerate(entries) if ruined & set(range(entry[0], entry[0] + entry[1]))}
    rig.open(recover=Recover.SKIP, thorough=True)
    kept = places(rig)
    for _ in range(2):
        assert set(range(60)) - kept.keys() <= touched | ({59} if 59 not in kept else set())
        assert all(body == bodies[number] for number, body in kept.items() if number not in touched)
        rig.kill()
        rig.open()
        assert places(rig) == kept
    assert doctor(rig) == []


def test_log_files_of_a_wrong_setting_are_never_changed(rig: Rig) -> None:
    rig.send_many(40, size=300)
    rig.close()
    for recover in (Recover.SKIP, Recover.CUT):
        for size in (2048, 1 << 20):
            failure = damaged(rig, recover=recover, mapped_file_size_commit_log=size)
            assert "mappedFileSizeCommitLog" in failure.remedy


@pytest.mark.parametrize("longest", [184, 200, 211, 212])
def test_long_damage_becomes_several_blank_records(monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    """The last one has the size of a record too."""
    monkeypatch.setattr("mqproto.engine.store.recovery.damage._LONGEST", longest)
    rig = memory_rig()
    bodies = rig.send_many(8)
    bad = rig.store.reader.entry(rig.store.queue("Topic", 0), 4)
    assert bad is not None
    assert bad[1] == 212
    rig.close()
    rig.set_log(bad[0] + 90, b"?")
    rig.open(recover=Recover.SKIP)
    rig.reopen()
    assert places(rig) == {number: body for number, body in enumerate(bodies) if number != 4}
    assert doctor(rig) == []
