"""Messages of every kind that a log can hold, put into a broker through the Java client."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqproto.engine.settings import apply
from mqproto.engine.store import Store, StoreSettings
from mqproto.wire.ids import java_hash
from tests.peers.kit import wire
from tests.peers.kit.checks import Sent, assert_same
from tests.peers.kit.directories.survey import HALF, OP, SCHEDULE, Survey, wait_for_queue
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Line, finish
from tests.peers.kit.steps import consume, gather, open_group

#: Files of the log and of the index are so small that a filled directory has several of each.
SMALL_FILES = {
    "mapedFileSizeCommitLog": str(128 << 10), "mappedFileSizeCommitLog": str(128 << 10),
    "mapedFileSizeConsumeQueue": str(20 * 200), "mappedFileSizeConsumeQueue": str(20 * 200),
    "maxHashSlotNum": "50", "maxIndexNum": "100",
}  # fmt: skip
LOG_FILE = 128 << 10
#: A blank record of the shortest kind: what has to be left at the end of a log file (docs/protocol/store.md 3.1).
SHORTEST_FILLER = 8

#: Each fill leaves messages in every queue of those: of an emptied one 4.x keeps the minimum that it had
#: (docs/protocol/store.md 4.4).
TOPICS = {"Orders": 4, "Batched": 1, "Later": 1, "Waiting": 1, "Bought": 2, "Retried": 1, "Big": 1, "Six": 1}
#: Every queue that has messages when a directory has been filled.
QUEUES = {**TOPICS, "%RETRY%retrying": 1, "%DLQ%dying": 1, HALF: 1, OP: 1, SCHEDULE: 18}


@dataclass
class Filled:
    """Messages that were sent, by topic, over all turns."""

    sent: dict[str, list[Sent]] = field(default_factory=dict)
    #: How often `fill` was called.
    turns: int = 0

    def add(self, topic: str, messages: list[Sent]) -> None:
        self.sent.setdefault(topic, []).extend(messages)


def fill(pair: Pair, filled: Filled) -> None:
    """Add messages of every kind. Delay levels: 18 is far away, the others are soon over."""
    turn = filled.turns = filled.turns + 1
    mark = f"turn{turn}"
    if turn == 1:
        for topic, queues in TOPICS.items():
            wire.make_topic(pair.server.names, pair.server.broker, topic, queues)
    tags_and_keys: dict[str, Any] = {"tag": "TagA,TagB", "keys": f"{mark} every-turn both", "props": "color:red,n:#"}
    filled.add("Orders", pair.produce(topic="Orders", count=8, shard=4, body=mark, **tags_and_keys))
    filled.add(
        "Orders",
        pair.produce(
            topic="Orders", count=2, tag="标签", keys=f"{mark}-键", body=f"{mark}-ä你\U0001f600", props="имя:ü中#"
        ),
    )
    filled.add("Orders", pair.produce(topic="Orders", count=2, size=6000 + turn, tag="TagC", keys=f"{mark}-packed"))
    filled.add(
        "Batched",
        pair.produce(topic="Batched", count=5, mode="batch", tag="TagB", keys=f"{mark}-batch", body=mark, props="b:#"),
    )
    filled.add("Later", pair.produce(topic="Later", count=2, delay=1, tag="TagD", keys=f"{mark}-later", body=mark))
    filled.add(
        "Waiting", pair.produce(topic="Waiting", count=1, delay=18, tag="TagD", keys=f"{mark}-waiting", body=mark)
    )
    _transactions(pair, mark)
    _retries(pair, filled, mark)
    wait_for_queue(pair, "Later", 2 * turn)
    filled.add("Big", to_the_edge(pair, "Big", mark))
    filled.add("Big", pair.produce(topic="Big", count=12, size=11_000 + turn, compress=100_000_000, keys=f"{mark}-big"))
    wait_for_queue(pair, "Big", len(filled.sent["Big"]))  # queues and index follow the log


def _transactions(pair: Pair, mark: str) -> None:
    common: dict[str, Any] = {"topic": "Bought", "tag": "TagT", "group": "buyers"}
    pair.run("transact", count=2, outcome="commit", keys=f"{mark}-commit", body=f"{mark}-commit", **common)
    pair.run("transact", count=1, outcome="rollback", keys=f"{mark}-rollback", body=f"{mark}-rollback", **common)
    pair.run("transact", count=1, outcome="unknown", checks=0, keys=f"{mark}-pending", body=f"{mark}-pending", **common)


def _retries(pair: Pair, filled: Filled, mark: str) -> None:
    """One message is refused once and comes back, one is refused by a group that may not try again."""
    sent = pair.produce(topic="Retried", count=2, tag="TagR", keys=f"{mark}-retried", body=mark)
    for group in ("retrying", "dying"):
        if filled.turns == 1:
            open_group(pair, "Retried", group)
    # A group of a broker that has been restarted may begin before its newest commit: then there is more than the new.
    retrying = pair.start("consume", topic="Retried", group="retrying", expect=1000, fail=1, threads=1)
    gather(retrying, {message.body.decode() for message in sent})
    retrying.stop()
    finish(retrying, status=1)
    consume(pair, "Retried", "dying", 1, fail=1, max=0, threads=1)
    wait_for_queue(pair, "%DLQ%dying", filled.turns)
    filled.add("Retried", sent)


def to_the_edge(pair: Pair, topic: str, mark: str) -> list[Sent]:
    """Messages of which the last one ends where the shortest blank record still fits into its log file."""
    sent: list[Sent] = []
    size = 1000
    for _ in range(8):
        (message,) = pair.produce(
            topic=topic, count=1, size=size, compress=100_000_000, tag="TagE", keys=f"{mark}-edge"
        )
        sent.append(message)
        (line,) = pair.run("view", topic=topic, id=message.offset_msg_id).messages
        left = LOG_FILE - ends_at(line) % LOG_FILE
        if left == SHORTEST_FILLER:
            return sent
        size = left - SHORTEST_FILLER - (line["storeSize"] - size)
        if size <= 0:  # too little is left for one more: the next one begins a file
            size = 1000 + len(sent)
    raise AssertionError(f"others write in between: no message of {topic} ended at the edge of a file")


def ends_at(line: Line) -> int:
    """Where in the log a message ends."""
    return int(line["physicalOffset"]) + int(line["storeSize"])


def check_filled(pair: Pair, found: Survey, filled: Filled) -> None:
    """What was sent is there with all that its producer gave it, and each kind is where it belongs."""
    for topic in ("Orders", "Batched", "Later", "Retried", "Big"):
        ids = topic != "Batched"  # 5.3.3 gives its members the batch's id behind their own
        assert_same(pair.server, filled.sent[topic], found.of(topic), ids=ids)
    marks = [f"turn{turn + 1}" for turn in range(filled.turns)]
    assert sorted(line["body"] for line in found.of("Bought")) == sorted(
        f"{mark}-commit-{index}" for mark in marks for index in range(2)
    )
    halves = {(line["queueId"], line["physicalOffset"]): line for line in found.of(HALF)}
    for line in found.of("Bought"):
        assert halves[0, line["preparedTransactionOffset"]]["msgId"] == line["msgId"]
    assert [line["body"] for line in found.of("%DLQ%dying")] == [f"{mark}-0" for mark in marks] or len(marks) > 1
    assert len(found.of("%RETRY%retrying")) == len(marks)
    assert found.of("Waiting") == []
    assert found.queues[SCHEDULE, 17]["max"] == len(marks)
    edges = [line for line in found.of("Big") if ends_at(line) % LOG_FILE == LOG_FILE - SHORTEST_FILLER]
    assert len(edges) == len(marks)


def add_from_ipv6(folder: Path, broker: str) -> None:
    """Append messages of hosts with IPv6 addresses to a directory at rest, and end in order.

    Release 4.4 cannot read such records.
    """
    settings = StoreSettings()
    apply(settings, SMALL_FILES)
    settings.store_path_root_dir = str(folder)
    wall = int(time.time() * 1000)
    store = Store.open(settings, wall=wall)
    host, _, port = broker.rpartition(":")
    four = bytes(map(int, host.split("."))) + int(port).to_bytes(4, "big")
    six = bytes(15) + b"\x01" + (50_000).to_bytes(4, "big")
    for number, store_host in enumerate((four, six)):
        properties = f"TAGS\1TagS\2KEYS\1six-{number}".encode()
        store.writer.append(
            store.queue("Six", 0), b"from six", properties, flag=6, sys_flag=0, born_time=wall - 6, born_host=six,
            store_host=store_host, reconsume_times=0, prepared_offset=0, tags_code=java_hash("TagS"), uniq_key=None,
            keys=f"six-{number}", wall=wall,
        )  # fmt: skip
    store.close(wall)


def check_ipv6(found: Survey) -> None:
    """Both messages of `add_from_ipv6` are served with the hosts that they came from and went to."""
    first, second = found.of("Six")
    for line in (first, second):
        assert (line["body"], line["tags"], line["flag"]) == ("from six", "TagS", 6), line
        assert line["bornHost"].lstrip("/") == "[0:0:0:0:0:0:0:1]:50000", line
        assert line["bornTimestamp"] == line["storeTimestamp"] - 6, line
        assert found.finds["key", "Six", line["keys"]]["found"], line
    assert second["storeHost"] == first["bornHost"] != first["storeHost"]
