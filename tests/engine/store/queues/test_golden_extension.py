"""A directory that Apache's broker wrote with `enableConsumeQueueExt` (tests/golden/README.md) is served as Apache
served it.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.settings import apply
from mqproto.engine.store import Ending, Store, StoreSettings
from mqproto.wire.bodies import ConsumerFilters
from mqproto.wire.filters.bloom import BloomFilter
from mqproto.wire.filters.sql import compile_sql
from mqproto.wire.ids import java_hash
from mqproto.wire.record import decode_record
from tests.engine.store.harness import records
from tests.golden.golden import GOLDEN

STEM = GOLDEN.root / "stores" / "store-4.9.7-extension"
TAGS = ("TagA", "TagB", "标签", "TagC", "TagD")


class Sample:
    """The directory, unpacked."""

    def __init__(self, target: Path) -> None:
        with tarfile.open(f"{STEM}.tar.xz") as archive:
            archive.extractall(target, filter="data")
        self.root = target / "store"
        self.expected: dict[str, Any] = json.loads(lzma.decompress(Path(f"{STEM}.expect.json.xz").read_bytes()))
        self.settings = StoreSettings()
        apply(self.settings, self.expected["settings"])
        self.settings.store_path_root_dir = str(self.root)

    def open(self) -> Store:
        return Store.open(self.settings, wall=1_800_000_000_000)


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return Sample(tmp_path)


def served(store: Store, tag: str) -> list[list[int]]:
    """Queue and offset of each message that a consumer with a tag is given, without a look at the messages."""
    found = []
    for queue in store.queues():
        offset = queue.min_offset
        while queue.topic == "Ext" and offset < queue.max_offset:
            result = store.reader.get(queue, offset, 32, frozenset([java_hash(tag)]))
            found += [[queue.queue_id, message.queue_offset] for message in records(result.views)]
            offset = result.next_offset
    return sorted(found)


@pytest.mark.parametrize("taken", [(), ("consumequeue",), ("consumequeue", "consumequeue_ext")], ids=str)
@pytest.mark.parametrize("crashed", [False, True])
def test_filters_judge_as_apache_did(sample: Sample, taken: tuple[str, ...], crashed: bool) -> None:
    for folder in taken:
        shutil.rmtree(sample.root / folder)
    if crashed:
        (sample.root / "abort").touch()
    store = sample.open()
    assert (store.recovery.ending, store.recovery.notes) == (Ending.WHOLE, [])
    for _ in range(2):
        for tag in TAGS:
            assert served(store, tag) == sample.expected["served"][tag], tag
        store.close(0)
        store = sample.open()
    store.close(0)


def test_units_are_those_of_the_messages(sample: Sample) -> None:
    """Messages that came after a consumer with SQL92 have a bitmap, and it tells those that the consumer was given."""
    store = sample.open()
    with_bits = []
    wanted = {tuple(place) for place in sample.expected["served"]["color = 'red'"]}
    for queue_id, offset, physical, store_time, tag, _ in sample.expected["messages"]:
        queue = store.find_queue("Ext", queue_id)
        assert queue is not None
        unit = store.reader.unit(queue, offset)
        assert unit is not None
        assert (unit.tags_code, unit.store_time) == (java_hash(tag or ""), store_time)
        entry = store.reader.entry(queue, offset)
        assert entry is not None
        assert (entry[0], entry[2]) == (physical, unit.tags_code)
        if unit.bits:
            with_bits.append(((queue_id, offset) in wanted, len(unit.bits), any(unit.bits)))
    assert len(with_bits) > 30
    assert all(wanted == found for wanted, _, found in with_bits)
    assert {size for _, size, _ in with_bits} == {14}
    store.close(0)


def test_deliver_time_of_a_delayed_message(sample: Sample) -> None:
    store = sample.open()
    queue = store.find_queue("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    entry = store.reader.entry(queue, 0)
    record = None if entry is None else store.reader.record(entry[0])
    assert entry is not None
    assert record is not None
    assert entry[2] == decode_record(record).store_time + 1000
    store.close(0)


def test_new_units_follow_apaches(sample: Sample) -> None:
    store = sample.open()
    before = (sample.root / "consumequeue_ext/Ext/3" / f"{0:020d}").read_bytes().rstrip(b"\0")
    queue = store.queue("Ext", 3)
    host = bytes(8)
    store.writer.append(
        queue, b"new", b"TAGS\x01New", 0, 0, 0, host, host, 0, 0, java_hash("New"), None, None, 1_800_000_000_000
    )
    assert served(store, "New") == [[3, queue.next_offset - 1]]
    store.close(0)
    after = (sample.root / "consumequeue_ext/Ext/3" / f"{0:020d}").read_bytes()
    assert after.startswith(before)
    assert b"\x00\x14" + java_hash("New").to_bytes(8, "big", signed=True) in after[len(before) - 1 :]


def test_bitmaps_are_those_that_our_bloom_filter_makes(sample: Sample) -> None:
    """Both groups of the directory want what is red."""
    store = sample.open()
    table = (
        ConsumerFilters.from_json((sample.root / "config" / "consumerFilter.json").read_bytes()).topics["Ext"].groups
    )
    bloom = BloomFilter(20, 32)
    counts = {b"": 0}
    for queue_id, offset, physical, store_time, *_ in sample.expected["messages"]:
        unit = store.reader.unit(store.queue("Ext", queue_id), offset)
        record = store.reader.record(physical)
        assert unit is not None
        assert record is not None
        red = compile_sql("color = 'red'").matches(decode_record(record).properties)
        known = [group for group, entry in table.items() if store_time > entry.born_time]
        masks = [bloom.mask(bloom.positions(group, "Ext")) for group in known]
        assert unit.bits == (bloom.bitmap(masks if red else []) if known else b"")
        counts[unit.bits] = counts.get(unit.bits, 0) + 1
    assert len(counts) >= 3
    store.close(0)
