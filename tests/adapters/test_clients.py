"""Producers and push consumers against a broker, on every runtime."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message, MessageQueue, SendStatus
from mqproto.bodies import MessageModel
from mqproto.errors import (
    BrokerError,
    CallExpired,
    ClientError,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    MQError,
    NoClients,
    NoNameServer,
    SendFailed,
    StateError,
)
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Collector, Proxy, Runtime, holder


def test_what_is_sent_arrives(world: World) -> None:
    producer = world.producer()
    sent = producer.send(Message(world.topic, b"hello", tags="greeting", keys=["k1", "k2"], properties={"colour": "blue"}, flag=7))
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
    assert [message.msg_id for message in sorted(messages, key=lambda each: each.queue_offset)] == sent.msg_id.split(",")
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
    """CON-01: a listener that takes another number of arguments too."""
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


# --- listeners


@pytest.mark.parametrize(
    "outcome",
    [ValueError("wrong"), None, True, "SUCCESS", SystemExit(1), asyncio.CancelledError(), ConsumeStatus.RECONSUME_LATER],
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


def into(collector: Collector) -> Callable[..., ConsumeStatus]:
    """A listener whose messages all succeed."""

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    return listener


def test_two_consumers_of_a_group_share_the_queues(world: World) -> None:
    producer = world.producer()
    collectors = [Collector(), Collector()]
    producer.send(Message(world.topic, b"makes the topic"))
    for collector in collectors:
        world.consumer(into(collector))
    queues: list[set[int]] = [set(), set()]

    def play() -> None:
        """Send a message to each queue, and see who gets which; a round may be over before all of them have come."""
        for collector in collectors:
            collector.messages.clear()
        for queue in range(4):
            producer.send(Message(world.topic, b"%d" % queue), selector=lambda queues, message, argument: queues[argument], argument=queue)
        with collectors[0].changed:
            collectors[0].changed.wait_for(lambda: sum(len(each.messages) for each in collectors) >= 4, 0.1)
        queues[:] = [{message.queue_id for message in collector.messages} for collector in collectors]

    rounds = 0
    while [len(each) for each in queues] != [2, 2] or queues[0] & queues[1]:  # until they are shared out, both may get messages of one
        rounds += 1
        assert rounds < 1000
        play()
    shares = list(queues)
    for _ in range(5):
        play()
        assert queues[0] <= shares[0]
        assert queues[1] <= shares[1]


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
        producer.send(Message(world.topic, b"%d" % number), selector=lambda queues, message, argument: queues[argument], argument=number)
    for number in range(4, 8):
        producer.send(
            Message(world.topic, b"%d" % number), selector=lambda queues, message, argument: queues[argument], argument=number - 4
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


# --- the end


def test_starting_and_closing_out_of_turn(world: World) -> None:
    """CON-14: close twice, close before the start, start again."""
    for client in (world.producer(), world.consumer(lambda messages, context: None)):
        with pytest.raises(StateError, match="started already"):
            client.start()
        client.close()
        client.close()
        with pytest.raises(StateError, match="make a new one"):
            client.start()
    closed = world.producer("another")
    closed.close()
    with pytest.raises(StateError, match="closed"):
        closed.send(Message(world.topic, b"x"))
    fresh = world.consumer(lambda messages, context: None, start=False, group="fresh")
    fresh.close()
    with pytest.raises(StateError):
        fresh.start()


def test_closing_waits_for_the_listener_and_keeps_what_it_did(world: World) -> None:
    """CON-14."""
    began, go_on = threading.Event(), threading.Event()
    hold = holder(world.runtime, go_on)

    def slow(messages: Any, context: Any) -> ConsumeStatus:
        began.set()
        hold()
        return ConsumeStatus.SUCCESS

    world.producer().send(Message(world.topic, b"once"))
    consumer = world.consumer(slow, plain=True)
    assert began.wait(PATIENCE)
    closing = threading.Thread(target=consumer.close, args=(60_000,))
    closing.start()
    go_on.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    world.producer("another").send(Message(world.topic, b"twice"))
    assert [message.body for message in world.collect().wait(1)] == [b"twice"]


def test_a_listener_that_does_not_end_delays_closing_by_the_timeout_alone(world: World) -> None:
    """CON-14."""
    began, go_on = threading.Event(), threading.Event()
    hold = holder(world.runtime, go_on)

    def stuck(messages: Any, context: Any) -> None:
        began.set()
        hold()

    world.producer().send(Message(world.topic, b"x"))
    consumer = world.consumer(stuck, plain=True)
    assert began.wait(PATIENCE)
    consumer.close(100)
    assert not go_on.is_set()
    go_on.set()


def test_closing_from_inside_the_listener(world: World) -> None:
    """CON-14."""
    closed = threading.Event()
    consumers: list[Any] = []
    runtime = world.runtime

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        consumers[0].close()
        closed.set()
        return ConsumeStatus.SUCCESS

    async def async_listener(messages: Any, context: Any) -> ConsumeStatus:
        try:
            await consumers[0].close()
        finally:
            closed.set()
        return ConsumeStatus.SUCCESS

    world.producer().send(Message(world.topic, b"x"))
    function = async_listener if isinstance(runtime, Anyio) else listener
    consumer = Proxy(runtime, runtime.call(runtime.module.PushConsumer, world.group, function, world.namesrv))
    consumers.append(consumer._target)
    consumer.subscribe(world.topic)
    consumer.start()
    producer = world.producer("another")
    while not closed.wait(0.01):  # a new group begins at the end, which it finds out first
        producer.send(Message(world.topic, b"y"))
    consumer.close()


def test_closing_while_a_pull_waits_at_the_broker(world: World) -> None:
    """CON-14: at once, with its offsets stored and its group unregistered."""
    world.producer().send(Message(world.topic, b"x"))
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    consumer = world.consumer(listener)
    collector.wait(1)
    consumer.close()
    admin = world.start(world.runtime.module.Admin, world.namesrv)._target
    with pytest.raises(NoClients):
        world.runtime.call(admin.groups.connection, world.group)
    progress = world.runtime.call(admin.groups.progress, world.group)
    assert sum(one.consumer_offset for one in progress.queues if one.queue.topic == world.topic) == 1


def test_the_server_may_go_first(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"x"))
    collector = world.collect()
    collector.wait(1)
    world.server.close()
    with pytest.raises((SendFailed, NoNameServer, BrokerError)):
        producer.send(Message(world.topic, b"y"), timeout_ms=500)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
