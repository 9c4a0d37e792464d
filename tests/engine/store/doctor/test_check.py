"""A check of directories that nothing is wrong with: no finding, whoever wrote them and however the writer ended."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles, MemoryFiles
from mqproto.engine.store.doctor import Check, check, open_directory
from mqproto.wire.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from mqproto.wire.names import SCHEDULE_TOPIC
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import HOST_V6, Rig
from tests.golden.golden import GOLDEN, VERSIONS


def fill(rig: Rig, rounds: int = 12) -> int:
    """Messages of every kind, over several files; gives their number."""
    for number in range(rounds):
        rig.send("Orders", b"x" * (number * 40), number % 3, tags="eu", uniq_key=f"{number:032X}", keys="a b-ß c")
        rig.send("Orders", b"", 1, born_host=HOST_V6, store_host=HOST_V6 if number % 2 else bytes(8))
        rig.send("Half", sys_flag=TRANSACTION_PREPARED, keys="half")
        rig.send("Half", sys_flag=TRANSACTION_ROLLBACK, keys="gone")
        rig.send("Half", sys_flag=TRANSACTION_COMMIT, keys="whole")
        later = rig.wall + 5000
        rig.send(
            SCHEDULE_TOPIC,
            queue_id=1,
            tags="eu",
            keys="later",
            more={"DELAY": "2", "REAL_TOPIC": "Orders"},
            tags_code=later,
        )
        rig.wall += 1500
    return 6 * rounds


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_directories_are_clean(version: str, kind: str, tmp_path: Path) -> None:
    sample = GOLDEN.store(version, kind)
    report = check(DiskFiles(), str(sample.unpack(tmp_path)))
    assert report.findings == []
    assert report.records >= len(sample.expected["messages"])
    assert report.keys > report.records
    if kind == "clean":
        assert report.notes == []
        assert report.entries == report.records


def test_our_own_are_clean(make_rig: MakeRig) -> None:
    rig = make_rig()
    count = fill(rig)
    rig.close()
    report = check(rig.files, rig.root)
    assert (report.findings, report.notes) == ([], [])
    assert (report.records, report.entries, report.begin) == (count, count - count // 3, 0)
    assert (report.queues, report.index_files) == (5, 1)
    assert report.keys == count // 6 * 7
    rig.open()
    assert report.end == rig.store.end


def test_beside_a_running_broker_what_is_behind_is_noted(make_rig: MakeRig) -> None:
    rig = make_rig()
    count = fill(rig)
    report = check(rig.files, rig.root)
    assert report.findings == []
    assert report.records == count
    assert any("behind the log" in note for note in report.notes)
    rig.settle()
    count += fill(rig)
    report = check(rig.files, rig.root)
    assert (report.findings, report.records) == ([], count)


def test_after_a_crash_and_after_the_next_start(make_rig: MakeRig) -> None:
    rig = make_rig()
    count = fill(rig)
    rig.settle()
    count += fill(rig, 3)
    rig.kill()
    assert check(rig.files, rig.root).findings == []
    rig.open()
    rig.close()
    report = check(rig.files, rig.root)
    assert (report.findings, report.notes, report.records) == ([], [], count)
    rig.open()


def test_a_deleted_topic_that_came_back(make_rig: MakeRig) -> None:
    rig = make_rig()
    fill(rig)
    rig.settle()
    rig.store.delete_queues(lambda queue: queue.topic == "Orders")
    rig.settle()
    fill(rig, 3)
    rig.close()
    report = check(rig.files, rig.root)
    assert (report.findings, report.notes) == ([], [])
    rig.open()


def test_a_log_that_begins_late(make_rig: MakeRig) -> None:
    """Old files were deleted, those of queues and index not yet."""
    rig = make_rig()
    fill(rig, 40)
    rig.close()
    for start in (0, 4096):
        rig.files.remove(f"{rig.root}/commitlog/{start:020d}")
    report = check(rig.files, rig.root)
    assert report.findings == []
    assert report.begin == 8192
    rig.open()
    rig.close()
    assert check(rig.files, rig.root).findings == []
    rig.open()


def test_full_index_files_and_other_slots(make_rig: MakeRig) -> None:
    rig = make_rig(max_hash_slot_num=11, max_index_num=40)
    rig.send_many(200)
    rig.close()
    report = check(rig.files, rig.root)
    assert (report.findings, report.notes, report.index_files, report.keys) == ([], [], 6, 200)
    rig.open()


def test_nothing_at_all(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.close()
    report = check(rig.files, rig.root)
    assert (report.findings, report.notes, report.records) == ([], [], 0)
    rig.open()


def test_progress_is_told() -> None:
    rig = Rig(MemoryFiles(), "/store", mapped_file_size_commit_log=1 << 20)
    for _ in range(20):
        rig.send(body=bytes(900_000))
    checking = Check(open_directory(rig.files, rig.root))
    steps = list(checking.run())
    assert len(steps) >= 4
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == steps[-1].total
    assert checking.report.clean


def test_units_of_the_extension(tmp_path: Path) -> None:
    """Those of 4.9.7, with the bitmap of its filters."""
    with tarfile.open(GOLDEN.root / "stores" / "store-4.9.7-extension.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    report = check(DiskFiles(), str(root))
    assert report.findings == []
    assert [note.partition(":")[0] for note in report.notes] == ["delay level 3 lasts 1 s here"]
    (path, *_) = sorted(
        path for path in (root / "consumequeue_ext").rglob("*") if path.is_file() and any(path.read_bytes())
    )
    data = bytearray(path.read_bytes())
    data[9] ^= 1  # the last byte of the first unit's tags code
    path.write_bytes(data)
    (finding,) = check(DiskFiles(), str(root)).findings
    assert "has an entry with another tags code" in finding.what
    path.unlink()
    report = check(DiskFiles(), str(root))
    assert report.clean
    assert any("units in consumequeue_ext are missing" in note for note in report.notes)
