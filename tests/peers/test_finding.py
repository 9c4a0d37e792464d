"""Namespaces, local offset files and ways of sharing queues out, with Apache's Java client as the other member."""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest

from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import text_order
from mqproto.state.consumer.allocation.strategies import find_strategy
from tests.peers.kit.checks import Sent
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import JavaClient, ProcessClient, Running, finish, wait_for
from tests.peers.kit.steps import committed, consume, next_within, open_group, pull

pytestmark = pairs("ours-threaded @ apache:4.9.7", "ours-trio @ apache:5.3.3")

NAMESPACE = "MQ_INST_1_x"


def java(pair: Pair) -> Pair:
    """The same server with the Java client."""
    return pair.other("java-4.9.7")


def test_a_namespace_is_the_same_for_java_and_us(pair: Pair) -> None:
    """NSP-01: topics, groups and message properties; the wire has whole names."""
    topic, group = pair.name("Spaced"), pair.name("spaced")
    ours = pair.produce(topic=topic, count=4, namespace=NAMESPACE, tag="TagA", body="ours")
    theirs = java(pair).produce(topic=topic, count=4, namespace=NAMESPACE, tag="TagA", body="theirs")
    everything = {message.body.decode() for message in [*ours, *theirs]}
    stored = pull(java(pair), f"{NAMESPACE}%{topic}", 8)
    assert {line["body"] for line in stored} == everything
    assert {line["properties"]["INSTANCE_ID"] for line in stored} == {NAMESPACE}
    assert len({frozenset(line["properties"]) for line in stored}) == 1, "both set the same properties"
    for one in (java(pair), pair):
        found = consume(one, topic, f"{group}-{one.client.kind[:4]}", 8, namespace=NAMESPACE).messages
        assert {(line["topic"], line["body"]) for line in found} == {(topic, body) for body in everything}


def test_a_refused_message_comes_back_inside_its_namespace(pair: Pair) -> None:
    """Sent by one, refused by the other, with the same retry topic."""
    for sender, receiver in ((pair, java(pair)), (java(pair), pair)):
        topic, group = pair.name("Back"), pair.name("back")
        sender.produce(topic=topic, count=2, namespace=NAMESPACE)
        outcome = consume(receiver, topic, group, 2, fail=1, threads=1, namespace=NAMESPACE)
        assert {line["topic"] for line in outcome.messages} == {topic}
        assert sorted(line["reconsumeTimes"] for line in outcome.messages) == [0, 1]
        (again,) = pull(java(pair), f"%RETRY%{NAMESPACE}%{group}", 1)
        assert again["properties"]["RETRY_TOPIC"] == f"{NAMESPACE}%{topic}"


@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_that_uses_the_second_port(pair: Pair, orderly: bool) -> None:
    """Members, locks, offsets and messages that are sent back go there; pulls and heartbeats do not."""
    topic, group = pair.topic("Vip"), pair.name("vip")
    open_group(pair, topic, group)
    sent = pair.produce(topic=topic, count=8, vip=True)
    outcome = consume(pair, topic, group, 8, vip=True, orderly=orderly, fail=1, threads=1)
    assert {line["body"] for line in outcome.messages} == {message.body.decode() for message in sent}
    assert len(outcome.refused) == 1
    committed(pair, topic, group, [2] * 4)


@pytest.mark.parametrize("namespace", ["", NAMESPACE])
def test_a_broadcast_group_goes_on_from_the_file_that_the_other_wrote(pair: Pair, namespace: str) -> None:
    """The path, the keys and the numbers; what each does not know of the other's topics stays in the file."""
    topic, second = pair.name("File"), pair.name("Second")
    group, instance = pair.name("file"), pair.name("host")
    options = {"group": group, "model": "BROADCASTING", "instance": instance, "settle": 1500, "namespace": namespace}
    if not namespace:
        del options["namespace"]
    here, there = pair.client, java(pair).client
    assert isinstance(here, ProcessClient)
    assert isinstance(there, JavaClient)
    spaced = {"namespace": namespace} if namespace else {}
    first = pair.produce(topic=topic, count=8, body="first", **spaced)
    assert_bodies(java(pair), first, topic=topic, expect=8, **options)
    shutil.copytree(there.offsets, here.offsets, dirs_exist_ok=True)
    more = pair.produce(topic=topic, count=4, body="more", **spaced)
    other = pair.produce(topic=second, count=4, body="other", **spaced)
    assert_bodies(pair, [*more, *other], topic=f"{topic},{second}", expect=8, **options)
    shutil.copytree(here.offsets, there.offsets, dirs_exist_ok=True)
    last = pair.produce(topic=topic, count=4, body="last", **spaced)
    assert_bodies(java(pair), last, topic=topic, expect=4, **options)
    (text,) = [path.read_text() for path in there.offsets.rglob("offsets.json") if path.parent.name.endswith(group)]
    assert topic in text


def assert_bodies(pair: Pair, sent: list[Sent], **options: Any) -> None:
    """The consumer gets exactly these messages."""
    outcome = pair.run("consume", **options)
    assert sorted(line["body"] for line in outcome.messages) == sorted(message.body.decode() for message in sent)


@pytest.mark.parametrize("way", ["AVG_BY_CIRCLE", "CONSISTENT_HASH", "a namespace"])
def test_java_and_we_share_queues_out_in_the_same_way(pair: Pair, way: str) -> None:
    """Every queue has one owner, the one that both compute."""
    spaced: dict[str, Any] = {}
    if way == "a namespace":
        strategy, spaced = "AVG", {"namespace": NAMESPACE}
        topic, count = pair.name("Ways"), 4
    else:
        strategy = way
        topic, count = pair.topic("Ways", 8), 8
    group = pair.name("ways")
    broker_name = pair.run("produce", topic=topic, count=1, **spaced).sent[0]["broker"]
    options = {"topic": topic, "group": group, "strategy": strategy, "expect": 10_000, "seconds": 180, **spaced}
    names = [pair.name("member") for _ in range(3)]
    members = [
        one.start("consume", instance=name, **options)
        for one, name in zip((pair, java(pair), pair), names, strict=True)
    ]
    ip = wait_for(members[0], "clientId")["clientId"].partition("@")[0]
    for member in members[1:]:
        wait_for(member, "started")
    ids = sorted((f"{ip}@{name}" for name in names), key=text_order)
    queues = [MessageQueue(topic, broker_name, number) for number in range(count)]
    expected = [
        {one.queue_id for one in find_strategy(strategy).allocate(group, f"{ip}@{name}", queues, ids)} for name in names
    ]
    assert sorted(number for share in expected for number in share) == list(range(count))
    until = time.monotonic() + 120
    while (found := one_round(pair, topic, members, until, 2 * count, **spaced)) != expected:
        assert time.monotonic() < until, f"queues stayed with {found}, not {expected}"
    for member in members:
        member.stop()
        finish(member, status=1)


def one_round(
    pair: Pair, topic: str, members: list[Running], until: float, count: int, **spaced: Any
) -> list[set[int]]:
    """Two messages for each queue: which member took from which queues."""
    mark = pair.name("round")
    left = {message.body.decode() for message in pair.produce(topic=topic, count=count, body=mark, **spaced)}
    taken: list[set[int]] = [set() for _ in members]
    while left:
        assert time.monotonic() < until, f"{left} were not consumed"
        for queues, member in zip(taken, members, strict=True):
            line = next_within(member, 0.01)
            if line is not None and line.get("body", "").startswith(mark):
                queues.add(line["queueId"])
                left.discard(line["body"])
    return taken
