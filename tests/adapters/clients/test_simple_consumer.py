"""Simple consumers, on every runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqproto import ConsumeFromWhere, ConsumeOutcome, Message, MessageExt, MessageModel
from mqproto.errors import InvalidSetting, NoNameServer, StateError
from mqproto.state.consumer.life import Phase
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Collector, Proxy, Runtime
from tests.adapters.watching import Watcher

#: Messages that somebody waits for come long before.
LONG_MS = int(PATIENCE * 1000)


def make(world: World, *, start: bool = True, **settings: Any) -> Any:
    """A consumer of the topic that begins at its first message."""
    settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, "group": world.group, **settings}
    consumer = world.make(world.runtime.module.Consumer, settings.pop("group"), world.namesrv, **settings)
    consumer.subscribe(world.topic)
    if start:
        consumer.start()
    return consumer


def iterate(world: World, consumer: Any, each: Callable[[MessageExt], bool]) -> None:
    """Iterate in the runtime until `each` says that it is enough, or the consumer ends."""
    target = consumer._target

    async def tasks() -> None:
        async for message in target:
            if each(message):
                return

    def calls() -> None:
        for message in target:
            if each(message):
                return

    world.runtime.call(tasks if isinstance(world.runtime, Anyio) else calls)


@contextmanager
def iterating(world: World, consumer: Any, *eachs: Callable[[MessageExt], bool]) -> Iterator[None]:
    """Several iterate at a time; they have ended when this ends."""
    with ThreadPoolExecutor(len(eachs)) as pool:
        running = [pool.submit(iterate, world, consumer, each) for each in eachs]
        yield
        for one in running:
            one.result(PATIENCE)


def send(world: World, *bodies: bytes) -> None:
    producer = world.producer(group=f"p-{bodies[0].hex()}-{world.group}")
    for body in bodies:
        producer.send(Message(world.topic, body))


def test_messages_are_iterated_over_and_acknowledged(world: World) -> None:
    consumer = make(world)
    got: list[bytes] = []

    def each(message: MessageExt) -> bool:
        got.append(message.body)
        assert consumer._target.ack(message)
        assert not consumer._target.ack(message), "it counts once"
        return len(got) == 30

    with iterating(world, consumer, each):
        send(world, *[b"%d" % number for number in range(30)])
    assert sorted(got) == sorted(b"%d" % number for number in range(30))
    consumer.close()
    again = make(world)
    send(world, b"later")
    message = again.receive(LONG_MS)
    assert message.body == b"later", "what was acknowledged does not come again"


def test_waiting_has_an_end(world: World) -> None:
    consumer = make(world)
    assert consumer.receive(timeout_ms=1) is None
    send(world, b"x")
    message = consumer.receive(LONG_MS)
    assert (message.topic, message.body, message.reconsume_times) == (world.topic, b"x", 0)


def test_what_was_not_acknowledged_comes_again(world: World) -> None:
    consumer = make(world)
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"1")).queue
    producer.send(Message(world.topic, b"2"), queue=replace(queue, queue_id=(queue.queue_id + 1) % 4))
    messages = {message.body: message for message in (consumer.receive(LONG_MS), consumer.receive(LONG_MS))}
    assert consumer.ack(messages[b"2"])
    consumer.close()
    assert not consumer.ack(messages[b"1"]), "too late"
    again = make(world)
    assert again.receive(LONG_MS).body == b"1"
    assert again.receive(timeout_ms=1) is None


def test_what_is_refused_comes_again_by_the_broker(world: World) -> None:
    consumer = make(world)
    send(world, b"x")
    first = consumer.receive(LONG_MS)
    assert consumer.retry_later(first)
    second = consumer.receive(LONG_MS)
    assert (second.topic, second.body, second.reconsume_times, second.msg_id) == (world.topic, b"x", 1, first.msg_id)
    assert consumer.ack(second)


def test_several_share_the_messages_and_all_end_with_the_consumer(world: World) -> None:
    consumer = make(world)
    collector = Collector()

    def each(message: MessageExt) -> bool:
        assert consumer._target.ack(message)
        collector.take([message])
        return False

    with iterating(world, consumer, each, each, each):
        send(world, *[b"%d" % number for number in range(60)])
        collector.wait(60)
        consumer.close()
    assert sorted(collector.bodies()) == sorted(b"%d" % number for number in range(60))


def test_no_more_is_out_than_may_be(world: World) -> None:
    consumer = make(world, max_unacked=2)
    send(world, b"0", b"1", b"2")
    first, _ = consumer.receive(LONG_MS), consumer.receive(LONG_MS)
    assert consumer.receive(timeout_ms=50) is None
    consumer.ack(first)
    assert consumer.receive(LONG_MS) is not None


def test_in_order(world: World) -> None:
    consumer = make(world, orderly=True, suspend_current_queue_time_millis=10)
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"0")).queue
    for number in range(1, 10):
        producer.send(Message(world.topic, b"%d" % number), queue=queue)
    first = consumer.receive(LONG_MS)
    assert consumer.receive(timeout_ms=1) is None, "nothing passes it"
    assert consumer.retry_later(first)
    got: list[tuple[bytes, int]] = []
    while len(got) < 10:
        message = consumer.receive(LONG_MS)
        got.append((message.body, message.reconsume_times))
        assert consumer.ack(message)
    assert got == [(b"0", 1), *[(b"%d" % number, 0) for number in range(1, 10)]]


def test_broadcasting(world: World, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "message_model": MessageModel.BROADCASTING,
        "local_offset_store_dir": str(tmp_path),
        "instance_name": "one",
    }
    one = make(world, **settings)
    other = make(world, **{**settings, "instance_name": "other"})
    send(world, b"0", b"1")
    for consumer in (one, other):
        bodies = [consumer.receive(LONG_MS), consumer.receive(LONG_MS)]
        assert sorted(message.body for message in bodies) == [b"0", b"1"]
        for message in bodies:
            if message.body == b"0" or consumer is other:
                assert consumer.ack(message)
        consumer.close()
    again = make(world, **settings)
    assert again.receive(LONG_MS).body == b"1", "what was not acknowledged"
    assert again.receive(timeout_ms=1) is None


class InterruptedWaitError(Exception):
    """What ends a wait from outside."""


def test_whoever_is_interrupted_takes_nothing_along(world: World) -> None:
    """Although the message was there already."""
    consumer = make(world)
    driver = consumer._driver
    real = driver.wait

    async def in_task(verb: Any, *arguments: Any) -> None:
        await real(verb, *arguments)
        raise InterruptedWaitError

    def in_call(verb: Any, *arguments: Any) -> None:
        real(verb, *arguments)
        raise InterruptedWaitError

    driver.wait = in_task if isinstance(world.runtime, Anyio) else in_call
    threading.Thread(target=lambda: send(world, b"x"), daemon=True).start()
    with pytest.raises(InterruptedWaitError):
        consumer.receive(LONG_MS)
    driver.wait = real
    message = consumer.receive(LONG_MS)
    assert message.body == b"x"
    assert consumer.ack(message)


def test_a_cancelled_wait_leaves_messages_to_others(world: World) -> None:
    if not isinstance(world.runtime, Anyio):
        pytest.skip("calls are not cancelled")
    consumer = make(world)

    async def give_up() -> None:
        import anyio

        with anyio.move_on_after(0.01):
            await consumer._target.receive()

    world.runtime.call(give_up)
    send(world, b"x")
    assert consumer.receive(LONG_MS).body == b"x"


def test_life(world: World) -> None:
    consumer = make(world, start=False)
    with pytest.raises(StateError, match="not started"):
        consumer.receive()
    with pytest.raises(StateError, match="not started"):
        consumer.ack(MessageExt("T", b""))
    consumer.close()
    assert consumer.receive() is None
    assert not consumer.ack(MessageExt("T", b""))
    iterate(world, consumer, lambda message: True)
    with pytest.raises(StateError):
        consumer.start()


def test_closing_waits_for_answers_if_it_is_told_to(world: World) -> None:
    consumer = make(world, await_termination_millis_when_shutdown=LONG_MS)
    watcher = Watcher()
    consumer.register_consume_message_hook(watcher)
    send(world, b"x")
    message = consumer.receive(LONG_MS)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(consumer.close, 2 * LONG_MS)
        while consumer._target._core.phase is not Phase.STOPPING:
            pass  # the whole test has a time-out
        assert consumer.ack(message)
        closing.result(PATIENCE / 2)
    assert not consumer.ack(message)
    assert [outcome for _, outcome in watcher.ended] == [ConsumeOutcome.SUCCESS]
    again = make(world)
    send(world, b"later")
    assert again.receive(LONG_MS).body == b"later", "what was acknowledged does not come again"


def test_suspending_and_other_topics(world: World) -> None:
    world.producer().send(Message("another", b"there"))
    consumer = make(world)
    consumer.subscribe("another")
    assert consumer.receive(LONG_MS).body == b"there"
    consumer.suspend()
    consumer.resume()
    consumer.unsubscribe("another")
    send(world, b"here")
    assert consumer.receive(LONG_MS).body == b"here"


def test_settings(runtime: Runtime) -> None:
    factory = runtime.module.Consumer
    for settings in (
        {"max_unacked": 0},
        {"max_unacked": 1001},
        {"consume_thread_min": 3},
        {"consume_message_batch_max_size": 1},
    ):
        with pytest.raises(InvalidSetting):
            runtime.call(factory, "g", "127.0.0.1:9", **settings)
    consumer = Proxy(runtime, runtime.call(factory, "g", ""))
    consumer.subscribe("T")
    with pytest.raises(NoNameServer):
        consumer.start()
    assert consumer.receive() is None


def test_queues_move_to_a_time(world: World) -> None:
    consumer = make(world)
    send(world, b"0", b"1", b"2")
    for _ in range(3):
        consumer.ack(consumer.receive(LONG_MS))
    consumer.reset_offset_by_timestamp(world.topic, 0)
    assert sorted(consumer.receive(LONG_MS).body for _ in range(3)) == [b"0", b"1", b"2"]
