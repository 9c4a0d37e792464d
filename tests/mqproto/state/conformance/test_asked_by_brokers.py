"""Requests that brokers of three releases made to Apache's consumers for operators: ours answers the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.message import MessageQueue
from mqproto.wire.bodies import ConsumerRunningInfo, ResetOffsets
from mqproto.wire.codes import RequestCode
from tests.golden.golden import FOLLOWED, GOLDEN, VERSIONS, Exchange
from tests.mqproto.state.consumers import FIRST, make
from tests.mqproto.state.scripted_broker import Cluster

GROUP, TOPIC = "admin-group", "AdminTopic"
INFO, DIRECT, RESET = (
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
)


def pushed(code: int) -> list[Any]:
    """All requests of brokers of one code, with the answers of Apache's consumer."""
    params = []
    for version in VERSIONS:
        for name in GOLDEN.capture_names(version):
            found = [
                one
                for one in GOLDEN.exchanges(version, name)
                if one.request.link == "client-broker" and one.request.direction == "<"
            ]
            for index, exchange in enumerate(one for one in found if one.request.code == code):
                params.append(pytest.param(exchange, id=f"{version}-{name}-{index}"))
    return params


@pytest.fixture
def cluster() -> Cluster:
    """A consumer of the recorded group that has consumed a few messages of its topic."""
    cluster = Cluster("broker-a")
    cluster.topic(TOPIC, 4)
    cluster.stage.begin()
    consumer = make(cluster, TOPIC, group=GROUP, consume_from_where=FIRST)
    cluster.start(consumer)
    for queue_id in range(4):
        cluster.put(TOPIC, *[b"message"] * 5, queue_id=queue_id)
    cluster.answer_all()
    return cluster


def answer(cluster: Cluster, exchange: Exchange) -> Command:
    cluster.stage.receive(cluster.broker.address, exchange.request.frame)
    found = cluster.broker.peer.got[-1]
    assert (found.is_response, found.opaque) == (True, exchange.request.opaque)
    return found


@pytest.mark.parametrize("exchange", pushed(DIRECT))
def test_a_message_for_the_listener_at_once(cluster: Cluster, exchange: Exchange) -> None:
    cluster.stage.receive(cluster.broker.address, exchange.request.frame)
    task = cluster.tasks[-1]
    assert [(one.topic, one.body, one.offset_msg_id) for one in task.messages] == [
        (TOPIC, b"message-0", exchange.request.fields["msgId"])
    ]
    cluster.answer(task)
    ours = cluster.broker.peer.got[-1]
    assert exchange.answer is not None
    assert (ours.code, ours.opaque) == (exchange.answer.code, exchange.request.opaque)
    assert _untimed(ours.body) == _untimed(exchange.answer.body)


def _untimed(body: bytes | memoryview) -> dict[str, Any]:
    return {**json.loads(bytes(body)), "spentTimeMills": 0}


@pytest.mark.parametrize("exchange", pushed(INFO))
def test_what_a_consumer_is_doing(cluster: Cluster, exchange: Exchange) -> None:
    """The same members with the same queues and subscriptions; numbers and properties are each program's own."""
    found = answer(cluster, exchange)
    assert exchange.answer is not None
    assert found.code == exchange.answer.code
    ours, theirs = (
        ConsumerRunningInfo.from_json(bytes(found.body)),
        ConsumerRunningInfo.from_json(bytes(exchange.answer.body)),
    )
    assert {one.queue_id for one in ours.queues if one.topic == TOPIC} == {
        one.queue_id for one in theirs.queues if one.topic == TOPIC
    }
    assert {(one.topic, one.expression, one.type) for one in ours.subscriptions} == {
        (one.topic, one.expression, one.type) for one in theirs.subscriptions
    }
    assert ours.statuses.keys() == theirs.statuses.keys()
    assert {name for name in theirs.properties if name.startswith("PROP_")} <= ours.properties.keys()


@pytest.mark.parametrize("exchange", pushed(RESET))
def test_offsets_that_an_operator_moves(cluster: Cluster, exchange: Exchange) -> None:
    cluster.stage.receive(cluster.broker.address, exchange.request.frame)
    cluster.advance(12_000)
    wanted = ResetOffsets.from_json(bytes(exchange.request.body)).offsets
    assert len(wanted) == 4
    pulls = {(one.fields["queueId"], one.fields["queueOffset"]) for one in cluster.requests(RequestCode.PULL_MESSAGE)}
    for queue, offset in wanted.items():
        assert (str(queue.queue_id), str(offset)) in pulls
        assert cluster.broker.offsets[TOPIC, queue.queue_id] == offset
        assert queue == MessageQueue(TOPIC, "broker-a", queue.queue_id)


def test_all_of_these_were_recorded_with_the_release_that_we_follow() -> None:
    assert all(any(FOLLOWED in str(one.id) for one in pushed(code)) for code in (INFO, DIRECT, RESET))
