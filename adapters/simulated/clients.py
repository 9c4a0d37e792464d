"""Clients of a simulated cluster: a node each, and an application that has what it did on record.

Names and settings are those of the real clients. What waits there lets virtual time pass here.

Owns: client nodes and their identities, sends, operations and their outcomes, calls of listeners.
Leaves to others: consumers that ask for their messages (`pull_clients`), transactions and requests (`request_clients`),
servers (`cluster`), records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mqproto.adapters.base.push_consumer import takes_context
from mqproto.adapters.base.settings.client_settings import (
    client_settings,
    consumer_settings,
    producer_settings,
    strategy_option,
)
from mqproto.adapters.base.settings.options import ClientOptions, ConsumerOptions, ProducerOptions
from mqproto.adapters.simulated.records import Delivery, RecordedOperation, Sent
from mqproto.errors import StateError
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientIdentity
from mqproto.state.consumer.base import ConsumerBase
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.core import ProducerCore

if TYPE_CHECKING:
    from mqproto.adapters.simulated.cluster import Cluster

R = TypeVar("R")

#: A listener that says which messages were consumed, as those of `PushConsumer`; a raised exception counts as failure.
Listener = Callable[..., object]
#: How long an application works on what it was given, in milliseconds.
Takes = int | Callable[[], int]


class Client:
    """Client with a node of its own. `name` is the name of its host."""

    def __init__(self, cluster: Cluster, options: ClientOptions | Mapping[str, Any]) -> None:
        simulator = cluster.simulator
        self.cluster = cluster
        number = cluster.new_number()
        self.name = f"client-{number}"
        ip = f"10.0.{2 + number // 250}.{1 + number % 250}"
        identity = ClientIdentity(ip, number, f"{number}#{number}", simulator.random.randrange(1 << 31))
        self.node = ClientNode(
            client_settings(list(cluster.name_servers_addresses), {**cluster.client_options, **options}), identity
        )
        self.host = simulator.add(self.name, self.node)
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
        """Start an operation; `make` gets the time and gives a flow.

        Raises StateError while the client is frozen or dead.
        """
        if self.host.asleep or not self.host.alive:
            raise StateError(f"{self.name} does not run")
        tickets: list[Ticket[R]] = []
        self.host.enter(lambda now: tickets.append(self.node.start(make(now), now)))
        return tickets[0]

    def run(self, make: Callable[[int], Flow[R]]) -> R:
        """The same, and let time pass until there is an outcome."""
        ticket = self.begin(make)
        self.cluster.simulator.run_until(lambda: ticket.settled)
        return ticket.result()

    def operate(
        self,
        what: str,
        make: Callable[[int], Flow[R]],
        budget_ms: int | None = None,
        then: Callable[[Ticket[R]], None] | None = None,
    ) -> RecordedOperation | None:
        """As `begin`, on record: it is to have one outcome, within its budget where it has one, and `then` is called
        with it.

        None, and nothing happens, while the client is frozen or dead.
        """
        if self.host.asleep or not self.up:
            return None
        made: list[RecordedOperation] = []

        def start(now: int) -> None:
            ticket = self.node.start(make(now), now)
            operation = RecordedOperation(self.name, what, now, budget_ms, ticket)
            ticket.wake = lambda: self._settled(operation, then)
            made.append(operation)
            self.cluster.records.operations.append(operation)

        self.host.enter(start)
        return made[0]

    def _settled(self, operation: RecordedOperation, then: Callable[[Ticket[R]], None] | None) -> None:
        operation.wakes += 1
        operation.ended = self.cluster.now
        if then is not None:
            then(operation.ticket)

    def cancel(self, operation: RecordedOperation) -> None:
        """The application gives an operation up."""
        self.host.enter(lambda now: self.node.cancel(operation.ticket, now))

    def later(self, after_ms: int, call: Callable[[], None]) -> None:
        """Have the application do something after a time, or when the client runs again; never once it is dead."""
        self.cluster.simulator.at(self.cluster.now + after_ms, lambda: self.host.when_awake(call))

    def close(self) -> None:
        """The orderly end; lets time pass until it is over."""
        self.host.enter(self.node.close)
        self.cluster.simulator.run_until(lambda: not self.up)

    def crash(self, *, power: bool = False) -> None:
        """The process is killed, or (`power`) its whole machine stops, and brokers see no end of links."""
        self.cluster.simulator.crash(self.host, silently=power)

    def freeze(self) -> None:
        """The client does not run for a while."""
        if self._frozen_at is None and self.up:
            self._frozen_at = self.cluster.now
            self.cluster.simulator.freeze(self.host)

    def thaw(self) -> None:
        """It runs again."""
        if self._frozen_at is not None:
            slept_ms = self.cluster.now - self._frozen_at
            self._sleeps.append((self._frozen_at, self.cluster.now))
            self._frozen_at = None
            for operation in (*self.cluster.records.sends, *self.cluster.records.operations):
                if operation.ended is None and operation.client == self.name:
                    operation.frozen_ms += slept_ms
            self.cluster.simulator.thaw(self.host)


class SimulatedProducer(Client):
    """Producer of messages."""

    def __init__(self, cluster: Cluster, group: str, options: ProducerOptions) -> None:
        super().__init__(cluster, options)
        self.core: ProducerCore = self.node.add_producer(producer_settings(group, options), cluster.now)

    def send(
        self, message: Message | Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send a message or a batch and let time pass until there is an outcome.

        Raises as `Producer.send` of the real clients.
        """
        sent = self.submit(message, queue=queue, timeout_ms=timeout_ms)
        self.cluster.simulator.run_until(lambda: sent.ticket.settled)
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
        """Begin a send; its outcome comes as time passes.

        `callback`: as the asynchronous sends of Apache's clients retry.
        """
        core = self.core
        messages = (message,) if isinstance(message, Message) else tuple(message)

        def begin(now: int) -> Ticket[Any]:
            if not isinstance(message, Message):
                return self.node.start(core.send_batch(message, now, queue=queue, timeout_ms=timeout_ms), now)
            if oneway:
                return self.node.start(core.send_oneway(message, now, queue=queue, timeout_ms=timeout_ms), now)
            return self.node.send(core, message, now, queue=queue, timeout_ms=timeout_ms, for_callback=callback)

        if self.host.asleep or not self.up:
            raise StateError(f"{self.name} does not run")
        budget_ms = core.settings.send_timeout_ms if timeout_ms is None else timeout_ms
        made: list[Sent] = []

        def start(now: int) -> None:
            sent = Sent(self.name, "send", now, budget_ms, begin(now), messages=messages, oneway=oneway)
            sent.ticket.wake = lambda: self._settled(sent, None)
            made.append(sent)

        self.host.enter(start)
        self.cluster.records.sends.append(made[0])
        return made[0]

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that a message of the topic could go to; lets time pass until they are known."""
        return self.run(lambda now: self.core.publish_queues(topic, now))


class SimulatedMember(Client):
    """Member of a group of consumers, of any kind."""

    core: ConsumerBase

    def __init__(self, cluster: Cluster, takes_ms: Takes, options: ClientOptions | Mapping[str, Any]) -> None:
        super().__init__(cluster, options)
        self.takes_ms = takes_ms
        #: What was delivered, in order.
        self.messages: list[MessageExt] = []
        #: What it subscribes, by topic.
        self.expressions: dict[str, str] = {}

    @property
    def group(self) -> str:
        return self.cluster.namespace.unwrap(self.core.group)

    @property
    def queues(self) -> Mapping[MessageQueue, ProcessQueue | None]:
        """The queues that it has, as they travel, and what it has of them."""
        raise NotImplementedError

    def begin_start(self) -> Ticket[None]:
        """Start it; the outcome comes as time passes."""
        return self.begin(self.begin_of_life)

    def begin_of_life(self, now: int) -> Flow[None]:
        """The start, as a flow."""
        raise NotImplementedError

    def note_expression(self, topic: str, expression: str) -> None:
        """It subscribes a topic."""
        self.expressions[topic] = expression
        if expression != "*":
            self.cluster.records.filtering.add(self.group)

    def delivered(self, queue: MessageQueue, incarnation: object, messages: Sequence[MessageExt]) -> Delivery:
        """The application gets messages of a queue; on record."""
        records = self.cluster.records
        behind = records.behind(self.group, queue)
        delivery = Delivery(self.name, self.group, queue, incarnation, list(messages), self.cluster.now, behind)
        records.deliveries.append(delivery)
        self.messages += messages
        return delivery

    def work_ms(self) -> int:
        """How long the application works this time."""
        return self.takes_ms if isinstance(self.takes_ms, int) else self.takes_ms()


class SimulatedConsumer(SimulatedMember):
    """Push consumer. Each call of the listener begins at once and has its result `takes_ms` later."""

    core: PushConsumerCore

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
        super().__init__(cluster, takes_ms, options)
        self.listener = listener
        self.core = self.make_core(group, options)
        if self.core.settings.orderly:
            cluster.records.orderly.add(group)
        self._takes_context = takes_context(listener)
        self.host.on_deliver = self._deliver
        for topic in topics:
            self.subscribe(topic, expression)

    def make_core(self, group: str, options: ConsumerOptions) -> PushConsumerCore:
        return PushConsumerCore(
            self.node, consumer_settings(group, options), self.listener, strategy=strategy_option(options)
        )

    @property
    def queues(self) -> dict[MessageQueue, ProcessQueue]:
        return self.core._assignment.queues

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Consume a topic, before or after the start."""
        self.host.enter(lambda now: self.core.subscribe(topic, expression, kind, now=now))
        self.note_expression(topic, expression)

    def start(self) -> SimulatedConsumer:
        """Start it and let time pass until that has succeeded. Raises as `PushConsumer.start`."""
        self.run(self.core.start)
        return self

    def begin_of_life(self, now: int) -> Flow[None]:
        return self.core.start(now)

    def _deliver(self, action: Deliver) -> None:
        task = action.task
        assert isinstance(task, ConsumeTask)
        delivery = self.delivered(task.context.queue, task.process_queue, task.messages)
        takes_ms = self.work_ms()
        result = self._listen(task)

        def over() -> None:
            self.cluster.records.ended(delivery, result, self.cluster.now, auto_commit=task.context.auto_commit)
            self.host.enter(lambda now: self.node.consumed(task, result, now))

        self.later(takes_ms, over)

    def _listen(self, task: ConsumeTask) -> object:
        try:
            return self.listener(task.messages, task.context) if self._takes_context else self.listener(task.messages)
        except Exception as failure:  # what a listener raises is its result, as in the real clients
            return failure
