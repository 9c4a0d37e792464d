"""The orderly end as a job, and giving up without it: nothing stays locked."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles, MemoryFiles, PutRefused, Store, StoreError, StoreLocked, StoreUnwritable
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig, disk_rig, memory_rig


def ended_orderly(rig: Rig) -> bool:
    """Whether another store finds that the last one ended in order; that store stays open."""
    orderly = not rig.files.exists(f"{rig.root}/abort")
    rig.open()
    return orderly


def test_nothing_is_stored_from_the_beginning_of_the_end(rig: Rig) -> None:
    rig.send(body=b"kept")
    rig.run_jobs()
    job = rig.store.begin_closing(rig.wall)
    assert rig.store.next_deadline() is None
    with pytest.raises(PutRefused):
        rig.send(body=b"too late")
    with pytest.raises(StoreLocked):
        Store.open(rig.settings(), rig.files, wall=rig.wall)
    job.run()
    assert ended_orderly(rig)
    assert rig.bodies() == [b"kept"]


def test_given_up_before_the_job_began(rig: Rig) -> None:
    rig.send(body=b"kept")
    rig.run_jobs()
    job = rig.store.begin_closing(rig.wall)
    rig.store.release()
    assert not ended_orderly(rig)
    job.run()
    rig.store.close(rig.wall)
    assert ended_orderly(rig), "the late job left the new store's files alone"
    assert rig.bodies() == [b"kept"]


def test_given_up_without_closing(rig: Rig) -> None:
    rig.send(body=b"kept")
    rig.run_jobs()
    old = rig.store
    old.release()
    old.release()
    with pytest.raises(PutRefused):
        rig.send(body=b"too late")
    assert not ended_orderly(rig)
    old.release()
    old.close(rig.wall)
    with pytest.raises(StoreLocked):
        Store.open(rig.settings(), rig.files, wall=rig.wall)
    assert rig.bodies() == [b"kept"]


@pytest.mark.parametrize("change", ["sync", "write", "remove", "sync folder"])
def test_a_disk_that_fails_leaves_nothing_locked(change: str) -> None:
    rig = memory_rig()
    assert isinstance(rig.files, MemoryFiles)
    rig.send(body=b"kept")
    rig.run_jobs()

    def broken(what: str, path: str) -> None:
        if what == change:
            raise OSError(5, "Input/output error", path)

    rig.files.before_change = broken
    with pytest.raises(StoreUnwritable, match="Input/output error"):
        rig.store.close(rig.wall)
    rig.files.before_change = lambda what, path: None
    rig.open()
    assert rig.bodies() == [b"kept"]


def test_a_job_under_way_gives_the_directory_back_itself(tmp_path: Path) -> None:
    """Not the one who gives up: the job would remove the mark of the next store's start."""
    rig = disk_rig(tmp_path)
    rig.send()
    rig.run_jobs()
    begun, go_on = threading.Event(), threading.Event()
    job = rig.store.begin_closing(rig.wall)
    finish = rig.store._flusher.finish

    def slow(wall: int) -> None:
        begun.set()
        go_on.wait()
        finish(wall)

    class Slow:
        def __init__(self) -> None:
            self.finish = slow

    job._flusher = Slow()  # type: ignore[assignment]
    thread = threading.Thread(target=job.run)
    thread.start()
    begun.wait()
    rig.store.release()
    with pytest.raises(StoreLocked):
        Store.open(rig.settings(), DiskFiles(), wall=rig.wall)
    go_on.set()
    thread.join()
    assert ended_orderly(rig)
    rig.store.close(rig.wall)


def test_an_earlier_failure_is_an_unclean_end(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.send(body=b"kept")
    rig.run_jobs()
    rig.store._flusher.fail(StoreError("the disk failed"))
    rig.store.close(rig.wall)
    assert not ended_orderly(rig)
