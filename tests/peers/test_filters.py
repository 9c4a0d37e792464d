"""Consumers of other people's making that filter by SQL92, against our broker."""

from __future__ import annotations

from tests.peers.kit.checks import Sent, assert_same
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import Line, finish, wait_for
from tests.peers.kit.steps import committed, consume, gather, pull

JAVA = "java-4.9.7"
JAVAS = ("java-4.4.0 @ ours:threaded", "java-4.9.7 @ ours:threaded", "java-5.3.3 @ ours:threaded")
everyone = pairs(*JAVAS, "go @ ours:threaded", "node @ ours:threaded")
java_only = pairs(*JAVAS, "java-4.9.7 @ ours:asyncio")


def fill(pair: Pair, topic: str, count: int = 8, **options: object) -> list[Sent]:
    """Messages with a number each, two in every queue; Java sends them, whoever consumes."""
    return pair.other(JAVA).produce(topic=topic, count=count, shard=4, tag="TagA", props="color:red,n:#", **options)


def got(pair: Pair, sent: list[Sent], messages: list[Line]) -> None:
    """Node takes the broker's ids for the messages' own."""
    assert_same(pair.server, sent, messages, ids=pair.client.kind != "node")


@everyone
def test_what_matches_is_consumed(pair: Pair) -> None:
    topic, group = pair.topic("Filtered"), pair.name("filtered")
    sent = fill(pair, topic)
    outcome = consume(pair, topic, group, 3, sql="n > 1 AND n <= 4 AND color = 'red' AND TAGS IS NOT NULL")
    got(pair, sent[2:5], outcome.messages)


@java_only
def test_what_was_passed_over_is_committed(pair: Pair) -> None:
    topic, group = pair.topic("Passed"), pair.name("passed")
    sent = fill(pair, topic)
    consumer = pair.start("consume", topic=topic, group=group, expect=100, seconds=120, sql="n = 7")
    got(pair, sent[7:], [wait_for(consumer, "body", 120)])
    committed(pair, topic, group, [2] * 4)
    consumer.stop()
    finish(consumer, status=1)


@everyone
def test_who_waits_gets_what_matches(pair: Pair) -> None:
    topic, group = pair.topic("Waiting"), pair.name("waiting")
    fill(pair, topic)
    consumer = pair.start(
        "consume", topic=topic, group=group, expect=9, settle=100, seconds=120, sql="mark = 'late' OR n = 7"
    )
    first = wait_for(consumer, "body", 120)
    assert first["body"] == "message-7"
    late = pair.other(JAVA).produce(topic=topic, count=4, shard=4, body="late", props="mark:late")
    other = pair.other(JAVA).produce(topic=topic, count=4, shard=4, body="other", props="mark:other")
    last = pair.other(JAVA).produce(topic=topic, count=4, shard=4, body="last", props="mark:late")
    bodies = {message.body.decode() for message in (*late, *last)}
    assert not bodies & {message.body.decode() for message in other}
    got(pair, [*late, *last], gather(consumer, bodies))
    assert {line["body"] for line in finish(consumer).messages} == bodies | {"message-7"}


@java_only
def test_an_expression_that_is_none(pair: Pair) -> None:
    outcome = pair.run(
        "consume", topic=pair.topic("Wrong"), group=pair.name("wrong"), sql="n > > 1", seconds=10, status=None
    )
    assert outcome.status != 0
    assert "CODE: 23" in outcome.lines[-1]["text"], outcome.lines


@java_only
def test_a_group_comes_back_with_another_expression(pair: Pair) -> None:
    topic, group = pair.topic("Changed"), pair.name("changed")
    sent = fill(pair, topic, 4)
    got(pair, sent[3:], consume(pair, topic, group, 1, sql="n > 2").messages)
    later = fill(pair, topic, 4, body="later")
    again = pair.start("consume", topic=topic, group=group, expect=100, sql="n < 1")
    # and the first ones again, of queues that were not committed
    got(pair, later[:1], gather(again, {later[0].body.decode()}))
    again.stop()
    assert {line["body"] for line in finish(again, status=1).messages} <= {
        sent[0].body.decode(),
        later[0].body.decode(),
    }


@java_only
def test_a_refused_message_comes_back(pair: Pair) -> None:
    """The retry topic is not filtered by the expression (FLT-05)."""
    topic, group = pair.topic("Again"), pair.name("again")
    sent = fill(pair, topic, 4)
    outcome = consume(pair, topic, group, 1, sql="n = 2", fail=1, threads=1)
    assert len(outcome.refused) == 1
    assert [(line["body"], line["reconsumeTimes"]) for line in outcome.messages] == [(sent[2].body.decode(), 1)]


@java_only
def test_a_batch_is_judged_message_by_message(pair: Pair) -> None:
    topic = pair.topic("Batch")
    sent = pair.produce(topic=topic, count=6, mode="batch", tag="TagA", props="n:#")
    assert {line["body"] for line in pull(pair, topic, 6)} == {message.body.decode() for message in sent}
    outcome = consume(pair, topic, pair.name("batch"), 2, sql="n BETWEEN 2 AND 3")
    assert {line["body"] for line in outcome.messages} == {"message-2", "message-3"}
