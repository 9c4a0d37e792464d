"""Everything that a broker serves from its data directory, taken through the Java client, and compared with what
another one serves.

A survey has the bounds of every queue, every message with all its fields, each message looked up again by its tag, its
keys, its unique id, its place in the log and its time, and the tables of topics, groups and offsets (requests 21, 201,
43, 45).
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.peers.kit import wire
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Line

HALF, OP, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"

#: Requests for the tables, and which member of the answer is the table.
_TABLES = {
    "topics": (21, "topicConfigTable"),
    "groups": (201, "subscriptionGroupTable"),
    "offsets": (43, "offsetTable"),
    "delays": (45, "offsetTable"),
}
#: What a topic and a group are in every release; newer ones add members.
_TOPIC = ("order", "perm", "readQueueNums", "writeQueueNums", "topicFilterType", "topicName", "topicSysFlag")
_GROUP = (
    "brokerId",
    "consumeBroadcastEnable",
    "consumeEnable",
    "consumeFromMinEnable",
    "groupName",
    "retryMaxTimes",
    "retryQueueNums",
)
#: Groups under which brokers keep their own progress.
_OWN_GROUPS = ("@CID_RMQ_SYS_TRANS", "@TOOLS_CONSUMER")

Place = tuple[str, int, int]


@dataclass
class Survey:
    """Survey of one broker: all that it served."""

    kind: str
    queues: dict[tuple[str, int], Line] = field(default_factory=dict)
    messages: dict[Place, Line] = field(default_factory=dict)
    #: By what (tag, key, unique, place), topic (or queue) and value: the places where it is found.
    finds: dict[tuple[str, str, str], Line] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)

    def of(self, topic: str) -> list[Line]:
        """The messages of a topic."""
        return [line for place, line in self.messages.items() if place[0] == topic]


def survey(pair: Pair, queues: Mapping[str, int], via: str, holes: Collection[Place] = ()) -> Survey:
    """Ask for the queues 0 to COUNT-1 of each topic; `via` is one of them that has a route.

    `holes` are places that have lost their messages.
    """
    wire.wait_route(pair.server.names, via)
    words = ",".join(f"{topic}:{count}" for topic, count in queues.items())
    outcome = pair.run("survey", group="surveyors", queues=words, via=via, limit=300)
    found = Survey(pair.server.kind)
    for line in outcome.lines:
        if "surveyed" in line:
            found.queues[line["surveyed"], line["queueId"]] = line
        elif "by" in line:
            found.finds[line["by"], line["of"], line["value"]] = line
        elif "body" in line:
            place = (line["topic"], line["queueId"], line["queueOffset"])
            for bound in ("MIN_OFFSET", "MAX_OFFSET"):  # the client's own, of the queue when it was asked
                line["properties"].pop(bound, None)
            if place in found.messages:  # Apache's brokers give what follows a hole twice
                again = not pair.server.ours and (*place[:2], place[2] - 1) in holes
                assert again, f"one place of a queue was handed out twice: {line}"
                assert found.messages[place] == line
            found.messages[place] = line
    for name, (code, member) in _TABLES.items():
        header, body = wire.ask(pair.server.broker, code, {})
        assert header["code"] == 0, header
        found.tables[name] = wire.read_table(body.decode())[member]
    check_whole(found, holes)
    return found


def check_whole(found: Survey, holes: Collection[Place] = ()) -> None:
    """What must hold of a survey by itself: queues are dense, and every message is found by everything that it can be
    found by.
    """
    for (topic, queue_id), line in found.queues.items():
        places = sorted(place[2] for place in found.messages if place[:2] == (topic, queue_id))
        if line["problem"] is None:
            lost = {place[2] for place in holes if place[:2] == (topic, queue_id)}
            assert places == [place for place in range(line["min"], line["max"]) if place not in lost], (line, places)
            if not lost or found.kind.startswith("ours"):  # Apache's search takes a hole for a message
                check_times(found, topic, queue_id)
    for (by, where, value), line in found.finds.items():
        topic, _, number = where.rpartition(":")
        if by == "tag":
            tagged = sorted(
                place[2]
                for place, one in found.messages.items()
                if place[:2] == (topic, int(number)) and one["tags"] == value
            )
            assert [int(offset) for offset in line["found"].split()] == tagged, line
    for line in found.messages.values():
        shown = f"{_id_of(line)} {line['topic']} {line['queueId']}:{line['queueOffset']}"
        by_place = found.finds.get(("place", line["topic"], _id_of(line)))
        if by_place is not None:  # otherwise its host is an IPv6 one, which nobody listens on
            assert by_place["found"] == shown, (by_place, line)


def check_times(found: Survey, topic: str, queue_id: int) -> None:
    """Offsets by time: the first message that is not older (ours and 5.x), or the nearest one (4.x,
    docs/protocol/store.md 14.3).
    """
    line = found.queues[topic, queue_id]
    stored = [
        (place[2], one["storeTimestamp"])
        for place, one in sorted(found.messages.items())
        if place[:2] == (topic, queue_id)
    ]
    times = [one for _, one in stored]
    assert times == sorted(times), "the clock of these tests does not go back"
    if times and found.kind.startswith("ours"):
        assert line["earliest"] == times[0], line
    for text, answer in line["searched"].items():
        at = bisect.bisect_left(times, wanted := int(text))
        right = stored[at][0] if at < len(stored) else line["max"]
        if not found.kind.startswith("apache:4"):
            assert answer == right, (text, line)
        elif wanted in times:
            assert dict(stored)[answer] == wanted, (text, line)
        else:
            assert answer == _nearest(stored, at, wanted), (text, line)


def _nearest(stored: list[tuple[int, int]], at: int, wanted: int) -> int:
    if at == 0 or at == len(stored):
        return stored[min(at, len(stored) - 1)][0]
    left, right = stored[at - 1], stored[at]
    return left[0] if wanted - left[1] <= right[1] - wanted else right[0]


def _id_of(line: Line) -> str:
    """The id of a message by its place: its store host and its offset in the log."""
    host, _, port = line["storeHost"].lstrip("/").rpartition(":")
    if ":" in host:
        return ""
    return "".join(f"{int(part):02X}" for part in host.split(".")) + f"{int(port):08X}{line['physicalOffset']:016X}"


def assert_serves_the_same(before: Survey, after: Survey, *, besides: Collection[str] = ()) -> None:
    """The second broker serves all that the first one did, and nothing else but topics `besides`, which the first one
    did not know.

    What a release refuses to hand out (`problem`: topics without configuration) is left out, its bounds are not.
    """
    for place, queue in before.queues.items():
        if place[0] in besides:
            continue
        bounds = [(line["min"], line["max"], line["earliest"]) for line in (queue, after.queues[place])]
        assert bounds[0] == bounds[1], (place, bounds)
    hidden = {place for one in (before, after) for place, queue in one.queues.items() if queue["problem"] is not None}
    for place in hidden:
        assert place[0] in (HALF, OP, SCHEDULE) or place[0].startswith("%DLQ%"), (
            before.queues[place],
            after.queues[place],
        )
    first, second = (
        {place: line for place, line in one.messages.items() if place[:2] not in hidden and place[0] not in besides}
        for one in (before, after)
    )
    assert second.keys() == first.keys(), first.keys() ^ second.keys()
    for where, line in first.items():
        assert second[where] == line, (line, second[where])
    closed = {topic for topic, _ in hidden}
    for asked, line in before.finds.items():
        if asked[1].rpartition(":")[0] not in closed and asked[1] not in closed:
            assert after.finds[asked] == line, (line, after.finds[asked])
    for name in _TABLES:
        one, other = shared(name, before.tables[name]), shared(name, after.tables[name])
        assert other == one, {
            key: (one.get(key), other.get(key)) for key in one.keys() | other.keys() if one.get(key) != other.get(key)
        }


def shared(name: str, table: Any) -> Any:
    """A table without what releases have of their own: members that others do not know, system topics and groups."""
    if name == "delays":
        return {level: offset for level, offset in table.items() if offset}
    if name == "offsets":
        return {
            key: value
            for key, value in table.items()
            if not key.endswith(_OWN_GROUPS) and "@surveyors" not in key and "@puller" not in key
        }
    members, own = (
        (_TOPIC, ("%RETRY%surveyors", "%RETRY%puller")) if name == "topics" else (_GROUP, ("surveyors", "puller"))
    )
    return {
        key: {member: value.get(member) for member in members}
        for key, value in table.items()
        if not key.startswith(own) and not _system(name, key)
    }


#: Made by brokers of some release for themselves.
_SYSTEM_TOPICS = {
    "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "DefaultCluster", "broker-a", "OFFSET_MOVED_EVENT",
    "DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", HALF, OP, SCHEDULE,
}  # fmt: skip
_SYSTEM_GROUPS = {
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "DEFAULT_PRODUCER",
    "CLIENT_INNER_PRODUCER",
}


def _system(name: str, key: str) -> bool:
    if name == "topics":
        return key in _SYSTEM_TOPICS or key.startswith(("rmq_sys_", "RMQ_SYS_"))
    return key in _SYSTEM_GROUPS or key.startswith(("CID_ONS", "CID_RMQ_SYS", "CID_SYS"))


def wait_for_queue(pair: Pair, topic: str, count: int, seconds: float = 90) -> None:
    """Return when queue 0 of the topic has `count` messages (GET_MAX_OFFSET)."""
    until = time.monotonic() + seconds
    while True:
        header, _ = wire.ask(pair.server.broker, 30, {"topic": topic, "queueId": "0"})
        if header["code"] == 0 and int(header["extFields"]["offset"]) >= count:
            return
        assert time.monotonic() < until, f"{topic} has not got {count} messages: {header}"
