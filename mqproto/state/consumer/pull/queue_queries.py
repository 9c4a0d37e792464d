"""Queries of the application about queues and their offsets. Times are wall milliseconds."""

from __future__ import annotations

from typing import Protocol

from mqproto.errors import NoRoute
from mqproto.message import MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.cluster import offset_queries
from mqproto.state.cluster.brokers import REFRESH_TIMEOUT_MS
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Flow, Refresh


class QueryNode(Protocol):
    """Members of the node that queries need."""

    @property
    def namespace(self) -> Namespace: ...

    @property
    def routes(self) -> RouteTable: ...


class QueueQueries:
    """Queries of one consumer, by the names that its application knows; none depends on the consumer's own state."""

    def __init__(self, node: QueryNode) -> None:
        self._node = node

    def fetch_queues(self, topic: str, now: int) -> Flow[tuple[MessageQueue, ...]]:
        """The readable queues of a topic, from a name server, in queue order.

        Raises NoRoute and other MQErrors.
        """
        node = self._node
        wrapped = node.namespace.wrap(topic)
        failure, now = yield Refresh(wrapped, now + REFRESH_TIMEOUT_MS)
        if failure is not None:
            raise failure
        queues = node.routes.readable(wrapped)
        if not queues:
            raise NoRoute(wrapped)
        return node.namespace.unwrap_queues(queues)

    def max_offset(self, queue: MessageQueue, now: int) -> Flow[int]:
        """The offset that the next message of the queue will get."""
        offset, _ = yield from offset_queries.max_offset(self._node.routes, self._wrapped(queue), now)
        return offset

    def min_offset(self, queue: MessageQueue, now: int) -> Flow[int]:
        """The offset of the oldest message that is still there."""
        offset, _ = yield from offset_queries.min_offset(self._node.routes, self._wrapped(queue), now)
        return offset

    def search_offset(self, queue: MessageQueue, timestamp: int, now: int) -> Flow[int]:
        """The offset of the first message that was stored at `timestamp` or later, as the broker finds it."""
        offset, _ = yield from offset_queries.offset_by_time(self._node.routes, self._wrapped(queue), timestamp, now)
        return offset

    def earliest_msg_store_time(self, queue: MessageQueue, now: int) -> Flow[int]:
        """When the oldest message that is still there was stored; -1 for an empty queue."""
        when, _ = yield from offset_queries.earliest_store_time(self._node.routes, self._wrapped(queue), now)
        return when

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        return self._node.namespace.wrap_queue(queue)
