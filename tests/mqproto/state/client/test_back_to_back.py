"""Our client, name server and broker in one process, without sockets: the whole way of a message, in good and bad
conditions.

The two sides know nothing of each other's code, so what they agree on here they read out of the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from mqproto.adapters.simulated import Host, SimulatedConditions, Simulator
from mqproto.engine.broker.node import BrokerNode
from mqproto.engine.namesrv import NameServerNode
from mqproto.engine.settings import BrokerSettings, NamesrvSettings
from mqproto.engine.store import Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.errors import BrokerError, MQError, SendFailed
from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue, SendResult, SendStatus
from mqproto.selectors import select_by_hash
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.bodies import ConsumeFromWhere
from mqproto.wire.codes import VERSION

R = TypeVar("R")

NAME_SERVERS = ("10.0.0.1:9876", "10.0.0.2:9876")
CALM = SimulatedConditions(delay_max=2, split=0.3, job_max=2)


@dataclass
class Client:
    """A client node in the simulator."""

    simulator: Simulator
    host: Host
    node: ClientNode
    seen: list[MessageExt] = field(default_factory=list)
    #: What the listener says of a delivery.
    judge: Callable[[ConsumeTask], object] = lambda task: ConsumeStatus.SUCCESS

    def start(self, make: Callable[[int], Flow[R]]) -> Ticket[R]:
        tickets: list[Ticket[R]] = []
        self.host.enter(lambda now: tickets.append(self.node.start(make(now), now)))
        return tickets[0]

    def run(self, make: Callable[[int], Flow[R]]) -> R:
        ticket = self.start(make)
        self.simulator.run_until(lambda: ticket.settled)
        return ticket.result()

    def deliver(self, action: Deliver) -> None:
        task = action.task
        assert isinstance(task, ConsumeTask)
        self.seen += task.messages
        result = self.judge(task)
        self.simulator.at(
            self.simulator.now, lambda: self.host.enter(lambda now: self.node.consumed(task, result, now))
        )

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.seen]


class Cluster:
    """Name servers, brokers, and clients as they come."""

    def __init__(
        self, seed: int = 1, brokers: str = "a", conditions: SimulatedConditions = CALM, **settings: Any
    ) -> None:
        self.simulator = Simulator(seed, conditions=conditions)
        self.settings = settings
        for number, address in enumerate(NAME_SERVERS):
            self.simulator.add(f"ns{number}", NameServerNode(NamesrvSettings()), {"main": address})
        self.files: dict[str, MemoryFiles] = {}
        self.brokers = {name: self.add_broker(name) for name in brokers}
        self.simulator.run_for(2_000)
        self._clients = 0

    def add_broker(self, name: str) -> Host:
        """A broker, over what an earlier one of this name left on its disk."""
        ip = f"10.0.1.{ord(name)}"
        files = self.files.setdefault(name, MemoryFiles())
        store_settings = StoreSettings(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=1 << 22,
            mapped_file_size_consume_queue=200_000,
            max_hash_slot_num=1000,
            max_index_num=4000,
        )
        store = Store.open(store_settings, files, wall=self.simulator.now + self.simulator.wall_ahead)
        settings = BrokerSettings(broker_name=f"broker-{name}", namesrv_addr=";".join(NAME_SERVERS), **self.settings)
        node = BrokerNode(settings, store, host=ip, port=10911, files=files)
        return self.simulator.add(f"broker-{name}", node, {"main": f"{ip}:10911", "fast": f"{ip}:10909"})

    def crash(self, name: str) -> None:
        self.simulator.crash(self.brokers[name])
        self.files[name] = self.files[name].process_death()

    def client(self, **settings: Any) -> Client:
        self._clients += 1
        identity = ClientIdentity(f"10.0.2.{self._clients}", 7, f"7#{self._clients}", self._clients)
        node = ClientNode(ClientSettings(name_servers=NAME_SERVERS, **settings), identity)
        client = Client(self.simulator, self.simulator.add(f"client{self._clients}", node), node)
        client.host.on_deliver = client.deliver
        return client

    def producer(self, **settings: Any) -> tuple[Client, ProducerCore]:
        client = self.client()
        cores: list[ProducerCore] = []
        client.host.enter(
            lambda now: cores.append(client.node.add_producer(ProducerSettings(group="pg", **settings), now))
        )
        return client, cores[0]

    def create_topic(self, client: Client, core: ProducerCore) -> None:
        """Have the topic created by a message at each broker (left to itself, the first message decides on one), and
        known to all.
        """
        client.run(lambda now: core.publish_queues("orders", now))
        for name in sorted(self.brokers):
            message, queue = Message("orders", name.encode()), MessageQueue("orders", f"broker-{name}", 0)
            client.run(lambda now, m=message, q=queue: core.send(m, now, queue=q))  # type: ignore[misc]
        self.simulator.run_for(31_000)

    def consumer(self, topic: str = "orders", expression: str = "*", **settings: Any) -> Client:
        client = self.client()
        settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **settings}
        core = PushConsumerCore(client.node, ConsumerSettings(group="cg", **settings), object())
        core.subscribe(topic, expression, now=self.simulator.now)
        client.run(core.start)
        return client


def test_a_message_from_end_to_end() -> None:
    cluster = Cluster()
    client, core = cluster.producer()
    message = Message("orders", "paid ✓".encode(), tags="T", keys=["k1", "k2"], properties={"shop": "7"}, flag=9)
    result = client.run(lambda now: core.send(message, now))
    assert result.status is SendStatus.SEND_OK
    assert result.queue_offset == 0
    consumer = cluster.consumer()
    cluster.simulator.run_until(lambda: len(consumer.seen) == 1)
    [seen] = consumer.seen
    assert (seen.topic, seen.body, seen.tags, seen.keys, seen.flag) == ("orders", message.body, "T", ["k1", "k2"], 9)
    assert seen.properties["shop"] == "7"
    assert (seen.msg_id, seen.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (seen.queue_id, seen.queue_offset, seen.broker_name) == (result.queue.queue_id, 0, "broker-a")
    assert client.node.routes.versions == {"10.0.1.97:10911": VERSION}


def test_large_bodies_and_batches() -> None:
    cluster = Cluster()
    client, core = cluster.producer()
    consumer = cluster.consumer()
    large = bytes(range(256)) * 40
    client.run(lambda now: core.send(Message("orders", large), now))
    batch = [Message("orders", b"%d" % n + b"y" * 5000) for n in range(3)]
    result = client.run(lambda now: core.send_batch(batch, now))
    client.run(lambda now: core.send_oneway(Message("orders", b"one-way"), now))
    cluster.simulator.run_until(lambda: len(consumer.seen) == 5, 90_000)
    assert sorted(consumer.bodies()) == sorted([large, *(message.body for message in batch), b"one-way"])
    assert result.msg_id.split(",") == [message.msg_id for message in consumer.seen if message.body.endswith(b"yy")]


def test_keys_stay_in_their_queue_and_in_order() -> None:
    cluster = Cluster(brokers="ab")
    client, core = cluster.producer()
    cluster.create_topic(client, core)
    queues: set[MessageQueue] = set()
    for number in range(20):
        found = client.run(lambda now: core.publish_queues("orders", now))
        assert len(found) == 8
        message = Message("orders", b"%d" % number)
        queue = select_by_hash(found, message, "k")
        queues.add(client.run(lambda now, m=message, q=queue: core.send(m, now, queue=q)).queue)  # type: ignore[misc]
    assert len(queues) == 1
    consumer = cluster.consumer()
    cluster.simulator.run_until(lambda: len(consumer.seen) == 22)
    assert [body for body in consumer.bodies() if body not in (b"a", b"b")] == [b"%d" % number for number in range(20)]


def test_a_new_message_reaches_a_waiting_consumer_at_once() -> None:
    """CON-19: a pull is held by the broker for 15 s and more, without any time-out of ours."""
    cluster = Cluster()
    client, core = cluster.producer()
    client.run(lambda now: core.send(Message("orders", b"0"), now))
    consumer = cluster.consumer()
    cluster.simulator.run_for(100_000)
    assert consumer.bodies() == [b"0"]
    begun = cluster.simulator.now
    client.run(lambda now: core.send(Message("orders", b"1"), now))
    cluster.simulator.run_until(lambda: len(consumer.seen) == 2)
    assert cluster.simulator.now - begun < 100
    assert not any("no answer" in notice for notice in consumer.node.notices)


def test_a_failed_message_comes_back_by_the_retry_topic() -> None:
    cluster = Cluster()
    client, core = cluster.producer()
    client.run(lambda now: core.send(Message("orders", b"bad"), now))
    consumer = cluster.consumer()
    consumer.judge = lambda task: (
        ConsumeStatus.RECONSUME_LATER if task.messages[0].reconsume_times < 2 else ConsumeStatus.SUCCESS
    )
    cluster.simulator.run_until(lambda: len(consumer.seen) == 3, 120_000)
    assert [message.reconsume_times for message in consumer.seen] == [0, 1, 2]
    assert {message.msg_id for message in consumer.seen} == {consumer.seen[0].msg_id}
    assert {message.topic for message in consumer.seen} == {"orders"}


def test_two_consumers_share_and_take_over() -> None:
    cluster = Cluster()
    client, core = cluster.producer()
    client.run(lambda now: core.send(Message("orders", b"first"), now))
    one = cluster.consumer()
    two = cluster.consumer()
    cluster.simulator.run_for(1_000)
    for number in range(40):
        client.run(lambda now, n=number: core.send(Message("orders", b"%d" % n), now))  # type: ignore[misc]
    cluster.simulator.run_for(1_000)
    assert len(one.seen) > 10
    assert len(two.seen) > 10
    assert sorted(one.bodies() + two.bodies()) == sorted([b"first", *(b"%d" % number for number in range(40))])
    one.host.enter(one.node.close)
    cluster.simulator.run_until(lambda: one.node.ended)
    before = len(two.seen)
    for number in range(8):
        client.run(lambda now, n=number: core.send(Message("orders", b"late %d" % n), now))  # type: ignore[misc]
    cluster.simulator.run_for(1_000)
    assert len(two.seen) == before + 8, (
        "told by the broker, not by the 20 s timer; nothing comes twice after an orderly end"
    )


def test_refusals_of_the_broker() -> None:
    cluster = Cluster()
    client, core = cluster.producer(max_message_size=1 << 24, compress_body_over=1 << 25)
    with pytest.raises(BrokerError) as caught:
        client.run(lambda now: core.send(Message("orders", b"x" * (5 << 20)), now))
    assert caught.value.code == 13
    cluster = Cluster(auto_create_topic_enable=False)
    client, core = cluster.producer()
    with pytest.raises(MQError) as missing:
        client.run(lambda now: core.send(Message("orders", b"x"), now))
    assert type(missing.value).__name__ == "NoRoute"


def test_a_broker_that_dies_loses_nothing_that_it_acknowledged() -> None:
    cluster = Cluster(brokers="ab")
    client, core = cluster.producer()
    cluster.create_topic(client, core)
    sent: list[SendResult] = []
    for number in range(20):
        sent.append(client.run(lambda now, n=number: core.send(Message("orders", b"%d" % n), now)))  # type: ignore[misc]
    cluster.crash("a")
    for number in range(20, 40):
        sent.append(client.run(lambda now, n=number: core.send(Message("orders", b"%d" % n), now)))  # type: ignore[misc]
    assert {result.queue.broker_name for result in sent[20:]} == {"broker-b"}
    cluster.brokers["a"] = cluster.add_broker("a")
    consumer = cluster.consumer()
    cluster.simulator.run_until(lambda: len(set(consumer.bodies())) == 42, 120_000)
    assert {result.msg_id for result in sent} <= {message.msg_id for message in consumer.seen}


def test_without_any_broker_the_failure_says_what_was_tried() -> None:
    cluster = Cluster()
    client, core = cluster.producer()
    client.run(lambda now: core.send(Message("orders", b"x"), now))
    cluster.crash("a")
    with pytest.raises(SendFailed) as caught:
        client.run(lambda now: core.send(Message("orders", b"x"), now, timeout_ms=500))
    assert {attempt.address for attempt in caught.value.attempts} == {"10.0.1.97:10911"}


@pytest.mark.parametrize("seed", range(8))
def test_nothing_acknowledged_is_lost_in_bad_weather(seed: int) -> None:
    """At least once: links break, a broker and a name server die and come back, a consumer leaves."""
    cluster = Cluster(seed, brokers="ab")
    client, core = cluster.producer()
    client.run(lambda now: core.send(Message("orders", b"first"), now))
    consumers = [cluster.consumer(), cluster.consumer()]
    simulator = cluster.simulator
    simulator.conditions = SimulatedConditions(delay_max=5, split=0.3, cut=0.01, job_max=3)
    tickets: list[Ticket[SendResult]] = []
    for step in range(200):
        tickets.append(client.start(lambda now, n=step: core.send(Message("orders", b"%d" % n), now)))  # type: ignore[misc]
        if step == 50:
            cluster.crash("a")
        if step == 90:
            cluster.brokers["a"] = cluster.add_broker("a")
        if step == 120:
            simulator.crash(simulator.hosts[0])
        if step == 150:
            consumers[0].host.enter(consumers[0].node.close)
        simulator.run_for(simulator.random.randint(1, 200))
    simulator.conditions = CALM
    simulator.run_for(60_000)
    assert all(ticket.settled for ticket in tickets)
    acknowledged = {ticket.result().msg_id for ticket in tickets if ticket.failure is None}
    assert len(acknowledged) > 150
    assert acknowledged <= {message.msg_id for consumer in consumers for message in consumer.seen}
    for consumer in (client, consumers[1]):
        consumer.host.enter(consumer.node.close)
        simulator.run_until(lambda node=consumer.node: node.ended)  # type: ignore[misc]
    assert consumers[0].node.ended
