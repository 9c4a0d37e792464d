"""What an export takes along besides messages, what it leaves behind and says so, and what an import makes of it."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.store import DiskFiles, MemoryFiles
from mqproto.engine.store.doctor.exportfile import ExportDamaged, ExportReader
from mqproto.engine.store.doctor.exporting import ExportRefused
from mqproto.engine.store.doctor.importing import Import
from mqproto.engine.store.doctor.planning import ImportRefused
from mqproto.engine.store.doctor.views.tables import TableFiles, Tables
from mqproto.wire.bodies import GroupConfig, TopicConfig
from tests.engine.store.doctor.moving import NOW, contents, export, move, opened, plan, run, small
from tests.engine.store.harness import Rig, memory_rig
from tests.golden.golden import GOLDEN, VERSIONS


def save(rig_or_root: Rig | str, files: MemoryFiles | Any, **changes: Any) -> None:
    """Replace the tables of a directory."""
    root = rig_or_root if isinstance(rig_or_root, str) else rig_or_root.root
    tables = Tables()
    for name, queues in changes.get("topics", {}).items():
        tables.topics.topics[name] = TopicConfig(name, queues, queues, perm=changes.get("perm", 6))
    for name, retries in changes.get("groups", {}).items():
        tables.groups.groups[name] = GroupConfig(name, retry_max_times=retries)
    tables.offsets.offsets = changes.get("offsets", {})
    table_files = TableFiles(files, root)
    table_files.load()
    table_files.save(tables, topics=True, groups=True, offsets=True)


def source() -> Rig:
    rig = memory_rig()
    rig.send_many(10, "A")
    rig.send_many(10, "B")
    rig.close()
    offsets = {"A@g": {0: 7, 1: -1}, "A@h": {0: 10}, "B@g": {0: 3}, "%RETRY%g@g": {0: 0}}
    save(rig, rig.files, topics={"A": 4, "B": 2}, groups={"g": 3, "h": 4, "i": 5}, offsets=offsets)
    return rig


def test_topics_bring_their_groups_and_offsets() -> None:
    rig = source()
    _, made = export(rig.files, rig.root, "A")
    assert sorted(made.head.topics) == ["A"]
    assert sorted(made.head.groups) == ["g", "h"]
    assert made.head.offsets == {("A", "g"): {0: 7}, ("A", "h"): {0: 10}}
    data, made = export(rig.files, rig.root, "A", "B", groups=["g", "i"])
    assert sorted(made.head.groups) == ["g", "i"]
    assert made.head.offsets == {("A", "g"): {0: 7}, ("B", "g"): {0: 3}}
    move(rig.files, "/other", data)
    tables = TableFiles(rig.files, "/other").load()
    assert {name: each.write_queues for name, each in tables.topics.topics.items()} == {"A": 4, "B": 2}
    assert {name: each.retry_max_times for name, each in tables.groups.groups.items()} == {"g": 3, "i": 5}
    assert tables.offsets.offsets == {"A@g": {0: 7}, "B@g": {0: 3}}
    assert (tables.topics.data_version.counter, tables.topics.data_version.timestamp) == (1, NOW)


def test_what_the_target_has_stays() -> None:
    rig = source()
    data, _ = export(rig.files, rig.root, "A", "B")
    save(
        "/other",
        rig.files,
        topics={"A": 8, "C": 1},
        perm=4,
        groups={"g": 9},
        offsets={"A@g": {0: 8}, "A@h": {0: 5}, "C@g": {0: 1}},
    )
    rig.files.make_folder("/other/commitlog")
    made = move(rig.files, "/other", data)
    assert "topic A is configured otherwise here, and stays so" in made.notes
    assert "group g is configured otherwise here, and stays so" in made.notes
    tables = TableFiles(rig.files, "/other").load()
    assert {name: (each.read_queues, each.perm) for name, each in tables.topics.topics.items()} == {
        "A": (8, 4),
        "B": (2, 6),
        "C": (1, 4),
    }
    assert {name: each.retry_max_times for name, each in tables.groups.groups.items()} == {"g": 9, "h": 4}
    assert tables.offsets.offsets == {"A@g": {0: 8}, "A@h": {0: 10}, "B@g": {0: 3}, "C@g": {0: 1}}


def test_a_topic_gets_the_queues_that_its_messages_need() -> None:
    rig = memory_rig()
    rig.send("A", queue_id=5)
    rig.send("New", queue_id=2)
    rig.close()
    data, _ = export(rig.files, rig.root, "A", "New")
    save("/other", rig.files, topics={"A": 2})
    rig.files.make_folder("/other/commitlog")
    made = move(rig.files, "/other", data)
    assert "topic A gets 6 queues to read, it has 2" in made.notes
    tables = TableFiles(rig.files, "/other").load()
    assert {name: (each.read_queues, each.write_queues) for name, each in tables.topics.topics.items()} == {
        "A": (6, 2),
        "New": (3, 3),
    }


def test_a_group_is_never_further_than_the_messages() -> None:
    rig = memory_rig()
    for _ in range(10):
        rig.wall += 10
        rig.send("A")
    middle = rig.read("A")[4].store_time
    rig.close()
    save(rig, rig.files, offsets={"A@g": {0: 9}, "A@h": {0: 2}})
    data, _ = export(rig.files, rig.root, "A", to_time=middle)
    move(rig.files, "/other", data)
    assert TableFiles(rig.files, "/other").load().offsets.offsets == {"A@g": {0: 4}, "A@h": {0: 2}}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_stays_behind_is_counted(version: str, tmp_path: Path) -> None:
    """Two messages of two hours wait in the delay queues, and one transaction was left open."""
    root = str(GOLDEN.store(version, "clean").unpack(tmp_path))
    _, made = export(DiskFiles(), root, "Later", "Bought", "Retried")
    assert [note.split(":")[0] for note in made.notes] == [
        "2 delayed messages still wait in SCHEDULE_TOPIC_XXXX and are not taken",
        "1 half messages of open transactions are not taken",
    ]
    _, made = export(DiskFiles(), root, "Orders")
    assert made.notes == []


def test_messages_to_be_retried_are_named() -> None:
    rig = source()
    rig.open()
    rig.send_many(3, "%RETRY%g")
    rig.close()
    _, made = export(rig.files, rig.root, "A")
    assert made.notes == ["3 messages wait in %RETRY%g for group g: name that topic too to take them along"]
    _, made = export(rig.files, rig.root, "A", "%RETRY%g")
    assert (made.notes, made.messages) == ([], 13)


def test_damage_stops_an_export_unless_it_is_to_be_left_out() -> None:
    rig = source()
    rig.set_log(100, b"\xff")
    with pytest.raises(ExportRefused, match="message 0 of A/0, at 0 of the log: its record is damaged; --skip-damaged"):
        export(rig.files, rig.root, "A")
    data, made = export(rig.files, rig.root, "A", skip_damaged=True)
    assert (made.messages, made.skipped, len(made.unreadable)) == (9, 1, 1)
    move(rig.files, "/other", data)
    there = opened(rig.files, "/other")
    assert [each.queue_offset for each in there.read("A")] == list(range(1, 10))


def test_a_checksum_of_the_old_place_stays_behind() -> None:
    """5.x may put a checksum of the whole record into its properties (docs/protocol/store.md 2.2)."""
    rig = memory_rig()
    rig.send("A", more={"a": "b", "__CRC32#": "0123456789"})
    rig.send("A", more={"a": "b"})
    queue = rig.store.queue("A", 0)
    text = b"a\x01b\x02__CRC32#\x010123456789\x02"
    rig.store.writer.append(queue, b"body", text, 0, 0, 0, bytes(8), bytes(8), 0, 0, 0, None, None, rig.wall)
    rig.close()
    data, _ = export(rig.files, rig.root, "A")
    move(rig.files, "/other", data)
    assert plan(rig.files, "/other", data).empty
    there = opened(rig.files, "/other")
    assert [each.properties for each in there.read("A")] == [
        {"a": "b", "__CRC32#": "0123456789"},
        {"a": "b"},
        {"a": "b"},
    ]
    assert bytes(there.store.record(there.read("A")[2].physical_offset) or b"").endswith(b"\x00\x04a\x01b\x02")


def test_a_full_disk_ends_an_import_that_can_go_on() -> None:
    rig = memory_rig()
    rig.send_many(200, "A", size=200)
    before = contents(rig.store, rig)
    rig.close()
    data, _ = export(rig.files, rig.root, "A")
    files = MemoryFiles(space=40_000)
    made = plan(files, "/other", data)
    importing = Import(files, small("/other"), ExportReader(io.BytesIO(data).read), made, wall=NOW)
    with pytest.raises(ImportRefused, match="was not taken: the disk is full"):
        for _ in importing.run():
            pass
    importing.close()
    assert not files.exists("/other/config/topics.json")
    files.space = None
    again = plan(files, "/other", data)
    assert 0 < again.queues[0].present < 200
    run(files, "/other", data, again)
    there = opened(files, "/other")
    assert contents(there.store, there) == before


def test_a_failing_disk_is_no_success() -> None:
    rig = source()
    data, _ = export(rig.files, rig.root, "A")
    files = MemoryFiles(forgetful=True)
    made = plan(files, "/other", data)
    importing = Import(files, small("/other"), ExportReader(io.BytesIO(data).read), made, wall=NOW)

    def fail(what: str, path: str) -> None:
        if what == "sync" and "/commitlog/" in path:
            raise OSError(errno.EIO, "Input/output error", path)

    files.before_change = fail
    with pytest.raises(ImportRefused, match="not durable"):
        for _ in importing.run():
            pass
    assert not files.exists("/other/config/topics.json")


def test_a_file_that_changes_between_looking_and_importing() -> None:
    rig = source()
    data, _ = export(rig.files, rig.root, "A")
    another, _ = export(rig.files, rig.root, "B")
    made = plan(rig.files, "/other", data)
    with pytest.raises(ImportRefused, match="not the export"):
        Import(rig.files, small("/other"), ExportReader(io.BytesIO(another).read), made, wall=NOW)
    with pytest.raises(ExportDamaged):
        run(rig.files, "/other", data[:-10], made)
    there = opened(rig.files, "/other")
    assert len(there.read("A")) == 10
    there.close()
    with pytest.raises(ImportRefused, match="is not what it was"):
        run(rig.files, "/other", data, made)
