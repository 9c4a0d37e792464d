"""Data that the disk kept of a machine that lost power (docs/protocol/store.md 7, 8)."""

from __future__ import annotations

import random

import pytest

from mqproto.engine.store import MemoryFiles
from mqproto.engine.store.queues.queue_io import sync_queue_files, write_out
from tests.engine.store.harness import memory_rig

SYNC = {"flush_disk_type": "SYNC_FLUSH"}


@pytest.mark.parametrize("seed", range(30))
def test_sync_flush_survives_power_loss(seed: int) -> None:
    """What was acknowledged is there, whatever else the disk kept: sectors in any mixture."""
    rng = random.Random(seed)
    rig = memory_rig(**SYNC)
    acknowledged: dict[str, list[bytes]] = {"A": [], "B": []}
    for _ in range(3):
        sent: dict[str, list[bytes]] = {"A": rig.bodies("A"), "B": rig.bodies("B")}
        for _ in range(rng.randrange(40)):
            topic = rng.choice("AB")
            sent[topic].append(rng.randbytes(rng.randrange(600)))
            rig.send(topic, sent[topic][-1], uniq_key=f"{topic}{len(sent[topic])}")
            if rng.random() < 0.3:
                rig.store.want_flush()
            if rng.random() < 0.5:
                rig.run_jobs()
            if rng.random() < 0.1:
                rig.pass_time(rng.choice((1, 1000, 60_000)))
        acknowledged = {topic: bodies[: rig.store.queue(topic, 0).max_offset] for topic, bodies in sent.items()}
        rig.cut_power(lambda path, sector: rng.random() < 0.5)
        rig.open()
        for topic, bodies in acknowledged.items():
            found = rig.bodies(topic)
            assert found[: len(bodies)] == bodies
            assert found == sent[topic][: len(found)]
            assert all(rig.found(f"{topic}{number + 1}", topic) == [number] for number in range(len(found)))


@pytest.mark.parametrize("seed", range(20))
def test_async_flush_after_power_loss_keeps_order_and_tells(seed: int) -> None:
    rng = random.Random(seed)
    rig = memory_rig()
    bodies: list[bytes] = []
    for _ in range(60):
        bodies.append(rng.randbytes(rng.randrange(600)))
        rig.wall += 1
        rig.send(body=bodies[-1])
        if rng.random() < 0.3:
            rig.pass_time(rng.choice((1, 500, 1000, 10_000)))
    flushed = rig.store.flushed
    rig.cut_power(lambda path, sector: rng.random() < 0.7)
    rig.open()
    assert rig.store.end >= flushed
    found = rig.bodies()
    assert found == bodies[: len(found)]
    rig.send(body=b"next")
    assert rig.bodies()[-1] == b"next"
    rig.reopen()
    assert len(rig.read()) == len(found) + 1


@pytest.mark.parametrize("kind", ["process", "power"])
def test_gap_in_the_properties_is_a_torn_record_after_power_loss(kind: str) -> None:
    """No checksum covers them. A process that dies leaves no gap, so then a zero byte is what somebody sent."""
    rig = memory_rig()
    rig.send_many(3)
    start = rig.send(uniq_key="x" * 50, keys="y" * 50)
    end = rig.store.end
    rig.send_many(2, "Later")
    rig.set_log(end - 60, bytes(40))
    for file in rig.store._log.files_between(0, rig.store.end):
        file.sync()
    rig.files.sync_folder("/store/commitlog")
    rig.kill() if kind == "process" else rig.cut_power(lambda path, sector: True)
    rig.open()
    assert rig.store.end == (rig.store.end if kind == "process" else start)
    assert (len(rig.read()), len(rig.read("Later"))) == ((4, 2) if kind == "process" else (3, 0))


def test_power_loss_after_a_recovery_loses_nothing_either() -> None:
    rig = memory_rig(**SYNC)
    bodies = rig.send_many(40, size=300)
    rig.kill()
    rig.open()
    assert rig.bodies() == bodies
    rig.cut_power()
    rig.open()
    assert rig.bodies() == bodies


def test_queue_files_that_a_recovery_removed_do_not_come_back() -> None:
    """Power is lost after the next orderly end: the files of entries whose messages had been lost stay away."""
    rig = memory_rig(message_index_enable=False)
    rig.send_many(5)
    for _ in range(2):
        rig.wall += 10_000
        # so that the recovery begins behind those messages, and has nothing to add to their queue
        rig.send_many(40, "Other")
        rig.settle()
    rig.send_many(40)
    rig.run_jobs()
    store = rig.store
    for write in store._queues.unwritten(store.queue("Topic", 0), 45):  # the queue's files get ahead of the log
        write_out(rig.files, write)
        sync_queue_files(rig.files, {write.path}, {write.path})
    rig.cut_power()
    rig.open()
    assert len(rig.bodies()) == 5
    rig.close()
    assert isinstance(rig.files, MemoryFiles)
    files = rig.files
    for names in range(files.pending_names + 1):
        rig.files = files.power_loss(names=names)
        rig.open()
        assert rig.store.recovery.clean
        assert len(rig.bodies()) == 5
