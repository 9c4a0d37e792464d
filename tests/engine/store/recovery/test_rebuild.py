"""Queues that are made again from the log (docs/protocol/store.md 8.3)."""

from __future__ import annotations

import struct

import pytest

from mqproto.wire.ids import java_hash
from mqproto.wire.record import decode_record
from tests.engine.store.harness import START, Rig, memory_rig, records


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize(
    "missing", [["consumequeue"], ["index"], ["consumequeue", "index"], ["consumequeue/B"], ["checkpoint"]]
)
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
    assert (len(rig.read("A")), len(rig.read("B"))) == (25, 25)
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
    """Its recovery cuts queues in memory only: an old entry may stay behind (docs/protocol/store.md 8.4)."""
    rig.send_many(3, "A")
    rig.send_many(30, "B")
    rig.close()
    rig.files.remove(f"{rig.root}/manifest")
    rig.set_bytes(f"consumequeue/A/0/{0:020d}", 60, struct.pack(">qiq", 1000, 290, 0))
    store = rig.open()
    assert len(rig.read("A")) == 3
    assert any("lead to no message" in note for note in store.recovery.notes)
    rig.send("A", b"next")
    assert rig.bodies("A")[3:] == [b"next"]


def test_log_that_begins_later(rig: Rig) -> None:
    """Queues that are made again begin with blank entries (docs/protocol/store.md 4.3), which are never given."""
    rig.send_many(60, size=300)
    rig.close()
    for start in (0, 4096):
        rig.files.remove(f"{rig.root}/commitlog/{start:020d}")
    for folder in ("consumequeue", "index"):
        rig.files.remove_tree(f"{rig.root}/{folder}")
    rig.open()
    first = decode_record(rig.store.reader.record(8192) or b"").queue_offset
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
        assert rig.store.reader.entry(queue, 3) is None
        assert [message.body for message in records(rig.store.reader.get(queue, 3, 32, None).views)] == [b"after"]
        for count in range(1, 7):
            # the entries of the gap lead to the message behind it, for the sake of Apache's brokers
            found = rig.store.reader.get(queue, 0, count, None)
            assert [message.queue_offset for message in records(found.views)] == list(range(min(count, 3)))
            assert found.next_offset == min(count, 3)
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
    monkeypatch.setattr("mqproto.engine.store.recovery.redispatch._ENTRIES_MAX", 200)
    monkeypatch.setattr("mqproto.engine.store.recovery.redispatch._LATE_MAX", 5)
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
    """Not the hash of the tag, as 4.9 makes it (docs/protocol/store.md 8.6); levels above the table mean its last."""
    for level, delay in (("3", 10_000), ("18", 7_200_000), ("99", 7_200_000)):
        rig.send("SCHEDULE_TOPIC_XXXX", more={"DELAY": level, "REAL_TOPIC": "T"}, tags="t", tags_code=rig.wall + delay)
    rig.kill()
    rig.open()
    queue = rig.store.queue("SCHEDULE_TOPIC_XXXX", 0)
    assert [(rig.store.reader.entry(queue, offset) or (0, 0, 0))[2] - rig.wall for offset in range(3)] == [
        10_000,
        7_200_000,
        7_200_000,
    ]


@pytest.mark.parametrize("level", ["4x", "99999999999", "-3", "0", "\u0663"])
def test_damaged_delay_does_not_stop_recovery(rig: Rig, level: str) -> None:
    """MSG-11: a log that holds such a record already."""
    rig.send("SCHEDULE_TOPIC_XXXX", more={"DELAY": level}, tags="t", tags_code=5)
    rig.send(body=b"after")
    rig.kill()
    rig.open()
    entry = rig.store.reader.entry(rig.store.queue("SCHEDULE_TOPIC_XXXX", 0), 0)
    assert entry is not None
    assert entry[2] == (rig.wall + 7_200_000 if level == "99999999999" else java_hash("t"))
    assert rig.bodies() == [b"after"]
