"""What opening makes of a directory that was not closed, or was damaged (store.md 8)."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from engine.store import DiskFiles, Ending, MemoryFiles, PutRefused, Store, StoreDamaged, StoreLocked, StoreSettings, StoreUnwritable
from mqproto.ids import java_hash
from mqproto.record import decode_record
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import START, Rig, disk_rig, memory_rig, records

SYNC = {"flush_disk_type": "SYNC_FLUSH"}


def five(**settings: object) -> tuple[Rig, int]:
    """Five messages in memory, stored one after another; gives where the last one begins too."""
    rig = memory_rig(**settings)
    rig.send_many(4, size=60)
    start = rig.send(body=b"the last one", uniq_key="last", keys="last-key")
    return rig, start


# --- ends ---


def test_orderly_end_is_told(rig: Rig) -> None:
    assert rig.store.recovery.clean
    assert rig.store.recovery.ending is Ending.EMPTY
    bodies = rig.send_many(30, size=300)
    rig.close()
    assert not rig.files.exists(f"{rig.root}/abort")
    store = rig.open()
    report = store.recovery
    assert (report.clean, report.ending, report.dispatched, report.dropped, report.notes) == (True, Ending.WHOLE, 0, 0, [])
    assert report.end == store.end == store.flushed
    assert rig.bodies() == bodies
    assert [rig.found(f"Topic-{number}") for number in range(30)] == [[number] for number in range(30)]
    rig.send(body=b"more")
    assert rig.bodies()[30:] == [b"more"]


@pytest.mark.parametrize("settled", [True, False])
def test_death_of_the_process_loses_nothing(rig: Rig, settled: bool) -> None:
    bodies = rig.send_many(30, size=300)
    if settled:
        rig.settle()
    bodies += rig.send_many(5)
    rig.kill()
    store = rig.open()
    assert (store.recovery.clean, store.recovery.ending) == (False, Ending.WHOLE)
    assert rig.bodies() == bodies
    assert rig.found("Topic-29") == [29]
    assert rig.found("Topic-3") == [3, 33]
    rig.reopen()
    assert rig.bodies() == bodies


def test_opening_again_and_again_changes_nothing(rig: Rig) -> None:
    """REC-05: no message twice, in queue or index, whatever the checkpoint says."""
    rig.send_many(25, size=200)
    rig.settle()
    rig.send_many(25, "Later", size=200)
    for _ in range(3):
        rig.kill()
        rig.open()
        assert (len(rig.read()), len(rig.read("Later"))) == (25, 25)
        rig.settle()
        entries = 0
        for name in rig.files.names(f"{rig.root}/index"):
            data = rig.files.read(f"{rig.root}/index/{name}")
            entries += struct.unpack_from(">i", data, 36)[0] - 1
            numbers = [struct.unpack_from(">iqii", data, 440 + 20 * number) for number in range(1, entries + 1)]
            assert len(set(numbers)) == len(numbers)
        assert entries == 50
        rig.set_bytes("checkpoint", 0, bytes(24))


# --- the tail ---


@pytest.mark.parametrize("settled", [True, False])
def test_torn_tail_is_cut_at_every_byte(settled: bool) -> None:
    """REC-01, REC-03."""
    size = five()[0].store.end - five()[1]
    for cut in range(size):
        rig, start = five()
        if settled:  # the queue files know the message, as a disk may have written them first
            rig.store.timer(1 << 40, START)
            rig.run_jobs(lambda job: OSError(28, "") if type(job).__name__ == "FlushLog" else None)
        rig.kill()
        if settled:
            rig.set_bytes("checkpoint", 0, bytes(24))
        rig.set_log(start + cut, bytes(size - cut))
        store = rig.open()
        assert store.recovery.ending is (Ending.TORN if cut > 3 else Ending.WHOLE), "a size begins with zeros"
        assert (store.end, len(rig.read())) == (start, 4), cut
        assert rig.found("last") == rig.found("last-key") == []
        assert not any(rig.log()[start:])
        assert rig.send(body=b"next", uniq_key="next") == start
        assert rig.bodies()[4:] == [b"next"]
        assert rig.found("next") == [4]
        rig.reopen()
        assert len(rig.read()) == 5


@pytest.mark.parametrize("size", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\0\0\0\1"])
def test_torn_tail_with_a_wild_size(rig: Rig, size: bytes) -> None:
    """REC-01."""
    rig.send_many(4)
    start = rig.send()
    rig.kill()
    rig.set_log(start, size)
    rig.open()
    assert (rig.store.end, len(rig.read())) == (start, 4)


def test_torn_first_record(rig: Rig) -> None:
    rig.send()
    rig.kill()
    rig.set_log(10, b"\xff")
    rig.open()
    assert (rig.store.end, rig.read(), rig.store.recovery.ending) == (0, [], Ending.TORN)
    rig.send(body=b"new")
    assert rig.bodies() == [b"new"]


def test_torn_filler(rig: Rig) -> None:
    for _ in range(4):
        rig.send(body=bytes(900))
    end = rig.store.end
    rig.kill()
    rig.set_log(end, b"\0\0")
    rig.set_log(end + 2, struct.pack(">H", 4096 - end))
    rig.open()
    assert (rig.store.end, len(rig.read())) == (end, 4)
    rig.send(body=bytes(900))
    rig.reopen()
    assert len(rig.read()) == 5


def test_files_made_ahead_are_used_or_removed(rig: Rig) -> None:
    rig.send_many(4, size=700)
    rig.run_jobs()  # the file after this one is there
    assert len(rig.files.names(f"{rig.root}/commitlog")) == 2
    rig.kill()
    rig.open()
    assert len(rig.read()) == 4
    rig.send_many(10, size=700)
    rig.kill()
    rig.open()
    assert len(rig.read()) == 14
    rig.run_jobs()
    rig.close()
    names = rig.files.names(f"{rig.root}/commitlog")
    rig.open()
    assert int(names[-1]) <= rig.store.end, "an orderly end leaves no file that was never used"


def test_file_that_was_just_closed_by_a_filler(rig: Rig) -> None:
    """The end lies at the border, and the next file is not there, or empty."""
    for spare in (True, False):
        rig.send_many(4, f"T{spare}", size=700)
        end = rig.store.end
        border = end - end % 4096 + 4096
        if spare:
            rig.run_jobs()
        rig.kill()
        rig.set_log(end % 4096, struct.pack(">iI", border - end, 0xCBD43194), border - 4096)
        rig.open()
        assert rig.store.end == border
        assert len(rig.read(f"T{spare}")) == 4
        assert rig.send(f"T{spare}") == border
        rig.reopen()
        assert len(rig.read(f"T{spare}")) == 5


def test_old_bytes_behind_the_end_are_cleared(rig: Rig) -> None:
    """Apache leaves what it cuts off. A new record may end just where an old one begins (store.md 8.4)."""
    rig.send(body=bytes(70))
    stale = rig.send(body=b"stale", uniq_key="stale", at=START - 10_000)
    end = rig.store.end
    data = rig.log()[stale:end]
    rig.close()
    # as if the log had been cut behind its start long ago, and a shorter message was written since
    other = Rig(rig.files, f"{rig.root}-2")
    other.send(body=bytes(50))
    other.close()
    other.set_log(stale, data)
    store = other.open()
    assert (store.end, len(other.read())) == (stale - 20, 1)
    assert (store.recovery.dropped, store.recovery.dropped_records, store.recovery.ending) == (end - stale + 20, 1, Ending.TORN)
    assert not any(other.log()[store.end :])
    other.close()


# --- damage ---


def damaged(rig: Rig, **changes: object) -> StoreDamaged:
    before = {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()}
    with pytest.raises(StoreDamaged) as caught:
        rig.open(**changes)  # type: ignore[arg-type]
    assert {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()} == before, "nothing is changed"
    return caught.value


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_damage_in_the_middle_is_refused(rig: Rig, ending: str) -> None:
    """MSG-12 too: a flipped bit of a body."""
    rig.send_many(8)
    bad = rig.store.entry(rig.store.queue("Topic", 0), 4)
    assert bad is not None
    rig.close() if ending == "clean" else rig.kill()
    byte = rig.log()[bad[0] + 90]
    rig.set_log(bad[0] + 90, bytes((byte ^ 4,)))
    failure = damaged(rig)
    assert failure.offset == bad[0]
    assert f"offset {bad[0]}" in str(failure)
    assert any("follows" in reason for reason in failure.reasons)

    store = rig.open(cut=True)
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
    rig.open(cut=True)
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
    rig.open(cut=True)
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
        served = rig.store.get(rig.store.queue("Topic", 0), 0, 32, None)
        assert [message.body for message in records(served.views)] == [b"body-%d" % number for number in range(4)], at
    # sizes, magic, checksum, own offset, body and its length, lengths: the rest says nothing about itself
    assert refused >= 4 * (4 + 4 + 4 + 8 + 4 + 6 + 1 + 2)


def test_every_flipped_byte_after_a_kill_costs_at_most_the_last_message() -> None:
    rig = memory_rig(message_index_enable=False)
    for number in range(4):
        rig.send("ABCD"[number], b"body-%d" % number)
    last = (rig.store.entry(rig.store.queue("D", 0), 0) or (0,))[0]
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


def opening_fails(rig: Rig) -> StoreDamaged | None:
    try:
        rig.open()
    except StoreDamaged as failure:
        return failure
    return None


# --- power ---


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


# --- queues and index ---


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize("missing", [["consumequeue"], ["index"], ["consumequeue", "index"], ["consumequeue/B"], ["checkpoint"]])
def test_what_is_missing_is_made_again(rig: Rig, ending: str, missing: list[str]) -> None:
    for topic in ("B", "A"):
        rig.send_many(25, topic, size=200)
    rig.settle()
    rig.close() if ending == "clean" else rig.kill()
    for path in missing:
        if rig.files.is_folder(f"{rig.root}/{path}"):
            rig.files.remove_tree(f"{rig.root}/{path}")
        else:
            rig.files.remove(f"{rig.root}/{path}")
    rig.open()
    if missing == ["consumequeue/B"] and ending == "clean":
        assert rig.read("B") == [], "as Apache; only the log could tell, all of it"
        return
    assert (len(rig.read("A")), len(rig.read("B"))) == (25, 25)
    if "index" not in missing or ending == "killed" or "consumequeue" in missing:
        assert rig.found("A-0", "A") == [0]
        assert rig.found("B-24", "B") == [24]


def test_lost_queue_entries_are_found_wherever_they_begin(rig: Rig) -> None:
    """A queue lost entries that lie before the place where recovery begins."""
    rig.send_many(25, "A", size=200)
    rig.wall += 10_000
    rig.settle()
    rig.wall += 10_000
    rig.send_many(25, "B", size=200)
    rig.settle()
    rig.send("A", b"last")
    rig.kill()
    for name in rig.files.names(f"{rig.root}/consumequeue/A/0")[1:]:
        rig.files.remove(f"{rig.root}/consumequeue/A/0/{name}")
    store = rig.open()
    assert store.recovery.checked_from > store.recovery.dispatched_from
    assert rig.bodies("A")[25:] == [b"last"]
    assert len(rig.read("B")) == 25
    assert rig.found("A-3", "A") == [3]


def test_queue_files_are_cleared_behind_the_end(rig: Rig) -> None:
    """Entries that lead behind the end of the log would count again after the next crash."""
    rig.send_many(8)
    start = rig.send()
    rig.store.timer(1 << 40, START)
    rig.run_jobs(lambda job: OSError(28, "") if type(job).__name__ == "FlushLog" else None)
    rig.kill()
    rig.set_bytes("checkpoint", 0, bytes(24))
    rig.set_log(start + 20, bytes(80))
    rig.open()
    assert not any(rig.files.read(f"{rig.root}/consumequeue/Topic/0/{0:020d}")[8 * 20 :])


def test_entries_left_over_by_apache_are_dropped(rig: Rig) -> None:
    """Its recovery cuts queues in memory only, so an old entry may stay behind the last one (store.md 8.4)."""
    rig.send_many(3, "A")
    rig.send_many(30, "B")
    rig.close()
    rig.set_bytes(f"consumequeue/A/0/{0:020d}", 60, struct.pack(">qiq", 1000, 290, 0))
    store = rig.open()
    assert len(rig.read("A")) == 3
    assert any("lead to no message" in note for note in store.recovery.notes)
    rig.send("A", b"next")
    assert rig.bodies("A")[3:] == [b"next"]


def test_log_that_begins_later(rig: Rig) -> None:
    """Queues that are made again begin with blank entries (store.md 4.3), which are never given."""
    rig.send_many(60, size=300)
    rig.close()
    for start in (0, 4096):
        rig.files.remove(f"{rig.root}/commitlog/{start:020d}")
    for folder in ("consumequeue", "index"):
        rig.files.remove_tree(f"{rig.root}/{folder}")
    rig.open()
    first = decode_record(rig.store.record(8192) or b"").queue_offset
    queue = rig.store.queue("Topic", 0)
    for _ in range(2):
        queue = rig.store.queue("Topic", 0)
        assert (queue.min_offset, queue.max_offset) == (first, 60)
        assert len(rig.read()) == 60 - first
        rig.settle()
        rig.reopen()
    names = rig.files.names(f"{rig.root}/consumequeue/Topic/0")
    assert int(names[0]) == (first - first % 10) * 20
    blank = rig.files.read(f"{rig.root}/consumequeue/Topic/0/{names[0]}")[:20]
    assert first % 10 == 0 or blank == struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def claim(rig: Rig, place: int, body: bytes) -> None:
    """Store a message that claims a place of its own choice, as a damaged one may: no checksum covers it."""
    rig.store.queue("Topic", 0).next_offset = place
    rig.send(body=body)


@pytest.mark.parametrize("place", [1, 1 << 40])
def test_message_that_claims_an_impossible_place(place: int) -> None:
    rig = memory_rig()
    rig.send_many(3)
    claim(rig, place, b"strange")
    rig.send("Other")
    rig.kill()
    rig.open()
    assert any(f"claims place {place}" in note for note in rig.store.recovery.notes)
    assert (len(rig.read()), len(rig.read("Other"))) == (3, 1)


def test_messages_that_are_gone_leave_blank_places() -> None:
    rig = memory_rig()
    rig.send_many(3)
    claim(rig, 5, b"after")
    rig.kill()
    for _ in range(2):
        rig.open()
        queue = rig.store.queue("Topic", 0)
        assert queue.max_offset == 6
        assert rig.store.entry(queue, 3) is None
        assert [message.body for message in records(rig.store.get(queue, 3, 32, None).views)] == [b"after"]
        assert rig.store.get(queue, 0, 32, None).next_offset == 3
        rig.close()


def test_message_of_an_impossible_topic(rig: Rig) -> None:
    rig.send_many(2)
    offset = rig.send("X-Y")
    rig.send_many(2, "Later")
    rig.kill()
    at = rig.log().find(b"X-Y", offset)
    rig.set_log(at + 1, b"/")
    rig.open()
    assert any("in no queue" in note for note in rig.store.recovery.notes)
    assert (len(rig.read()), len(rig.read("Later"))) == (2, 2)


def test_entries_made_again_are_written_when_they_are_many(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.store.redispatch._ENTRIES_MAX", 200)
    monkeypatch.setattr("engine.store.redispatch._LATE_MAX", 5)
    rig.send_many(25, "A", size=200)
    rig.wall += 10_000
    rig.settle()
    rig.wall += 10_000
    rig.send_many(25, "B", size=200)
    rig.settle()
    rig.send_many(15, "B", size=200)
    rig.send("A", b"last")
    rig.kill()
    for name in rig.files.names(f"{rig.root}/consumequeue/A/0")[1:]:
        rig.files.remove(f"{rig.root}/consumequeue/A/0/{name}")
    rig.open()
    assert (len(rig.read("A")), len(rig.read("B"))) == (26, 40)
    assert rig.found("B-14", "B") == [14, 39]
    rig.reopen()
    assert (len(rig.read("A")), len(rig.read("B"))) == (26, 40)


def test_delay_queue_gets_its_deliver_times_back(rig: Rig) -> None:
    """Not the hash of the tag, as 4.9 makes it (store.md 8.6); levels above the table mean its last one."""
    for level, delay in (("3", 10_000), ("18", 7_200_000), ("99", 7_200_000)):
        rig.send("SCHEDULE_TOPIC_XXXX", more={"DELAY": level, "REAL_TOPIC": "T"}, tags="t", tags_code=rig.wall + delay)
    rig.kill()
    rig.open()
    queue = rig.store.queue("SCHEDULE_TOPIC_XXXX", 0)
    assert [(rig.store.entry(queue, offset) or (0, 0, 0))[2] - rig.wall for offset in range(3)] == [10_000, 7_200_000, 7_200_000]


@pytest.mark.parametrize("level", ["4x", "99999999999", "-3", "0", "\u0663"])
def test_damaged_delay_does_not_stop_recovery(rig: Rig, level: str) -> None:
    """MSG-11: a log that holds such a record already."""
    rig.send("SCHEDULE_TOPIC_XXXX", more={"DELAY": level}, tags="t", tags_code=5)
    rig.send(body=b"after")
    rig.kill()
    rig.open()
    entry = rig.store.entry(rig.store.queue("SCHEDULE_TOPIC_XXXX", 0), 0)
    assert entry is not None
    assert entry[2] == (rig.wall + 7_200_000 if level == "99999999999" else java_hash("t"))
    assert rig.bodies() == [b"after"]


def test_index_keeps_what_recovery_does_not_read_again(rig: Rig) -> None:
    """Apache throws the whole file away (store.md 8.4)."""
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
        assert [rig.found(f"{topic}-{number}", topic) for number in range(count)] == [[number] for number in range(count)]


def settled_long_ago(rig: Rig) -> None:
    """Everything so far is older than what recovery reads again."""
    for topic in ("Early", "Earlier"):
        rig.send_many(10, topic, size=900)
        rig.settle()
        rig.wall += 20_000


@pytest.mark.parametrize("count", [340, 380, 420, 900])
def test_index_files_made_ahead_are_no_end_of_the_index(rig: Rig, count: int) -> None:
    """A crash leaves an empty index file behind the one that is written; nothing may be missed, linked wrongly or twice after it."""
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
        assert [rig.found(f"{topic}-{number}", topic) for number in range(count)] == [[number] for number in range(count)]


# --- files of odd sizes ---


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
    assert damaged(rig).path.endswith(f"consumequeue/Topic/0/{400:020d}")


def test_foreign_files_are_left_alone(rig: Rig) -> None:
    """REC-06."""
    rig.send_many(3, size=300)
    rig.settle()
    rig.close()
    foreign = ["commitlog/backup.tmp", "index/notes.txt", "consumequeue/readme", "consumequeue/Topic/x", "consumequeue/Topic/0/old.bak"]
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
    """By a record lock on the first byte, which is what Java takes (store.md 1.1)."""
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
