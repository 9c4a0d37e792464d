"""What operators see of a push consumer and do to it."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import BrokerError, InvalidSetting, StateError
from mqproto.message import ConsumeStatus, MessageExt
from mqproto.wire.bodies import ConsumeFromWhere, ConsumerRunningInfo, MessageModel
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import LATER, File, consuming, make
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import NS, WALL


def test_a_suspended_consumer_consumes_what_it_has_and_pulls_nothing(cluster: Cluster) -> None:
    """docs/protocol/client.md 4.15."""
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
    """Requests 221 and 307 (docs/protocol/client.md 6, docs/protocol/wire.md 15)."""
    consumer = consuming(cluster, "T")
    cluster.stage.advance(300)
    cluster.put("T", b"0", b"1")
    cluster.stage.advance(40)
    cluster.answer(cluster.tasks[0])
    assert consumer.offsets()[queue_of("T")] == 1
    info = ConsumerRunningInfo.from_json(consumer.running_info(5_000))
    queue = info.queues[queue_of("T")]
    assert (
        queue.commit_offset,
        queue.cached_min_offset,
        queue.cached_max_offset,
        queue.cached_count,
        queue.dropped,
    ) == (1, 1, 1, 1, False)
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


@pytest.mark.parametrize("count", [0, 1, 3])
def test_running_info_of_any_number_of_queues_can_be_read(cluster: Cluster, count: int) -> None:
    """COD-13: as the answer to 307; of no queue an empty table."""
    cluster.topic("T", count)
    cluster.stage.begin()
    # such a group has no retry topic
    cluster.start(make(cluster, "T", file=File(), message_model=MessageModel.BROADCASTING))
    cluster.stage.request("b:10911", RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "x"})
    answer = cluster.broker.peer.got[-1]
    assert (answer.opaque, answer.code) == (900, 0)
    assert set(ConsumerRunningInfo.from_json(bytes(answer.body)).queues) == {
        queue_of("T", number) for number in range(count)
    }
    assert (b'"mqTable":{}' in bytes(answer.body)) == (count == 0)


def test_running_info_names_what_java_names(cluster: Cluster, golden: Any) -> None:
    """Every property that tools read, and every setting that has an effect here, has Java's name."""
    java = next(
        body for body in golden.bodies() if body.code == 307 and body.side == "response" and body.version == "4.9.7"
    )
    text = java.text.partition("\n")[2] if java.text.startswith("//") else java.text
    theirs = ConsumerRunningInfo.from_json(text)
    ours = ConsumerRunningInfo.from_json(make(cluster, "T").running_info(0))
    own = {
        "log", "subscription", "offsetStore", "allocateMessageQueueStrategy", "messageListener",
        "defaultMQPushConsumerImpl", "consumeThreadMax", "adjustThreadPoolNumsThreshold",
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


# --- what the application may do while it runs


def test_the_application_moves_its_own_queues_to_a_time(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    for hour in range(5):
        cluster.put("T", bytes([hour]), store_time=WALL + hour * 3_600_000)
        cluster.put("T", bytes([10 + hour]), queue_id=1, store_time=WALL + (hour + 2) * 3_600_000)
    cluster.answer_all()
    cluster.stage.delivered.clear()
    cluster.stage.run(consumer.reset_to_time("T", WALL + 3 * 3_600_000, cluster.stage.now))
    cluster.answer_all()
    assert sorted(cluster.bodies) == [b"\3", b"\4", b"\x0b", b"\x0c", b"\x0d", b"\x0e"]
    assert cluster.broker.offsets[("T", 0)] == 3, "stored before anything was consumed again"


def test_a_time_that_a_broker_cannot_find_moves_nothing(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0")
    cluster.answer_all()
    cluster.broker.refuses[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = 1
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.reset_to_time("T", WALL, cluster.stage.now))
    assert consumer.offsets()[queue_of("T")] == 1
    assert len(cluster.tasks) == 1
    with pytest.raises(StateError, match="consumer h is created"):
        cluster.stage.run(make(cluster, group="h").reset_to_time("T", WALL, 0))


@pytest.mark.parametrize("orderly", [False, True])
def test_the_number_of_places_changes_at_run_time(cluster: Cluster, orderly: bool) -> None:
    cluster.topic("T", 8)
    consumer = consuming(cluster, "T", consume_thread_min=2, orderly=orderly)
    for number in range(8):
        cluster.put("T", b"x", queue_id=number)
    assert len(cluster.tasks) == 2
    consumer.update_core_pool_size(5, cluster.stage.now)
    cluster.stage.settle()
    assert len(cluster.tasks) == 5
    consumer.update_core_pool_size(1, cluster.stage.now)
    for index in range(4):
        cluster.answer(cluster.tasks[index])
    assert len(cluster.tasks) == 5, "more run than may, so nothing new begins"
    cluster.answer(cluster.tasks[4])
    assert len(cluster.tasks) == 6
    assert ConsumerRunningInfo.from_json(consumer.running_info(0)).properties["PROP_THREADPOOL_CORE_SIZE"] == "1"
    for count in (0, 1_001):
        with pytest.raises(InvalidSetting):
            consumer.update_core_pool_size(count, cluster.stage.now)
