"""The lite pull consumer on a client node: settings, life, which queues it has, listeners."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import BrokerError, ClientError, InvalidName, InvalidSetting, NoNameServer, StateError
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.wire.bodies import ConsumerRunningInfo, MessageModel
from mqproto.wire.codes import RequestCode
from mqproto.wire.filters.tags import InvalidExpressionError
from tests.mqproto.state.consumers import FIRST, File
from tests.mqproto.state.lite_pulls import Q0, Q1, assigned, begin_poll, make, poll, poll_all, polling
from tests.mqproto.state.pull_consumers import calls
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import NS, WALL


def on_change(topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None: ...


def on_topic_change(topic: str, queues: tuple[MessageQueue, ...]) -> None: ...


# --- settings


def test_settings_have_the_defaults_of_apache() -> None:
    """docs/protocol/client.md 1.9.5."""
    settings = LitePullSettings(group="g")
    settings.check()
    assert (settings.broker_suspend_max_time_millis, settings.consumer_timeout_millis_when_suspend) == (20_000, 30_000)
    assert (settings.auto_commit, settings.auto_commit_interval_millis, settings.pull_batch_size) == (True, 5_000, 10)
    assert (
        settings.pull_threshold_for_all,
        settings.pull_threshold_for_queue,
        settings.pull_threshold_size_for_queue,
    ) == (
        10_000,
        1_000,
        100,
    )
    assert (settings.consume_max_span, settings.poll_timeout_millis, settings.topic_metadata_check_interval_millis) == (
        2_000,
        5_000,
        30_000,
    )
    assert (settings.consume_from_where, settings.consume_timestamp) == ("CONSUME_FROM_LAST_OFFSET", "")
    assert settings.start_time(1_700_000_000_000, 0) == 1_700_000_000_000 - 1_800_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group", "DEFAULT_CONSUMER"),
        ("message_model", None),
        ("consume_from_where", "there"),
        ("consume_timestamp", "yesterday"),
        ("auto_commit_interval_millis", 999),
        ("pull_batch_size", 0),
        ("pull_batch_size", 1_025),
        ("pull_threshold_for_all", 0),
        ("pull_threshold_for_queue", 65_536),
        ("pull_threshold_size_for_queue", 1_025),
        ("consume_max_span", 0),
        ("poll_timeout_millis", -1),
        ("topic_metadata_check_interval_millis", 0),
        ("pull_time_delay_millis_when_exception", 0),
        ("broker_suspend_max_time_millis", 30_001),
    ],
)
def test_settings_out_of_range_are_refused_by_name(cluster: Cluster, key: str, value: Any) -> None:
    """Java ignores a commit interval below a second in silence."""
    wrong: dict[str, Any] = {key: value}
    with pytest.raises(InvalidSetting) as refused:
        make(cluster, **wrong)
    assert refused.value.key == key


# --- life


def test_the_start_follows_that_of_java(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2, golden capture litepull: route, heartbeat, members, offsets, pulls."""
    consumer = polling(cluster, "T")
    codes = [code for code in cluster.broker.peer.codes() if code != RequestCode.HEART_BEAT]
    assert codes == [38, 14, 14, 11, 11]
    assert cluster.broker.peer.codes()[0] == RequestCode.HEART_BEAT
    told = cluster.broker.heartbeats[0].consumers[0]
    assert (told.group, told.consume_type, told.message_model) == ("g", "CONSUME_ACTIVELY", "CLUSTERING")
    assert told.consume_from_where == "CONSUME_FROM_LAST_OFFSET", "docs/protocol/client.md 1.7, wherever it begins"
    assert [(one.topic, one.expression, one.version) for one in told.subscriptions] == [("T", "*", WALL)]
    pull = cluster.requests(RequestCode.PULL_MESSAGE)[0]
    assert pull.fields == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "10",
        "sysFlag": "22",
        "commitOffset": "0",
        "suspendTimeoutMillis": "20000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        "bname": "b",
    }
    assert consumer.assignment() == (Q0, Q1)


def test_it_lives_once(cluster: Cluster) -> None:
    consumer = polling(cluster, "T")
    with pytest.raises(StateError, match="running already"):
        cluster.start(consumer)
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    with pytest.raises(StateError, match="stopped"):
        poll(cluster, consumer)
    with pytest.raises(StateError):
        consumer.subscribe("T", "*", "TAG", None, 0)
    with pytest.raises(StateError):
        consumer.assign([Q0], 0)
    with pytest.raises(StateError):
        consumer.commit(None, False, 0)
    assert consumer.assignment() == ()


def test_nothing_of_it_goes_on_after_the_end(cluster: Cluster) -> None:
    """The node may live on for others."""
    consumer = polling(cluster, "T")
    consumer.watch("T", on_topic_change)
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    before = len(cluster.broker.peer.got)
    cluster.advance(60_000)
    assert len(cluster.broker.peer.got) == before
    assert len(cluster.stage.node._tasks) == 0


def test_name_servers_that_cannot_be_reached_are_a_failure(cluster: Cluster) -> None:
    del cluster.stage.peers[NS]
    with pytest.raises(NoNameServer):
        polling(cluster, "T")
    assert not cluster.stage.node.consumers.by_group


def test_a_poll_that_waits_ends_with_the_consumer(cluster: Cluster) -> None:
    consumer = polling(cluster, "T")
    ticket = begin_poll(cluster, consumer, 60_000)
    cluster.stage.node.close(cluster.stage.now)
    cluster.stage.settle().advance(1)
    assert ticket.result() == []
    assert cluster.stage.node.ended


def test_the_end_stores_what_was_confirmed(cluster: Cluster) -> None:
    """Not what the last poll brought: nobody has said that it was worked on."""
    consumer = polling(cluster, "T")
    cluster.put("T", b"a", b"b", b"c")
    assert poll(cluster, consumer, 2) == [b"a", b"b"]
    assert poll(cluster, consumer, 2) == [b"c"]
    cluster.stage.node.close(cluster.stage.now)
    cluster.stage.settle().advance(1)
    assert cluster.broker.offsets["T", 0] == 2
    assert len(cluster.requests(RequestCode.UNREGISTER_CLIENT)) == 1


# --- subscribing


def test_subscribing_and_assigning_exclude_each_other(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2."""
    consumer = make(cluster, "T")
    with pytest.raises(StateError, match="not both"):
        consumer.assign([Q0], 0)
    consumer = make(cluster)
    consumer.assign([Q0], 0)
    with pytest.raises(StateError, match="not both"):
        consumer.subscribe("T", "*", "TAG", None, 0)


def test_a_refused_subscription_decides_nothing(cluster: Cluster) -> None:
    consumer = make(cluster)
    with pytest.raises(InvalidName):
        consumer.subscribe("a b", "*", "TAG", None, 0)
    with pytest.raises(InvalidExpressionError):
        consumer.subscribe("T", "||", "TAG", None, 0)
    with pytest.raises(InvalidName):
        consumer.assign([queue_of("a b")], 0)
    consumer.assign([Q0], 0)


def test_a_running_consumer_subscribes_more_and_less(cluster: Cluster) -> None:
    consumer = polling(cluster, "T")
    cluster.topic("U", 1)
    consumer.subscribe("U", "TagA", "TAG", on_change, cluster.stage.now)
    cluster.stage.settle()
    assert calls(cluster) == [(on_change, "U", (queue_of("U"),), (queue_of("U"),))]
    assert [one.topic for one in cluster.broker.heartbeats[-1].consumers[0].subscriptions] == ["T", "U"]
    cluster.put("U", b"no", tag="BB")
    cluster.put("U", b"yes", tag="TagA")
    assert poll_all(cluster, consumer) == [b"yes"]
    cluster.put("T", b"cached")
    consumer.unsubscribe("T", cluster.stage.now)
    consumer.unsubscribe("never", cluster.stage.now)
    cluster.stage.settle()
    assert consumer.assignment() == (queue_of("U"),)
    assert poll_all(cluster, consumer) == []


def test_queues_that_go_take_along_what_was_confirmed(cluster: Cluster) -> None:
    """What is cached or was polled since comes again at the other member; here it changes nothing any more."""
    consumer = polling(cluster, "T", pull_batch_size=2)
    consumer.subscribe("T", "*", "TAG", on_change, cluster.stage.now)
    cluster.put("T", b"a", b"b", b"c", b"d", b"e", b"f")
    assert poll(cluster, consumer) == [b"a", b"b"]
    assert poll(cluster, consumer) == [b"c", b"d"]
    cluster.broker.others = ["10.0.0.1@other"]
    cluster.stage.request(
        cluster.broker.address, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True
    )
    assert consumer.assignment() == (Q1,)
    assert calls(cluster) == [(on_change, "T", (Q0, Q1), (Q1,))]
    assert cluster.broker.offsets["T", 0] == 2
    assert poll_all(cluster, consumer) == []
    consumer.commit(None, True, cluster.stage.now)
    cluster.advance(10_000)
    assert cluster.broker.offsets["T", 0] == 2
    with pytest.raises(StateError, match="is not assigned"):
        consumer.commit([Q0], True, 0)


def test_filters_that_a_broker_refuses_fail_the_start(cluster: Cluster) -> None:
    cluster.stage.begin()
    consumer = make(cluster)
    consumer.subscribe("T", "a > 1", "SQL92", None, 0)
    cluster.broker.refuses[RequestCode.CHECK_CLIENT_CONFIG] = 1
    with pytest.raises(BrokerError):
        cluster.start(consumer)


def test_other_filters_travel_with_a_version(cluster: Cluster) -> None:
    cluster.stage.begin()
    consumer = make(cluster)
    consumer.subscribe("T", "a > 1", "SQL92", None, 0)
    cluster.start(consumer)
    fields = cluster.requests(RequestCode.PULL_MESSAGE)[0].fields
    assert (fields["subscription"], fields["expressionType"], fields["subVersion"]) == ("a > 1", "SQL92", str(WALL))


# --- assigning


def test_assigned_queues_are_pulled_whoever_else_is_there(cluster: Cluster) -> None:
    cluster.broker.others = ["10.0.0.1@other"]
    consumer = assigned(cluster, Q0)
    cluster.put("T", b"a")
    cluster.put("T", b"not ours", queue_id=1)
    assert poll_all(cluster, consumer) == [b"a"]
    assert not cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    assert cluster.broker.heartbeats[-1].consumers[0].subscriptions == []
    cluster.advance(60_000)
    assert consumer.assignment() == (Q0,)


def test_another_assignment_replaces_the_first(cluster: Cluster) -> None:
    consumer = assigned(cluster, Q0, Q1, Q1)
    before = dict(consumer._assignment.queues)
    cluster.put("T", b"a", queue_id=1)
    consumer.assign([queue_of("U"), Q1], cluster.stage.now)
    cluster.topic("U", 1)
    cluster.stage.settle()
    cluster.advance(2_000)
    assert consumer.assignment() == (Q1, queue_of("U"))
    assert consumer._assignment.queues[Q1] is before[Q1], "what stays goes on untouched"
    cluster.put("U", b"u")
    assert sorted(poll_all(cluster, consumer)) == [b"a", b"u"]
    consumer.unsubscribe("U", cluster.stage.now)
    assert consumer.assignment() == (Q1,)


def test_assigned_queues_can_be_filtered_by_tags(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2, setSubExpressionForAssign: only before the start."""
    cluster.stage.begin()
    consumer = make(cluster, consume_from_where=FIRST)
    consumer.filter_assigned("T", "TagA || TagB")
    with pytest.raises(InvalidExpressionError):
        consumer.filter_assigned("T", "||")
    consumer.assign([Q0], 0)
    cluster.start(consumer)
    cluster.put("T", b"no", tag="TagC")
    cluster.put("T", b"yes", tag="TagB")
    assert poll_all(cluster, consumer) == [b"yes"]
    assert cluster.requests(RequestCode.PULL_MESSAGE)[0].fields["subscription"] == "TagA || TagB"
    with pytest.raises(StateError, match="before the start"):
        consumer.filter_assigned("T", "*")


def test_equal_queue_numbers_of_two_brokers_are_two_queues() -> None:
    """CON-20: seeking one leaves the other where it is."""
    cluster = Cluster("a", "b")
    cluster.topic("T", 1)
    cluster.put("T", *[b"a%d" % number for number in range(10)], broker="a")
    cluster.put("T", *[b"b%d" % number for number in range(20)], broker="b")
    consumer = polling(cluster, "T")
    assert len(poll_all(cluster, consumer)) == 30
    cluster.stage.run(consumer.seek(queue_of("T", 0, "b"), 5, cluster.stage.now))
    assert poll_all(cluster, consumer) == [b"b%d" % number for number in range(5, 20)]
    cluster.advance(11_000)
    assert (cluster.brokers["a"].offsets["T", 0], cluster.brokers["b"].offsets["T", 0]) == (10, 20)


def test_all_queues_are_a_broadcasting_consumers(cluster: Cluster) -> None:
    """docs/protocol/client.md 4.14: its offsets are in a file, and brokers are not asked for members."""
    cluster.broker.others = ["10.0.0.1@other"]
    file = File()
    consumer = polling(cluster, "T", file=file, message_model=MessageModel.BROADCASTING)
    cluster.put("T", b"a")
    assert poll(cluster, consumer) == [b"a"]
    assert consumer.assignment() == (Q0, Q1)
    assert not cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP) + cluster.requests(
        RequestCode.QUERY_CONSUMER_OFFSET
    )
    with pytest.raises(InvalidSetting, match="an offset file is needed"):
        make(cluster, message_model=MessageModel.BROADCASTING)


# --- listeners of topics


def test_changes_of_a_watched_topic_are_told(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2: compared after 10 s, then every 30 s."""
    consumer = polling(cluster)
    consumer.watch("T", on_topic_change)
    consumer.watch("later", on_topic_change)
    cluster.stage.advance(50_000)
    assert calls(cluster) == [], "nothing has changed, and two times nothing is no change"
    cluster.topic("T", 3)
    cluster.topic("later", 1)
    cluster.stage.advance(30_000)
    assert calls(cluster) == [(on_topic_change, "T", (Q0, Q1, queue_of("T", 2)))], "what is first seen is no change"
    cluster.topic("later", 2)
    cluster.stage.advance(30_000)
    assert [call[1] for call in calls(cluster)] == ["T", "later"]
    with pytest.raises(InvalidName):
        consumer.watch("a b", on_topic_change)


# --- for operators


def test_what_operators_are_told(cluster: Cluster) -> None:
    consumer = polling(cluster, "T")
    cluster.put("T", b"a")
    info = ConsumerRunningInfo.from_json(consumer.running_info(cluster.stage.now))
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    assert info.properties["pullBatchSize"] == "10"
    assert [one.topic for one in info.subscriptions] == ["T"]
    assert info.queues[Q0].cached_count == 1
    assert consumer.offsets() == {Q0: 0, Q1: 0}


def test_polls_that_make_no_sense(cluster: Cluster) -> None:
    consumer = polling(cluster, "T")
    for timeout_ms, limit in ((-1, None), (0, 0)):
        with pytest.raises(ClientError):
            begin_poll(cluster, consumer, timeout_ms, limit).result()
