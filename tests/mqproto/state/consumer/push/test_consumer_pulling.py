"""A push consumer and its brokers: pulls, windows, deliveries and what fails."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command, encode_response
from mqproto.errors import MQError, StateError
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.node.contract import Action
from mqproto.wire import properties as names
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import LATER, consuming, make
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import NS, WALL, Peer, success

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


@pytest.mark.parametrize(("bodies", "first"), [((b"one",), "delivery"), ((b"one", b"two"), "pull")])
def test_a_single_message_is_delivered_before_the_next_pull_is_made(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, bodies: tuple[bytes, ...], first: str
) -> None:
    """It gets to its listener sooner; with more of them the broker should work beside the listener."""
    consuming(cluster, "T")
    order: list[str] = []
    act, pull = cluster.stage._act, cluster.broker.peer.answers[RequestCode.PULL_MESSAGE]

    def acting(action: Action) -> None:
        order.append("delivery")
        act(action)

    def pulling(request: Command) -> bytes | None:
        order.append("pull")
        return pull(request)

    monkeypatch.setattr(cluster.stage, "_act", acting)
    cluster.broker.peer.answers[RequestCode.PULL_MESSAGE] = pulling
    cluster.put("T", *bodies)
    assert sorted(order) == ["delivery"] * len(bodies) + ["pull"]
    assert order[0] == first


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
        held = [
            one
            for one in cluster.broker.held
            if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", queue_id)
        ]
        assert len(held) == 1
    cluster.stage.advance(14_900)
    cluster.put("T", b"late")
    assert cluster.bodies == [b"late"]


def test_a_full_window_stops_pulling_until_there_is_room(cluster: Cluster) -> None:
    """docs/protocol/client.md 4.9: more than the threshold stops; nothing polls meanwhile; one finished message goes
    on.
    """
    consuming(cluster, "T", pull_threshold_for_queue=10, pull_batch_size=4, consume_thread_min=2)
    cluster.put("T", *[b"%d" % n for n in range(40)])
    pulled = len(cluster.requests(RequestCode.PULL_MESSAGE))
    queue = cluster.stage.node.consumers.by_group["g"]
    assert isinstance(queue, PushConsumerCore)
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
    """CON-06: cache limit 10, a listener that does not come back; nothing is told again and again either."""
    consuming(cluster, "T", pull_threshold_for_queue=10, consume_thread_min=1)
    cluster.put("T", *[b"x"] * 100)
    cluster.advance(60_000)
    timers, notices = len(cluster.stage.node.timers), len(cluster.stage.node.notices)
    cluster.advance(600_000, 10_000)
    assert len(cluster.stage.node.timers) == timers
    assert len(cluster.stage.node.notices) <= notices + 1
    assert len(cluster.tasks) == 1


def test_a_limit_for_the_topic_is_shared_out_over_the_queues(cluster: Cluster) -> None:
    cluster.topic("T", 4)
    consumer = consuming(cluster, "T", pull_threshold_for_topic=50, pull_threshold_size_for_topic=2)
    cluster.advance(21_000)
    assert len(consumer._assignment.queues) == 5
    assert (consumer._prefetch.window.count, consumer._prefetch.window.size_mib) == (10, 1)


@pytest.mark.parametrize(
    ("limits", "window"),
    [({"pull_threshold_for_topic": 9}, (3, 100)), ({"pull_threshold_size_for_topic": 9}, (1_000, 3))],
)
def test_each_limit_for_the_topic_stands_for_itself(
    cluster: Cluster, limits: dict[str, int], window: tuple[int, int]
) -> None:
    consumer = consuming(cluster, "T", **limits)
    cluster.advance(2_000)
    assert (consumer._prefetch.window.count, consumer._prefetch.window.size_mib) == window


def test_other_queues_are_announced_to_the_brokers(cluster: Cluster) -> None:
    """docs/protocol/client.md 4.8: a broker that has come may not know us."""
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
    """docs/protocol/client.md 8; golden capture sql-not-latest: 4.9.7 got 25 for 25 s."""
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
    held = next(
        one for one in cluster.broker.held if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", "0")
    )
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
    """CON-09: 36 is refused for 30 s and there is no retry topic to send to; then the process dies and another goes
    on.
    """
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
    """docs/protocol/client.md 4.12: as a new message by a producer of the client's own."""
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


def test_the_application_sends_single_messages_back(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", consume_message_batch_max_size=2, max_reconsume_times=5)
    cluster.put("T", b"0", b"1")
    (task,) = cluster.tasks
    first, second = task.messages
    cluster.stage.run(consumer.send_message_back(second, 4, None, cluster.stage.now))
    (fields,) = cluster.broker.sent_back
    assert (fields["offset"], fields["delayLevel"], fields["group"], fields["maxReconsumeTimes"]) == (
        "1000",
        "4",
        "g",
        "5",
    )
    cluster.broker.refuses[RequestCode.CONSUMER_SEND_MSG_BACK] = 1
    with pytest.raises(MQError):
        cluster.stage.run(consumer.send_message_back(first, -1, None, cluster.stage.now))
    cluster.broker.peer.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: success(
        request, {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "0"}
    )
    cluster.stage.run(consumer.send_message_back(first, 0, None, cluster.stage.now))
    (again,) = cluster.requests(RequestCode.SEND_MESSAGE_V2)
    assert again.fields["b"] == "%RETRY%g"
    with pytest.raises(StateError, match="consumer h is created"):
        cluster.stage.run(make(cluster, group="h").send_message_back(first, 0, None, 0))
