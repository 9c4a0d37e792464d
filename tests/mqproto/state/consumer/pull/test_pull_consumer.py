"""The pull consumer on a client node, with scripted brokers."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command, encode_response
from mqproto.errors import (
    BrokerError,
    CallExpired,
    ClientError,
    InvalidName,
    InvalidSetting,
    MQError,
    NoNameServer,
    NoRoute,
    StateError,
)
from mqproto.message import MessageExt, MessageQueue, PullStatus
from mqproto.state.consumer.pull.pull_consumer import PullConsumerCore
from mqproto.state.consumer.pull.settings import PullConsumerSettings
from mqproto.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
    DirectConsumeResult,
    MessageModel,
    ResetOffsets,
)
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.filters.tags import InvalidExpressionError
from mqproto.wire.record import RecordError, encode_record
from tests.mqproto.state.pull_consumers import Q0, Q1, make, pull
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import NS, route, success


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    cluster.stage.begin()
    return cluster


@pytest.fixture
def consumer(cluster: Cluster) -> PullConsumerCore:
    consumer = make(cluster)
    cluster.start(consumer)
    return consumer


def pulls(cluster: Cluster) -> list[dict[str, str]]:
    return [request.fields for request in cluster.requests(RequestCode.PULL_MESSAGE)]


# --- settings


def test_settings_have_the_defaults_and_limits_of_apache(cluster: Cluster) -> None:
    """docs/protocol/client.md 1.9.4."""
    settings = PullConsumerSettings(group="g")
    assert (settings.broker_suspend_max_time_millis, settings.consumer_timeout_millis_when_suspend) == (20_000, 30_000)
    assert (settings.consumer_pull_timeout_millis, settings.max_reconsume_times) == (10_000, 16)
    wrong: list[tuple[str, Any]] = [
        ("group", "DEFAULT_CONSUMER"),
        ("message_model", "both"),
        ("broker_suspend_max_time_millis", 30_001),
        ("consumer_pull_timeout_millis", 0),
        ("max_reconsume_times", -1),
    ]
    for key, value in wrong:
        with pytest.raises(InvalidSetting) as refused:
            make(cluster, **{key: value})
        assert refused.value.key == key
    with pytest.raises(InvalidName):
        make(cluster, "a b")


def test_broadcasting_needs_a_file(cluster: Cluster) -> None:
    with pytest.raises(InvalidSetting, match="an offset file is needed"):
        make(cluster, message_model=MessageModel.BROADCASTING)


# --- life


def test_it_lives_once(cluster: Cluster, consumer: PullConsumerCore) -> None:
    with pytest.raises(StateError, match="running already"):
        cluster.start(consumer)
    with pytest.raises(StateError, match="a consumer of group 'g' already"):
        cluster.start(make(cluster))
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    with pytest.raises(StateError, match="stopped"):
        cluster.stage.run(pull(consumer, Q0, "*", 0))
    cluster.start(make(cluster))


def test_the_end_unregisters_the_group(cluster: Cluster, consumer: PullConsumerCore) -> None:
    cluster.stage.run(pull(consumer, Q0, "*", 0))
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    (farewell,) = cluster.requests(RequestCode.UNREGISTER_CLIENT)
    assert farewell.fields == {"clientID": cluster.stage.node.client_id, "consumerGroup": "g"}


def test_the_end_of_the_node_waits_for_stored_offsets(cluster: Cluster, consumer: PullConsumerCore) -> None:
    consumer.update_consume_offset(Q1, 7, cluster.stage.now)
    cluster.stage.node.close(cluster.stage.now)
    cluster.stage.settle().advance(1)
    assert cluster.broker.offsets == {("T", 1): 7}
    assert cluster.stage.node.ended


def test_name_servers_that_cannot_be_reached_are_a_failure(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.register("T", None, 0)
    del cluster.stage.peers[NS]
    cluster.stage.cut(NS) if NS in cluster.stage.links else None
    with pytest.raises(NoNameServer):
        cluster.start(consumer)
    assert not cluster.stage.node.consumers.by_group


# --- pulls


def test_a_plain_pull_is_that_of_java(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """docs/protocol/client.md 5.1, golden capture pull."""
    cluster.put("T", b"a", b"b", b"c", tag="TagB")
    found = cluster.stage.run(pull(consumer, Q0, "TagB", 1, 32))
    assert (found.status, found.next_begin_offset, found.min_offset, found.max_offset) == (PullStatus.FOUND, 3, 0, 3)
    assert [message.body for message in found.messages] == [b"b", b"c"]
    assert found.messages[0].properties["MAX_OFFSET"] == "3"
    assert found.messages[0].broker_name == "b"
    assert pulls(cluster) == [
        {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": "0",
            "queueOffset": "1",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "20000",
            "subscription": "TagB",
            "subVersion": "0",
            "expressionType": "TAG",
            "bname": "b",
        }
    ]


def test_at_the_end_a_plain_pull_comes_back_at_once(cluster: Cluster, consumer: PullConsumerCore) -> None:
    found = cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert (found.status, found.next_begin_offset, found.messages) == (PullStatus.NO_NEW_MSG, 0, ())


def test_a_blocking_pull_is_held_until_a_message_comes(cluster: Cluster, consumer: PullConsumerCore) -> None:
    ticket = cluster.stage.start(pull(consumer, Q0, "*", 0, block=True))
    assert not ticket.settled
    assert pulls(cluster)[0]["sysFlag"] == "6"
    cluster.advance(5_000)
    cluster.put("T", b"a")
    assert [message.body for message in ticket.result().messages] == [b"a"]


def test_how_long_an_answer_is_waited_for(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """docs/protocol/client.md 1.9.4; CON-19: with a time of one's own the broker answers before that is over."""
    cluster.broker.ignores.add(RequestCode.PULL_MESSAGE)
    for arguments, limit_ms, suspend in (
        ({"block": False}, 10_000, "20000"),
        ({"block": True}, 30_000, "20000"),
        ({"block": False, "timeout_ms": 700}, 700, "20000"),
        ({"block": True, "timeout_ms": 9_000}, 9_000, "6000"),
        ({"block": True, "timeout_ms": 90_000}, 90_000, "20000"),
    ):
        ticket = cluster.stage.start(pull(consumer, Q0, "*", 0, now=cluster.stage.now, **arguments))
        assert pulls(cluster)[-1]["suspendTimeoutMillis"] == suspend
        cluster.stage.advance(limit_ms - 1)
        assert not ticket.settled
        cluster.stage.advance(1)
        with pytest.raises(CallExpired):
            ticket.result()


def test_statuses(cluster: Cluster, consumer: PullConsumerCore) -> None:
    cluster.put("T", b"a", b"b")
    cluster.broker.minimum["T", 0] = 1
    found = cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert (found.status, found.next_begin_offset, found.messages) == (PullStatus.OFFSET_ILLEGAL, 1, ()), (
        "the application corrects it"
    )
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "2", "minOffset": "1", "maxOffset": "2"}
    cluster.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(request.opaque, 20, fields)
    found = cluster.stage.run(pull(consumer, Q0, "TagA", 1))
    assert (found.status, found.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 2)


def test_tags_that_share_a_hash_are_told_apart(cluster: Cluster, consumer: PullConsumerCore) -> None:
    cluster.put("T", b"no", tag="BB")
    cluster.put("T", b"yes", tag="Aa")
    found = cluster.stage.run(pull(consumer, Q0, "Aa", 0))
    assert [message.body for message in found.messages] == [b"yes"]


def test_an_expression_travels_with_a_version(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """docs/protocol/client.md 5.1: a broker compiles SQL92 anew only for a version that it has not seen."""
    cluster.stage.run(pull(consumer, Q0, "a > 1", 0, kind="SQL92", now=cluster.stage.now))
    fields = pulls(cluster)[0]
    assert (fields["subscription"], fields["expressionType"]) == ("a > 1", "SQL92")
    assert int(fields["subVersion"]) == cluster.stage.now + cluster.stage.node.wall_ahead


@pytest.mark.parametrize(
    ("queue", "expression", "offset", "count", "error"),
    [
        (Q0, "*", -1, 1, ClientError),
        (Q0, "*", "1", 1, ClientError),
        (Q0, "*", 1.5, 1, ClientError),
        (Q0, "*", 0, 0, ClientError),
        (Q0, "||", 0, 1, InvalidExpressionError),
        (queue_of("T", broker="nobody"), "*", 0, 1, NoRoute),
        (queue_of("nothing", broker="nobody"), "*", 0, 1, BrokerError),
    ],
)
def test_what_cannot_be_pulled(
    cluster: Cluster,
    consumer: PullConsumerCore,
    queue: MessageQueue,
    expression: str,
    offset: Any,
    count: int,
    error: type[MQError],
) -> None:
    with pytest.raises(error):
        cluster.stage.run(pull(consumer, queue, expression, offset, count))
    assert not pulls(cluster)
    assert not list(consumer.topics()), "no queues are allocated for it"


def test_only_a_running_consumer_pulls(cluster: Cluster) -> None:
    with pytest.raises(StateError, match="created"):
        cluster.stage.run(pull(make(cluster), Q0, "*", 0))


def test_a_refusal_is_raised(cluster: Cluster, consumer: PullConsumerCore) -> None:
    cluster.broker.refuses[RequestCode.PULL_MESSAGE] = 16
    with pytest.raises(BrokerError) as refused:
        cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert refused.value.code == 16


def test_a_message_that_cannot_be_read_is_told_with_its_offset(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """The good ones before it come first."""
    cluster.put("T", b"good")
    cluster.put("T", b"not deflated", sys_flag=1)
    cluster.put("T", b"behind")
    found = cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert ([message.body for message in found.messages], found.next_begin_offset) == ([b"good"], 1)
    with pytest.raises(RecordError) as failure:
        cluster.stage.run(pull(consumer, Q0, "*", 1))
    assert failure.value.queue_offset == 1
    found = cluster.stage.run(pull(consumer, Q0, "*", 2))
    assert [message.body for message in found.messages] == [b"behind"]


def test_a_suggested_slave_is_pulled_from_until_it_fails(cluster: Cluster, consumer: PullConsumerCore) -> None:
    cluster.routes["T"] = route("b=b:10911", slaves={"b": "b-slave:10911"})
    slave = Cluster("b")  # its broker stands in as the slave's
    cluster.stage.peers["b-slave:10911"] = slave.broker.peer
    one = encode_record(MessageExt("T", b"a"))
    fields = {"suggestWhichBrokerId": "1", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "9"}
    cluster.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(
        request.opaque, 0, fields, one
    )
    slave.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(
        request.opaque, 0, fields, one
    )
    for _ in range(3):
        cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert (len(pulls(cluster)), len(pulls(slave))) == (1, 2)
    slave.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(
        request.opaque, ResponseCode.SYSTEM_BUSY, None
    )
    with pytest.raises(BrokerError):
        cluster.stage.run(pull(consumer, Q0, "*", 0))
    cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert (len(pulls(cluster)), len(pulls(slave))) == (2, 3)


# --- queues and offsets in them


def test_queues_are_asked_of_a_name_server(cluster: Cluster, consumer: PullConsumerCore) -> None:
    assert cluster.stage.run(consumer.queries.fetch_queues("T", 0)) == (Q0, Q1)
    cluster.topic("T", 1)
    assert cluster.stage.run(consumer.queries.fetch_queues("T", 0)) == (Q0,)
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.queries.fetch_queues("nothing", 0))
    cluster.routes["T"] = route("b=b:10911", perm=2)
    with pytest.raises(NoRoute):
        cluster.stage.run(consumer.queries.fetch_queues("T", 0))


def test_offsets_are_asked_of_the_master(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """docs/protocol/client.md 1.10."""
    for time in (1_000, 2_000, 3_000):
        cluster.put("T", b"a", store_time=time)
    cluster.broker.minimum["T", 0] = 0
    assert cluster.stage.run(consumer.queries.max_offset(Q0, 0)) == 3
    assert cluster.stage.run(consumer.queries.min_offset(Q0, 0)) == 0
    assert cluster.stage.run(consumer.queries.search_offset(Q0, 1_500, 0)) == 1
    assert cluster.stage.run(consumer.queries.earliest_msg_store_time(Q0, 0)) == 1_000
    assert cluster.stage.run(consumer.queries.earliest_msg_store_time(Q1, 0)) == -1
    asked = [request for request in cluster.broker.peer.got if request.code in (29, 30, 31, 32)]
    assert [request.fields for request in asked[:3]] == [
        {"topic": "T", "queueId": "0", "bname": "b"},
        {"topic": "T", "queueId": "0", "bname": "b"},
        {"topic": "T", "queueId": "0", "timestamp": "1500", "bname": "b"},
    ]
    cluster.broker.ignores.add(RequestCode.GET_MAX_OFFSET)
    ticket = cluster.stage.start(consumer.queries.max_offset(Q0, cluster.stage.now))
    cluster.stage.advance(5_999)
    assert not ticket.settled
    cluster.stage.advance(1)
    with pytest.raises(CallExpired):
        ticket.result()


def test_equal_queue_numbers_of_two_brokers_are_two_queues() -> None:
    """CON-20."""
    cluster = Cluster("a", "b")
    cluster.topic("T", 1)
    cluster.stage.begin()
    consumer = make(cluster)
    cluster.start(consumer)
    cluster.put("T", *[b"a"] * 10, broker="a")
    cluster.put("T", *[b"b"] * 20, broker="b")
    counts = {}
    for queue in cluster.stage.run(consumer.queries.fetch_queues("T", 0)):
        found = cluster.stage.run(pull(consumer, queue, "*", 0))
        counts[queue.broker_name] = (len(found.messages), {message.body for message in found.messages})
        consumer.update_consume_offset(queue, found.next_begin_offset, 0)
    assert counts == {"a": (10, {b"a"}), "b": (20, {b"b"})}
    cluster.advance(11_000)
    assert (cluster.brokers["a"].offsets, cluster.brokers["b"].offsets) == ({("T", 0): 10}, {("T", 0): 20})


# --- messages that come again


def one_message(cluster: Cluster, consumer: PullConsumerCore) -> MessageExt:
    cluster.put("T", b"a")
    return cluster.stage.run(pull(consumer, Q0, "*", 0)).messages[0]


def test_a_message_is_sent_back(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """docs/protocol/client.md 4.12."""
    message = one_message(cluster, consumer)
    cluster.stage.run(consumer.send_message_back(message, 3, None, None, 0))
    cluster.stage.run(consumer.send_message_back(message, -1, "b", "other", 0))
    first, second = cluster.broker.sent_back
    assert (first["group"], first["delayLevel"], first["originTopic"], first["maxReconsumeTimes"]) == (
        "g",
        "3",
        "T",
        "16",
    )
    assert (second["group"], second["delayLevel"]) == ("other", "-1")
    with pytest.raises(InvalidName):
        cluster.stage.run(consumer.send_message_back(message, 3, None, "a b", 0))


def test_where_the_broker_does_not_take_it_back_a_new_message_goes_out(
    cluster: Cluster, consumer: PullConsumerCore
) -> None:
    message = one_message(cluster, consumer)
    cluster.broker.refuses[RequestCode.CONSUMER_SEND_MSG_BACK] = 1
    cluster.topic("%RETRY%g", 1)
    sent: list[Command] = []

    def taken(request: Command) -> bytes:
        sent.append(request)
        return success(request, {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "0"})

    cluster.broker.peer.answers[RequestCode.SEND_MESSAGE_V2] = taken
    cluster.stage.run(consumer.send_message_back(message, 0, None, None, 0))
    assert [request.fields["b"] for request in sent] == ["%RETRY%g"]
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.send_message_back(message, -1, None, None, 0))
    assert len(sent) == 1, "a new message would come again instead of being dead"


# --- what brokers ask


def test_what_operators_are_told(cluster: Cluster) -> None:
    """docs/protocol/client.md 6."""
    consumer = make(cluster)
    consumer.register("T", None, 0)
    cluster.start(consumer)
    info = ConsumerRunningInfo.from_json(consumer.running_info(0))
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    assert info.properties["PROP_NAMESERVER_ADDR"] == f"{NS};"
    assert info.properties["consumerGroup"] == "g"
    assert [one.topic for one in info.subscriptions] == ["T"]
    answers: list[bytes] = []
    consumer.consume_directly(MessageExt("T", b""), "b", lambda body, now: answers.append(body), 0)
    result = ConsumeDirectlyResult.from_json(answers[0])
    assert result.result is DirectConsumeResult.CR_THROW_EXCEPTION
    assert "has no listener" in (result.remark or "")


def test_a_reset_moves_the_offsets_of_own_queues(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.register("T", None, 0)
    cluster.start(consumer)
    body = ResetOffsets({Q0: 2, queue_of("U"): 3}).to_json()
    fields = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
    cluster.stage.request(cluster.broker.address, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body, oneway=True)
    assert consumer.offsets() == {Q0: 2}
