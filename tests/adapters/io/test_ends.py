"""The end of clients on every runtime: when, how often and from where they are closed, and who goes first."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message
from mqproto.errors import (
    BrokerError,
    NoClients,
    NoNameServer,
    SendFailed,
    StateError,
)
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Collector, Proxy, holder


def test_starting_and_closing_out_of_turn(world: World) -> None:
    """CON-14: close twice, close before the start, start again."""
    for client in (world.producer(), world.consumer(lambda messages, context: None)):
        with pytest.raises(StateError, match="started already"):
            client.start()
        client.close()
        client.close()
        with pytest.raises(StateError, match="make a new one"):
            client.start()
    closed = world.producer("another")
    closed.close()
    with pytest.raises(StateError, match="closed"):
        closed.send(Message(world.topic, b"x"))
    fresh = world.consumer(lambda messages, context: None, start=False, group="fresh")
    fresh.close()
    with pytest.raises(StateError):
        fresh.start()


def test_closing_waits_for_the_listener_and_keeps_what_it_did(world: World) -> None:
    """CON-14."""
    began, go_on = threading.Event(), threading.Event()
    hold = holder(world.runtime, go_on)

    def slow(messages: Any, context: Any) -> ConsumeStatus:
        began.set()
        hold()
        return ConsumeStatus.SUCCESS

    world.producer().send(Message(world.topic, b"once"))
    consumer = world.consumer(slow, plain=True)
    assert began.wait(PATIENCE)
    closing = threading.Thread(target=consumer.close, args=(60_000,))
    closing.start()
    go_on.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    world.producer("another").send(Message(world.topic, b"twice"))
    assert [message.body for message in world.collect().wait(1)] == [b"twice"]


def test_a_listener_that_does_not_end_delays_closing_by_the_timeout_alone(world: World) -> None:
    """CON-14."""
    began, go_on = threading.Event(), threading.Event()
    hold = holder(world.runtime, go_on)

    def stuck(messages: Any, context: Any) -> None:
        began.set()
        hold()

    world.producer().send(Message(world.topic, b"x"))
    consumer = world.consumer(stuck, plain=True)
    assert began.wait(PATIENCE)
    consumer.close(100)
    assert not go_on.is_set()
    go_on.set()


def test_closing_from_inside_the_listener(world: World) -> None:
    """CON-14."""
    closed = threading.Event()
    consumers: list[Any] = []
    runtime = world.runtime

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        consumers[0].close()
        closed.set()
        return ConsumeStatus.SUCCESS

    async def async_listener(messages: Any, context: Any) -> ConsumeStatus:
        try:
            await consumers[0].close()
        finally:
            closed.set()
        return ConsumeStatus.SUCCESS

    world.producer().send(Message(world.topic, b"x"))
    function = async_listener if isinstance(runtime, Anyio) else listener
    consumer = Proxy(runtime, runtime.call(runtime.module.PushConsumer, world.group, function, world.namesrv))
    consumers.append(consumer._target)
    consumer.subscribe(world.topic)
    consumer.start()
    producer = world.producer("another")
    while not closed.wait(0.01):  # a new group begins at the end, which it finds out first
        producer.send(Message(world.topic, b"y"))
    consumer.close()


def test_closing_while_a_pull_waits_at_the_broker(world: World) -> None:
    """CON-14: at once, with its offsets stored and its group unregistered."""
    world.producer().send(Message(world.topic, b"x"))
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(listener)
    collector.wait(1)
    consumer.close()
    admin = world.start(world.runtime.module.Admin, world.namesrv)._target
    with pytest.raises(NoClients):
        world.runtime.call(admin.groups.connection, world.group)
    progress = world.runtime.call(admin.groups.progress, world.group)
    assert sum(one.consumer_offset for one in progress.queues if one.queue.topic == world.topic) == 1


def test_the_server_may_go_first(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"x"))
    collector = world.collect()
    collector.wait(1)
    world.server.close()
    with pytest.raises((SendFailed, NoNameServer, BrokerError)):
        producer.send(Message(world.topic, b"y"), timeout_ms=500)
