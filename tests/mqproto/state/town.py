"""Clients back to back with our name server and broker, under virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.adapters.simulated.host import Host
from mqproto.adapters.simulated.simulator import Simulator
from mqproto.engine.broker.node import BrokerNode
from mqproto.engine.namesrv import NameServerNode
from mqproto.engine.settings import BrokerSettings, NamesrvSettings
from mqproto.engine.store import Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.message import ConsumeStatus, Message, MessageExt, SendResult
from mqproto.state.admin import AdminCore
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.bodies import ConsumeFromWhere

R = TypeVar("R")

NAME_SERVER = "192.0.2.1:9876"
CALM = SimulatedConditions(delay_max=1, split=0.0)
SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER
Listener = Callable[[list[MessageExt]], object]


class Town:
    """A name server, a broker, and clients, in one world."""

    def __init__(self, seed: int = 1, conditions: SimulatedConditions = CALM, brokers: int = 1) -> None:
        self.world = Simulator(seed, conditions=conditions)
        self.files: dict[str, MemoryFiles] = {}
        self.name_server = self.world.add("namesrv", NameServerNode(NamesrvSettings()), {"main": NAME_SERVER})
        self.brokers = [
            self.add_broker(f"broker-{letter}", f"192.0.2.{10 + number}")
            for number, letter in enumerate("abc"[:brokers])
        ]
        self.clients = 0
        self.world.run_for(1_000)

    def add_broker(self, name: str, ip: str, files: MemoryFiles | None = None) -> Host:
        sizes = StoreSettings(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20_000,
            max_hash_slot_num=500,
            max_index_num=2_000,
        )
        files = self.files[name] = files or MemoryFiles()
        store = Store.open(sizes, files, wall=self.world.wall_ahead)
        settings = BrokerSettings(broker_name=name, namesrv_addr=NAME_SERVER)
        return self.world.add(
            name,
            BrokerNode(settings, store, host=ip, port=10911, files=files),
            {"main": f"{ip}:10911", "fast": f"{ip}:10909"},
        )

    def client(self) -> tuple[Host, ClientNode]:
        self.clients += 1
        number = self.clients
        identity = ClientIdentity(f"198.51.100.{number}", 4_000 + number, f"client-{number}", seed=number)
        node = ClientNode(ClientSettings(name_servers=(NAME_SERVER,)), identity)
        return self.world.add(f"client-{number}", node), node

    def run(self, host: Host, node: ClientNode, make: Callable[[int], Flow[R]], limit_ms: int = 60_000) -> R:
        """Run a flow on a client to its end."""
        found: list[Ticket[R]] = []
        host.enter(lambda now: found.append(node.start(make(now), now)))
        self.world.run_until(lambda: found[0].settled, limit_ms)
        return found[0].result()

    def producer(self) -> Producer:
        return Producer(self)

    def consumer(self, *topics: str, listener: Listener | None = None, **settings: Any) -> Consumer:
        return Consumer(self, topics, listener or (lambda messages: SUCCESS), settings)


def town_of_one_queue() -> Town:
    """A town with the topic T, which has one queue."""
    town = Town()
    host, node = town.client()
    topics = AdminCore(node).topics
    town.run(host, node, lambda now: topics.create("T", broker="192.0.2.10:10911", read_queues=1, write_queues=1))
    return town


class Producer:
    def __init__(self, town: Town) -> None:
        self.town = town
        self.host, self.node = town.client()
        self.core = self.node.add_producer(ProducerSettings("producers"), town.world.now)

    def send(self, topic: str, *bodies: bytes, tag: str | None = None) -> list[SendResult]:
        def sending(body: bytes) -> Callable[[int], Flow[SendResult]]:
            return lambda now: self.core.send(Message(topic, body, tag), now)

        return [self.town.run(self.host, self.node, sending(body)) for body in bodies]


class Consumer:
    """A consumer whose listener answers after `takes_ms`."""

    def __init__(
        self, town: Town, topics: tuple[str, ...], listener: Listener, settings: dict[str, Any], takes_ms: int = 0
    ) -> None:
        self.town = town
        self.takes_ms = takes_ms
        self.host, self.node = town.client()
        self.listener = listener
        self.seen: list[MessageExt] = []
        self.host.on_deliver = self._deliver
        given = {"group": "consumers", "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **settings}
        self.core = PushConsumerCore(self.node, ConsumerSettings(**given), "listener")
        for topic in topics:
            self.core.subscribe(topic, now=town.world.now)

    def _deliver(self, action: Deliver) -> None:
        task = action.task
        assert isinstance(task, ConsumeTask)
        world = self.town.world

        def consume() -> None:
            if self.host.alive:
                self.seen += task.messages
                result = self.listener(task.messages)
                self.host.enter(lambda now: self.node.consumed(task, result, now))

        world.at(world.now + self.takes_ms, consume)

    def start(self) -> Consumer:
        self.town.run(self.host, self.node, self.core.start)
        return self

    def close(self) -> None:
        self.town.run(self.host, self.node, self.core.shutdown)

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.seen]

    @property
    def queues(self) -> int:
        return len([queue for queue in self.core._assignment.queues if not queue.topic.startswith("%")])
