"""Pull consumers over every runtime, against a standalone server of the same runtime."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from mqproto import Message, MessageQueue, MQError, PullStatus
from mqproto.errors import BrokerError, ClientError, InvalidSetting, StateError
from tests.adapters.conftest import World
from tests.adapters.harness import Collector, as_coroutine


def open_consumer(world: World, **settings: Any) -> Any:
    return world.start(world.runtime.module.PullConsumer, world.group, world.namesrv, **settings)


def filled(world: World, count: int, **facts: Any) -> list[MessageQueue]:
    """Queues of the topic with so many messages in the first."""
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"0", **facts)).queue
    for number in range(1, count):
        producer.send(Message(world.topic, b"%d" % number, **facts), queue=queue)
    return [queue]


def test_a_queue_is_pulled_from_its_beginning_to_its_end(world: World) -> None:
    (queue,) = filled(world, 5)
    consumer = open_consumer(world)
    assert queue in consumer.fetch_subscribe_message_queues(world.topic)
    assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 5)
    offset, bodies = 0, []
    while (found := consumer.pull(queue, "*", offset, 2)).status is PullStatus.FOUND:
        bodies += [message.body for message in found.messages]
        offset = found.next_begin_offset
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert (found.status, found.next_begin_offset, found.max_offset) == (PullStatus.NO_NEW_MSG, 5, 5)
    assert consumer.pull(queue, "*", 77).status is PullStatus.OFFSET_ILLEGAL
    assert consumer.earliest_msg_store_time(queue) > 0
    assert consumer.search_offset(queue, 0) == 0
    assert consumer.client_id.endswith("@STREAM")


def test_tags_and_properties_filter(world: World) -> None:
    server = world.start(world.runtime.module.Standalone, settings={"enablePropertyFilter": "true"})
    producer = world.start(world.runtime.module.Producer, "p", server.namesrv_address)
    queue = producer.send(Message(world.topic, b"a", tags="TagA", properties={"n": "1"})).queue
    producer.send(Message(world.topic, b"b", tags="TagB", properties={"n": "2"}), queue=queue)
    consumer = world.start(world.runtime.module.PullConsumer, world.group, server.namesrv_address)
    assert [message.body for message in consumer.pull(queue, "TagB || TagC", 0).messages] == [b"b"]
    assert [message.body for message in consumer.pull(queue, "n < 2", 0, kind="SQL92").messages] == [b"a"]
    assert consumer.pull(queue, "TagC", 0).status is PullStatus.NO_MATCHED_MSG


def test_a_blocking_pull_waits_for_a_message(world: World) -> None:
    (queue,) = filled(world, 1)
    consumer, producer = open_consumer(world), world.producer("another")
    if hasattr(consumer._target, "pull_block_if_not_found_async"):
        future = consumer.pull_block_if_not_found_async(queue, "*", 1)
        producer.send(Message(world.topic, b"late"), queue=queue)
        found = world.runtime.call(future.result, 30)
    else:
        found = world.runtime.call(pull_while_sending, consumer._target, producer._target, queue)
    assert [message.body for message in found.messages] == [b"late"]
    assert consumer.pull_block_if_not_found(queue, "*", 2, timeout_ms=300).status is PullStatus.NO_NEW_MSG, (
        "the broker answers in time"
    )


async def pull_while_sending(consumer: Any, producer: Any, queue: MessageQueue) -> Any:
    import anyio

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: producer.send(Message(queue.topic, b"late"), queue=queue))
        return await consumer.pull_block_if_not_found(queue, "*", 1)


def test_futures(world: World) -> None:
    (queue,) = filled(world, 2)
    consumer = open_consumer(world)
    if not hasattr(consumer._target, "pull_async"):
        pytest.skip("a coroutine is awaited")
    future = consumer.pull_async(queue, "*", 0)
    assert len(world.runtime.call(future.result, 30).messages) == 2
    done: Future[Any] = Future()

    def pull_from_nobody() -> None:
        future = consumer._target.pull_async(MessageQueue(world.topic, "nobody", 0), "*", 0)
        future.add_done_callback(lambda found: done.set_result(found.exception()))

    world.runtime.call(pull_from_nobody)  # both inside the runtime: a greenlet's future is not for other threads
    assert isinstance(done.result(30), MQError)


def test_offsets_are_kept_for_the_group(world: World) -> None:
    (queue,) = filled(world, 3)
    consumer = open_consumer(world)
    consumer.update_consume_offset(queue, 2)
    assert consumer.fetch_consume_offset(queue) == 2
    consumer.close()
    consumer = open_consumer(world)
    assert consumer.fetch_consume_offset(queue, from_store=True) == 2
    consumer.update_consume_offset_to_broker(queue, 1)
    assert consumer.fetch_consume_offset(queue, True) == 1
    consumer.update_consume_offset_to_broker(queue, 3, oneway=True)
    assert consumer.fetch_consume_offset(queue) == 3
    with pytest.raises(ClientError):
        consumer.update_consume_offset(queue, -1)


def test_queues_are_shared_out_and_told(world: World) -> None:
    filled(world, 1)
    told = Collector()

    def on_change(topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None:
        assert topic == world.topic
        told.take([(every, own)])  # type: ignore[list-item]

    consumer = world.make(world.runtime.module.PullConsumer, world.group, world.namesrv)
    consumer.register_message_queue_listener(world.topic, as_coroutine(world.runtime, on_change))
    consumer.start()
    ((every, own),) = told.wait(1)  # type: ignore[misc]
    assert every == own == consumer.fetch_message_queues_in_balance(world.topic)  # type: ignore[has-type]
    assert len(every) == 4  # type: ignore[has-type]


def test_a_listener_that_fails_is_no_reason_to_stop(world: World) -> None:
    filled(world, 1)
    told = Collector()

    def on_change(*arguments: Any) -> None:
        told.take(arguments[2])
        raise RuntimeError("on purpose")

    consumer = open_consumer(world)
    consumer.register_message_queue_listener(world.topic, on_change)
    told.wait(4)
    consumer.register_message_queue_listener("other", on_change)
    consumer.pull(consumer.fetch_subscribe_message_queues(world.topic)[0], "*", 0)


def test_a_message_that_is_sent_back_comes_again(world: World) -> None:
    (queue,) = filled(world, 1)
    consumer = world.start(world.runtime.module.PullConsumer, f"pull-{world.group}", world.namesrv)
    collector = world.collect()
    assert collector.wait(1)[0].reconsume_times == 0
    consumer.send_message_back(consumer.pull(queue, "*", 0).messages[0], 1, consumer_group=world.group)
    again = collector.wait(2)[1]
    assert (again.body, again.reconsume_times) == (b"0", 1)


def test_what_does_not_work(world: World) -> None:
    consumer = world.make(world.runtime.module.PullConsumer, world.group, world.namesrv)
    queue = MessageQueue(world.topic, "b", 0)
    with pytest.raises(StateError, match="not started"):
        consumer.pull(queue, "*", 0)
    consumer.start()
    with pytest.raises(StateError):
        consumer.start()
    with pytest.raises(BrokerError):
        consumer.fetch_subscribe_message_queues("nothing")
    consumer.close()
    consumer.close()
    with pytest.raises(StateError, match="closed"):
        consumer.update_consume_offset(queue, 1)
    with pytest.raises(StateError, match="closed"):
        consumer.register_message_queue_listener(world.topic)
    with pytest.raises(InvalidSetting, match="pull_batch_size"):
        open_consumer(world, pull_batch_size=3)
