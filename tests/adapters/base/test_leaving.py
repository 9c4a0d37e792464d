"""Leaving of clients as brokers see it, on every runtime: groups, offsets, queues and their locks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message
from mqproto.errors import NoClients
from mqproto.wire.bodies import ConsumeFromWhere
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Collector, Runtime

COUNT = 8


def filled(world: World) -> None:
    producer = world.producer("filler")
    for number in range(COUNT):
        producer.send(Message(world.topic, b"%d" % number))


def consume(runtime: Runtime, consumer: Any, count: int) -> None:
    """Iterate over so many messages, acknowledging each where that is the consumer's way."""

    def took(message: Any) -> None:
        if hasattr(consumer._target, "ack"):
            assert consumer._target.ack(message)

    def plain() -> None:
        for _ in range(count):
            took(next(consumer._target))
        if not hasattr(consumer._target, "ack"):
            consumer._target.poll(0)  # says that the last one is done with

    async def task() -> None:
        for _ in range(count):
            took(await anext(consumer._target))
        if not hasattr(consumer._target, "ack"):
            await consumer._target.poll(0)

    runtime.call(task if isinstance(runtime, Anyio) else plain)


def consumed_by_push(world: World, **settings: Any) -> Any:
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(listener, **settings)
    collector.wait(COUNT)
    return consumer


def consumed_by_iteration(kind: str) -> Callable[..., Any]:
    def consumed(world: World, **settings: Any) -> Any:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer = world.make(
            getattr(world.runtime.module, kind), world.group, world.namesrv, consume_from_where=first, **settings
        )
        consumer.subscribe(world.topic)
        consumer.start()
        consume(world.runtime, consumer, COUNT)
        return consumer

    return consumed


def consumed_by_pull(world: World, **settings: Any) -> Any:
    consumer = world.make(world.runtime.module.PullConsumer, world.group, world.namesrv, **settings)
    consumer.register_message_queue_listener(world.topic)
    consumer.start()
    for queue in consumer.fetch_subscribe_message_queues(world.topic):
        consumer.update_consume_offset(queue, consumer.max_offset(queue))
    return consumer


CONSUMED: dict[str, Callable[..., Any]] = {
    "PushConsumer": consumed_by_push,
    "Consumer": consumed_by_iteration("Consumer"),
    "LitePullConsumer": consumed_by_iteration("LitePullConsumer"),
    "PullConsumer": consumed_by_pull,
}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", CONSUMED)
def test_a_member_that_leaves(world: World, kind: str, shared: bool) -> None:
    """At the return of `close` the broker knows no member of the group any more, and its offsets are stored; also where
    the connection stays, because others use it.
    """
    filled(world)
    name = "one" if shared else ""
    world.producer("other", instance_name=name).send(Message("elsewhere", b"x"))
    admin = world.start(world.runtime.module.Admin, world.namesrv)
    ask = world.runtime.call
    consumer = CONSUMED[kind](world, instance_name=name)
    assert [member.client_id for member in ask(admin._target.groups.connection, world.group).connections] == [
        consumer.client_id
    ]
    consumer.close()
    with pytest.raises(NoClients):
        ask(admin._target.groups.connection, world.group)
    progress = ask(admin._target.groups.progress, world.group, world.topic)
    assert sum(row.consumer_offset for row in progress.queues) == COUNT


@pytest.mark.parametrize("kind", ["Producer", "TransactionProducer"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_producer_that_leaves(world: World, kind: str, shared: bool) -> None:
    filled(world)
    name = "one" if shared else ""
    world.producer("other", instance_name=name).send(Message(world.topic, b"x"))
    admin = world.start(world.runtime.module.Admin, world.namesrv)
    listener = () if kind == "Producer" else ((lambda *_: None, lambda *_: None),)
    producer = world.start(
        getattr(world.runtime.module, kind), world.group, *listener, world.namesrv, instance_name=name
    )
    producer.send(Message(world.topic, b"x"))
    ask = world.runtime.call

    def known() -> list[str]:
        try:
            return [member.client_id for member in ask(admin._target.groups.producers, world.group, world.topic)]
        except NoClients:
            return []

    while known() != [producer.client_id]:  # by a heartbeat, that nobody waits for
        pass
    producer.close()
    assert known() == []


@pytest.mark.parametrize("kind", ["PushConsumer", "Consumer"])
def test_the_locks_of_queues_are_given_up(world: World, kind: str) -> None:
    """The next member has them at once: a lock that was left behind would keep it out for a minute, and the test does
    not wait so long.
    """
    filled(world)
    consumer = CONSUMED[kind](world, orderly=True)
    consumer.close()
    world.producer("filler-2").send(Message(world.topic, b"later"))
    came = threading.Event()
    world.consumer(lambda messages, context: came.set(), orderly=True, instance_name="next")
    assert came.wait(PATIENCE / 2)
