"""Consumers that are asked for messages, in a namespace: the application sees plain names only (docs/protocol/client.md
1.8, NSP-01).
"""

from __future__ import annotations

import pytest

from mqproto.message import MessageQueue
from mqproto.state.node.contract import Deliver
from mqproto.wire.codes import RequestCode
from tests.mqproto.state import lite_pulls, pull_consumers
from tests.mqproto.state.lite_pulls import Q0, Q1, begin_poll, polling
from tests.mqproto.state.pull_consumers import pull
from tests.mqproto.state.scripted_broker import Cluster

WIRE = MessageQueue("ns%T", "b", 0)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("b", namespace="ns")
    cluster.topic("ns%T")
    return cluster


def on_change(topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None: ...


def on_topic_change(topic: str, queues: tuple[MessageQueue, ...]) -> None: ...


def told(cluster: Cluster) -> list[object]:
    return [action.task.arguments for action in cluster.stage.delivered if isinstance(action, Deliver)]


def test_a_pull_consumer(cluster: Cluster) -> None:
    cluster.stage.begin()
    consumer = pull_consumers.make(cluster)
    consumer.register("T", on_change, 0)
    cluster.start(consumer)
    cluster.put("ns%T", b"a", b"b")
    found = cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert [message.topic for message in found.messages] == ["T", "T"]
    assert cluster.requests(RequestCode.PULL_MESSAGE)[0].fields["consumerGroup"] == "ns%g"
    assert cluster.stage.run(consumer.queries.fetch_queues("T", 0)) == (Q0, Q1)
    assert cluster.stage.run(consumer.queries.max_offset(Q0, 0)) == 2
    assert consumer.queues_in_balance("T") == (Q0, Q1)
    assert told(cluster) == [("T", (Q0, Q1), (Q0, Q1))]
    cluster.stage.run(consumer.commit(Q0, 2, False, 0))
    assert cluster.broker.offsets["ns%T", 0] == 2
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, True, 0)) == 2
    cluster.stage.run(consumer.send_message_back(found.messages[0], 3, None, None, 0))
    assert (cluster.broker.sent_back[0]["group"], cluster.broker.sent_back[0]["originTopic"]) == ("ns%g", "ns%T")


def test_a_lite_pull_consumer(cluster: Cluster) -> None:
    consumer = polling(cluster)
    consumer.subscribe("T", "*", "TAG", on_change, cluster.stage.now)
    cluster.stage.settle()
    consumer.watch("T", on_topic_change)
    cluster.put("ns%T", b"a", b"b")
    messages = begin_poll(cluster, consumer).result()
    assert [message.topic for message in messages] == ["T", "T"]
    assert consumer.assignment() == (Q0, Q1)
    assert told(cluster) == [("T", (Q0, Q1), (Q0, Q1))]
    cluster.stage.run(consumer.commit_sync({MessageQueue(messages[0].topic, "b", messages[0].queue_id): 1}, 0))
    assert cluster.broker.offsets["ns%T", 0] == 1
    assert cluster.stage.run(consumer.committed(Q0, 0)) == 1
    cluster.stage.run(consumer.seek_to_begin(Q0, 0))
    assert lite_pulls.poll_all(cluster, consumer) == [b"a", b"b"]
    consumer.pause([Q0])
    consumer.resume([WIRE], 0)
    cluster.topic("ns%T", 3)
    cluster.stage.advance(45_000)
    third = MessageQueue("T", "b", 2)
    assert ("T", (Q0, Q1, third)) in told(cluster)
    assert ("T", (Q0, Q1, third), (Q0, Q1, third)) in told(cluster)
