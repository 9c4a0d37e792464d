"""Our push consumers against Apache's servers: what mqadmin sees of them and does to them, and iteration instead of a
listener.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.peers.kit.checks import assert_same
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import Running, finish, wait_for
from tests.peers.kit.steps import committed, consume, gather, gather_some, move_back, open_group

pytestmark = pairs(
    "ours-threaded @ apache:4.4.0",
    "ours-threaded @ apache:4.9.7",
    "ours-threaded @ apache:5.3.3",
    "ours-gevent @ apache:4.9.7",
    "ours-asyncio @ apache:4.9.7",
    "ours-trio @ apache:4.9.7",
)

Tool = Callable[..., str]


def java(pair: Pair) -> Pair:
    """The same server with the Java client."""
    return pair.other("java-4.9.7")


def listening(pair: Pair, topic: str, group: str, **options: object) -> tuple[Running, str]:
    """A consumer of ours that runs until it is stopped, and its client id."""
    consumer = pair.start("consume", topic=topic, group=group, expect=1000, seconds=150, **options)
    return consumer, str(wait_for(consumer, "started")["clientId"])


def leave(consumer: Running) -> None:
    consumer.stop()
    finish(consumer, status=1)


# --- operators --------------------------------------------------------------------------------------------------------


def test_operators_see_our_consumer(pair: Pair, mqadmin: Tool) -> None:
    topic, group = pair.topic("Seen"), pair.name("seen")
    consumer, client = listening(pair, topic, group)
    sent = java(pair).produce(topic=topic, count=8)
    gather(consumer, {message.body.decode() for message in sent})
    connections = mqadmin("consumerConnection", "-g", group)
    assert client in connections
    assert "PYTHON" in connections
    seen = mqadmin("consumerStatus", "-g", group, "-i", client)
    for text in (
        "PROP_CONSUME_TYPE",
        "CONSUME_PASSIVELY",
        "PROP_CONSUMER_START_TIMESTAMP",
        topic,
        f"%RETRY%{group}",
        "#Consumer RT&TPS#",
    ):
        assert text in seen
    assert "ours.py" not in seen, "stacks are for those who ask"
    stacks = mqadmin("consumerStatus", "-g", group, "-i", client, "-s")
    assert "ours.py" in stacks, "where our program is"
    assert client in mqadmin("consumerStatus", "-g", group)
    leave(consumer)


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("iterate", [False, True])
def test_operators_hand_one_message_to_our_consumer(pair: Pair, mqadmin: Tool, orderly: bool, iterate: bool) -> None:
    topic, group = pair.topic("Pushed"), pair.name("pushed")
    (sent,) = java(pair).produce(topic=topic, count=1, tag="TagP", keys="pushed")
    consumer, client = listening(pair, topic, group, orderly=orderly, iterate=iterate)
    first = wait_for(consumer, "body")
    said = mqadmin("queryMsgById", "-i", sent.offset_msg_id, "-g", group, "-d", client)
    again = wait_for(consumer, "body")
    assert (again["msgId"], again["queueOffset"], again["topic"]) == (first["msgId"], first["queueOffset"], topic)
    assert "CR_SUCCESS" in said
    assert f"order={str(orderly).lower()}" in said
    leave(consumer)


@pytest.mark.parametrize("orderly", [False, True])
def test_operators_move_our_group_back_and_on(pair: Pair, mqadmin: Tool, orderly: bool) -> None:
    topic, group = pair.topic("Moved"), pair.name("moved")
    open_group(pair, topic, group)
    consumer, _ = listening(pair, topic, group, orderly=orderly)
    sent = java(pair).produce(topic=topic, count=12, body="moved")
    bodies = {message.body.decode() for message in sent}
    gather(consumer, bodies)
    committed(pair, topic, group, [3] * 4)
    move_back(pair, consumer, bodies, mqadmin, group, topic, int(time.time() * 1000) - 3_600_000)
    committed(pair, topic, group, [3] * 4)
    mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "now")
    (last,) = java(pair).produce(topic=topic, count=1, body="last")
    assert wait_for(consumer, "body")["body"] == last.body.decode()
    leave(consumer)


# --- iteration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderly", [False, True])
def test_we_iterate_over_what_java_sends(pair: Pair, orderly: bool) -> None:
    topic, group = pair.topic("Iterated"), pair.name("iterated")
    open_group(pair, topic, group)
    sent = java(pair).produce(topic=topic, count=20, shard=4, tag="TagA,TagB", keys="order", props="n:#")
    outcome = consume(pair, topic, group, 20, iterate=True, orderly=orderly)
    assert_same(pair.server, sent, outcome.messages)
    for queue in range(4):
        at = [line["queueOffset"] for line in outcome.messages if line["queueId"] == queue]
        assert at == sorted(at) or not orderly
    committed(pair, topic, group, [5] * 4)


def test_what_is_refused_in_iteration_comes_back(pair: Pair) -> None:
    topic, group = pair.topic("Refused", 1), pair.name("refused")
    sent = java(pair).produce(topic=topic, count=3, tag="TagR", keys="retry")
    outcome = consume(pair, topic, group, 3, fail=2, iterate=True)
    assert_same(pair.server, sent, outcome.messages)
    again = {line["msgId"]: line["reconsumeTimes"] for line in outcome.messages if line["reconsumeTimes"]}
    assert again == {line["refused"]: 1 for line in outcome.refused}
    assert len(again) == 2
    committed(pair, f"%RETRY%{group}", group, [2])


def test_iteration_shares_a_group_with_java(pair: Pair) -> None:
    topic, group = pair.topic("Mixed"), pair.name("mixed")
    theirs = java(pair).start(
        "consume", instance=pair.name("member"), topic=topic, group=group, expect=1000, seconds=150
    )
    wait_for(theirs, "started")
    ours, _ = listening(pair, topic, group, instance=pair.name("member"), iterate=True)
    sent = java(pair).produce(topic=topic, count=200, body="mixed")
    left = {message.body.decode() for message in sent}
    until = time.monotonic() + 60
    while left and time.monotonic() < until:
        for member in (theirs, ours):
            left -= {line["body"] for line in gather_some(member, left, 0.2)}
    assert not left, f"{len(left)} never came: {sorted(left)[:20]}"
    ours.stop()
    finish(ours, status=1)
    more = java(pair).produce(topic=topic, count=8, body="more")
    gather(theirs, {message.body.decode() for message in more})  # it has all queues now
    theirs.stop()
    finish(theirs, status=1)
