"""A few requests by hand, for what no client library does on demand.

Written from the protocol's description alone, on purpose: it shares no code with what it helps to test.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import time
from typing import Any

SEND_MESSAGE_V2, GET_ROUTEINFO_BY_TOPIC = 310, 105
QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, UPDATE_SUBSCRIPTION_GROUP = 14, 15, 200
QUERY_NOT_FOUND = 22


def ask(
    address: str, code: int, fields: dict[str, str], body: bytes = b"", seconds: float = 60
) -> tuple[dict[str, Any], bytes]:
    """Send one request over a connection of its own; returns the answer's header and body.

    Raises OSError when there is none.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), seconds) as link:
        return ask_on(link, code, fields, body)


def ask_on(link: socket.socket, code: int, fields: dict[str, str], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
    """The same over an open connection on which nothing else is under way."""
    command = {
        "code": code,
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": 407,
    }
    header = json.dumps(command).encode()
    link.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
    with link.makefile("rb") as stream:
        size, word = struct.unpack(">II", _exactly(stream.read(8), 8))
        frame = _exactly(stream.read(size - 4), size - 4)
    return json.loads(frame[: word & 0xFFFFFF]), frame[word & 0xFFFFFF :]


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise ConnectionError("the connection was closed in the middle of an answer")
    return data


def send_fields(topic: str, queue_id: int, queues: int, properties: str = "") -> dict[str, str]:
    """The fields of a SEND_MESSAGE_V2 request that makes its topic with `queues` queues where it must."""
    return {
        "a": "kit", "b": topic, "c": "TBW102", "d": str(queues), "e": str(queue_id), "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": properties, "j": "0", "k": "false", "l": "0", "m": "false",
    }  # fmt: skip


def make_topic(names: str, broker: str, topic: str, queues: int) -> None:
    """Make an empty topic with `queues` queues (at most 8) and return when the name server has its route.

    A send makes a missing topic before it finds that the queue it is for does not exist (docs/protocol/broker.md 2.1).
    """
    answer, _ = ask(broker, SEND_MESSAGE_V2, send_fields(topic, 9999, queues), b"nowhere")
    if "request queueId[9999] is illegal" not in answer.get("remark", ""):
        raise AssertionError(f"a queue that does not exist took a message: {answer}")
    wait_route(names, topic)


def wait_route(names: str, topic: str, seconds: float = 60) -> None:
    """Return when the name server has a route for the topic."""
    until = time.monotonic() + seconds
    while ask(names, GET_ROUTEINFO_BY_TOPIC, {"topic": topic})[0]["code"] != 0:
        if time.monotonic() > until:
            raise TimeoutError(f"no route for {topic} in {seconds} s")
        time.sleep(0.02)


def read_table(text: str) -> Any:
    """JSON as Java's servers write it: numbers as keys have no quotes."""
    return json.loads(re.sub(r"([{,]\s*)(-?\d+)(\s*:)", r'\1"\2"\3', text))


def queues_of(names: str, topic: str) -> list[int]:
    """The queues of a topic, which has one broker, once the name server knows it."""
    wait_route(names, topic)
    (queues,) = read_table(ask(names, GET_ROUTEINFO_BY_TOPIC, {"topic": topic})[1].decode())["queueDatas"]
    return list(range(queues["readQueueNums"]))


def committed(broker: str, group: str, topic: str, queue_id: int) -> int:
    """The offset that a group has committed for a queue, -1 where it has none.

    Whoever asks like this is no member of the group.
    """
    header, _ = ask(broker, QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)})
    if header["code"] == QUERY_NOT_FOUND:
        return -1
    assert header["code"] == 0, header
    return int(header["extFields"]["offset"])


def make_group(broker: str, group: str) -> None:
    """Make a group as brokers make one whose first member has come. Release 5 takes no offsets of others."""
    header, _ = ask(broker, UPDATE_SUBSCRIPTION_GROUP, {}, json.dumps({"groupName": group}).encode())
    assert header["code"] == 0, header


def commit(broker: str, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Commit an offset for a group, and return when the broker has taken it."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    header, _ = ask(broker, UPDATE_CONSUMER_OFFSET, fields)
    assert header["code"] == 0, header


def first_accepted(address: str, topic: str, deadline: float) -> float:
    """Send one message again and again until the broker accepts it; returns the monotonic time of that.

    Raises TimeoutError at the deadline.
    """
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if ask(address, SEND_MESSAGE_V2, send_fields(topic, 0, 4), b"first", 1)[0]["code"] == 0:
                return time.monotonic()
        time.sleep(0.002)
    raise TimeoutError(f"no message accepted by {address}")
