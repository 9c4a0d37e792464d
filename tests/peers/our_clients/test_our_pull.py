"""Our pull and lite pull consumers, over every adapter, against Apache's servers, with Apache's Java client at the
other end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.peers.kit.checks import assert_same
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import finish, wait_for
from tests.peers.kit.steps import committed, gather, move_back, offsets, open_group, pull, share_out

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


# --- pulls


def test_we_pull_what_java_sends(pair: Pair) -> None:
    topic = pair.topic("Pulled")
    sent = java(pair).produce(topic=topic, count=40, tag="TagA,TagB,TagC", keys="pull", props="n:#")
    assert_same(pair.server, sent, pull(pair, topic, 40))
    assert_same(pair.server, sent[1::3], pull(pair, topic, 13, tag="TagB"))
    some = pair.run("pull", topic=topic, group=pair.name("some"), max=7).messages
    assert len(some) == 7


def test_large_and_compressed_bodies(pair: Pair) -> None:
    topic = pair.topic("Packed")
    sent = java(pair).produce(topic=topic, count=3, size=30_000)
    assert_same(pair.server, sent, pull(pair, topic, 3))


def test_a_topic_that_does_not_exist(pair: Pair) -> None:
    outcome = pair.run("pull", topic=pair.name("NoSuchTopic"), group="pullers", status=2)
    assert outcome.lines[-1]["error"] == "BrokerError"


def test_java_sees_the_offsets_that_we_store(pair: Pair) -> None:
    topic, group = pair.topic("Stored"), pair.name("stored")
    java(pair).produce(topic=topic, count=20, shard=4)
    pair.run("pull", topic=topic, group=group)
    committed(pair, topic, group, [5] * 4)
    assert [line["committed"] for line in offsets(pair, topic, group)] == [5] * 4


def test_we_see_the_offsets_that_java_stores(pair: Pair) -> None:
    topic, group = pair.topic("Read"), pair.name("read")
    open_group(pair, topic, group)
    sent = java(pair).produce(topic=topic, count=20, shard=4)
    java(pair).run("pull", topic=topic, group=group)
    committed(pair, topic, group, [5] * 4)
    # Where a time is found is the same for both; the last message was stored at a time that is known.
    when = pull(java(pair), topic, len(sent))[-1]["storeTimestamp"]
    ours, theirs = (offsets(one, topic, group, time=when) for one in (pair, java(pair)))
    assert ours == theirs


def test_properties_filter(pair: Pair) -> None:
    topic = pair.topic("Filtered")
    sent = java(pair).produce(topic=topic, count=12, props="n:#")
    assert_same(pair.server, sent[:5], pull(pair, topic, 5, tag="n between 0 and 4", kind="SQL92"))
    outcome = pair.run("litepull", topic=topic, group=pair.name("filtered"), expect=3, tag="n > 8", kind="SQL92")
    assert_same(pair.server, sent[9:], outcome.messages)


# --- polls


def test_we_poll_what_java_sends(pair: Pair) -> None:
    topic, group = pair.topic("Polled"), pair.name("polled")
    open_group(pair, topic, group)
    sent = java(pair).produce(topic=topic, count=12, shard=4, tag="TagA,TagB", keys="poll")
    assert_same(pair.server, sent, pair.run("litepull", topic=topic, group=group, expect=12).messages)
    committed(pair, topic, group, [3] * 4)
    more = java(pair).produce(topic=topic, count=8, tag="TagA,TagB", body="more")
    assert_same(pair.server, more[::2], pair.run("litepull", topic=topic, group=group, expect=4, tag="TagA").messages)


def test_messages_come_to_a_poll_that_waits(pair: Pair) -> None:
    topic = pair.topic("Waiting")
    consumer = pair.start("litepull", topic=topic, group=pair.name("waiting"), expect=4)
    wait_for(consumer, "started")
    sent = java(pair).produce(topic=topic, count=4)
    assert_same(pair.server, sent, finish(consumer).messages)


def test_java_goes_on_where_our_polls_ended_and_we_where_javas_did(pair: Pair) -> None:
    topic, group = pair.topic("Turns"), pair.name("turns")
    open_group(pair, topic, group)
    first = java(pair).produce(topic=topic, count=8, body="first")
    assert_same(pair.server, first, pair.run("litepull", topic=topic, group=group, expect=8, commit="sync").messages)
    committed(pair, topic, group, [2] * 4)
    second = java(pair).produce(topic=topic, count=8, body="second")
    assert_same(pair.server, second, java(pair).run("litepull", topic=topic, group=group, expect=8).messages)
    committed(pair, topic, group, [4] * 4)
    third = java(pair).produce(topic=topic, count=8, body="third")
    assert_same(pair.server, third, pair.run("litepull", topic=topic, group=group, expect=8).messages)


def test_java_and_we_share_the_queues_of_a_group(pair: Pair) -> None:
    topic, group = pair.topic("Shared"), pair.name("shared")
    options = {"topic": topic, "group": group, "expect": 1000, "seconds": 180}
    theirs, ours = (one.start("litepull", **options) for one in (java(pair), pair))
    for member in (theirs, ours):
        wait_for(member, "started")
    one, two = share_out(java(pair), topic, [theirs, ours])
    assert not one & two
    theirs.stop()
    finish(theirs, status=1)
    assert share_out(java(pair), topic, [ours]) == [{0, 1, 2, 3}]
    ours.stop()
    finish(ours, status=1)


def test_nothing_is_lost_when_members_change(pair: Pair) -> None:
    topic, group = pair.topic("Passed"), pair.name("passed")
    options = {"topic": topic, "group": group, "expect": 1000, "seconds": 100}
    members = [pair.start("litepull", **options)]
    wait_for(members[0], "started")
    first = java(pair).produce(topic=topic, count=100, body="first")
    members.append(pair.start("litepull", **options))
    second = java(pair).produce(topic=topic, count=100, body="second")
    wait_for(members[1], "started")
    members[0].stop()
    received = {line["body"] for line in finish(members[0], status=1).messages}
    everything = {message.body.decode() for message in [*first, *second]}
    gather(members[1], everything - received)
    members[1].stop()
    received |= {line["body"] for line in finish(members[1], status=1).messages}
    assert received == everything


def test_operators_see_and_move_a_lite_pull_consumer(pair: Pair, mqadmin: Callable[..., str]) -> None:
    topic, group = pair.topic("Seen"), pair.name("seen")
    open_group(pair, topic, group)
    bodies = {message.body.decode() for message in java(pair).produce(topic=topic, count=12, shard=4)}
    consumer = pair.start("litepull", topic=topic, group=group, expect=1000, seconds=150)
    client_id = wait_for(consumer, "started")["clientId"]
    gather(consumer, bodies)
    until = time.monotonic() + 60
    while "Diff Total: 0" not in (printed := mqadmin("consumerProgress", "-g", group)):
        assert time.monotonic() < until, printed
    connection = mqadmin("consumerConnection", "-g", group)
    assert client_id in connection
    assert "CONSUME_ACTIVELY" in connection
    move_back(pair, consumer, bodies, mqadmin, group, topic, 0)  # Java's lite pull consumer does not hear of this
    consumer.stop()
    finish(consumer, status=1)


def test_everybody_polls_a_broadcast_message(pair: Pair) -> None:
    topic, group = pair.topic("News"), pair.name("news")
    sent = java(pair).produce(topic=topic, count=8)
    instance = pair.name("member")
    options = {"topic": topic, "group": group, "model": "BROADCASTING", "instance": instance}
    assert_same(pair.server, sent, finish(pair.start("litepull", expect=8, **options)).messages)
    more = java(pair).produce(topic=topic, count=4, body="more")
    assert_same(pair.server, more, finish(pair.start("litepull", expect=4, **options)).messages)
    committed(pair, topic, group, [0] * 4)  # its offsets are its own, and they outlive the process
