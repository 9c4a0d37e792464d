"""Base of consumers of all kinds.

Owns: the start, and the parts that every kind has: its phase (`life`), its subscriptions, the table of its offsets, the
rebalance loop, the trace.
Leaves to others: which queues there are (`allocation`), what is done with them (the kinds).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqproto.errors import InvalidSetting, MQError
from mqproto.message import MessageExt, MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.client.node import ClientNode
from mqproto.state.consumer.external_offsets import ExternalOffsets, OffsetStorage
from mqproto.state.consumer.group_node import GroupNode
from mqproto.state.consumer.life import Life, Phase
from mqproto.state.consumer.loops import RebalanceLoop
from mqproto.state.consumer.offsets import LocalOffsets, OffsetFile, OffsetStore, RemoteOffsets
from mqproto.state.consumer.subscriptions import Subscriptions
from mqproto.state.flows.effects import Flow, Wait, current
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.trace import TRACE_CLOSE_MS, Tracer
from mqproto.wire.bodies import ConsumerData, MessageModel
from mqproto.wire.filters.tags import TAG


def offset_store(
    node: GroupNode, message_model: MessageModel, file: OffsetFile | None, storage: OffsetStorage | None
) -> OffsetStore:
    """Where a consumer keeps its offsets. Raises InvalidSetting for BROADCASTING with neither a file nor a storage."""
    if storage is not None:
        return ExternalOffsets(node.group, storage, node.notice)
    if message_model is not MessageModel.BROADCASTING:
        return RemoteOffsets(node.group, node.offset_broker)
    if file is None:
        raise InvalidSetting("message_model", message_model.value, "an offset file is needed")
    return LocalOffsets(file, node.notice)


def consume_trace(node: ClientNode, group: str, topic: str) -> Tracer:
    """The trace of what a group consumes, to a topic, or to the usual one where it is empty."""
    return Tracer(node, node.namespace.unwrap(group), "CONSUME", topic)


class ConsumerBase(ABC):
    """Consumer of one group of one client node."""

    def __init__(
        self,
        node: ClientNode,
        group: str,
        message_model: MessageModel,
        offset_file: OffsetFile | None,
        offset_storage: OffsetStorage | None,
    ) -> None:
        """`group` as it travels. BROADCASTING needs an `offset_file`, unless the application keeps offsets itself in an
        `offset_storage`, else raises InvalidSetting.
        """
        self.node = node
        self.group = group
        self.broadcasts = message_model is MessageModel.BROADCASTING
        self._node = GroupNode(node, group)
        self._offsets = offset_store(self._node, message_model, offset_file, offset_storage)
        self.life = Life(group)
        self._subscriptions = Subscriptions()
        #: Wall time of the start.
        self._started_at = 0
        self._loops: list[Ticket[None]] = []
        self._rebalance_loop = RebalanceLoop(node.wake)
        self._stopped: Ticket[None] = Ticket()
        #: Of kinds that have one, if it is wanted (`consume_trace`).
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

    # --- life

    @property
    def phase(self) -> Phase:
        return self.life.phase

    @property
    def namespace(self) -> Namespace:
        return self.node.namespace

    def start(self, now: int) -> Flow[None]:
        """The start, to be run by `ClientNode.start`; when it has ended, queues are being rebalanced.

        Raises StateError (started before, or the node has a consumer of this group), NoNameServer and other MQErrors
        when the name servers cannot be reached, BrokerError when a broker refuses a filter. A failed consumer is over:
        make a new one.
        """
        self.life.check_new()
        self.node.consumers.add(self)
        self.life.phase = Phase.STARTING
        self._started_at = self._node.wall(now)
        for topic in self._own_topics():
            self._subscriptions.add(topic, "*", TAG, self._node.wall(now))
        try:
            now = yield from self.life.find_routes(list(self.topics()), now)
            now = yield from self.life.check_filters(self._subscriptions.by_topic.values(), self._node, now)
        except MQError:
            yield from self.shutdown(now)
            raise
        _, now = yield Wait(self.node.heartbeats.send(now))
        self.life.check_starting()
        self.life.phase = Phase.RUNNING
        self._begin_loops(now)

    def _announce(self, now: int) -> None:
        """Subscriptions have changed: if the consumer runs, brokers get a heartbeat and queues are rebalanced."""
        if self.phase is Phase.RUNNING:
            self.node.heartbeats.send(now)
            self._rebalance_loop.soon(now)

    def _close_trace(self, now: int) -> Flow[None]:
        """Wait a moment until what is left of it is sent."""
        if self._trace is not None:
            now = yield from current(now)
            yield from self._trace.close(now, now + TRACE_CLOSE_MS)

    # --- for the node

    def topics(self) -> Iterable[str]:
        return list(self._subscriptions.by_topic)

    def consumer_ids_changed(self, now: int) -> None:
        self._rebalance_loop.soon(now)

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        if topic in self._subscriptions.by_topic and self.phase is Phase.RUNNING:
            self._rebalance_loop.soon(now)

    def offsets(self) -> dict[MessageQueue, int]:
        return self._offsets.table()
