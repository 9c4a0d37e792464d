"""The extension of the consume queues: units, their files, their addresses, and what becomes of them at starts and
ends.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from mqproto.engine.settings import apply
from mqproto.engine.store import BatchPart, GetStatus, StoreDamaged, StoreSettings, Unit
from mqproto.errors import InvalidSetting
from mqproto.wire.ids import java_hash
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import HOST, Rig

EXT: dict[str, Any] = {
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 128,
    "bit_map_length_consume_queue_ext": 32,
}
BASE = -(1 << 63)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig(**EXT)


def send_bits(rig: Rig, tag: str, bits: bytes) -> None:
    """A message with a bitmap."""
    properties = b"TAGS\x01" + tag.encode()
    queue = rig.store.queue("Topic", 0)
    rig.store.writer.append(
        queue, b"b", properties, 0, 0, 0, HOST, HOST, 0, 0, java_hash(tag), None, None, rig.wall, bits
    )


def raw_codes(rig: Rig, topic: str = "Topic", queue_id: int = 0) -> list[int]:
    """What stands in the place of the tags codes in the files of a queue."""
    folder = f"{rig.root}/consumequeue/{topic}/{queue_id}"
    data = b"".join(rig.files.read(f"{folder}/{name}") for name in rig.files.names(folder))
    return [code for _, size, code in struct.iter_unpack(">qiq", data[: len(data) // 20 * 20]) if size]


def unit_file(rig: Rig, start: int = 0, topic: str = "Topic") -> bytes:
    return rig.files.read(f"{rig.root}/consumequeue_ext/{topic}/0/{start:020d}")


def unit_files(rig: Rig) -> list[str]:
    return [path.rpartition("/")[2] for path in rig.tree() if path.startswith("consumequeue_ext/")]


def tags(rig: Rig, *wanted: str) -> list[int]:
    """Queue offsets that a reader with these tags is given."""
    queue = rig.store.find_queue("Topic", 0)
    assert queue is not None
    found, offset = [], queue.min_offset
    while offset < queue.max_offset:
        result = rig.store.reader.get(queue, offset, 1, frozenset(map(java_hash, wanted)))
        if result.status is GetStatus.FOUND:
            found.append(result.next_offset - 1)
        offset = result.next_offset
    return found


def test_units_as_apache_lays_them_out(rig: Rig) -> None:
    send_bits(rig, "TagX", b"\x81\x02\x03\x04")
    send_bits(rig, "标签", b"")
    rig.close()
    first = struct.pack(">hqqh", 24, 2598942, rig.wall, 4) + b"\x81\x02\x03\x04"
    second = struct.pack(">hqqh", 20, 857175, rig.wall, 0)
    assert unit_file(rig)[:44] == first + second
    assert not any(unit_file(rig)[44:])
    assert len(unit_file(rig)) == 128
    assert raw_codes(rig) == [BASE, BASE + 24]
    rig.open()


@pytest.mark.parametrize("rest", [19, 20, 23, 24])
def test_a_file_ends_with_a_mark(make_rig: MakeRig, rest: int) -> None:
    """Four bytes stay free for it: a unit of 20 bytes fits where 24 are left."""
    rig = make_rig(**{**EXT, "mapped_file_size_consume_queue_ext": 100 + rest})
    for number in range(6):
        rig.send(tags=f"T{number}")
    rig.close()
    start = 0 if rest == 24 else 100 + rest
    assert raw_codes(rig) == [BASE + at for at in (0, 20, 40, 60, 80, 100 if rest == 24 else start)]
    assert unit_file(rig)[100:102] == (b"\x00\x14" if rest == 24 else b"\xff\xff")
    rig.open()
    assert [tags(rig, f"T{number}") for number in range(6)] == [[number] for number in range(6)]


def test_filters_see_the_real_code(rig: Rig) -> None:
    for number in range(20):
        rig.send(tags=f"T{number % 4}")
    assert tags(rig, "T1") == [1, 5, 9, 13, 17]
    rig.settle()
    units = rig.store.queue("Topic", 0).units
    assert units is not None
    assert (bytes(units.tail), rig.store._queues.extension.waiting) == (b"", 0), "memory holds what is not in files"
    assert tags(rig, "T1", "T2") == [1, 2, 5, 6, 9, 10, 13, 14, 17, 18]
    rig.reopen()
    assert tags(rig, "T3") == [3, 7, 11, 15, 19]
    assert tags(rig, "no") == []


def test_bitmaps_are_given_back(rig: Rig) -> None:
    send_bits(rig, "TagX", b"bits")
    send_bits(rig, "TagX", b"too long")
    batch = BatchPart(b"body", b"", 0, 7, None, None, b"map")
    rig.store.writer.append_batch(rig.store.queue("Topic", 0), [batch], 0, 0, HOST, HOST, 0, rig.wall)
    for _ in range(2):
        queue = rig.store.queue("Topic", 0)
        found = [rig.store.reader.unit(queue, offset) for offset in range(4)]
        expected = [(2598942, rig.wall, b"bits"), (2598942, rig.wall, b""), (7, rig.wall, b"map")]
        assert found == [*(Unit(*each) for each in expected), None]
        rig.reopen()


def test_deliver_times(rig: Rig) -> None:
    rig.send("SCHEDULE_TOPIC_XXXX", queue_id=1, more={"DELAY": "2"}, tags_code=rig.wall + 5000)
    queue = rig.store.queue("SCHEDULE_TOPIC_XXXX", 1)
    entry = rig.store.reader.entry(queue, 0)
    assert entry is not None
    assert entry[2] == rig.wall + 5000
    rig.settle()
    rig.files.remove_tree(f"{rig.root}/consumequeue_ext/SCHEDULE_TOPIC_XXXX")
    rig.store._queues.forget_maps()
    assert rig.store.reader.entry(queue, 0) == entry, "computed from the record"


def test_without_its_unit_the_consumer_filters(rig: Rig) -> None:
    rig.send(tags="TagA")
    rig.send(tags="TagB")
    rig.close()
    rig.set_bytes(f"consumequeue_ext/Topic/0/{0:020d}", 0, bytes(20))
    rig.open()
    assert tags(rig, "TagC") == [0]
    assert tags(rig, "TagB") == [0, 1]
    rig.files.remove_tree(f"{rig.root}/consumequeue_ext")
    rig.reopen()
    assert tags(rig, "TagC") == [0, 1]
    rig.send(tags="TagD")
    assert tags(rig, "TagC") == [0, 1], "an old address does not lead to the unit of a new message"
    rig.reopen()
    assert tags(rig, "TagC") == [0, 1]


def test_switched_on_and_off(rig: Rig) -> None:
    rig.send(tags="T0")
    rig.reopen(enable_consume_queue_ext=False)
    rig.send(tags="T1")
    assert [tags(rig, f"T{number}") for number in range(3)] == [[0], [1], []]
    rig.reopen()
    rig.send(tags="T2")
    rig.reopen()
    rig.send(tags="T3")
    rig.reopen(enable_consume_queue_ext=False)
    assert [tags(rig, f"T{number}") for number in range(4)] == [[0], [1], [2], [3]]
    rig.close()
    assert raw_codes(rig) == [BASE, java_hash("T1"), BASE + 128, BASE + 148]
    rig.open()


def test_switched_on_over_messages_whose_units_are_gone(rig: Rig) -> None:
    for number in range(10):
        rig.send(tags=f"T{number}")
    rig.reopen(enable_consume_queue_ext=False)
    rig.send(tags="T10")
    rig.close()
    rig.files.remove_tree(f"{rig.root}/consumequeue_ext")
    rig.open()
    for number in range(11, 40):
        rig.send(tags=f"T{number}")
    assert tags(rig, "T39") == [*range(10), 39]


@pytest.mark.parametrize("settled", [False, True])
def test_after_a_crash(rig: Rig, settled: bool) -> None:
    for number in range(30):
        rig.send(tags=f"T{number}")
    if settled:
        rig.settle()
    for number in range(30, 40):
        rig.send(tags=f"T{number}")
    rig.kill()
    rig.open()
    rig.send(tags="T40")
    for _ in range(2):
        assert [tags(rig, f"T{number}") for number in range(41)] == [[number] for number in range(41)]
        rig.reopen()


def test_what_lies_behind_the_last_unit_is_cut(rig: Rig) -> None:
    for number in range(20):
        rig.send(tags=f"T{number}")
    rig.settle()
    rig.files.write(f"{rig.root}/abort", b"")
    rig.kill()
    path = f"{rig.root}/consumequeue_ext/Topic/0"
    rig.files.write(f"{path}/{128 * 9:020d}", bytes(128))
    last = rig.files.names(path)[-2]
    rig.set_bytes(f"consumequeue_ext/Topic/0/{last}", 120, b"old")
    rig.open()
    assert rig.files.names(path)[-1] == last
    assert not any(rig.files.read(f"{path}/{last}")[120:])
    assert tags(rig, "T19") == [19]


@pytest.mark.parametrize("taken", ["consumequeue", "consumequeue_ext", "both"])
def test_made_again_from_the_log(rig: Rig, taken: str) -> None:
    for number in range(30):
        rig.send(tags=f"T{number}")
    rig.close()
    for folder in ("consumequeue", "consumequeue_ext"):
        if taken in (folder, "both"):
            rig.files.remove_tree(f"{rig.root}/{folder}")
    rig.open()
    rig.send(tags="T30")
    lost = list(range(30)) if taken == "consumequeue_ext" else []
    assert tags(rig, "T7") == (lost or [7])
    assert tags(rig, "T30") == [*lost, 30]
    rig.close()
    if lost:
        assert raw_codes(rig)[30] == BASE + 640, "behind the highest address that was given out"
    else:
        assert raw_codes(rig) == [BASE + number // 6 * 128 + number % 6 * 20 for number in range(31)]
    rig.open()


def test_recovery_that_has_to_begin_earlier_leaves_no_gaps(rig: Rig) -> None:
    for number in range(40):
        rig.send(tags=f"T{number}", body=bytes(900))
        rig.send("Other", tags=f"T{number}")
        rig.wall += 1000
        if number == 30:
            rig.pass_time(61_000)
    rig.kill()
    rig.files.remove_tree(f"{rig.root}/consumequeue/Other")
    rig.open()
    assert rig.store.recovery.dispatched == 80
    rig.close()
    for topic in ("Topic", "Other"):
        assert raw_codes(rig, topic) == [BASE + number // 6 * 128 + number % 6 * 20 for number in range(40)]
    rig.open()


def test_units_are_deleted_with_their_queue(rig: Rig) -> None:
    rig.send()
    rig.send("Other")
    rig.settle()
    rig.store.delete_queues(lambda queue: queue.topic == "Topic")
    rig.settle()
    assert not any("/Topic/" in path for path in rig.tree())
    rig.send(tags="TagA")
    assert tags(rig, "TagA") == [0]
    assert tags(rig, "TagB") == []
    rig.settle()
    rig.close()
    assert raw_codes(rig) == [BASE]
    rig.open()


def test_units_of_no_queue_are_removed_at_opening(rig: Rig) -> None:
    rig.send()
    rig.close()
    rig.files.make_folder(f"{rig.root}/consumequeue_ext/Gone/0")
    for start in (0, 128):
        rig.files.write(f"{rig.root}/consumequeue_ext/Gone/0/{start:020d}", bytes(128))
    rig.open()
    rig.send("Gone", tags="TagA")
    rig.close()
    assert unit_files(rig) == [f"{0:020d}"] * 2
    assert raw_codes(rig, "Gone") == [BASE]
    rig.open()


def test_files_that_no_entry_leads_to(rig: Rig) -> None:
    for number in range(20):
        rig.send(tags=f"T{number}")
    rig.settle()
    codes = raw_codes(rig)
    extension = rig.store._queues.extension
    assert extension.unused("Topic", 0, codes[0]) == []
    folder = f"{rig.root}/consumequeue_ext/Topic/0"
    assert extension.unused("Topic", 0, codes[12]) == [f"{folder}/{start:020d}" for start in (0, 128)], (
        "six units lie in a file"
    )
    assert len(extension.unused("Topic", 0, codes[11])) == 1
    assert len(extension.unused("Topic", 0, codes[-1] + 1000)) == len(unit_files(rig)) - 1, "the last one stays"
    assert extension.unused("Topic", 0, java_hash("T12")) == []


def test_files_of_a_wrong_size_stop_the_start(rig: Rig) -> None:
    rig.send()
    rig.close()
    with pytest.raises(StoreDamaged, match="instead of the configured 256"):
        rig.open(mapped_file_size_consume_queue_ext=256)
    rig.open(mapped_file_size_consume_queue_ext=256, enable_consume_queue_ext=False)
    assert tags(rig, "other") == [], "units are read as long as they can be found"
    rig.reopen()


def test_a_power_loss_takes_units_and_entries_together(make_rig: MakeRig) -> None:
    rig = make_rig(**EXT, flush_disk_type="SYNC_FLUSH")
    if rig.root != "/store":
        pytest.skip("only memory loses power")
    for number in range(40):
        rig.send(tags=f"T{number}")
        if number % 7 == 0:
            rig.store.want_flush()
            rig.run_jobs()
        if number == 20:
            rig.settle()
    rig.store.want_flush()
    rig.run_jobs()
    rig.cut_power(lambda path, sector: "consumequeue/" in path)
    rig.open()
    assert [tags(rig, f"T{number}") for number in range(40)] == [[number] for number in range(40)]


def test_settings() -> None:
    settings = StoreSettings()
    apply(
        settings,
        {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4096", "bitMapLengthConsumeQueueExt": "64"},
    )
    assert (settings.mapped_file_size_consume_queue_ext, settings.bit_map_length_consume_queue_ext) == (4096, 64)
    with pytest.raises(InvalidSetting, match="too small for a bitmap of 64000 bits"):
        apply(settings, {"bitMapLengthConsumeQueueExt": "64000"})
