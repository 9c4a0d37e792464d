"""What the consumers of all kinds have in common, whether they push messages or are asked for them.

Owns: the phases of a life and its start, subscriptions, where offsets are kept, the rounds in which queues are shared
out, how routes are found and where a queue is read, the beginning and the end of the trace.
Leaves to others: which queues there are (assignment, sharing), what is done with them (the kinds).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from mqproto.errors import BrokerError, ConnectionLost, InvalidSetting, MQError, NoRoute, StateError
from mqproto.message import Message, MessageExt, MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster.brokers import REFRESH_TIMEOUT_MS, find_broker, find_reader
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.external_offsets import ExternalOffsets, OffsetStorage
from mqproto.state.consumer.offsets import LocalOffsets, OffsetFile, OffsetStore, RemoteOffsets
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull_loop import Subscribed
from mqproto.state.consumer.send_back import retry_message, send_back
from mqproto.state.flows.effects import Call, Flow, Refresh, Sleep, Wait, current, success
from mqproto.state.node.contract import Action, Ticket
from mqproto.state.producer.settings import ProducerSettings
from mqproto.state.producer.trace import TRACE_CLOSE_MS, Tracer
from mqproto.validation import check_consumer_group, check_topic
from mqproto.wire.bodies import CheckClient, ConsumerData, MessageModel, SubscriptionData
from mqproto.wire.codes import RequestCode
from mqproto.wire.filters.tags import SQL92, TAG, InvalidExpressionError, parse_tags
from mqproto.wire.names import INNER_PRODUCER

#: Offsets are stored for the first time this long after the start (docs/protocol/client.md 1.3).
FIRST_PERSIST_MS: Final = 10_000
#: How soon the first round that lacked something is followed by another.
REBALANCE_RETRY_MS: Final = 1_000


class Phase(Enum):
    """The life of a consumer; there is no way back."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


def subscription_data(topic: str, expression: str, kind: str, version: int = 0) -> SubscriptionData:
    """A subscription as brokers are told of it (docs/protocol/client.md 4.1). Raises InvalidExpressionError."""
    if kind == TAG:
        tags = parse_tags(expression)
        return SubscriptionData(topic, tags.expression, TAG, list(tags.tags), sorted(tags.codes), version)
    if kind != SQL92:
        raise InvalidExpressionError(expression, f"there are {TAG} and {SQL92}, no kind {kind!r}")
    if not isinstance(expression, str) or not expression.strip():
        raise InvalidExpressionError(expression, "it is blank")
    return SubscriptionData(topic, expression, kind, version=version)


def check_subscription(topic: str, expression: str, kind: str) -> None:
    """Raises InvalidName or InvalidExpressionError for what consumers refuse to subscribe."""
    check_topic(topic)
    subscription_data(topic, expression, kind)


class ConsumerBase(ABC):
    """One group of one client node."""

    def __init__(
        self,
        node: ClientNode,
        group: str,
        message_model: MessageModel,
        offset_file: OffsetFile | None,
        offset_storage: OffsetStorage | None,
    ) -> None:
        """`group` as it travels. BROADCASTING needs an `offset_file`, unless the application keeps offsets itself in an
        `offset_storage`, else raises InvalidSetting."""
        self.node = node
        self.group = group
        self.broadcasts = message_model is MessageModel.BROADCASTING
        self._offsets: OffsetStore
        if offset_storage is not None:
            self._offsets = ExternalOffsets(group, offset_storage, self.notice)
        elif not self.broadcasts:
            self._offsets = RemoteOffsets(
                group, lambda queue, now: find_broker(self.routes, queue, now, master_only=False)
            )
        elif offset_file is None:
            raise InvalidSetting("message_model", message_model.value, "an offset file is needed")
        else:
            self._offsets = LocalOffsets(offset_file, self.notice)
        self.phase = Phase.CREATED
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._subscribed: dict[str, Subscribed] = {}
        self._version = 0
        #: Wall time of the start.
        self._started_at = 0
        self._loops: list[Ticket[None]] = []
        #: Settled to have queues shared out before the time.
        self._wake: Ticket[None] = Ticket()
        self._stopped: Ticket[None] = Ticket()
        #: Of kinds that have one, if it is wanted.
        self._trace: Tracer | None = None

    # --- what a kind decides. See `ConsumerPort` where nothing is said.

    def _own_topics(self) -> Iterable[str]:
        """Topics that it has from the start, whatever the application subscribes."""
        return ()

    @abstractmethod
    def _begin_loops(self, now: int) -> None:
        """Begin what runs from the start to the end, as `_loops`."""

    @abstractmethod
    def shutdown(self, now: int) -> Flow[None]: ...

    @abstractmethod
    def heartbeat_data(self) -> ConsumerData: ...

    @abstractmethod
    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None: ...

    @abstractmethod
    def running_info(self, now: int) -> bytes: ...

    @abstractmethod
    def consume_directly(
        self, message: MessageExt, broker_name: str, reply: Callable[[bytes, int], None], now: int
    ) -> None: ...

    @abstractmethod
    def consumed(self, task: Any, result: Any, now: int) -> None: ...

    # --- what its parts ask of it

    @property
    def client_id(self) -> str:
        return self.node.client_id

    @property
    def namespace(self) -> Namespace:
        return self.node.namespace

    @property
    def routes(self) -> RouteTable:
        return self.node.routes

    @property
    def api_timeout_ms(self) -> int:
        return self.node.settings.api_timeout_ms

    def wall(self, now: int) -> int:
        return now + self.node.wall_ahead

    def notice(self, text: str) -> None:
        self.node.notices.append(text)

    def act(self, action: Action) -> None:
        self.node.actions.append(action)

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]:
        return self.node.spawn(flow, now)

    def cancel(self, ticket: Ticket[None], now: int) -> None:
        self.node.cancel(ticket, now)

    def unknown(self, now: int) -> Ticket[None]:
        return self.node.heartbeats.send(now)

    def rebalance_soon(self, now: int) -> None:
        self.node.wake(self._wake, now)

    # --- subscriptions

    def _subscribe(self, topic: str, expression: str, kind: str, now: int) -> None:
        # Brokers keep the highest version, so it must rise even when the clock was set back (CON-12).
        version = max(self.wall(now), self._version + 1)
        data = subscription_data(topic, expression, kind, version)
        self._version = version
        self._subscriptions[topic] = data
        self._subscribed[topic] = Subscribed(data.expression, kind, version, frozenset(data.tags))

    def _unsubscribe(self, topic: str, now: int) -> None:
        """An unknown topic is no error."""
        if self._subscriptions.pop(topic, None) is not None:
            del self._subscribed[topic]
            self._announce(now)

    def _announce(self, now: int) -> None:
        """Subscriptions have changed: if the consumer runs, brokers are told and queues shared out anew."""
        if self.phase is Phase.RUNNING:
            self.node.heartbeats.send(now)
            self.rebalance_soon(now)

    def subscribed(self, topic: str) -> Subscribed | None:
        return self._subscribed.get(topic)

    # --- life

    def start(self, now: int) -> Flow[None]:
        """The start, to be run by `ClientNode.start`; when it has ended, queues are being shared out.

        Raises StateError (started before, or the node has a consumer of this group), NoNameServer and other MQErrors
        when the name servers cannot be reached, BrokerError when a broker refuses a filter. A failed consumer is over:
        make a new one.
        """
        if self.phase is not Phase.CREATED:
            raise StateError(f"consumer {self.group} is {self.phase.value} already")
        self.node.consumers.add(self)
        self.phase = Phase.STARTING
        self._started_at = self.wall(now)
        for topic in self._own_topics():
            self._subscribe(topic, "*", TAG, now)
        try:
            now = yield from self._find_routes(list(self.topics()), now)
            now = yield from self._check_filters(now)
        except MQError:
            yield from self.shutdown(now)
            raise
        _, now = yield Wait(self.node.heartbeats.send(now))
        self._check_starting()
        self.phase = Phase.RUNNING
        self._begin_loops(now)

    def _check_open(self) -> None:
        if self.phase in (Phase.STOPPING, Phase.STOPPED):
            raise StateError(f"consumer {self.group} is {self.phase.value}")

    def _check_running(self) -> None:
        if self.phase is not Phase.RUNNING:
            raise StateError(f"consumer {self.group} is {self.phase.value}")

    def _check_starting(self) -> None:
        if self.phase is not Phase.STARTING:
            raise StateError(f"consumer {self.group} was closed while it started")

    def _find_routes(self, topics: Collection[str], now: int) -> Flow[int]:
        """Fetch the routes of all topics. One that does not exist may come later; name servers that cannot be asked are
        a failure, unless all that happened is that a link broke.
        """
        for topic in topics:
            failure, now = yield Refresh(topic, now + REFRESH_TIMEOUT_MS)
            if isinstance(failure, ConnectionLost):
                failure, now = yield Refresh(topic, now + REFRESH_TIMEOUT_MS)
            self._check_starting()
            if failure is not None and not isinstance(failure, BrokerError):
                raise failure
        return now

    def _check_filters(self, now: int) -> Flow[int]:
        """CHECK_CLIENT_CONFIG for each subscription that is not by tags (docs/protocol/client.md CI-9): a broker may
        not know that kind of filter.
        """
        for data in [data for data in self._subscriptions.values() if data.type != TAG]:
            address = self.routes.any_address(data.topic, self.node.seed)
            if address is None:
                raise NoRoute(data.topic)
            body = CheckClient(self.client_id, self.group, data).to_json()
            outcome, now = yield Call(address, RequestCode.CHECK_CLIENT_CONFIG, {}, body, now + self.api_timeout_ms)
            self._check_starting()
            success(outcome, address)
        return now

    def _open_trace(self, topic: str) -> None:
        """Tell a topic, or the usual one where it is empty, of what is consumed."""
        self._trace = Tracer(self.node, self.namespace.unwrap(self.group), "CONSUME", topic)

    def _close_trace(self, now: int) -> Flow[None]:
        """Wait a moment until what is left of it is sent."""
        if self._trace is not None:
            now = yield from current(now)
            yield from self._trace.close(now, now + TRACE_CLOSE_MS)

    # --- loops

    def _rebalance_loop(
        self, share_out: Callable[[int], Flow[tuple[bool, int]]], interval_ms: int, now: int
    ) -> Flow[None]:
        """Share queues out every 20 s and whenever something calls for it; calls during a round make one more.

        `share_out` is one round; it answers whether it had all that it needed. A round that lacks something (the retry
        topic, which the first heartbeat has only just made) is soon followed by another, then less and less soon, until
        something calls for one.
        """
        retry_ms = REBALANCE_RETRY_MS
        while True:
            wake = self._wake = Ticket()
            complete, now = yield from share_out(now)
            pause_ms = interval_ms if complete else min(interval_ms, retry_ms)
            retry_ms = REBALANCE_RETRY_MS if complete else 2 * pause_ms
            _, now = yield Wait(wake, now + pause_ms)
            if wake.settled:
                retry_ms = REBALANCE_RETRY_MS

    def _persist_loop(self, persist: Callable[[int], Flow[None]], interval_ms: int, now: int) -> Flow[None]:
        _, now = yield Sleep(now + FIRST_PERSIST_MS)
        while True:
            yield from persist(now)
            _, now = yield Sleep(now + interval_ms)

    # --- messages that come again

    def _send_message_back(
        self,
        message: MessageExt,
        delay_level: int,
        broker_name: str | None,
        consumer_group: str | None,
        limit: int,
        now: int,
    ) -> Flow[None]:
        """Let a message come again later, to this group or another (docs/protocol/client.md 4.12): by the broker that
        stored it, or as a new message.

        `delay_level` -1 makes it a dead letter, 0 lets the broker choose, else it is a level of the broker's table;
        after `limit` times it is a dead letter. Raises StateError, InvalidName, and MQError when both ways failed.
        """
        self._check_running()
        group = self.group if consumer_group is None else self.namespace.wrap(consumer_group)
        check_consumer_group(group)
        message = replace(
            message, topic=self.namespace.wrap(message.topic), broker_name=broker_name or message.broker_name
        )
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        try:
            address, now = yield from find_broker(self.routes, queue, now, master_only=True)
            yield from send_back(message, group, delay_level, limit, address, now)
        except MQError:
            now = yield from current(now)
            if delay_level < 0:
                raise  # a new message would come again first
            yield from self.resend(retry_message(message, group, limit), now)

    # --- brokers

    def pull_address(self, queue: ProcessQueue, now: int) -> Flow[tuple[str | MQError, int]]:
        """The broker that the last answer suggested, or another with the same name where that one is gone."""
        try:
            address, queue.broker_id, now = yield from find_reader(self.routes, queue.queue, queue.broker_id, now)
        except MQError as error:
            return error, (yield from current(now))
        return address, now

    def pull_failed(self, queue: ProcessQueue, error: MQError) -> None:
        """Told once for each kind of trouble, not with every round."""
        trouble = str(error)
        if queue.trouble != trouble:
            queue.trouble = trouble
            self.notice(f"group {self.group}: pulling from {queue.queue} fails: {trouble}")

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        return find_broker(self.routes, queue, now, master_only=True)

    def resend(self, message: Message, now: int) -> Flow[int]:
        """By a producer of the node's own, which is there from the first time on."""
        producer = self.node.producers.by_group.get(INNER_PRODUCER)
        if producer is None:
            producer = self.node.add_producer(ProducerSettings(INNER_PRODUCER), now)
        yield from producer.send(message, now, checked=True)
        return (yield from current(now))

    # --- for the node

    def topics(self) -> Iterable[str]:
        return list(self._subscriptions)

    def consumer_ids_changed(self, now: int) -> None:
        self.rebalance_soon(now)

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        if topic in self._subscriptions and self.phase is Phase.RUNNING:
            self.rebalance_soon(now)

    def offsets(self) -> dict[MessageQueue, int]:
        return self._offsets.table()
