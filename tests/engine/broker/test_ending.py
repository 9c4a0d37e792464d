"""The end of a broker: the last save is a job, and whatever becomes of it, nothing stays locked."""

from __future__ import annotations

import pytest

from mqproto.engine.broker.core.last_save import LastSave
from mqproto.engine.store import Store, StoreLocked
from mqproto.engine.store.disk.memory import MemoryFiles
from tests.engine.broker.harness import WALL, Peer, World, send_fields


def open_again(world: World) -> Store:
    return Store.open(world.store.settings, world.files, wall=WALL)


@pytest.fixture
def closing(world: World, peer: Peer) -> LastSave:
    """A broker that is about to end: its last job is held back."""
    peer.send()
    peer.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"})
    world.hold_jobs = True
    world.close()
    (job,) = world.jobs
    assert isinstance(job, LastSave)
    return job


def test_nothing_is_answered_while_the_last_save_runs(world: World, peer: Peer, closing: LastSave) -> None:
    ended = [world.broker.ended]
    assert not peer.ended()
    assert world.broker.next_deadline() is None
    peer.tell(310, send_fields(), b"too late")
    assert world.broker.accept("main", "192.0.2.3:1", "192.0.2.2:10911", world.now) is None
    world.broker.timer(world.now + 1_000_000)
    with pytest.raises(StoreLocked):
        open_again(world)
    world.run_held()
    ended.append(world.broker.ended)
    assert ended == [False, True]
    assert peer.ended()
    assert peer.read() == []
    assert not world.files.exists("/store/abort")
    later = World(files=world.files)
    assert [message.body for message in later.connect().messages()] == [b"hi"]
    assert later.broker.offsets.find("G", "T", 0) == 1


def test_a_client_may_leave_meanwhile(world: World, peer: Peer, closing: LastSave) -> None:
    peer.close()
    world.run_held()
    assert world.broker.ended


def test_a_job_that_never_ran_leaves_nothing_locked(world: World, closing: LastSave) -> None:
    world.broker.done(closing, OSError(5, "Input/output error"), world.now)
    assert world.broker.ended
    assert any("Input/output error" in notice for notice in world.broker.notices)
    assert world.files.exists("/store/abort")
    open_again(world)


def test_tables_that_cannot_be_saved_do_not_keep_the_store_from_closing(world: World, closing: LastSave) -> None:
    def no_space(what: str, path: str) -> None:
        if "config" in path:
            raise OSError(28, "No space left on device", path)

    world.files.before_change = no_space
    world.run_held()
    assert world.broker.ended
    assert any("No space left" in notice for notice in world.broker.notices)
    assert not world.files.exists("/store/abort")


def test_given_up_by_its_driver() -> None:
    world = World(files=MemoryFiles())
    world.connect().send()
    world.broker.abandon()
    store = open_again(world)
    world.broker.abandon()
    with pytest.raises(StoreLocked):
        open_again(world)
    store.close(WALL)
