"""Random scenario of a cluster: applications at work while everything fails that may, then a time without faults in
which all must come right.

A seed decides everything: the shape of the cluster, its settings, which faults there are and when. A scenario keeps
what it found wrong in `violations`; the same seed always finds the same.

Owns: the course, what applications do, how servers come back, how all is mended in the end.
Leaves to others: the faults (`injected_faults`), carrying all out (`cluster`), judging it (`checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from mqproto.adapters.base.settings.options import ClientOptions
from mqproto.adapters.simulated import checks
from mqproto.adapters.simulated.clients import Client, SimulatedMember, SimulatedProducer
from mqproto.adapters.simulated.cluster import Cluster, Machine
from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.adapters.simulated.injected_faults import FAULTS
from mqproto.engine.broker.node import BrokerNode
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.wire.bodies import ConsumeFromWhere

TOPICS: Final = ("orders", "bills")
#: Painters want some colours only, clerks consume in order.
GROUPS: Final = ("readers", "auditors", "painters", "clerks")
CALM: Final = SimulatedConditions(delay_max=2, job_max=3)
#: Short enough for a message to become a dead letter within a scenario.
DELAY_LEVELS: Final = "1s 2s 3s 4s 5s 6s"
#: Time in which everything comes right: members are noticed to be gone, queues shared out again, failed messages come
#: again.
PEACE_MS: Final = 180_000


class Scenario:
    """Run of one seed.

    `steps` is its length; `faults` restricts it to some of `Scenario.FAULTS`, None lets the seed choose.
    """

    #: The groups of consumers that there may be.
    GROUPS: tuple[str, ...] = GROUPS
    #: The faults that may be injected.
    FAULTS: Mapping[str, Callable[[Any], None]] = FAULTS

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 60,
        faults: tuple[str, ...] | None = None,
        settings: dict[str, str] | None = None,
        client_options: ClientOptions | None = None,
    ) -> None:
        random = self.random = Random(seed * 7 + 1)
        self.seed = seed
        self.steps = steps
        self.violations: list[str] = []
        #: What happened when, for people.
        self.log: list[str] = []
        self.faults = faults if faults is not None else tuple(kind for kind in self.FAULTS if random.random() < 0.4)
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
            conditions=CALM,
            settings=self.settings,
            client_options=client_options,
        )
        self.simulator = self.cluster.simulator
        self.failure_rate = random.choice((0.0, 0.0, 0.1, 0.3))
        self.slowness_ms = random.choice((0, 5, 500))
        self._number = 0
        self.in_peace = False

    @property
    def sync(self) -> bool:
        return self.settings["flushDiskType"] == "SYNC_FLUSH"

    def play(self) -> list[str]:
        """Everything from the beginning to the end; gives what was wrong."""
        self._begin()
        for _ in range(self.steps):
            for _ in range(self.random.choice((0, 1, 1, 2, 6))):
                self.send()
            if self.faults and self.random.random() < 0.25:
                kind = self.random.choice(self.faults)
                self._note(kind)
                self.FAULTS[kind](self)
            self.run(self.random.choice((1, 20, 300, 2_000, 2_000, 10_000)))
            self._judge(self._always())
            if self.violations:
                return self.violations
        self._mend()
        self.run(PEACE_MS)
        self._come_to_rest()
        self._judge(self._at_rest())
        self._last_words()
        self._end()
        return self.violations

    # --- the course

    def _begin(self) -> None:
        for group in self.random.sample(self.GROUPS, self.random.choice((1, 1, 2))):
            for _ in range(self.random.choice((1, 2))):
                self.join(group)
        for _ in range(self.random.choice((1, 2))):
            self.add_producer()
        self.run(1_000)
        if self.random.random() < 0.7:
            for topic in TOPICS:
                self._try_to_send(self.cluster.producers[0], Message(topic, b"first"))
        self.simulator.conditions = SimulatedConditions(
            delay_max=self.random.choice((2, 20, 200)),
            split=self.random.choice((0.0, 0.3)),
            cut=self.random.choice((0.0, 0.003, 0.02)) if "cuts" in self.faults else 0.0,
            job_max=self.random.choice((0, 5, 100)),
        )

    def run(self, ms: int) -> None:
        self.simulator.run_for(ms)

    def _note(self, text: str) -> None:
        self.log.append(f"{self.cluster.now}: {text}")

    def _always(self) -> list[str]:
        return checks.always(self.cluster)

    def _at_rest(self) -> list[str]:
        return checks.at_rest(self.cluster)

    def _judge(self, found: list[str]) -> None:
        self.violations += found

    def _mend(self) -> None:
        """The time of peace begins: everything runs, the network and the disks are well, listeners are quick."""
        self._note("peace")
        self.in_peace = True
        self.slowness_ms = 0
        self.simulator.conditions = CALM
        self.simulator.heal()
        for client in self.cluster.clients:
            client.thaw()
        for machine in self.cluster.servers:
            self._repair(machine)
        for group in self.GROUPS:
            if any(consumer.group == group for consumer in self.readers()) and not self._members(group):
                self.join(group)
        if not self.cluster.producers:
            self.add_producer()

    def _come_to_rest(self) -> None:
        """What is left to do before everything can be at rest."""

    def _repair(self, machine: Machine[Any]) -> None:
        machine.thaw()
        machine.files.before_change = _unhindered
        machine.files.space = None
        if machine.up:
            assert machine.host is not None
            machine.host.conditions = None
            machine.host.wall_offset = 0
            if machine.name.startswith("broker") and not machine.node.store.writer.writable:
                self._note(f"{machine.name} has a failed disk and is started again")
                machine.crash()
        if not machine.up:
            self.start(machine)

    def _last_words(self) -> None:
        """In peace every message is taken and, where its topic is known, reaches its readers at once."""
        self.failure_rate = 0.0
        self._say(b"these topics exist")
        self.run(60_000)
        begin = len(self.cluster.records.deliveries)
        sent = self._say(b"last")
        self.run(500)
        for group, members in checks.groups(self.cluster).items():
            if TOPICS[0] not in members[0].expressions:
                continue
            new = self.cluster.records.deliveries[begin:]
            seen = sum(
                delivery.group == group for delivery in new for message in delivery.messages if message.body == b"last"
            )
            if seen < sent:
                self.violations.append(f"{group} got {seen} of {sent} messages at once in peace")
        self.run(60_000)
        self._judge(self._at_rest())

    def _say(self, text: bytes) -> int:
        """A message to each topic from each producer; gives how many that were."""
        producers = self.cluster.producers
        for producer in producers:
            for topic in TOPICS:
                failure = self._try_to_send(producer, Message(topic, text, "red"))
                if failure is not None:
                    self.violations.append(f"{producer.name} could not send in peace: {failure!r}")
        return len(producers) * len(TOPICS)

    def _end(self) -> None:
        """Orderly ends, and what the disks hold after them."""
        before = self.cluster.now
        for client in (*self.cluster.producers, *self.cluster.consumers):
            client.close()
            if client.node.all_links() or len(client.node.calls) or len(client.node.timers):
                self.violations.append(f"{client.name} has left something behind")
        stored, _ = checks.read_logs(self.cluster)
        for machine in self.cluster.brokers.values():
            machine.stop()
            machine.start()
            if not machine.node.store.recovery.clean:
                self.violations.append(f"{machine.name} does not know that its end was orderly")
        again, violations = checks.read_logs(self.cluster)
        self._judge(violations)
        for queue, messages in stored.items():
            ids = [message.msg_id for message in messages]
            if [message.msg_id for message in again.get(queue, [])][: len(ids)] != ids:
                self.violations.append(f"{queue} is not what it was before the orderly end")
        if self.cluster.now - before > 60_000:
            self.violations.append(f"the orderly end took {self.cluster.now - before} ms")

    # --- applications

    def add_producer(self) -> None:
        self.cluster.producer("shop", send_latency_fault_enable=self.random.random() < 0.2)

    def send(self) -> None:
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

    def readers(self) -> list[SimulatedMember]:
        return [client for client in self.cluster.clients if isinstance(client, SimulatedMember)]

    def _members(self, group: str) -> list[SimulatedMember]:
        return [consumer for consumer in self.cluster.consumers if consumer.group == group]

    def join(self, group: str) -> None:
        member = self._member(group)
        ticket = member.begin_start()

        def started() -> None:
            if ticket.failure is not None:  # as an application would: a new one
                self._note(f"{member.name} did not start: {ticket.failure!r}")
                member.crash()
                self.simulator.at(self.simulator.now + 3_000, lambda: self.join(group))

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

    # --- servers and clients, for the faults

    def some_broker(self) -> Machine[BrokerNode]:
        return self.random.choice(list(self.cluster.brokers.values()))

    def some_client(self) -> Client | None:
        clients = [client for client in self.cluster.clients if client.up]
        return self.random.choice(clients) if clients else None

    def start(self, machine: Machine[Any]) -> None:
        machine.files.space = None  # a store does not open on a full disk
        for _ in range(100):
            if machine.start():
                recovery = machine.node.store.recovery if machine.name.startswith("broker") else ""
                self._note(f"{machine.name} started: {recovery}")
                return
            self._note(f"{machine.name} died while it started")
        self.violations.append(f"{machine.name} never starts")

    def restart_later(self, machine: Machine[Any]) -> None:
        host = machine.host

        def restart() -> None:
            if machine.host is not host:
                return  # somebody was quicker
            if machine.up:  # its end takes longer
                self.restart_later(machine)
            else:
                if self.random.random() < 0.1 and not self.in_peace:
                    machine.die_at_change(self.random.randint(1, 12), power=self.takes_power())
                self.start(machine)

        self.simulator.at(self.simulator.now + self.random.choice((0, 100, 3_000, 40_000)), restart)

    def takes_power(self) -> bool:
        """Whether a crash takes the power too: with asynchronous flush that loses what was acknowledged."""
        return (self.sync or "lose power" in self.faults) and self.random.random() < 0.6


def _unhindered(change: str, path: str) -> None:
    """The disk is well again."""
