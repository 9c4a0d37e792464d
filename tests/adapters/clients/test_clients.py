"""Producers and push consumers against a broker, on every runtime: what arrives, and what may go wrong."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto import Message, MessageQueue, SendStatus
from mqproto.errors import (
    CallExpired,
    ClientError,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    MQError,
    NoNameServer,
    SendFailed,
)
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Proxy, Runtime


def test_what_is_sent_arrives(world: World) -> None:
    producer = world.producer()
    sent = producer.send(
        Message(world.topic, b"hello", tags="greeting", keys=["k1", "k2"], properties={"colour": "blue"}, flag=7)
    )
    assert sent.status is SendStatus.SEND_OK
    received = world.collect().wait(1)[0]
    assert (received.topic, received.body, received.tags, received.keys, received.flag) == (
        world.topic,
        b"hello",
        "greeting",
        ["k1", "k2"],
        7,
    )
    assert received.properties["colour"] == "blue"
    assert (received.msg_id, received.offset_msg_id) == (sent.msg_id, sent.offset_msg_id)
    assert MessageQueue(received.topic, received.broker_name, received.queue_id) == sent.queue
    assert received.queue_offset == sent.queue_offset
    assert received.store_host == world.server.broker_address


def test_a_large_body_is_compressed_on_the_way(world: World) -> None:
    body = b"the same again and again " * 4000
    world.producer().send(Message(world.topic, body))
    received = world.collect().wait(1)[0]
    assert received.body == body
    assert received.store_size < len(body) // 10


def test_messages_that_come_later_wake_a_waiting_consumer(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"first"))
    collector = world.collect()
    collector.wait(1)
    for number in range(20):
        producer.send(Message(world.topic, b"%d" % number))
    collector.wait(21)
    assert sorted(collector.bodies()) == sorted([b"first", *(b"%d" % number for number in range(20))])


def test_only_wanted_tags_arrive(world: World) -> None:
    producer = world.producer()
    for tag in ("a", "b", "c", "a"):
        producer.send(Message(world.topic, tag.encode(), tags=tag))
    collector = world.collect(expression="a || c")
    collector.wait(3)
    producer.send(Message(world.topic, b"last", tags="c"))
    collector.wait(4)
    assert Counter(collector.bodies()) == Counter([b"a", b"a", b"c", b"last"])


def test_a_batch_is_one_request_with_many_messages(world: World) -> None:
    """MSG-08: each message has an id of its own, and the result lists them in order."""
    sent = world.producer().send([Message(world.topic, b"%d" % number, tags="t") for number in range(10)])
    messages = world.collect().wait(10)
    assert [message.msg_id for message in sorted(messages, key=lambda each: each.queue_offset)] == sent.msg_id.split(
        ","
    )
    assert len({message.msg_id for message in messages}) == 10
    assert {message.queue_id for message in messages} == {sent.queue.queue_id}


def test_one_way(world: World) -> None:
    assert world.producer().send_oneway(Message(world.topic, b"no answer")) is None
    assert world.collect().wait(1)[0].body == b"no answer"


def test_a_given_queue_and_a_chosen_queue(world: World) -> None:
    producer = world.producer()
    first = producer.send(Message(world.topic, b"first"))
    assert producer.send(Message(world.topic, b"same"), queue=first.queue).queue == first.queue

    def last(queues: Any, message: Message, argument: object) -> Any:
        assert (message.body, argument) == (b"chosen", 42)
        return queues[-1]

    assert producer.send(Message(world.topic, b"chosen"), selector=last, argument=42).queue.queue_id == 3
    producer.send_oneway(Message(world.topic, b"chosen"), selector=last, argument=42)
    with pytest.raises(ClientError, match="not both"):
        producer.send(Message(world.topic, b"x"), queue=first.queue, selector=last)
    with pytest.raises(ClientError, match="selector failed"):
        producer.send(Message(world.topic, b"x"), selector=lambda queues, message, argument: queues[99])


def test_a_future_for_each_send(world: World) -> None:
    if isinstance(world.runtime, Anyio):
        pytest.skip("`send` itself can be awaited beside other things")
    producer = world.producer()
    called: SimpleQueue[Any] = SimpleQueue()
    futures = [producer.submit(Message(world.topic, b"%d" % number)) for number in range(50)]

    def callback(future: Any) -> None:
        # A callback may wait for the producer.
        called.put((future.result().status, producer._target.send(Message(world.topic, b"again")).status))

    results = [world.runtime.call(future.result, PATIENCE) for future in futures]
    assert len({result.msg_id for result in results}) == 50
    world.runtime.call(futures[0].add_done_callback, callback)
    assert called.get(timeout=PATIENCE) == (SendStatus.SEND_OK, SendStatus.SEND_OK)
    failed = producer.submit(Message(world.topic, b""))
    assert isinstance(world.runtime.call(failed.exception, PATIENCE), InvalidMessage)
    assert failed.done()


def test_twenty_threads_share_a_producer(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"makes the topic"))
    collector = world.collect()
    failures: list[BaseException] = []

    def send(name: int) -> None:
        try:
            for number in range(10):
                producer.send(Message(world.topic, b"%d/%d" % (name, number)), timeout_ms=30_000)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures
    collector.wait(201)
    assert len(set(collector.bodies())) == 201


# --- what may go wrong


def test_refusals_name_what_is_wrong(world: World) -> None:
    """LIM-01, MSG-04: before anything is sent."""
    producer = world.producer()
    with pytest.raises(InvalidMessage):
        producer.send(Message(world.topic, b""))
    with pytest.raises(InvalidName):
        producer.send(Message("no such/topic", b"x"))
    with pytest.raises(InvalidName, match="127"):
        producer.send(Message("t" * 128, b"x"))
    with pytest.raises(InvalidMessage):
        producer.send(Message(world.topic, b"x" * ((4 << 20) + 1)))
    with pytest.raises(InvalidMessage):
        producer.send_oneway([Message(world.topic, b"x")])
    with pytest.raises(ClientError):
        producer.send(Message(world.topic, b"x"), queue=MessageQueue("another", "b", 0))
    with pytest.raises(MQError):
        producer.send([])


def test_settings_are_checked_before_anything_starts(runtime: Runtime) -> None:
    """CON-01: a listener that takes another number of arguments too.

    LIM-01: a group whose retry topic would be too long.
    """
    make = runtime.module.Producer
    for settings in ({"send_msg_timeout": 0}, {"send_msg_timeout": "1"}, {"unit_mode": 1}, {"no_such_setting": 1}):
        with pytest.raises(InvalidSetting):
            runtime.call(make, "g", "127.0.0.1:1", **settings)
    with pytest.raises(InvalidName):
        runtime.call(make, "no such group", "127.0.0.1:1")
    with pytest.raises(InvalidSetting):
        runtime.call(make, "g", "no port")
    make = runtime.module.PushConsumer
    for listener in (None, lambda: None, lambda a, b, c: None):
        with pytest.raises(InvalidSetting):
            runtime.call(make, "g", listener, "127.0.0.1:1")
    with pytest.raises(InvalidSetting):
        runtime.call(make, "g", print, "127.0.0.1:1", consume_thread_min=0)
    with pytest.raises(InvalidName, match="RETRY"):
        runtime.call(make, "g" * 121, print)
    for kind in ("Consumer", "PullConsumer", "LitePullConsumer"):
        with pytest.raises(InvalidName, match="RETRY"):
            runtime.call(getattr(runtime.module, kind), "g" * 121)


@pytest.fixture
def lonely(runtime: Runtime) -> Iterator[Callable[..., Any]]:
    """Starts producers without any server of ours."""
    with ExitStack() as stack:

        def start(namesrv: str, **settings: Any) -> Any:
            producer = Proxy(runtime, runtime.call(runtime.module.Producer, "lonely", namesrv, **settings))
            stack.callback(lambda: producer.close())
            producer.start()
            return producer

        yield start


def test_no_name_server_is_named(lonely: Callable[..., Any]) -> None:
    with pytest.raises(NoNameServer):
        lonely("").send(Message("topic", b"x"))


def test_no_name_server_listens(lonely: Callable[..., Any]) -> None:
    with pytest.raises(NoNameServer, match=r"127\.0\.0\.1:1"):
        lonely("127.0.0.1:1").send(Message("topic", b"x"))


def test_a_name_server_that_says_nothing(lonely: Callable[..., Any], silent: str) -> None:
    with pytest.raises(CallExpired):
        lonely(silent).send(Message("topic", b"x"), timeout_ms=100)


def test_a_consumer_without_name_server_does_not_start(runtime: Runtime) -> None:
    consumer = Proxy(runtime, runtime.call(runtime.module.PushConsumer, "lonely", lambda messages: None, "127.0.0.1:1"))
    consumer.subscribe("topic")
    with pytest.raises(NoNameServer):
        consumer.start()
    consumer.close()


def test_a_broker_that_says_nothing_costs_the_timeout_and_no_more(
    runtime: Runtime, silent: str, mute_cluster: str, lonely: Callable[..., Any]
) -> None:
    """PRO-03: one attempt, because the time of the first is the time of all of them."""
    producer = lonely(mute_cluster)
    with pytest.raises(SendFailed) as caught:
        producer.send(Message("topic", b"x"), timeout_ms=300)
    if not isinstance(runtime, Anyio):
        failure = runtime.call(producer.submit(Message("topic", b"x"), timeout_ms=300).exception, PATIENCE)
        assert isinstance(failure, SendFailed)
        assert len(failure.attempts) == 1
    assert isinstance(caught.value.cause, CallExpired)
    assert caught.value.attempts[0].address == silent
    assert len(caught.value.attempts) == 1
