"""Recovery: what opening makes of a directory that was not closed, or was damaged (docs/protocol/store.md 8)."""

from __future__ import annotations

import struct

import pytest

from mqproto.engine.store import Ending
from tests.engine.store.harness import START, Rig, memory_rig


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
    assert (report.clean, report.ending, report.dispatched, report.dropped, report.notes) == (
        True,
        Ending.WHOLE,
        0,
        0,
        [],
    )
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
    """Apache leaves what it cuts off.

    A new record may end just where an old one begins (docs/protocol/store.md 8.4).
    """
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
    assert (store.recovery.dropped, store.recovery.dropped_records, store.recovery.ending) == (
        end - stale + 20,
        1,
        Ending.TORN,
    )
    assert not any(other.log()[store.end :])
    other.close()
