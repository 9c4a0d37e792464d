"""A byte flipped at any position of any file: what is served is what was stored, and what is not served is refused,
told, or found.

No checksum covers queues and index, and looking at all of them would let a start take longer the more was stored. So a
start looks at the ends, a read looks where it is led to, and the doctor looks at everything.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqproto.engine.store import ConfigDamaged, ConfigFile, Files, GetStatus, MemoryFiles, StoreDamaged
from mqproto.engine.store.doctor import Report, check
from tests.engine.store.harness import SMALL, Rig, memory_rig, records

#: All bits, and one of them.
FLIPS = (0xFF, 0x10)
SENT = {"A": [b"a-%d" % number for number in range(8)], "B": [b"b-%d" % number for number in range(3)]}


def small(ending: str) -> Rig:
    """Two queues over file borders, stored at one time each."""
    rig = memory_rig(mapped_file_size_consume_queue=100)
    for number in range(8):
        for topic, bodies in SENT.items():
            if number < len(bodies):
                rig.wall += 1
                rig.send(topic, bodies[number], uniq_key=f"{topic}{number}")
    if ending == "closed":
        rig.close()
    else:
        rig.settle()
        rig.kill()
    return rig


def doctor(files: Files) -> Report:
    return check(files, "/store", index_pair=(SMALL["max_hash_slot_num"], SMALL["max_index_num"]))


def flipped(rig: Rig, path: str) -> Iterator[tuple[int, MemoryFiles]]:
    """The directory with each byte of a file flipped in turn, up to where only zeros follow."""
    untouched = rig.files
    assert isinstance(untouched, MemoryFiles)
    data = untouched.read(f"/store/{path}")
    for at in range(min(len(data.rstrip(b"\0")) + 2, len(data))):
        for flip in FLIPS:
            rig.files = untouched.process_death()
            rig.set_bytes(path, at, bytes((data[at] ^ flip,)))
            yield at, rig.files


def opens(rig: Rig) -> bool:
    try:
        rig.open()
    except StoreDamaged:
        return False
    return True


def served(rig: Rig, topic: str) -> tuple[list[bytes], str]:
    """What a consumer gets, each message in its place, and what the operator is told meanwhile."""
    queue = rig.store.queue(topic, 0)
    found: list[bytes] = []
    told = ""
    offset = queue.min_offset
    while offset < queue.max_offset:
        result = rig.store.reader.get(queue, offset, 32, None)
        assert result.next_offset > offset
        if result.status is GetStatus.FOUND:
            messages = records(result.views)
            assert all(message.body == SENT[topic][message.queue_offset] for message in messages)
            found += [message.body for message in messages]
        told += result.damaged
        offset = result.next_offset
    return found, told


def keys_are_found(rig: Rig) -> bool:
    return all(
        rig.found(f"{topic}{number}", topic) == [number]
        for topic, bodies in SENT.items()
        for number in range(len(bodies))
    )


@pytest.mark.parametrize("manifest", [True, False])
def test_queues_after_an_orderly_end(manifest: bool) -> None:
    """The end of a queue is made again from the log, unless a manifest spares a look at it. What is damaged elsewhere
    is passed over and told; nothing else is served.
    """
    outcomes = {"refused": 0, "whole": 0, "told": 0}
    rig = small("closed")
    for path in [path for path in rig.tree() if path.startswith("consumequeue/")]:
        for at, files in flipped(small("closed"), path):
            if manifest and at % 7:
                continue
            broken = not doctor(files).clean
            rig.files = files
            if not manifest:
                files.remove(f"{rig.root}/manifest")
            if not opens(rig):
                outcomes["refused"] += 1
                continue
            noted = "".join(rig.store.recovery.notes)
            for topic, bodies in SENT.items():
                found, told = served(rig, topic)
                assert found == bodies or (broken and (told or noted)), (path, at)
                outcomes["whole" if found == bodies else "told"] += 1
    assert min(outcomes["whole"], outcomes["told"]) > 0, outcomes
    assert (outcomes["refused"] > 0) != manifest


@pytest.mark.parametrize("kind", ["consumequeue", "index"])
def test_after_a_crash_queues_and_index_are_made_again(kind: str) -> None:
    rig = small("killed")
    for path in [path for path in rig.tree() if path.startswith(kind)]:
        for at, files in flipped(small("killed"), path):
            rig.files = files
            rig.open()
            assert {topic: rig.bodies(topic) for topic in SENT} == SENT, (path, at)
            assert keys_are_found(rig), (path, at)


def test_index_after_an_orderly_end() -> None:
    """A key may not be found; a message that has it not is never given, and the doctor knows. All that it cannot know
    is when the first entry was added: that may count from a file that is gone.
    """
    rig = small("closed")
    first_seconds = 40 + 4 * SMALL["max_hash_slot_num"] + 20 + 12
    (path,) = [path for path in rig.tree() if path.startswith("index/")]
    for at, files in flipped(small("closed"), path):
        clean = doctor(files).clean
        rig.files = files
        rig.open()
        assert {topic: rig.bodies(topic) for topic in SENT} == SENT
        for topic, bodies in SENT.items():
            for number in range(len(bodies)):
                assert rig.found(f"{topic}{number}", topic) in ([number], []), at
        assert not clean or keys_are_found(rig) or at in range(first_seconds, first_seconds + 4), at


@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_checkpoint(ending: str) -> None:
    rig = small(ending)
    for at, files in flipped(small(ending), "checkpoint"):
        rig.files = files
        if opens(rig):
            assert {topic: rig.bodies(topic) for topic in SENT} == SENT, at


def test_configuration() -> None:
    """A damaged text is not taken for another one: the backup takes its place, or nothing does."""
    files = MemoryFiles()
    file = ConfigFile("/c/topics.json", files)
    for text in ("[1111]", "[2222]"):
        file.save(text)

    def parse(text: str) -> str:
        if text not in ("[1111]", "[2222]"):
            raise ValueError("damaged")
        return text

    good = files.read("/c/topics.json")
    for at in range(len(good)):
        for flip in FLIPS:
            damaged = good[:at] + bytes((good[at] ^ flip,)) + good[at + 1 :]
            files.write("/c/topics.json", damaged)
            reader = ConfigFile("/c/topics.json", files)
            assert reader.load(parse) == "[1111]"
            assert reader.warning
            files.write("/c/topics.json.bak", damaged)
            with pytest.raises(ConfigDamaged):
                ConfigFile("/c/topics.json", files).load(parse)
            files.write("/c/topics.json.bak", b"[1111]")
