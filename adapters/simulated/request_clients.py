"""Simulated applications that ask and are asked: transactions with their listener, requests with their replies.

Owns: a bank that knows what came of every local transaction, tellers who are asked by brokers, askers who wait for
replies.
Leaves to others: what must be true of them (`client_checks`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from mqproto.adapters.base.settings import ProducerOptions, TransactionOptions, transaction_settings
from mqproto.adapters.simulated.clients import Client, SimulatedProducer
from mqproto.adapters.simulated.records import RecordedOperation
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, Message, MessageExt
from mqproto.replies import reply_to
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.transactions import CheckTask, Half, TransactionCore
from mqproto.transactions import LocalTransactionState, TransactionSendResult

if TYPE_CHECKING:
    from mqproto.adapters.simulated.cluster import Cluster

COMMIT: Final = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK: Final = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW: Final = LocalTransactionState.UNKNOW


class Bank:
    """What all tellers of a group know: which local transactions were committed.

    One that was not run when a broker asked never will be.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.committed: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.asked: Counter[bytes] = Counter()
        #: What `send_in_transaction` came to.
        self.results: list[tuple[bytes, TransactionSendResult]] = []


class Teller(Client):
    """A producer of messages in transactions, one of the bank's group."""

    def __init__(self, cluster: Cluster, bank: Bank, options: TransactionOptions) -> None:
        super().__init__(cluster, options)
        self.bank = bank
        #: Whether it always knows what came of a transaction.
        self.sure = False
        settings = transaction_settings("bank", options)
        cores: list[TransactionCore] = []
        self.host.enter(lambda now: cores.append(self.node.add_transaction_producer(settings, self, now)))
        self.core = cores[0]
        self.host.on_deliver = self._deliver

    def transact(self, body: bytes) -> None:
        """Begin a transaction; everything else comes with the world's time."""
        message = Message(self.bank.topic, body)
        self.operate(
            "half message",
            lambda now: self.core.send_half(message, now),
            self.core.producer.settings.send_timeout_ms,
            lambda ticket: self._halved(body, ticket),
        )

    def _halved(self, body: bytes, ticket: Ticket[Half]) -> None:
        if ticket.failure is not None:
            assert isinstance(ticket.failure, MQError), repr(ticket.failure)
            return
        half = ticket.result()
        random = self.cluster.world.random
        verdict: object = None
        if half.accepted and body in self.bank.refused:
            verdict = ROLLBACK
        elif half.accepted:
            verdict = random.choice((COMMIT, COMMIT, ROLLBACK, UNKNOW, None))
            if verdict is COMMIT or (verdict is not ROLLBACK and random.random() < 0.5):
                self.bank.committed.add(body)

        def end() -> None:
            self.operate(
                "end of a transaction",
                lambda now: self.core.end(half, self.core.judged(half, verdict, None), now),
                self.core.producer.settings.send_timeout_ms,
                ended,
            )

        def ended(ticket: Ticket[TransactionSendResult]) -> None:
            if ticket.failure is None:
                self.bank.results.append((body, ticket.result()))

        self.later(random.choice((0, 10, 3_000)), end)

    def _deliver(self, action: Deliver) -> None:
        task = action.task
        assert isinstance(task, CheckTask)
        body = task.message.body
        self.bank.asked[body] += 1
        random = self.cluster.world.random
        result: object = COMMIT if body in self.bank.committed else ROLLBACK
        if not self.sure and random.random() < 0.3:
            result = random.choice((UNKNOW, ValueError("the database is away")))
        if result is ROLLBACK:
            self.bank.refused.add(body)
        self.later(
            random.choice((0, 0, 200)), lambda: self.host.enter(lambda now: self.node.checked(task, result, now))
        )


class Asker(SimulatedProducer):
    """Sends requests and keeps what came of them."""

    def __init__(self, cluster: Cluster, group: str, topic: str, options: ProducerOptions) -> None:
        super().__init__(cluster, group, options)
        self.topic = topic
        self.questions: list[tuple[bytes, RecordedOperation]] = []

    def ask(self, body: bytes, timeout_ms: int) -> None:
        """Begin a request."""
        message = Message(self.topic, body)
        operation = self.operate(
            "request", lambda now: self.node.requests.ask(self.core, message, now, timeout_ms=timeout_ms), timeout_ms
        )
        if operation is None:
            return
        self.questions.append((body, operation))
        random = self.cluster.world.random
        if random.random() < 0.05:
            self.later(random.randint(0, timeout_ms), lambda: self.cancel(operation))


class Replier(SimulatedProducer):
    """Answers questions: its `listen` is for a consumer of theirs.

    Some it never answers, some late or twice, some with nobody's id.
    """

    def listen(self, messages: list[MessageExt]) -> ConsumeStatus:
        random = self.cluster.world.random
        for message in messages:
            if random.random() < 0.1 or not message.properties.get("CORRELATION_ID"):
                continue
            reply = reply_to(message, answer_to(message.body))
            if random.random() < 0.05:
                reply.correlation_id = "of nobody"
            for _ in range(random.choice((1, 1, 1, 2))):
                self.later(random.choice((0, 0, 5, 500, 4_000)), lambda reply=reply: self._reply(reply))  # type: ignore[misc]
        return ConsumeStatus.SUCCESS

    def _reply(self, reply: Message) -> None:
        self.operate("reply", lambda now: self.core.send_async(reply, now), self.core.settings.send_timeout_ms)


def answer_to(question: bytes) -> bytes:
    """What is replied to a question."""
    return b"re: " + question
