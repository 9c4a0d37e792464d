"""Push consumers around their listeners, on every runtime: hooks, filters, places, commits, resets, stacks."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import mqproto.adapters.anyio
from mqproto import (
    ConsumeContext,
    ConsumeOutcome,
    ConsumeStatus,
    FilterMessageContext,
    FilterMessageHook,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
)
from mqproto.errors import InvalidSetting, StateError
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask
from tests.adapters.conftest import World
from tests.adapters.harness import Anyio, Collector, holder
from tests.adapters.toys import Echo
from tests.adapters.watching import Broken, Watcher


@pytest.mark.parametrize("plain", [False, True])
def test_hooks_see_each_delivery_before_and_after(world: World, plain: bool) -> None:
    watcher, threads = Watcher(), set()

    def listener(messages: Any, context: Any) -> Any:
        threads.add(threading.current_thread().name)
        match messages[0].body, messages[0].reconsume_times:
            case b"fail", 0:
                raise ValueError("no")
            case b"none", 0:
                return None
            case b"later", 0:
                return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(listener, start=False, plain=plain)
    for hook in (Broken(), watcher, Broken()):
        consumer.register_consume_message_hook(hook)
    consumer.start()
    producer = world.producer()
    for body in (b"good", b"fail", b"none", b"later"):
        producer.send(Message(world.topic, body))
    ended = watcher.wait(7)
    outcomes: dict[object, list[ConsumeOutcome | None]] = {}
    for context, outcome in ended:
        outcomes.setdefault(context.attributes["body"], []).append(outcome)
        assert (context.group, context.queue.topic in (world.topic, f"%RETRY%{world.group}")) == (world.group, True)
        assert isinstance(context.error, ValueError) == (outcome is ConsumeOutcome.EXCEPTION)
    good = ConsumeOutcome.SUCCESS
    assert outcomes == {
        b"good": [good],
        b"fail": [ConsumeOutcome.EXCEPTION, good],
        b"none": [ConsumeOutcome.RETURN_NULL, good],
        b"later": [ConsumeOutcome.FAILED, good],
    }
    assert sorted(id(context) for context, _ in ended) == sorted(id(context) for context in watcher.begun)
    assert watcher.threads == threads, "hooks run where the listener runs"


def test_a_listener_that_returns_something_to_await_has_not_ended(world: World) -> None:
    if not isinstance(world.runtime, Anyio):
        pytest.skip("there is nothing to await")
    watcher = Watcher()

    async def work() -> ConsumeStatus:
        assert watcher.ended == []
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(lambda messages, context: work(), start=False, plain=True)
    consumer.register_consume_message_hook(watcher)
    consumer.start()
    world.producer().send(Message(world.topic, b"x"))
    assert [outcome for _, outcome in watcher.wait(1)] == [ConsumeOutcome.SUCCESS]


@pytest.mark.parametrize("orderly", [False, True])
def test_filters_take_out_what_the_listener_shall_not_see(world: World, orderly: bool) -> None:
    class Even(FilterMessageHook):
        def filter_message(self, context: FilterMessageContext) -> None:
            assert context.group == world.group
            context.messages[:] = [message for message in context.messages if int(message.body) % 2 == 0]

    collector, watcher = Collector(), Watcher()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    producer = world.producer()
    queue = producer.send(Message(world.topic, b"0")).queue
    for number in range(1, 20):
        producer.send(Message(world.topic, b"%d" % number), queue=queue)
    consumer = world.consumer(listener, start=False, orderly=orderly, consume_message_batch_max_size=4)
    consumer.register_filter_message_hook(Even())
    consumer.register_filter_message_hook(Broken())
    consumer.register_consume_message_hook(watcher)
    consumer.start()
    collector.wait(10)
    producer.send(Message(world.topic, b"21"), queue=queue)
    producer.send(Message(world.topic, b"22"), queue=queue)
    collector.wait(11)
    consumer.close()
    assert sorted(collector.bodies(), key=int) == [b"%d" % number for number in (*range(0, 20, 2), 22)]
    assert all(len(context.messages) for context, _ in watcher.ended), "hooks see what the listener sees"
    again = world.collect()
    producer.send(Message(world.topic, b"24"), queue=queue)
    assert [message.body for message in again.wait(1)] == [b"24"], "what was taken out is done with"


def test_of_a_list_the_front_may_succeed(world: World) -> None:
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        if len(messages) > 1:
            context.ack_index = 0
        return ConsumeStatus.SUCCESS

    producer = world.producer()
    queue = producer.send(Message(world.topic, b"0")).queue
    producer.send([Message(world.topic, b"1"), Message(world.topic, b"2")], queue=queue)
    world.consumer(listener, consume_message_batch_max_size=8)
    seen = [(message.body, message.reconsume_times) for message in collector.wait(5)]
    assert seen[:3] == [(b"0", 0), (b"1", 0), (b"2", 0)]
    assert {(b"1", 1), (b"2", 1)} <= set(seen)
    assert (b"0", 1) not in seen


def test_single_messages_of_a_list_may_be_sent_back(world: World) -> None:
    collector = Collector()
    consumers: list[Any] = []

    def wants(messages: Any) -> list[Any]:
        collector.take(messages)
        return [message for message in messages if message.body == b"1" and not message.reconsume_times]

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        for message in wants(messages):
            consumers[0].send_message_back(message)
        return ConsumeStatus.SUCCESS

    async def in_task(messages: Any, context: Any) -> ConsumeStatus:
        for message in wants(messages):
            await consumers[0].send_message_back(message)
        return ConsumeStatus.SUCCESS

    producer = world.producer()
    producer.send([Message(world.topic, b"%d" % number) for number in range(3)])
    function = in_task if isinstance(world.runtime, Anyio) else listener
    consumer = world.consumer(function, plain=True, start=False, consume_message_batch_max_size=8)
    consumers.append(consumer._target)
    consumer.start()
    seen = [(message.body, message.reconsume_times) for message in collector.wait(4)]
    assert seen == [(b"0", 0), (b"1", 0), (b"2", 0), (b"1", 1)]


def test_an_ordered_listener_may_commit_and_roll_back(world: World) -> None:
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        context.auto_commit = False
        context.suspend_current_queue_time_millis = 10
        collector.take(messages)
        count = len(collector.bodies())
        return {3: ConsumeStatus.ROLLBACK, 6: ConsumeStatus.COMMIT}.get(count, ConsumeStatus.SUCCESS)

    producer = world.producer()
    queue = producer.send(Message(world.topic, b"0")).queue
    for number in (1, 2, 3):
        producer.send(Message(world.topic, b"%d" % number), queue=queue)
    consumer = world.consumer(listener, orderly=True)
    collector.wait(7)
    consumer.close()
    assert collector.bodies() == [b"0", b"1", b"2", b"0", b"1", b"2", b"3"]
    assert [message.body for message in world.collect().wait(1)] == [b"3"], (
        "the last one was consumed and not committed"
    )


@pytest.mark.parametrize("plain", [False, True])
def test_the_number_of_places_changes_at_run_time(world: World, plain: bool) -> None:
    """Also of coroutine functions, which would otherwise run without bound."""
    if isinstance(world.runtime, Anyio) and not plain:
        pytest.skip("see the test of coroutine functions")
    release = threading.Event()
    hold = holder(world.runtime, release)
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        hold()
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(listener, plain=plain, consume_thread_min=2)
    producer = world.producer()
    for number in range(6):
        producer.send(Message(world.topic, b"%d" % number))
    try:
        collector.wait(2)
        consumer.update_core_pool_size(5)
        collector.wait(5)
        assert len(collector.bodies()) == 5
    finally:
        release.set()
    collector.wait(6)
    for count in (0, 1_001):
        with pytest.raises(InvalidSetting):
            consumer.update_core_pool_size(count)


def test_coroutine_functions_do_not_run_without_bound(world: World) -> None:
    if not isinstance(world.runtime, Anyio):
        pytest.skip("there are none")
    collector = Collector()
    release: list[Any] = []
    running: list[int] = [0]

    async def listener(messages: Any, context: Any) -> ConsumeStatus:
        import anyio

        if not release:
            release.append(anyio.Event())
        running[0] += 1
        collector.take(messages)
        await release[0].wait()
        running[0] -= 1
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(listener, plain=True, consume_thread_min=2)
    producer = world.producer()
    for number in range(9):
        producer.send(Message(world.topic, b"%d" % number))
    collector.wait(2)
    assert running == [2]
    consumer.update_core_pool_size(4)
    collector.wait(4)
    assert running == [4]
    world.runtime.call(release[0].set)
    collector.wait(9)


def test_queues_move_to_a_time(world: World) -> None:
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(listener, start=False)
    with pytest.raises(StateError):
        consumer.reset_offset_by_timestamp(world.topic, 0)
    consumer.start()
    producer = world.producer()
    for number in range(8):
        producer.send(Message(world.topic, b"%d" % number))
    collector.wait(8)
    consumer.reset_offset_by_timestamp(world.topic, 0)
    collector.wait(16)
    assert sorted(collector.bodies()) == sorted([b"%d" % number for number in range(8)] * 2)


def test_operators_see_where_the_program_is(world: World) -> None:
    consumer = world.consumer(lambda messages, context: ConsumeStatus.SUCCESS)
    stacks = consumer._node.broker_requests.stacks
    text = world.runtime.call(stacks)
    assert "test_push_consumer.py" in text or "stacks.py" in text
    if isinstance(world.runtime, Anyio):
        assert "_poll" in text or "_turn_by_events" in text, "the driver's task, down to where it waits"


def test_settings_of_a_consumer_that_does_not_run(world: World) -> None:
    consumer = world.consumer(lambda messages, context: ConsumeStatus.SUCCESS, start=False, consume_thread_min=3)
    consumer.update_core_pool_size(7)
    consumer.start()
    assert consumer._core.settings.consume_thread_min == 7


def test_a_broadcast_group_goes_on_in_another_process(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BRO-03: neither process id nor time is in the path of the offset file, and groups do not share one."""
    settings: dict[str, Any] = {"message_model": MessageModel.BROADCASTING, "local_offset_store_dir": str(tmp_path)}
    producer = world.producer()

    def consume(count: int, **others: Any) -> list[bytes]:
        collector = Collector()

        def listener(messages: Any, context: Any) -> ConsumeStatus:
            collector.take(messages)
            return ConsumeStatus.SUCCESS

        consumer = world.consumer(listener, **settings, **others)
        collector.wait(count)
        consumer.close()
        return sorted(collector.bodies(), key=int)

    for number in range(10):
        producer.send(Message(world.topic, b"%d" % number))
    assert consume(10) == [b"%d" % number for number in range(10)]
    for number in range(10, 15):
        producer.send(Message(world.topic, b"%d" % number))
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    assert consume(5) == [b"%d" % number for number in range(10, 15)]
    assert consume(15, group=f"{world.group}-other") == [b"%d" % number for number in range(15)]
    assert len({path.parent.parent for path in tmp_path.rglob("offsets.json")}) == 1
    assert sorted(path.parent.name for path in tmp_path.rglob("offsets.json")) == [world.group, f"{world.group}-other"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_deliveries_in_a_row_let_others_run(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task goes on with the next delivery when it has finished one: with a listener that waits for nothing it would
    never stop.
    """
    left = iter(range(99))
    order: list[str] = []

    async def listen(messages: list[MessageExt]) -> ConsumeStatus:
        return ConsumeStatus.SUCCESS

    async def heard(task: object) -> object:
        order.append("delivery")
        return ConsumeStatus.SUCCESS

    async def others() -> None:
        while len(order) < 100:
            order.append("others")
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        consumer: Any = mqproto.adapters.anyio.PushConsumer("group", listen, "127.0.0.1:9")
        monkeypatch.setattr(consumer, "_heard", heard)
        monkeypatch.setattr(consumer, "_consumed", lambda enter, task, result: next(left, None))
        consumer._scopes, consumer._driver = set(), SimpleNamespace(enter=None, ending=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer._consume, object())
            tasks.start_soon(others)

    anyio.run(main, backend=backend)
    assert order.count("delivery") == 100
    assert "delivery" in order[order.index("others") :]
    assert order.count("others") > 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_wait_for_the_next_delivery(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many are started as there are deliveries at the same time; those that wait end with the consumer."""
    heard: list[tuple[int, object]] = []

    async def listen(messages: list[MessageExt]) -> ConsumeStatus:
        heard.append((anyio.get_current_task().id, messages))
        await anyio.lowlevel.checkpoint()
        return ConsumeStatus.SUCCESS

    async def main() -> None:
        consumer: Any = mqproto.adapters.anyio.PushConsumer("group", listen, "127.0.0.1:9")
        consumer._prepare()
        consumer._lifecycle.start()
        consumer._scopes = set()
        monkeypatch.setattr(consumer, "_consumed", lambda enter, task, result: None)

        def delivery(number: int) -> ConsumeTask:
            queue = MessageQueue("topic", "b", 0)
            return ConsumeTask(
                "group", listen, [MessageExt("topic", b"%d" % number)], ConsumeContext(queue), ProcessQueue(queue, 0)
            )

        async with anyio.create_task_group() as tasks:
            loop = asyncio.get_running_loop() if backend == "asyncio" else None
            driver: Any = mqproto.adapters.anyio.Driver(Echo())
            driver._loop = loop
            driver._group = tasks
            consumer._driver = driver
            for number in range(6):
                consumer._deliver(delivery(2 * number))
                consumer._deliver(delivery(2 * number + 1))
                await anyio.wait_all_tasks_blocked()
                assert len(heard) == 2 * number + 2
                assert len(consumer._idle) == 2
            for scope in consumer._scopes:
                scope.cancel()
        assert len({task for task, _ in heard}) == 2
        assert not consumer._idle
        await driver.stop()

    anyio.run(main, backend=backend)
