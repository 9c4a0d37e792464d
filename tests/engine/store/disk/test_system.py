"""Substitutes of calls that a system lacks, one by one; the whole store without all of them is in the tests
that run over a bare disk (conftest.py).
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.store import DiskFiles, Store, StoreLocked, StoreSettings
from mqproto.engine.store.disk import system


class Darwin:
    """The module of macOS, as far as syncing goes."""

    F_FULLFSYNC = 51

    def __init__(self, failure: OSError | None = None) -> None:
        self.calls: list[int] = []
        self.failure = failure

    def fcntl(self, fd: int, call: int) -> int:
        self.calls.append(call)
        if self.failure is not None:
            raise self.failure
        return 0


class Windows:
    """The module of Windows with the locks of files: a locked byte is locked for every other opening of the file."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}

    def locking(self, fd: int, mode: int, size: int) -> None:
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
        assert size == 1
        number = os.fstat(fd).st_ino
        if mode == self.LK_UNLCK:
            assert self.locked.pop(number) == fd
        elif number in self.locked:
            raise OSError(errno.EDEADLK, "Resource deadlock avoided")
        else:
            self.locked[number] = fd


def test_macos_empties_the_cache_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    darwin = Darwin()
    monkeypatch.setattr(system, "fcntl", darwin)
    monkeypatch.delattr(os, "fdatasync", raising=False)
    file = DiskFiles().create(str(tmp_path / "file"), 10)
    file.sync()
    assert len(darwin.calls) == 1
    DiskFiles().sync_folder(str(tmp_path))
    DiskFiles().write(str(tmp_path / "config"), b"{}")
    assert darwin.calls == [51] * 3
    file.close()


def test_a_file_system_without_that_is_synced_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(system, "fcntl", Darwin(OSError(errno.ENOTSUP, "Operation not supported")))
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    file = DiskFiles().create(str(tmp_path / "file"), 10)
    file.sync()
    DiskFiles().sync_folder(str(tmp_path))
    assert len(synced) == 2
    monkeypatch.setattr(system, "fcntl", Darwin(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    with pytest.raises(OSError, match="Input/output"):
        DiskFiles().sync_folder(str(tmp_path))
    file.close()


def test_without_positioned_calls_files_are_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread", raising=False)
    monkeypatch.delattr(os, "pwrite", raising=False)
    file = DiskFiles().create(str(tmp_path / "file"), 100)
    view = file.view()
    file.write(10, b"written")
    assert bytes(view[10:17]) == b"written"
    view[12:14] = b"VI"
    assert (file.read(9, 9), file.read(95, 10), file.read(200, 1)) == (b"\0wrVIten\0", bytes(5), b"")
    file.close()


def test_windows_locks_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Windows()
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", windows)
    settings = StoreSettings(store_path_root_dir=str(tmp_path / "store"), max_index_num=100, max_hash_slot_num=10)
    store = Store.open(settings, wall=1)
    with pytest.raises(StoreLocked):
        Store.open(settings, wall=1)
    assert len(windows.locked) == 1
    store.close(1)
    assert windows.locked == {}
    windows.locked[(tmp_path / "store" / "lock").stat().st_ino] = -1
    with pytest.raises(StoreLocked):
        Store.open(settings, wall=1)


def test_without_locks_of_files_stores_of_one_process_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", None)
    files = DiskFiles()
    lock = files.lock(str(tmp_path / "lock"))
    assert lock is not None
    assert files.lock(str(tmp_path / "lock")) is None
    lock.release()


def test_a_failing_lock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Windows):
        def locking(self, fd: int, mode: int, size: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", Broken())
    with pytest.raises(OSError, match="No locks"):
        DiskFiles().lock(str(tmp_path / "lock"))


def test_a_system_that_tells_nothing_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown disk is not a full one, unknown memory no reason not to start."""
    monkeypatch.delattr(shutil, "disk_usage")
    monkeypatch.delattr(os, "sysconf", raising=False)
    monkeypatch.delattr(os, "uname", raising=False)
    files = DiskFiles()
    assert (files.usage(str(tmp_path)), files.memory()) == (None, None)
    settings = StoreSettings(store_path_root_dir=str(tmp_path / "store"), max_index_num=100, max_hash_slot_num=10)
    store = Store.open(settings, wall=1)
    host: Any = bytes(8)
    store.writer.append(store.queue("Topic", 0), b"body", b"", 0, 0, 1, host, host, 0, 0, 0, None, None, 1)
    assert store.writer.writable
    store.close(1)
