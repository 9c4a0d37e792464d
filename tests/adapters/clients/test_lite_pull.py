"""Lite pull consumers over every runtime, against a standalone server of the same runtime."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqproto import ConsumeFromWhere, Message, MessageExt, MessageModel, MessageQueue
from mqproto.errors import ClientError, InvalidName, InvalidSetting, StateError
from mqproto.wire.filters.tags import InvalidExpressionError
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Collector, as_coroutine

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def make(world: World, **settings: Any) -> Any:
    settings = {"consume_from_where": FIRST, "group": world.group, **settings}
    return world.make(world.runtime.module.LitePullConsumer, settings.pop("group"), world.namesrv, **settings)


def polling(world: World, **settings: Any) -> Any:
    """One that runs and begins at the first message."""
    consumer = make(world, **settings)
    consumer.subscribe(world.topic)
    consumer.start()
    return consumer


def send(world: World, count: int, start: int = 0, queue: MessageQueue | None = None, **facts: Any) -> MessageQueue:
    """Messages with rising numbers as bodies, all in one queue."""
    producer = world.producer(f"p{start}-{world.group}")
    for number in range(start, start + count):
        queue = producer.send(Message(world.topic, b"%d" % number, **facts), queue=queue).queue
    assert queue is not None
    return queue


def poll(consumer: Any, count: int) -> list[bytes]:
    """The bodies of so many messages."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        bodies += [message.body for message in consumer.poll(30_000)]
    assert len(bodies) == count
    return bodies


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def test_messages_are_polled_in_order(world: World) -> None:
    send(world, 25)
    consumer = polling(world)
    assert poll(consumer, 25) == numbers(25)
    assert consumer.poll(0) == []
    with pytest.raises(ClientError):
        consumer.poll(-1)
    assert consumer.client_id.endswith("@STREAM")
    assert [queue.queue_id for queue in consumer.assignment()] == [0, 1, 2, 3]


def test_offsets_of_earlier_polls_are_stored_at_the_end(world: World) -> None:
    queue = send(world, 5)
    consumer = polling(world)
    assert len(consumer.poll(30_000, max_messages=3)) == 3
    assert len(consumer.poll(30_000, max_messages=1)) == 1
    consumer.close()
    consumer = polling(world)
    assert consumer.committed(queue) == 3
    assert poll(consumer, 2) == [b"3", b"4"], "the last poll's message was not confirmed"


def stored_offsets(world: World, queue: MessageQueue) -> Callable[[], int | None]:
    """What the broker has for the group."""
    admin = world.start(world.runtime.module.Admin, world.namesrv)
    committed = admin._target.offsets.committed
    return lambda: world.runtime.call(committed, world.group, queue)


def test_commits(world: World) -> None:
    queue = send(world, 9)
    consumer = polling(world, auto_commit=False, pull_batch_size=3)
    assert poll(consumer, 6) == numbers(6)
    consumer.commit_sync()
    stored = stored_offsets(world, queue)
    assert stored() == 6
    consumer.commit_sync({queue: 2})
    assert stored() == 2
    consumer.commit([queue], persist=False)
    assert consumer.committed(queue) == 6
    assert stored() == 2
    if hasattr(consumer._target, "commit_async"):
        world.runtime.call(consumer.commit_async({queue: 4}).result, 30)
        assert stored() == 4
    with pytest.raises(StateError, match="not assigned"):
        consumer.commit_sync({MessageQueue("other", "b", 0): 1})


def test_seeking(world: World) -> None:
    queue = send(world, 9)
    consumer = polling(world)
    assert poll(consumer, 9) == numbers(9)
    consumer.seek(queue, 7)
    assert poll(consumer, 2) == numbers(2, 7)
    consumer.seek_to_begin(queue)
    assert poll(consumer, 9) == numbers(9)
    consumer.seek_to_begin(queue)
    consumer.seek_to_end(queue)
    send(world, 1, 9, queue)
    assert poll(consumer, 1) == [b"9"]
    with pytest.raises(ClientError, match="0 to 10"):
        consumer.seek(queue, 11)
    assert consumer.offset_for_timestamp(queue, 0) == 0
    assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 10)


def test_pausing(world: World) -> None:
    queue = send(world, 1)
    consumer = polling(world)
    assert poll(consumer, 1) == [b"0"]
    consumer.pause([queue])
    # A pull that waits already is still answered: the message that it brings is polled, the next one is not.
    send(world, 2, 1, queue)
    found = [message.body for message in consumer.poll(2_000)]
    consumer.poll(200)
    consumer.resume([queue])
    while len(found) < 2:
        found += [message.body for message in consumer.poll(30_000)]
    assert found == [b"1", b"2"]
    with pytest.raises(StateError):
        consumer.pause([MessageQueue("other", "b", 0)])


def test_assigned_queues(world: World) -> None:
    queue = send(world, 4, tags="TagA")
    consumer = make(world)
    consumer.assign([queue])
    consumer.set_sub_expression_for_assign(world.topic, "TagA")
    with pytest.raises(StateError, match="not both"):
        consumer.subscribe(world.topic)
    consumer.start()
    assert poll(consumer, 4) == numbers(4)
    assert consumer.assignment() == (queue,)
    every = consumer.fetch_message_queues(world.topic)
    assert len(every) == 4
    consumer.assign(every)
    assert consumer.assignment() == every
    consumer.unsubscribe(world.topic)
    assert consumer.assignment() == ()
    with pytest.raises(StateError, match="not both"):
        consumer.subscribe(world.topic)
    with pytest.raises(StateError, match="was started"):
        consumer.set_sub_expression_for_assign(world.topic, "TagB")


def test_iterating_confirms_message_by_message(world: World) -> None:
    queue = send(world, 5)
    consumer = polling(world)
    taken = take(world, consumer, 3)
    assert [message.body for message in taken] == numbers(3)
    consumer.close()
    consumer = polling(world)
    assert consumer.committed(queue) == 2
    assert [message.body for message in take(world, consumer, 3)] == numbers(3, 2)


def take(world: World, consumer: Any, count: int) -> list[MessageExt]:
    """So many messages by iteration, which then ends early."""
    target = consumer._target

    def by_iterator() -> list[MessageExt]:
        taken: list[MessageExt] = []
        for message in target:
            taken.append(message)
            if len(taken) == count:
                break
        return taken

    async def by_async_iterator() -> list[MessageExt]:
        taken: list[MessageExt] = []
        async for message in target:
            taken.append(message)
            if len(taken) == count:
                break
        return taken

    return list(world.runtime.call(by_async_iterator if hasattr(target, "__aiter__") else by_iterator))


def test_iterating_ends_with_the_consumer(world: World) -> None:
    send(world, 1)
    consumer = polling(world)
    collector = Collector()
    target = consumer._target

    def by_iterator() -> None:
        for message in target:
            collector.take([message])

    async def by_async_iterator() -> None:
        async for message in target:
            collector.take([message])

    work = by_async_iterator if hasattr(target, "__aiter__") else by_iterator
    thread = threading.Thread(target=lambda: world.runtime.call(work), name="test-iterating")
    thread.start()
    collector.wait(1)
    consumer.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_interrupted_poll_loses_nothing(world: World) -> None:
    """A poll that is cancelled just when its messages come gives them back."""
    if world.runtime.name not in ("asyncio", "trio"):
        pytest.skip("only tasks are cancelled")
    consumer = polling(world)
    producer = world.producer()
    consumer.poll(1)

    async def cancelled_polls() -> list[bytes]:
        import anyio

        bodies: list[bytes] = []

        async def poll_shortly(patience: float) -> None:
            with anyio.move_on_after(patience):
                bodies.extend([message.body for message in await consumer._target.poll(30_000)])

        for number in range(60):
            async with anyio.create_task_group() as group:
                group.start_soon(poll_shortly, number * 0.0001)
                await producer._target.send(Message(world.topic, b"%d" % number))
        while len(bodies) < 60:
            bodies.extend([message.body for message in await consumer._target.poll(30_000)])
        return bodies

    assert sorted(world.runtime.call(cancelled_polls)) == sorted(numbers(60))


class InterruptError(Exception):
    """Control-C, as far as a poll can tell."""


def test_a_poll_that_is_interrupted_at_its_end_gives_its_messages_back(world: World) -> None:
    """Just when the messages have come, whether it waited for them or found them there."""
    queue = send(world, 1)
    consumer = polling(world)
    assert poll(consumer, 1) == [b"0"]
    driver = consumer._target._driver
    for number in range(1, 6):
        send(world, 1, number, queue)
        for name in ("wait", "enter"):
            setattr(driver, name, interrupted(driver, name))
        with pytest.raises(InterruptError):
            consumer.poll(30_000)
        for name in ("wait", "enter"):
            driver.__dict__.pop(name, None)
        assert poll(consumer, 1) == [b"%d" % number]


def interrupted(driver: Any, name: str) -> Callable[..., Any]:
    """A method of the driver that is interrupted after it has brought messages."""
    original = getattr(driver, name)

    def done(result: Any) -> Any:
        if result:
            raise InterruptError
        return result

    def method(*arguments: Any, **settings: Any) -> Any:
        return done(original(*arguments, **settings))

    async def coroutine(*arguments: Any) -> Any:
        return done(await original(*arguments))

    return coroutine if inspect.iscoroutinefunction(original) else method


def test_a_waiting_poll_ends_when_the_consumer_closes(world: World) -> None:
    consumer = polling(world)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(consumer.poll(60_000)), name="test-polling")
    begun = threading.Event()
    core = consumer._target._core
    begin = core.poll

    def poll_begun(*arguments: Any) -> Any:
        begun.set()
        return begin(*arguments)

    core.poll = poll_begun
    thread.start()
    assert begun.wait(PATIENCE)
    consumer.close()
    thread.join(PATIENCE)
    assert found == [[]]


def test_changes_of_the_share_are_told(world: World) -> None:
    send(world, 1)
    told = Collector()

    def on_change(topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None:
        assert topic == world.topic
        assert len(every) == 4
        told.take(own)  # type: ignore[arg-type]

    consumer = make(world)
    consumer.subscribe(world.topic, listener=as_coroutine(world.runtime, on_change))
    consumer.start()
    told.wait(4)
    other = polling(world)
    told.wait(6)
    assert len(consumer.assignment()) == 2
    assert not set(consumer.assignment()) & set(other.assignment())


def test_a_listener_may_close_its_own_consumer(world: World) -> None:
    send(world, 1)
    consumer = make(world)
    closed = threading.Event()

    def close(*arguments: Any) -> None:
        consumer._target.close()
        closed.set()

    async def close_async(*arguments: Any) -> None:
        try:
            await consumer._target.close()
        finally:
            closed.set()

    consumer.subscribe(world.topic, listener=close_async if world.runtime.name in ("asyncio", "trio") else close)
    consumer.start()
    assert closed.wait(PATIENCE)
    with pytest.raises(StateError, match="closed"):
        consumer.poll()


def test_broadcasting_keeps_offsets_in_a_file(world: World, tmp_path: Path) -> None:
    queue = send(world, 3)
    settings = {
        "message_model": MessageModel.BROADCASTING,
        "local_offset_store_dir": str(tmp_path),
        "instance_name": f"i-{world.group}",
    }
    consumer = polling(world, **settings)
    assert poll(consumer, 3) == numbers(3)
    consumer.commit_sync()
    consumer.close()
    assert consumer.client_id in {path.name for path in tmp_path.iterdir()}
    consumer = polling(world, **settings)
    assert consumer.committed(queue) == 3
    assert consumer.poll(300) == []


def test_settings_and_names_are_checked(world: World) -> None:
    with pytest.raises(InvalidSetting, match="auto_commit_interval_millis"):
        make(world, auto_commit_interval_millis=10)
    with pytest.raises(InvalidSetting, match="consume_thread_min"):
        make(world, consume_thread_min=1)
    consumer = make(world, enable_stream_request_type=False)
    assert not consumer.client_id.endswith("@STREAM")
    with pytest.raises(InvalidExpressionError):
        consumer.subscribe(world.topic, "||")
    with pytest.raises(InvalidName):
        consumer.register_topic_message_queue_change_listener("a b", print)
    with pytest.raises(InvalidName):
        consumer.assign([MessageQueue("a b", "b", 0)])
    with pytest.raises(StateError, match="not started"):
        consumer.poll()
    consumer.close()
    with pytest.raises(StateError, match="closed"):
        consumer.subscribe(world.topic)
