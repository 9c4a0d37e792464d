"""Simulated cluster: name servers, brokers with their disks, producers and consumers, all from one seed.

    cluster = Cluster(seed=1)
    consumer = cluster.consumer("group", lambda messages: ConsumeStatus.SUCCESS, topics=("orders",)).start()
    cluster.producer("shop").send(Message("orders", b"paid"))
    cluster.broker.crash(power=True)
    cluster.broker.start()
    cluster.run_until(lambda: len(consumer.messages) == 1)

Names and settings are those of the real clients and servers. What waits there lets virtual time pass here, until it has
its outcome.

Owns: which nodes there are and where, disks and what a crash leaves of them.
Leaves to others: time and network (`simulator`), what clients do (`clients`), what must be true of a cluster
(`checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack

from mqproto.adapters.base.settings.options import ClientOptions, ConsumerOptions, ProducerOptions
from mqproto.adapters.simulated.clients import (
    Client,
    Listener,
    SimulatedConsumer,
    SimulatedMember,
    SimulatedProducer,
    Takes,
)
from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.adapters.simulated.host import Host
from mqproto.adapters.simulated.records import Records
from mqproto.adapters.simulated.simulator import Simulator
from mqproto.engine.broker.node import BrokerNode
from mqproto.engine.namesrv import NameServerNode
from mqproto.engine.settings import BrokerSettings, NamesrvSettings, apply_all
from mqproto.engine.store import Store, StoreSettings, StoreUnwritable
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.engine.store.settings import SYNC_FLUSH
from mqproto.errors import StateError
from mqproto.namespaces import Namespace
from mqproto.state.node.contract import Node

N = TypeVar("N", bound=Node)
C = TypeVar("C", bound=Client)

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
    """Machine on which a server runs, dies and starts again. The disk outlives the process, as far as a crash lets it.

    `make` builds the server over the files and is called at each start; what it raises then, `start` raises.
    """

    def __init__(
        self,
        simulator: Simulator,
        name: str,
        addresses: Mapping[str, str],
        make: Callable[[MemoryFiles], N],
        *,
        syncs: bool = True,
    ) -> None:
        self.simulator = simulator
        self.name = name
        self.addresses = dict(addresses)
        self.files = MemoryFiles(forgetful=True)
        self.files.clock = lambda: simulator.now + simulator.wall_ahead
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
        self.host = self.simulator.add(self.name, node, self.addresses)
        self.starts.append(self.simulator.now)
        return self.host.alive

    def stop(self) -> None:
        """Stop the server in an orderly way; virtual time passes until it has ended."""
        host = self.host
        if host is None or not host.alive:
            raise StateError(f"{self.name} does not run")
        host.enter(host.node.close)
        self.simulator.run_until(lambda: not host.alive)

    def crash(self, *, power: bool = False) -> None:
        """The process is killed; the disk keeps what it wrote. `power`: the whole machine stops, the disk keeps what
        was synced and, by seed, any part of the rest; peers see no end of links.
        """
        self._attempts += 1
        if self.host is not None and self.host.alive:
            self.simulator.crash(self.host, silently=power)
        if power:
            self.power_losses.append(self.simulator.now)
            random = self.simulator.random
            chance = random.choice((0.0, 0.5, random.random()))
            names = random.choice((0, random.randint(0, self.files.pending_names)))
            self.files = self.files.power_loss(lambda path, sector: random.random() < chance, names)
        else:
            self.files = self.files.process_death()

    def die_at_change(self, count: int, *, power: bool = False) -> None:
        """Crash just before the disk changes for the `count`-th time from now, in the middle of whatever the server
        does then.
        """
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
            self.simulator.freeze(self.host)

    def thaw(self) -> None:
        """It runs again."""
        if self.host is not None:
            self.simulator.thaw(self.host)


class Cluster:
    """Cluster of `name_servers` name servers and `brokers` brokers that have started and registered.

    `settings` are the brokers', by Apache's keys; `client_options` are for every client without others of its own.
    `conditions` may be changed at any time (`cluster.simulator.conditions`).
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        brokers: int = 1,
        name_servers: int = 1,
        conditions: SimulatedConditions | None = None,
        settings: Mapping[str, str] | None = None,
        client_options: ClientOptions | None = None,
    ) -> None:
        self.client_options: ClientOptions = client_options or {}
        #: Where the names of all clients are; records and checks have them as applications do.
        self.namespace = Namespace(self.client_options.get("namespace", ""))
        self.simulator = Simulator(seed, conditions=conditions)
        self.records = Records()
        self.settings = dict(settings or {})
        self.clients: list[Client] = []
        self._numbers = 0
        self.name_servers = [
            Machine(
                self.simulator,
                f"namesrv-{number}",
                {"main": f"10.0.0.{number}:9876"},
                lambda files: NameServerNode(NamesrvSettings()),
            )
            for number in range(1, name_servers + 1)
        ]
        self.brokers = {machine.name: machine for machine in map(self.new_broker, range(1, brokers + 1))}
        for machine in self.servers:
            machine.start()
        self.simulator.run_for(_SETTLED_MS)

    def new_broker(self, number: int) -> Machine[BrokerNode]:
        """Another broker of the cluster, to be put into `brokers` and started."""
        name = f"broker-{chr(ord('a') + number - 1)}"
        ip = f"10.0.1.{number}"

        def make(files: MemoryFiles) -> BrokerNode:
            own = {"brokerName": name, "namesrvAddr": ";".join(self.name_servers_addresses)}
            settings, storing = BrokerSettings(), StoreSettings()
            apply_all((settings, storing), {**own, **SMALL_FILES, **self.settings})
            store = Store.open(storing, files, wall=self.simulator.now + self.simulator.wall_ahead)
            return BrokerNode(settings, store, host=ip, port=10911, seed=number, files=files)

        syncs = self.settings.get("flushDiskType") == SYNC_FLUSH
        return Machine(self.simulator, name, {"main": f"{ip}:10911", "fast": f"{ip}:10909"}, make, syncs=syncs)

    # --- what there is

    @property
    def now(self) -> int:
        """Virtual time in milliseconds."""
        return self.simulator.now

    @property
    def broker(self) -> Machine[BrokerNode]:
        """The first broker."""
        return next(iter(self.brokers.values()))

    @property
    def name_server(self) -> Machine[NameServerNode]:
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
    def producers(self) -> list[SimulatedProducer]:
        """The producers that run."""
        return [client for client in self.clients if isinstance(client, SimulatedProducer) and client.up]

    @property
    def consumers(self) -> list[SimulatedMember]:
        """The consumers that run, of all kinds."""
        return [client for client in self.clients if isinstance(client, SimulatedMember) and client.up]

    def new_number(self) -> int:
        """A number for a client."""
        self._numbers += 1
        return self._numbers

    # --- what joins

    def add(self, client: C) -> C:
        """Have a client of any kind among `clients`."""
        self.clients.append(client)
        return client

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> SimulatedProducer:
        """A producer; options as of the real `Producer`."""
        return self.add(SimulatedProducer(self, group, options))

    def consumer(
        self,
        group: str,
        listener: Listener,
        *,
        topics: Sequence[str] = (),
        expression: str = "*",
        takes_ms: Takes = 0,
        **options: Unpack[ConsumerOptions],
    ) -> SimulatedConsumer:
        """A push consumer, to be started; options as of the real `PushConsumer`.

        `takes_ms` is how long its listener takes.
        """
        return self.add(SimulatedConsumer(self, group, listener, topics, expression, takes_ms, options))

    # --- time

    def run_for(self, ms: int) -> None:
        """Let virtual time pass."""
        self.simulator.run_for(ms)

    def run_until(self, happened: Callable[[], bool], limit_ms: int = 600_000) -> None:
        """Run until `happened()`; AssertionError when that takes more than `limit_ms` of virtual time."""
        self.simulator.run_until(happened, limit_ms)
