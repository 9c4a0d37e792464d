"""The end of the log is gone from some byte on, wherever that is: everything that was durable is served, or the start
is refused there.
"""

from __future__ import annotations

import pytest

from mqproto.engine.store import MemoryFiles, StoreDamaged
from tests.engine.store.harness import Rig, memory_rig

FILE = 1024


#: Of every record here, in its last bytes, and covered by no checksum.
PROPERTIES = len("UNIQ_KEY\x01key-10")


def small(flush: str) -> tuple[Rig, list[tuple[int, int]]]:
    """Messages over three files, each at a time of its own; and where each record begins and ends."""
    rig = memory_rig(mapped_file_size_commit_log=FILE, flush_disk_type=flush)
    places = []
    for number in range(12):
        rig.wall += 1
        place = rig.send(body=b"body-%d" % number, uniq_key=f"key-{number}")
        places.append((place, rig.store.end))
    return rig, places


def cut(files: MemoryFiles, end: int, at: int) -> MemoryFiles:
    """The same files without what lies in the log from `at` on."""
    found = files.process_death()
    for start in range(0, end, FILE):
        gone = max(start, at)
        if gone < start + FILE:
            file = found.open(f"/store/commitlog/{start:020d}")
            file.write(gone - start, bytes(start + FILE - gone))
            file.sync()
    return found


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("ending", ["closed", "killed", "power"])
def test_what_was_durable_is_missed(flush: str, ending: str) -> None:
    """The offset is that of the record with the cut, or, where only its properties are damaged, of the next one."""
    rig, places = small(flush)
    if ending == "closed":
        rig.close()
    else:
        rig.settle()
    files = rig.files
    assert isinstance(files, MemoryFiles)
    end = places[-1][1]
    for at in range(places[-1][1]):
        if ending == "closed" and at >= end - PROPERTIES:
            continue  # zeros in the properties of the last message may be what somebody sent
        found = cut(files, end, at)
        rig.files = found.power_loss(lambda path, sector: True, found.pending_names) if ending == "power" else found
        with pytest.raises(StoreDamaged) as refused:
            rig.open()
        offset = refused.value.offset
        begin, behind = next(place for place in places if at < place[1])
        allowed = [begin, behind, begin - begin % FILE + FILE] if begin <= at and behind - at <= PROPERTIES else [begin]
        if at < begin:  # in the filler, or in what follows its head
            allowed.append(max(place for _, place in places if place <= at))
        assert offset in allowed, (at, offset, allowed)


def test_what_was_not_durable_costs_nothing_else() -> None:
    """Power is lost before the first flush: the messages that are whole are there, and new ones follow them."""
    rig, places = small("ASYNC_FLUSH")
    files = rig.files
    assert isinstance(files, MemoryFiles)
    for at in range(places[-1][1]):
        found = cut(files, places[-1][1], at)
        rig.files = found.power_loss(lambda path, sector: True, found.pending_names)
        rig.open()
        whole = sum(end <= at for _, end in places)
        assert rig.bodies() == [b"body-%d" % number for number in range(whole)], at
        rig.send(body=b"next", uniq_key="next")
        assert rig.found("next") == [whole]
        rig.reopen()
        assert rig.bodies()[whole:] == [b"next"]
