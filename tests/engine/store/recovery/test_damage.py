"""Damage in the middle of what was stored: refused with its place, or given up when the caller says so
(docs/protocol/store.md 8).
"""

from __future__ import annotations

import pytest

from mqproto.engine.store import Ending, MemoryFiles, Recover, Store
from tests.engine.store.harness import START, Rig, damaged, memory_rig, opening_fails, records

SYNC = {"flush_disk_type": "SYNC_FLUSH"}


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_damage_in_the_middle_is_refused(rig: Rig, ending: str) -> None:
    """MSG-12 too: a flipped bit of a body."""
    rig.send_many(8)
    bad = rig.store.reader.entry(rig.store.queue("Topic", 0), 4)
    assert bad is not None
    rig.close() if ending == "clean" else rig.kill()
    byte = rig.log()[bad[0] + 90]
    rig.set_log(bad[0] + 90, bytes((byte ^ 4,)))
    failure = damaged(rig)
    assert failure.offset == bad[0]
    assert f"offset {bad[0]}" in str(failure)
    assert any("follows" in reason for reason in failure.reasons)

    store = rig.open(recover=Recover.CUT)
    assert store.recovery.ending is Ending.CUT
    assert (store.recovery.dropped_records, store.end) == (3, bad[0])
    assert store.recovery.dropped > 0
    assert any("follows" in note for note in store.recovery.notes)
    assert len(rig.read()) == 4
    assert rig.found("Topic-5") == []
    rig.send(body=b"new", uniq_key="new")
    for _ in range(2):
        assert rig.bodies()[4:] == [b"new"]
        assert rig.found("new") == [4]
        rig.reopen()
    rig.kill()
    rig.open()
    assert len(rig.read()) == 5


def test_checksums_are_not_looked_at_when_the_setting_says_so(rig: Rig) -> None:
    rig.send_many(3)
    rig.close()
    rig.set_log(90, b"\xff")
    assert damaged(rig).offset == 0
    rig.open(check_crc_on_recover=False)
    assert len(rig.read()) == 3


def test_lost_last_message_is_missed_after_an_orderly_end(rig: Rig) -> None:
    rig.send_many(3)
    rig.wall += 10
    start = rig.send()
    rig.close()
    rig.set_log(start, bytes(200))
    failure = damaged(rig)
    assert failure.offset == start
    assert any("durable" in reason for reason in failure.reasons)
    assert any("queues know" in reason for reason in failure.reasons)


def test_lost_message_that_was_flushed_is_missed_after_a_crash(rig: Rig) -> None:
    """A torn tail may only take what was never durable."""
    rig.send_many(3)
    rig.wall += 10
    start = rig.send()
    rig.settle()
    rig.kill()
    rig.set_log(start + 50, bytes(100))
    assert damaged(rig).offset == start
    rig.open(recover=Recover.CUT)
    rig.kill()
    assert len(Store.open(rig.settings(), rig.files, wall=START).recovery.notes) == 0


def test_under_sync_flush_queues_prove_what_was_durable() -> None:
    rig = memory_rig(**SYNC)
    rig.send_many(3)
    start = rig.send()
    rig.settle()
    rig.set_bytes("checkpoint", 0, bytes(24))
    rig.cut_power()
    rig.set_log(start + 50, bytes(100))
    assert any("queues know" in reason for reason in damaged(rig).reasons)


def test_missing_log_is_not_an_empty_one(rig: Rig) -> None:
    rig.send_many(3)
    rig.close()
    rig.files.remove(f"{rig.root}/commitlog/{0:020d}")
    assert damaged(rig).offset == 0
    rig.open(recover=Recover.CUT)
    assert rig.read() == []
    rig.send(body=b"new")
    assert rig.bodies() == [b"new"]
    rig.reopen()
    assert rig.bodies() == [b"new"]


def test_every_flipped_byte_is_refused_or_harmless() -> None:
    """Small log, orderly end: whatever is served is what was stored, and nothing is missing without a word."""
    rig = memory_rig(message_index_enable=False)
    for number in range(4):
        rig.send(body=b"body-%d" % number, at=START + number)
    end = rig.store.end
    rig.close()
    assert isinstance(rig.files, MemoryFiles)
    untouched = rig.files
    refused = 0
    for at in range(end):
        rig.files = untouched.process_death()
        rig.set_log(at, bytes((rig.log()[at] ^ 0x41,)))
        if opening_fails(rig):
            refused += 1
            continue
        served = rig.store.reader.get(rig.store.queue("Topic", 0), 0, 32, None)
        assert [message.body for message in records(served.views)] == [b"body-%d" % number for number in range(4)], at
    # sizes, magic, checksum, own offset, body and its length, lengths: the rest says nothing about itself
    assert refused >= 4 * (4 + 4 + 4 + 8 + 4 + 6 + 1 + 2)


def test_every_flipped_byte_after_a_kill_costs_at_most_the_last_message() -> None:
    rig = memory_rig(message_index_enable=False)
    for number in range(4):
        rig.send("ABCD"[number], b"body-%d" % number)
    last = (rig.store.reader.entry(rig.store.queue("D", 0), 0) or (0,))[0]
    end = rig.store.end
    assert isinstance(rig.files, MemoryFiles)
    untouched = rig.files.process_death()
    for at in range(end):
        rig.files = untouched.process_death()
        rig.set_log(at, bytes((rig.log()[at] ^ 0x41,)))
        failure = opening_fails(rig)
        if failure is not None:
            assert (failure.offset or 0) <= at < last
            continue
        report = rig.store.recovery
        assert (report.ending is Ending.TORN) == (rig.store.end == last), at
        served = sum(queue.max_offset - queue.min_offset for queue in rig.store.queues())
        assert served == (3 if report.ending is Ending.TORN else 4) or report.notes, at
