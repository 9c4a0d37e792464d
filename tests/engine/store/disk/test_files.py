"""The file port: what disk and memory promise alike, and what takes the place of missing calls."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.store import DiskFiles, Files, MemoryFiles
from mqproto.engine.store.disk import system


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system and a folder in it."""
    if request.param == "disk":
        return DiskFiles(), str(tmp_path)
    files = MemoryFiles(forgetful=True)
    files.make_folder("/root")
    return files, "/root"


def test_folders_and_names(place: tuple[Files, str]) -> None:
    files, root = place
    assert files.names(f"{root}/none") == []
    files.make_folder(f"{root}/a/b")
    files.make_folder(f"{root}/a/b")
    files.write(f"{root}/a/two", b"2")
    files.write(f"{root}/a/one", b"1")
    assert files.names(f"{root}/a") == ["b", "one", "two"]
    assert files.names(f"{root}/a/one") == []
    assert [files.is_folder(f"{root}/{path}") for path in ("a", "a/b", "a/one", "x")] == [True, True, False, False]
    assert [files.exists(f"{root}/{path}") for path in ("a", "a/b", "a/one", "x")] == [True, True, True, False]
    files.rename(f"{root}/a/one", f"{root}/a/two")
    assert (files.read(f"{root}/a/two"), files.names(f"{root}/a")) == (b"1", ["b", "two"])
    files.write(f"{root}/a/two", b"longer")
    files.write(f"{root}/a/two", b"")
    assert files.size(f"{root}/a/two") == 0
    files.sync_folder(f"{root}/a")
    files.remove(f"{root}/a/two")
    files.remove(f"{root}/a/two")
    files.remove_tree(f"{root}/a")
    files.remove_tree(f"{root}/a")
    assert files.names(root) == []


@pytest.mark.parametrize("size", [5000, 2 << 20])
def test_file_has_its_length_and_is_zero(place: tuple[Files, str], size: int) -> None:
    files, root = place
    file = files.create(f"{root}/file", size)
    assert (file.size, files.size(f"{root}/file")) == (size, size)
    assert file.read(size - 3, 10) == bytes(3)
    assert file.next_data(size) == file.next_data(size + 5) == size
    file.write(100, b"written")
    view = file.view()
    assert bytes(view[100:107]) == b"written"
    view[4000:4004] = b"view"
    assert file.read(3998, 8) == b"\0\0view\0\0"
    assert file.next_data(0) <= 100
    file.allocate(0, size)
    assert file.read(100, 7) == b"written"
    file.sync()
    file.close()
    assert bytes(view[4000:4004]) == b"view", "a view stays valid"
    again = files.open(f"{root}/file")
    assert again.read(4000, 4) == b"view"
    assert again.clear(4001, size)
    assert not again.clear(4001, size)
    assert again.read(3998, 8) == b"\0\0v\0\0\0\0\0"
    again.close()
    longer = files.create(f"{root}/file", size + 10)
    assert (longer.size, longer.read(100, 7), longer.read(size, 20)) == (size + 10, b"written", bytes(10))
    longer.close()


def test_missing_files(place: tuple[Files, str]) -> None:
    files, root = place
    for action in (files.open, files.read, files.size):
        with pytest.raises(FileNotFoundError):
            action(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        files.create(f"{root}/none/file", 10)


def test_lock_is_given_once(place: tuple[Files, str]) -> None:
    files, root = place
    lock = files.lock(f"{root}/lock")
    assert lock is not None
    assert files.lock(f"{root}/lock") is None
    lock.release()
    lock.release()
    again = files.lock(f"{root}/lock")
    assert again is not None
    again.release()
    assert files.read(f"{root}/lock") == b"lock"


def test_facts_about_the_machine(tmp_path: Path) -> None:
    files = DiskFiles()
    assert (files.memory() or 0) > 1 << 20
    used, free = files.usage(str(tmp_path)) or (0, 0)
    assert used > 0
    assert free > 0
    assert files.usage(str(tmp_path / "none")) is None
    assert files.restarted_since(str(tmp_path / "none")) is None
    path = tmp_path / "file"
    path.write_bytes(b"")
    if Path("/proc/stat").exists():
        assert files.restarted_since(str(path)) is False
        os.utime(path, (1, 1))
        assert files.restarted_since(str(path)) is True
    os.utime(path, ns=(0, 1_800_000_000_123_456_789))
    assert files.modified(str(path)) == 1_800_000_000_123
    assert files.modified(str(tmp_path / "none")) is None


# --- where calls are missing ---


def no_call(*arguments: Any) -> None:
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


@pytest.mark.parametrize("missing", ["taken away", "refuses"])
def test_without_allocation_blocks_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "refuses":
        monkeypatch.setattr(os, "posix_fallocate", no_call, raising=False)
    else:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    file = DiskFiles().create(str(tmp_path / "file"), 4 << 20)
    file.write(5000, b"kept")
    file.allocate(4096, 2 << 20)
    file.sync()
    assert file.read(5000, 4) == b"kept"
    assert (tmp_path / "file").stat().st_blocks * 512 >= 2 << 20
    file.close()


def test_other_failures_of_allocation_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    file = DiskFiles().create(str(tmp_path / "file"), 1 << 20)
    with pytest.raises(OSError, match="No space"):
        file.allocate(0, 4096)
    file.close()


def test_without_fdatasync_the_whole_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    file = DiskFiles().create(str(tmp_path / "file"), 10)
    file.sync()
    file.close()
    assert len(synced) == 1


def many(root: Path) -> list[str]:
    paths = [str(root / f"file{number}") for number in range(100)]
    for path in paths:
        Path(path).touch()
    return paths


def test_many_files_are_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, paths, answers = DiskFiles(), many(tmp_path), [0, -1]
    asked: list[int] = []

    def sync_system(fd: int) -> int:
        asked.append(os.fstat(fd).st_ino)
        return answers.pop(0)

    monkeypatch.setattr("mqproto.engine.store.disk.system.sync_of_one_disk", lambda: sync_system)
    monkeypatch.setattr(os, "sync", lambda: None, raising=False)
    assert not files.sync_all(paths), "nobody watches for failures"
    lock = files.lock(f"{tmp_path}/lock")
    assert lock is not None
    assert not files.sync_all(paths[:10])
    assert not files.sync_all([*paths, "/elsewhere"])
    assert files.sync_all(paths)
    assert not files.sync_all(paths), "a failure, of these files or others: each has to be asked"
    assert asked == [tmp_path.stat().st_ino] * 2
    lock.release()
    assert not files.sync_all(paths)


def test_without_a_call_for_one_disk_everything_is_synced_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    files, paths = DiskFiles(), many(tmp_path)
    lock = files.lock(f"{tmp_path}/lock")
    assert lock is not None
    monkeypatch.setattr("mqproto.engine.store.disk.system.sync_of_one_disk", lambda: None)
    monkeypatch.setattr(os, "sync", lambda: calls.append("sync"), raising=False)
    assert not files.sync_all(paths)
    assert calls == ["sync"]
    monkeypatch.delattr(os, "sync")
    assert not files.sync_all(paths)
    assert not MemoryFiles().sync_all(paths)
    lock.release()


@pytest.mark.parametrize(
    ("release", "there"), [("5.7.19-generic", False), ("5.8.0", True), ("6.18.44-x", True), ("odd", False)]
)
def test_old_systems_do_not_tell_of_failures(monkeypatch: pytest.MonkeyPatch, release: str, there: bool) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux has the call")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", release, "", "")))
    assert (system.sync_of_one_disk() is not None) is there


def test_without_holes_every_byte_may_be_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DiskFiles().create(str(tmp_path / "file"), 1 << 20)
    monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    assert file.next_data(7) == 7
    assert not file.clear(0, 1 << 20)
    monkeypatch.setattr(os, "SEEK_DATA", 99, raising=False)
    assert file.next_data(7) == 7
    file.close()


def test_folder_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", no_call)
    DiskFiles().sync_folder(str(tmp_path))

    def denied(*arguments: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    DiskFiles().sync_folder(str(tmp_path))


# --- what memory forgets ---


def test_power_loss_keeps_what_was_synced() -> None:
    files = MemoryFiles(forgetful=True)
    files.make_folder("/d")
    files.sync_folder("/")
    for name in ("synced", "unnamed", "removed"):
        file = files.create(f"/d/{name}", 1024)
        file.write(0, b"one")
        file.sync()
        if name == "removed":
            files.sync_folder("/d")
    files.sync_folder("/d")
    late = files.create("/d/late", 10)
    late.write(0, b"late")
    late.sync()
    file = files.open("/d/synced")
    file.write(0, b"two")
    file.write(600, b"six")
    files.remove("/d/removed")
    dead = files.process_death()
    assert (dead.names("/d"), dead.read("/d/synced")[:3]) == (["late", "synced", "unnamed"], b"two")
    off = files.power_loss()
    assert (off.names("/d"), off.read("/d/synced")[:3]) == (["removed", "synced", "unnamed"], b"one")
    mixed = files.power_loss(lambda path, sector: path == "/d/synced" and sector == 1)
    assert (mixed.read("/d/synced")[:3], mixed.read("/d/synced")[600:603]) == (b"one", b"six")
    assert (dead.restarted_since("/d/synced"), off.restarted_since("/d/synced")) == (False, True)
    files.sync_folder("/d")
    assert files.power_loss().names("/d") == ["late", "synced", "unnamed"]


def test_space_can_run_out() -> None:
    files = MemoryFiles(space=100)
    file = files.create("/file", 1000)
    file.allocate(0, 60)
    with pytest.raises(OSError, match="No space"):
        file.allocate(60, 60)
    assert files.usage("/") is None
    assert files.memory() is None
