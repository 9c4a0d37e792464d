"""Our producer and push consumer, over every adapter, against Apache's servers, with Apache's Java client at the other
end.
"""

from __future__ import annotations

import time

import pytest

from tests.peers.kit.checks import Sent, assert_one, assert_same, offset_msg_id
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import finish, wait_for
from tests.peers.kit.steps import committed, consume, find, gather, open_group, pull, share_out

pytestmark = pairs(
    "ours-threaded @ apache:4.4.0",
    "ours-threaded @ apache:4.9.7",
    "ours-threaded @ apache:5.3.3",
    "ours-gevent @ apache:4.9.7",
    "ours-asyncio @ apache:4.9.7",
    "ours-trio @ apache:4.9.7",
)


def java(pair: Pair) -> Pair:
    """The same server with the Java client."""
    return pair.other("java-4.9.7")


# --- sending ----------------------------------------------------------------------------------------------------------


def test_java_reads_what_we_send(pair: Pair) -> None:
    topic = pair.name("Sent")
    sent = pair.produce(topic=topic, count=8, shard=4, tag="TagA,TagB", keys="order", props="color:red,n:#")
    assert {(message.queue_id, message.queue_offset) for message in sent} == {
        (queue, offset) for queue in range(4) for offset in range(2)
    }
    assert_same(pair.server, sent, pull(java(pair), topic, 8))
    assert_same(pair.server, sent[1::2], consume(java(pair), topic, pair.name("sent"), 4, tag="TagB").messages)
    assert_same(pair.server, sent[5:6], find(java(pair), "query", topic=topic, key="order-5"))
    for found_by in (sent[2].offset_msg_id, sent[2].msg_id):
        assert_same(pair.server, sent[2:3], find(java(pair), "view", topic=topic, id=found_by))


def test_queues_in_turn(pair: Pair) -> None:
    topic = pair.topic("Turns")
    sent = pair.produce(topic=topic, count=12)
    assert [message.queue_offset for message in sent] == [index // 4 for index in range(12)]
    assert_same(pair.server, sent, pull(java(pair), topic, 12))


def test_asynchronous_sends(pair: Pair) -> None:
    topic = pair.topic("Async")
    outcome = pair.run("produce", topic=topic, count=40, mode="async", tag="TagA", keys="async")
    messages = pull(java(pair), topic, 40)
    assert_same(
        pair.server,
        [Sent(topic, f"message-{index}".encode(), "TagA", f"async-{index}") for index in range(40)],
        messages,
    )
    answered = {(line["msgId"], line["offsetMsgId"], line["queueId"], line["queueOffset"]) for line in outcome.sent}
    assert answered == {
        (line["msgId"], offset_msg_id(pair.server, line["physicalOffset"]), line["queueId"], line["queueOffset"])
        for line in messages
    }


def test_oneway_sends(pair: Pair) -> None:
    topic = pair.topic("Oneway")
    sent = pair.produce(topic=topic, count=20, mode="oneway", tag="TagB", keys="oneway", props="n:#")
    assert_same(pair.server, sent, pull(java(pair), topic, 20))


def test_a_batch_is_stored_as_its_messages(pair: Pair) -> None:
    topic = pair.topic("Batch")
    sent = pair.produce(topic=topic, count=10, mode="batch", tag="TagA,TagB", keys="batch", props="b:#")
    assert len({message.queue_id for message in sent}) == 1
    assert_same(pair.server, sent, pull(java(pair), topic, 10))


def test_compressed_bodies_both_ways(pair: Pair) -> None:
    topic = pair.topic("Packed")
    sent = pair.produce(topic=topic, count=2, size=20_000, tag="TagC", keys="big")
    messages = pull(java(pair), topic, 2)
    assert_same(pair.server, sent, messages)
    assert all(line["storeSize"] < 2000 for line in messages)
    more = java(pair).produce(topic=topic, count=2, size=30_000, tag="TagC", keys="bigger")
    assert_same(pair.server, [*sent, *more], consume(pair, topic, pair.name("packed"), 4).messages)


def test_large_bodies_as_they_are(pair: Pair) -> None:
    topic = pair.topic("Large")
    sent = pair.produce(topic=topic, count=3, size=1_000_000, compress=100_000_000)
    assert_same(pair.server, sent, pull(java(pair), topic, 3))
    assert_same(pair.server, sent, consume(pair, topic, pair.name("large"), 3).messages)


def test_names_and_bodies_in_any_script(pair: Pair) -> None:
    topic = pair.topic("Unicode")
    sent = pair.produce(topic=topic, count=2, tag="标签", keys="键", body="ä你\U0001f600", props="имя:ü中#")
    assert_same(pair.server, sent, pull(java(pair), topic, 2))
    assert_same(pair.server, sent, consume(pair, topic, pair.name("unicode"), 2, tag="标签 || other").messages)


def test_the_vip_port(pair: Pair) -> None:
    topic = pair.topic("Vip")
    assert_same(pair.server, pair.produce(topic=topic, count=4, vip=True), pull(java(pair), topic, 4))


def test_delayed_messages(pair: Pair) -> None:
    topic = pair.topic("Delayed")
    sent = pair.produce(topic=topic, count=2, delay=2, tag="TagL", keys="later")
    messages = consume(java(pair), topic, pair.name("delayed"), 2).messages
    assert_same(pair.server, sent, messages)
    assert all(line["storeTimestamp"] - line["bornTimestamp"] >= 1000 for line in messages)


# --- consuming --------------------------------------------------------------------------------------------------------


def test_we_consume_what_java_sends(pair: Pair) -> None:
    topic, group = pair.topic("Received"), pair.name("received")
    open_group(pair, topic, group)
    sent = java(pair).produce(topic=topic, count=8, shard=4, tag="TagA,TagB", keys="order", props="color:red,n:#")
    assert_same(pair.server, sent, consume(pair, topic, group, 8).messages)
    committed(pair, topic, group, [2] * 4)
    more = java(pair).produce(topic=topic, count=4, mode="batch", body="more", tag="TagM", keys="more")
    assert_same(pair.server, more, consume(pair, topic, group, 4).messages)


def test_only_the_wanted_tags(pair: Pair) -> None:
    topic = pair.topic("Tags")
    sent = java(pair).produce(topic=topic, count=12, tag="TagA,TagB,TagC", keys="tags")
    outcome = consume(pair, topic, pair.name("tags"), 8, tag="TagA || TagC", settle=300)
    assert_same(pair.server, [message for message in sent if message.tags != "TagB"], outcome.messages)


def test_messages_come_to_a_waiting_consumer(pair: Pair) -> None:
    topic = pair.topic("Waiting")
    first = java(pair).produce(topic=topic, count=4, body="first")
    consumer = pair.start("consume", topic=topic, group=pair.name("waiting"), expect=12, settle=100)
    for _ in first:
        wait_for(consumer, "body")
    second = java(pair).produce(topic=topic, count=8, body="second", tag="TagN")
    assert_same(pair.server, [*first, *second], finish(consumer).messages)


def test_a_refused_message_comes_back(pair: Pair) -> None:
    topic, group = pair.topic("Retry", 1), pair.name("retry")
    sent = java(pair).produce(topic=topic, count=3, tag="TagR", keys="retry", props="n:#")
    outcome = consume(pair, topic, group, 3, fail=2, threads=1)
    assert_same(pair.server, sent, outcome.messages)
    again = {line["msgId"]: line for line in outcome.messages if line["reconsumeTimes"]}
    assert again.keys() == {line["refused"] for line in outcome.refused}
    for message in sent:
        if message.msg_id in again:
            properties = again[message.msg_id]["properties"]
            assert again[message.msg_id]["reconsumeTimes"] == 1
            assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == (topic, message.offset_msg_id)
    assert len(again) == 2
    committed(pair, f"%RETRY%{group}", group, [2])


@pytest.mark.not_with("apache:4.4.0", "nobody may read a group's dead letters there")
def test_a_message_refused_too_often_is_put_aside(pair: Pair) -> None:
    topic, group = pair.topic("Dead"), pair.name("dead")
    (sent,) = java(pair).produce(topic=topic, count=1, tag="TagD", keys="dead", props="n:#")
    consumer = pair.start("consume", topic=topic, group=group, fail=2, max=1, threads=1, seconds=120)
    assert [wait_for(consumer, "refused", 120)["reconsumeTimes"] for _ in range(2)] == [0, 1]
    until = time.monotonic() + 60
    while not (dead := java(pair).run("pull", topic=f"%DLQ%{group}", group="dead-letters", status=None).messages):
        assert time.monotonic() < until, "no dead letter"
    consumer.stop()
    assert not finish(consumer, status=1).messages
    (line,) = dead
    assert (line["properties"]["RETRY_TOPIC"], line["properties"]["ORIGIN_MESSAGE_ID"]) == (topic, sent.offset_msg_id)
    assert_one(pair.server, sent, {**line, "topic": topic}, extra=set())


def test_everybody_gets_a_broadcast_message(pair: Pair) -> None:
    topic, group = pair.topic("News"), pair.name("news")
    sent = java(pair).produce(topic=topic, count=8, tag="TagN")
    options = {"topic": topic, "group": group, "model": "BROADCASTING", "expect": 8, "settle": 200}
    instances = [pair.name("member"), pair.name("member")]
    members = [pair.start("consume", instance=instance, **options) for instance in instances]
    for member in members:
        assert_same(pair.server, sent, finish(member).messages)
    committed(pair, topic, group, [0] * 4)  # their offsets are their own
    more = java(pair).produce(topic=topic, count=4, body="more")
    again = pair.start("consume", instance=instances[0], **{**options, "expect": 4})
    assert_same(pair.server, more, finish(again).messages)  # and they outlive the process


def test_order_within_a_queue(pair: Pair) -> None:
    topic = pair.topic("Orderly")
    sent = java(pair).produce(topic=topic, count=30, shard=3, tag="TagO")
    outcome = consume(pair, topic, pair.name("orderly"), 30, orderly=True, fail=1, threads=4)
    assert_same(pair.server, sent, outcome.messages)
    assert len(outcome.refused) == 1
    for queue in range(4):
        at = [line["queueOffset"] for line in outcome.messages if line["queueId"] == queue]
        assert at == sorted(at), f"queue {queue}"


@pytest.mark.parametrize("orderly", [False, True])
def test_java_and_we_share_the_queues_of_a_group(pair: Pair, orderly: bool) -> None:
    topic, group = pair.topic("Shared"), pair.name("shared")
    options = {"topic": topic, "group": group, "orderly": orderly, "expect": 1000, "seconds": 180}
    theirs, ours = (one.start("consume", instance=pair.name("member"), **options) for one in (java(pair), pair))
    for member in (theirs, ours):
        wait_for(member, "started")
    one, two = share_out(java(pair), topic, [theirs, ours])
    assert (len(one), len(two)) == (2, 2)
    theirs.stop()
    finish(theirs, status=1)
    assert share_out(java(pair), topic, [ours]) == [{0, 1, 2, 3}]
    theirs = java(pair).start("consume", instance=pair.name("member"), **options)
    one, two = share_out(java(pair), topic, [theirs, ours])
    assert (len(one), len(two)) == (2, 2)
    ours.stop()
    finish(ours, status=1)
    assert share_out(java(pair), topic, [theirs]) == [{0, 1, 2, 3}]
    theirs.stop()
    finish(theirs, status=1)


def test_nothing_is_lost_when_members_change(pair: Pair) -> None:
    topic, group = pair.topic("Passed"), pair.name("passed")
    options = {"topic": topic, "group": group, "expect": 1000, "seconds": 100}
    members = [pair.start("consume", instance=pair.name("member"), **options)]
    wait_for(members[0], "started")
    first = java(pair).produce(topic=topic, count=100, body="first")
    members.append(pair.start("consume", instance=pair.name("member"), **options))
    second = java(pair).produce(topic=topic, count=100, body="second")
    wait_for(members[1], "started")
    members[0].stop()
    received = {line["body"] for line in finish(members[0], status=1).messages}
    left = {message.body.decode() for message in [*first, *second]} - received
    gather(members[1], left)
    members[1].stop()
    received |= {line["body"] for line in finish(members[1], status=1).messages}
    assert received == {message.body.decode() for message in [*first, *second]}
