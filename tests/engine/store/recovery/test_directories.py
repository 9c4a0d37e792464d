"""Directories as they may be found: files of odd sizes, foreign files, other brokers, no rights."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles, PutRefused, Recover, Store, StoreLocked, StoreSettings, StoreUnwritable
from mqproto.engine.store.disk.files import Lock
from tests.engine.store.harness import START, Rig, damaged, disk_rig


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_empty_last_file_is_removed(rig: Rig, end: str) -> None:
    """REC-06."""
    rig.send_many(20, size=300)
    rig.close() if end == "clean" else rig.kill()
    last = int(rig.files.names(f"{rig.root}/commitlog")[-1])
    rig.files.write(f"{rig.root}/commitlog/{last + 4096:020d}", b"")
    rig.files.make_folder(f"{rig.root}/consumequeue/Topic/0")
    rig.files.write(f"{rig.root}/consumequeue/Topic/0/{400:020d}", b"")
    rig.open()
    assert len(rig.read()) == 20
    assert any("empty and was removed" in note for note in rig.store.recovery.notes)
    rig.send_many(30, size=300)
    rig.reopen()
    assert len(rig.read()) == 50


@pytest.mark.parametrize("size", [0, 4095, 4097])
def test_file_of_another_size_is_named(rig: Rig, size: int) -> None:
    """REC-06."""
    rig.send_many(40, size=300)
    rig.close()
    path = f"{rig.root}/commitlog/{4096:020d}"
    rig.files.write(path, (rig.files.read(path) + b"\0")[:size])
    failure = damaged(rig)
    assert failure.path == path
    assert f"{size} bytes" in str(failure)


def test_changed_settings_are_named(rig: Rig) -> None:
    """REC-06."""
    rig.send_many(15)
    rig.settle()
    rig.close()
    assert "configured 8192" in str(damaged(rig, mapped_file_size_commit_log=8192))
    assert "configured 400" in str(damaged(rig, mapped_file_size_consume_queue=400))
    store = rig.open(max_index_num=500)
    assert any("index" in note for note in store.recovery.notes)
    assert len(rig.read()) == 15


def test_missing_file_is_named(rig: Rig) -> None:
    rig.send_many(60, size=300)
    rig.settle()
    rig.close()
    saved = rig.files.read(f"{rig.root}/commitlog/{4096:020d}")
    rig.files.remove(f"{rig.root}/commitlog/{4096:020d}")
    assert damaged(rig).path.endswith(f"{8192:020d}")
    rig.files.write(f"{rig.root}/commitlog/{4096:020d}", saved)
    rig.files.remove(f"{rig.root}/consumequeue/Topic/0/{200:020d}")
    untouched = rig.tree()
    rig.files.remove(f"{rig.root}/manifest")
    assert damaged(rig).path.endswith(f"consumequeue/Topic/0/{400:020d}")
    rig.open(recover=Recover.SKIP)
    assert len(rig.read()) == 60
    rig.close()
    assert rig.tree() == sorted([*untouched, f"consumequeue/Topic/0/{200:020d}"])


def test_foreign_files_are_left_alone(rig: Rig) -> None:
    """REC-06."""
    rig.send_many(3, size=300)
    rig.settle()
    rig.close()
    foreign = [
        "commitlog/backup.tmp",
        "index/notes.txt",
        "consumequeue/readme",
        "consumequeue/Topic/x",
        "consumequeue/Topic/0/old.bak",
    ]
    for path in foreign:
        rig.files.write(f"{rig.root}/{path}", b"mine")
    rig.open()
    assert len(rig.read()) == 3
    rig.kill()
    rig.open()
    assert all(rig.files.read(f"{rig.root}/{path}") == b"mine" for path in foreign)
    assert sum("left out" in note for note in rig.store.recovery.notes) == 2


# --- one broker a directory ---


def test_two_stores_on_one_directory(rig: Rig) -> None:
    rig.send()
    with pytest.raises(StoreLocked, match="another broker"):
        Store.open(rig.settings(), rig.files, wall=START)
    rig.send()
    assert len(rig.read()) == 2
    rig.reopen()
    with pytest.raises(StoreLocked):
        Store.open(rig.settings(), rig.files, wall=START)


def test_lock_excludes_other_processes(tmp_path: Path) -> None:
    """By a record lock on the first byte, which is what Java takes (docs/protocol/store.md 1.1)."""
    fcntl = pytest.importorskip("fcntl")
    rig = disk_rig(tmp_path)
    code = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    try:\n"
        "        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "    except BlockingIOError:\n"
        "        sys.exit(7)\n"
    )
    assert fcntl
    for expected in (7, 0):
        done = subprocess.run([sys.executable, "-c", code, f"{rig.root}/lock"], timeout=60, check=False)
        assert done.returncode == expected
        rig.store.close(START)


def test_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnwritable, match="file"):
        Store.open(StoreSettings(store_path_root_dir=str(tmp_path / "file" / "store")), wall=START)
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(StoreUnwritable, match="closed"):
            Store.open(StoreSettings(store_path_root_dir=str(tmp_path / "closed" / "store")), wall=START)


def test_failed_opening_gives_the_lock_back(rig: Rig) -> None:
    rig.send_many(3)
    rig.close()
    rig.set_log(90, b"\xff")
    for _ in range(2):
        assert damaged(rig).offset == 0


def test_log_may_lie_elsewhere(tmp_path: Path) -> None:
    rig = Rig(DiskFiles(), str(tmp_path / "store"), store_path_commit_log=str(tmp_path / "log"))
    rig.send()
    rig.reopen()
    assert len(rig.read()) == 1
    assert (tmp_path / "log" / f"{0:020d}").exists()
    rig.close()
    with pytest.raises(PutRefused, match="closed"):
        rig.send()


FOREIGN = [
    "notes",
    "commitlog/00000000000000008192/x",
    "commitlog/sub/x",
    "index/20200101000000000/x",
    "index/sub/x",
    "consumequeue/Topic/0/00000000000000000200/x",
    "consumequeue/Topic/sub/x",
    "consumequeue/Empty/x",
    "consumequeue/0",
    "config/sub/x",
]


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_foreign_files_and_folders_everywhere(rig: Rig, ending: str) -> None:
    bodies = rig.send_many(8)
    rig.settle()
    rig.close() if ending == "clean" else rig.kill()
    for path in FOREIGN:
        rig.files.make_folder(f"{rig.root}/{path}".rpartition("/")[0])
        rig.files.write(f"{rig.root}/{path}", b"mine")
    rig.files.make_folder(f"{rig.root}/consumequeue/NoQueue")
    rig.files.make_folder(f"{rig.root}/consumequeue/NoFile/3")
    for _ in range(2):
        rig.open()
        assert rig.bodies() == bodies
        assert rig.found("Topic-7") == [7]
        assert {queue.topic for queue in rig.store.queues() if queue.max_offset} == {"Topic"}
        assert all(rig.files.read(f"{rig.root}/{path}") == b"mine" for path in FOREIGN)
        rig.close()
    rig.open()


def test_topics_that_differ_in_case_only(rig: Rig) -> None:
    rig.send("Topic", b"1")
    rig.send("TOPIC", b"2")
    for end in (rig.close, rig.kill):
        end()
        rig.open()
        assert (rig.bodies("Topic"), rig.bodies("TOPIC")) == ([b"1"], [b"2"])


def test_symbolic_link_is_the_same_directory(tmp_path: Path) -> None:
    rig = disk_rig(tmp_path)
    rig.send_many(3)
    rig.close()
    link = tmp_path / "link"
    link.symlink_to(rig.root, target_is_directory=True)
    linked = Rig(DiskFiles(), str(link))
    assert len(linked.read()) == 3
    with pytest.raises(StoreLocked):
        rig.open()
    linked.send()
    linked.reopen()
    linked.close()
    assert len(rig.open().recovery.notes) == 0
    assert len(rig.read()) == 4
    rig.close()


def test_another_process_holds_the_lock(tmp_path: Path) -> None:
    """As Apache's broker does: a record lock on the first byte (docs/protocol/store.md 1.1)."""
    pytest.importorskip("fcntl")
    rig = disk_rig(tmp_path)
    rig.send()
    rig.close()
    code = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, f"{rig.root}/lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        before = rig.tree()
        with pytest.raises(StoreLocked, match="another broker"):
            rig.open()
        assert rig.tree() == before
        holder.communicate()
    rig.open()
    assert len(rig.read()) == 1
    rig.close()


class Forbidding(DiskFiles):
    """Directory whose files may not be opened: of another user, or on a file system that is mounted read-only."""

    def __init__(self, number: int) -> None:
        self.number = number

    def _refuse(self, path: str) -> None:
        raise OSError(self.number, os.strerror(self.number), path)

    def lock(self, path: str) -> Lock | None:
        self._refuse(path)
        return None

    def make_folder(self, path: str) -> None:
        self._refuse(path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EPERM])
@pytest.mark.parametrize("new", [False, True])
def test_directory_of_another_user_or_read_only(tmp_path: Path, number: int, new: bool) -> None:
    if not new:
        rig = disk_rig(tmp_path)
        rig.send()
        rig.close()
    settings = StoreSettings(store_path_root_dir=str(tmp_path / "store"))
    with pytest.raises(StoreUnwritable, match=os.strerror(number)) as caught:
        Store.open(settings, Forbidding(number), wall=START)
    assert str(tmp_path / "store") in str(caught.value)


def test_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"mine")
    with pytest.raises(StoreUnwritable, match="store"):
        disk_rig(tmp_path)
    assert (tmp_path / "store").read_bytes() == b"mine"


@pytest.mark.parametrize("path", ["commitlog", "consumequeue", "index"])
def test_folder_that_is_a_file(tmp_path: Path, path: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / path).write_bytes(b"mine")
    with pytest.raises(StoreUnwritable, match=path):
        disk_rig(tmp_path)
    assert (tmp_path / "store" / path).read_bytes() == b"mine"
