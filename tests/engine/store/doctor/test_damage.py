"""Damage of every kind on a small directory, one at a time: each is found, at its place, in words that name it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from mqproto.engine.store import ConfigFile, MemoryFiles
from mqproto.engine.store.doctor import Finding, Report, check
from mqproto.engine.store.layout import BLANK, ENTRY, INDEX_ENTRY, INDEX_HEAD
from mqproto.wire.names import SCHEDULE_TOPIC
from tests.engine.store.doctor.test_check import fill
from tests.engine.store.harness import START, Rig

INDEX_ENTRIES = 40 + 4 * 100


@pytest.fixture
def rig() -> Rig:
    """A directory in memory with 72 messages in several files, stopped in an orderly way."""
    rig = Rig(MemoryFiles(forgetful=True), "/store")
    ConfigFile(f"{rig.root}/config/topics.json", rig.files).save(
        '{"topicConfigTable":{"Orders":{}},"dataVersion":{"counter":1}}'
    )
    fill(rig)
    rig.close()
    return rig


def checked(rig: Rig, limit: int = 100) -> Report:
    return check(rig.files, rig.root, limit=limit)


def the_finding(rig: Rig) -> Finding:
    report = checked(rig)
    assert report.count == len(report.findings) == 1, report.findings
    return report.findings[0]


def places(rig: Rig, topic: str = "Orders", queue_id: int = 1) -> list[tuple[int, int, int]]:
    """The entries of a queue."""
    data = b"".join(
        rig.files.read(f"{rig.root}/consumequeue/{topic}/{queue_id}/{name}")
        for name in rig.files.names(f"{rig.root}/consumequeue/{topic}/{queue_id}")
    )
    return [entry for entry in ENTRY.iter_unpack(data) if entry[1]]


def in_log(rig: Rig, physical: int, at: int, data: bytes) -> None:
    """Overwrite bytes of the record at a physical offset."""
    rig.set_log(physical % 4096 + at, data, physical - physical % 4096)


def set_entry(rig: Rig, place: int, entry: bytes, queue: str = "Orders/1") -> None:
    rig.set_bytes(f"consumequeue/{queue}/{place // 10 * 200:020d}", place % 10 * 20, entry)


def index_path(rig: Rig) -> str:
    return f"index/{rig.files.names(f'{rig.root}/index')[0]}"


def index_entry(rig: Rig, number: int) -> tuple[int, int, int, int]:
    data = rig.files.read(f"{rig.root}/{index_path(rig)}")
    found: tuple[int, int, int, int] = INDEX_ENTRY.unpack_from(data, INDEX_ENTRIES + 20 * number)
    return found


def set_index_entry(rig: Rig, number: int, entry: tuple[int, int, int, int]) -> None:
    rig.set_bytes(index_path(rig), INDEX_ENTRIES + 20 * number, INDEX_ENTRY.pack(*entry))


def test_it_is_clean(rig: Rig) -> None:
    report = checked(rig)
    assert (report.count, report.notes, report.configs) == (0, [], 1)


# --- the log ---


def test_a_body_that_changed(rig: Rig) -> None:
    physical = places(rig, queue_id=0)[2][0]
    in_log(rig, physical, 90, b"?")
    finding = the_finding(rig)
    assert (finding.offset, finding.path) == (physical, f"{rig.root}/commitlog/{physical - physical % 4096:020d}")
    assert "checksum" in finding.what
    assert "--recover" in finding.advice


@pytest.mark.parametrize(
    ("at", "data", "word"),
    [
        (0, struct.pack(">i", 92), "its lengths do not add up"),
        (0, struct.pack(">i", 1 << 30), "its size of 1073741824 bytes cannot be"),
        (0, struct.pack(">i", -5), "its size of -5 bytes cannot be"),
        (4, b"\x12\x34\x56\x78", "the magic 0x12345678 is none of a record"),
        (4, b"\xcb\xd4\x31\x94", "the magic 0xcbd43194 is none of a record"),
        (28, struct.pack(">q", 77), "it claims to lie at offset 77"),
        (84, struct.pack(">i", 1 << 20), "its lengths do not add up"),
        (0, bytes(120), "nothing but zeros"),
    ],
)
def test_a_record_that_is_none(rig: Rig, at: int, data: bytes, word: str) -> None:
    entry = places(rig, queue_id=0)[3]
    in_log(rig, entry[0], at, data)
    report = checked(rig)
    finding = report.findings[0]
    assert finding.offset == entry[0]
    assert word in finding.what
    assert f"the next good one begins {entry[1]} bytes further on, at {entry[0] + entry[1]}" in finding.what
    assert any("leads to no message" in finding.what for finding in report.findings)
    assert any("where no message begins" in finding.what for finding in report.findings)
    assert report.records == 71


@pytest.mark.parametrize(
    ("at", "data", "word"),
    [
        (12, struct.pack(">i", -1), "claims place 2 of queue -1"),
        (56, struct.pack(">q", 0), "claims to be stored at 0"),
        (20, struct.pack(">q", -9), "claims place -9 of queue 0"),
    ],
)
def test_a_head_that_cannot_be_true(rig: Rig, at: int, data: bytes, word: str) -> None:
    physical = places(rig, queue_id=0)[2][0]
    in_log(rig, physical, at, data)
    finding = checked(rig).findings[0]
    assert finding.offset == physical
    assert word in finding.what


@pytest.mark.parametrize("name", [b"Ord/rs", b"Ord\\rs", b"Ord\xffrs"])
def test_a_topic_that_is_no_name(rig: Rig, name: bytes) -> None:
    physical, _, _ = places(rig, queue_id=0)[2]
    at = rig.log(physical - physical % 4096).find(b"Orders", physical % 4096)
    rig.set_log(at, name, physical - physical % 4096)
    assert "no topic has the name" in checked(rig).findings[0].what


def test_a_missing_file_of_the_log(rig: Rig) -> None:
    rig.files.remove(f"{rig.root}/commitlog/{4096:020d}")
    report = checked(rig)
    assert "1 files are missing before it" in report.findings[0].what
    assert any("its file is missing" in finding.what for finding in report.findings)


def test_a_last_file_that_is_missing(rig: Rig) -> None:
    rig.files.remove(f"{rig.root}/commitlog/{8192:020d}")
    report = checked(rig)
    assert any("leads to no message" in finding.what for finding in report.findings)
    assert any("were durable, but the last one" in finding.what for finding in report.findings)


def test_files_of_odd_size(rig: Rig) -> None:
    for path, offset in ((f"commitlog/{4096:020d}", 4096), ("consumequeue/Orders/1/00000000000000000000", None)):
        whole = rig.files.read(f"{rig.root}/{path}")
        rig.files.write(f"{rig.root}/{path}", whole[: len(whole) // 2])
        finding = checked(rig).findings[0]
        assert (finding.path, finding.offset) == (f"{rig.root}/{path}", None)
        assert f"it has {len(whole) // 2} bytes and not {len(whole)}" in finding.what
        rig.files.write(f"{rig.root}/{path}", whole)
        assert checked(rig).clean, offset


def test_what_does_not_belong_there_is_noted(rig: Rig) -> None:
    for path in ("commitlog/notes.txt", "consumequeue/Orders/1/old", "index/readme"):
        rig.files.write(f"{rig.root}/{path}", b"?")
    report = checked(rig)
    assert report.clean
    assert [note.partition(" ")[0].removeprefix(f"{rig.root}/") for note in report.notes] == [
        "commitlog/notes.txt",
        "consumequeue/Orders/1/old",
        "index/readme",
    ]


def test_bytes_behind_the_end(rig: Rig) -> None:
    end = checked(rig).end
    in_log(rig, end, 0, b"left over")
    report = checked(rig)
    assert report.clean
    assert "9 bytes behind the end" in report.notes[0]
    assert "left over" in report.notes[0]
    rig.files.write(f"{rig.root}/abort", b"")
    assert "a torn record" in checked(rig).notes[0]


def test_old_records_behind_the_end_are_left_over(rig: Rig) -> None:
    """Apache's broker does not clear what it cuts off; a record that is not older would belong to the log."""
    end = checked(rig).end
    place = end + 40
    old = rig.log()[: places(rig, queue_id=0)[0][1]]
    for stored, count in ((START - 1, 0), (START * 2, 1)):
        moved = old[:28] + place.to_bytes(8, "big") + old[36:56] + stored.to_bytes(8, "big") + old[64:]
        in_log(rig, place, 0, moved)
        report = checked(rig)
        assert report.by_part.get("log", 0) == count
        assert any("left over" in note for note in report.notes) is (count == 0)


def test_a_torn_record_after_a_crash_is_no_fault(rig: Rig) -> None:
    """Queue and index entries that lead to it are none either: the next start cuts all of them."""
    last = places(rig, SCHEDULE_TOPIC)[-1]
    in_log(rig, last[0], 100, bytes(last[1] - 100))
    assert not checked(rig).clean
    rig.files.write(f"{rig.root}/abort", b"")
    rig.files.write(f"{rig.root}/checkpoint", bytes(4096))
    report = checked(rig)
    assert report.findings == []
    assert any("a torn record" in note for note in report.notes)


# --- queues ---


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (
            lambda entry: ENTRY.pack(entry[0] + 1, entry[1], entry[2]),
            "place 3 of Orders/1 has an entry that leads elsewhere",
        ),
        (
            lambda entry: ENTRY.pack(entry[0], entry[1] - 1, entry[2]),
            "place 3 of Orders/1 has an entry with another size",
        ),
        (
            lambda entry: ENTRY.pack(entry[0], entry[1], entry[2] ^ 1),
            "place 3 of Orders/1 has an entry with another tags code",
        ),
        (lambda entry: BLANK, "place 3 of Orders/1 has a blank entry"),
        (lambda entry: bytes(20), "place 3 of Orders/1 has no entry"),
        (lambda entry: ENTRY.pack(-1, -1, 0), "place 3 of Orders/1 has an entry that leads elsewhere"),
    ],
)
def test_an_entry_that_is_wrong(rig: Rig, change: Callable[[tuple[int, int, int]], bytes], word: str) -> None:
    entry = places(rig)[3]
    set_entry(rig, 3, change(entry))
    finding = the_finding(rig)
    assert (finding.path, finding.offset) == (f"{rig.root}/consumequeue/Orders/1/{0:020d}", 60)
    assert finding.what == f"{word}; the message is at offset {entry[0]}"
    assert "store repair" in finding.advice


def test_a_delay_entry_with_the_hash_of_the_tag(rig: Rig) -> None:
    """As 4.9.7 makes them in recovery: it delivers such messages at once (docs/protocol/store.md 8.6)."""
    entry = places(rig, SCHEDULE_TOPIC)[3]
    for code in (100, START - 1, START * 2, entry[2] + 1):
        set_entry(rig, 3, ENTRY.pack(*entry[:2], code), f"{SCHEDULE_TOPIC}/1")
        assert "has an entry with another tags code" in the_finding(rig).what


def test_another_table_of_delays_is_noted(rig: Rig) -> None:
    for place, entry in enumerate(places(rig, SCHEDULE_TOPIC)):
        set_entry(rig, place, ENTRY.pack(*entry[:2], entry[2] + 55_000), f"{SCHEDULE_TOPIC}/1")
    report = checked(rig)
    assert report.clean
    assert "delay level 2 lasts 60 s here" in report.notes[0]


def test_a_queue_that_ends_too_early(rig: Rig) -> None:
    entries = places(rig)
    for place in range(7, 10):
        set_entry(rig, place, bytes(20))
    rig.files.remove(f"{rig.root}/consumequeue/Orders/1/{200:020d}")
    finding = the_finding(rig)
    assert finding.offset == 140
    assert "the queue ends at place 7, but the log has 9 more of its messages" in finding.what
    assert str(entries[7][0]) in finding.what
    rig.files.write(f"{rig.root}/abort", b"")
    report = checked(rig)
    assert report.clean
    assert report.notes == [f"Orders/1 is 9 messages behind the log, from the one at offset {entries[7][0]} on"]


def test_a_queue_that_goes_on_behind_the_log(rig: Rig) -> None:
    count = len(places(rig))
    set_entry(rig, count, ENTRY.pack(9_000, 100, 0))
    assert f"place {count} of Orders/1: it leads to no message of its queue" in the_finding(rig).what
    set_entry(rig, count, ENTRY.pack(90_000, 100, 0))
    assert not checked(rig).clean
    rig.files.write(f"{rig.root}/abort", b"")
    assert checked(rig).clean


def test_a_missing_queue(rig: Rig) -> None:
    rig.files.remove_tree(f"{rig.root}/consumequeue/Orders/1")
    finding = the_finding(rig)
    assert finding.path == f"{rig.root}/consumequeue/Orders/1"
    assert "the queue is missing; the log has 16 of its messages" in finding.what


def test_a_topic_that_was_deleted_is_noted(rig: Rig) -> None:
    rig.files.remove_tree(f"{rig.root}/consumequeue/Half")
    report = checked(rig)
    assert report.clean
    assert report.notes == ["Half/0 is gone, as its topic is; the log still has 12 of its messages"]


def test_a_missing_file_of_a_queue(rig: Rig) -> None:
    rig.files.remove(f"{rig.root}/consumequeue/Orders/1/{0:020d}")
    assert "places 0 to 9 of Orders/1 have no entry" in the_finding(rig).what


def test_blank_places_without_messages_are_no_fault(rig: Rig) -> None:
    count = len(places(rig))
    set_entry(rig, count, ENTRY.pack(8_000, 0x7FFFFFFF, 0))
    assert checked(rig).clean


# --- index ---


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (0, 77, {"which has no such key"}),
        (1, 5, {"is not in the order of the log"}),
        (1, 1 << 40, {"is not in the order of the log"}),
        (2, 500, {"has a time that is not its message's"}),
        (3, 19, {"has a wrong link"}),
        (3, 20, {"has a wrong link"}),
        (3, 5000, {"has a wrong link"}),
    ],
)
def test_an_index_entry_that_is_wrong(rig: Rig, field: int, value: int, words: set[str]) -> None:
    entry = list(index_entry(rig, 20))
    entry[field] = value
    set_index_entry(rig, 20, (entry[0], entry[1], entry[2], entry[3]))
    report = checked(rig)
    assert report.count
    for word in words:
        assert any(
            word in finding.what and finding.path == f"{rig.root}/{index_path(rig)}" for finding in report.findings
        ), report.findings


def test_an_index_entry_of_a_record_that_is_gone(rig: Rig) -> None:
    physical = index_entry(rig, 20)[1]
    in_log(rig, physical, 4, b"none")
    assert any(
        f"leads to offset {physical} where no message begins" in finding.what for finding in checked(rig).findings
    )


def test_a_slot_that_leads_elsewhere(rig: Rig) -> None:
    rig.set_bytes(index_path(rig), 40 + 4 * 50, struct.pack(">i", 3))
    finding = the_finding(rig)
    assert finding.offset == 240
    assert "slot 50 leads to entry 3" in finding.what


@pytest.mark.parametrize(
    ("number", "value", "word"),
    [
        (0, 5, "first message"),
        (1, 5, "last message"),
        (2, 5, "first offset"),
        (3, 5, "last offset"),
        (4, 7, "slots in use"),
        (5, 60, "its newest one is"),
    ],
)
def test_a_head_that_is_wrong(rig: Rig, number: int, value: int, word: str) -> None:
    head = list(INDEX_HEAD.unpack_from(rig.files.read(f"{rig.root}/{index_path(rig)}")))
    head[number] = value
    rig.set_bytes(index_path(rig), 0, INDEX_HEAD.pack(*head))
    for pair in (None, (100, 400)):
        report = check(rig.files, rig.root, index_pair=pair)
        assert any(word in finding.what for finding in report.findings), report.findings


def test_an_index_of_a_strange_size(rig: Rig) -> None:
    path = f"{rig.root}/{index_path(rig)}"
    rig.files.write(path, rig.files.read(path)[:1001])
    report = checked(rig)
    assert "cannot be found out" in report.findings[0].what


def test_a_missing_index_is_noted(rig: Rig) -> None:
    rig.files.remove_tree(f"{rig.root}/index")
    report = checked(rig)
    assert report.clean
    assert "there is no index; 48 messages have keys" in report.notes[0]


# --- the rest ---


def test_configuration_files(rig: Rig) -> None:
    path = f"{rig.root}/config/topics.json"
    for text, word in ((b"{", "there is no backup"), (b"[]", "it is no table")):
        rig.files.write(path, text)
        finding = the_finding(rig)
        assert finding.path == path
        assert word in finding.what
    rig.files.write(path, b"{")
    rig.files.write(path + ".bak", b'{"topicConfigTable":{}}')
    assert "its backup is used" in the_finding(rig).what


def test_the_checkpoint(rig: Rig) -> None:
    path = f"{rig.root}/checkpoint"
    rig.files.write(path, bytes(10))
    assert "too short" in the_finding(rig).what
    rig.files.write(path, struct.pack(">qqq", START * 2, START, 0))
    assert "were durable" in the_finding(rig).what
    rig.files.remove(path)
    report = checked(rig)
    assert report.clean
    assert "is missing" in report.notes[0]


def test_findings_beyond_the_limit_are_counted(rig: Rig) -> None:
    for place in (1, 3, 5, 7):
        set_entry(rig, place, bytes(20))
    report = checked(rig, limit=1)
    assert (report.count, len(report.findings)) == (4, 1)
