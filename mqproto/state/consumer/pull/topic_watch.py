"""Watch of topics: the application gets a call when their queues change (docs/protocol/client.md 5.2).

Owns: which topics, the last known queues of each, the rounds in which they are compared.
Leaves to others: routes (`route_refresh`), calls of listeners (adapter).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from mqproto.message import MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.cluster.brokers import REFRESH_TIMEOUT_MS
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Flow, Refresh, Sleep

#: Called with the topic and its readable queues, in queue order.
TopicListener: TypeAlias = Callable[[str, tuple[MessageQueue, ...]], Any]

#: When the first comparison comes (docs/protocol/client.md 1.3).
FIRST_CHECK_MS = 10_000


class WatchNode(Protocol):
    """Members of the node that the watch needs."""

    @property
    def routes(self) -> RouteTable: ...

    @property
    def namespace(self) -> Namespace: ...


class TopicWatch:
    """Watched topics of one consumer.

    What a topic has when it is first seen is no change, and neither is "still nothing".
    """

    def __init__(self, node: WatchNode, call: Callable[..., None]) -> None:
        """`call` has the adapter call a listener with arguments."""
        self._node = node
        self._call = call
        self._listeners: dict[str, TopicListener] = {}
        self._known: dict[str, tuple[MessageQueue, ...]] = {}

    @property
    def topics(self) -> list[str]:
        return list(self._listeners)

    def add(self, topic: str, listener: TopicListener) -> None:
        """Watch a topic; one listener for each, the last one counts."""
        self._listeners[topic] = listener
        self._see(topic)

    def loop(self, interval_ms: int, now: int) -> Flow[None]:
        """Compare every `interval_ms`."""
        for topic in self.topics:
            self._see(topic)
        _, now = yield Sleep(now + FIRST_CHECK_MS)
        while True:
            for topic in self.topics:
                _, now = yield Refresh(topic, now + REFRESH_TIMEOUT_MS)
                self._compare(topic)
            _, now = yield Sleep(now + interval_ms)

    def _see(self, topic: str) -> None:
        queues = self._node.routes.readable(topic)
        if queues is not None:
            self._known.setdefault(topic, queues)

    def _compare(self, topic: str) -> None:
        queues = self._node.routes.readable(topic)
        if queues is None:
            return
        known = self._known.get(topic)
        self._known[topic] = queues
        if known is not None and known != queues:
            namespace = self._node.namespace
            self._call(self._listeners[topic], namespace.unwrap(topic), namespace.unwrap_queues(queues))
