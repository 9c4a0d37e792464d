"""Stores whose log has old files, and what must be true of them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mqproto.engine.store import MemoryFiles
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig

HOUR = 3_600_000
DAY = 24 * HOUR
#: Any hour but the one in which files are deleted: START is at 08:00.
NOON = "12"
NOW = "8"


#: Entries of queues become durable soon, and there is no index.
ROUNDS: dict[str, Any] = {"flush_consume_queue_thorough_interval": 1000, "message_index_enable": False}


def aged(make_rig: MakeRig, files: int = 5, **settings: Any) -> Rig:
    """A rig whose log has so many files, the last of them written now, each one before 30 hours earlier.

    In a second it looks.
    """
    rig = make_rig(**{"clean_resource_interval": 10_000, "delete_when": NOW, **settings})
    fill(rig, files)
    rig.pass_time(59_000)
    for number in range(files):
        set_time(rig, log_path(rig, number), rig.wall - 30 * HOUR * (files - 1 - number))
    return rig


def fill(rig: Rig, files: int, topic: str = "Topic") -> None:
    """Send until the log has so many files, all written now."""
    if isinstance(rig.files, MemoryFiles):
        rig.files.clock = lambda: rig.wall
    number = 0
    while rig.store.end < (files - 1) * 4096 + 1000:
        rig.send(topic, f"{topic}-{number}".encode().ljust(500, b"."), uniq_key=f"{topic}-{number}")
        number += 1
        rig.run_jobs()
    for each in log_files(rig):
        set_time(rig, log_path(rig, each), rig.wall)


def log_path(rig: Rig, number: int) -> str:
    return f"{rig.root}/commitlog/{number * 4096:020d}"


def set_time(rig: Rig, path: str, wall: int) -> None:
    if isinstance(rig.files, MemoryFiles):
        rig.files.clock = lambda: wall
        rig.files.touch(path)
        rig.files.clock = lambda: rig.wall
    else:
        os.utime(path, ns=(wall * 1_000_000, wall * 1_000_000))


def log_files(rig: Rig) -> list[int]:
    """Which files of the log there are, by number."""
    return [int(name) // 4096 for name in rig.files.names(f"{rig.root}/commitlog")]


def usage(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, percent: int | None, free: int = 100, queues: int | None = None
) -> None:
    """Let the disks be so full."""

    def find(path: str) -> tuple[int, int] | None:
        used = percent if queues is None or path.endswith("commitlog") else queues
        return None if used is None else (free * used // (100 - used), free)

    monkeypatch.setattr(rig.files, "usage", find)


def check(rig: Rig, topic: str = "Topic") -> None:
    """What is left is whole: the queue begins with the log's first message, every message is read, by key too."""
    queue = rig.store.queue(topic, 0)
    messages = rig.read(topic)
    assert [message.queue_offset for message in messages] == list(range(queue.min_offset, queue.max_offset))
    assert messages[0].physical_offset == rig.store.min_physical
    assert messages[0].body.rstrip(b".") == f"{topic}-{queue.min_offset}".encode()
    assert (
        rig.store.reader.earliest_store_time() == rig.store.reader.earliest_store_time(queue) == messages[0].store_time
    )
    assert rig.store.reader.offset_by_time(queue, 0) == queue.min_offset
    assert rig.found(f"{topic}-{queue.min_offset}") == [queue.min_offset]
    assert rig.found(f"{topic}-{queue.min_offset - 1}") == []
