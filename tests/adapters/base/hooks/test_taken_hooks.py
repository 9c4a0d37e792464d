"""Consume hooks of simple consumers, on every runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from mqproto import (
    ConsumeFromWhere,
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeOutcome,
    ConsumeStatus,
    FilterMessageContext,
    FilterMessageHook,
    Message,
    MessageExt,
)
from mqproto.state.consumer.push.concurrent import ConsumeTask
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio
from tests.adapters.watching import Broken, Watcher

LONG_MS = int(PATIENCE * 1000)
SUCCESS, FAILED = ConsumeOutcome.SUCCESS, ConsumeOutcome.FAILED


def watched(world: World, *hooks: ConsumeMessageHook, **settings: Any) -> Any:
    """A started consumer of the topic with hooks."""
    settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **settings}
    consumer = world.make(world.runtime.module.Consumer, world.group, world.namesrv, **settings)
    for hook in hooks:
        consumer.register_consume_message_hook(hook)
    consumer.subscribe(world.topic)
    consumer.start()
    return consumer


def send(world: World, *bodies: bytes) -> None:
    producer = world.producer()
    for body in bodies:
        producer.send(Message(world.topic, body))


def within(world: World, consumer: Any, change: Callable[[ConsumeTask, int], object]) -> None:
    """Do something to all that is out, inside the node."""
    core = consumer._target._core

    def change_all(now: int) -> None:
        for task in list(core.held.taken.values()):
            change(task, now)

    world.runtime.call(consumer._target._enter, change_all)


@pytest.mark.parametrize(
    ("status", "outcome"), [(ConsumeStatus.SUCCESS, SUCCESS), (ConsumeStatus.RECONSUME_LATER, FAILED)]
)
def test_an_answer_counts_as_what_it_is_also_where_the_close_is_the_first_to_say_so(
    world: World, status: ConsumeStatus, outcome: ConsumeOutcome
) -> None:
    """Whoever answers may be held up between the node and the hooks, while the close that waited for the answer goes
    on.
    """
    watcher = Watcher()
    consumer = watched(world, watcher)
    send(world, b"x")
    message = consumer.receive(LONG_MS)
    target = consumer._target
    counts, _ = world.runtime.call(target._enter, target._settled, message, status, 0)
    assert counts
    consumer.close()
    ((context, ended),) = watcher.ended
    assert (ended, context.result) == (outcome, status)


def test_a_message_is_seen_before_the_application_has_it_and_after_its_answer(world: World) -> None:
    watcher = Watcher()
    consumer = watched(world, Broken(), watcher, Broken())
    send(world, b"x")
    first = consumer.receive(LONG_MS)
    (context,) = watcher.begun
    assert (context.group, context.namespace, context.messages, context.outcome) == (world.group, "", [first], None)
    assert (context.queue.topic, context.queue.queue_id) == (world.topic, first.queue_id)
    assert watcher.ended == []
    assert consumer.retry_later(first)
    assert watcher.ended == [(context, FAILED)]
    assert (context.result, context.error, context.attributes) == (ConsumeStatus.RECONSUME_LATER, None, {"body": b"x"})
    second = consumer.receive(LONG_MS)
    assert watcher.begun[1].queue.topic == f"%RETRY%{world.group}", "where it came from this time"
    assert consumer.ack(second)
    assert not consumer.ack(second)
    assert not consumer.retry_later(second)
    assert watcher.ended == [(context, FAILED), (watcher.begun[1], SUCCESS)], "once for each time"
    assert watcher.begun[1].result is ConsumeStatus.SUCCESS
    assert watcher.threads == {world.runtime.call(lambda: threading.current_thread().name)}, (
        "hooks run where it is asked for"
    )


def test_a_hook_sees_what_comes_after_it(world: World) -> None:
    """And of that every end, as long as the consumer runs."""
    early, late = Watcher(), Watcher()
    consumer = watched(world)
    send(world, b"x", b"y")
    first = consumer.receive(LONG_MS)
    consumer.register_consume_message_hook(early)
    second = consumer.receive(LONG_MS)
    consumer.register_consume_message_hook(late)
    assert consumer.ack(first)
    assert consumer.ack(second)
    assert [context.messages for context, _ in early.ended] == [[second]]
    assert late.begun == []
    assert late.ended == []


def test_what_takes_too_long_is_told_beside_the_application(world: World) -> None:
    watcher = Watcher()
    consumer = watched(world, watcher)
    send(world, b"x")
    message = consumer.receive(LONG_MS)
    within(world, consumer, consumer._target._core._expire)
    ((context, outcome),) = watcher.wait(1)
    assert (context.messages, outcome, context.result) == ([message], ConsumeOutcome.TIME_OUT, None)
    assert not consumer.ack(message)
    consumer.close()
    assert len(watcher.ended) == 1


def test_the_same_message_may_be_out_again_before_that_is_told(world: World) -> None:
    """In order and in broadcasting the same object comes again: each time has its own end."""
    watcher = Watcher()
    consumer = watched(world, watcher, orderly=True, suspend_current_queue_time_millis=10)
    target = consumer._target
    deliver = target._deliver
    kept: list[Any] = []
    target._deliver = kept.append  # a thread that comes late
    send(world, b"x")
    message = consumer.receive(LONG_MS)
    within(world, consumer, target._core._expire)
    assert consumer.receive(LONG_MS) is message
    assert len(watcher.begun) == 2
    for task in kept:
        world.runtime.call(deliver, task)
    ((context, outcome),) = watcher.wait(1)
    assert (context is watcher.begun[0], outcome) == (True, ConsumeOutcome.TIME_OUT)
    assert consumer.ack(message)
    assert watcher.ended[1] == (watcher.begun[1], SUCCESS)


def test_an_answer_that_counts_no_more_is_no_success(world: World) -> None:
    watcher = Watcher()
    consumer = watched(world, watcher)
    send(world, b"x")
    message = consumer.receive(LONG_MS)
    within(world, consumer, lambda task, now: task.process_queue.drop())  # as when it is another member's
    assert not consumer.ack(message)
    assert watcher.ended == [(watcher.begun[0], FAILED)]
    assert watcher.begun[0].result is ConsumeStatus.SUCCESS


def test_what_is_out_at_the_end_is_given_up(world: World) -> None:
    watcher = Watcher()
    consumer = watched(world, watcher)
    send(world, b"x", b"y", b"z")
    messages = [consumer.receive(LONG_MS) for _ in range(3)]
    assert consumer.ack(messages[1])
    consumer.close()
    assert [outcome for _, outcome in watcher.ended] == [SUCCESS, FAILED, FAILED]
    assert [context.messages for context, _ in watcher.ended] == [[messages[1]], [messages[0]], [messages[2]]]
    assert not consumer.ack(messages[0])
    assert len(watcher.ended) == 3


class InterruptError(BaseException):
    """What ends a call from outside."""


class Interrupting(ConsumeMessageHook):
    """Is interrupted at the first message."""

    def __init__(self) -> None:
        self.interrupts = [InterruptError()]

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        if self.interrupts:
            raise self.interrupts.pop()


def interrupted(world: World, consumer: Any) -> BaseException:
    """Ask for a message; what that was ended by."""
    target = consumer._target

    async def in_task() -> BaseException:
        try:
            await target.receive(LONG_MS)
        except InterruptError as interrupt:
            return interrupt
        raise AssertionError

    def in_call() -> BaseException:
        try:
            target.receive(LONG_MS)
        except InterruptError as interrupt:
            return interrupt
        raise AssertionError

    found = world.runtime.call(in_task if isinstance(world.runtime, Anyio) else in_call)
    assert isinstance(found, BaseException)
    return found


def test_whoever_is_interrupted_meanwhile_does_not_get_it(world: World) -> None:
    """Hooks that saw the beginning see the end, and the next who asks gets the message."""
    first, second = Watcher(), Watcher()
    consumer = watched(world, first, Interrupting(), second)
    send(world, b"x")
    error = interrupted(world, consumer)
    assert first.ended == [(first.begun[0], ConsumeOutcome.EXCEPTION)]
    assert first.begun[0].error is error
    assert (second.begun, second.ended) == ([], []), "its turn had not come"
    message = consumer.receive(LONG_MS)
    assert (message.body, message.reconsume_times) == (b"x", 0)
    assert consumer.ack(message)
    assert [outcome for _, outcome in first.ended] == [ConsumeOutcome.EXCEPTION, SUCCESS]
    assert [outcome for _, outcome in second.ended] == [SUCCESS]


def test_a_close_while_hooks_run_leaves_nothing_open(world: World) -> None:
    watcher = Watcher()
    life: list[Any] = []

    class Closing(ConsumeMessageHook):
        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            life[0]._closed = True  # by another thread, which looks for open ones before this one is there

    consumer = watched(world, watcher, Closing())
    life.append(consumer._target._lifecycle)
    send(world, b"x")
    consumer.receive(LONG_MS)
    life[0]._closed = False
    assert watcher.ended == [(watcher.begun[0], FAILED)]


def test_what_filters_take_out_was_never_begun(world: World) -> None:
    class Odd(FilterMessageHook):
        def filter_message(self, context: FilterMessageContext) -> None:
            context.messages[:] = [message for message in context.messages if int(message.body) % 2]

    watcher = Watcher()
    consumer = watched(world, watcher)
    consumer.register_filter_message_hook(Odd())
    send(world, *[b"%d" % number for number in range(6)])
    got: list[MessageExt] = [consumer.receive(LONG_MS) for _ in range(3)]
    for message in got:
        assert consumer.ack(message)
    assert sorted(message.body for message in got) == [b"1", b"3", b"5"]
    assert [context.messages for context, _ in watcher.ended] == [[message] for message in got]


@pytest.mark.parametrize("how", ["iteration", "receive"])
def test_both_ways_to_ask_have_hooks(world: World, how: str) -> None:
    watcher = Watcher()
    consumer = watched(world, watcher)
    send(world, b"x")
    target = consumer._target

    async def in_task() -> None:
        async for message in target:
            target.ack(message)
            break

    def in_call() -> None:
        for message in target:
            target.ack(message)
            break

    if how == "receive":
        consumer.ack(consumer.receive(LONG_MS))
    else:
        world.runtime.call(in_task if isinstance(world.runtime, Anyio) else in_call)
    assert [outcome for _, outcome in watcher.ended] == [SUCCESS]
