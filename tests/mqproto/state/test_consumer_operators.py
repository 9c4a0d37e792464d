"""What operators see of a push consumer and do to it."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.bodies import ConsumerRunningInfo
from mqproto.message import ConsumeStatus, MessageExt
from tests.mqproto.state.consumers import LATER, consuming, make
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import NS, WALL


def test_a_suspended_consumer_consumes_what_it_has_and_pulls_nothing(cluster: Cluster) -> None:
    """client.md 4.15."""
    consumer = consuming(cluster, "T", consume_thread_min=1)
    cluster.put("T", b"0", b"1")
    consumer.suspend(cluster.stage.now)
    cluster.put("T", b"2")
    assert len(cluster.bodies) == 1
    cluster.answer_all()
    assert cluster.bodies == [b"0", b"1", b"2"], "a pull that was under way brings its messages"
    cluster.put("T", b"3")
    cluster.advance(60_000)
    assert cluster.bodies == [b"0", b"1", b"2"]
    consumer.resume(cluster.stage.now)
    cluster.stage.settle()
    assert cluster.bodies == [b"0", b"1", b"2", b"3"]


def test_operators_see_offsets_and_queues(cluster: Cluster) -> None:
    """Requests 221 and 307 (client.md 6, wire.md 15)."""
    consumer = consuming(cluster, "T")
    cluster.stage.advance(300)
    cluster.put("T", b"0", b"1")
    cluster.stage.advance(40)
    cluster.answer(cluster.tasks[0])
    assert consumer.offsets()[queue_of("T")] == 1
    info = ConsumerRunningInfo.from_json(consumer.running_info(5_000))
    queue = info.queues[queue_of("T")]
    assert (queue.commit_offset, queue.cached_min_offset, queue.cached_max_offset, queue.cached_count, queue.dropped) == (1, 1, 1, 1, False)
    assert (queue.last_pull_time, queue.last_consume_time) == (WALL + 300, WALL + 300)
    assert info.properties["consumerGroup"] == "g"
    assert info.properties["pullThresholdForQueue"] == "1000"
    assert info.properties["PROP_NAMESERVER_ADDR"] == f"{NS};"
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CLIENT_VERSION"] == "V4_9_7"
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == str(WALL)
    assert {one.topic for one in info.subscriptions} == {"T", "%RETRY%g"}
    assert info.statuses["T"].consume_ok_tps == 1 / 60
    assert (info.statuses["T"].pull_tps, info.statuses["T"].pull_rt, info.statuses["T"].consume_rt) == (2 / 60, 300, 40)


def test_running_info_without_queues_is_valid(cluster: Cluster) -> None:
    """COD-13."""
    assert b'"mqTable":{}' in make(cluster, "T").running_info(0)


def test_running_info_names_what_java_names(cluster: Cluster, golden: Any) -> None:
    """Every property that tools read, and every setting that has an effect here, has Java's name."""
    java = next(body for body in golden.bodies() if body.code == 307 and body.side == "response" and body.version == "4.9.7")
    text = java.text.partition("\n")[2] if java.text.startswith("//") else java.text
    theirs = ConsumerRunningInfo.from_json(text)
    ours = ConsumerRunningInfo.from_json(make(cluster, "T").running_info(0))
    own = {
        "log", "subscription", "offsetStore", "allocateMessageQueueStrategy", "messageListener", "defaultMQPushConsumerImpl",
        "consumeThreadMax", "adjustThreadPoolNumsThreshold",
    }  # fmt: skip
    assert theirs.properties.keys() - own <= ours.properties.keys()


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (ConsumeStatus.SUCCESS, b"CR_SUCCESS"),
        (LATER, b"CR_LATER"),
        (None, b"CR_RETURN_NULL"),
        (ValueError("boom"), b"CR_THROW_EXCEPTION"),
        (True, b"CR_THROW_EXCEPTION"),
    ],
)
def test_one_message_for_an_operator(cluster: Cluster, result: object, outcome: bytes) -> None:
    """Request 309: the answer goes back, no offset moves."""
    consumer = consuming(cluster, "T")
    replies: list[bytes] = []
    message = MessageExt("%RETRY%g", b"x", {"RETRY_TOPIC": "T"}, queue_id=1)
    consumer.consume_directly(message, "b", lambda body, now: replies.append(body), cluster.stage.now)
    cluster.stage.settle()
    (task,) = cluster.tasks
    assert (task.messages[0].topic, task.context.queue) == ("T", queue_of("%RETRY%g", 1))
    before = consumer.offsets()
    cluster.stage.advance(7)
    cluster.answer(task, result)
    (body,) = replies
    assert b'"consumeResult":"' + outcome + b'"' in body
    assert b'"spentTimeMills":7' in body
    assert b'"autoCommit":true' in body
    assert (b"boom" in body) == isinstance(result, ValueError)
    assert (consumer.offsets(), cluster.broker.sent_back) == (before, [])


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (ConsumeStatus.SUCCESS, b"CR_SUCCESS"),
        (ConsumeStatus.COMMIT, b"CR_COMMIT"),
        (ConsumeStatus.ROLLBACK, b"CR_ROLLBACK"),
        (LATER, b"CR_LATER"),
        (None, b"CR_RETURN_NULL"),
        (ValueError("boom"), b"CR_THROW_EXCEPTION"),
    ],
)
def test_one_message_for_an_operator_of_an_ordered_consumer(cluster: Cluster, result: object, outcome: bytes) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    replies: list[bytes] = []
    consumer.consume_directly(MessageExt("T", b"x"), "b", lambda body, now: replies.append(body), cluster.stage.now)
    cluster.stage.settle()
    (task,) = cluster.tasks
    task.context.auto_commit = False
    cluster.answer(task, result)
    (body,) = replies
    assert b'"consumeResult":"' + outcome + b'"' in body
    assert b'"order":true' in body
    assert b'"autoCommit":false' in body


def test_messages_for_operators_have_a_limit_and_unreadable_ones_an_answer(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    replies: list[bytes] = []
    for _ in range(17):
        consumer.consume_directly(MessageExt("T", b"x"), "b", lambda body, now: replies.append(body), 0)
    assert len(replies) == 1
    consumer.consume_directly(MessageExt("T", b"x", sys_flag=1), "b", lambda body, now: replies.append(body), 0)
    assert len(replies) == 2
    assert all(b"CR_THROW_EXCEPTION" in body for body in replies)
