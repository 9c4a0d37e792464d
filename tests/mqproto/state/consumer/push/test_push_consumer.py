"""The life of a push consumer: subscriptions, start, end."""

from __future__ import annotations

import pytest

from mqproto.errors import BrokerError, InvalidName, MQError, NoNameServer, NoRoute, StateError
from mqproto.message import MessageExt
from mqproto.state.consumer.life import Phase
from mqproto.wire.codes import RequestCode
from mqproto.wire.filters.tags import InvalidExpressionError
from mqproto.wire.record import encode_record
from tests.mqproto.state.consumers import LATER, consuming, make
from tests.mqproto.state.scripted_broker import Cluster
from tests.mqproto.state.stage import NS, WALL

# --- subscriptions


def test_tags_travel_with_their_hashes(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.subscribe("T", " TagA || TagB || TagA", now=5)
    (data,) = consumer.heartbeat_data().subscriptions
    assert (data.topic, data.expression, data.type, data.tags) == (
        "T",
        " TagA || TagB || TagA",
        "TAG",
        ["TagA", "TagB"],
    )
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
    """docs/protocol/client.md 1.2, golden capture consume-live: routes, heartbeat, members, offsets, then pulls."""
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
    assert {(one.fields["topic"], one.fields["queueId"]) for one in pulls} == {
        ("T", "0"),
        ("T", "1"),
        ("%RETRY%g", "0"),
    }
    assert cluster.stage.node.consumers.by_group["g"].running_info(0)


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


def test_a_topic_that_is_new_is_asked_for_often_again(cluster: Cluster) -> None:
    consumer = consuming(cluster, "never")
    cluster.advance(310_000)
    for _ in range(8):
        consumer.subscribe("T", now=cluster.stage.now)
        consumer.unsubscribe("T", now=cluster.stage.now)
    consumer.subscribe("new", now=cluster.stage.now)
    cluster.stage.settle()
    cluster.topic("new")
    cluster.put("new", b"there")
    cluster.advance(1_000)
    assert cluster.bodies == [b"there"]


def test_no_name_server_is_a_typed_failure_and_leaves_nothing_behind(cluster: Cluster) -> None:
    del cluster.stage.peers[NS]
    consumer = make(cluster, "T")
    with pytest.raises(NoNameServer):
        cluster.start(consumer)
    assert cluster.stage.node.consumers.by_group == {}
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
    """docs/protocol/client.md CI-9."""
    consumer = make(cluster)
    consumer.subscribe("T", "a > 1", "SQL92", now=0)
    cluster.broker.refuses[RequestCode.CHECK_CLIENT_CONFIG] = 1
    with pytest.raises(BrokerError):
        cluster.start(consumer)
    assert cluster.stage.node.consumers.by_group == {}
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
    assert len(cluster.tasks) == 1, "nothing new is delivered"
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
    assert cluster.stage.node.consumers.by_group == {}
    assert cluster.stage.node._tasks == {}


def test_records_are_those_of_brokers() -> None:
    """The scripted broker sends what real ones send."""
    assert encode_record(MessageExt("T", b"x"))[4:8] == bytes.fromhex("daa320a7")
