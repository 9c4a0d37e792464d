"""Message trace of lite pull consumers: it begins with the poll and ends with the confirmation."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import InvalidName
from mqproto.message import MessageExt
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.lite_pull_consumer import LitePullConsumerCore
from mqproto.state.producer.trace import FLUSH_MS
from mqproto.wire import properties
from mqproto.wire.codes import RequestCode
from mqproto.wire.names import TRACE_TOPIC
from tests.mqproto.state.lite_pulls import Q0, make, poll, polling
from tests.mqproto.state.scripted_broker import Cluster
from tests.mqproto.state.stage import WALL, broker

SEND = RequestCode.SEND_MESSAGE_V2


def traced(cluster: Cluster, **settings: Any) -> LitePullConsumerCore:
    """A started consumer of T with a trace."""
    cluster.topic(settings.get("customized_trace_topic", TRACE_TOPIC), 1)
    cluster.broker.peer.answers[SEND] = broker().answers[SEND]
    return polling(cluster, "T", **{"enable_msg_trace": True, **settings})


def put(cluster: Cluster, *ids: str, **values: str) -> None:
    """Messages that the trace can tell apart."""
    queue = cluster.broker.queues.setdefault(("T", 0), [])
    for msg_id in ids:
        queue.append(MessageExt("T", b"x", {properties.UNIQ_KEY: msg_id, **values}, queue_offset=len(queue)))


def told(cluster: Cluster) -> list[list[str]]:
    """The records that were sent by now, as fields."""
    cluster.stage.advance(FLUSH_MS)
    texts = b"".join(bytes(request.body) for request in cluster.requests(SEND)).decode().split("\x02")
    return [text.split("\x01") for text in texts if text]


def kinds(cluster: Cluster) -> list[tuple[str, str]]:
    """What is told of which message."""
    return [(record[0], record[5] if record[0] == "SubBefore" else record[2]) for record in told(cluster)]


def test_a_poll_begins_and_the_next_one_is_the_end(cluster: Cluster) -> None:
    put(cluster, "ID0", KEYS="k")
    put(cluster, "ID1", MSG_REGION="here")
    consumer = traced(cluster)
    cluster.stage.advance(5_000)
    assert told(cluster) == [], "what only waits for a poll was not begun"
    polled = cluster.stage.now
    assert poll(cluster, consumer) == [b"x", b"x"]
    first, second = told(cluster)
    request = first[4]
    assert len(request) == 32
    assert first == ["SubBefore", str(polled + WALL), "null", "g", request, "ID0", "0", "k"]
    assert second == ["SubBefore", str(polled + WALL), "here", "g", request, "ID1", "0", "null"]
    ended = cluster.stage.now
    poll(cluster, consumer)
    cost = str((ended - polled) // 2)
    assert told(cluster)[2:] == [
        ["SubAfter", request, "ID0", cost, "true", "k", "0", str(ended + WALL), "g"],
        ["SubAfter", request, "ID1", cost, "true", "null", "0", str(ended + WALL), "g"],
    ]
    poll(cluster, consumer)
    assert len(told(cluster)) == 4


def test_a_commit_is_an_end_too_and_each_poll_has_its_own_id(cluster: Cluster) -> None:
    put(cluster, "ID0", "ID1")
    consumer = traced(cluster, auto_commit=False)
    for _ in range(2):
        poll(cluster, consumer, 1)
        consumer.commit(None, False, cluster.stage.now)
    records = told(cluster)
    assert kinds(cluster) == [("SubBefore", "ID0"), ("SubAfter", "ID0"), ("SubBefore", "ID1"), ("SubAfter", "ID1")]
    assert records[0][4] == records[1][1] != records[2][4] == records[3][1]


def test_what_an_interrupted_poll_gives_back_has_begun_once(cluster: Cluster) -> None:
    put(cluster, "ID0", "ID1")
    consumer = traced(cluster)
    cluster.stage.advance(1_000)
    claim = Claim()
    cluster.stage.run(consumer.poll(claim, 0, None, cluster.stage.now))
    consumer.put_back(claim, cluster.stage.now)
    assert kinds(cluster) == [("SubBefore", "ID0"), ("SubBefore", "ID1")]
    for _ in range(3):
        poll(cluster, consumer, 1)
    records = told(cluster)
    assert kinds(cluster)[2:] == [("SubAfter", "ID0"), ("SubAfter", "ID1")]
    assert len({records[0][4], records[1][4], records[2][1], records[3][1]}) == 1
    assert records[2][3] == "0", "counted from when somebody got it"


def test_what_can_be_confirmed_no_more_has_no_end(cluster: Cluster) -> None:
    """It comes again, here or elsewhere, and how this time went nobody says."""
    put(cluster, "ID0")
    consumer = traced(cluster)
    poll(cluster, consumer)
    cluster.stage.run(consumer.seek(Q0, 0, cluster.stage.now))
    cluster.advance(1_000)
    poll(cluster, consumer)
    consumer._assignment.queues[Q0].drop()
    poll(cluster, consumer)
    assert kinds(cluster) == [("SubBefore", "ID0"), ("SubBefore", "ID0")]


def test_closing_sends_what_is_left(cluster: Cluster) -> None:
    """TRC-03: and what the last poll brought is not done with."""
    put(cluster, "ID0", "ID1")
    consumer = traced(cluster)
    poll(cluster, consumer, 1)
    poll(cluster, consumer, 1)
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    sent = len(cluster.requests(SEND))
    assert kinds(cluster) == [("SubBefore", "ID0"), ("SubAfter", "ID0"), ("SubBefore", "ID1")]
    assert len(cluster.requests(SEND)) == sent
    assert cluster.stage.node.tracers == []


def test_a_topic_of_the_applications_choice(cluster: Cluster) -> None:
    put(cluster, "ID0")
    consumer = traced(cluster, customized_trace_topic="my-traces")
    poll(cluster, consumer)
    assert kinds(cluster) == [("SubBefore", "ID0")]
    assert cluster.requests(SEND)[0].fields["b"] == "my-traces"
    assert cluster.requests(SEND)[0].fields["a"] == "_INNER_TRACE_PRODUCER-g-CONSUME"
    with pytest.raises(InvalidName):
        make(cluster, group="h", customized_trace_topic="no topic")


def test_in_a_namespace_the_group_is_the_applications() -> None:
    cluster = Cluster("b", namespace="ns")
    cluster.topic("ns%T")
    cluster.broker.queues[("ns%T", 0)] = [MessageExt("ns%T", b"x", {properties.UNIQ_KEY: "ID0"})]
    consumer = traced(cluster)
    poll(cluster, consumer)
    poll(cluster, consumer)
    before, after = told(cluster)
    assert (before[0], before[3], after[0], after[8]) == ("SubBefore", "g", "SubAfter", "g")


def test_nothing_is_told_unless_it_is_wanted(cluster: Cluster) -> None:
    put(cluster, "ID0", TRACE_ON="false")
    consumer = traced(cluster)
    poll(cluster, consumer)
    poll(cluster, consumer)
    assert told(cluster) == [], "the message says so"
    put(cluster, "ID1")
    plain = traced(cluster, enable_msg_trace=False, group="h")
    assert len(cluster.stage.node.tracers) == 1
    poll(cluster, plain)
    poll(cluster, plain)
    assert told(cluster) == [], "the consumer says so"
