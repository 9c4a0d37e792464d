"""The C++, Node and Go clients against our server.

What each does differently on the wire is told in docs/testing.md.
"""

from __future__ import annotations

from typing import Any

from tests.peers.kit.checks import Sent, assert_same
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import Line, finish, wait_for
from tests.peers.kit.steps import committed, consume, find, gather, gather_some, offsets, open_group, pull, share_out

CPP, NODE, GO = "cpp @ ours:threaded", "node @ ours:threaded", "go @ ours:threaded"
JAVA = "java-4.9.7"
everyone = pairs(CPP, NODE, GO)


def got(pair: Pair, sent: list[Sent], messages: list[Line]) -> None:
    """What the client consumed is what was sent. Node takes the broker's ids for the messages' own."""
    assert_same(pair.server, sent, messages, ids=pair.client.kind != "node")


def java(pair: Pair) -> Pair:
    """The same server with the Java client, which shows everything."""
    return pair.other(JAVA)


# --- sending ----------------------------------------------------------------------------------------------------------


@everyone
def test_java_reads_what_it_sends(pair: Pair) -> None:
    topic = pair.topic("Sent")
    sent = pair.produce(topic=topic, count=8, tag="TagA,TagB", keys="order", props="color:red,n:#")
    assert_same(pair.server, sent, pull(java(pair), topic, 8))
    assert_same(pair.server, sent[1::2], consume(java(pair), topic, pair.name("sent"), 4, tag="TagB").messages)
    assert_same(pair.server, sent[5:6], find(java(pair), "query", topic=topic, key="order-5"))


@everyone
def test_asynchronous_sends(pair: Pair) -> None:
    topic = pair.topic("Async")
    outcome = pair.run("produce", topic=topic, count=20, mode="async", tag="TagA", keys="async")
    assert len(outcome.sent) == 20
    messages = pull(java(pair), topic, 20)
    assert_same(
        pair.server,
        [Sent(topic, f"message-{index}".encode(), "TagA", f"async-{index}") for index in range(20)],
        messages,
    )
    assert {line["msgId"] for line in outcome.sent} == {line["msgId"] for line in messages}


@pairs(CPP, GO)
def test_oneway_sends(pair: Pair) -> None:
    topic = pair.topic("Oneway")
    sent = pair.produce(topic=topic, count=20, mode="oneway", tag="TagB", keys="oneway", props="n:#")
    assert_same(pair.server, sent, pull(java(pair), topic, 20))


@pairs(CPP, GO)
def test_a_chosen_queue(pair: Pair) -> None:
    topic = pair.topic("Chosen")
    sent = pair.produce(
        topic=topic, count=5, queue=2, tag="TagA", mode="orderly" if pair.client.kind == "cpp" else "sync"
    )
    messages = pull(java(pair), topic, 5)
    assert_same(pair.server, sent, messages)
    assert {line["queueId"] for line in messages} == {2}


@pairs(GO)
def test_a_batch_is_stored_as_its_messages(pair: Pair) -> None:
    topic = pair.topic("Batch")
    sent = pair.produce(topic=topic, count=5, mode="batch", tag="TagA,TagB", keys="batch")
    assert_same(pair.server, sent, pull(java(pair), topic, 5))


@pairs(CPP)
def test_a_batch_sent_as_one_message_is_one_message(pair: Pair) -> None:
    topic = pair.topic("Batch")
    pair.run("produce", topic=topic, count=2, mode="batch")
    (message,) = pull(java(pair), topic, 1)
    assert "message-0" in message["body"]
    assert "message-1" in message["body"]
    assert message["msgId"] == message["properties"].get("UNIQ_KEY", message["msgId"])


@everyone
def test_compressed_bodies_both_ways(pair: Pair) -> None:
    topic = pair.topic("Packed")
    sent = pair.produce(topic=topic, count=2, size=20_000, tag="TagC", keys="big")
    messages = pull(java(pair), topic, 2)
    assert_same(pair.server, sent, messages)
    assert all(line["storeSize"] < 2000 for line in messages)
    more = java(pair).produce(topic=topic, count=2, size=30_000, tag="TagC", keys="bigger")
    got(pair, [*sent, *more], consume(pair, topic, pair.name("packed"), 4).messages)


@everyone
def test_names_and_bodies_in_any_script(pair: Pair) -> None:
    topic = pair.topic("Unicode")
    sent = pair.produce(topic=topic, count=2, tag="标签", keys="键", body="ä你\U0001f600", props="имя:ü中#")
    assert_same(pair.server, sent, pull(java(pair), topic, 2))
    tag = (
        "*" if pair.client.kind == "go" else "标签"
    )  # Go tells the broker a hash of its own for tags that are not ASCII
    got(pair, sent, consume(pair, topic, pair.name("unicode"), 2, tag=tag, **shown(pair, "имя")).messages)


@everyone
def test_delayed_messages(pair: Pair) -> None:
    topic = pair.topic("Delayed")
    sent = pair.produce(topic=topic, count=2, delay=2, tag="TagL", keys="later")
    for message in sent:  # the producer was told where the message waited
        message.queue_id = message.queue_offset = message.offset_msg_id = None
        message.msg_id = message.msg_id if pair.client.kind != "node" else None
    messages = consume(java(pair), topic, pair.name("delayed"), 2).messages
    assert_same(pair.server, sent, messages)
    assert all(line["storeTimestamp"] - line["bornTimestamp"] >= 1000 for line in messages)


@pairs(NODE, GO)
def test_messages_of_one_shard_are_in_one_queue(pair: Pair) -> None:
    topic = pair.topic("Shards")
    sent = pair.produce(topic=topic, count=12, shard=3, tag="TagS", keys="shard")
    messages = pull(java(pair), topic, 12)
    assert_same(pair.server, sent, messages)
    if pair.client.kind == "node":  # a key whose hash is 0 goes round robin
        return
    queues = [
        {line["queueId"] for line in messages if int(str(line["keys"]).rpartition("-")[2]) % 3 == shard}
        for shard in range(3)
    ]
    assert [len(one) for one in queues] == [1, 1, 1]


@pairs(GO)
def test_it_makes_a_topic(pair: Pair) -> None:
    topic = pair.name("Made")
    pair.run("admin", topic=topic, broker=pair.server.broker, queues=5)
    assert [line["queueId"] for line in offsets(java(pair), topic, pair.name("looking"))] == list(range(5))
    sent = pair.produce(topic=topic, count=5, tag="TagM")
    assert_same(pair.server, sent, pull(java(pair), topic, 5))


# --- consuming --------------------------------------------------------------------------------------------------------


def shown(pair: Pair, *names: str) -> dict[str, Any]:
    """The C++ library shows only properties that it is asked for by name."""
    return {"props": ",".join(names)} if pair.client.kind == "cpp" else {}


@everyone
def test_it_consumes_what_java_sends(pair: Pair) -> None:
    topic, group = pair.topic("Received"), pair.name("received")
    sent = java(pair).produce(topic=topic, count=8, shard=4, tag="TagA,TagB", keys="order", props="color:red,n:#")
    open_group(pair, topic, group)
    got(pair, sent, consume(pair, topic, group, 8, settle=1000, **shown(pair, "color", "n")).messages)
    committed(pair, topic, group, [2] * 4)
    more = java(pair).produce(topic=topic, count=4, body="more", tag="TagM", keys="more")
    got(pair, more, consume(pair, topic, group, 4).messages)


@everyone
def test_only_the_wanted_tags(pair: Pair) -> None:
    topic = pair.topic("Tags")
    sent = java(pair).produce(topic=topic, count=12, tag="TagA,TagB,TagC", keys="tags")
    outcome = consume(pair, topic, pair.name("tags"), 8, tag="TagA || TagC", settle=300)
    got(pair, [message for message in sent if message.tags != "TagB"], outcome.messages)


@everyone
def test_messages_come_to_a_waiting_consumer(pair: Pair) -> None:
    topic = pair.topic("Waiting")
    first = java(pair).produce(topic=topic, count=4, body="first", tag="TagN")
    consumer = pair.start("consume", topic=topic, group=pair.name("waiting"), expect=12, settle=100)
    for _ in first:
        wait_for(consumer, "body")
    second = java(pair).produce(topic=topic, count=8, body="second", tag="TagN")
    got(pair, [*first, *second], finish(consumer).messages)


@everyone
def test_a_refused_message_comes_back(pair: Pair) -> None:
    topic, group = pair.topic("Retry", 1), pair.name("retry")
    (sent,) = java(pair).produce(topic=topic, count=1, tag="TagR", keys="retry", props="n:7")
    outcome = pair.run(
        "consume", topic=topic, group=group, expect=1, fail=1, threads=1, seconds=100, **shown(pair, "n", "RETRY_TOPIC")
    )
    got(pair, [sent], outcome.messages)
    (line,) = outcome.messages
    assert line["reconsumeTimes"] == 1
    assert line["properties"]["RETRY_TOPIC"] == topic
    if pair.client.kind != "cpp":
        assert line["properties"]["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id


@pairs(CPP, GO)
def test_order_within_a_queue(pair: Pair) -> None:
    topic = pair.topic("Orderly")
    sent = java(pair).produce(topic=topic, count=30, shard=3, tag="TagO")
    outcome = consume(pair, topic, pair.name("orderly"), 30, orderly=True, fail=1, threads=4, seconds=120)
    got(pair, sent, outcome.messages)
    for queue in range(4):
        at = [line["queueOffset"] for line in outcome.messages if line["queueId"] == queue]
        assert at == sorted(at), f"queue {queue}"


@everyone
def test_everybody_gets_a_broadcast_message(pair: Pair) -> None:
    topic, group = pair.topic("News"), pair.name("news")
    options = {"topic": topic, "group": group, "model": "BROADCASTING", "expect": 1000, "seconds": 100}
    members = [pair.start("consume", instance=pair.name("member"), **options) for _ in range(2)]
    listening: list[set[int]] = [set(), set()]
    while not all(len(queues) == 4 for queues in listening):
        # the C++ client begins at the end of a queue, whenever that is
        early = java(pair).produce(topic=topic, count=4, shard=4, body=pair.name("early"))
        for queues, member in zip(listening, members, strict=True):
            queues.update(
                line["queueId"] for line in gather_some(member, {message.body.decode() for message in early}, 1)
            )
    sent = java(pair).produce(topic=topic, count=8, tag="TagN", body="news")
    for member in members:
        received = gather(member, {message.body.decode() for message in sent})
        got(pair, sent, received)
        member.stop()
    for member in members:
        finish(member, status=None)
    committed(pair, topic, group, [0] * 4)  # their offsets are their own


@pairs(CPP, GO)
def test_pulling(pair: Pair) -> None:
    topic = pair.topic("Pulled")
    sent = java(pair).produce(topic=topic, count=12, tag="TagA,TagB", keys="pulled")
    got(pair, sent[::2], pair.run("pull", topic=topic, group=pair.name("puller"), tag="TagA").messages)


@everyone
def test_members_of_two_kinds_share_the_queues(pair: Pair) -> None:
    topic, group = pair.topic("Shared"), pair.name("shared")
    options = {"topic": topic, "group": group, "expect": 1000, "seconds": 150}
    members = [one.start("consume", instance=pair.name("member"), **options) for one in (java(pair), pair)]
    for member in members:
        wait_for(member, "started")
    one, two = share_out(java(pair), topic, members)
    assert (len(one), len(two)) == (2, 2)
    assert not one & two
    members[1].stop()
    assert share_out(java(pair), topic, members[:1]) == [{0, 1, 2, 3}]
    members[0].stop()
    for member in members:
        finish(member, status=None)
