"""A random story of a cluster: applications at work while everything fails that may, then a time of peace in which all
must come right.

A seed decides everything: the shape of the cluster, its settings, which kinds of trouble there are and when. A story
keeps what it found wrong in `faults`; the same seed always finds the same.

Owns: what applications do, which trouble there is and how it is mended.
Leaves to others: carrying it out (`cluster`), judging it (`checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from mqproto.adapters.base.settings import ClientOptions
from mqproto.adapters.simulated import checks
from mqproto.adapters.simulated.clients import Client, SimulatedMember, SimulatedProducer
from mqproto.adapters.simulated.cluster import Cluster, Machine
from mqproto.adapters.simulated.simulator import Weather
from mqproto.engine.broker.node import BrokerNode
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.wire.bodies import ConsumeFromWhere

TOPICS: Final = ("orders", "bills")
#: Painters want some colours only, clerks consume in order.
GROUPS: Final = ("readers", "auditors", "painters", "clerks")
CALM: Final = Weather(delay_max=2, job_max=3)
#: Short enough for a message to become a dead letter within a story.
DELAY_LEVELS: Final = "1s 2s 3s 4s 5s 6s"
#: Time in which everything comes right: members are noticed to be gone, queues shared out again, failed messages come
#: again.
PEACE_MS: Final = 180_000
HOUR_MS: Final = 3_600_000


class Scenario:
    """One run.

    `steps` is its length; `trouble` restricts it to some kinds (of `Scenario.KINDS`), None lets the seed choose.
    """

    #: The groups of consumers that there may be.
    GROUPS: tuple[str, ...] = GROUPS

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 60,
        trouble: tuple[str, ...] | None = None,
        settings: dict[str, str] | None = None,
        client_options: ClientOptions | None = None,
    ) -> None:
        random = self.random = Random(seed * 7 + 1)
        self.seed = seed
        self.steps = steps
        self.faults: list[str] = []
        #: What happened when, for people.
        self.log: list[str] = []
        self.kinds = trouble if trouble is not None else tuple(kind for kind in self.KINDS if random.random() < 0.4)
        chosen = {
            "flushDiskType": random.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
            "messageDelayLevel": DELAY_LEVELS,
            "mappedFileSizeCommitLog": random.choice(("16384", "65536", "262144")),
            "mappedFileSizeConsumeQueue": random.choice(("400", "4000")),
            "maxHashSlotNum": "50",
            "maxIndexNum": random.choice(("20", "500")),
            "allocationWindow": random.choice(("4096", "65536")),
            "maxMessageSize": "8192",
        }
        self.settings = {**chosen, **(settings or {})}
        self.cluster = Cluster(
            seed,
            brokers=random.choice((1, 1, 2)),
            name_servers=random.choice((1, 2)),
            weather=CALM,
            settings=self.settings,
            client_options=client_options,
        )
        self.world = self.cluster.world
        self.failure_rate = random.choice((0.0, 0.0, 0.1, 0.3))
        self.slowness_ms = random.choice((0, 5, 500))
        self._number = 0
        self._peace = False

    @property
    def sync(self) -> bool:
        return self.settings["flushDiskType"] == "SYNC_FLUSH"

    def play(self) -> list[str]:
        """Everything from the beginning to the end; gives what was wrong."""
        self._begin()
        for _ in range(self.steps):
            for _ in range(self.random.choice((0, 1, 1, 2, 6))):
                self._send()
            if self.kinds and self.random.random() < 0.25:
                kind = self.random.choice(self.kinds)
                self._note(kind)
                self.KINDS[kind](self)
            self._run(self.random.choice((1, 20, 300, 2_000, 2_000, 10_000)))
            self._judge(self._always())
            if self.faults:
                return self.faults
        self._mend()
        self._run(PEACE_MS)
        self._come_to_rest()
        self._judge(self._at_rest())
        self._last_words()
        self._end()
        return self.faults

    # --- the course

    def _begin(self) -> None:
        for group in self.random.sample(self.GROUPS, self.random.choice((1, 1, 2))):
            for _ in range(self.random.choice((1, 2))):
                self._join(group)
        for _ in range(self.random.choice((1, 2))):
            self._add_producer()
        self._run(1_000)
        if self.random.random() < 0.7:
            for topic in TOPICS:
                self._try_to_send(self.cluster.producers[0], Message(topic, b"first"))
        self.world.weather = Weather(
            delay_max=self.random.choice((2, 20, 200)),
            split=self.random.choice((0.0, 0.3)),
            cut=self.random.choice((0.0, 0.003, 0.02)) if "cuts" in self.kinds else 0.0,
            job_max=self.random.choice((0, 5, 100)),
        )

    def _run(self, ms: int) -> None:
        self.world.run_for(ms)

    def _note(self, text: str) -> None:
        self.log.append(f"{self.cluster.now}: {text}")

    def _always(self) -> list[str]:
        return checks.always(self.cluster)

    def _at_rest(self) -> list[str]:
        return checks.at_rest(self.cluster)

    def _judge(self, found: list[str]) -> None:
        self.faults += found

    def _mend(self) -> None:
        """The time of peace begins: everything runs, the network and the disks are well, listeners are quick."""
        self._note("peace")
        self._peace = True
        self.slowness_ms = 0
        self.world.weather = CALM
        self.world.heal()
        for client in self.cluster.clients:
            client.thaw()
        for machine in self.cluster.servers:
            self._repair(machine)
        for group in self.GROUPS:
            if any(consumer.group == group for consumer in self._readers()) and not self._members(group):
                self._join(group)
        if not self.cluster.producers:
            self._add_producer()

    def _come_to_rest(self) -> None:
        """What is left to do before everything can be at rest."""

    def _repair(self, machine: Machine[Any]) -> None:
        machine.thaw()
        machine.files.before_change = _unhindered
        machine.files.space = None
        if machine.up:
            assert machine.host is not None
            machine.host.weather = None
            machine.host.wall_offset = 0
            if machine.name.startswith("broker") and not machine.node.store.writer.writable:
                self._note(f"{machine.name} has a failed disk and is started again")
                machine.crash()
        if not machine.up:
            self._start(machine)

    def _last_words(self) -> None:
        """In peace every message is taken and, where its topic is known, reaches its readers at once."""
        self.failure_rate = 0.0
        self._say(b"these topics exist")
        self._run(60_000)
        begin = len(self.cluster.records.deliveries)
        sent = self._say(b"last")
        self._run(500)
        for group, members in checks.groups(self.cluster).items():
            if TOPICS[0] not in members[0].expressions:
                continue
            new = self.cluster.records.deliveries[begin:]
            seen = sum(
                delivery.group == group for delivery in new for message in delivery.messages if message.body == b"last"
            )
            if seen < sent:
                self.faults.append(f"{group} got {seen} of {sent} messages at once in peace")
        self._run(60_000)
        self._judge(self._at_rest())

    def _say(self, text: bytes) -> int:
        """A message to each topic from each producer; gives how many that were."""
        producers = self.cluster.producers
        for producer in producers:
            for topic in TOPICS:
                failure = self._try_to_send(producer, Message(topic, text, "red"))
                if failure is not None:
                    self.faults.append(f"{producer.name} could not send in peace: {failure!r}")
        return len(producers) * len(TOPICS)

    def _end(self) -> None:
        """Orderly ends, and what the disks hold after them."""
        before = self.cluster.now
        for client in (*self.cluster.producers, *self.cluster.consumers):
            client.close()
            if client.node.all_links() or len(client.node.calls) or len(client.node.timers):
                self.faults.append(f"{client.name} has left something behind")
        stored, _ = checks.read_logs(self.cluster)
        for machine in self.cluster.brokers.values():
            machine.stop()
            machine.start()
            if not machine.node.store.recovery.clean:
                self.faults.append(f"{machine.name} does not know that its end was orderly")
        again, faults = checks.read_logs(self.cluster)
        self._judge(faults)
        for queue, messages in stored.items():
            ids = [message.msg_id for message in messages]
            if [message.msg_id for message in again.get(queue, [])][: len(ids)] != ids:
                self.faults.append(f"{queue} is not what it was before the orderly end")
        if self.cluster.now - before > 60_000:
            self.faults.append(f"the orderly end took {self.cluster.now - before} ms")

    # --- applications

    def _add_producer(self) -> None:
        self.cluster.producer("shop", send_latency_fault_enable=self.random.random() < 0.2)

    def _send(self) -> None:
        producers = [producer for producer in self.cluster.producers if not producer.host.asleep]
        if not producers:
            return
        random = self.random
        producer = random.choice(producers)
        topic = random.choice(TOPICS) if random.random() < 0.9 else f"new-{random.randrange(40)}"
        timeout_ms = random.choice((None, None, 100, 1_000, 10_000))
        queue = None
        if random.random() < 0.2:
            queue = MessageQueue(topic, random.choice(list(self.cluster.brokers)), random.randrange(4))
        match random.randrange(10):
            case 0:
                producer.submit(
                    [self._message(topic) for _ in range(random.randint(1, 5))], queue=queue, timeout_ms=timeout_ms
                )
            case 1:
                producer.submit(self._message(topic), queue=queue, timeout_ms=timeout_ms, oneway=True)
            case 2:
                producer.submit(self._message(topic), queue=queue, timeout_ms=timeout_ms, callback=True)
            case 3:
                producer.submit(
                    replace(self._message(topic), delay_level=random.randint(1, 8)), queue=queue, timeout_ms=timeout_ms
                )
            case 4:
                producer.submit(replace(self._message(topic), wait=False), queue=queue, timeout_ms=timeout_ms)
            case _:
                producer.submit(self._message(topic), queue=queue, timeout_ms=timeout_ms)

    def _message(self, topic: str) -> Message:
        self._number += 1
        size = self.random.choice((10, 100, 100, 2_000, 6_000))
        tags = self.random.choice((None, "red", "blue", "green"))
        return Message(topic, b"%d." % self._number * (size // 4), tags, f"key{self._number % 7}")

    def _try_to_send(self, producer: SimulatedProducer, message: Message) -> MQError | None:
        try:
            producer.send(message)
        except MQError as failure:
            return failure
        return None

    def _readers(self) -> list[SimulatedMember]:
        return [client for client in self.cluster.clients if isinstance(client, SimulatedMember)]

    def _members(self, group: str) -> list[SimulatedMember]:
        return [consumer for consumer in self.cluster.consumers if consumer.group == group]

    def _join(self, group: str) -> None:
        member = self._member(group)
        ticket = member.begin_start()

        def started() -> None:
            if ticket.failure is not None:  # as an application would: a new one
                self._note(f"{member.name} did not start: {ticket.failure!r}")
                member.crash()
                self.world.at(self.world.now + 3_000, lambda: self._join(group))

        ticket.wake = started

    def _member(self, group: str) -> SimulatedMember:
        """A new member of a group, to be started."""
        random = self.random
        return self.cluster.consumer(
            group,
            self._listen,
            topics=TOPICS,
            expression="red || blue" if group == "painters" else "*",
            takes_ms=self._takes,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_message_batch_max_size=random.choice((1, 1, 4)),
            consume_thread_min=random.choice((1, 20)),
            max_reconsume_times=-1 if group == "clerks" else random.choice((-1, 2)),
            orderly=group == "clerks",
            pull_threshold_for_queue=random.choice((3, 1_000)),
        )

    def _listen(self, messages: list[MessageExt]) -> object:
        if self.random.random() >= self.failure_rate:
            return ConsumeStatus.SUCCESS
        if self.random.random() < 0.5:
            raise RuntimeError("the listener failed")
        return ConsumeStatus.RECONSUME_LATER

    def _takes(self) -> int:
        if self.random.random() < 0.02:
            return self.slowness_ms * 20
        return self.random.randint(0, self.slowness_ms)

    # --- trouble

    def _some_broker(self) -> Machine[BrokerNode]:
        return self.random.choice(list(self.cluster.brokers.values()))

    def _some_client(self) -> Client | None:
        clients = [client for client in self.cluster.clients if client.up]
        return self.random.choice(clients) if clients else None

    def _start(self, machine: Machine[Any]) -> None:
        machine.files.space = None  # a store does not open on a full disk
        for _ in range(100):
            if machine.start():
                self._note(
                    f"{machine.name} started: {machine.node.store.recovery if machine.name.startswith('broker') else ''}"
                )
                return
            self._note(f"{machine.name} died while it started")
        self.faults.append(f"{machine.name} never starts")

    def _restart_later(self, machine: Machine[Any]) -> None:
        host = machine.host

        def restart() -> None:
            if machine.host is not host:
                return  # somebody was quicker
            if machine.up:  # its end takes longer
                self._restart_later(machine)
            else:
                if self.random.random() < 0.1 and not self._peace:
                    machine.die_at_change(self.random.randint(1, 12), power=self._power())
                self._start(machine)

        self.world.at(self.world.now + self.random.choice((0, 100, 3_000, 40_000)), restart)

    def _power(self) -> bool:
        """Whether a crash takes the power too: with asynchronous flush that loses what was acknowledged."""
        return (self.sync or "lose power" in self.kinds) and self.random.random() < 0.6

    def crash_broker(self) -> None:
        machine = self._some_broker()
        if machine.up:
            machine.crash(power=self._power())
            self._restart_later(machine)

    def doom_broker(self) -> None:
        """The broker dies in the middle of some change of its disk."""
        machine = self._some_broker()
        if machine.up:
            machine.die_at_change(self.random.randint(1, 30), power=self._power())
            self._restart_later(machine)

    def stop_broker(self) -> None:
        """An orderly restart."""
        machine = self._some_broker()
        if machine.up:
            assert machine.host is not None
            machine.host.enter(machine.host.node.close)
            self._restart_later(machine)

    def crash_name_server(self) -> None:
        machine = self.random.choice(self.cluster.name_servers)
        if machine.up:
            machine.crash(power=self.random.random() < 0.5)
            self._restart_later(machine)

    def part(self) -> None:
        servers = [machine.name for machine in self.cluster.servers]
        one = self.random.choice(servers)
        others = [client.name for client in self.cluster.clients if client.up] + [
            name for name in servers if name != one
        ]
        self.world.part(one, self.random.choice(others), silently=self.random.random() < 0.5)
        self.world.at(self.world.now + self.random.choice((1_000, 20_000, 100_000)), self.world.heal)

    def freeze(self) -> None:
        client = self._some_client()
        places: list[Machine[Any] | Client] = [*self.cluster.servers]
        if client is not None:
            places.append(client)
        place = self.random.choice(places)
        place.freeze()
        self.world.at(self.world.now + self.random.choice((500, 10_000, 60_000, 150_000)), place.thaw)

    def step_wall(self) -> None:
        by_ms = self.random.choice((-HOUR_MS, -HOUR_MS, -5_000, 5_000, HOUR_MS))
        if self.random.random() < 0.5:
            self.world.step_wall(by_ms)
        else:
            hosts = [host for host in self.world.hosts if host.alive]
            if hosts:
                self.random.choice(hosts).wall_offset += by_ms

    def slow_disk(self) -> None:
        machine = self._some_broker()
        if machine.up:
            assert machine.host is not None
            machine.host.weather = replace(self.world.weather, job_max=self.random.choice((1_000, 8_000)))

    def failing_disk(self) -> None:
        machine = self._some_broker()
        if machine.up:
            assert machine.host is not None
            host = machine.host
            host.weather = replace(self.world.weather, job_failure=self.random.choice((0.2, 1.0)))

            def replaced() -> None:
                if machine.host is host and host.alive:
                    machine.crash()
                if not machine.up:
                    self._start(machine)

            self.world.at(self.world.now + self.random.choice((2_000, 30_000)), replaced)

    def join(self) -> None:
        if self.random.random() < 0.2:
            self._add_producer()
        elif len(self.cluster.consumers) < 5:
            self._join(self.random.choice(self._readers()).group)

    def leave(self) -> None:
        consumers = [consumer for consumer in self.cluster.consumers if not consumer.host.asleep]
        if consumers:
            consumer = self.random.choice(consumers)
            consumer.host.enter(consumer.node.close)
            self.world.at(self.world.now + 10_000, consumer.crash)

    def crash_client(self) -> None:
        client = self._some_client()
        if client is not None:
            client.crash(power=self.random.random() < 0.5)

    def full_disk(self) -> None:
        files = self._some_broker().files
        files.space = self.random.choice((0, 5_000, 50_000))

        def cleared() -> None:
            files.space = None

        self.world.at(self.world.now + self.random.choice((1_000, 30_000)), cleared)

    def burst(self) -> None:
        """Much at once."""
        for _ in range(self.random.choice((30, 150))):
            self._send()

    def idle(self) -> None:
        """Nothing is sent for so long that connections are closed."""
        self._run(300_000)

    def cuts(self) -> None:
        """Streams break now and then, see `_begin`."""

    def lose_power(self) -> None:
        """Crashes may take unsynced data even where that is not promised to survive, see `_power`."""

    KINDS: Mapping[str, Callable[[Any], None]] = {
        "burst": burst,
        "idle": idle,
        "cuts": cuts,
        "lose power": lose_power,
        "full disk": full_disk,
        "crash broker": crash_broker,
        "doom broker": doom_broker,
        "stop broker": stop_broker,
        "crash name server": crash_name_server,
        "part": part,
        "freeze": freeze,
        "step wall": step_wall,
        "slow disk": slow_disk,
        "failing disk": failing_disk,
        "join": join,
        "leave": leave,
        "crash client": crash_client,
    }


def _unhindered(change: str, path: str) -> None:
    """The disk is well again."""
