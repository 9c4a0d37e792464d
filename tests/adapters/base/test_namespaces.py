"""Clients of every kind in a namespace, on every runtime: the application writes and sees plain names
(docs/protocol/client.md 1.8, NSP-01).
"""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mqproto import (
    ConsumeFromWhere,
    ConsumeStatus,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    reply_to,
)
from mqproto.transactions import HalfMessage
from tests.adapters.conftest import QUICK_RETRIES, World
from tests.adapters.harness import PATIENCE, Anyio, Collector, into

SUCCESS = ConsumeStatus.SUCCESS
SPACE = "MQ_INST_1_x"
#: Brokers ask at once and often, so that no test has to wait for long.
CURIOUS = {**QUICK_RETRIES, "transactionCheckInterval": "50", "transactionTimeOut": "10"}


def test_clients_of_different_namespaces_do_not_meet(world: World) -> None:
    """Groups and topics of one name, in two namespaces and in none."""
    spaces = ("", SPACE, "MQ_INST_2_y")
    collectors = {space: Collector() for space in spaces}
    seen: list[tuple[str, str]] = []
    for space, collector in collectors.items():

        def listener(messages: Any, context: Any, collector: Collector = collector) -> ConsumeStatus:
            seen.extend((message.topic, context.queue.topic) for message in messages)
            collector.take(messages)
            return SUCCESS

        world.consumer(listener, namespace=space)
        producer = world.producer(namespace=space)
        assert producer.group == f"p-{world.group}"
        result = producer.send(Message(world.topic, space.encode() or b"none"))
        assert result.queue.topic == world.topic
        chosen: list[MessageQueue] = []

        def first(
            queues: list[MessageQueue], message: Any, argument: Any, chosen: list[MessageQueue] = chosen
        ) -> MessageQueue:
            chosen.extend(queues)
            return queues[0]

        producer.send([Message(world.topic, b"chosen")], selector=first)
        assert {queue.topic for queue in chosen} == {world.topic}
    for space, collector in collectors.items():
        collector.wait(2)
        assert sorted(collector.bodies()) == sorted([space.encode() or b"none", b"chosen"])
    assert set(seen) == {(world.topic, world.topic)}


def test_a_failed_message_comes_back_inside_its_namespace(world: World) -> None:
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return SUCCESS if messages[0].reconsume_times else ConsumeStatus.RECONSUME_LATER

    world.consumer(listener, namespace=SPACE)
    world.producer(namespace=SPACE).send(Message(world.topic, b"x"))
    first, second = collector.wait(2)
    assert (first.topic, second.topic, second.reconsume_times) == (world.topic, world.topic, 1)


def test_a_broadcast_keeps_its_offsets_under_the_whole_name_of_the_group(world: World, tmp_path: Path) -> None:
    """As Java does, so that both find the same file."""
    collector = Collector()
    settings: dict[str, Any] = {
        "message_model": MessageModel.BROADCASTING,
        "local_offset_store_dir": str(tmp_path),
        "namespace": SPACE,
    }
    consumer = world.consumer(into(collector), group="g", **settings)
    world.producer(namespace=SPACE).send(Message(world.topic, b"x"))
    collector.wait(1)
    consumer.close()
    (file,) = tmp_path.rglob("offsets.json")
    assert file.parent.name == f"{SPACE}%g"
    assert f"{SPACE}%{world.topic}" in file.read_text()


def test_messages_taken_one_by_one(world: World) -> None:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = world.start(
        world.runtime.module.Consumer, world.group, world.namesrv, namespace=SPACE, consume_from_where=first
    )
    consumer.subscribe(world.topic)
    world.producer(namespace=SPACE).send(Message(world.topic, b"x"))
    message = consumer.receive(int(PATIENCE * 1000))
    assert message is not None
    assert (message.topic, message.body) == (world.topic, b"x")
    consumer.ack(message)


def test_consumers_that_are_asked(world: World) -> None:
    """Queues and messages are plain, and what one kind of consumer commits another of the group goes on from."""
    queue = world.producer(namespace=SPACE).send(Message(world.topic, b"x")).queue
    puller = world.start(world.runtime.module.PullConsumer, world.group, world.namesrv, namespace=SPACE)
    assert queue in puller.fetch_subscribe_message_queues(world.topic)
    (message,) = puller.pull(queue, "*", 0).messages
    assert (message.topic, message.body) == (world.topic, b"x")
    puller.update_consume_offset(queue, 1)
    assert puller.fetch_consume_offset(queue) == 1
    puller.close()
    world.producer("later", namespace=SPACE).send(Message(world.topic, b"y"), queue=queue)
    poller = world.make(world.runtime.module.LitePullConsumer, world.group, world.namesrv, namespace=SPACE)
    poller.assign([queue])
    poller.start()
    (message,) = poller.poll(int(PATIENCE * 1000))
    assert (message.topic, message.body) == (world.topic, b"y")
    assert poller.assignment() == (queue,)


def test_transactions(world: World) -> None:
    world.server = world.start(world.runtime.module.Standalone, settings=CURIOUS)
    world.namesrv = world.server.namesrv_address
    asked: SimpleQueue[HalfMessage | MessageExt] = SimpleQueue()

    def execute(message: HalfMessage, argument: Any) -> LocalTransactionState:
        asked.put(message)
        return LocalTransactionState.UNKNOW

    def check(message: MessageExt) -> LocalTransactionState:
        asked.put(message)
        return LocalTransactionState.COMMIT_MESSAGE

    producer = world.start(
        world.runtime.module.TransactionProducer, "t", (execute, check), world.namesrv, namespace=SPACE
    )
    assert producer.send_in_transaction(Message(world.topic, b"paid")).queue.topic == world.topic
    assert [asked.get(timeout=PATIENCE).topic for _ in range(2)] == [world.topic] * 2
    (message,) = world.collect(namespace=SPACE).wait(1)
    assert (message.topic, message.body) == (world.topic, b"paid")


def test_requests_and_replies(world: World) -> None:
    """Replies pass through the cluster's own topic, which is in no namespace."""
    producer = world.producer(namespace=SPACE)
    answerer = world.producer("answers", namespace=SPACE)
    if isinstance(world.runtime, Anyio):

        async def answer(messages: list[MessageExt], context: Any) -> ConsumeStatus:
            await answerer._target.send(reply_to(messages[0], b"re: " + messages[0].body))
            return SUCCESS

        world.consumer(answer, plain=True, namespace=SPACE)
    else:

        def answer_here(messages: list[MessageExt], context: Any) -> ConsumeStatus:
            answerer._target.send(reply_to(messages[0], b"re: " + messages[0].body))
            return SUCCESS

        world.consumer(answer_here, plain=True, namespace=SPACE)
    assert producer.request(Message(world.topic, b"question"), timeout_ms=30_000).body == b"re: question"
