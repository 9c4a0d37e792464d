"""Filter hooks of consumers that are asked for messages, over every runtime; those of push consumers are in
test_push_consumer.
"""

from __future__ import annotations

from typing import Any

import pytest

from mqproto import Message, MessageQueue, PullStatus
from mqproto.consume_hooks import FilterMessageContext, FilterMessageHook
from mqproto.wire.bodies import ConsumeFromWhere
from tests.adapters.conftest import World

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Even(FilterMessageHook):
    """Leaves messages with even numbers; puts in what nobody may see."""

    def __init__(self) -> None:
        self.met: list[tuple[str, MessageQueue]] = []

    def filter_message(self, context: FilterMessageContext) -> None:
        self.met.append((context.group, context.queue))
        context.messages[:] = [message for message in context.messages if int(message.body) % 2 == 0]


class Broken(FilterMessageHook):
    def filter_message(self, context: FilterMessageContext) -> None:
        context.messages.clear()
        raise ValueError("a hook's own fault")


def filled(world: World, *numbers: int) -> MessageQueue:
    """One queue of the topic that holds messages with these numbers."""
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"%d" % numbers[0])).queue
    for number in numbers[1:]:
        producer.send(Message(world.topic, b"%d" % number), queue=queue)
    assert isinstance(queue, MessageQueue)
    return queue


def with_filters(world: World, kind: str, **options: Any) -> tuple[Any, Even]:
    """A consumer of a kind, not started, and its hook; another one that fails changes nothing."""
    consumer, hook = world.make(getattr(world.runtime.module, kind), world.group, world.namesrv, **options), Even()
    for each in (Broken(), hook, Broken()):
        consumer.register_filter_message_hook(each)
    return consumer, hook


def committed(world: World, queue: MessageQueue) -> object:
    """The group's offset, as the broker has it."""
    return world.start(world.runtime.module.PullConsumer, world.group, world.namesrv).fetch_consume_offset(queue, True)


def test_what_a_filter_takes_out_of_an_iteration_is_done_with(world: World) -> None:
    queue = filled(world, *range(9))
    options: dict[str, Any] = {"consume_from_where": FIRST, "max_unacked": 1}
    consumer, hook = with_filters(world, "Consumer", **options)
    consumer.subscribe(world.topic)
    consumer.start()
    bodies = []
    for _ in range(5):
        message = consumer.receive(30_000)
        bodies.append(message.body)
        assert consumer.ack(message)
    assert bodies == [b"0", b"2", b"4", b"6", b"8"], "one that is taken out leaves its room (max_unacked) to the next"
    assert set(hook.met) == {(world.group, queue)}
    assert len(hook.met) == 9
    world.producer().send(Message(world.topic, b"9"), queue=queue)
    assert consumer.receive(200) is None, "the time counts for all that comes meanwhile"
    consumer.close()
    assert committed(world, queue) == 10


@pytest.mark.parametrize("max_messages", [None, 1])
def test_what_a_filter_takes_out_of_polls_is_consumed(world: World, max_messages: int | None) -> None:
    queue = filled(world, *range(1, 12))
    consumer, hook = with_filters(
        world, "LitePullConsumer", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, pull_batch_size=2
    )
    consumer.subscribe(world.topic)
    consumer.start()
    bodies: list[bytes] = []
    while len(bodies) < 5:
        bodies += [message.body for message in consumer.poll(30_000, max_messages=max_messages)]
    assert bodies == [b"2", b"4", b"6", b"8", b"10"]
    assert consumer.poll(200, max_messages=max_messages) == [], "11 is taken out, and nothing else comes"
    assert set(hook.met) == {(world.group, queue)}
    consumer.poll(0)
    consumer.close()
    assert committed(world, queue) == 11


def test_what_a_filter_leaves_of_a_pull(world: World) -> None:
    queue = filled(world, *range(6))
    consumer, hook = with_filters(world, "PullConsumer")
    consumer.start()
    found = consumer.pull(queue, "*", 0, 4)
    assert [message.body for message in found.messages] == [b"0", b"2"]
    assert (found.status, found.next_begin_offset) == (PullStatus.FOUND, 4)
    assert hook.met == [(world.group, queue)]
    blocked = consumer.pull_block_if_not_found(queue, "*", 5)
    assert (blocked.status, blocked.messages, blocked.next_begin_offset) == (PullStatus.FOUND, (), 6)
    if not hasattr(consumer._target, "pull_async"):
        return
    for pull in (consumer.pull_async, consumer.pull_block_if_not_found_async):
        later = world.runtime.call(pull(queue, "*", 2, 3).result, 30)
        assert [message.body for message in later.messages] == [b"2", b"4"]
    failed = consumer.pull_async(MessageQueue(world.topic, "nobody", 0), "*", 0)
    assert world.runtime.call(failed.exception, 30) is not None
