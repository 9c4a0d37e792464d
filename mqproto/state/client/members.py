"""Members of a client node: its producers and its consumers, by group.

Leaves to others: what a producer does (`mqproto.state.producer`), what a consumer does (`mqproto.state.consumer`), how
brokers hear of both (`heartbeats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from mqproto.errors import StateError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.flows.effects import Flow
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings, TransactionSettings
from mqproto.state.producer.trace import TraceHost, Tracer
from mqproto.state.producer.transactions import CheckTask, TransactionCore, TransactionHost
from mqproto.wire.bodies import ConsumerData


class ConsumerPort(Protocol):
    """Consumer of one group, as its node sees it.

    Everything is called inside the node; nothing may block or raise.
    """

    @property
    def group(self) -> str: ...

    def heartbeat_data(self) -> ConsumerData:
        """The group's part of a heartbeat (docs/protocol/client.md 1.7)."""

    def topics(self) -> Iterable[str]:
        """The topics whose routes the node keeps fresh for this consumer."""

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        """The readable queues of a topic are now these, in queue order.

        Called for every topic; others than its own are ignored.
        """

    def consumer_ids_changed(self, now: int) -> None:
        """Members came or went (request 40): rebalance soon."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        """An operator moved the group (request 220, docs/protocol/client.md 6)."""

    def offsets(self) -> Mapping[MessageQueue, int]:
        """The offsets in memory, of all topics (request 221)."""

    def running_info(self, now: int) -> bytes:
        """The JSON body that answers request 307."""

    def consume_directly(
        self, message: MessageExt, broker_name: str, answer: Callable[[bytes, int], None], now: int
    ) -> None:
        """Consume one message for an operator (request 309); `answer` takes the JSON body, then or later."""

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """The application is done with a task that went out by a `Deliver` action."""

    def shutdown(self, now: int) -> Flow[None]:
        """The whole end of the consumer: deliveries waited for, offsets stored, `ClientNode.remove_consumer`.

        Twice is harmless.
        """


class MembershipHost(Protocol):
    """Members of the client node that decide whether a group may join."""

    client_id: str
    refusal: str | None


class ProducersHost(MembershipHost, TraceHost, TransactionHost, Protocol):
    """Members of the client node that its producers need."""


def check_new(host: MembershipHost, kind: str, group: str, taken: Mapping[str, object]) -> None:
    """Raises StateError when the node is closed, or has a member of this kind and group."""
    if host.refusal is not None:
        raise StateError(host.refusal)
    if group in taken:
        raise StateError(f"client {host.client_id} has a {kind} of group {group!r} already")


class Producers:
    """Producers of one client node, with what brokers may ask them about transactions."""

    def __init__(self, host: ProducersHost) -> None:
        self._host = host
        self.by_group: dict[str, ProducerCore] = {}
        #: Producers that brokers may ask about transactions, by group.
        self.transactions: dict[str, TransactionCore] = {}

    def add(self, settings: ProducerSettings) -> ProducerCore:
        """A new producer. Raises InvalidName, InvalidSetting, StateError as `check_new`."""
        producer = ProducerCore(settings, self._host)
        check_new(self._host, "producer", producer.group, self.by_group)
        if settings.enable_msg_trace:
            producer.trace = Tracer(self._host, settings.group, "PRODUCE", settings.customized_trace_topic)
        self.by_group[producer.group] = producer
        return producer

    def add_transactions(
        self, producer: ProducerCore, settings: TransactionSettings, listener: object
    ) -> TransactionCore:
        """Transactions of a producer: what brokers ask of its group goes to `listener`."""
        core = TransactionCore(producer, listener, self._host, settings.check_request_hold_max)
        self.transactions[core.group] = core
        return core

    def discard(self, producer: ProducerCore) -> bool:
        """Take a producer out, if it is still in."""
        if self.by_group.get(producer.group) is not producer:
            return False
        del self.by_group[producer.group]
        self.transactions.pop(producer.group, None)
        return True

    def topics(self) -> set[str]:
        """The topics whose routes they need."""
        return {topic for producer in self.by_group.values() for topic in producer.routes.topics()}

    def route_changed(self, topic: str) -> None:
        for producer in self.by_group.values():
            producer.routes.changed(topic)

    def checked(self, task: CheckTask, result: object, now: int) -> None:
        """The application has answered a question about a transaction, which came by a `Deliver` action.

        Late answers are dropped.
        """
        core = self.transactions.get(task.group)
        if core is not None:
            core.checked(task, result, now)


class Consumers:
    """Consumers of one client node."""

    def __init__(self, host: MembershipHost) -> None:
        self._host = host
        self.by_group: dict[str, ConsumerPort] = {}

    def add(self, consumer: ConsumerPort) -> None:
        """Register the consumer of a group. Raises StateError as `check_new`."""
        check_new(self._host, "consumer", consumer.group, self.by_group)
        self.by_group[consumer.group] = consumer

    def discard(self, consumer: ConsumerPort) -> bool:
        """Take a consumer out, if it is still in."""
        if self.by_group.get(consumer.group) is not consumer:
            return False
        del self.by_group[consumer.group]
        return True

    def topics(self) -> set[str]:
        """The topics whose routes they need."""
        return {topic for consumer in self.by_group.values() for topic in consumer.topics()}

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        for consumer in list(self.by_group.values()):
            consumer.queues_changed(topic, queues, now)
