"""Whole clusters in a simulated world: name servers, brokers with their disks, producers and consumers, all from one seed.

    cluster = Cluster(seed=1)
    consumer = cluster.consumer("group", lambda messages: ConsumeStatus.SUCCESS, topics=("orders",)).start()
    cluster.producer("shop").send(Message("orders", b"paid"))
    cluster.broker.crash(power=True)
    cluster.broker.start()
    cluster.run_until(lambda: len(consumer.messages) == 1)

Names and settings are those of the real clients and servers. What waits there runs the world here, until it has its outcome.

Owns: which nodes there are and where, disks and what a crash leaves of them, calls of listeners, the records of all that.
Leaves to others: time and network (`world`), what must be true of a cluster (`checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack

from adapters.faces.push import takes_context
from adapters.settings import ClientOptions, ConsumerOptions, ProducerOptions, client_settings, consumer_settings, producer_settings
from adapters.simulated.records import Delivery, Records, Sent
from adapters.simulated.world import Host, Weather, World
from engine.broker.node import Broker
from engine.namesrv import NameServer
from engine.settings import BrokerSettings, NamesrvSettings, apply_all
from engine.store import Store, StoreSettings, StoreUnwritable
from engine.store.memory import MemoryFiles
from engine.store.settings import SYNC_FLUSH
from mqproto.errors import StateError
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.state.client import ClientNode
from mqproto.state.consumer import ConsumerCore
from mqproto.state.consumption import ConsumeTask
from mqproto.state.flows import Flow
from mqproto.state.node import Deliver, Node, Ticket
from mqproto.state.settings import ClientIdentity

N = TypeVar("N", bound=Node)
R = TypeVar("R")

#: A listener that says which messages were consumed, as those of `PushConsumer`; a raised exception counts as failure.
Listener = Callable[..., object]
#: How long a listener takes, in milliseconds.
Takes = int | Callable[[], int]

#: Small files: a disk that forgets keeps a copy of each. Larger messages need a larger log file.
SMALL_FILES: Mapping[str, str] = {
    "storePathRootDir": "/store",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
_SETTLED_MS = 2_000


class Machine(Generic[N]):
    """Where a server runs, dies and starts again. The disk outlives its processes, as far as a crash lets it.

    `make` builds the server over the files and is called at each start; what it raises then, `start` raises.
    """

    def __init__(
        self, world: World, name: str, addresses: Mapping[str, str], make: Callable[[MemoryFiles], N], *, syncs: bool = True
    ) -> None:
        self.world = world
        self.name = name
        self.addresses = dict(addresses)
        self.files = MemoryFiles(forgetful=True)
        self.files.clock = lambda: world.now + world.wall_ahead
        #: Where the server runs, or ran last.
        self.host: Host | None = None
        #: When the machine lost power, and when the server was started, in virtual time.
        self.power_losses: list[int] = []
        self.starts: list[int] = []
        self._make = make
        self._loses = not syncs
        self._attempts = 0

    @property
    def up(self) -> bool:
        """Whether a server runs here."""
        return self.host is not None and self.host.alive

    @property
    def incomplete(self) -> bool:
        """Whether the disk has lost what it had never promised to keep: power was lost under ASYNC_FLUSH."""
        return self._loses and bool(self.power_losses)

    @property
    def node(self) -> N:
        """The server that runs, or ran last."""
        assert self.host is not None, f"{self.name} was never started"
        node: N = self.host.node  # type: ignore[assignment]
        return node

    def start(self) -> bool:
        """Start the server over what is on the disk. False: the machine died meanwhile (`die_at_change`)."""
        if self.up:
            raise StateError(f"{self.name} runs already")
        self._attempts += 1
        attempt = self._attempts
        try:
            node = self._make(self.files)
        except (StoreUnwritable, OSError):
            if attempt == self._attempts:
                raise
            return False
        self.host = self.world.add(self.name, node, self.addresses)
        self.starts.append(self.world.now)
        return self.host.alive

    def stop(self) -> None:
        """Stop the server in an orderly way; runs the world until it has ended."""
        host = self.host
        if host is None or not host.alive:
            raise StateError(f"{self.name} does not run")
        host.enter(host.node.close)
        self.world.run_until(lambda: not host.alive)

    def crash(self, *, power: bool = False) -> None:
        """The process is killed; the disk keeps what it wrote. `power`: the whole machine stops, the disk keeps what was synced and, by
        seed, any part of the rest; peers are not told."""
        self._attempts += 1
        if self.host is not None and self.host.alive:
            self.world.crash(self.host, silently=power)
        if power:
            self.power_losses.append(self.world.now)
            random = self.world.random
            chance = random.choice((0.0, 0.5, random.random()))
            names = random.choice((0, random.randint(0, self.files.pending_names)))
            self.files = self.files.power_loss(lambda path, sector: random.random() < chance, names)
        else:
            self.files = self.files.process_death()

    def die_at_change(self, count: int, *, power: bool = False) -> None:
        """Crash just before the disk changes for the `count`-th time from now, in the middle of whatever the server does then."""
        left = count

        def before_change(change: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.crash(power=power)
            if left <= 0:
                raise OSError(5, "the machine is down", path)

        self.files.before_change = before_change

    def freeze(self) -> None:
        """The server does not run for a while."""
        if self.host is not None and self.host.alive:
            self.world.freeze(self.host)

    def thaw(self) -> None:
        """It runs again."""
        if self.host is not None:
            self.world.thaw(self.host)


class Client:
    """One client node. `name` is its host's name in the world."""

    def __init__(self, cluster: Cluster, options: ClientOptions) -> None:
        world = cluster.world
        self.cluster = cluster
        number = cluster.new_number()
        self.name = f"client-{number}"
        ip = f"10.0.{2 + number // 250}.{1 + number % 250}"
        identity = ClientIdentity(ip, number, f"{number}#{number}", world.random.randrange(1 << 31))
        self.node = ClientNode(client_settings(list(cluster.name_servers_addresses), options), identity)
        self.host = world.add(self.name, self.node)
        self._sleeps: list[tuple[int, int]] = []
        self._frozen_at: int | None = None

    @property
    def up(self) -> bool:
        return self.host.alive

    @property
    def sleeps(self) -> list[tuple[int, int]]:
        """When it was frozen, from and to (until now, if it is)."""
        return self._sleeps if self._frozen_at is None else [*self._sleeps, (self._frozen_at, self.cluster.now + 1)]

    def begin(self, make: Callable[[int], Flow[R]]) -> Ticket[R]:
        """Start an operation; `make` gets the time and gives a flow. Raises StateError while the client is frozen or dead."""
        if self.host.asleep or not self.host.alive:
            raise StateError(f"{self.name} does not run")
        tickets: list[Ticket[R]] = []
        self.host.enter(lambda now: tickets.append(self.node.start(make(now), now)))
        return tickets[0]

    def run(self, make: Callable[[int], Flow[R]]) -> R:
        """The same, and run the world until there is an outcome."""
        ticket = self.begin(make)
        self.cluster.world.run_until(lambda: ticket.settled)
        return ticket.result()

    def close(self) -> None:
        """The orderly end; runs the world until it is over."""
        self.host.enter(self.node.close)
        self.cluster.world.run_until(lambda: not self.up)

    def crash(self, *, power: bool = False) -> None:
        """The process is killed, or (`power`) its whole machine stops, and brokers are not told."""
        self.cluster.world.crash(self.host, silently=power)

    def freeze(self) -> None:
        """The client does not run for a while."""
        if self._frozen_at is None and self.up:
            self._frozen_at = self.cluster.now
            self.cluster.world.freeze(self.host)

    def thaw(self) -> None:
        """It runs again."""
        if self._frozen_at is not None:
            slept_ms = self.cluster.now - self._frozen_at
            self._sleeps.append((self._frozen_at, self.cluster.now))
            self._frozen_at = None
            for sent in self.cluster.records.sends:
                if sent.ended is None and sent.producer == self.name:
                    sent.frozen_ms += slept_ms
            self.cluster.world.thaw(self.host)


class Producer(Client):
    """Sends messages."""

    def __init__(self, cluster: Cluster, group: str, options: ProducerOptions) -> None:
        super().__init__(cluster, options)
        self.core = self.node.add_producer(producer_settings(group, options), cluster.now)

    def send(self, message: Message | Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None) -> SendResult:
        """Send a message or a batch and run the world until there is an outcome. Raises as `Producer.send` of the real clients."""
        sent = self.submit(message, queue=queue, timeout_ms=timeout_ms)
        self.cluster.world.run_until(lambda: sent.ticket.settled)
        result: SendResult = sent.ticket.result()
        return result

    def submit(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        oneway: bool = False,
        callback: bool = False,
    ) -> Sent:
        """Begin a send; its outcome comes with the world's time. `callback`: as the asynchronous sends of Apache's clients retry."""
        core = self.core
        messages = (message,) if isinstance(message, Message) else tuple(message)

        def make(now: int) -> Flow[Any]:
            if not isinstance(message, Message):
                return core.send_batch(message, now, queue=queue, timeout_ms=timeout_ms)
            if oneway:
                return core.send_oneway(message, now, queue=queue, timeout_ms=timeout_ms)
            if callback:
                return core.send_async(message, now, queue=queue, timeout_ms=timeout_ms)
            return core.send(message, now, queue=queue, timeout_ms=timeout_ms)

        if self.host.asleep or not self.up:
            raise StateError(f"{self.name} does not run")
        budget_ms = core.settings.send_timeout_ms if timeout_ms is None else timeout_ms
        made: list[Sent] = []

        def start(now: int) -> None:
            sent = Sent(self.name, messages, now, budget_ms, oneway, self.node.start(make(now), now))
            sent.ticket.wake = lambda: self._woken(sent)
            made.append(sent)

        self.host.enter(start)
        self.cluster.records.sends.append(made[0])
        return made[0]

    def _woken(self, sent: Sent) -> None:
        sent.wakes += 1
        sent.ended = self.cluster.now

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that a message of the topic could go to; runs the world until they are known."""
        return self.run(lambda now: self.core.publish_queues(topic, now))


class Consumer(Client):
    """Receives messages of a group. Each call of the listener begins at once and has its result `takes_ms` later."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        listener: Listener,
        topics: Sequence[str],
        expression: str,
        takes_ms: Takes,
        options: ConsumerOptions,
    ) -> None:
        super().__init__(cluster, options)
        self.listener = listener
        self.takes_ms = takes_ms
        #: What was delivered, in order.
        self.messages: list[MessageExt] = []
        #: What it subscribes, by topic.
        self.expressions: dict[str, str] = {}
        self.core = ConsumerCore(self.node, consumer_settings(group, options), listener)
        if self.core.settings.orderly:
            cluster.records.orderly.add(group)
        self._takes_context = takes_context(listener)
        self.host.on_deliver = self._deliver
        for topic in topics:
            self.subscribe(topic, expression)

    @property
    def group(self) -> str:
        return self.core.group

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Consume a topic, before or after the start."""
        self.host.enter(lambda now: self.core.subscribe(topic, expression, kind, now=now))
        self.expressions[topic] = expression
        if expression != "*":
            self.cluster.records.filtering.add(self.group)

    def start(self) -> Consumer:
        """Start it and run the world until that has succeeded. Raises as `PushConsumer.start`."""
        self.run(self.core.start)
        return self

    def begin_start(self) -> Ticket[None]:
        """Start it; the outcome comes with the world's time."""
        return self.begin(self.core.start)

    def _deliver(self, action: Deliver) -> None:
        task = action.task
        assert isinstance(task, ConsumeTask)
        cluster = self.cluster
        queue = task.context.queue
        behind = cluster.records.behind(self.group, queue)
        delivery = Delivery(self.name, self.group, queue, task.process_queue, task.messages, cluster.now, behind)
        cluster.records.deliveries.append(delivery)
        self.messages += task.messages
        takes_ms = self.takes_ms if isinstance(self.takes_ms, int) else self.takes_ms()
        result = self._listen(task)

        def over() -> None:
            cluster.records.ended(delivery, result, cluster.now)
            self.host.enter(lambda now: self.node.consumed(task, result, now))

        cluster.world.at(cluster.now + takes_ms, lambda: self.host.when_awake(over))

    def _listen(self, task: ConsumeTask) -> object:
        try:
            return self.listener(task.messages, task.context) if self._takes_context else self.listener(task.messages)
        except Exception as failure:  # what a listener raises is its result, as in the real clients
            return failure


class Cluster:
    """A world with `name_servers` name servers and `brokers` brokers that have started and registered.

    `settings` are the brokers', by Apache's keys. `weather` may be changed at any time (`cluster.world.weather`).
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        brokers: int = 1,
        name_servers: int = 1,
        weather: Weather | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.world = World(seed, weather=weather)
        self.records = Records()
        self.settings = dict(settings or {})
        self.clients: list[Client] = []
        self._numbers = 0
        self.name_servers = [
            Machine(self.world, f"namesrv-{number}", {"main": f"10.0.0.{number}:9876"}, lambda files: NameServer(NamesrvSettings()))
            for number in range(1, name_servers + 1)
        ]
        self.brokers = {machine.name: machine for machine in map(self._broker, range(1, brokers + 1))}
        for machine in self.servers:
            machine.start()
        self.world.run_for(_SETTLED_MS)

    def _broker(self, number: int) -> Machine[Broker]:
        name = f"broker-{chr(ord('a') + number - 1)}"
        ip = f"10.0.1.{number}"

        def make(files: MemoryFiles) -> Broker:
            own = {"brokerName": name, "namesrvAddr": ";".join(self.name_servers_addresses)}
            settings, storing = BrokerSettings(), StoreSettings()
            apply_all((settings, storing), {**own, **SMALL_FILES, **self.settings})
            store = Store.open(storing, files, wall=self.world.now + self.world.wall_ahead)
            return Broker(settings, store, host=ip, port=10911, seed=number, files=files)

        syncs = self.settings.get("flushDiskType") == SYNC_FLUSH
        return Machine(self.world, name, {"main": f"{ip}:10911", "fast": f"{ip}:10909"}, make, syncs=syncs)

    # --- what there is

    @property
    def now(self) -> int:
        """Virtual time in milliseconds."""
        return self.world.now

    @property
    def broker(self) -> Machine[Broker]:
        """The first broker."""
        return next(iter(self.brokers.values()))

    @property
    def name_server(self) -> Machine[NameServer]:
        """The first name server."""
        return self.name_servers[0]

    @property
    def servers(self) -> list[Machine[Any]]:
        """All name servers and brokers."""
        return [*self.name_servers, *self.brokers.values()]

    @property
    def name_servers_addresses(self) -> tuple[str, ...]:
        return tuple(machine.addresses["main"] for machine in self.name_servers)

    @property
    def producers(self) -> list[Producer]:
        """The producers that run."""
        return [client for client in self.clients if isinstance(client, Producer) and client.up]

    @property
    def consumers(self) -> list[Consumer]:
        """The consumers that run."""
        return [client for client in self.clients if isinstance(client, Consumer) and client.up]

    def new_number(self) -> int:
        """A number for a client."""
        self._numbers += 1
        return self._numbers

    # --- what joins

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer; options as of the real `Producer`."""
        producer = Producer(self, group, options)
        self.clients.append(producer)
        return producer

    def consumer(
        self,
        group: str,
        listener: Listener,
        *,
        topics: Sequence[str] = (),
        expression: str = "*",
        takes_ms: Takes = 0,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """A push consumer, to be started; options as of the real `PushConsumer`. `takes_ms` is how long its listener takes."""
        consumer = Consumer(self, group, listener, topics, expression, takes_ms, options)
        self.clients.append(consumer)
        return consumer

    # --- time

    def run_for(self, ms: int) -> None:
        """Let virtual time pass."""
        self.world.run_for(ms)

    def run_until(self, happened: Callable[[], bool], limit_ms: int = 600_000) -> None:
        """Run until `happened()`; AssertionError when that takes more than `limit_ms` of virtual time."""
        self.world.run_until(happened, limit_ms)
