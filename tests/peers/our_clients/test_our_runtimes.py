"""The main path of each kind of client on the runtimes and releases that no other test of this folder brings together.

Our clients run inside the test's process here, which costs less than a program of theirs; Apache's Java client is at
the other end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from mqproto import ConsumeStatus, LocalTransactionState, Message, MessageExt, SendStatus, select_by_hash
from mqproto.errors import NoMessage
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel
from tests.adapters.harness import Collector, Proxy, Runtime, as_coroutine, as_listener, open_runtime
from tests.peers.kit.checks import Sent
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.steps import committed, consume, open_group, pull

pytestmark = pairs("java-4.9.7 @ apache:4.4.0", "java-4.9.7 @ apache:5.3.3")

CLUSTER = "DefaultCluster"
#: What clients do every so many seconds they do every second, as the Java client is told.
HURRY = {"poll_name_server_interval": 1000, "heartbeat_broker_interval": 1000}
PROMPT = {
    **HURRY,
    "persist_consumer_offset_interval": 1000,
    "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}


class RuntimeClients:
    """A runtime with a server; what is started here closes with the test."""

    def __init__(self, runtime: Runtime, pair: Pair, stack: ExitStack) -> None:
        self.runtime, self.pair, self._stack = runtime, pair, stack

    def make(self, kind: str, *arguments: Any, **settings: Any) -> Any:
        made = Proxy(
            self.runtime,
            self.runtime.call(getattr(self.runtime.module, kind), *arguments, self.pair.server.names, **settings),
        )
        self._stack.callback(lambda: made.close())
        return made

    def start(self, kind: str, *arguments: Any, **settings: Any) -> Any:
        made = self.make(kind, *arguments, **settings)
        made.start()
        return made

    def consumer(
        self, topic: str, group: str, listener: Callable[..., Any], expression: str = "*", **settings: Any
    ) -> Any:
        """A push consumer that runs."""
        made = self.make("PushConsumer", group, as_listener(self.runtime, listener), **PROMPT, **settings)
        made.subscribe(topic, expression)
        made.start()
        return made


@pytest.fixture(params=["gevent", "asyncio", "trio"])
def runtime_clients(request: pytest.FixtureRequest, pair: Pair) -> Iterator[RuntimeClients]:
    with open_runtime(request.param) as runtime, ExitStack() as stack:
        yield RuntimeClients(runtime, pair, stack)


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)


def sent_bodies(sent: list[Sent]) -> list[bytes]:
    return sorted(message.body for message in sent)


def test_java_reads_what_we_send(runtime_clients: RuntimeClients, pair: Pair) -> None:
    topic = pair.topic("Sent")
    producer = runtime_clients.start("Producer", pair.name("sender"), send_msg_timeout=30_000)
    message = Message(topic, b"one", tags="TagA", keys="one", properties={"color": "red"})
    assert producer.send(message).status is SendStatus.SEND_OK
    same = {producer.send(Message(topic, b"two"), selector=select_by_hash, argument="key").queue for _ in range(2)}
    assert len(same) == 1
    producer.send([Message(topic, b"in a list"), Message(topic, b"in a list too")])
    producer.send_oneway(Message(topic, b"one-way"))
    found = pull(pair, topic, 6)
    assert sorted(line["body"] for line in found) == ["in a list", "in a list too", "one", "one-way", "two", "two"]
    (line,) = [line for line in found if line["body"] == "one"]
    assert (line["tags"], line["keys"], line["properties"]["color"]) == ("TagA", "one", "red")


def test_we_consume_what_java_sends(runtime_clients: RuntimeClients, pair: Pair) -> None:
    """By tags; one message is refused and comes back; the offsets are the broker's when we have left."""
    topic, group = pair.topic("Received"), pair.name("received")
    open_group(pair, topic, group)
    sent = pair.produce(topic=topic, count=8, shard=4, tag="TagA,TagB")
    collector, refused = Collector(), set[str]()

    def listener(messages: list[MessageExt], context: Any) -> ConsumeStatus:
        if not refused:
            refused.add(messages[0].msg_id)
            return ConsumeStatus.RECONSUME_LATER
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    consumer = runtime_clients.consumer(topic, group, listener, "TagB")
    messages = collector.wait(4)
    assert bodies(messages) == sent_bodies(sent[1::2])
    assert {
        message.msg_id: message.reconsume_times for message in messages if message.reconsume_times
    } == dict.fromkeys(refused, 1)
    consumer.close()
    committed(pair, topic, group, [2] * 4)


def test_order_within_a_queue(runtime_clients: RuntimeClients, pair: Pair) -> None:
    topic = pair.topic("Orderly")
    sent = pair.produce(topic=topic, count=30, shard=3)
    collector, failures = Collector(), [True]

    def listener(messages: list[MessageExt], context: Any) -> ConsumeStatus:
        if failures:
            failures.pop()
            return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    runtime_clients.consumer(topic, pair.name("orderly"), listener, orderly=True)
    messages = collector.wait(30)
    assert bodies(messages) == sent_bodies(sent)
    for queue in range(4):
        at = [message.queue_offset for message in messages if message.queue_id == queue]
        assert at == [*range(len(at))]


def test_everybody_gets_a_broadcast_message(runtime_clients: RuntimeClients, pair: Pair, tmp_path: Path) -> None:
    topic, group = pair.topic("News"), pair.name("news")
    sent = pair.produce(topic=topic, count=8)
    collectors = [Collector(), Collector()]
    for collector in collectors:
        runtime_clients.consumer(
            topic,
            group,
            lambda messages, context, collector=collector: (collector.take(messages), ConsumeStatus.SUCCESS)[1],
            message_model=MessageModel.BROADCASTING,
            instance_name=pair.name("member"),
            local_offset_store_dir=str(tmp_path),
        )
    for collector in collectors:
        assert bodies(collector.wait(8)) == sent_bodies(sent)


def test_we_iterate_over_what_java_sends(runtime_clients: RuntimeClients, pair: Pair) -> None:
    topic, group = pair.topic("Iterated"), pair.name("iterated")
    open_group(pair, topic, group)
    sent = pair.produce(topic=topic, count=8, shard=4)
    consumer = runtime_clients.make("Consumer", group, **PROMPT)
    consumer.subscribe(topic)
    consumer.start()
    messages: list[MessageExt] = []
    while len(messages) < 8:
        message = consumer.receive(30_000)
        assert message is not None
        consumer.ack(message)
        messages.append(message)
    assert bodies(messages) == sent_bodies(sent)
    consumer.close()
    committed(pair, topic, group, [2] * 4)


def test_transactions_decided_at_once(runtime_clients: RuntimeClients, pair: Pair) -> None:
    topic = pair.topic("Decided")
    outcomes = {b"kept": LocalTransactionState.COMMIT_MESSAGE, b"dropped": LocalTransactionState.ROLLBACK_MESSAGE}
    listener = (
        as_coroutine(runtime_clients.runtime, lambda message, argument: outcomes[message.body]),
        as_coroutine(runtime_clients.runtime, lambda message: outcomes[message.body]),
    )
    producer = runtime_clients.start("TransactionProducer", pair.name("decided"), listener, send_msg_timeout=30_000)
    ids = [producer.send_in_transaction(Message(topic, body)).msg_id for body in (b"dropped", b"kept")]
    (line,) = pull(pair, topic, 1)
    assert (line["body"], line["msgId"]) == ("kept", ids[1])


def test_we_pull_and_poll_what_java_sends(runtime_clients: RuntimeClients, pair: Pair) -> None:
    topic, group = pair.topic("Pulled"), pair.name("pulled")
    sent = pair.produce(topic=topic, count=8, shard=4)
    puller = runtime_clients.start("PullConsumer", group, **HURRY)
    found: list[MessageExt] = []
    for queue in puller.fetch_subscribe_message_queues(topic):
        low = puller.min_offset(queue)
        assert (low, puller.max_offset(queue)) == (0, 2)
        result = puller.pull(queue, "*", low, 32)
        found += result.messages
        puller.update_consume_offset_to_broker(queue, result.next_begin_offset - 1)
    assert bodies(found) == sent_bodies(sent)
    committed(pair, topic, group, [1] * 4)
    puller.close()
    poller = runtime_clients.make("LitePullConsumer", group, **PROMPT)
    poller.subscribe(topic)
    poller.start()
    rest: list[MessageExt] = []
    while len(rest) < 4:
        rest += poller.poll(30_000)
    assert {message.queue_offset for message in rest} == {1}
    poller.commit_sync()
    committed(pair, topic, group, [2] * 4)


def test_we_administer(runtime_clients: RuntimeClients, pair: Pair) -> None:
    topic, group = pair.name("Made"), pair.name("made")
    admin = runtime_clients.start("Admin", timeout_ms=60_000)

    def do(operation: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        return runtime_clients.runtime.call(operation, *arguments, **settings)

    assert do(admin.topics.create, topic, cluster=CLUSTER, read_queues=2, write_queues=2) == [pair.server.broker]
    (sent, *_) = pair.produce(topic=topic, count=4, keys="made")
    until = time.monotonic() + 60
    while sum(one.max_offset for one in do(admin.topics.stats, topic).values()) != 4:  # queues follow the log
        assert time.monotonic() < until
    consume(pair, topic, group, 4)
    found = None
    until = time.monotonic() + 60
    while found is None and time.monotonic() < until:  # the index follows the log
        with suppress(NoMessage):
            found = do(admin.messages.by_unique_id, topic, sent.msg_id)
    assert found is not None
    assert (found.body, found.properties["KEYS"]) == (sent.body, "made-0")
    assert set(do(admin.offsets.reset_by_time, group, topic, 0).offsets.values()) == {0}
    do(admin.topics.delete, topic, CLUSTER)
