"""A whole broker over a directory that Apache's broker left behind, asked on the wire for everything that Apache's was
asked for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from mqproto.engine.store import DiskFiles, MemoryFiles
from mqproto.message import MessageExt
from mqproto.wire.fastjson import loads
from mqproto.wire.record import decode_record, decode_records
from tests.engine.broker.halfway import COMMIT, Producer, bodies, wait
from tests.engine.broker.harness import Peer, World
from tests.golden.golden import GOLDEN, VERSIONS
from tests.golden.served import assert_apaches

#: What an integer key of Apache's settings is called in ours.
SIZES = {
    "mapped_file_size_commit_log": "mapedFileSizeCommitLog",
    "mapped_file_size_consume_queue": "mapedFileSizeConsumeQueue",
    "max_index_num": "maxIndexNum",
    "max_hash_slot_num": "maxHashSlotNum",
}


def as_stored(body: bytes | memoryview) -> Iterator[MessageExt]:
    """The records of an answer, their bodies and flags as they lie in the log."""
    view = memoryview(body)
    while view:
        message = decode_record(view)
        view = view[message.store_size :]
        yield message


class Served:
    """One directory under our broker, and what Apache's served from it."""

    def __init__(self, version: str, kind: str, folder: Path) -> None:
        sample = GOLDEN.store(version, kind)
        self.version = version
        self.expected: dict[str, Any] = sample.expected
        sizes = {name: int(self.expected["settings"][key]) for name, key in SIZES.items()}
        files = cast(MemoryFiles, DiskFiles())  # which has all that a world without failures asks of its files
        self.world = World(files=files, store={"store_path_root_dir": str(sample.unpack(folder)), **sizes}, begin=False)
        self.world.broker.wall_ahead = self.expected["servedAt"] - self.world.now
        self.world.broker.begin(self.world.now)
        self.world.act()
        self.peer: Peer = self.world.connect()

    def fields(self, code: int, **fields: Any) -> dict[str, str]:
        """The header fields of an answer."""
        answer = self.peer.ask(code, {name: str(value) for name, value in fields.items()})
        assert answer.code == 0, answer
        return answer.fields

    def queue(self, topic: str, queue_id: int, offset: int, end: int) -> Iterator[MessageExt]:
        """The messages of a queue, pulled until its end."""
        while offset < end:
            answer = self.peer.pull(topic, "READER", queue_id, offset)
            assert answer.code == 0, answer
            yield from as_stored(answer.body)
            offset = int(answer.fields["nextBeginOffset"])


@pytest.fixture(
    scope="module", params=[(version, kind) for version in VERSIONS for kind in ("clean", "crashed")], ids="-".join
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    version, kind = request.param
    opened = Served(version, kind, tmp_path_factory.mktemp("served"))
    yield opened
    opened.world.close()


def test_every_queue_and_message(served: Served) -> None:
    known: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for line in served.expected["messages"]:
        known[line["topic"], line["queueId"]].append(line)
    for queue in served.expected["queues"]:
        place = {"topic": queue["topic"], "queueId": queue["queueId"]}
        assert (int(served.fields(31, **place)["offset"]), int(served.fields(30, **place)["offset"])) == (
            queue["min"],
            queue["max"],
        )
        if queue["max"]:
            assert int(served.fields(32, **place)["timestamp"]) == queue["earliest"]
        if queue["problem"] is not None:
            continue
        expected = known[queue["topic"], queue["queueId"]]
        found = list(served.queue(queue["topic"], queue["queueId"], queue["min"], queue["max"]))
        assert len(found) == len(expected)
        for message, line in zip(found, expected, strict=True):
            assert_apaches(message, line, served.version)


def test_every_message_by_its_place(served: Served) -> None:
    for line in served.expected["messages"]:
        answer = served.peer.ask(33, {"offset": str(line["physicalOffset"])})
        (message,) = as_stored(answer.body)
        assert_apaches(message, line, served.version)


def test_queues_by_time(served: Served) -> None:
    """The first message that is not older, as 5.x; 4.x answers with the nearest one (REB-08)."""
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in served.expected["messages"]:
        times[line["topic"], line["queueId"]].append(line["storeTimestamp"])
    for queue in served.expected["queues"]:
        known = times[queue["topic"], queue["queueId"]]
        for pair in queue["searchByTime"].split() if known else ():
            time, _, offset = pair.partition("=")
            found = int(served.fields(29, topic=queue["topic"], queueId=queue["queueId"], timestamp=time)["offset"])
            assert found == queue["min"] + sum(stored < int(time) for stored in known)
            if served.version == "5.3.3":
                assert found == int(offset)


def test_messages_by_key(served: Served) -> None:
    for line in served.expected["queries"]:
        fields = {
            "topic": line["topic"],
            "key": line["key"],
            "maxNum": "64",
            "beginTimestamp": "0",
            "endTimestamp": str((1 << 63) - 1),
        }
        answer = served.peer.ask(12, fields)
        found = [message.physical_offset for message in decode_records(answer.body)] if answer.code == 0 else []
        wanted = [int(offset) for offset in (line["physicalOffsets"] or "").split()]
        assert found == sorted(found)
        # Apache forgets keys in a crash, and asks for nothing where it has no route.
        assert found == wanted or set(found) > set(wanted), line


def test_tables(served: Served) -> None:
    """Topics, offsets, groups and delay levels as Apache's broker read them, and each offset on request."""
    for code, name, member in (
        (21, "topics", "topicConfigTable"),
        (43, "consumerOffsets", "offsetTable"),
        (201, "subscriptionGroups", "subscriptionGroupTable"),
        (45, "delayOffsets", "offsetTable"),
    ):
        ours, theirs = loads(bytes(served.peer.ask(code, {}).body).decode()), loads(served.expected["answers"][name])
        assert isinstance(ours, dict)
        assert isinstance(theirs, dict)
        kept = {key: value for key, value in theirs[member].items() if _is_kept(key, value)}
        assert {key: ours[member].get(key) for key in kept} == kept, name
    offsets = json.loads(json.dumps(loads(served.expected["answers"]["consumerOffsets"])))["offsetTable"]
    for key, by_queue in offsets.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in by_queue.items():
            assert int(served.fields(14, consumerGroup=group, topic=topic, queueId=queue_id)["offset"]) == offset


def _is_kept(key: object, value: Any) -> bool:
    """Not what a release makes for itself at its start, nor a level of which nothing has been delivered."""
    own = (
        "rmq_sys_",
        "RMQ_SYS_",
        "CID_",
        "SELF_TEST",
        "TOOLS_",
        "FILTERSRV_",
        "BenchmarkTest",
        "TRANS_CHECK",
        "OFFSET_MOVED",
        "TBW102",
    )
    return (
        value != 0 and not str(key).startswith(own) and key not in ("broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX")
    )


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_transaction_that_is_open(version: str, kind: str, tmp_path: Path) -> None:
    """The one that Apache's broker asked about in vain.

    In those that crashed it lies open two or three times, as each copy was.
    """
    opened = Served(version, kind, tmp_path)
    world = opened.world
    producer = Producer(world, "probe-transactions")
    world.advance(60_000)
    (question,) = producer.asked()
    assert decode_record(question.body).topic == "Bought"
    before = bodies(world, "Bought", decode_record(question.body).queue_id)
    assert producer.end(question, COMMIT) is not None
    assert bodies(world, "Bought", decode_record(question.body).queue_id) == [*before, b"message-0"]
    wait(120_000, producer)
    assert producer.asked() == []
    world.close()
