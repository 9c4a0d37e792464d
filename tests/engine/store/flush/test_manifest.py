"""Manifest of an orderly end: losses are noticed by it, and a start needs not look into every queue."""

from __future__ import annotations

import errno
import json
import zlib

import pytest

from mqproto.engine.store import DiskFiles, Ending, MemoryFiles
from mqproto.engine.store.disk.files import File
from tests.engine.store.harness import START, Rig, memory_rig
from tests.engine.store.scenario import OLD_MS


def filled(rig: Rig) -> dict[str, list[bytes]]:
    """Three topics with files of queues and of the index, closed in an orderly way."""
    bodies = {topic: rig.send_many(35, topic, size=200) for topic in ("A", "B", "C")}
    rig.send_many(300, "D", size=5)
    rig.settle()
    rig.close()
    return bodies


def complete(rig: Rig, bodies: dict[str, list[bytes]]) -> bool:
    keys = all(rig.found(f"{topic}-{number}", topic) == [number] for topic in bodies for number in range(35))
    return keys and all(rig.bodies(topic) == bodies[topic] for topic in bodies) and len(rig.read("D")) == 300


def test_it_is_there_between_an_orderly_end_and_the_next_start_only(rig: Rig) -> None:
    assert "manifest" not in rig.tree()
    filled(rig)
    assert "manifest" in rig.tree()
    rig.open()
    assert "manifest" not in rig.tree()
    rig.kill()
    assert "manifest" not in rig.tree()


LOST = [
    ["consumequeue/A/0/00000000000000000000"],
    ["consumequeue/A/0/00000000000000000200"],
    ["consumequeue/A/0/00000000000000000600"],
    ["consumequeue/A"],
    ["consumequeue/A", "consumequeue/C/0/00000000000000000400"],
    ["consumequeue"],
    ["index/0"],
    ["index/-1"],
    ["index"],
    ["index/0", "consumequeue/B"],
]


@pytest.mark.parametrize("lost", LOST)
def test_what_was_lost_is_noticed_and_made_again(rig: Rig, lost: list[str]) -> None:
    bodies = filled(rig)
    before = {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree() if path.startswith("consumequeue")}
    indexes = rig.files.names(f"{rig.root}/index")
    assert len(indexes) > 1
    for path in lost:
        path = path.replace("index/0", f"index/{indexes[0]}").replace("index/-1", f"index/{indexes[-1]}")
        if rig.files.is_folder(f"{rig.root}/{path}"):
            rig.files.remove_tree(f"{rig.root}/{path}")
        else:
            rig.files.remove(f"{rig.root}/{path}")
    report = rig.open().recovery
    assert report.ending is Ending.WHOLE
    assert any("again" in note for note in report.notes)
    assert complete(rig, bodies)
    rig.settle()
    rig.close()
    assert {path: rig.files.read(f"{rig.root}/{path}") for path in before} == before
    assert rig.open().recovery.notes == []
    assert complete(rig, bodies)


def test_delay_queue_that_was_lost_gets_its_deliver_times_back(rig: Rig) -> None:
    for level, delay in (("3", 10_000), ("18", 7_200_000)):
        rig.send("SCHEDULE_TOPIC_XXXX", more={"DELAY": level, "REAL_TOPIC": "T"}, tags="t", tags_code=rig.wall + delay)
    rig.send()
    rig.close()
    rig.files.remove_tree(f"{rig.root}/consumequeue/SCHEDULE_TOPIC_XXXX")
    rig.open()
    queue = rig.store.queue("SCHEDULE_TOPIC_XXXX", 0)
    assert [(rig.store.reader.entry(queue, offset) or (0, 0, 0))[2] - rig.wall for offset in range(2)] == [
        10_000,
        7_200_000,
    ]


def test_lost_queue_whose_messages_are_gone_goes_on_where_it_was(rig: Rig) -> None:
    """Consumers have committed higher offsets: lower ones must not be given out again."""
    rig.send_many(7)
    rig.send_many(40, "Other", size=300)
    rig.close()
    rig.files.remove(f"{rig.root}/commitlog/{0:020d}")
    rig.open()
    rig.close()
    rig.files.remove_tree(f"{rig.root}/consumequeue/Topic")
    rig.open()
    rig.send(body=b"next")
    assert [(message.queue_offset, message.body) for message in rig.read()] == [(7, b"next")]
    rig.reopen()
    assert [(message.queue_offset, message.body) for message in rig.read()] == [(7, b"next")]


def test_missing_checkpoint_is_made_again(rig: Rig) -> None:
    bodies = filled(rig)
    before = rig.files.read(f"{rig.root}/checkpoint")
    rig.files.remove(f"{rig.root}/checkpoint")
    report = rig.open().recovery
    assert report.dispatched == 0
    assert any("checkpoint is missing" in note for note in report.notes)
    assert complete(rig, bodies)
    rig.reopen()
    assert rig.files.read(f"{rig.root}/checkpoint") == before
    assert complete(rig, bodies)


def test_missing_abort_does_not_make_a_crash_an_orderly_end(rig: Rig) -> None:
    """The checkpoint tells: it is older than the last message."""
    rig.send_many(20, "A")
    rig.settle()
    rig.wall += 5000
    rig.send_many(20, "A")
    rig.send_many(20, "B")
    rig.kill()
    rig.files.remove(f"{rig.root}/abort")
    report = rig.open().recovery
    assert report.clean
    assert any("as after a crash" in note for note in report.notes)
    assert (len(rig.read("A")), len(rig.read("B"))) == (40, 20)
    assert rig.found("B-19", "B") == [19]


def test_another_broker_went_on(rig: Rig) -> None:
    """The log is longer than the manifest says: it does not count."""
    filled(rig)
    old = rig.files.read(f"{rig.root}/manifest")
    rig.open()
    rig.send_many(5, "A")
    rig.send_many(5, "New")
    rig.close()
    rig.files.write(f"{rig.root}/manifest", old)
    rig.open()
    assert (len(rig.read("A")), len(rig.read("New"))) == (40, 5)


def test_another_broker_was_here_without_going_on(rig: Rig) -> None:
    """It may have deleted a topic. The checkpoint was written later than the manifest."""
    if not isinstance(rig.files, MemoryFiles):
        pytest.skip("needs a clock that tests can set")
    rig.files.clock = lambda: START
    filled(rig)
    rig.files.clock = lambda: START + 1
    rig.set_bytes("checkpoint", 24, b"5.x")
    rig.files.remove_tree(f"{rig.root}/consumequeue/B")
    rig.open()
    assert rig.read("B") == []
    assert len(rig.read("A")) == 35


@pytest.mark.parametrize("damage", ["flipped", "empty", "short", "version", "text"])
def test_damaged_manifest_counts_for_nothing(rig: Rig, damage: str) -> None:
    bodies = filled(rig)
    path = f"{rig.root}/manifest"
    data = bytearray(rig.files.read(path))
    if damage == "flipped":
        data[50] ^= 1
    elif damage == "version":
        text = json.dumps({**json.loads(data.split(b"\n")[0]), "version": 99}).encode()
        data[:] = b"%s\n%08x\n" % (text, zlib.crc32(text))
    rig.files.write(path, {"empty": b"", "short": bytes(data[:60]), "text": b"[]\n"}.get(damage, bytes(data)))
    rig.open()
    assert complete(rig, bodies)


def test_full_disk_at_the_end_does_without(rig: Rig) -> None:
    if not isinstance(rig.files, MemoryFiles):
        pytest.skip("needs a disk that is full when told")

    def full(change: str, path: str) -> None:
        if "manifest" in path and change == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    rig.send_many(5)
    rig.files.before_change = full
    rig.close()
    assert "manifest" not in rig.tree()
    assert "abort" not in rig.tree()
    rig.open()
    assert len(rig.read()) == 5


@pytest.mark.parametrize("steps", range(30))
def test_power_loss_while_a_lost_queue_is_made_again(steps: int) -> None:
    rig = memory_rig()
    bodies = filled(rig)
    rig.files.remove_tree(f"{rig.root}/consumequeue/B")
    rig.files.sync_folder(f"{rig.root}/consumequeue")
    assert isinstance(rig.files, MemoryFiles)
    left = steps

    def die(change: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            rig.files.before_change = lambda change, path: None  # type: ignore[attr-defined]
            copies.append(rig.files.power_loss())  # type: ignore[attr-defined]

    copies: list[MemoryFiles] = []
    rig.files.before_change = die
    rig.open()
    if copies:
        rig.files = copies[0]
        rig.open()
    assert complete(rig, bodies)


class CountingFiles(DiskFiles):
    """Counts what is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    def open(self, path: str) -> File:
        self.opened += 1
        return super().open(path)


def test_start_looks_into_no_queue(tmp_path: object) -> None:
    rig = Rig(CountingFiles(), f"{tmp_path}/store", message_index_enable=False)
    for number in range(50):
        rig.send(f"Topic-{number}")
    rig.close()
    assert isinstance(rig.files, CountingFiles)
    rig.files.opened = 0
    rig.open()
    assert rig.files.opened < 10
    assert len(list(rig.store.queues())) == 50
    rig.close()


def test_an_end_before_the_queues_follow_the_beginning_of_the_log() -> None:
    """Files of the log were deleted, and the store ended before its queues knew: the next start looks into them."""
    rig = memory_rig()
    assert isinstance(rig.files, MemoryFiles)
    rig.files.clock = lambda: rig.wall
    rig.send_many(60, size=300)
    rig.settle()
    rig.now += OLD_MS
    rig.wall += OLD_MS
    rig.store.delete_old_files()
    while not rig.store.min_physical:
        rig.store.timer(rig.now, rig.wall)
        if not rig.store.min_physical:
            rig.run_jobs()
    assert rig.store.queue("Topic", 0).min_offset == 0
    rig.store.jobs.clear()
    rig.store.close(rig.wall)
    rig.open()
    queue = rig.store.queue("Topic", 0)
    place = rig.store.reader.entry(queue, queue.min_offset)
    assert place is not None
    assert place[0] >= rig.store.min_physical
    assert len(rig.bodies()) == 60 - queue.min_offset
