"""Directories that Apache's brokers left behind are opened and served as Apache serves them.

The recorded answers are those of the same release, started on a copy (tests/golden/README.md).
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.settings import apply
from mqproto.engine.store import ConfigFile, Ending, Store, StoreSettings
from mqproto.wire.fastjson import loads
from mqproto.wire.ids import java_hash
from mqproto.wire.names import OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqproto.wire.record import decode_record
from tests.engine.store.harness import ALWAYS, records
from tests.golden.golden import GOLDEN, VERSIONS
from tests.golden.served import assert_apaches

#: What is derived from the log and may be taken away before opening.
CASES = [
    (version, kind, taken)
    for version in VERSIONS
    for kind in ("clean", "crashed")
    for taken in ((), ("consumequeue", "index"))
]


class Sample:
    """One directory, unpacked and opened."""

    def __init__(self, version: str, kind: str, taken: tuple[str, ...], target: Path) -> None:
        sample = GOLDEN.store(version, kind)
        self.expected: dict[str, Any] = sample.expected
        self.root = sample.unpack(target)
        for folder in taken:
            shutil.rmtree(self.root / folder)
        self.settings = StoreSettings()
        apply(self.settings, self.expected["settings"])
        self.settings.store_path_root_dir = str(self.root)
        self.store = self.open()

    def open(self) -> Store:
        return Store.open(self.settings, wall=self.expected["servedAt"])

    def reopen(self) -> None:
        self.store.close(self.expected["servedAt"])
        self.store = self.open()


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join((*case[:2], *case[2])))
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    version, kind, taken = request.param
    opened = Sample(version, kind, taken, tmp_path_factory.mktemp("golden"))
    assert opened.store.recovery.clean is (kind == "clean")
    assert opened.store.recovery.ending is Ending.WHOLE
    assert opened.store.recovery.notes == []
    yield opened
    opened.store.close(0)


def test_log_ends_where_apaches_does(sample: Sample) -> None:
    runtime = json.loads(sample.expected["answers"]["runtime"])["table"]
    assert (sample.store.min_physical, sample.store.end) == (
        int(runtime["commitLogMinOffset"]),
        int(runtime["commitLogMaxOffset"]),
    )


def test_queues_have_apaches_ends(sample: Sample) -> None:
    for expected in sample.expected["queues"]:
        queue = sample.store.find_queue(expected["topic"], expected["queueId"])
        if queue is None:
            assert expected["max"] == 0, expected
            continue
        assert (queue.min_offset, queue.max_offset) == (expected["min"], expected["max"]), expected
        assert sample.store.reader.earliest_store_time(queue) == expected["earliest"], expected


def test_messages_are_apaches(sample: Sample) -> None:
    for expected in sample.expected["messages"]:
        queue = sample.store.queue(expected["topic"], expected["queueId"])
        view = sample.store.reader.record(expected["physicalOffset"])
        assert view is not None
        entry = sample.store.reader.entry(queue, expected["queueOffset"])
        assert entry is not None
        assert entry[:2] == (expected["physicalOffset"], expected["storeSize"])
        if queue.topic != SCHEDULE_TOPIC:
            assert entry[2] == java_hash(expected["tags"] or "")
        assert_apaches(decode_record(view), expected, sample.expected["version"])


def test_queues_that_apache_keeps_to_itself_are_whole(sample: Sample) -> None:
    """Topics without configuration or permission in 4.x: dense, their messages where the log has them, delayed ones
    with their times.
    """
    hidden = [queue for queue in sample.expected["queues"] if queue["problem"] is not None]
    assert bool(hidden) is sample.expected["version"].startswith("4")
    delays = sample.settings.delay_levels
    for expected in hidden:
        queue = sample.store.queue(expected["topic"], expected["queueId"])
        for offset in range(expected["min"], expected["max"]):
            entry = sample.store.reader.entry(queue, offset)
            assert entry is not None
            view = sample.store.reader.record(entry[0])
            assert view is not None
            message = decode_record(view)
            assert (message.topic, message.queue_id, message.queue_offset) == (queue.topic, queue.queue_id, offset)
            assert (message.physical_offset, message.store_size) == entry[:2]
            if queue.topic == SCHEDULE_TOPIC:
                assert entry[2] == message.store_time + delays[queue.queue_id]
            elif queue.topic == OP_HALF_TOPIC:
                assert (message.body, message.tags) == (b"%d" % offset, "d"), (
                    "the first halves were ended, in their order"
                )
            else:
                assert message.properties["RETRY_TOPIC"] == "Retried"


def test_queues_give_all_messages_in_order(sample: Sample) -> None:
    by_queue: dict[tuple[str, int], list[int]] = defaultdict(list)
    for expected in sample.expected["messages"]:
        by_queue[expected["topic"], expected["queueId"]].append(expected["physicalOffset"])
    for (topic, queue_id), offsets in by_queue.items():
        queue = sample.store.queue(topic, queue_id)
        found: list[int] = []
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = sample.store.reader.get(queue, offset, 32, None)
            found += [message.physical_offset for message in records(result.views)]
            offset = result.next_offset
        assert found == offsets


def test_queries_find_what_has_the_key(sample: Sample) -> None:
    """All of it, which is more than Apache's broker finds where it forgot keys in a crash, or cannot be asked for want
    of a route.
    """
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for queue in sample.store.queues():
        for offset in range(queue.min_offset, queue.max_offset):
            entry = sample.store.reader.entry(queue, offset)
            assert entry is not None
            view = sample.store.reader.record(entry[0])
            assert view is not None
            for key in decode_record(view).keys:
                by_key[queue.topic, key].append(entry[0])
    for expected in sample.expected["queries"]:
        topic, key = expected["topic"], expected["key"]
        found = [
            decode_record(view).physical_offset for view in sample.store.reader.query(topic, key, 64, *ALWAYS).views
        ]
        assert found == sorted(by_key[topic, key]), expected
        wanted = [int(offset) for offset in (expected["physicalOffsets"] or "").split()]
        assert set(found) >= set(wanted), expected
        unforgotten = sample.store.recovery.clean and not (expected["problem"] or "").startswith(
            "MQClientException: CODE: 17"
        )
        assert found == wanted or not unforgotten, expected


def test_search_by_time_is_that_of_5x(sample: Sample) -> None:
    """The first message that is not older (REB-08); 4.x gives the nearest, and never the end."""
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in sample.expected["messages"]:
        times[message["topic"], message["queueId"]].append(message["storeTimestamp"])
    for expected in sample.expected["queues"]:
        queue = sample.store.find_queue(expected["topic"], expected["queueId"])
        known = times[expected["topic"], expected["queueId"]]
        if queue is None or not known:
            continue
        for pair in expected["searchByTime"].split():
            time, _, offset = pair.partition("=")
            found = sample.store.reader.offset_by_time(queue, int(time))
            assert found == expected["min"] + sum(stored < int(time) for stored in known)
            if sample.expected["version"] == "5.3.3":
                assert found == int(offset)


def test_opening_again_changes_nothing(sample: Sample) -> None:
    before = [(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in sample.store.queues()]
    end = sample.store.end
    sample.reopen()
    assert (sample.store.recovery.clean, sample.store.end, sample.store.recovery.dispatched) == (True, end, 0)
    after = [(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in sample.store.queues()]
    assert sorted(after) == sorted(entry for entry in before if entry[3])


def test_configuration_files_are_read(sample: Sample) -> None:
    """As what Apache's broker answered after it had read them (requests 21, 43, 45, 201), where they have it."""
    for name, answer, member in (
        ("topics.json", "topics", "topicConfigTable"),
        ("consumerOffset.json", "consumerOffsets", "offsetTable"),
        ("subscriptionGroup.json", "subscriptionGroups", "subscriptionGroupTable"),
        ("delayOffset.json", "delayOffsets", "offsetTable"),
    ):
        file = ConfigFile(str(sample.root / "config" / name))
        table = file.load(loads)
        assert isinstance(table, dict)
        assert file.warning == ""
        answered = loads(sample.expected["answers"][answer])
        assert isinstance(answered, dict)
        for key, value in table[member].items():
            assert answered[member][key] == value, (name, key)


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_delay_queues_are_made_again_with_their_times(version: str, tmp_path: Path) -> None:
    """Entries that Apache wrote, and ours from the log alone, are the same, deliver times included."""
    whole = Sample(version, "clean", (), tmp_path / "whole")
    again = Sample(version, "clean", ("consumequeue", "index"), tmp_path / "again")
    compared = 0
    for queue in whole.store.queues():
        other = again.store.queue(queue.topic, queue.queue_id)
        for offset in range(queue.min_offset, queue.max_offset):
            assert again.store.reader.entry(other, offset) == whole.store.reader.entry(queue, offset), (queue, offset)
            compared += 1
    assert compared > 1000
    whole.store.close(0)
    again.store.close(0)
