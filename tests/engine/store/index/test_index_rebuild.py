"""The index after a crash: cut to what is whole, and filled again from the log (docs/protocol/store.md 8.4)."""

from __future__ import annotations

import random
import struct

import pytest

from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig, memory_rig

SYNC = {"flush_disk_type": "SYNC_FLUSH"}


def test_index_keeps_what_recovery_does_not_read_again(rig: Rig) -> None:
    """Apache throws the whole file away (docs/protocol/store.md 8.4)."""
    rig.send_many(25, "Old", size=300)
    rig.wall += 10_000
    rig.settle()
    rig.wall += 10_000
    rig.send_many(25, "New", size=300)
    rig.settle()
    rig.send_many(5, "Newest", size=300)
    rig.kill()
    store = rig.open()
    assert store.recovery.dispatched_from > 4096
    for topic, count in (("Old", 25), ("New", 25), ("Newest", 5)):
        assert [rig.found(f"{topic}-{number}", topic) for number in range(count)] == [
            [number] for number in range(count)
        ]


def settled_long_ago(rig: Rig) -> None:
    """Everything so far is older than what recovery reads again."""
    for topic in ("Early", "Earlier"):
        rig.send_many(10, topic, size=900)
        rig.settle()
        rig.wall += 20_000


@pytest.mark.parametrize("count", [340, 380, 420, 900])
def test_index_files_made_ahead_are_no_end_of_the_index(rig: Rig, count: int) -> None:
    """A crash leaves an empty index file behind the one that is written; nothing may be missed, linked wrongly or twice
    after it.
    """
    settled_long_ago(rig)
    rig.send_many(count, size=1)
    rig.pass_time(2000)
    rig.send_many(10, "Last", size=1)
    for _ in range(2):
        rig.kill()
        assert rig.open().recovery.dispatched_from > 0
        assert [rig.found(f"Topic-{number}") for number in range(count)] == [[number] for number in range(count)]
        assert [rig.found(f"Last-{number}", "Last") for number in range(10)] == [[number] for number in range(10)]
    rig.settle()
    names = rig.files.names(f"{rig.root}/index")
    heads = [struct.unpack_from(">qqqqii", rig.files.read(f"{rig.root}/index/{name}")) for name in names]
    assert sum(max(head[5], 1) - 1 for head in heads) == count + 30
    assert [head[2] for head in heads if head[5] > 1] == sorted(head[2] for head in heads if head[5] > 1)


def test_keys_that_waited_for_their_file_are_not_taken_for_durable(rig: Rig) -> None:
    """The checkpoint says how far queues are written; what the index lacks has to be read again too."""
    rig.send_many(10, size=900)
    held = [job for job in rig.store.jobs if type(job).__name__ == "AllocateIndex"]
    rig.store.jobs[:] = [job for job in rig.store.jobs if job not in held]
    rig.pass_time(60_000)
    rig.wall += 20_000
    rig.send_many(10, "Other", size=900)
    rig.wall += 20_000
    rig.pass_time(120_000)
    assert held
    rig.kill()
    rig.open()
    assert [rig.found(f"Topic-{number}") for number in range(10)] == [[number] for number in range(10)]


def test_index_that_lost_pages_is_made_again_as_far_as_the_log_is_read(make_rig: MakeRig) -> None:
    rig = make_rig(max_index_num=2000, mapped_file_size_commit_log=8192)
    rig.send_many(900, "Old", size=10)
    rig.wall += 10_000
    rig.settle()
    rig.wall += 10_000
    rig.send_many(100, "New", size=10)
    rig.settle()
    rig.kill()
    (name,) = rig.files.names(f"{rig.root}/index")
    rig.set_bytes(f"index/{name}", 40 + 400 + 20 * 200, bytes(4096))
    store = rig.open()
    assert any("lost pages" in note for note in store.recovery.notes)
    assert rig.found("Old-100", "Old") == [100]
    assert rig.found("Old-500", "Old") == []
    assert rig.found("New-99", "New") == [99]
    rig.send("New", uniq_key="next")
    rig.run_jobs()
    assert rig.found("next", "New") == [100]


@pytest.mark.parametrize("seed", range(10))
def test_index_slots_are_mended_after_power_loss(seed: int) -> None:
    """Slots and entries come to the disk in any mixture."""
    rng = random.Random(seed)
    rig = memory_rig(max_index_num=4000, max_hash_slot_num=600, mapped_file_size_commit_log=16_384, **SYNC)
    rig.send_many(250, "Old", size=10)
    rig.wall += 10_000
    rig.settle()
    rig.wall += 10_000
    rig.send_many(50, "New", size=10)
    rig.settle()
    rig.send_many(250, "Newest", size=10)
    rig.store.want_flush()
    rig.run_jobs()
    rig.cut_power(lambda path, sector: rng.random() < 0.5)
    assert rig.open().recovery.dispatched_from > 0
    for topic, count in (("Old", 250), ("New", 50), ("Newest", 250)):
        assert len(rig.read(topic)) == count
        assert [rig.found(f"{topic}-{number}", topic) for number in range(count)] == [
            [number] for number in range(count)
        ]
