"""Opening on a disk without room: what is there is served, messages are refused with the reason, and taken again when
there is room.
"""

from __future__ import annotations

import errno

import pytest

from mqproto.engine.store import MemoryFiles, PutRefused, StoreUnwritable
from tests.engine.store.harness import Rig, memory_rig

NEEDS_ROOM = frozenset({"allocate", "create", "lengthen", "make folder"})


def fill_up(rig: Rig, also: tuple[str, ...] = ()) -> None:
    """No more room; not even in files below these folders."""

    def refuse(change: str, path: str) -> None:
        if change in NEEDS_ROOM or (change == "write" and any(f"/{folder}/" in path for folder in also)):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    assert isinstance(rig.files, MemoryFiles)
    rig.files.before_change = refuse


def make_room(rig: Rig) -> None:
    assert isinstance(rig.files, MemoryFiles)
    rig.files.before_change = lambda change, path: None


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize("count", [8, 19, 20, 40])
def test_full_disk_is_read_from(ending: str, count: int) -> None:
    rig = memory_rig()
    bodies = rig.send_many(count, size=300)
    rig.send("Other")
    rig.close() if ending == "clean" else rig.kill()
    fill_up(rig, ("consumequeue", "index"))
    store = rig.open()
    assert store.recovery.full
    assert any("disk is full" in note for note in store.recovery.notes)
    assert not store.writer.writable
    assert rig.bodies() == bodies
    assert [rig.found(f"Topic-{number}") for number in range(count)] == [[number] for number in range(count)]
    with pytest.raises(PutRefused, match="disk is full"):
        rig.send()
    make_room(rig)
    rig.wall += 1000
    bodies.append(b"next")
    rig.send(body=b"next", uniq_key="next")
    assert rig.store.writer.writable
    rig.settle()
    for _ in range(2):
        assert rig.bodies() == bodies
        assert rig.found("next") == [count]
        assert rig.found("Topic-3") == [3]
        rig.reopen()
        assert rig.store.recovery.notes == []
    rig.kill()
    rig.open()
    assert rig.bodies() == bodies


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_end_at_the_border_of_a_file(ending: str) -> None:
    """There is no file for the next message."""
    rig = memory_rig()
    while rig.store.end % 4096 < 4096 - 400:
        rig.send(body=bytes(80))
    rest = 4096 - rig.store.end % 4096
    rig.send(body=bytes(rest - 8 - 96))
    end = rig.store.end
    rig.kill() if ending == "killed" else rig.close()
    rig.set_log(end, (4096 - end).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
    for name in rig.files.names(f"{rig.root}/commitlog")[1:]:
        rig.files.remove(f"{rig.root}/commitlog/{name}")
    fill_up(rig)
    rig.open()
    count = len(rig.read())
    assert rig.store.end == 4096
    with pytest.raises(PutRefused, match="disk is full"):
        rig.send()
    make_room(rig)
    rig.wall += 1000
    assert rig.send(body=b"next") == 4096
    for _ in range(2):
        assert len(rig.read()) == count + 1
        rig.reopen()


def test_killed_again_on_the_full_disk() -> None:
    rig = memory_rig()
    bodies = rig.send_many(40, size=300)
    for _ in range(3):
        rig.kill()
        fill_up(rig, ("consumequeue", "index"))
        rig.open()
        assert rig.bodies() == bodies
        assert rig.found("Topic-39") == [39]
    make_room(rig)
    rig.settle()
    rig.reopen()
    assert rig.bodies() == bodies


def test_new_directory_needs_room() -> None:
    rig = memory_rig()
    rig.close()
    fill_up(rig)
    rig.files.remove_tree(rig.root)
    with pytest.raises(StoreUnwritable, match="No space left"):
        rig.open()


def test_other_failures_are_no_full_disk() -> None:
    rig = memory_rig()
    rig.send_many(4)
    rig.close()

    def fail(change: str, path: str) -> None:
        if change == "allocate":
            raise OSError(errno.EIO, "Input/output error", path)

    assert isinstance(rig.files, MemoryFiles)
    rig.files.before_change = fail
    with pytest.raises(StoreUnwritable, match="Input/output"):
        rig.open()
    make_room(rig)
    rig.open()
    assert len(rig.read()) == 4
