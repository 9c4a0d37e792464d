"""A store that a test drives by hand: time moves when told, jobs run when told, machines die when told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.store import DiskFiles, Files, GetStatus, MemoryFiles, Recover, Store, StoreDamaged, StoreSettings
from mqproto.engine.store.disk import system
from mqproto.message import MessageExt
from mqproto.state.node.contract import Job
from mqproto.wire.ids import java_hash
from mqproto.wire.record import decode_record

HOST = bytes((127, 0, 0, 1, 0, 0, 0x51, 0xAF))
HOST_V6 = bytes(15) + b"\x01" + bytes((0, 0, 0x51, 0xAF))
START = 1_800_000_000_000
ALWAYS = (0, 1 << 62)

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "allocation_window": 4096,
    "clean_resource_interval": 0,
}


class Rig:
    """One data directory and the store that is open on it."""

    def __init__(self, files: Files, root: str, *, wall: int = START, **settings: Any) -> None:
        self.files = files
        self.root = root
        self.changes = {**SMALL, **settings}
        self.now = 0
        self.wall = wall
        self.copies = 0
        self.store: Store = self.open()

    def settings(self, **changes: Any) -> StoreSettings:
        return StoreSettings(store_path_root_dir=self.root, **{**self.changes, **changes})

    def open(
        self, *, recover: Recover = Recover.REFUSE, thorough: bool = False, utc_offset_ms: int = 0, **changes: Any
    ) -> Store:
        """Open the directory; the store before must have ended."""
        settings = self.settings(**changes)
        self.store = Store.open(
            settings, self.files, wall=self.wall, utc_offset_ms=utc_offset_ms, recover=recover, thorough=thorough
        )
        return self.store

    def close(self) -> None:
        self.run_jobs()
        self.store.close(self.wall)

    def reopen(self, *, recover: Recover = Recover.REFUSE, thorough: bool = False, **changes: Any) -> Store:
        """An orderly end and a new start."""
        self.close()
        return self.open(recover=recover, **changes)

    # --- the machine around it ---

    def run_jobs(self, fails: Callable[[Job], Exception | None] = lambda job: None) -> list[str]:
        """Run jobs until there are none; gives their kinds. Those that `fails` has an exception for are not run."""
        kinds = []
        while self.store.jobs:
            jobs, self.store.jobs[:] = list(self.store.jobs), []
            for job in jobs:
                kinds.append(type(job).__name__)
                failure = fails(job)
                if failure is None:
                    try:
                        job.run()
                    except OSError as raised:
                        failure = raised
                assert self.store.done(job, failure, self.now, self.wall)
        return kinds

    def pass_time(self, ms: int) -> list[str]:
        """Let time pass and everything happen that is due; gives the kinds of the jobs."""
        kinds = self.run_jobs()
        end = self.now + ms
        while (due := self.store.next_deadline()) is not None and due <= end:
            self._move_to(max(self.now, due))
            self.store.timer(self.now, self.wall)
            kinds += self.run_jobs()
        self._move_to(end)
        return kinds

    def _move_to(self, now: int) -> None:
        self.wall += now - self.now
        self.now = now

    def settle(self) -> None:
        """Let time pass until nothing is left to do."""
        for _ in range(10):
            self.pass_time(60_000)
            if self.store.next_deadline() is None:
                return
        raise AssertionError("the store never comes to rest")

    def kill(self) -> None:
        """The process dies: what it wrote is there, what it had in memory is not."""
        if isinstance(self.files, MemoryFiles):
            self.files = self.files.process_death()
        else:
            self.copies += 1
            copy = f"{self.root.partition('~')[0]}~{self.copies}"
            shutil.copytree(self.root, copy)
            self.store.close(self.wall)
            self.root = copy

    def cut_power(self, survived: Callable[[str, int], bool] = lambda path, sector: False) -> None:
        """The machine loses power: what was not synced may be gone."""
        assert isinstance(self.files, MemoryFiles)
        self.files = self.files.power_loss(survived)

    # --- messages ---

    def send(
        self,
        topic: str = "Topic",
        body: bytes = b"body",
        queue_id: int = 0,
        *,
        tags: str = "",
        uniq_key: str = "",
        keys: str = "",
        more: dict[str, str] | None = None,
        at: int | None = None,
        sys_flag: int = 0,
        born_host: bytes = HOST,
        store_host: bytes = HOST,
        tags_code: int | None = None,
    ) -> int:
        """Store a message; gives its physical offset."""
        pairs = {"KEYS": keys, "UNIQ_KEY": uniq_key, "TAGS": tags, **(more or {})}
        properties = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items() if value).encode()
        return self.store.writer.append(
            self.store.queue(topic, queue_id),
            body,
            properties,
            7,
            sys_flag,
            self.wall - 5,
            born_host,
            store_host,
            3,
            0,
            java_hash(tags) if tags_code is None else tags_code,
            uniq_key or None,
            keys or None,
            self.wall if at is None else at,
        )

    def send_many(self, count: int, topic: str = "Topic", size: int = 100) -> list[bytes]:
        """Store numbered messages, each with a unique id; gives their bodies."""
        bodies = [f"{topic}-{number}-".encode().ljust(size, b".") for number in range(count)]
        for number, body in enumerate(bodies):
            self.send(topic, body, uniq_key=f"{topic}-{number}")
        return bodies

    def read(self, topic: str = "Topic", queue_id: int = 0, start: int | None = None) -> list[MessageExt]:
        """All messages of a queue, as a consumer gets them."""
        queue = self.store.find_queue(topic, queue_id)
        if queue is None:
            return []
        found: list[MessageExt] = []
        offset = queue.min_offset if start is None else start
        while True:
            result = self.store.reader.get(queue, offset, 32, None)
            if result.status is not GetStatus.FOUND:
                assert result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE), result
                return found
            messages = records(result.views)
            assert [message.queue_offset for message in messages] == list(range(offset, result.next_offset))
            assert (len(messages), sum(map(len, result.views))) == (result.count, result.size)
            found += messages
            offset = result.next_offset

    def bodies(self, topic: str = "Topic", queue_id: int = 0) -> list[bytes]:
        return [bytes(message.body) for message in self.read(topic, queue_id)]

    def found(self, key: str, topic: str = "Topic", begin: int = 0, end: int = 1 << 62, count: int = 32) -> list[int]:
        """Queue offsets of the messages with a key."""
        return [
            decode_record(view).queue_offset for view in self.store.reader.query(topic, key, count, begin, end).views
        ]

    # --- bytes on disk ---

    def log(self, start: int = 0) -> bytes:
        """A file of the log."""
        return self.files.read(f"{self.root}/commitlog/{start:020d}")

    def set_log(self, at: int, data: bytes, start: int = 0) -> None:
        """Overwrite bytes of a file of the log."""
        self.set_bytes(f"commitlog/{start:020d}", at, data)

    def set_bytes(self, path: str, at: int, data: bytes) -> None:
        file = self.files.open(f"{self.root}/{path}")
        file.write(at, data)
        file.sync()
        file.close()

    def tree(self) -> list[str]:
        """Paths of all files."""
        found: list[str] = []

        def walk(folder: str) -> None:
            for name in self.files.names(f"{self.root}/{folder}" if folder else self.root):
                path = f"{folder}/{name}" if folder else name
                if self.files.is_folder(f"{self.root}/{path}"):
                    walk(path)
                else:
                    found.append(path)

        walk("")
        return found


def records(views: Iterable[memoryview]) -> list[MessageExt]:
    """The messages of views that hold whole records."""
    found = []
    for view in views:
        rest = view
        while rest:
            message = decode_record(rest)
            found.append(message)
            rest = rest[message.store_size :]
    return found


def damaged(rig: Rig, **changes: object) -> StoreDamaged:
    before = {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()}
    with pytest.raises(StoreDamaged) as caught:
        rig.open(**changes)  # type: ignore[arg-type]
    assert {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()} == before, "nothing is changed"
    return caught.value


def opening_fails(rig: Rig) -> StoreDamaged | None:
    try:
        rig.open()
    except StoreDamaged as failure:
        return failure
    return None


class NoLocks:
    """The module of Windows with the locks of files, of which nobody holds one."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def locking(self, fd: int, mode: int, size: int) -> None:
        assert (os.lseek(fd, 0, os.SEEK_CUR), size) == (0, 1)


def take_calls_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without any call that systems may lack."""
    for name in ("posix_fallocate", "fdatasync", "pread", "pwrite", "SEEK_DATA", "sync", "uname", "sysconf"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", NoLocks())

    def no_folders(path: str) -> None:
        """Folders cannot be opened."""

    monkeypatch.setattr(system, "sync_folder", no_folders)


def disk_rig(folder: Path, **settings: Any) -> Rig:
    return Rig(DiskFiles(), str(folder / "store"), **settings)


def memory_rig(**settings: Any) -> Rig:
    return Rig(MemoryFiles(forgetful=True), "/store", **settings)
