"""Requests that are answered by other clients through our broker, and traces that clients leave in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.peers.conftest import need
from tests.peers.kit import steps, wire
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import Running, finish, wait_for

JAVA = "java-4.9.7"
TRACES = "RMQ_SYS_TRACE_TOPIC"
#: Clients that send requests. Java's 5.3.3 gives up at once, against Apache's broker as well, and 4.4 and the others
#: cannot ask.
requesters = pairs(
    "java-4.9.7 @ ours:threaded",
    "java-4.9.7-binary @ ours:threaded",
    "go @ ours:threaded",
    "java-4.9.7 @ ours:gevent",
    "java-4.9.7 @ ours:asyncio",
    "java-4.9.7 @ ours:trio",
)
traced = pairs(
    "java-4.4.0 @ ours:threaded",
    "java-4.9.7 @ ours:threaded",
    "java-5.3.3 @ ours:threaded",
    "java-4.9.7 @ ours:asyncio",
)


def answering(pair: Pair, kind: str, topic: str, expect: int) -> Running:
    need(kind)
    group = pair.name("answering")
    running = pair.other(kind).start("reply", topic=topic, group=group, expect=expect, seconds=120)
    wait_for(running, "started", 120)
    return running


def asked(pair: Pair, topic: str, count: int) -> list[str]:
    lines = pair.run("request", topic=topic, count=count, seconds=120, group=pair.name("requests")).lines
    assert len({line["correlation"] for line in lines if "reply" in line}) == count
    return [line["reply"] for line in lines if "reply" in line]


def converse(pair: Pair, kind: str) -> None:
    topic = pair.topic("Asked", 1)
    other = answering(pair, kind, topic, 3)
    assert asked(pair, topic, 3) == [f"reply to message-{index}" for index in range(3)]
    # who asks leaves with the last reply, at times before it confirms it: whoever gave it hears that it failed
    other.stop()
    finish(other, status=None)


@requesters
def test_requests_are_answered(pair: Pair) -> None:
    converse(pair, JAVA)


@pairs("java-4.9.7 @ ours:threaded")
@pytest.mark.parametrize("kind", ["java-5.3.3", "go"])
def test_others_answer(pair: Pair, kind: str) -> None:
    converse(pair, kind)


@traced
def test_traces_are_found(pair: Pair, mqadmin: Callable[..., str]) -> None:
    # 5.3.3 sends no traces to a topic that is not there
    wire.make_topic(pair.server.names, pair.server.broker, TRACES, 1)
    topic, group, sender = pair.name("Traced"), pair.name("consuming"), pair.name("sending")
    row = r" +[0-9a-fA-F:.]+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d+ms +success *$"
    # Traces are sent beside the work, some time later, and get lost when their client leaves. 4.4 has them of one
    # client at a time.
    producer = pair.start("produce", topic=topic, tag="TagT", keys="traced", trace=True, group=sender, stay=200)
    msg_id = wait_for(producer, "queueOffset")["msgId"]
    steps.traced(mqadmin, msg_id, rf"^Pub +{sender[:20]}{row}")
    producer.stop()
    finish(producer)
    consumer = pair.start("consume", topic=topic, group=group, expect=1000, seconds=200, trace=True)
    wait_for(consumer, "body")
    if "5.3.3" not in pair.client.kind:
        # whose consumer keeps its traces for itself when it lives for seconds, with Apache's broker as well
        # 4.4 does not say whose it was
        steps.traced(mqadmin, msg_id, rf"^Sub +{'' if '4.4.0' in pair.client.kind else group[:20]}{row}")
    consumer.stop()
    finish(consumer, status=1)
