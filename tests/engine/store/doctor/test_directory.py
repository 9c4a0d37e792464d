"""Looking at a directory: what is found without being told, and that nothing is changed by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles, MemoryFiles
from mqproto.engine.store.doctor import Stop, Walk, open_directory
from mqproto.engine.store.doctor.views import log
from mqproto.engine.store.errors import StoreUnreadable
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig
from tests.golden.golden import GOLDEN, VERSIONS


def tree(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(root.rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_directories_are_read_as_they_are(version: str, kind: str, tmp_path: Path) -> None:
    sample = GOLDEN.store(version, kind)
    root = sample.unpack(tmp_path)
    before = tree(root)
    directory = open_directory(DiskFiles(), str(root))
    assert (directory.owner, directory.clean) == (None, kind == "clean")
    assert (directory.log.file_size, directory.queue_file_size) == (1 << 20, 2000)
    walk = Walk(directory.log)
    offsets = {offset for offset, _ in walk.records(directory.log.start, directory.log.limit)}
    assert walk.end == directory.end()
    assert walk.stop is Stop.NOTHING
    for expected in sample.expected["messages"]:
        assert expected["physicalOffset"] in offsets
        entry = directory.queue(expected["topic"], expected["queueId"]).entry(expected["queueOffset"])
        assert kind == "crashed" or (
            entry is not None and entry[:2] == (expected["physicalOffset"], expected["storeSize"])
        )
    for index in directory.index_files():
        assert (index.slots, index.entries_max) == (500, 2000)
    assert directory.topics()
    directory.close()
    assert tree(root) == before


def test_records_of_any_size_are_walked_over_file_borders(make_rig: MakeRig) -> None:
    rig = make_rig(mapped_file_size_commit_log=3 << 20, max_message_size=2_500_000)
    sent = [rig.send(body=bytes(size)) for size in (10, 2_200_000, 900_000, 5, 2_400_000)]
    sent += [rig.send(body=bytes(70_000)) for _ in range(40)]
    directory = open_directory(rig.files, rig.root)
    walk = Walk(directory.log)
    assert [offset for offset, _ in walk.records(0, directory.log.limit)] == sent
    assert (walk.end, walk.stop) == (rig.store.end, Stop.NOTHING)
    for number, offset in enumerate(sent):
        assert directory.log.search(offset) == offset
        record = directory.log.record(offset)
        assert record is not None
        following = [each for each in sent if each > offset]
        assert directory.log.search(offset + 1) == (following[0] if following else -1), number
    directory.close()


def test_a_running_broker_is_seen(rig: Rig) -> None:
    assert open_directory(rig.files, rig.root).running
    rig.close()
    directory = open_directory(rig.files, rig.root)
    assert (directory.running, directory.clean, directory.whole) == (False, True, True)
    rig.open()


def test_slots_of_an_index_are_found_out(make_rig: MakeRig) -> None:
    for slots, entries in ((100, 400), (7, 400), (1000, 50)):
        rig = make_rig(max_hash_slot_num=slots, max_index_num=entries)
        rig.send()
        rig.send_many(30)
        rig.reopen()
        seen = [
            (index.slots, index.entries_max, index.count, index.find("Topic", "Topic-7"))
            for index in open_directory(rig.files, rig.root).index_files()
        ]
        assert seen == [(slots, entries, 31, [rig.read()[8].physical_offset])]


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for name, why in (("none", "no such directory"), ("file", "it is a file"), ("empty", "not a data directory")):
        with pytest.raises(StoreUnreadable, match=why):
            open_directory(DiskFiles(), str(tmp_path / name))


def test_a_directory_that_may_not_be_read(rig: Rig) -> None:
    class Closed(MemoryFiles):
        def names(self, folder: str) -> list[str]:
            raise PermissionError(13, "Permission denied", folder)

    files = Closed()
    files.make_folder("/store/commitlog")
    with pytest.raises(StoreUnreadable, match=r"/store.*Permission denied"):
        open_directory(files, "/store")


def test_a_record_is_found_wherever_the_windows_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.send(body=b"x" * 200)
    wanted = rig.send()
    rig.close()
    for window in range(64, 128):
        monkeypatch.setattr(log, "_WINDOW", window)
        directory = open_directory(rig.files, rig.root)
        assert directory.log.search(1) == wanted, window
        directory.close()
    rig.open()
