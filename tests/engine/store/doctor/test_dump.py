"""Messages found in a directory that is only looked at: by queue, by key, in the log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from mqproto.engine.store import DiskFiles, MemoryFiles
from mqproto.engine.store.doctor import Directory, open_directory
from mqproto.engine.store.doctor.dump import Dump, DumpSelection, destination
from mqproto.engine.store.doctor.messages import Bounds
from mqproto.message import MessageExt
from mqproto.wire.record import decode_record, inflated
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import START, Rig, memory_rig
from tests.golden.golden import GOLDEN, VERSIONS


def found(directory: Directory, **wanted: Any) -> tuple[list[MessageExt], list[str]]:
    """Messages and notes, the unreadable ones among them."""
    dump = Dump(directory, DumpSelection(**wanted))
    messages, notes = [], []
    for one in dump.run():
        if one.record is None:
            notes.append(f"{one.place}: {one.why}")
        else:
            messages.append(decode_record(one.record))
    return messages, dump.notes + notes


def places(rig: Rig, **wanted: Any) -> list[int]:
    """Queue offsets of the messages found; there is nothing else to tell."""
    directory = open_directory(rig.files, rig.root)
    try:
        messages, notes = found(directory, **wanted)
    finally:
        directory.close()
    assert notes == []
    return [message.queue_offset for message in messages]


@pytest.fixture(
    scope="module", params=[(version, kind) for version in VERSIONS for kind in ("clean", "crashed")], ids="-".join
)
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Directory, dict[str, Any]]]:
    sample = GOLDEN.store(*request.param)
    directory = open_directory(DiskFiles(), str(sample.unpack(tmp_path_factory.mktemp("golden"))))
    yield directory, sample.expected
    directory.close()


def test_apaches_messages_are_found_by_their_queues(golden: tuple[Directory, dict[str, Any]]) -> None:
    directory, expected = golden
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for each in expected["messages"]:
        by_topic.setdefault(each["topic"], []).append(each)
    for topic, wanted in by_topic.items():
        messages, notes = found(directory, topic=topic)
        assert notes == []
        assert [message.physical_offset for message in messages] == sorted(each["physicalOffset"] for each in wanted)
        by_place = {each["physicalOffset"]: each for each in wanted}
        for message in messages:
            each = by_place[message.physical_offset]
            assert (message.queue_id, message.queue_offset) == (each["queueId"], each["queueOffset"])
            assert hashlib.sha1(inflated(message).body).hexdigest() == each["bodySha1"]


def test_apaches_messages_are_found_in_the_log(golden: tuple[Directory, dict[str, Any]]) -> None:
    directory, expected = golden
    messages, notes = found(directory)
    assert notes == []
    assert {each["physicalOffset"] for each in expected["messages"]} <= {
        message.physical_offset for message in messages
    }


def test_apaches_messages_are_found_by_their_keys(golden: tuple[Directory, dict[str, Any]]) -> None:
    directory, expected = golden
    for each in expected["messages"][::29]:  # what crashed has no index, so that each search reads the whole log
        for key in [each["properties"].get("UNIQ_KEY"), *each["properties"].get("KEYS", "").split()]:
            if key:
                messages, notes = found(directory, topic=each["topic"], key=key)
                assert notes == []
                assert each["physicalOffset"] in [message.physical_offset for message in messages]


@pytest.mark.parametrize("state", ["running", "settled", "killed", "closed", "without queues"])
def test_all_messages_are_found_in_every_state(make_rig: MakeRig, state: str) -> None:
    """A running broker writes its queues late, and after a crash entries are missing: the log has them."""
    rig = make_rig(mapped_file_size_commit_log=2048)
    for number in range(60):
        rig.send("A" if number % 3 else "B", b"%d" % number * 20, number % 2, uniq_key=f"{number:032X}")
        if number == 30:
            rig.settle()
    expected = {
        topic: sorted((each.queue_id, each.queue_offset) for queue in (0, 1) for each in rig.read(topic, queue))
        for topic in "AB"
    }
    root, files = rig.root, rig.files
    if state == "settled":
        rig.settle()
    elif state == "killed":
        rig.kill()
        root, files = rig.root, rig.files
    elif state != "running":
        rig.close()
    if state == "without queues":
        files.remove_tree(f"{root}/consumequeue")
    directory = open_directory(files, root)
    for topic, wanted in expected.items():
        messages, notes = found(directory, topic=topic)
        assert sorted((each.queue_id, each.queue_offset) for each in messages) == wanted
        assert [each.physical_offset for each in messages] == sorted(each.physical_offset for each in messages)
        assert notes == (
            [f"there is no consume queue of {topic}: the whole log is read for it"] if state == "without queues" else []
        )
        one, _ = found(directory, topic=topic, queue_id=1)
        assert [(1, each.queue_offset) for each in one] == [each for each in wanted if each[0] == 1]
    for number in (0, 29, 31, 59):
        messages, _ = found(directory, topic="A" if number % 3 else "B", key=f"{number:032X}")
        assert [each.body for each in messages] == [b"%d" % number * 20]
    directory.close()
    if state in ("killed", "closed", "without queues"):
        rig.open()


def test_ranges_of_offsets_and_times(rig: Rig) -> None:
    for _ in range(40):
        rig.wall += 10
        rig.send(body=bytes(50))
        rig.send("Other")
    rig.settle()
    assert places(rig, topic="Topic", bounds=Bounds(from_offset=37)) == [37, 38, 39]
    assert places(rig, topic="Topic", bounds=Bounds(to_offset=3)) == [0, 1, 2]
    assert places(rig, topic="Topic", bounds=Bounds(from_offset=50)) == []
    assert places(rig, topic="Topic", bounds=Bounds(from_time=START + 50, to_time=START + 71)) == [4, 5, 6]
    assert places(rig, topic="Topic", bounds=Bounds(from_time=START + 51, to_offset=7)) == [5, 6]
    assert places(rig, bounds=Bounds(from_time=START + 390)) == [38, 38, 39, 39]
    second = open_directory(rig.files, rig.root)
    physical = [message.physical_offset for message in found(second)[0]]
    second.close()
    assert places(rig, bounds=Bounds(from_offset=physical[-2])) == [39, 39]
    assert places(rig, bounds=Bounds(from_offset=physical[-2] - 1)) == [39, 39]
    assert places(rig, bounds=Bounds(to_offset=physical[2])) == [0, 0]
    assert places(rig, topic="Other", physical=True, bounds=Bounds(from_offset=physical[-4])) == [38, 39]
    assert places(rig, bounds=Bounds(from_offset=1 << 40)) == []


def test_keys_within_a_range(rig: Rig) -> None:
    for number in range(6):
        rig.wall += 1000
        rig.send(queue_id=number % 2, keys="same")
    rig.close()
    assert places(rig, topic="Topic", key="same", queue_id=1) == [0, 1, 2]
    assert places(rig, topic="Topic", key="same", bounds=Bounds(from_offset=1, to_offset=2)) == [1, 1]
    assert places(rig, topic="Topic", key="same", bounds=Bounds(from_time=START + 4000)) == [1, 2, 2]
    rig.open()


def test_unflushed_messages_have_ranges_too(rig: Rig) -> None:
    rig.send()
    rig.settle()
    for _ in range(9):
        rig.wall += 10
        rig.send()
    start = rig.wall - 100
    assert places(rig, topic="Topic", bounds=Bounds(from_offset=3, to_offset=5)) == [3, 4]
    assert places(rig, topic="Topic", bounds=Bounds(from_time=start + 35, to_time=start + 60)) == [3, 4]


def test_a_topic_that_was_made_again_has_its_new_messages_only(rig: Rig) -> None:
    rig.send_many(5)
    rig.store.delete_queues(lambda queue: queue.topic == "Topic")
    rig.run_jobs()
    rig.send(body=b"new")
    rig.send(body=b"newer")
    directory = open_directory(rig.files, rig.root)
    assert [(each.queue_offset, each.body) for each in found(directory, topic="Topic")[0]] == [
        (0, b"new"),
        (1, b"newer"),
    ]
    directory.close()


def damaged() -> tuple[Rig, int]:
    rig = memory_rig()
    rig.send_many(10)
    rig.close()
    queue = open_directory(rig.files, rig.root).queue("Topic", 0)
    place = queue.raw_entry(4)[0]
    rig.set_log(place + 100, b"\xff\xff")
    return rig, place


def test_damage_is_told_and_passed_over() -> None:
    rig, place = damaged()
    directory = open_directory(rig.files, rig.root)
    messages, notes = found(directory, topic="Topic")
    assert [each.queue_offset for each in messages] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert notes == [f"Topic/0@4, at {place} of the log: its record is damaged"]
    messages, notes = found(directory)
    assert len(messages) == 9
    assert len(notes) == 1
    assert notes[0].endswith(f"bytes of the log cannot be read, from offset {place} on")


def test_an_index_that_begins_late_does_not_hide_anything() -> None:
    rig = memory_rig(message_index_enable=False)
    rig.send(uniq_key="old")
    rig.close()
    rig.open(message_index_enable=True)
    rig.send(uniq_key="new")
    rig.close()
    directory = open_directory(rig.files, rig.root)
    assert [index.head.begin for index in directory.index_files()] == [directory.queue("Topic", 0).raw_entry(1)[0]]
    assert places(rig, topic="Topic", key="old") == [0]
    assert places(rig, topic="Topic", key="new") == [1]
    assert places(rig, topic="Topic", key="none") == []
    rig.files.remove_tree(f"{rig.root}/index")
    directory = open_directory(rig.files, rig.root)
    messages, notes = found(directory, topic="Topic", key="new")
    assert (len(messages), notes) == (1, ["there is no index: the whole log is read"])
    messages, notes = found(directory, key="new")
    assert len(messages) == 1
    assert "--topic would be quicker" in notes[0]


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "A", "REAL_QID": "3"}, ("A", 3)),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "A", "REAL_QID": "x"}, ("A", None)),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "A", "REAL_QID": "0"}, ("A", 0)),
        ("%RETRY%g", {"RETRY_TOPIC": "A", "REAL_TOPIC": "%RETRY%g"}, ("A", None)),
        ("A", {"REAL_TOPIC": "A", "REAL_QID": "3"}, None),
        ("SCHEDULE_TOPIC_XXXX", {}, None),
    ],
)
def test_waiting_messages_say_what_they_are_for(topic: str, properties: dict[str, str], expected: object) -> None:
    assert destination(MessageExt(topic, b"", properties)) == expected


def test_looking_changes_nothing() -> None:
    files = MemoryFiles(forgetful=True)
    rig = Rig(files, "/store")
    rig.send_many(30)
    rig.close()
    before = {path: files.read(f"{rig.root}/{path}") for path in rig.tree()}
    places(rig, topic="Topic")
    places(rig)
    places(rig, topic="Topic", key="Topic-3")
    assert {path: files.read(f"{rig.root}/{path}") for path in rig.tree()} == before
