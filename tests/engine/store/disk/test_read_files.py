"""File port for reading only: what it gives to those who look at a directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles, MemoryFiles
from mqproto.engine.store.disk import disk, system

#: Another process that holds a lock until its standard input ends.
HOLDER = """
import sys
from mqproto.engine.store import DiskFiles
lock = DiskFiles().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_opened_to_read_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    path.chmod(0o400)
    file = DiskFiles().open_to_read(str(path))
    assert (file.size, file.read(8, 5), file.next_data(3)) == (10, b"89", 3)
    assert isinstance(file, disk.DiskFile)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(0, b"x")
    file.close()
    with pytest.raises(FileNotFoundError):
        DiskFiles().open_to_read(str(tmp_path / "none"))


def test_blocks_really_used(tmp_path: Path) -> None:
    files = DiskFiles()
    files.create(str(tmp_path / "sparse"), 64 << 20).close()
    (tmp_path / "full").write_bytes(bytes(range(256)) * 4096)
    assert files.size(str(tmp_path / "sparse")) == 64 << 20
    assert files.used(str(tmp_path / "sparse")) < 1 << 20
    assert files.used(str(tmp_path / "full")) >= 1 << 20
    memory = MemoryFiles()
    memory.write("/file", b"12345")
    assert memory.used("/file") == 5


def test_who_holds_a_lock(tmp_path: Path) -> None:
    files, path = DiskFiles(), str(tmp_path / "lock")
    assert files.locked_by(path) is None
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert files.locked_by(path) == process.pid
        assert files.lock(path) is None
    finally:
        process.communicate(timeout=30)
    assert files.locked_by(path) is None
    lock = files.lock(path)
    assert lock is not None
    assert (files.locked_by(path), DiskFiles().locked_by(path)) == (os.getpid(), os.getpid())
    lock.release()
    assert files.locked_by(path) is None


def test_on_other_systems_nobody_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Other", "", "", "", "")))
    assert DiskFiles().locked_by(str(tmp_path / "lock")) is None
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.delattr(os, "uname")
    assert DiskFiles().locked_by(str(tmp_path / "lock")) is None


def test_a_lock_in_memory() -> None:
    files = MemoryFiles()
    lock = files.lock("/lock")
    assert lock is not None
    assert files.locked_by("/lock") == 0
    lock.release()
    assert files.locked_by("/lock") is None
