"""Checks of a message at the other end: everything that its sender said and its broker answered, field by field."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.peers.kit.probes import Line, Outcome
from tests.peers.kit.servers import Server

#: Properties that clients and brokers of some release add on the way, whose values say nothing about the message.
_ADDED = {
    "CONSUME_START_TIME",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "CLUSTER",
    "INSTANCE_ID",
    "MSG_REGION",
    "TRACE_ON",
    "UNIQ_KEY",
    "WAIT",
    "__SHARDINGKEY",
    "__SHARDING_KEY",
}
#: Properties that a message keeps from its way through a retry topic or a delay level.
RETRY = {
    "DELAY",
    "ORIGIN_MESSAGE_ID",
    "REAL_QID",
    "REAL_TOPIC",
    "RETRY_TOPIC",
    "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES",
    "CONSUME_GROUP",
}


@dataclass
class Sent:
    """A message as its producer sent it, with the broker's answer; None is what the library does not tell."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    msg_id: str | None = None
    offset_msg_id: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    batch: bool = False
    #: Kind of the server that stored it; brokers of different releases add different properties.
    stored_by: str = ""

    def __str__(self) -> str:
        place = f"{self.msg_id} {self.offset_msg_id} {self.queue_id}:{self.queue_offset}"
        return f"{self.topic} {self.body[:60]!r} {self.tags} {self.keys} {self.properties} {place}"

    __repr__ = __str__


def letters(index: int, size: int) -> bytes:
    """The body that probes make for `size=`."""
    alphabet = b"abcdefghijklmnopqrstuvwxyz"
    turn = index % 26
    return ((alphabet[turn:] + alphabet[:turn]) * (size // 26 + 1))[:size]


def sent_by(outcome: Outcome, options: dict[str, object]) -> list[Sent]:
    """The messages of a `produce` with these options, joined with what it printed for each."""
    count = int(str(options.get("count", 1)))
    size = int(str(options.get("size", 0)))
    tags = str(options.get("tag", "")).split(",")
    pairs = [pair.split(":") for pair in str(options.get("props", "")).split(",") if pair]
    batch = options.get("mode") == "batch"
    messages = []
    for index in range(count):
        body = letters(index, size) if size else f"{options.get('body', 'message')}-{index}".encode()
        message = Sent(str(options["topic"]), body, tags[index % len(tags)] or None, batch=batch)
        message.keys = f"{options['keys']}-{index}" if "keys" in options else None
        message.properties = {name: value.replace("#", str(index)) for name, value in pairs}
        messages.append(message)
    if batch:
        _spread(messages, outcome.sent)
    elif options.get("mode", "sync") != "async":
        # results of asynchronous sends come in any order: they are compared by id alone
        for message, line in zip(messages, outcome.sent, strict=bool(outcome.sent)):
            _note(message, line)
    return messages


def _note(message: Sent, line: Line) -> None:
    assert line.get("status") == "SEND_OK", line
    message.msg_id, message.offset_msg_id = line.get("msgId"), line.get("offsetMsgId")
    message.queue_id, message.queue_offset = line.get("queueId"), line.get("queueOffset")


def _spread(messages: list[Sent], lines: list[Line]) -> None:
    """A batch has one result: its ids are lists, its offset is the first."""
    (line,) = lines
    offset_ids = line["offsetMsgId"].split(",")
    ids = line["msgId"].split(",") if line["msgId"] else offset_ids  # Go gives a batch's messages no ids of its own
    for index, (message, msg_id, offset_id) in enumerate(zip(messages, ids, offset_ids, strict=True)):
        single = {**line, "msgId": msg_id, "offsetMsgId": offset_id, "queueOffset": line["queueOffset"] + index}
        _note(message, single)


def offset_msg_id(server: Server, physical_offset: int) -> str:
    """The id that the broker gives a record: address, port and offset in hexadecimal digits."""
    host, _, port = server.broker.rpartition(":")
    return "".join(f"{int(part):02X}" for part in host.split(".")) + f"{int(port):08X}{physical_offset:016X}"


def assert_same(
    server: Server, sent: Iterable[Sent], received: Sequence[Line], *, ids: bool = True, extra: set[str] | None = None
) -> None:
    """Every sent message was received once and nothing else, with all that its producer gave it.

    `ids=False` leaves out ids that a library or release is known to lose; `extra` names properties that may be there
    besides.
    """
    expected = list(sent)
    by_body = {(message.body, message.keys): message for message in expected}
    assert len(by_body) == len(expected), "the test's own messages must differ in body or keys"
    seen = Counter((_body_of(line, by_body), line["keys"]) for line in received)
    missing, unexpected = Counter(by_body.keys()) - seen, seen - Counter(by_body.keys())
    assert not missing, f"missing: {[by_body[key] for key in missing]}"
    assert not unexpected, (
        f"not sent, or more than once: {[(body[:60], keys, times) for (body, keys), times in unexpected.items()]}"
    )
    for line in received:
        assert_one(server, by_body[_body_of(line, by_body), line["keys"]], line, ids=ids, extra=extra or set())
    places = Counter((line["topic"], line["queueId"], line["queueOffset"]) for line in received)
    assert max(places.values(), default=1) == 1, "one place of a queue was handed out twice"


def _body_of(line: Line, known: Iterable[tuple[bytes, str | None]]) -> bytes:
    """The body behind a printed hash, or one that says what it is."""
    for body, _ in known:
        if line["sha1"] == hashlib.sha1(body).hexdigest():
            return body
    return f"unknown body {line['body']!r} of {line['size']} bytes".encode()


def assert_one(server: Server, sent: Sent, line: Line, *, ids: bool = True, extra: set[str]) -> None:
    """One received message against what was sent. Fields that a library does not show are not compared."""
    where = f"sent {sent} received {line}"
    assert line["topic"] == sent.topic, where
    assert line["size"] == len(sent.body), where
    assert (line["tags"], line["keys"]) == (sent.tags, sent.keys), where
    retried = line["reconsumeTimes"] > 0 or "REAL_TOPIC" in line["properties"]
    if not retried:
        _assert_place(server, sent, line, where)
    if ids and sent.msg_id is not None:
        assert line["msgId"] == sent.msg_id, where
    _assert_properties(sent, line, where, extra | (RETRY if retried else set()))
    assert line["storeTimestamp"] > 1_700_000_000_000 < line["bornTimestamp"], where
    assert line["preparedTransactionOffset"] == 0, where
    if "storeHost" in line:
        assert line["storeHost"].lstrip("/") == server.broker, where
        assert line["bornHost"].lstrip("/").startswith("127.0.0.1"), where
        assert line["flag"] == 0, where
    if "bodyCRC" in line and line["storeSize"] > line["size"]:  # of a compressed body the sum is of what was stored
        assert line["bodyCRC"] == zlib.crc32(sent.body) & 0x7FFFFFFF, where


def _assert_place(server: Server, sent: Sent, line: Line, where: str) -> None:
    if sent.queue_id is not None:
        assert line["queueId"] == sent.queue_id, where
    if sent.queue_offset is not None:
        assert line["queueOffset"] == sent.queue_offset, where
    if sent.offset_msg_id is not None:
        assert sent.offset_msg_id == offset_msg_id(server, line["physicalOffset"]), where


def _assert_properties(sent: Sent, line: Line, where: str, extra: set[str]) -> None:
    properties: dict[str, str] = line["properties"]
    own = {name: value for name, value in properties.items() if name not in _ADDED | {"TAGS", "KEYS"} | extra}
    assert own == sent.properties, where
    assert (properties.get("TAGS"), properties.get("KEYS")) == (sent.tags, sent.keys), where
    if sent.msg_id is not None and "UNIQ_KEY" in properties:
        assert properties["UNIQ_KEY"] == sent.msg_id or sent.batch, where
    if sent.stored_by.startswith("ours:") and "storeHost" in line:
        # as 4.9.7 stores them: the cluster's name added, WAIT dropped, but not in batches and retries
        assert properties.get("CLUSTER") == "DefaultCluster", where
        assert sent.batch or "REAL_TOPIC" in properties or "WAIT" not in properties, where
