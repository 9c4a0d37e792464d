"""Hooks around sends, on every runtime."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

from mqproto import CheckForbiddenHook, CommunicationMode, LocalTransactionState, Message, SendContext, SendMessageHook
from mqproto.errors import InvalidMessage, SendFailed
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio


class ForbiddenError(Exception):
    """An error of the application's own."""


class Refusing(CheckForbiddenHook):
    """Lets some sends pass."""

    def __init__(self, after: int = 0) -> None:
        self._left = after

    def check_forbidden(self, context: SendContext) -> None:
        self._left -= 1
        if self._left < 0:
            raise ForbiddenError(context.group)


class Watching(SendMessageHook):
    """Notes what it sees, and adds a property to what is sent."""

    def __init__(self) -> None:
        self.seen: SimpleQueue[tuple[str, SendContext]] = SimpleQueue()

    def send_message_before(self, context: SendContext) -> None:
        for message in [context.message] if isinstance(context.message, Message) else context.message:
            message.properties["trace"] = context.mode.value
        context.attributes["mine"] = len(context.attributes)
        self.seen.put(("before", context))

    def send_message_after(self, context: SendContext) -> None:
        self.seen.put(("after", context))

    def both(self) -> SendContext:
        """One send, before and after."""
        moment, context = self.seen.get(timeout=PATIENCE)
        assert moment == "before"
        assert self.seen.get(timeout=PATIENCE) == ("after", context)
        assert context.attributes == {"mine": 0}
        return context


class Broken(SendMessageHook):
    def send_message_before(self, context: SendContext) -> None:
        raise ValueError("before")

    def send_message_after(self, context: SendContext) -> None:
        raise ValueError("after")


def test_hooks_see_every_send_and_may_add_to_it(world: World) -> None:
    """MSG-01: what a hook adds is a property of its own, glued to none."""
    producer = world.producer()
    watching = Watching()
    producer.register_send_message_hook(Broken())
    producer.register_send_message_hook(watching)
    message = Message(world.topic, b"one", tags="A")
    result = producer.send(message)
    context = watching.both()
    assert (context.group, context.namespace, context.mode) == (producer.group, "", CommunicationMode.SYNC)
    assert (context.result, context.error, context.queue) == (result, None, None)
    assert message.properties == {}, "the application's message stays as it is"
    producer.send([Message(world.topic, b"two"), Message(world.topic, b"three")], queue=result.queue)
    assert watching.both().queue == result.queue
    producer.send(message, selector=lambda queues, message, argument: queues[3])
    assert watching.both().queue.queue_id == 3  # type: ignore[union-attr]
    producer.send_oneway(Message(world.topic, b"four"))
    context = watching.both()
    assert (context.mode, context.result, context.error) == (CommunicationMode.ONEWAY, None, None)
    with pytest.raises(InvalidMessage):
        producer.send(Message(world.topic, b""))
    context = watching.both()
    assert isinstance(context.error, InvalidMessage)
    assert context.result is None
    received = world.collect().wait(5)
    assert {one.body: one.properties["trace"] for one in received} == {
        b"one": "SYNC",
        b"two": "SYNC",
        b"three": "SYNC",
        b"four": "ONEWAY",
    }
    assert {one.body: one.tags for one in received} == {b"one": "A", b"two": None, b"three": None, b"four": None}


def test_hooks_of_futures(world: World) -> None:
    if isinstance(world.runtime, Anyio):
        pytest.skip("`send` is awaited there")
    producer = world.producer()
    watching = Watching()
    producer.register_send_message_hook(watching)
    future = producer.submit(Message(world.topic, b"x"))
    context = watching.both()
    assert context.mode is CommunicationMode.ASYNC
    assert context.result == world.runtime.call(future.result, PATIENCE)
    producer.submit(Message(world.topic, b""))
    assert isinstance(watching.both().error, InvalidMessage)


def test_hooks_of_requests(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"makes the topic"))
    watching = Watching()
    producer.register_send_message_hook(watching)
    failure = world.ask_in_vain(producer, b"x")
    while (context := watching.both()).error is not failure:
        assert isinstance(context.error, SendFailed)
    assert context.mode is CommunicationMode.SYNC
    if not isinstance(world.runtime, Anyio):
        future = producer.submit_request(Message(world.topic, b"y"), timeout_ms=300)
        context = watching.both()
        assert context.mode is CommunicationMode.ASYNC
        assert context.error is world.runtime.call(future.exception, 0)
    producer.register_check_forbidden_hook(Refusing())
    with pytest.raises(ForbiddenError):
        producer.request(Message(world.topic, b"x"))


def test_hooks_of_messages_in_transactions(world: World) -> None:
    producer = world.start(
        world.runtime.module.TransactionProducer, f"t-{world.group}", (commit, commit), world.namesrv
    )
    watching = Watching()
    producer.register_send_message_hook(watching)
    result = producer.send_in_transaction(Message(world.topic, b"x"))
    context = watching.both()
    assert context.result is not None
    assert context.result.msg_id == result.msg_id
    (message,) = world.collect().wait(1)
    assert message.properties["trace"] == "SYNC"
    producer.register_check_forbidden_hook(Refusing())
    with pytest.raises(ForbiddenError):
        producer.send_in_transaction(Message(world.topic, b"x"))


def commit(message: Any, argument: object = None) -> LocalTransactionState:
    return LocalTransactionState.COMMIT_MESSAGE


def test_hooks_that_forbid(world: World) -> None:
    producer = world.producer()
    watching = Watching()
    producer.register_send_message_hook(watching)
    producer.register_check_forbidden_hook(Refusing())
    sends = [producer.send, producer.send_oneway] + ([] if isinstance(world.runtime, Anyio) else [producer.submit])
    for send in sends:
        with pytest.raises(ForbiddenError, match=producer.group):
            send(Message(world.topic, b"x"))
    assert watching.seen.empty(), "what is forbidden does not begin"
