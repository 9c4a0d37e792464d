"""Listeners of push consumers, their groups and subscriptions, on every runtime."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import gevent
import pytest

from mqproto import ConsumeStatus, Message, MessageQueue
from mqproto.adapters.base.push_consumer import AT_A_STRETCH
from mqproto.errors import (
    InvalidName,
    InvalidSetting,
)
from mqproto.wire.bodies import MessageModel
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Collector, Runtime, into


@pytest.mark.parametrize(
    "outcome",
    [
        ValueError("wrong"),
        None,
        True,
        "SUCCESS",
        SystemExit(1),
        asyncio.CancelledError(),
        ConsumeStatus.RECONSUME_LATER,
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_whatever_is_not_success_brings_the_message_again(world: World, outcome: Any) -> None:
    """CON-01, CON-10: once more, as itself."""
    collector = Collector()

    def listener(messages: Any, context: Any) -> Any:
        collector.take(messages)
        if messages[0].reconsume_times > 0:
            return ConsumeStatus.SUCCESS
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    world.producer().send(Message(world.topic, b"once more"))
    world.consumer(listener)
    first, second = collector.wait(2)
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert second.body == b"once more"
    assert second.topic == world.topic
    assert second.msg_id == first.msg_id


def test_a_failing_message_does_not_hold_up_others(world: World) -> None:
    """CON-01: the only worker outlives what a listener raises."""
    collector = Collector()

    def listener(messages: Any, context: Any) -> Any:
        collector.take(messages)
        if messages[0].body == b"bad" and messages[0].reconsume_times == 0:
            raise RuntimeError("bad message")
        return ConsumeStatus.SUCCESS

    producer = world.producer()
    for body in (b"one", b"bad", b"two", b"three"):
        producer.send(Message(world.topic, body))
    world.consumer(listener, consume_thread_min=1)
    collector.wait(5)
    assert Counter(collector.bodies()) == Counter([b"one", b"bad", b"bad", b"two", b"three"])


@pytest.mark.parametrize("runtime", ["gevent", "asyncio", "trio"], indirect=True)
def test_a_listener_that_waits_for_nothing_lets_others_run(world: World) -> None:
    """However much waits for it: heartbeats and the rest of the program share its thread."""
    turns, heard = 0, list[int]()
    ticking, done = threading.Event(), threading.Event()

    def tick() -> bool:
        nonlocal turns
        turns += 1
        ticking.set()
        return not done.is_set()

    async def tick_in_task() -> None:
        while tick():
            await anyio.sleep(0)

    def tick_in_greenlet() -> None:
        while tick():
            gevent.sleep(0)

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        heard.append(turns)
        if len(heard) >= 300:
            done.set()
        return ConsumeStatus.SUCCESS

    producer = world.producer()
    for start in range(0, 300, 50):
        producer.send([Message(world.topic, b"%d" % number) for number in range(start, start + 50)])
    bystander = tick_in_task if isinstance(world.runtime, Anyio) else tick_in_greenlet
    thread = threading.Thread(target=world.runtime.call, args=(bystander,))
    thread.start()
    try:
        assert ticking.wait(PATIENCE)
        world.consumer(listener, consume_thread_min=1)
        assert done.wait(PATIENCE)
    finally:
        done.set()
        thread.join(PATIENCE)
    assert max(Counter(heard).values()) <= 2 * AT_A_STRETCH, "the order of tasks in a round is free"


def test_ordered_consumption_takes_a_queue_in_turn_and_waits_for_a_message_that_failed(world: World) -> None:
    collector = Collector()

    def listener(messages: Any, context: Any) -> Any:
        collector.take(messages)
        seen = collector.bodies()
        if messages[0].body == b"7" and seen.count(b"7") == 1:
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.SUCCESS

    producer = world.producer()
    queue = producer.send(Message(world.topic, b"0")).queue
    for number in range(1, 20):
        producer.send(Message(world.topic, b"%d" % number), queue=queue)
    world.consumer(listener, orderly=True, suspend_current_queue_time_millis=10)
    collector.wait(21)
    assert collector.bodies() == [b"%d" % number for number in [*range(8), *range(7, 20)]]


def test_a_listener_may_take_the_messages_alone(world: World) -> None:
    collector = Collector()

    def listener(messages: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    world.producer().send(Message(world.topic, b"x"))
    world.consumer(listener, plain=True)
    collector.wait(1)


def test_a_listener_may_be_a_coroutine_function_without_context(world: World) -> None:
    if not isinstance(world.runtime, Anyio):
        pytest.skip("no tasks here")
    collector = Collector()

    class Listener:
        async def __call__(self, messages: Any) -> ConsumeStatus:
            collector.take(messages)
            return ConsumeStatus.SUCCESS

    world.producer().send(Message(world.topic, b"x"))
    world.consumer(Listener(), plain=True)
    collector.wait(1)


def test_two_consumers_of_a_group_share_the_queues(world: World) -> None:
    producer = world.producer()
    collectors = [Collector(), Collector()]
    changed = collectors[1].changed = collectors[0].changed
    producer.send(Message(world.topic, b"makes the topic"))
    for collector in collectors:
        world.consumer(into(collector))

    def play(number: int) -> list[set[int]]:
        """Send a message to each queue, and see who gets which: until the queues are shared out, both may get the same
        one.
        """
        for queue in range(4):
            message = Message(world.topic, b"%d/%d" % (number, queue))
            producer.send(message, selector=lambda queues, message, argument: queues[argument], argument=queue)

        def seen() -> list[set[int]]:
            return [
                {one.queue_id for one in each.messages if one.body.startswith(b"%d/" % number)} for each in collectors
            ]

        with changed:
            assert changed.wait_for(lambda: len(set().union(*seen())) == 4, PATIENCE)
            return seen()

    shares: list[set[int]] = []
    steady = 0
    for number in itertools.count():  # the whole test has a time-out
        before, shares = shares, play(number)
        fair = [len(each) for each in shares] == [2, 2] and not shares[0] & shares[1]
        steady = steady + 1 if fair and shares == before else 0
        if steady == 5:
            break


def test_two_groups_each_get_everything(world: World) -> None:
    world.producer().send(Message(world.topic, b"for all"))
    first, second = world.collect(group="first"), world.collect(group="second")
    assert first.wait(1)[0].body == second.wait(1)[0].body == b"for all"


def test_a_group_goes_on_where_it_ended(world: World) -> None:
    producer = world.producer()
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    for number in range(8):
        producer.send(Message(world.topic, b"%d" % number))
    consumer = world.consumer(listener)
    collector.wait(8)
    consumer.close()
    producer.send(Message(world.topic, b"later"))
    world.consumer(listener)
    collector.wait(9)
    assert Counter(collector.bodies()) == Counter([*(b"%d" % number for number in range(8)), b"later"])


def test_every_consumer_of_a_broadcast_gets_everything_and_keeps_its_own_place(world: World, tmp_path: Path) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"one"))
    settings: dict[str, Any] = {"message_model": MessageModel.BROADCASTING, "plain": False}
    collectors = []
    for name in ("first", "second"):
        collector = Collector()
        collectors.append(collector)
        consumer = world.consumer(into(collector), local_offset_store_dir=str(tmp_path / name), **settings)
        collector.wait(1)
        assert consumer.client_id.endswith("@DEFAULT")
        consumer.close()
        files = list((tmp_path / name).rglob("offsets.json"))
        assert [file.parent.name for file in files] == [world.group]
    producer.send(Message(world.topic, b"two"))
    again = Collector()
    world.consumer(into(again), local_offset_store_dir=str(tmp_path / "first"), **settings)
    assert [message.body for message in again.wait(1)] == [b"two"]


def test_an_offset_file_that_cannot_be_read(runtime: Runtime, tmp_path: Path) -> None:
    folder = tmp_path / "192.0.2.1@DEFAULT" / "group" / "offsets.json"
    folder.mkdir(parents=True)
    with pytest.raises(InvalidSetting, match="local_offset_store_dir"):
        runtime.call(
            runtime.module.PushConsumer,
            "group",
            print,
            "127.0.0.1:1",
            client_ip="192.0.2.1",
            message_model=MessageModel.BROADCASTING,
            local_offset_store_dir=str(tmp_path),
        )


def test_suspending_and_resuming(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"before"))
    collector = Collector()
    consumer = world.consumer(into(collector))
    collector.wait(1)
    consumer.suspend()
    for number in range(4):  # pulls that were waiting at the broker bring one message of each queue at most
        producer.send(
            Message(world.topic, b"%d" % number),
            selector=lambda queues, message, argument: queues[argument],
            argument=number,
        )
    for number in range(4, 8):
        producer.send(
            Message(world.topic, b"%d" % number),
            selector=lambda queues, message, argument: queues[argument],
            argument=number - 4,
        )
    consumer.resume()
    collector.wait(9)


def test_subscriptions_change_while_it_runs(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"one"))
    producer.send(Message(world.topic + "-other", b"two"))
    collector = Collector()
    consumer = world.consumer(into(collector))
    collector.wait(1)
    consumer.subscribe(world.topic + "-other")
    collector.wait(2)
    consumer.unsubscribe(world.topic)
    consumer.unsubscribe("never heard of")
    producer.send(Message(world.topic + "-other", b"three"))
    collector.wait(3)
    assert consumer.group == world.group
    late = world.consumer(into(collector), start=False, group="late")
    late.unsubscribe(world.topic)
    with pytest.raises(InvalidName):
        late.subscribe("no such/topic")


def test_another_expression_counts_for_what_is_sent_from_then_on(world: World) -> None:
    """CON-12: also where a pull waits at the broker since before."""
    producer = world.producer()
    queues = [producer.send(Message(world.topic, b"first", tags="A")).queue]
    queues += [
        MessageQueue(world.topic, queues[0].broker_name, number) for number in range(4) if number != queues[0].queue_id
    ]
    collector = Collector()
    consumer = world.consumer(into(collector), "A")
    collector.wait(1)
    consumer.subscribe(world.topic, "A || B")
    groups = world.start(world.runtime.module.Admin, world.namesrv)._target.groups
    while world.runtime.call(groups.connection, world.group).subscriptions[world.topic].expression != "A || B":
        pass  # the whole test has a time-out
    for queue in queues:
        producer.send(Message(world.topic, b"%d" % queue.queue_id, tags="B"), queue=queue)
    collector.wait(5)
    assert sorted(collector.bodies()) == [b"0", b"1", b"2", b"3", b"first"]
