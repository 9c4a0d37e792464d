"""Our producer beyond single sends, against Apache's servers; Apache's Java client reads the results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mqproto import Message, MessageQueue, SendContext, SendMessageHook, SendStatus, select_by_hash
from mqproto.adapters.threaded import Producer
from mqproto.errors import SendFailed, TooManyRequests
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import Line
from tests.peers.kit.steps import consume, pull

pytestmark = pairs("java-4.9.7 @ apache:4.4.0", "java-4.9.7 @ apache:4.9.7", "java-4.9.7 @ apache:5.3.3")


@contextmanager
def producing(pair: Pair, **settings: Any) -> Iterator[Producer]:
    with Producer(pair.name("ours"), pair.server.names, **{"send_msg_timeout": 30_000, **settings}) as producer:
        yield producer


def bodies(lines: list[Line]) -> list[str]:
    """The bodies' fingerprints: the probe prints no long bodies."""
    return sorted(line["sha1"] for line in lines)


def prints(*given: bytes) -> list[str]:
    return sorted(hashlib.sha1(body, usedforsecurity=False).hexdigest() for body in given)


def test_a_long_list_in_several_requests(pair: Pair) -> None:
    topic = pair.topic("List")
    messages = [Message(topic, f"{number:03}".encode() * 100, keys=f"k{number}") for number in range(50)]
    with producing(pair) as producer:
        results = producer.send_in_batches(messages, max_bytes=4000)
        futures = [producer.submit([message, message]) for message in messages[:3]]
        ids = [
            one for result in [*results, *(future.result(60) for future in futures)] for one in result.msg_id.split(",")
        ]
    assert len(results) > 3
    found = pull(pair, topic, 56)
    assert len(set(ids)) == 56
    assert {line["msgId"] for line in found} == set(ids)
    assert bodies(found) == prints(*(one.body for one in [*messages, *(messages[:3] * 2)]))


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
def test_ways_of_packing(pair: Pair, kind: str) -> None:
    topic = pair.topic("Packed")
    body = b"0123456789" * 2000
    with producing(pair, compress_type=kind) as producer:
        producer.send(Message(topic, body))
    (found,) = pull(pair, topic, 1)
    assert found["storeSize"] < 1000
    assert bodies([found]) == prints(body)


def test_a_window_is_never_more_than_full_and_everything_arrives(pair: Pair) -> None:
    topic = pair.topic("Window")
    with producing(pair, send_window_messages=16) as producer:
        futures = [producer.submit(Message(topic, b"%d" % number)) for number in range(500)]
        assert producer.flush()
        assert {future.result(0).status for future in futures} == {SendStatus.SEND_OK}
        for number in range(500, 600):
            producer.send_oneway(Message(topic, b"%d" % number))
    assert bodies(pull(pair, topic, 600)) == prints(*(b"%d" % number for number in range(600)))


def test_closing_lets_everything_end(pair: Pair) -> None:
    topic = pair.topic("Closing")
    with producing(pair, send_window_messages=4) as producer:
        futures = [producer.submit(Message(topic, b"%d" % number)) for number in range(50)]
    assert {future.result(0).status for future in futures} == {SendStatus.SEND_OK}


class Marking(SendMessageHook):
    def send_message_before(self, context: SendContext) -> None:
        assert isinstance(context.message, Message)
        context.message.properties["traceparent"] = "00-1-2-01"


def test_what_hooks_add_travels(pair: Pair) -> None:
    topic = pair.topic("Hooks")
    with producing(pair) as producer:
        producer.register_send_message_hook(Marking())
        producer.send(Message(topic, b"x"))
    (found,) = pull(pair, topic, 1)
    assert found["properties"]["traceparent"] == "00-1-2-01"


def send(producer: Producer, topic: str, key: str) -> MessageQueue:
    return producer.send(Message(topic, b"x"), selector=select_by_hash, argument=key).queue


def test_a_key_keeps_its_queue(pair: Pair) -> None:
    topic = pair.topic("Keys")
    with producing(pair) as producer:
        queues = {
            key: {producer.send(Message(topic, b"x"), selector=select_by_hash, argument=key).queue for _ in range(3)}
            for key in "abcd"
        }
    assert all(len(chosen) == 1 for chosen in queues.values())
    assert {next(iter(chosen)).queue_id for chosen in queues.values()} == {0, 1, 2, 3}, (
        "Java's hashes of single letters are their codes"
    )


def test_a_delay_and_a_time_of_delivery(pair: Pair) -> None:
    """Delay levels are known everywhere, times of delivery from 5.0 on: before that they are a property like any
    other.
    """
    topic = pair.topic("Later")
    with producing(pair) as producer:
        producer.send(Message(topic, b"level", delay_level=1))
        producer.send(Message(topic, b"time", properties={"TIMER_DELAY_MS": "1500"}))
    found = consume(pair, topic, pair.name("later"), 2).messages
    assert bodies(found) == prints(b"level", b"time")


def test_a_broker_that_is_not_there_costs_its_attempts(pair: Pair) -> None:
    """Whatever the window is: a send that fails gives its room back."""
    topic = pair.topic("Gone")
    with producing(pair, send_window_messages=1) as producer:
        queue = producer.send(Message(topic, b"x")).queue
        producer._core._host.routes.addresses[queue.broker_name][0] = "127.0.0.1:1"
        for _ in range(3):
            with pytest.raises(SendFailed):
                producer.send(Message(topic, b"x"), queue=queue)
        producer._core._host.routes.addresses[queue.broker_name][0] = pair.server.broker
        try:
            producer.send(Message(topic, b"y"), queue=queue)
        except TooManyRequests:
            pytest.fail("room was lost")
