"""The push consumer on a client node, with scripted brokers."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto import properties as names
from mqproto.bodies import ConsumeFromWhere, ConsumerRunningInfo, MessageModel, ResetOffsets
from mqproto.codec import encode_response
from mqproto.codes import RequestCode
from mqproto.errors import BrokerError, InvalidName, InvalidSetting, MQError, NoNameServer, NoRoute, StateError
from mqproto.filters.tags import InvalidExpressionError
from mqproto.message import ConsumeStatus, MessageExt, MessageQueue
from mqproto.record import encode_record
from mqproto.state.consumer import ConsumerCore, ConsumerSettings, Phase
from mqproto.state.pull import Window
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import NS, WALL, Peer, success

LATER = ConsumeStatus.RECONSUME_LATER
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
BY_TIME = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


class File:
    """A local offset file in memory."""

    def __init__(self, main: bytes | None = None) -> None:
        self.main = main
        self.backup: bytes | None = None

    def save(self, text: str, *, set_aside: bool) -> File:
        self.main = text.encode()
        return self

    def run(self) -> None: ...


def make(cluster: Cluster, *topics: str, group: str = "g", file: File | None = None, **settings: Any) -> ConsumerCore:
    consumer = ConsumerCore(cluster.stage.node, ConsumerSettings(group=group, **settings), "listener", offset_file=file)
    for topic in topics:
        consumer.subscribe(topic, now=cluster.stage.now)
    return consumer


def consuming(cluster: Cluster, *topics: str, **settings: Any) -> ConsumerCore:
    """A started consumer that begins at the first message."""
    cluster.stage.begin()
    consumer = make(cluster, *topics, **{"consume_from_where": FIRST, **settings})
    cluster.start(consumer)
    return consumer


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("b")
    cluster.topic("T")
    return cluster


# --- settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("consume_thread_min", 0),
        ("consume_thread_min", 1001),
        ("consume_concurrently_max_span", 0),
        ("pull_threshold_for_queue", 65_536),
        ("pull_threshold_for_topic", 0),
        ("pull_threshold_for_topic", 6_553_501),
        ("pull_threshold_size_for_queue", 1_025),
        ("pull_threshold_size_for_topic", -2),
        ("pull_interval", -1),
        ("consume_message_batch_max_size", 0),
        ("pull_batch_size", 1_025),
        ("max_reconsume_times", -2),
        ("consume_timeout", 0),
        ("consume_timestamp", "yesterday"),
        ("consume_timestamp", "20261301000000"),
        ("message_model", "CLUSTERING!"),
        ("consume_from_where", None),
        ("group", "DEFAULT_CONSUMER"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(cluster: Cluster, key: str, value: object) -> None:
    settings = ConsumerSettings(group="g")
    setattr(settings, key, value)
    with pytest.raises(InvalidSetting) as refusal:
        ConsumerCore(cluster.stage.node, settings, None)
    assert refusal.value.key == key


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("consume_thread_min", 1, 1_000),
        ("consume_concurrently_max_span", 1, 65_535),
        ("pull_threshold_for_queue", 1, 65_535),
        ("pull_threshold_for_topic", 1, 6_553_500),
        ("pull_threshold_size_for_queue", 1, 1_024),
        ("pull_threshold_size_for_topic", 1, 102_400),
        ("pull_interval", 0, 65_535),
        ("consume_message_batch_max_size", 1, 1_024),
        ("pull_batch_size", 1, 1_024),
        ("max_reconsume_times", -1, 2**31 - 1),
        ("suspend_current_queue_time_millis", 10, 30_000),
        ("consume_timeout", 1, 1_440),
        ("await_termination_millis_when_shutdown", 0, 86_400_000),
        ("pull_time_delay_millis_when_exception", 1, 86_400_000),
        ("persist_consumer_offset_interval", 1, 86_400_000),
        ("rebalance_interval", 1, 86_400_000),
    ],
)
def test_settings_have_the_ranges_of_apache(key: str, low: int, high: int) -> None:
    """client.md 1.9.3."""
    settings = ConsumerSettings(group="g")
    for value in (low, high):
        setattr(settings, key, value)
        settings.check()
    for value in (low - 1, high + 1):
        setattr(settings, key, value)
        if value != -1:
            with pytest.raises(InvalidSetting):
                settings.check()


def test_settings_have_the_defaults_of_apache() -> None:
    """client.md 1.9.3, as of 4.9."""
    settings = ConsumerSettings(group="g")
    settings.check()
    assert (settings.message_model, settings.consume_from_where, settings.orderly) == ("CLUSTERING", "CONSUME_FROM_LAST_OFFSET", False)
    assert (settings.consume_thread_min, settings.consume_concurrently_max_span, settings.pull_threshold_for_queue) == (20, 2_000, 1_000)
    assert (settings.pull_threshold_size_for_queue, settings.pull_threshold_for_topic, settings.pull_threshold_size_for_topic) == (
        100,
        -1,
        -1,
    )
    assert (settings.pull_interval, settings.pull_batch_size, settings.consume_message_batch_max_size) == (0, 32, 1)
    assert (settings.post_subscription_when_pull, settings.unit_mode, settings.max_reconsume_times) == (False, False, -1)
    assert (settings.suspend_current_queue_time_millis, settings.consume_timeout) == (1_000, 15)
    assert (settings.await_termination_millis_when_shutdown, settings.pull_time_delay_millis_when_exception) == (0, 1_000)
    assert (settings.persist_consumer_offset_interval, settings.rebalance_interval) == (5_000, 20_000)
    assert (settings.reconsume_limit, ConsumerSettings(group="g", orderly=True).reconsume_limit) == (16, 2**31 - 1)
    window = Window()
    assert (window.count, window.size_mib, window.span) == (1_000, 100, 2_000)


@pytest.mark.parametrize("group", ["", "a b", "g" * 121])
def test_groups_that_no_retry_topic_can_be_made_of_are_refused(cluster: Cluster, group: str) -> None:
    """LIM-01."""
    with pytest.raises(InvalidName):
        ConsumerCore(cluster.stage.node, ConsumerSettings(group=group), None)
    ConsumerCore(cluster.stage.node, ConsumerSettings(group="g" * 120), None)


def test_the_start_time_is_local_text() -> None:
    settings = ConsumerSettings(group="g", consume_timestamp="20231114221320")
    assert settings.start_time(0, 0) == 1_700_000_000_000
    assert settings.start_time(0, 3_600_000) == 1_700_000_000_000 - 3_600_000
    assert ConsumerSettings(group="g").start_time(1_700_000_000_000, 5) == 1_700_000_000_000 - 1_800_000


def test_broadcasting_needs_a_file(cluster: Cluster) -> None:
    with pytest.raises(InvalidSetting, match="an offset file is needed"):
        make(cluster, message_model=MessageModel.BROADCASTING)


# --- subscriptions


def test_tags_travel_with_their_hashes(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.subscribe("T", " TagA || TagB || TagA", now=5)
    (data,) = consumer.heartbeat_data().subscriptions
    assert (data.topic, data.expression, data.type, data.tags) == ("T", " TagA || TagB || TagA", "TAG", ["TagA", "TagB"])
    assert data.codes == sorted(data.codes)
    assert len(data.codes) == 2
    assert data.version == WALL + 5


def test_other_filters_travel_as_they_are(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.subscribe("T", "a > 1", "SQL92", now=0)
    (data,) = consumer.heartbeat_data().subscriptions
    assert (data.expression, data.type, data.tags, data.codes) == ("a > 1", "SQL92", [], [])


@pytest.mark.parametrize(("expression", "kind"), [("||", "TAG"), ("  ", "TAG"), ("", "SQL92"), (" ", "SQL92")])
def test_expressions_without_a_meaning_are_refused(cluster: Cluster, expression: str, kind: str) -> None:
    """FLT-03, and nothing of the subscription is kept."""
    consumer = make(cluster)
    with pytest.raises(InvalidExpressionError):
        consumer.subscribe("T", expression, kind, now=0)
    assert consumer.topics() == []
    with pytest.raises(InvalidName):
        consumer.subscribe("T.x", now=0)


def test_versions_rise_although_the_clock_is_set_back(cluster: Cluster) -> None:
    """CON-12: and the change reaches the broker at once."""
    consumer = consuming(cluster)
    consumer.subscribe("T", "A", now=cluster.stage.now)
    cluster.stage.settle()
    before = cluster.broker.heartbeats[-1].consumers[0].subscriptions[-1].version
    cluster.stage.node.wall_ahead -= 3_600_000
    consumer.subscribe("T", "A||B", now=cluster.stage.now)
    cluster.stage.settle()
    data = cluster.broker.heartbeats[-1].consumers[0].subscriptions[-1]
    assert (data.topic, data.tags) == ("T", ["A", "B"])
    assert data.version > before
    cluster.put("T", b"wanted", tag="B")
    cluster.advance(1_000)
    assert cluster.bodies == [b"wanted"]


# --- start


def test_the_start_follows_the_order_of_java(cluster: Cluster) -> None:
    """client.md 1.2, golden capture consume-live: routes, heartbeat, members, offsets, then pulls."""
    cluster.start(make(cluster, "T"))
    assert [request.fields["topic"] for request in cluster.stage.peers[NS].got][:2] == ["T", "%RETRY%g"]
    codes = [code for code in cluster.broker.peer.codes() if code != RequestCode.HEART_BEAT]
    assert codes.index(38) < codes.index(14) < codes.index(30) < codes.index(11)
    assert cluster.broker.peer.codes()[0] == RequestCode.HEART_BEAT
    first = cluster.broker.heartbeats[0].consumers[0]
    assert (first.group, first.consume_type, first.message_model) == ("g", "CONSUME_PASSIVELY", "CLUSTERING")
    assert first.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert [one.topic for one in first.subscriptions] == ["T", "%RETRY%g"]
    pulls = cluster.requests(RequestCode.PULL_MESSAGE)
    assert {(one.fields["topic"], one.fields["queueId"]) for one in pulls} == {("T", "0"), ("T", "1"), ("%RETRY%g", "0")}
    assert cluster.stage.node.consumers["g"].running_info(0)


def test_a_topic_that_does_not_exist_yet_is_no_failure(cluster: Cluster) -> None:
    consumer = consuming(cluster, "later")
    assert consumer.phase is Phase.RUNNING
    cluster.topic("later")
    cluster.put("later", b"there")
    cluster.advance(1_000)
    assert cluster.bodies == [b"there"]


def test_a_topic_that_does_not_come_is_asked_for_less_and_less_often(cluster: Cluster) -> None:
    consuming(cluster, "T", "never")

    def asked() -> int:
        return len([request for request in cluster.stage.peers[NS].got if request.fields["topic"] == "never"])

    before = asked()
    cluster.advance(60_000)
    assert asked() - before <= 4 + 60 // 20 + 60 // 30 + 1
    before = asked()
    cluster.advance(600_000, 5_000)
    assert asked() - before <= 600 // 20 + 600 // 30 + 1


def test_no_name_server_is_a_typed_failure_and_leaves_nothing_behind(cluster: Cluster) -> None:
    del cluster.stage.peers[NS]
    consumer = make(cluster, "T")
    with pytest.raises(NoNameServer):
        cluster.start(consumer)
    assert cluster.stage.node.consumers == {}
    assert consumer.phase is Phase.STOPPED
    with pytest.raises(StateError):
        cluster.start(consumer)


def test_a_link_that_breaks_once_does_not_spoil_the_start(cluster: Cluster) -> None:
    known = cluster.stage.peers[NS].answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    cluster.stage.peers[NS].answers.clear()
    consumer = make(cluster, "T")
    start = cluster.stage.start(consumer.start(0))
    cluster.stage.peers[NS].answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = known
    cluster.stage.cut(NS)
    assert start.settled
    start.result()
    assert consumer.phase is Phase.RUNNING


def test_one_consumer_of_a_group_in_a_node(cluster: Cluster) -> None:
    cluster.start(make(cluster, "T"))
    with pytest.raises(StateError, match="has a consumer of group 'g' already"):
        cluster.start(make(cluster, "T"))


def test_a_second_start_is_refused(cluster: Cluster) -> None:
    consumer = make(cluster, "T")
    cluster.start(consumer)
    with pytest.raises(StateError, match="running already"):
        cluster.start(consumer)


def test_filters_other_than_tags_are_checked_at_a_broker(cluster: Cluster) -> None:
    """client.md CI-9."""
    consumer = make(cluster)
    consumer.subscribe("T", "a > 1", "SQL92", now=0)
    cluster.broker.refuses[RequestCode.CHECK_CLIENT_CONFIG] = 1
    with pytest.raises(BrokerError):
        cluster.start(consumer)
    assert cluster.stage.node.consumers == {}
    cluster.broker.refuses.clear()
    again = make(cluster)
    again.subscribe("T", "a > 1", "SQL92", now=0)
    cluster.start(again)
    (one, two) = cluster.requests(RequestCode.CHECK_CLIENT_CONFIG)
    assert one.body == two.body
    assert b'"expressionType":"SQL92"' in bytes(one.body)
    elsewhere = make(cluster, group="h")
    elsewhere.subscribe("nowhere", "a > 1", "SQL92", now=0)
    with pytest.raises(NoRoute):
        cluster.start(elsewhere)


def test_a_consumer_that_is_closed_while_it_starts_does_not_run(cluster: Cluster) -> None:
    cluster.stage.dark.add(NS)
    consumer = make(cluster, "T")
    start = cluster.stage.start(consumer.start(0))
    assert not start.settled
    cluster.stage.run(consumer.shutdown(0))
    cluster.stage.advance(5_000)
    with pytest.raises(MQError):
        start.result()
    assert consumer.phase is Phase.STOPPED


def test_a_consumer_that_is_closed_during_its_first_heartbeat_does_not_run(cluster: Cluster) -> None:
    cluster.broker.ignores.add(RequestCode.HEART_BEAT)
    consumer = make(cluster, "T")
    start = cluster.stage.start(consumer.start(0))
    cluster.stage.start(consumer.shutdown(0))
    cluster.stage.advance(5_000)
    with pytest.raises(StateError, match="was closed while it started"):
        start.result()
    assert (consumer.phase, consumer._loops) == (Phase.STOPPED, [])


# --- where to begin


@pytest.mark.parametrize(
    ("where", "kept", "begins"),
    [(LAST, None, 3), (FIRST, None, 0), (BY_TIME, None, 2), (LAST, 1, 1), (FIRST, 2, 2), (BY_TIME, 0, 0), (FIRST, 3, 3)],
)
def test_where_a_group_begins(cluster: Cluster, where: ConsumeFromWhere, kept: int | None, begins: int) -> None:
    """client.md 4.3."""
    for minutes in (60, 31, 29):
        cluster.put("T", b"x", store_time=WALL - minutes * 60_000)
    if kept is not None:
        cluster.broker.offsets[("T", 0)] = kept
    cluster.start(make(cluster, "T", consume_from_where=where))
    first = next(one for one in cluster.requests(RequestCode.PULL_MESSAGE) if one.fields["topic"] == "T" and one.fields["queueId"] == "0")
    assert int(first.fields["queueOffset"]) == begins
    assert len(cluster.tasks) == 3 - begins


@pytest.mark.parametrize(("where", "begins"), [(LAST, 0), (FIRST, 0), (BY_TIME, 2)])
def test_where_a_group_begins_in_its_retry_topic(cluster: Cluster, where: ConsumeFromWhere, begins: int) -> None:
    cluster.topic("%RETRY%g", 1)
    cluster.put("%RETRY%g", b"x", b"y", store_time=WALL - 60_000)
    cluster.start(make(cluster, "T", consume_from_where=where))
    first = next(one for one in cluster.requests(RequestCode.PULL_MESSAGE) if one.fields["topic"] == "%RETRY%g")
    assert int(first.fields["queueOffset"]) == begins


@pytest.mark.parametrize("code", [1, 2, 16, 26])
def test_an_offset_that_cannot_be_read_is_asked_for_again_and_never_guessed(cluster: Cluster, code: int) -> None:
    """client.md 4.3: 4.x takes every refusal for "none" and jumps to the end."""
    cluster.put("T", b"unseen")
    cluster.broker.refuses[RequestCode.QUERY_CONSUMER_OFFSET] = code
    cluster.start(make(cluster, "T"))
    cluster.advance(3_000)
    assert cluster.requests(RequestCode.PULL_MESSAGE) == []
    del cluster.broker.refuses[RequestCode.QUERY_CONSUMER_OFFSET]
    cluster.broker.offsets[("T", 0)] = 0
    cluster.advance(2_000)
    assert cluster.bodies == [b"unseen"]
    assert any("where to begin" in line for line in cluster.stage.node.notices)


def test_where_a_group_began_is_kept_although_nothing_came(cluster: Cluster) -> None:
    """REB-06: 0 is committed; and a group that began at the end does not begin anew at a later end."""
    cluster.put("T", b"old", queue_id=1)
    cluster.stage.begin()
    cluster.start(make(cluster, "T"))
    cluster.advance(10_000)
    assert cluster.broker.offsets == {("T", 0): 0, ("T", 1): 1, ("%RETRY%g", 0): 0}


# --- pulling


def test_messages_are_delivered_and_their_offset_is_stored(cluster: Cluster) -> None:
    consuming(cluster, "T")
    cluster.put("T", b"one", b"two")
    assert cluster.bodies == [b"one", b"two"]
    message = cluster.tasks[0].messages[0]
    assert (message.topic, message.broker_name, message.queue_id, message.queue_offset) == ("T", "b", 0, 0)
    assert message.properties == {names.MIN_OFFSET: "0", names.MAX_OFFSET: "2", names.CONSUME_START_TIME: str(WALL)}
    assert cluster.tasks[0].context.queue == queue_of("T")
    cluster.answer_all()
    cluster.advance(11_000)
    assert cluster.broker.offsets[("T", 0)] == 2
    cluster.put("T", b"three")
    assert cluster.requests(RequestCode.PULL_MESSAGE)[-1].fields["queueOffset"] == "3"


def test_a_pull_carries_the_offset_that_was_reached(cluster: Cluster) -> None:
    consuming(cluster, "T")
    cluster.put("T", b"one")
    cluster.answer_all()
    cluster.put("T", b"two")
    pull = cluster.requests(RequestCode.PULL_MESSAGE)[-1]
    assert (pull.fields["sysFlag"], pull.fields["commitOffset"], pull.fields["queueOffset"]) == ("3", "1", "2")


def test_messages_of_other_tags_with_the_same_hash_are_not_seen_but_passed(cluster: Cluster) -> None:
    """FLT-01: nothing is left for the listener, and offset 40 is committed."""
    consumer = consuming(cluster)
    consumer.subscribe("T", "Aa", now=0)
    cluster.stage.settle()
    cluster.put("T", *[b"x"] * 40, tag="BB")
    cluster.advance(11_000)
    assert cluster.tasks == []
    assert cluster.broker.offsets[("T", 0)] == 40


def test_one_pull_at_a_time_for_each_queue(cluster: Cluster) -> None:
    """CON-16, CON-19: held pulls follow one another, none expires, and a message at the last moment is delivered."""
    consuming(cluster, "T")
    cluster.advance(60_000)
    for queue_id in "01":
        held = [one for one in cluster.broker.held if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", queue_id)]
        assert len(held) == 1
    cluster.stage.advance(14_900)
    cluster.put("T", b"late")
    assert cluster.bodies == [b"late"]


def test_a_full_window_stops_pulling_until_there_is_room(cluster: Cluster) -> None:
    """client.md 4.9: more than the threshold stops; nothing polls meanwhile; one finished message goes on."""
    consuming(cluster, "T", pull_threshold_for_queue=10, pull_batch_size=4, consume_thread_min=2)
    cluster.put("T", *[b"%d" % n for n in range(40)])
    pulled = len(cluster.requests(RequestCode.PULL_MESSAGE))
    queue = cluster.stage.node.consumers["g"]
    assert isinstance(queue, ConsumerCore)
    assert len(queue._assignment.queues[queue_of("T")]) == 12
    cluster.stage.advance(5_000)
    assert len(cluster.requests(RequestCode.PULL_MESSAGE)) == pulled
    cluster.answer(cluster.tasks[0])
    assert len(cluster.requests(RequestCode.PULL_MESSAGE)) == pulled, "11 are still more than 10"
    cluster.answer(cluster.tasks[1])
    assert len(cluster.requests(RequestCode.PULL_MESSAGE)) == pulled + 1
    cluster.answer_all()
    assert cluster.bodies == [b"%d" % n for n in range(40)]


def test_a_blocked_window_costs_neither_depth_nor_timers(cluster: Cluster) -> None:
    """CON-06: cache limit 10, a listener that does not come back."""
    consuming(cluster, "T", pull_threshold_for_queue=10, consume_thread_min=1)
    cluster.put("T", *[b"x"] * 100)
    cluster.advance(60_000)
    timers = len(cluster.stage.node.timers)
    cluster.advance(600_000, 10_000)
    assert len(cluster.stage.node.timers) == timers
    assert len(cluster.tasks) == 1


def test_a_limit_for_the_topic_is_shared_out_over_the_queues(cluster: Cluster) -> None:
    cluster.topic("T", 4)
    consumer = consuming(cluster, "T", pull_threshold_for_topic=50, pull_threshold_size_for_topic=2)
    cluster.advance(21_000)
    assert len(consumer._assignment.queues) == 5
    assert (consumer._window.count, consumer._window.size_mib) == (10, 1)


@pytest.mark.parametrize(
    ("limits", "window"), [({"pull_threshold_for_topic": 9}, (3, 100)), ({"pull_threshold_size_for_topic": 9}, (1_000, 3))]
)
def test_each_limit_for_the_topic_stands_for_itself(cluster: Cluster, limits: dict[str, int], window: tuple[int, int]) -> None:
    consumer = consuming(cluster, "T", **limits)
    cluster.advance(2_000)
    assert (consumer._window.count, consumer._window.size_mib) == window


def test_other_queues_are_announced_to_the_brokers(cluster: Cluster) -> None:
    """client.md 4.8: a broker that has come may not know us."""
    consuming(cluster, "T")
    cluster.advance(1_000)
    beats = len(cluster.broker.heartbeats)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert len(cluster.broker.heartbeats) == beats + 1
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert len(cluster.broker.heartbeats) == beats + 1


def test_zero_length_bodies_are_delivered(cluster: Cluster) -> None:
    """MSG-04."""
    consumer = consuming(cluster, "T")
    cluster.put("T", b"", b"a", b"b", b"c")
    assert cluster.bodies == [b"", b"a", b"b", b"c"]
    cluster.answer_all()
    assert consumer._assignment.queues[queue_of("T")].size == 0


def test_a_busy_broker_is_asked_again_and_told_of_once(cluster: Cluster) -> None:
    consuming(cluster, "T")
    cluster.broker.refuses[RequestCode.PULL_MESSAGE] = 2
    cluster.advance(30_000)
    lines = [line for line in cluster.stage.node.notices if "pulling from" in line]
    assert len(lines) == 3, "one for each queue"
    del cluster.broker.refuses[RequestCode.PULL_MESSAGE]
    cluster.put("T", b"x")
    cluster.advance(2_000)
    assert cluster.bodies == [b"x"]


def test_a_broker_that_does_not_know_us_hears_of_us_at_once(cluster: Cluster) -> None:
    """client.md 8; golden capture sql-not-latest: 4.9.7 got 25 for 25 s."""
    consuming(cluster, "T")
    cluster.advance(1_000)
    beats = len(cluster.broker.heartbeats)
    cluster.broker.refuses[RequestCode.PULL_MESSAGE] = 25
    cluster.release(cluster.broker, lambda held: True)
    cluster.advance(100, 100)
    assert len(cluster.broker.heartbeats) > beats
    del cluster.broker.refuses[RequestCode.PULL_MESSAGE]
    cluster.put("T", b"x")
    cluster.advance(1_500)
    assert cluster.bodies == [b"x"]


def test_a_lost_link_is_made_again(cluster: Cluster) -> None:
    consuming(cluster, "T")
    cluster.advance(1_000)
    cluster.broker.held.clear()
    cluster.stage.cut("b:10911")
    cluster.put("T", b"x")
    cluster.advance(2_000)
    assert cluster.bodies == [b"x"]


def test_a_broker_without_an_address_is_looked_up_and_waited_for(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.advance(1_000)
    cluster.stage.node.routes.addresses.clear()
    cluster.routes["T"].brokers[0].addresses = {}
    asked = len(cluster.stage.peers[NS].got)
    cluster.put("T", b"0")
    cluster.answer_all()
    assert len(cluster.stage.peers[NS].got) > asked
    assert any("no route to topic" in line for line in cluster.stage.node.notices)
    cluster.topic("T")
    cluster.put("T", b"1")
    cluster.advance(2_000)
    assert cluster.bodies == [b"0", b"1"]
    assert consumer._assignment.queues[queue_of("T")].trouble == ""


def test_a_subscription_before_the_start_sends_nothing(cluster: Cluster) -> None:
    consumer = make(cluster, "T", "U")
    consumer.unsubscribe("U", now=0)
    assert cluster.stage.links == {}
    assert consumer.topics() == ["T"]


def test_pulls_follow_the_broker_that_the_last_answer_suggested(cluster: Cluster) -> None:
    cluster.topic("%RETRY%g", 1)
    for topic in ("T", "%RETRY%g"):
        cluster.routes[topic].brokers[0].addresses[1] = "slave:10911"
    slave = Peer()
    slave.answers[RequestCode.HEART_BEAT] = success
    cluster.stage.peers["slave:10911"] = slave
    consuming(cluster, "T")
    held = next(one for one in cluster.broker.held if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", "0"))
    fields = {"suggestWhichBrokerId": "1", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
    cluster.stage.advance(1_000)
    cluster.stage.receive("b:10911", encode_response(held.request.opaque, 19, fields))
    (pull,) = slave.of(RequestCode.PULL_MESSAGE)
    assert (pull.fields["sysFlag"], pull.fields["queueId"]) == ("2", "0"), "and a slave takes no offsets"


# --- results


def test_a_failed_message_is_sent_back_by_the_route_and_comes_again_as_itself(cluster: Cluster) -> None:
    """CON-10, CON-21: the address in the message is out of reach; the second delivery shows the topic `T`."""
    consuming(cluster, "T")
    cluster.put("T", b"x", store_host_bytes=bytes([172, 17, 0, 9, 0, 0, 0, 9]), properties={"UNIQ_KEY": "A" * 32})
    cluster.answer(cluster.tasks[0], LATER)
    (back,) = cluster.broker.sent_back
    assert (back["originTopic"], back["originMsgId"], back["group"], back["delayLevel"]) == ("T", "A" * 32, "g", "0")
    cluster.put("%RETRY%g", b"x", reconsume_times=1, properties={"UNIQ_KEY": "A" * 32, "RETRY_TOPIC": "T"})
    cluster.advance(25_000)
    again = cluster.tasks[1].messages[0]
    assert (again.topic, again.reconsume_times, again.msg_id) == ("T", 1, "A" * 32)
    cluster.answer(cluster.tasks[1], LATER)
    assert cluster.broker.sent_back[1]["originTopic"] == "T"
    cluster.advance(11_000)
    assert (cluster.broker.offsets[("T", 0)], cluster.broker.offsets[("%RETRY%g", 0)]) == (1, 1)


def test_a_message_that_the_broker_refuses_to_take_back_is_not_lost(cluster: Cluster) -> None:
    """CON-09: 36 is refused for 30 s and there is no retry topic to send to; then the process dies and another goes on."""
    consuming(cluster, "T", consume_thread_min=1)
    cluster.advance(1_000)
    cluster.broker.refuses[RequestCode.CONSUMER_SEND_MSG_BACK] = 1
    cluster.put("T", b"x")
    for attempt in range(6):
        assert len(cluster.tasks) == attempt + 1
        assert cluster.tasks[-1].messages[0].reconsume_times == attempt
        cluster.answer(cluster.tasks[-1], LATER)
        cluster.advance(10_000)
        assert cluster.broker.offsets[("T", 0)] == 0
    other = Cluster("b")
    other.topic("T")
    other.put("T", b"x")
    other.broker.offsets[("T", 0)] = cluster.broker.offsets[("T", 0)]
    consuming(other, "T")
    assert other.bodies == [b"x"]


def test_the_retry_topic_takes_what_its_broker_does_not(cluster: Cluster) -> None:
    """client.md 4.12: as a new message by a producer of the client's own."""
    consuming(cluster, "T")
    sent: list[dict[str, str]] = []

    def take(request: Any) -> bytes:
        sent.append(request.fields)
        return success(request, {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "0"})

    cluster.broker.peer.answers[RequestCode.SEND_MESSAGE_V2] = take
    cluster.broker.refuses[RequestCode.CONSUMER_SEND_MSG_BACK] = 1
    cluster.put("T", b"x", reconsume_times=2)
    cluster.answer(cluster.tasks[0], LATER)
    cluster.advance(1_000)
    (fields,) = sent
    assert (fields["a"], fields["b"], fields["j"], fields["l"]) == ("CLIENT_INNER_PRODUCER", "%RETRY%g", "3", "16")
    assert "RETRY_TOPIC\x01T" in fields["i"]
    assert "DELAY\x015" in fields["i"]
    assert "CLIENT_INNER_PRODUCER" in cluster.broker.heartbeats[-1].producers


def test_results_of_other_groups_and_of_nobody_are_dropped(cluster: Cluster) -> None:
    consuming(cluster, "T")
    cluster.put("T", b"x")
    task = cluster.tasks[0]
    cluster.answer(task)
    cluster.answer(task, LATER)
    assert cluster.broker.sent_back == []


# --- sharing out


def test_members_share_the_queues_and_hand_them_over(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"x", queue_id=1)
    cluster.answer_all()
    assert queue_of("T", 1) in consumer._assignment.queues
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert queue_of("T", 1) not in consumer._assignment.queues
    assert cluster.broker.offsets[("T", 1)] == 1, "stored before the other asks for it"
    held = next(one for one in cluster.broker.held if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", "1"))
    pulls = len(cluster.requests(RequestCode.PULL_MESSAGE))
    cluster.put("T", b"theirs", queue_id=1)
    assert held not in cluster.broker.held
    assert cluster.bodies == [b"x"], "a late answer for a queue of the other is ignored"
    assert len(cluster.requests(RequestCode.PULL_MESSAGE)) == pulls
    cluster.broker.others.clear()
    cluster.advance(20_000)
    assert cluster.bodies == [b"x", b"theirs"]


def test_a_late_answer_for_a_queue_that_was_dropped_and_given_again_is_ignored(cluster: Cluster) -> None:
    """CON-16: each message once, one loop."""
    consuming(cluster, "T")
    held = next(one for one in cluster.broker.held if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", "1"))
    cluster.broker.held.remove(held)
    for others in (["zz@other"], []):
        cluster.broker.others[:] = others
        cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    cluster.put("T", b"once", queue_id=1)
    late = cluster.pull_answer(cluster.broker, held.request, held=True)
    assert late is not None
    cluster.stage.receive("b:10911", late)
    cluster.advance(2_000)
    assert cluster.bodies == [b"once"]
    assert len([one for one in cluster.broker.held if one.request.fields["queueId"] == "1"]) == 1


def test_a_member_that_the_broker_does_not_list_gets_nothing_and_says_that_it_is_there(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.broker.others.append("aa@other")
    beats = len(cluster.broker.heartbeats)
    cluster.broker.heartbeats.append(cluster.broker.heartbeats[0].__class__("x", [], []))
    consumer.rebalance_soon(cluster.stage.now)
    cluster.stage.settle()
    assert cluster.broker.heartbeats[beats + 1].consumers[0].group == "g"
    cluster.broker.others.clear()
    cluster.advance(21_000)
    assert len(consumer._assignment.queues) == 3


@pytest.mark.parametrize("trouble", ["refuses", "ignores"])
def test_without_the_list_of_members_everything_stays_as_it_is(cluster: Cluster, trouble: str) -> None:
    consumer = consuming(cluster, "T")
    if trouble == "refuses":
        cluster.broker.refuses[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = 1
    else:
        cluster.broker.ignores.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    before = dict(consumer._assignment.queues)
    cluster.advance(45_000)
    assert consumer._assignment.queues == before


def test_a_strategy_of_the_application_that_fails_changes_nothing(cluster: Cluster) -> None:
    class Broken:
        name = "BROKEN"

        def allocate(self, *facts: object) -> list[MessageQueue]:
            raise ZeroDivisionError

    cluster.stage.begin()
    consumer = ConsumerCore(cluster.stage.node, ConsumerSettings(group="g"), None, strategy=Broken())
    consumer.subscribe("T", now=0)
    cluster.start(consumer)
    assert consumer._assignment.queues == {}
    assert any("ZeroDivisionError" in line for line in cluster.stage.node.notices)


def test_more_and_fewer_queues_are_noticed(cluster: Cluster) -> None:
    """REB-05: by the next route refresh, at once."""
    consumer = consuming(cluster, "T")
    cluster.topic("T", 4)
    cluster.advance(31_000)
    assert len([queue for queue in consumer._assignment.queues if queue.topic == "T"]) == 4
    cluster.topic("T", 1)
    cluster.advance(31_000)
    assert [queue for queue in consumer._assignment.queues if queue.topic == "T"] == [queue_of("T", 0)]


def test_a_topic_that_is_no_longer_subscribed_brings_nothing(cluster: Cluster) -> None:
    cluster.topic("U")
    consumer = consuming(cluster, "T", "U")
    cluster.put("U", b"first")
    cluster.answer_all()
    consumer.unsubscribe("U", now=cluster.stage.now)
    consumer.unsubscribe("never", now=cluster.stage.now)
    cluster.stage.settle()
    assert [one.topic for one in cluster.broker.heartbeats[-1].consumers[0].subscriptions] == ["T", "%RETRY%g"]
    cluster.put("U", b"second")
    cluster.advance(30_000)
    assert cluster.bodies == [b"first"]
    assert cluster.broker.offsets[("U", 0)] == 1
    consumer.subscribe("U", now=cluster.stage.now)
    cluster.advance(1_000)
    assert cluster.bodies == [b"first", b"second"], "and goes on where it was"


def test_brokers_with_equal_queue_numbers_are_told_apart() -> None:
    """CON-20."""
    cluster = Cluster("a", "b")
    cluster.topic("T", 1)
    consumer = consuming(cluster, "T")
    cluster.put("T", b"a0", broker="a")
    cluster.put("T", b"b0", b"b1", broker="b")
    cluster.answer_all()
    assert consumer.offsets() == {queue_of("T", 0, "a"): 1, queue_of("T", 0, "b"): 2, **{queue_of("%RETRY%g", 0, one): 0 for one in "ab"}}
    cluster.advance(11_000)
    assert cluster.brokers["a"].offsets[("T", 0)] == 1
    assert cluster.brokers["b"].offsets[("T", 0)] == 2


# --- offsets that are moved


def test_an_offset_below_the_minimum_is_corrected(cluster: Cluster) -> None:
    """BRO-02's figures in small; nothing is running, so there is nothing to wait for."""
    cluster.put("T", *[b"%d" % n for n in range(9)])
    cluster.broker.minimum[("T", 0)] = 7
    cluster.broker.offsets[("T", 0)] = 3
    consuming(cluster, "T")
    cluster.advance(2_000)
    assert cluster.bodies == [b"7", b"8"]
    cluster.answer_all()
    cluster.advance(11_000)
    assert cluster.broker.offsets[("T", 0)] == 9


def test_late_completions_do_not_move_a_corrected_offset(cluster: Cluster) -> None:
    """CON-03: 50 callbacks run while the queue is cut; they finish during the pause."""
    consuming(cluster, "T", consume_thread_min=64)
    cluster.put("T", *[b"old"] * 50)
    assert len(cluster.tasks) == 50
    cluster.broker.queues[("T", 0)] = cluster.broker.queues[("T", 0)][:10]
    cluster.release(cluster.broker, lambda held: held.request.fields["queueId"] == "0" and held.request.fields["topic"] == "T")
    for task in cluster.tasks[:50]:
        cluster.advance(150, 150)
        cluster.answer(task, LATER if task.messages[0].queue_offset % 2 else ConsumeStatus.SUCCESS)
    assert cluster.broker.sent_back == []
    cluster.put("T", b"new")
    assert cluster.bodies[50:] == []
    cluster.advance(4_000)
    assert cluster.bodies[50:] == [b"new"]
    cluster.advance(11_000)
    assert cluster.broker.offsets[("T", 0)] == 10
    cluster.answer_all()
    cluster.advance(5_000)
    assert cluster.broker.offsets[("T", 0)] == 11


def test_a_queue_that_is_cut_again_and_again_is_not_asked_in_a_tight_loop(cluster: Cluster) -> None:
    cluster.stage.begin()
    cluster.broker.refuses[RequestCode.PULL_MESSAGE] = 1
    consumer = make(cluster, "T")
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "5", "maxOffset": "5"}
    cluster.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(request.opaque, 21, fields)
    cluster.start(consumer)
    cluster.advance(60_000)
    assert len(cluster.requests(RequestCode.PULL_MESSAGE)) <= 3 * 61


def test_an_operator_moves_a_group_back(cluster: Cluster) -> None:
    """client.md 6, request 220; running deliveries get 10 s."""
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0", b"1", b"2")
    cluster.answer_all()
    cluster.put("T", b"3")
    running = cluster.tasks[-1]
    body = ResetOffsets({queue_of("T", 0): 1, queue_of("T", 1): 0, queue_of("other"): 5, queue_of("T", 7): 5}).to_json()
    cluster.stage.request("b:10911", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, body, oneway=True)
    cluster.advance(9_000)
    cluster.answer(running)
    assert len(cluster.tasks) == 4
    cluster.advance(2_000)
    assert cluster.bodies[4:] == [b"1", b"2", b"3"]
    assert consumer.offsets()[queue_of("T", 0)] == 1
    cluster.answer_all()
    cluster.advance(6_000)
    assert cluster.broker.offsets[("T", 0)] == 4


def test_an_idle_queue_is_moved_at_once(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0", b"1")
    cluster.answer_all()
    consumer.reset_offsets("T", {queue_of("T"): 1, queue_of("T", 1): 0}, cluster.stage.now)
    cluster.advance(50, 50)
    assert cluster.bodies == [b"0", b"1", b"1"]
    assert not [line for line in cluster.stage.node.notices if "_correct" in line]


def test_a_reset_touches_nothing_but_its_topic(cluster: Cluster) -> None:
    cluster.topic("U")
    consumer = consuming(cluster, "T", "U")
    before = dict(consumer._assignment.queues)
    consumer.reset_offsets("T", {queue_of("U"): 0, queue_of("T"): -1}, cluster.stage.now)
    cluster.advance(1_000)
    assert consumer._assignment.queues == before


def test_a_second_reset_wins_over_the_first(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", *[b"%d" % n for n in range(5)])
    for offset in (0, 4):
        consumer.reset_offsets("T", {queue_of("T"): offset}, cluster.stage.now)
    cluster.stage.settle()
    cluster.advance(11_000)
    assert cluster.bodies[5:] == [b"4"]


def test_a_reset_of_a_queue_that_is_taken_away_meanwhile_is_still_stored(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0", b"1", queue_id=1)
    consumer.reset_offsets("T", {queue_of("T", 1): 1}, cluster.stage.now)
    cluster.stage.settle()
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert cluster.broker.offsets[("T", 1)] == 1
    cluster.advance(30_000)
    assert queue_of("T", 1) not in consumer._assignment.queues


# --- suspend, resume, operators


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


# --- broadcasting


def test_broadcasting_takes_every_queue_and_keeps_offsets_in_its_file(cluster: Cluster) -> None:
    cluster.broker.others.append("zz@other")
    cluster.stage.begin()
    file = File()
    consumer = make(cluster, "T", file=file, message_model=MessageModel.BROADCASTING, consume_from_where=FIRST)
    cluster.start(consumer)
    assert set(consumer._assignment.queues) == {queue_of("T", 0), queue_of("T", 1)}
    assert cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []
    cluster.put("T", b"0", b"1")
    cluster.answer(cluster.tasks[0])
    cluster.answer(cluster.tasks[1], LATER)
    assert cluster.broker.sent_back == []
    pull = cluster.requests(RequestCode.PULL_MESSAGE)[-1]
    assert (pull.fields["sysFlag"], pull.fields["commitOffset"]) == ("2", "0")
    flow = consumer.shutdown(cluster.stage.now)
    cluster.stage.start(flow)
    assert file.main is not None
    assert b'"topic":"T"\n\t\t}:2' in file.main
    assert cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []


# --- order


def test_an_ordered_consumer_locks_its_queues_before_it_reads_their_offsets(cluster: Cluster) -> None:
    """ORD-01: no waiting, the lock is known when the queue is."""
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", b"1")
    assert cluster.bodies == [b"0"]
    codes = cluster.broker.peer.codes()
    assert codes.index(RequestCode.LOCK_BATCH_MQ) < codes.index(RequestCode.QUERY_CONSUMER_OFFSET)
    cluster.answer_all()
    assert cluster.bodies == [b"0", b"1"]
    info = ConsumerRunningInfo.from_json(consumer.running_info(5_000))
    assert (info.queues[queue_of("T")].locked, info.queues[queue_of("T")].last_lock_time) == (True, WALL)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"


def test_a_queue_that_another_member_has_locked_is_taken_once_it_is_free(cluster: Cluster) -> None:
    """ORD-01: under 3 s after it is free."""
    cluster.broker.locked_elsewhere.add(queue_of("T"))
    consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0")
    cluster.advance(30_000)
    assert cluster.bodies == []
    cluster.broker.offsets[("T", 0)] = 1
    cluster.put("T", b"1")
    cluster.broker.locked_elsewhere.clear()
    cluster.advance(2_000)
    assert cluster.bodies == [b"1"], "and goes on where the other one stopped"


def test_locks_are_renewed_and_what_was_lost_begins_anew(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", b"1", b"2")
    for _ in range(2):
        cluster.advance(20_000)
    renewals = [request for request in cluster.requests(RequestCode.LOCK_BATCH_MQ) if bytes(request.body).count(b"queueId") == 3]
    assert len(renewals) == 2
    cluster.broker.locked_elsewhere.add(queue_of("T"))
    cluster.advance(20_000)
    cluster.answer(cluster.tasks[0])
    cluster.advance(5_000)
    assert cluster.bodies == [b"0"], "somebody else has it"
    cluster.broker.offsets[("T", 0)] = 2
    cluster.broker.locked_elsewhere.clear()
    cluster.advance(3_000)
    assert cluster.bodies == [b"0", b"2"]
    assert consumer.offsets()[queue_of("T")] == 2


def test_locks_that_cannot_be_renewed_run_out_and_are_taken_up_again(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", b"1", b"2")
    cluster.broker.refuses[RequestCode.LOCK_BATCH_MQ] = 1
    cluster.advance(29_000)
    cluster.answer(cluster.tasks[0])
    assert cluster.bodies == [b"0", b"1"]
    cluster.advance(3_000)
    cluster.answer(cluster.tasks[1])
    assert cluster.bodies == [b"0", b"1"], "after 30 s nobody may be sure"
    cluster.broker.refuses.clear()
    cluster.advance(3_000)
    assert cluster.bodies == [b"0", b"1", b"2"]


def test_a_lock_that_runs_out_while_it_is_renewed_is_taken_up_again(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True)
    cluster.broker.ignores.add(RequestCode.LOCK_BATCH_MQ)
    cluster.advance(30_000)
    (*_, renewal) = cluster.requests(RequestCode.LOCK_BATCH_MQ)
    cluster.advance(500, step=500)
    cluster.put("T", b"0")
    assert cluster.bodies == [], "half a second ago the lock ran out"
    cluster.broker.ignores.clear()
    answer = cluster.broker.peer.answers[RequestCode.LOCK_BATCH_MQ](renewal)
    assert answer is not None
    cluster.stage.receive(cluster.broker.address, answer)
    assert cluster.bodies == [b"0"]


def test_a_queue_is_unlocked_when_its_listener_has_ended(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", queue_id=1)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert queue_of("T", 1) not in consumer._assignment.queues
    assert cluster.requests(RequestCode.UNLOCK_BATCH_MQ) == []
    cluster.answer(cluster.tasks[0])
    (unlock,) = cluster.requests(RequestCode.UNLOCK_BATCH_MQ)
    assert unlock.is_oneway
    assert b'"queueId":1' in bytes(unlock.body)


def test_an_idle_queue_is_unlocked_at_once(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert len(cluster.requests(RequestCode.UNLOCK_BATCH_MQ)) == 1


def test_the_end_unlocks_everything_after_the_offsets_are_stored(cluster: Cluster) -> None:
    """ORD-05."""
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0")
    cluster.answer_all()
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    codes = cluster.broker.peer.codes()
    assert codes.count(RequestCode.UNLOCK_BATCH_MQ) == 1
    assert (
        codes.index(RequestCode.UPDATE_CONSUMER_OFFSET)
        < codes.index(RequestCode.UNLOCK_BATCH_MQ)
        < codes.index(RequestCode.UNREGISTER_CLIENT)
    )


def test_an_ordered_failure_pauses_its_queue(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True, suspend_current_queue_time_millis=2_000)
    cluster.put("T", b"0", b"1")
    cluster.put("T", b"other", queue_id=1)
    cluster.answer(cluster.tasks[0], LATER)
    cluster.stage.advance(1_999)
    assert cluster.bodies == [b"0", b"other"]
    cluster.stage.advance(1)
    assert cluster.bodies == [b"0", b"other", b"0"]
    assert cluster.broker.sent_back == []


def test_ordered_broadcasting_needs_no_locks(cluster: Cluster) -> None:
    cluster.stage.begin()
    consumer = make(cluster, "T", file=File(), message_model=MessageModel.BROADCASTING, orderly=True, consume_from_where=FIRST)
    cluster.start(consumer)
    cluster.put("T", b"0", b"1")
    cluster.answer_all()
    assert cluster.bodies == [b"0", b"1"]
    assert cluster.requests(RequestCode.LOCK_BATCH_MQ) == []


# --- the end


def test_the_end_stores_offsets_and_unregisters(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0", b"1")
    cluster.answer(cluster.tasks[0])
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    assert cluster.broker.offsets[("T", 0)] == 1
    (gone,) = cluster.requests(RequestCode.UNREGISTER_CLIENT)
    assert (gone.fields["consumerGroup"], gone.fields["clientID"]) == ("g", cluster.stage.node.client_id)
    codes = cluster.broker.peer.codes()
    assert codes.index(RequestCode.UNREGISTER_CLIENT) > codes.index(RequestCode.UPDATE_CONSUMER_OFFSET)
    pulls = len(cluster.requests(RequestCode.PULL_MESSAGE))
    cluster.put("T", b"2")
    cluster.answer(cluster.tasks[1])
    cluster.advance(60_000)
    assert (len(cluster.tasks), len(cluster.requests(RequestCode.PULL_MESSAGE))) == (2, pulls)
    assert cluster.broker.offsets[("T", 0)] == 1, "what was not finished in time comes again"
    assert consumer.phase is Phase.STOPPED
    with pytest.raises(StateError):
        consumer.subscribe("T", now=0)


def test_the_end_waits_for_running_deliveries_as_long_as_it_is_told_to(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", consume_thread_min=1, await_termination_millis_when_shutdown=5_000)
    cluster.put("T", b"0", b"1")
    end = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    cluster.advance(2_000)
    early = end.settled
    cluster.answer(cluster.tasks[0])
    assert (early, end.settled) == (False, True)
    assert len(cluster.tasks) == 1, "nothing new is handed out"
    assert cluster.broker.offsets[("T", 0)] == 1


def test_the_end_does_not_wait_longer_than_that(cluster: Cluster) -> None:
    """CON-14."""
    consumer = consuming(cluster, "T", await_termination_millis_when_shutdown=5_000)
    cluster.put("T", b"0")
    end = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    cluster.advance(5_000)
    assert end.settled
    end.result()


def test_ends_can_be_asked_for_many_times_and_at_any_time(cluster: Cluster) -> None:
    """CON-14: twice, before the start, after the end."""
    consumer = consuming(cluster, "T", await_termination_millis_when_shutdown=5_000)
    cluster.put("T", b"0")
    first = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    second = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    cluster.answer(cluster.tasks[0])
    assert first.settled
    assert second.settled
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    assert len(cluster.requests(RequestCode.UNREGISTER_CLIENT)) == 1
    fresh = make(cluster, "T", group="h")
    cluster.stage.run(fresh.shutdown(cluster.stage.now))
    with pytest.raises(StateError):
        cluster.start(fresh)


def test_a_broker_that_is_gone_does_not_hold_up_the_end(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0")
    cluster.answer_all()
    cluster.stage.cut("b:10911")
    cluster.stage.dark.add("b:10911")
    end = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    cluster.stage.advance(9_000)
    assert end.settled
    end.result()


def test_a_node_ends_with_its_consumers(cluster: Cluster) -> None:
    consuming(cluster, "T")
    cluster.put("T", b"0")
    cluster.answer_all()
    cluster.stage.node.close(cluster.stage.now)
    cluster.stage.settle()
    cluster.stage.advance(10)
    assert cluster.stage.node.ended
    assert cluster.broker.offsets[("T", 0)] == 1
    assert len(cluster.requests(RequestCode.UNREGISTER_CLIENT)) >= 1


def test_nothing_is_left_running_after_the_end(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0")
    cluster.answer(cluster.tasks[0], LATER)
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    cluster.advance(60_000)
    assert cluster.stage.node.consumers == {}
    assert cluster.stage.node._tasks == {}


def test_records_are_those_of_brokers() -> None:
    """The scripted broker sends what real ones send."""
    assert encode_record(MessageExt("T", b"x"))[4:8] == bytes.fromhex("daa320a7")
