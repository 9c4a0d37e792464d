"""Random scenario of clients of every kind, with the faults that hurt clients most: brokers that die in mid-send, slow
name servers, routes that change, answers that come twice or after the deadline, a minute in which nothing runs.

It takes the course of `Scenario`, its faults and more, and other applications: producers with narrow windows that also
give sends up, transactions, requests and replies, and groups of every kind of consumer, each with its own strategy.

Owns: those applications and those faults.
Leaves to others: the course of a scenario (`scenario`), what applications do (`pull_clients`, `request_clients`),
judging it (`checks`, `client_checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from mqproto.acl import SessionCredentials
from mqproto.adapters.base.settings.options import ClientOptions, ConsumerOptions
from mqproto.adapters.simulated import checks, client_checks
from mqproto.adapters.simulated.clients import Client, SimulatedMember
from mqproto.adapters.simulated.cluster import Machine
from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.adapters.simulated.pull_clients import PollingClient, PullClient, SimpleClient
from mqproto.adapters.simulated.records import Sent
from mqproto.adapters.simulated.request_clients import LocalTransactions, ReplyClient, RequestClient, TransactionClient
from mqproto.adapters.simulated.scenario import TOPICS, Scenario
from mqproto.engine.broker.node import BrokerNode
from mqproto.message import ConsumeContext, ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.state.admin import AdminCore
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import ConsumeFromWhere

TRANSFERS: Final = "transfers"
REQUESTS: Final = "questions"
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
#: Brokers check transactions soon, and do not give up.
EARLY_CHECKS: Final = {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "transactionCheckMax": "100000"}
#: Faults of `Scenario` that say nothing about clients, or take what the promises about clients rest on.
LEFT_OUT: Final = ("lose power", "full disk", "failing disk", "step wall", "doom broker", "idle")
BROKERS_MAX: Final = 3


class ClientScenario(Scenario):
    """Run of one seed."""

    GROUPS = ("readers", "clerks", "cashiers", "walkers", "keepers", "pollers", "pullers")

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 40,
        faults: tuple[str, ...] | None = None,
        groups: tuple[str, ...] | None = None,
    ) -> None:
        options: ClientOptions = {}
        if seed % 4 == 3:
            options["namespace"] = "house"
        if seed % 5 == 4:
            options["credentials"] = SessionCredentials("key", "secret")
        super().__init__(seed, steps=steps, faults=faults, settings=EARLY_CHECKS, client_options=options)
        random = self.random
        self.groups = groups if groups is not None else tuple(random.sample(self.GROUPS, 3))
        #: Members of a group must share queues out in one way.
        self.strategies = {
            group: random.choice(("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")) for group in (*self.GROUPS, "repliers")
        }
        self.traced = random.random() < 0.2
        self.transactions = LocalTransactions(TRANSFERS)
        self.admin = self.cluster.add(Client(self.cluster, {}))
        self.topics = AdminCore(self.admin.node).topics
        self._counts = dict.fromkeys(TOPICS, 4)
        self._requests = 0

    # --- the course

    def _begin(self) -> None:
        cluster = self.cluster
        self.add_producer()
        for topic in (*TOPICS, TRANSFERS, REQUESTS):
            self._try_to_send(cluster.producers[0], Message(topic, b"first", "red"))
        self.transactions.committed.add(b"first")
        for group in self.groups:
            for _ in range(self.random.choice((1, 2))):
                self.join(group)
        cluster.add(TransactionClient(cluster, self.transactions, {}))
        cluster.add(RequestClient(cluster, "askers", REQUESTS, {}))
        self.join("repliers")
        self.run(2_000)
        self.simulator.conditions = SimulatedConditions(
            delay_max=self.random.choice((2, 20, 200)),
            split=self.random.choice((0.0, 0.3)),
            cut=self.random.choice((0.003, 0.02)) if "cuts" in self.faults else 0.0,
            twice=self.random.choice((0.02, 0.3)) if "answers twice" in self.faults else 0.0,
            late=self.random.choice((0.01, 0.1)) if "answers late" in self.faults else 0.0,
            late_max=self.random.choice((3_000, 40_000)),
            job_max=self.random.choice((0, 5, 100)),
        )

    def _always(self) -> list[str]:
        return [*super()._always(), *client_checks.always(self.cluster)]

    def _at_rest(self) -> list[str]:
        return [*super()._at_rest(), *self.client_violations()]

    def client_violations(self) -> list[str]:
        """What is wrong with the clients, once everything is at rest."""
        stored, violations = checks.read_logs(self.cluster)
        return [*violations, *client_checks.at_rest(self.cluster, stored, self.transactions)]

    def _mend(self) -> None:
        super()._mend()
        cluster = self.cluster
        for group in (*self.groups, "repliers"):
            if not self._members(group):
                self.join(group)
        senders = [client for client in cluster.clients if isinstance(client, TransactionClient) and client.up]
        for sender in senders or [cluster.add(TransactionClient(cluster, self.transactions, {}))]:
            sender.sure = True
            sender.operate("queues", lambda now, sender=sender: sender.core.producer.publish_queues(TRANSFERS, now))  # type: ignore[misc]
        for machine in cluster.brokers.values():
            for topic in TOPICS:
                self._set_up(topic, machine, self._counts[topic])

    def _come_to_rest(self) -> None:
        """What waits for a commit gets it by the next message of its queue."""
        self.failure_rate = 0.0
        producer = self.cluster.producers[0]
        for machine in self.cluster.brokers.values():
            for topic in TOPICS:
                for number in range(self._counts[topic]):
                    producer.send(Message(topic, b"commit"), queue=MessageQueue(topic, machine.name, number))
        self.run(20_000)

    # --- applications

    def add_producer(self) -> None:
        random = self.random
        self.cluster.producer(
            "shop",
            send_latency_fault_enable=random.random() < 0.2,
            send_window_messages=random.choice((2, 5, 10_000)),
            send_window_bytes=random.choice((8_000, 64 << 20)),
            enable_msg_trace=self.traced,
            send_msg_max_timeout_per_request=random.choice((-1, -1, 800)),
        )

    def send(self) -> None:
        random = self.random
        match random.randrange(8):
            case 0:
                self._with(TransactionClient, lambda client, body: client.transact(body))
            case 1:
                self._with(RequestClient, lambda client, body: client.request(body, random.choice((50, 1_000, 3_000))))
            case _:
                before = len(self.cluster.records.sends)
                super().send()
                for sent in self.cluster.records.sends[before:]:
                    if random.random() < 0.05:
                        self._give_up(sent)

    def _with(self, kind: type[Any], call: Callable[[Any, bytes], None]) -> None:
        clients = [
            client for client in self.cluster.clients if type(client) is kind and client.up and not client.host.asleep
        ]
        if clients:
            self._requests += 1
            call(self.random.choice(clients), b"%d" % self._requests)

    def _give_up(self, sent: Sent) -> None:
        """Whoever waits for a send is cancelled, at once or in the middle."""
        client = next(client for client in self.cluster.clients if client.name == sent.client)
        client.later(self.random.choice((0, 1, 100)), lambda: client.cancel(sent))

    def _member(self, group: str) -> SimulatedMember:
        cluster, random = self.cluster, self.random
        strategy = self.strategies[group]
        if group == "pollers":
            poller = PollingClient(
                cluster,
                group,
                TOPICS,
                self._takes,
                {
                    "allocate_message_queue_strategy": strategy,
                    "consume_from_where": FIRST,
                    "auto_commit": random.random() < 0.5,
                    "pull_batch_size": random.choice((1, 10)),
                    "pull_threshold_for_all": random.choice((5, 10_000)),
                },
            )
            poller.restless = lambda: not self.in_peace and self.random.random() < 0.02
            return cluster.add(poller)
        if group == "pullers":
            return cluster.add(
                PullClient(cluster, group, TOPICS, self._takes, {"allocate_message_queue_strategy": strategy})
            )
        options: ConsumerOptions = {
            "allocate_message_queue_strategy": strategy,
            "consume_from_where": FIRST,
            "consume_thread_min": random.choice((1, 4, 20)),
            "orderly": group in ("clerks", "cashiers", "keepers"),
            "pull_threshold_for_queue": random.choice((3, 1_000)) if group != "cashiers" else 1_000,
            "enable_msg_trace": self.traced,
            "consume_timeout": 1,
        }
        if group in ("walkers", "keepers"):
            if group == "walkers":  # several take at a time, and what an interrupted one gives back is another's
                cluster.records.unordered.add(group)
            return cluster.add(
                SimpleClient(cluster, group, self._listen, TOPICS, self._takes, options, forgets=self._forgets)
            )
        if group == "repliers":
            replier = cluster.add(ReplyClient(cluster, f"replier-{len(cluster.clients)}", {}))
            return cluster.consumer(group, replier.listen, topics=(REQUESTS,), **options)
        options["consume_message_batch_max_size"] = random.choice((1, 1, 4))
        listener = self._cash if group == "cashiers" else self._listen
        takes_ms = self._takes_long if options["orderly"] else self._takes
        return cluster.consumer(group, listener, topics=TOPICS, takes_ms=takes_ms, **options)

    def _takes_long(self) -> int:
        """Now and then longer than brokers keep a lock."""
        return 90_000 if not self.in_peace and self.random.random() < 0.02 else self._takes()

    def _forgets(self) -> bool:
        return not self.in_peace and self.random.random() < 0.02

    def _cash(self, messages: list[MessageExt], context: ConsumeContext) -> object:
        """Commits in its own time, or takes everything since the last commit back."""
        context.auto_commit = False
        if self.in_peace:
            return ConsumeStatus.COMMIT
        return self.random.choice(
            (ConsumeStatus.SUCCESS, ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT, ConsumeStatus.ROLLBACK)
        )

    # --- faults

    def stand_still(self) -> None:
        """Nothing runs for a minute, anywhere."""
        places: list[Any] = [*self.cluster.servers, *(client for client in self.cluster.clients if client.up)]
        for place in places:
            place.freeze()
        self.run(60_000)
        self.random.shuffle(places)
        for place in places:
            place.thaw()

    def slow_name_servers(self) -> None:
        """Each answer of a name server takes seconds, longer than clients wait for some."""
        for machine in self.cluster.name_servers:
            if machine.up:
                assert machine.host is not None
                machine.host.conditions = replace(
                    self.simulator.conditions, delay_min=500, delay_max=self.random.choice((2_000, 8_000))
                )

                def well(host: Any = machine.host) -> None:
                    host.conditions = None

                self.simulator.at(self.simulator.now + self.random.choice((5_000, 60_000)), well)

    def change_queues(self) -> None:
        """A topic gets more queues, or fewer that can be written."""
        topic = self.random.choice(TOPICS)
        write = self.random.choice((1, 2, 4, 6, 8))
        self._counts[topic] = max(self._counts[topic], write)
        self._set_up(topic, self.some_broker(), write)

    def _set_up(self, topic: str, machine: Machine[BrokerNode], write_queues: int, perm: int = 6) -> None:
        if not self.admin.up:
            self.admin = self.cluster.add(Client(self.cluster, {}))
            self.topics = AdminCore(self.admin.node).topics
        address, read_queues = machine.addresses["main"], self._counts[topic]

        def done(ticket: Ticket[Any]) -> None:
            if ticket.failure is not None and self.in_peace:
                self.simulator.at(self.simulator.now + 1_000, lambda: self._set_up(topic, machine, write_queues, perm))

        def create(now: int) -> Flow[Any]:
            return self.topics.create(
                self.cluster.namespace.wrap(topic),
                broker=address,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
            )

        self.admin.operate("change of a topic", create, None, done)

    def broker_joins(self) -> None:
        """Another broker, with queues of the same topics."""
        count = len(self.cluster.brokers)
        if count < BROKERS_MAX:
            machine = self.cluster.new_broker(count + 1)
            self.cluster.brokers[machine.name] = machine
            machine.start()
            for topic in TOPICS:
                self._set_up(topic, machine, 4)

    def broker_leaves(self) -> None:
        """As operators do it: nothing more is written there, and later it is stopped.

        It comes back, as one that is not written.
        """
        machine = self.some_broker()
        if not machine.up:
            return
        for topic in TOPICS:
            self._set_up(topic, machine, 4, 4)
        host = machine.host
        assert host is not None

        def leave() -> None:
            if host.alive and not self.in_peace:
                host.enter(host.node.close)
                self.restart_later(machine)

        self.simulator.at(self.simulator.now + 20_000, leave)

    def answers_twice(self) -> None:
        """Answers come twice now and then, by `SimulatedConditions.twice`."""

    def answers_late(self) -> None:
        """Answers come late, some of them after their caller has given up, by `SimulatedConditions.late`."""

    FAULTS: Mapping[str, Callable[[Any], None]] = {
        **{kind: make for kind, make in Scenario.FAULTS.items() if kind not in LEFT_OUT},
        "stand still": stand_still,
        "slow name servers": slow_name_servers,
        "change queues": change_queues,
        "broker joins": broker_joins,
        "broker leaves": broker_leaves,
        "answers twice": answers_twice,
        "answers late": answers_late,
    }
