"""Messages that wait for a reply, against a broker, on every runtime."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message, MessageExt, reply_to
from mqproto.errors import BrokerError, ClientError, InvalidMessage, NoReplyAddress, SendFailed, StateError
from mqproto.state.node.contract import Ticket
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, holder


def responder(world: World, *, silent: bool = False) -> SimpleQueue[MessageExt]:
    """Somebody who answers the messages of the topic, and the requests that came.

    What it sends with stays alive with the world.
    """
    producer = world.producer(f"r-{world.group}")
    requests: SimpleQueue[MessageExt] = SimpleQueue()

    if isinstance(world.runtime, Anyio):

        async def answer(messages: list[MessageExt], context: Any) -> ConsumeStatus:
            for message in messages:
                requests.put(message)
                if not silent:
                    await producer._target.send(reply_to(message, b"re: " + message.body))
            return ConsumeStatus.SUCCESS

        world.consumer(answer, plain=True)
    else:

        def answer_here(messages: list[MessageExt], context: Any) -> ConsumeStatus:
            for message in messages:
                requests.put(message)
                if not silent:
                    producer._target.send(reply_to(message, b"re: " + message.body))
            return ConsumeStatus.SUCCESS

        world.consumer(answer_here, plain=True)
    return requests


def waiting(producer: Any) -> int:
    return len(producer._target._node.requests)


def test_a_request_is_answered(world: World) -> None:
    """PRO-10: the body is the responder's, and nothing is left waiting."""
    requests = responder(world)
    producer = world.producer()
    reply = producer.request(Message(world.topic, b"question", tags="T"), timeout_ms=30_000)
    assert reply.body == b"re: question"
    asked = requests.get(timeout=PATIENCE)
    assert (asked.body, asked.tags) == (b"question", "T")
    assert reply.properties["CORRELATION_ID"] == asked.properties["CORRELATION_ID"]
    assert asked.properties["REPLY_TO_CLIENT"] == producer.client_id
    large = b"the same again " * 1000
    assert producer.request(Message(world.topic, large), timeout_ms=30_000).body == b"re: " + large
    assert waiting(producer) == 0


def test_many_at_once_get_each_its_own(world: World) -> None:
    responder(world)
    producer = world.producer()
    replies: dict[int, bytes] = {}

    def ask(number: int) -> None:
        replies[number] = producer.request(Message(world.topic, b"%d" % number), timeout_ms=30_000).body

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert replies == {number: b"re: %d" % number for number in range(20)}
    assert waiting(producer) == 0


def test_futures(world: World) -> None:
    if isinstance(world.runtime, Anyio):
        pytest.skip("`request` itself can be awaited beside other things")
    responder(world)
    producer = world.producer()
    called: SimpleQueue[bytes] = SimpleQueue()
    futures = [producer.submit_request(Message(world.topic, b"%d" % number), timeout_ms=30_000) for number in range(5)]
    world.runtime.call(futures[0].add_done_callback, lambda future: called.put(future.result().body))
    assert [world.runtime.call(future.result, PATIENCE).body for future in futures] == [
        b"re: %d" % number for number in range(5)
    ]
    assert called.get(timeout=PATIENCE) == b"re: 0"
    failed = producer.submit_request(Message(world.topic, b""))
    assert isinstance(world.runtime.call(failed.exception, PATIENCE), InvalidMessage)


def test_nobody_answers(world: World) -> None:
    """PRO-10: one failure, and nothing is left waiting. A reply after that is dropped."""
    requests = responder(world, silent=True)
    producer = world.producer()
    producer.send(Message(world.topic, b"makes the topic"))
    failure = world.ask_in_vain(producer, b"question")
    assert failure.timeout_ms in (300, 3_000, 30_000)
    assert waiting(producer) == 0
    came: dict[str | None, MessageExt] = {}
    while not {None, failure.correlation_id} <= came.keys():  # from two queues, in any order
        message = requests.get(timeout=PATIENCE)
        came[message.properties.get("CORRELATION_ID")] = message
    with pytest.raises(NoReplyAddress):
        reply_to(came[None], b"to whom?")
    asked = came[failure.correlation_id]
    assert asked.body == b"question"
    assert producer.send(reply_to(asked, b"late")).msg_id


def test_whoever_asked_has_left(world: World) -> None:
    """PRO-10: the responder hears that its reply could not be passed on."""
    requests = responder(world, silent=True)
    producer, other = world.producer(), world.producer(f"o-{world.group}")
    world.ask_in_vain(producer, b"question")
    asked = requests.get(timeout=PATIENCE)
    producer.close()
    with pytest.raises(SendFailed, match="push reply message fail") as failed:
        other.send(reply_to(asked, b"answer"), timeout_ms=5_000)
    assert isinstance(failed.value.cause, BrokerError)


def test_a_given_queue_and_a_chosen_queue(world: World) -> None:
    requests = responder(world)
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"first")).queue
    assert requests.get(timeout=PATIENCE).body == b"first"
    for number in range(2):
        producer.request(Message(world.topic, b"same %d" % number), queue=queue, timeout_ms=30_000)
        assert requests.get(timeout=PATIENCE).queue_id == queue.queue_id
    chosen = producer.request(
        Message(world.topic, b"chosen"),
        selector=lambda queues, message, argument: queues[argument],
        argument=3,
        timeout_ms=30_000,
    )
    assert (chosen.body, requests.get(timeout=PATIENCE).queue_id) == (b"re: chosen", 3)
    with pytest.raises(InvalidMessage, match="batch"):
        producer.request([Message(world.topic, b"x")])
    with pytest.raises(ClientError, match="not both"):
        producer.request(Message(world.topic, b"x"), queue=queue, selector=lambda queues, message, argument: queues[0])


def test_closing_gives_up_what_waits(world: World) -> None:
    responder(world, silent=True)
    producer = world.producer()
    begun = threading.Event()
    failures: SimpleQueue[BaseException] = SimpleQueue()
    begin = producer._target._begin_request

    def begin_and_tell(*arguments: Any) -> Ticket[MessageExt]:
        ticket: Ticket[MessageExt] = begin(*arguments)
        begun.set()
        return ticket

    producer._target._begin_request = begin_and_tell

    def ask() -> None:
        try:
            producer.request(Message(world.topic, b"question"), timeout_ms=60_000)
        except BaseException as failure:
            failures.put(failure)

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(PATIENCE)
    producer.close(timeout_ms=100)
    assert isinstance(failures.get(timeout=PATIENCE), StateError)
    thread.join(PATIENCE)
    with pytest.raises(StateError):
        producer.request(Message(world.topic, b"question"))


def test_cancelling_a_request(world: World) -> None:
    if not isinstance(world.runtime, Anyio):
        pytest.skip("only tasks are cancelled")
    import anyio

    responder(world, silent=True)
    producer = world.producer()

    async def ask_briefly() -> bool:
        with anyio.move_on_after(0.2) as scope:
            await producer._target.request(Message(world.topic, b"question"), timeout_ms=60_000)
        return scope.cancelled_caught

    assert world.runtime.call(ask_briefly)
    assert waiting(producer) == 0
    assert len(producer._target._node.calls) == 0


def test_a_transaction_producer_asks_too(world: World) -> None:
    responder(world)
    hold = holder(world.runtime, threading.Event())
    producer = world.start(world.runtime.module.TransactionProducer, f"t-{world.group}", (hold, hold), world.namesrv)
    assert producer.request(Message(world.topic, b"question"), timeout_ms=30_000).body == b"re: question"
