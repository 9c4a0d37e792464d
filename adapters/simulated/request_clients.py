"""Simulated clients of transactions, and of requests and their replies.

Owns: the table of local transactions, clients whom brokers ask for their verdicts, clients that send requests and wait
for replies.
Leaves to others: what must be true of them (`client_checks`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from mqproto.adapters.base.settings.client_settings import transaction_settings
from mqproto.adapters.base.settings.options import ProducerOptions, TransactionOptions
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


class LocalTransactions:
    """Table of local transactions that all clients of a group share: which were committed.

    One that was not run when a broker asked never will be.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.committed: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.asked: Counter[bytes] = Counter()
        #: What `send_in_transaction` came to.
        self.results: list[tuple[bytes, TransactionSendResult]] = []


class TransactionClient(Client):
    """A producer of messages in transactions, one of the group that shares the table."""

    def __init__(self, cluster: Cluster, local: LocalTransactions, options: TransactionOptions) -> None:
        super().__init__(cluster, options)
        self.local = local
        #: Whether it always knows what came of a transaction.
        self.sure = False
        settings = transaction_settings("bank", options)
        cores: list[TransactionCore] = []
        self.host.enter(lambda now: cores.append(self.node.add_transaction_producer(settings, self, now)))
        self.core = cores[0]
        self.host.on_deliver = self._deliver

    def transact(self, body: bytes) -> None:
        """Begin a transaction; everything else comes as time passes."""
        message = Message(self.local.topic, body)
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
        random = self.cluster.simulator.random
        verdict: object = None
        if half.accepted and body in self.local.refused:
            verdict = ROLLBACK
        elif half.accepted:
            verdict = random.choice((COMMIT, COMMIT, ROLLBACK, UNKNOW, None))
            if verdict is COMMIT or (verdict is not ROLLBACK and random.random() < 0.5):
                self.local.committed.add(body)

        def end() -> None:
            self.operate(
                "end of a transaction",
                lambda now: self.core.end(half, self.core.judged(half, verdict, None), now),
                self.core.producer.settings.send_timeout_ms,
                ended,
            )

        def ended(ticket: Ticket[TransactionSendResult]) -> None:
            if ticket.failure is None:
                self.local.results.append((body, ticket.result()))

        self.later(random.choice((0, 10, 3_000)), end)

    def _deliver(self, action: Deliver) -> None:
        task = action.task
        assert isinstance(task, CheckTask)
        body = task.message.body
        self.local.asked[body] += 1
        random = self.cluster.simulator.random
        result: object = COMMIT if body in self.local.committed else ROLLBACK
        if not self.sure and random.random() < 0.3:
            result = random.choice((UNKNOW, ValueError("the database is away")))
        if result is ROLLBACK:
            self.local.refused.add(body)
        self.later(
            random.choice((0, 0, 200)),
            lambda: self.host.enter(lambda now: self.node.producers.checked(task, result, now)),
        )


class RequestClient(SimulatedProducer):
    """Client that sends requests and keeps what came of them."""

    def __init__(self, cluster: Cluster, group: str, topic: str, options: ProducerOptions) -> None:
        super().__init__(cluster, group, options)
        self.topic = topic
        self.requests: list[tuple[bytes, RecordedOperation]] = []

    def request(self, body: bytes, timeout_ms: int) -> None:
        """Begin a request."""
        message = Message(self.topic, body)
        operation = self.operate(
            "request", lambda now: self.node.requests.ask(self.core, message, now, timeout_ms=timeout_ms), timeout_ms
        )
        if operation is None:
            return
        self.requests.append((body, operation))
        random = self.cluster.simulator.random
        if random.random() < 0.05:
            self.later(random.randint(0, timeout_ms), lambda: self.cancel(operation))


class ReplyClient(SimulatedProducer):
    """Client that replies to requests: its `listen` is for a consumer of them.

    Some it never answers, some late or twice, some with an id that nobody waits for.
    """

    def listen(self, messages: list[MessageExt]) -> ConsumeStatus:
        random = self.cluster.simulator.random
        for message in messages:
            if random.random() < 0.1 or not message.properties.get("CORRELATION_ID"):
                continue
            reply = reply_to(message, reply_body(message.body))
            if random.random() < 0.05:
                reply.correlation_id = "of nobody"
            for _ in range(random.choice((1, 1, 1, 2))):
                self.later(random.choice((0, 0, 5, 500, 4_000)), lambda reply=reply: self._reply(reply))  # type: ignore[misc]
        return ConsumeStatus.SUCCESS

    def _reply(self, reply: Message) -> None:
        self.operate("reply", lambda now: self.core.send_async(reply, now), self.core.settings.send_timeout_ms)


def reply_body(request: bytes) -> bytes:
    """The body of the reply to a request."""
    return b"re: " + request
