"""The pull consumer on a client node, with scripted brokers."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.bodies import ConsumeDirectlyResult, ConsumerRunningInfo, DirectConsumeResult, MessageModel, ResetOffsets
from mqproto.codec import Command, encode_response
from mqproto.codes import RequestCode, ResponseCode
from mqproto.errors import BrokerError, CallExpired, ClientError, InvalidName, InvalidSetting, MQError, NoNameServer, NoRoute, StateError
from mqproto.filters.tags import InvalidExpressionError
from mqproto.message import MessageExt, MessageQueue, PullResult, PullStatus
from mqproto.record import RecordError, encode_record
from mqproto.state.active import ListenerCall
from mqproto.state.flows import Flow
from mqproto.state.node import Deliver
from mqproto.state.pull_consumer import PullConsumerCore
from mqproto.state.pull_settings import PullConsumerSettings
from tests.mqproto.state.consumers import File
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import NS, route, success

Q0, Q1 = queue_of("T"), queue_of("T", 1)


def make(cluster: Cluster, group: str = "g", file: File | None = None, **settings: Any) -> PullConsumerCore:
    return PullConsumerCore(cluster.stage.node, PullConsumerSettings(group=group, **settings), "face", offset_file=file)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("b")
    cluster.topic("T")
    cluster.stage.begin()
    return cluster


@pytest.fixture
def consumer(cluster: Cluster) -> PullConsumerCore:
    consumer = make(cluster)
    cluster.start(consumer)
    return consumer


def pull(
    consumer: PullConsumerCore,
    queue: MessageQueue,
    expression: str,
    offset: int,
    max_nums: int = 32,
    *,
    kind: str = "TAG",
    block: bool = False,
    timeout_ms: int | None = None,
    now: int = 0,
) -> Flow[PullResult]:
    return consumer.pull(queue, expression, offset, max_nums, kind, block, timeout_ms, now)


def pulls(cluster: Cluster) -> list[dict[str, str]]:
    return [request.fields for request in cluster.requests(RequestCode.PULL_MESSAGE)]


def calls(cluster: Cluster) -> list[tuple[Any, ...]]:
    """The listeners' calls so far."""
    found = []
    for action in cluster.stage.delivered:
        assert isinstance(action, Deliver)
        assert isinstance(action.task, ListenerCall)
        assert (action.task.group, action.task.listener) == ("g", "face")
        found.append((action.task.function, *action.task.arguments))
    return found


def on_change(topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None: ...


# --- settings


def test_settings_have_the_defaults_and_limits_of_apache(cluster: Cluster) -> None:
    """client.md 1.9.4."""
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
    assert not cluster.stage.node.consumers


# --- pulls


def test_a_plain_pull_is_that_of_java(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """client.md 5.1, golden capture pull."""
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
    """client.md 1.9.4; CON-19: with a time of one's own the broker answers before that is over."""
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
    assert (found.status, found.next_begin_offset, found.messages) == (PullStatus.OFFSET_ILLEGAL, 1, ()), "the application corrects it"
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
    """client.md 5.1: a broker compiles SQL92 anew only for a version that it has not seen."""
    cluster.stage.run(pull(consumer, Q0, "a > 1", 0, kind="SQL92", now=cluster.stage.now))
    fields = pulls(cluster)[0]
    assert (fields["subscription"], fields["expressionType"]) == ("a > 1", "SQL92")
    assert int(fields["subVersion"]) == consumer.wall(cluster.stage.now)


@pytest.mark.parametrize(
    ("queue", "expression", "offset", "count", "error"),
    [
        (Q0, "*", -1, 1, ClientError),
        (Q0, "*", 0, 0, ClientError),
        (Q0, "||", 0, 1, InvalidExpressionError),
        (queue_of("T", broker="nobody"), "*", 0, 1, NoRoute),
        (queue_of("nothing", broker="nobody"), "*", 0, 1, BrokerError),
    ],
)
def test_what_cannot_be_pulled(
    cluster: Cluster, consumer: PullConsumerCore, queue: MessageQueue, expression: str, offset: int, count: int, error: type[MQError]
) -> None:
    with pytest.raises(error):
        cluster.stage.run(pull(consumer, queue, expression, offset, count))
    assert not pulls(cluster)
    assert not list(consumer.topics()), "nothing is shared out for it"


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
    cluster.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(request.opaque, 0, fields, one)
    slave.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(request.opaque, 0, fields, one)
    for _ in range(3):
        cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert (len(pulls(cluster)), len(pulls(slave))) == (1, 2)
    slave.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(request.opaque, ResponseCode.SYSTEM_BUSY, None)
    with pytest.raises(BrokerError):
        cluster.stage.run(pull(consumer, Q0, "*", 0))
    cluster.stage.run(pull(consumer, Q0, "*", 0))
    assert (len(pulls(cluster)), len(pulls(slave))) == (2, 3)


# --- queues and offsets in them


def test_queues_are_asked_of_a_name_server(cluster: Cluster, consumer: PullConsumerCore) -> None:
    assert cluster.stage.run(consumer.fetch_queues("T", 0)) == (Q0, Q1)
    cluster.topic("T", 1)
    assert cluster.stage.run(consumer.fetch_queues("T", 0)) == (Q0,)
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.fetch_queues("nothing", 0))
    cluster.routes["T"] = route("b=b:10911", perm=2)
    with pytest.raises(NoRoute):
        cluster.stage.run(consumer.fetch_queues("T", 0))


def test_offsets_are_asked_of_the_master(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """client.md 1.10."""
    for time in (1_000, 2_000, 3_000):
        cluster.put("T", b"a", store_time=time)
    cluster.broker.minimum["T", 0] = 0
    assert cluster.stage.run(consumer.max_offset(Q0, 0)) == 3
    assert cluster.stage.run(consumer.min_offset(Q0, 0)) == 0
    assert cluster.stage.run(consumer.search_offset(Q0, 1_500, 0)) == 1
    assert cluster.stage.run(consumer.earliest_msg_store_time(Q0, 0)) == 1_000
    assert cluster.stage.run(consumer.earliest_msg_store_time(Q1, 0)) == -1
    asked = [request for request in cluster.broker.peer.got if request.code in (29, 30, 31, 32)]
    assert [request.fields for request in asked[:3]] == [
        {"topic": "T", "queueId": "0", "bname": "b"},
        {"topic": "T", "queueId": "0", "bname": "b"},
        {"topic": "T", "queueId": "0", "timestamp": "1500", "bname": "b"},
    ]
    cluster.broker.ignores.add(RequestCode.GET_MAX_OFFSET)
    ticket = cluster.stage.start(consumer.max_offset(Q0, cluster.stage.now))
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
    for queue in cluster.stage.run(consumer.fetch_queues("T", 0)):
        found = cluster.stage.run(pull(consumer, queue, "*", 0))
        counts[queue.broker_name] = (len(found.messages), {message.body for message in found.messages})
        consumer.update_consume_offset(queue, found.next_begin_offset, 0)
    assert counts == {"a": (10, {b"a"}), "b": (20, {b"b"})}
    cluster.advance(11_000)
    assert (cluster.brokers["a"].offsets, cluster.brokers["b"].offsets) == ({("T", 0): 10}, {("T", 0): 20})


# --- the group's offsets


def test_an_offset_is_kept_in_memory_and_stored_every_few_seconds(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """Also for queues that are not this member's: Java forgets those (client.md 5.1)."""
    cluster.broker.offsets["T", 0] = 3
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, False, 0)) == 3
    assert cluster.stage.run(consumer.fetch_consume_offset(Q1, False, 0)) is None
    consumer.update_consume_offset(Q0, 9, 0)
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, False, 0)) == 9
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, True, 0)) == 3
    consumer.update_consume_offset(Q0, 5, 0)
    cluster.advance(10_000)
    assert cluster.broker.offsets["T", 0] == 5, "it may go down"


def test_a_foreign_queue_is_stored_once_so_that_its_owner_is_not_undone(cluster: Cluster, consumer: PullConsumerCore) -> None:
    consumer.update_consume_offset(Q0, 5, 0)
    cluster.advance(10_000)
    cluster.broker.offsets["T", 0] = 50  # another member has gone on
    cluster.advance(30_000)
    assert cluster.broker.offsets["T", 0] == 50
    consumer.update_consume_offset(Q0, 60, 0)
    cluster.advance(5_000)
    assert cluster.broker.offsets["T", 0] == 60


def test_an_offset_that_could_not_be_stored_is_stored_later(cluster: Cluster, consumer: PullConsumerCore) -> None:
    consumer.update_consume_offset(Q0, 5, 0)
    cluster.broker.refuses[RequestCode.UPDATE_CONSUMER_OFFSET] = 1
    cluster.advance(10_000)
    del cluster.broker.refuses[RequestCode.UPDATE_CONSUMER_OFFSET]
    cluster.advance(5_000)
    assert cluster.broker.offsets["T", 0] == 5


def test_an_offset_can_be_stored_at_once(cluster: Cluster, consumer: PullConsumerCore) -> None:
    cluster.stage.run(consumer.commit(Q0, 4, False, 0))
    assert cluster.broker.offsets["T", 0] == 4
    assert not cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET)[0].is_oneway
    cluster.stage.run(consumer.commit(Q0, 6, True, 0))
    assert cluster.broker.offsets["T", 0] == 6
    assert cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET)[1].is_oneway
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, False, 0)) == 6
    cluster.advance(20_000)
    assert len(cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == 2, "nothing is left to store"
    cluster.broker.refuses[RequestCode.UPDATE_CONSUMER_OFFSET] = 16
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.commit(Q0, 7, False, 0))


def test_there_is_a_limit_for_offsets_that_wait(cluster: Cluster, consumer: PullConsumerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.state.pull_consumer.QUEUES_MAX", 2)
    for queue_id in (0, 1, 1):
        consumer.update_consume_offset(queue_of("T", queue_id), 5, 0)
    with pytest.raises(ClientError, match="wait to be stored"):
        consumer.update_consume_offset(queue_of("T", 2), 5, 0)
    cluster.advance(10_000)
    consumer.update_consume_offset(queue_of("T", 2), 5, 0)


def test_what_is_no_offset_is_refused(cluster: Cluster, consumer: PullConsumerCore) -> None:
    with pytest.raises(ClientError):
        consumer.update_consume_offset(Q0, -1, 0)
    with pytest.raises(StateError):
        make(cluster).update_consume_offset(Q0, 1, 0)
    cluster.broker.refuses[RequestCode.QUERY_CONSUMER_OFFSET] = 2
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.fetch_consume_offset(Q0, True, 0))


# --- sharing out


def test_registered_topics_are_shared_out_and_told(cluster: Cluster) -> None:
    """client.md 5.1: the listener gets all queues and the own ones."""
    cluster.broker.others = ["10.0.0.1@other"]
    consumer = make(cluster)
    consumer.register("T", on_change, 0)
    cluster.start(consumer)
    assert calls(cluster) == [(on_change, "T", (Q0, Q1), (Q1,))]
    assert consumer.queues_in_balance("T") == (Q1,)
    assert consumer.queues_in_balance("U") == ()
    told = cluster.broker.heartbeats[0].consumers[0]
    assert (told.group, told.consume_type, told.consume_from_where) == ("g", "CONSUME_ACTIVELY", "CONSUME_FROM_LAST_OFFSET")
    assert [(one.topic, one.expression, one.version) for one in told.subscriptions] == [("T", "*", 0)]
    cluster.advance(40_000)
    assert len(calls(cluster)) == 1, "nothing has changed"
    cluster.broker.others = []
    cluster.stage.request(cluster.broker.address, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert calls(cluster)[1:] == [(on_change, "T", (Q0, Q1), (Q0, Q1))]


def test_each_topic_has_a_listener_of_its_own(cluster: Cluster) -> None:
    """Java has one for all, the last one that was given."""
    cluster.topic("U", 1)
    consumer = make(cluster)
    consumer.register("T", on_change, 0)
    consumer.register("U", print, 0)
    cluster.start(consumer)
    assert [call[:2] for call in calls(cluster)] == [(on_change, "T"), (print, "U")]


def test_pulled_topics_are_shared_out_too_but_brokers_are_not_told(cluster: Cluster, consumer: PullConsumerCore) -> None:
    assert consumer.queues_in_balance("T") == ()
    cluster.stage.run(pull(consumer, Q0, "*", 0))
    cluster.advance(20_000)
    assert consumer.queues_in_balance("T") == (Q0, Q1)
    assert cluster.broker.heartbeats[-1].consumers[0].subscriptions == []


def test_a_queue_that_goes_takes_its_offset_along(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.register("T", None, 0)
    cluster.start(consumer)
    consumer.update_consume_offset(Q0, 8, 0)
    consumer.update_consume_offset(Q1, 9, 0)
    cluster.broker.others = ["10.0.0.1@other"]
    cluster.stage.request(cluster.broker.address, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert cluster.broker.offsets == {("T", 0): 8}
    assert consumer.offsets() == {Q1: 9}
    cluster.broker.offsets["T", 0] = 80
    cluster.advance(30_000)
    assert cluster.broker.offsets == {("T", 0): 80, ("T", 1): 9}


def test_a_topic_that_is_not_there_yet_is_asked_for_again(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.register("later", on_change, 0)
    cluster.start(consumer)
    cluster.topic("later", 1)
    cluster.advance(2_000)
    assert [call[1] for call in calls(cluster)] == ["later"]


def test_members_that_cannot_be_had_are_asked_for_again_soon(cluster: Cluster) -> None:
    cluster.broker.refuses[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = 1
    consumer = make(cluster)
    consumer.register("T", on_change, 0)
    cluster.start(consumer)
    assert consumer.queues_in_balance("T") == ()
    del cluster.broker.refuses[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
    cluster.stage.advance(1_000)
    assert consumer.queues_in_balance("T") == (Q0, Q1)


def test_names_that_no_topic_has_are_refused(cluster: Cluster, consumer: PullConsumerCore) -> None:
    with pytest.raises(InvalidName):
        consumer.register("a b", None, 0)


def test_offsets_of_a_broadcasting_consumer_are_in_its_file(cluster: Cluster) -> None:
    file = File()
    consumer = make(cluster, file=file, message_model=MessageModel.BROADCASTING)
    consumer.register("T", None, 0)
    cluster.start(consumer)
    assert consumer.queues_in_balance("T") == (Q0, Q1)
    cluster.stage.run(consumer.fetch_consume_offset(Q0, True, 0))
    assert not cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET)


# --- messages that come again


def one_message(cluster: Cluster, consumer: PullConsumerCore) -> MessageExt:
    cluster.put("T", b"a")
    return cluster.stage.run(pull(consumer, Q0, "*", 0)).messages[0]


def test_a_message_is_sent_back(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """client.md 4.12."""
    message = one_message(cluster, consumer)
    cluster.stage.run(consumer.send_message_back(message, 3, None, None, 0))
    cluster.stage.run(consumer.send_message_back(message, -1, "b", "other", 0))
    first, second = cluster.broker.sent_back
    assert (first["group"], first["delayLevel"], first["originTopic"], first["maxReconsumeTimes"]) == ("g", "3", "T", "16")
    assert (second["group"], second["delayLevel"]) == ("other", "-1")
    with pytest.raises(InvalidName):
        cluster.stage.run(consumer.send_message_back(message, 3, None, "a b", 0))


def test_where_the_broker_does_not_take_it_back_a_new_message_goes_out(cluster: Cluster, consumer: PullConsumerCore) -> None:
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
    """client.md 6."""
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
