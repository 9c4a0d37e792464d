"""Apache's Java clients against our server, over every adapter: what they send, find, consume and commit."""

from __future__ import annotations

import time

import pytest

from tests.peers.kit.checks import Sent, assert_one, assert_same, offset_msg_id
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import Running, finish, wait_for
from tests.peers.kit.steps import committed, consume, find, offsets, open_group, pull, share_out

pytestmark = pairs(
    "java-4.4.0 @ ours:threaded",
    "java-4.9.7 @ ours:threaded",
    "java-5.3.3 @ ours:threaded",
    "java-4.9.7-binary @ ours:threaded",
    "java-4.9.7 @ ours:gevent",
    "java-4.9.7 @ ours:asyncio",
    "java-4.9.7 @ ours:trio",
)


# --- sending ----------------------------------------------------------------------------------------------------------


def test_what_is_sent_is_stored_and_consumed(pair: Pair) -> None:
    topic, group = pair.name("Sync"), pair.name("sync")
    sent = pair.produce(topic=topic, count=8, shard=4, tag="TagA,TagB", keys="order", props="color:red,n:#")
    assert {(message.queue_id, message.queue_offset) for message in sent} == {
        (queue, offset) for queue in range(4) for offset in range(2)
    }
    assert len({message.msg_id for message in sent}) == 8
    # Nothing is committed yet, and a young queue begins at 0.
    assert [(line["min"], line["max"], line["committed"]) for line in offsets(pair, topic, group)] == [(0, 2, 0)] * 4
    assert_same(pair.server, sent, pull(pair, topic, 8))
    open_group(pair, topic, group)
    assert_same(pair.server, sent, consume(pair, topic, group, 8).messages)
    committed(pair, topic, group, [2] * 4)
    assert [line["committed"] for line in offsets(pair, topic, group)] == [2] * 4


def test_asynchronous_sends(pair: Pair) -> None:
    topic = pair.name("Async")
    outcome = pair.run("produce", topic=topic, count=40, mode="async", tag="TagA", keys="async")
    messages = pull(pair, topic, 40)
    assert_same(
        pair.server,
        [Sent(topic, f"message-{index}".encode(), "TagA", f"async-{index}") for index in range(40)],
        messages,
    )
    answered = {(line["msgId"], line["offsetMsgId"], line["queueId"], line["queueOffset"]) for line in outcome.sent}
    stored = {
        (line["msgId"], offset_msg_id(pair.server, line["physicalOffset"]), line["queueId"], line["queueOffset"])
        for line in messages
    }
    assert answered == stored


def test_oneway_sends(pair: Pair) -> None:
    topic = pair.name("Oneway")
    pair.produce(
        topic=topic, count=1, body="first"
    )  # a first message finds no route and makes the topic; one-way sends would be lost meanwhile
    sent = pair.produce(topic=topic, count=20, mode="oneway", tag="TagB", props="n:#")
    first, *rest = sorted(pull(pair, topic, 21), key=lambda line: int(line["physicalOffset"]))
    assert first["body"] == "first-0"
    assert_same(pair.server, sent, rest)


def test_a_batch_is_stored_as_its_messages(pair: Pair) -> None:
    topic = pair.name("Batch")
    sent = pair.produce(topic=topic, count=10, mode="batch", tag="TagA,TagB", keys="batch", props="b:#")
    assert len({message.queue_id for message in sent}) == 1
    # Apache's brokers let the batch's id, which 5.3.3 sends, hide the members'
    own = pair.server.ours or "5.3.3" not in pair.client.kind
    assert_same(pair.server, sent, pull(pair, topic, 10), ids=own)
    messages = consume(pair, topic, pair.name("batch"), 5, tag="TagB").messages
    assert_same(pair.server, sent[1::2], messages, ids=own)
    assert len({line["msgId"] for line in messages}) == 5 or not own


def test_a_chosen_queue(pair: Pair) -> None:
    topic = pair.name("Chosen")
    sent = pair.produce(topic=topic, count=5, queue=3)
    assert [(message.queue_id, message.queue_offset) for message in sent] == [(3, offset) for offset in range(5)]
    assert_same(pair.server, sent, pull(pair, topic, 5))


def test_compressed_bodies(pair: Pair) -> None:
    topic = pair.name("Packed")
    sent = pair.produce(topic=topic, count=3, size=20_000, tag="TagC", keys="big")
    messages = pull(pair, topic, 3)
    assert_same(pair.server, sent, messages)
    assert all(line["storeSize"] < 2000 for line in messages)
    assert_same(pair.server, sent, consume(pair, topic, pair.name("packed"), 3).messages)


def test_large_bodies_as_they_are(pair: Pair) -> None:
    topic = pair.name("Large")
    sent = pair.produce(topic=topic, count=3, size=1_000_000, compress=100_000_000, queue=0)
    messages = pull(pair, topic, 3)
    assert_same(pair.server, sent, messages)
    assert all(line["storeSize"] > 1_000_000 for line in messages)
    assert_same(pair.server, sent, consume(pair, topic, pair.name("large"), 3).messages)


def test_names_and_bodies_in_any_script(pair: Pair) -> None:
    topic = pair.name("Unicode")
    sent = pair.produce(topic=topic, count=2, tag="标签", keys="键", body="ä你\U0001f600", props="имя:ü中#")
    assert_same(pair.server, sent, pull(pair, topic, 2))
    assert_same(pair.server, sent, consume(pair, topic, pair.name("unicode"), 2, tag="标签 || other").messages)
    assert_same(pair.server, sent[1:], find(pair, "query", topic=topic, key="键-1"))


def test_the_vip_port(pair: Pair) -> None:
    topic = pair.name("Vip")
    sent = pair.produce(topic=topic, count=4, vip=True)
    assert_same(pair.server, sent, pull(pair, topic, 4))


# --- finding ----------------------------------------------------------------------------------------------------------


def test_query_by_key_and_id(pair: Pair) -> None:
    topic = pair.name("Query")
    sent = pair.produce(topic=topic, count=6, tag="TagQ", keys="key", props="n:#")
    assert_same(pair.server, sent[4:5], find(pair, "query", topic=topic, key="key-4"))
    for found_by in (sent[2].offset_msg_id, sent[2].msg_id):
        assert_same(pair.server, sent[2:3], find(pair, "view", topic=topic, id=found_by))
    missing = pair.run("query", topic=topic, key="no-such-key", status=None)
    assert not missing.messages
    if missing.status:
        assert "MQClientException" in missing.lines[-1]["error"], missing.lines


def test_offsets_by_time(pair: Pair) -> None:
    topic, group = pair.name("Times"), pair.name("times")
    pair.produce(topic=topic, count=8, shard=4)
    time.sleep(0.2)  # a gap in the stored times: Apache 4.x finds the message nearest to a time, and that must be clear
    pair.produce(topic=topic, count=8, shard=4, body="later")
    then = min(int(line["storeTimestamp"]) for line in pull(pair, topic, 16) if "later" in line["body"]) - 5
    assert [line["searched"] for line in offsets(pair, topic, group, time=0)] == [0] * 4
    assert [line["searched"] for line in offsets(pair, topic, group, time=then)] == [2] * 4
    assert [(line["min"], line["max"]) for line in offsets(pair, topic, group)] == [(0, 4)] * 4


def test_pulling_by_tag(pair: Pair) -> None:
    topic = pair.name("PullTag")
    sent = pair.produce(topic=topic, count=12, tag="TagA,TagB,TagC", queue=1)
    assert_same(
        pair.server, [message for message in sent if message.tags != "TagB"], pull(pair, topic, 8, tag="TagA || TagC")
    )


def test_what_was_pulled_is_committed(pair: Pair) -> None:
    topic, group = pair.topic("PullCommit"), pair.name("pull-commit")
    sent = pair.produce(topic=topic, count=8, shard=4)
    assert_same(pair.server, sent, pair.run("pull", topic=topic, group=group).messages)
    committed(pair, topic, group, [2] * 4)


def test_a_missing_topic(pair: Pair) -> None:
    outcome = pair.run("pull", topic=pair.name("NoSuchTopic"), group="pullers", status=2)
    assert "MQClientException" in outcome.lines[-1]["error"]


# --- consuming --------------------------------------------------------------------------------------------------------


def test_only_the_wanted_tags(pair: Pair) -> None:
    topic = pair.name("Tags")
    sent = pair.produce(topic=topic, count=12, tag="TagA,TagB,TagC", keys="tags")
    outcome = consume(pair, topic, pair.name("tags"), 8, tag="TagA || TagC", settle=300)
    assert_same(pair.server, [message for message in sent if message.tags != "TagB"], outcome.messages)


def test_a_group_goes_on_where_it_stopped(pair: Pair) -> None:
    topic, group = pair.name("GoOn"), pair.name("go-on")
    before = pair.produce(topic=topic, count=8, shard=4, body="before")
    open_group(pair, topic, group)
    assert_same(pair.server, before, consume(pair, topic, group, 8).messages)
    committed(pair, topic, group, [2] * 4)
    after = pair.produce(topic=topic, count=6, body="after")
    assert_same(pair.server, after, consume(pair, topic, group, 6).messages)


def test_messages_come_to_a_waiting_consumer(pair: Pair) -> None:
    topic, group = pair.name("Waiting"), pair.name("waiting")
    pair.produce(topic=topic, count=4, body="old")
    consumer = pair.start("consume", topic=topic, group=group, expect=16, settle=100)
    for _ in range(4):
        wait_for(consumer, "body")
    new = pair.produce(topic=topic, count=12, body="new", tag="TagN")
    assert_same(pair.server, new, finish(consumer).messages[4:])


def test_a_refused_message_comes_back(pair: Pair) -> None:
    topic, group = pair.name("Retry"), pair.name("retry")
    sent = pair.produce(topic=topic, count=3, queue=0, tag="TagR", keys="retry", props="n:#")
    outcome = consume(pair, topic, group, 3, fail=2, threads=1, seconds=120)
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


def test_a_message_refused_too_often_is_put_aside(pair: Pair) -> None:
    if pair.server.kind == "apache:4.4.0":
        pytest.skip("release 4.4 lets nobody read a group's dead letters")
    topic, group = pair.name("Dead"), pair.name("dead")
    (sent,) = pair.produce(topic=topic, count=1, tag="TagD", keys="dead", props="n:#")
    consumer = pair.start("consume", topic=topic, group=group, fail=2, max=1, threads=1, seconds=120)
    assert [wait_for(consumer, "refused", 120)["reconsumeTimes"] for _ in range(2)] == [0, 1]
    until = time.monotonic() + 60
    while (
        not (dead := pair.run("pull", topic=f"%DLQ%{group}", group=pair.name("puller"), status=None).messages)
        and time.monotonic() < until
    ):
        pass
    consumer.stop()
    assert not finish(consumer, status=1).messages
    (line,) = dead
    assert line["topic"] == f"%DLQ%{group}"
    assert (line["properties"]["RETRY_TOPIC"], line["properties"]["ORIGIN_MESSAGE_ID"]) == (topic, sent.offset_msg_id)
    line = {**line, "topic": topic}
    assert_one(pair.server, sent, line, extra=set())


def test_delayed_messages(pair: Pair) -> None:
    topic = pair.name("Delayed")
    sent = pair.produce(topic=topic, count=4, delay=2, tag="TagL", keys="later", props="n:#")
    now = pair.produce(topic=topic, count=1, body="now")
    outcome = consume(pair, topic, pair.name("delayed"), 5)
    for message in sent:  # the producer was told where the message waited
        message.offset_msg_id = None
    assert_same(pair.server, [*now, *sent], outcome.messages)
    took = {line["body"]: line["storeTimestamp"] - line["bornTimestamp"] for line in outcome.messages}
    assert all((milliseconds >= 1000) == (body != "now-0") for body, milliseconds in took.items()), took


def test_order_within_a_queue(pair: Pair) -> None:
    topic = pair.name("Orderly")
    sent = pair.produce(topic=topic, count=30, shard=3, tag="TagO")
    outcome = consume(pair, topic, pair.name("orderly"), 30, orderly=True, fail=1, threads=4)
    assert_same(pair.server, sent, outcome.messages)
    assert len(outcome.refused) == 1
    for queue in range(4):
        at = [line["queueOffset"] for line in outcome.messages if line["queueId"] == queue]
        assert at == sorted(at), f"queue {queue}"


def test_everybody_gets_a_broadcast_message(pair: Pair) -> None:
    topic, group = pair.name("News"), pair.name("news")
    sent = pair.produce(topic=topic, count=8, tag="TagN")
    options = {"topic": topic, "group": group, "model": "BROADCASTING", "expect": 8, "settle": 200}
    members = [pair.start("consume", instance=pair.name("member"), **options) for _ in range(2)]
    for member in members:
        assert_same(pair.server, sent, finish(member).messages)
    committed(pair, topic, group, [0] * 4)  # their offsets are their own


@pytest.mark.parametrize("orderly", [False, True])
def test_members_share_the_queues_and_take_over(pair: Pair, orderly: bool) -> None:
    topic, group = pair.name("Shared"), pair.name("shared")
    pair.produce(topic=topic, count=4, body="start")

    def member() -> Running:
        return pair.start(
            "consume", topic=topic, group=group, orderly=orderly, expect=1000, seconds=120, instance=pair.name("member")
        )

    one = member()
    for _ in range(4):
        wait_for(one, "body")
    two = member()
    wait_for(two, "started")
    taken = share_out(pair, topic, [one, two])
    assert [len(queues) for queues in taken] == [2, 2]
    assert not taken[0] & taken[1]
    two.stop()
    finish(two, status=1)
    assert share_out(pair, topic, [one]) == [{0, 1, 2, 3}]
    one.stop()
    finish(one, status=1)


@pytest.mark.not_with("java-4.4.0", "came with release 4.6")
def test_a_lite_pull_consumer(pair: Pair) -> None:
    if "5.3.3" in pair.client.kind and pair.server.kind == "apache:4.9.7":
        pytest.skip("Apache's 4.9.7 gives nothing to a lite pull consumer of release 5")
    topic, group = pair.name("Lite"), pair.name("lite")
    sent = pair.produce(topic=topic, count=8, tag="TagA,TagB")
    assert_same(pair.server, sent[::2], pair.run("litepull", topic=topic, group=group, expect=4, tag="TagA").messages)
