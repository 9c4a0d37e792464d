"""Checks of clusters: one violation at a time is put into a cluster in which all is well, and is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mqproto.adapters.simulated import Cluster, SimulatedConditions, SimulatedConsumer, SimulatedProducer, checks
from mqproto.message import ConsumeStatus, Message, MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import ConsumeFromWhere


class Scene:
    """A quiet cluster after some work."""

    def __init__(self, **settings: str) -> None:
        self.cluster = Cluster(1, conditions=SimulatedConditions(delay_max=1, job_max=1), settings=settings)
        self.producer: SimulatedProducer = self.cluster.producer("shop")
        self.consumer: SimulatedConsumer = self.cluster.consumer(
            "readers",
            lambda messages: ConsumeStatus.SUCCESS,
            topics=("orders",),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ).start()
        for number in range(20):
            self.producer.send(Message("orders", b"%d" % number))
        self.cluster.run_for(60_010)

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue("orders", "broker-a", 0)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_all_is_well(scene: Scene) -> None:
    assert checks.at_rest(scene.cluster) == []
    stored, violations = checks.read_logs(scene.cluster)
    assert violations == []
    assert sum(len(messages) for queue, messages in stored.items() if queue.topic == "orders") == 20


def settled_twice(scene: Scene) -> None:
    scene.cluster.records.sends[3].wakes += 1


def late(scene: Scene) -> None:
    scene.cluster.records.sends[3].budget_ms = 0


def never_settled(scene: Scene) -> None:
    scene.cluster.records.sends[3].ended = None


def beyond(scene: Scene) -> None:
    scene.cluster.broker.node.offsets.table["orders@readers"][0] += 1


def out_of_order(scene: Scene) -> None:
    deliveries = scene.cluster.records.deliveries
    first, second = [number for number, delivery in enumerate(deliveries) if delivery.queue == scene.queue][:2]
    deliveries[first], deliveries[second] = deliveries[second], deliveries[first]


def not_consumed(scene: Scene) -> None:
    scene.cluster.records.deliveries[5].result = ConsumeStatus.RECONSUME_LATER


def lost(scene: Scene) -> None:
    queue = scene.cluster.broker.node.store.find_queue("orders", 1)
    assert queue is not None
    queue.max_offset -= 1


def damaged(scene: Scene) -> None:
    store = scene.cluster.broker.node.store
    record = store.reader.record(0)
    assert record is not None
    record[20:28] = bytes(7) + b"\x05"  # its queue offset


def place_given_twice(scene: Scene) -> None:
    first, second = scene.cluster.records.sends[:2]
    result = replace(
        first.ticket.result(), queue=second.ticket.result().queue, queue_offset=second.ticket.result().queue_offset
    )
    first.ticket = Ticket()
    first.ticket.settle(result)


def two_owners(scene: Scene) -> None:
    other = scene.cluster.consumer("readers", lambda messages: None, topics=("orders",))
    checks.owned(other)[scene.queue] = ProcessQueue(scene.queue, 0)


def no_owner(scene: Scene) -> None:
    del checks.owned(scene.consumer)[scene.queue]


def unfinished(scene: Scene) -> None:
    process_queue = checks.owned(scene.consumer)[scene.queue]
    process_queue.put([replace(scene.consumer.messages[0], queue_offset=100)], 101)


def unanswered(scene: Scene) -> None:
    scene.cluster.broker.freeze()
    scene.producer.begin(lambda now: scene.producer.core.send(Message("orders", b"x"), now))


def unsent(scene: Scene) -> None:
    next(iter(scene.cluster.broker.node.links)).unsent = 1


def much_unsent(scene: Scene) -> None:
    scene.producer.node.all_links()[0].unsent = 1 << 30


def not_flushed(scene: Scene) -> None:
    assert scene.cluster.broker.host is not None
    scene.cluster.broker.host.conditions = SimulatedConditions(job_min=3_000, job_max=3_000)
    scene.producer.submit(Message("orders", b"x"))
    scene.cluster.run_for(20)


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [
        (settled_twice, "was settled 2 times"),
        (late, "of 0 ms"),
        (never_settled, "is not settled"),
        (beyond, "has not finished"),
        (out_of_order, "after"),
        (not_consumed, "was never consumed by readers"),
        (lost, "has at"),
        (damaged, "not its own message"),
        (place_given_twice, "has at"),
        (two_owners, "is with ['client-2', 'client-3']"),
        (no_owner, "is with nobody of readers"),
        (unfinished, "still has 1 messages"),
        (unanswered, "has operations in flight"),
        (unsent, "1 bytes unsent"),
        (much_unsent, "bytes unsent to"),
        (not_flushed, "has flushed"),
    ],
)
def test_a_violation_is_found(scene: Scene, spoil: Callable[[Scene], None], wanted: str) -> None:
    spoil(scene)
    violations = checks.at_rest(scene.cluster)
    assert any(wanted in violation for violation in violations), violations


def test_acknowledgements_that_wait_and_calls_are_seen() -> None:
    scene = Scene(flushDiskType="SYNC_FLUSH")
    assert checks.at_rest(scene.cluster) == []
    assert scene.cluster.broker.host is not None
    scene.cluster.broker.host.conditions = SimulatedConditions(job_min=3_000, job_max=3_000)
    scene.producer.submit(Message("orders", b"x"))
    scene.cluster.run_for(20)
    violations = checks.at_rest(scene.cluster)
    assert any("still holds 1 acknowledgements" in violation for violation in violations), violations


def test_what_was_never_promised_is_not_asked_for() -> None:
    """Failed sends, one-way sends, and what power loss may take."""
    scene = Scene()
    sent = scene.cluster.records.sends[0]
    assert checks.promised(scene.cluster, sent) == [sent.ticket.result().msg_id]
    scene.cluster.broker.power_losses.append(sent.begun - 1)
    assert checks.promised(scene.cluster, sent) != [], "it was stored after that"
    scene.cluster.broker.power_losses.append(sent.begun)
    assert checks.promised(scene.cluster, sent) == []
    sent.oneway = True
    assert checks.promised(scene.cluster, sent) == []
    strict = Scene(flushDiskType="SYNC_FLUSH")
    synced = strict.cluster.records.sends[0]
    strict.cluster.broker.power_losses.append(synced.begun)
    assert checks.promised(strict.cluster, synced) != []
    synced.messages[0].wait = False
    assert checks.promised(strict.cluster, synced) == []


def test_filters_are_respected() -> None:
    cluster = Cluster(1, conditions=SimulatedConditions(delay_max=1, job_max=1))
    producer = cluster.producer("shop")
    options: Any = {"topics": ("orders",), "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    cluster.consumer("painters", lambda messages: ConsumeStatus.SUCCESS, expression="red || blue", **options).start()
    for tag in ("red", "green", None, "blue"):
        producer.send(Message("orders", b"x", tag))
    cluster.run_for(60_010)
    assert checks.at_rest(cluster) == []
    cluster.records.deliveries.pop()
    assert any("was never consumed by painters" in violation for violation in checks.at_rest(cluster))


class Clerks:
    """Two members of a group that consumes in order, after some work."""

    def __init__(self) -> None:
        self.cluster = Cluster(1, conditions=SimulatedConditions(delay_max=1, job_max=1))
        producer = self.cluster.producer("shop")
        producer.send(Message("orders", b"x"))
        options: Any = {
            "topics": ("orders",),
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            "orderly": True,
        }
        for _ in range(2):
            self.cluster.consumer("clerks", lambda messages: ConsumeStatus.SUCCESS, takes_ms=5, **options).start()
        self.cluster.run_for(60_000)
        for number in range(20):
            producer.send(Message("orders", b"%d" % number))
        self.cluster.run_for(60_010)
        assert checks.at_rest(self.cluster) == []
        queue = MessageQueue("orders", "broker-a", 0)
        #: Deliveries of one queue.
        self.deliveries = [delivery for delivery in self.cluster.records.deliveries if delivery.queue == queue]
        (self.other,) = [
            consumer for consumer in self.cluster.consumers if consumer.name != self.deliveries[-1].consumer
        ]


def test_a_message_that_passes_another_is_seen() -> None:
    scene = Clerks()
    scene.deliveries[2].behind -= 1
    assert any("had succeeded" in violation for violation in checks.always(scene.cluster))


def test_two_listeners_with_one_queue_are_seen_unless_nothing_could_be_done() -> None:
    scene = Clerks()
    last, before = scene.deliveries[-1], scene.deliveries[-2]
    before.consumer = scene.other.name
    before.ended = last.begun + 1
    assert any("was with" in violation for violation in checks.always(scene.cluster))
    scene.cluster.broker.starts.append(last.begun - 1_000)
    assert checks.always(scene.cluster) == [], "the broker had forgotten the lock"
    scene.cluster.broker.starts.pop()
    before.ended = last.begun
    assert checks.always(scene.cluster) == [], "one after the other"
    before.ended = None
    scene.other.host.died_at = last.begun
    assert checks.always(scene.cluster) == [], "it was dead"
    scene.other.host.died_at = None
    scene.other.freeze()
    assert any("was with" in violation for violation in checks.alone(scene.cluster)), "frozen, but later"
    scene.other._sleeps.append((before.begun, last.begun))
    assert checks.alone(scene.cluster) == []
