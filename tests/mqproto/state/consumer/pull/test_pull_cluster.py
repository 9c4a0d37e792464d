"""Transactions and requests in whole clusters, by seed: brokers and producers that die, links that break, listeners
that do not know.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from mqproto import ConsumeFromWhere, ConsumeStatus, LocalTransactionState, Message, MessageExt, reply_to
from mqproto.adapters.simulated import Cluster, SimulatedConditions
from mqproto.adapters.simulated.clients import Client
from mqproto.adapters.simulated.clients import SimulatedProducer as SimulatedProducer
from mqproto.errors import MQError, RequestTimeout, StateError
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.settings import TransactionSettings
from mqproto.state.producer.transactions import CheckTask, Half

TOPIC = "orders"
COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)
CURIOUS = {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "transactionCheckMax": "1000"}
ROUGH = SimulatedConditions(delay_max=5, split=0.3, cut=0.003)


class Bank:
    """What all producers of the group know: which local transactions were committed. One that was never run is not."""

    def __init__(self) -> None:
        self.committed: set[bytes] = set()
        self.asked: Counter[bytes] = Counter()
        self.results: list[tuple[bytes, Any]] = []


class Teller(Client):
    """A member of the group."""

    def __init__(self, cluster: Cluster, bank: Bank) -> None:
        super().__init__(cluster, {})
        self.bank = bank
        self.host.enter(self._register)
        self.host.on_deliver = self._deliver

    def _register(self, now: int) -> None:
        self.core = self.node.add_transaction_producer(TransactionSettings(group="bank"), self, now)

    def transact(self, body: bytes) -> None:
        """Begin a transaction; everything else comes with the world's time."""
        with suppress(StateError):
            half = self.begin(lambda now: self.core.send_half(Message(TOPIC, body), now))
            half.wake = lambda: self._halved(body, half)

    def _halved(self, body: bytes, ticket: Ticket[Half]) -> None:
        if ticket.failure is not None:
            assert isinstance(ticket.failure, MQError)
            return
        half = ticket.result()
        random = self.cluster.simulator.random
        verdict: object = None
        if half.accepted:
            verdict = random.choice([COMMIT, COMMIT, ROLLBACK, UNKNOW, None])
            if verdict is COMMIT or (verdict is not ROLLBACK and random.random() < 0.5):
                self.bank.committed.add(body)

        def end() -> None:
            with suppress(StateError):
                ended = self.begin(lambda now: self.core.end(half, self.core.judged(half, verdict, None), now))
                ended.wake = lambda: self.bank.results.append((body, ended.result()))

        self.cluster.simulator.at(self.cluster.now + random.choice([0, 10, 3_000]), lambda: self.host.when_awake(end))

    def _deliver(self, action: Deliver) -> None:
        task = action.task
        assert isinstance(task, CheckTask)
        assert task.listener is self
        body = task.message.body
        self.bank.asked[body] += 1
        random = self.cluster.simulator.random
        result: object = COMMIT if body in self.bank.committed else ROLLBACK
        if self.bank.asked[body] < random.randint(1, 4):
            result = random.choice([UNKNOW, ValueError("the database is away")])

        def answer() -> None:
            self.host.enter(lambda now: self.node.producers.checked(task, result, now))

        self.cluster.simulator.at(self.cluster.now + random.choice([0, 0, 200]), lambda: self.host.when_awake(answer))


@pytest.mark.parametrize("seed", range(12))
def test_every_transaction_ends_as_its_bank_says(seed: int) -> None:
    """At least once what was committed, never what was not, whoever of the group is left to be asked."""
    cluster = Cluster(seed, brokers=2, settings=CURIOUS)
    world, random = cluster.simulator, cluster.simulator.random
    bank = Bank()
    tellers = [Teller(cluster, bank) for _ in range(2)]
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = cluster.consumer(
        "shop", lambda messages: ConsumeStatus.SUCCESS, topics=(TOPIC,), consume_from_where=first
    ).start()
    world.conditions = ROUGH
    for number in range(60):
        random.choice(tellers).transact(b"%d" % number)
        world.run_for(random.choice([1, 50, 400]))
        broker = random.choice(list(cluster.brokers.values()))
        if random.random() < 0.04 and broker.up:
            broker.crash()
        for one in cluster.brokers.values():
            if not one.up and random.random() < 0.2:
                one.start()
        if random.random() < 0.04:
            random.choice(tellers).crash(power=random.random() < 0.5)
        tellers = [teller for teller in tellers if teller.up]
        while len(tellers) < 2:
            tellers.append(Teller(cluster, bank))
    world.conditions = SimulatedConditions()
    for one in cluster.brokers.values():
        if not one.up:
            one.start()
    for teller in tellers:  # brokers ask those that they know
        teller.run(lambda now, teller=teller: teller.core.producer.publish_queues(TOPIC, now))  # type: ignore[misc]
    world.run_for(180_000)
    delivered = {message.body for message in consumer.messages}
    assert delivered == bank.committed, f"seed {seed}"
    assert len(bank.asked) > 10, "hardly anybody was asked"
    assert 10 < len(bank.committed) < 50
    for body, result in bank.results:
        assert result.local_transaction_state in (COMMIT, ROLLBACK, UNKNOW)
        if result.local_transaction_state is not UNKNOW:
            assert (body in bank.committed) == (result.local_transaction_state is COMMIT)
    for teller in tellers:
        assert teller.core._checks == set()
        assert teller.node.application_tickets() == []


class Asker:
    """Sends requests and keeps book of what came of them."""

    def __init__(self, producer: SimulatedProducer) -> None:
        self.producer = producer
        self.outcomes: dict[bytes, list[tuple[int, Ticket[MessageExt]]]] = {}
        self.begun: dict[bytes, tuple[int, int]] = {}

    def ask(self, body: bytes, timeout_ms: int) -> None:
        node, core = self.producer.node, self.producer.core
        ticket = self.producer.begin(
            lambda now: node.requests.ask(core, Message(TOPIC, body), now, timeout_ms=timeout_ms)
        )
        self.begun[body] = (self.producer.cluster.now, timeout_ms)
        told = self.outcomes.setdefault(body, [])
        if ticket.settled:
            told.append((self.producer.cluster.now, ticket))
        else:
            ticket.wake = lambda: told.append((self.producer.cluster.now, ticket))
        if self.producer.cluster.simulator.random.random() < 0.05:
            self.producer.host.enter(lambda now: node.cancel(ticket, now))


@pytest.mark.parametrize("seed", range(12))
def test_every_request_has_one_outcome(seed: int) -> None:
    """PRO-10: its own reply or one failure, in time; replies that are late, doubled or nobody's disturb nothing."""
    cluster = Cluster(seed, brokers=2)
    world, random = cluster.simulator, cluster.simulator.random
    repliers = [cluster.producer(f"replier-{number}") for number in range(2)]

    def answer(messages: list[MessageExt]) -> ConsumeStatus:
        for message in messages:
            if random.random() < 0.1 or message.body == b"makes the topic":
                continue  # this one is not answered
            reply = reply_to(message, b"re: " + message.body)
            if random.random() < 0.05:
                reply.correlation_id = "of nobody"
            for _ in range(random.choice([1, 1, 1, 2])):
                replier = random.choice(repliers)
                world.at(
                    cluster.now + random.choice([0, 0, 5, 500, 4_000]),
                    lambda reply=reply, replier=replier: replier.submit(reply),  # type: ignore[misc]
                )
        return ConsumeStatus.SUCCESS

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = cluster.consumer("shop", answer, topics=(TOPIC,), consume_from_where=first)
    askers = [Asker(cluster.producer(f"asker-{number}")) for number in range(2)]
    cluster.producer("first").send(Message(TOPIC, b"makes the topic"))
    consumer.start()
    world.conditions = ROUGH
    for number in range(120):
        random.choice(askers).ask(b"%d" % number, random.choice([50, 1_000, 3_000]))
        world.run_for(random.choice([1, 20, 300]))
        broker = random.choice(list(cluster.brokers.values()))
        if random.random() < 0.02 and broker.up:
            broker.crash()
        for one in cluster.brokers.values():
            if not one.up and random.random() < 0.2:
                one.start()
    world.run_for(10_000)
    kinds: Counter[str] = Counter()
    for asker in askers:
        for body, told in asker.outcomes.items():
            begun, timeout_ms = asker.begun[body]
            assert len(told) == 1, f"seed {seed}: {body!r} has {len(told)} outcomes"
            when, ticket = told[0]
            assert when - begun <= timeout_ms, f"seed {seed}: {body!r} took {when - begun} ms"
            if ticket.failure is None:
                assert ticket.result().body == b"re: " + body
                kinds["replied"] += 1
            else:
                assert isinstance(ticket.failure, MQError), f"seed {seed}: {ticket.failure!r}"
                kinds["timed out" if isinstance(ticket.failure, RequestTimeout) else "failed"] += 1
        assert len(asker.producer.node.requests) == 0
        assert asker.producer.node.application_tickets() == []
    assert kinds["replied"] > 20, kinds
    assert kinds["timed out"] > 5, kinds
