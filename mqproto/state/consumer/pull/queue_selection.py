"""Queue selection of a lite pull consumer: a share of subscribed topics, or the queues that the application assigns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Protocol

from mqproto.errors import StateError
from mqproto.message import MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.allocation.assignment import Assignment
from mqproto.state.consumer.pull.base import QueueListener
from mqproto.state.consumer.pull_loop import Subscribed
from mqproto.state.consumer.subscriptions import Subscriptions
from mqproto.state.flows.effects import Flow
from mqproto.wire.filters.tags import TAG, parse_tags


class Mode(Enum):
    """Origin of the queues that the consumer has. The first call that needs one decides, for good."""

    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"


class SelectionNode(Protocol):
    """Members of the node that the selection needs."""

    @property
    def group(self) -> str: ...

    @property
    def namespace(self) -> Namespace: ...

    @property
    def routes(self) -> RouteTable: ...


class QueueSelection:
    """Selection of one consumer. Topics and queues are as they travel."""

    def __init__(self, subscriptions: Subscriptions, node: SelectionNode, call: Callable[..., None]) -> None:
        """`call` has the adapter call a listener with arguments."""
        self._subscriptions = subscriptions
        self._node = node
        self._call = call
        self.mode: Mode | None = None
        #: What the application has assigned.
        self.assigned: tuple[MessageQueue, ...] = ()
        #: The tags that it wants of assigned topics.
        self._assigned_tags: dict[str, Subscribed] = {}
        self._listeners: dict[str, QueueListener | None] = {}

    def subscribe(self, topic: str, expression: str, kind: str, listener: QueueListener | None, wall: int) -> None:
        """Have a share of a topic's queues. Raises StateError when queues were assigned."""
        self._decide(Mode.SUBSCRIBE)
        self._subscriptions.add(topic, expression, kind, wall)
        self._listeners[topic] = listener

    def unsubscribe(self, topic: str) -> bool:
        """Give up a topic: its share, or its assigned queues. Whether the selection may have changed by that."""
        self._listeners.pop(topic, None)
        if self.mode is Mode.ASSIGN:
            self._assign(queue for queue in self.assigned if queue.topic != topic)
            return True
        return self._subscriptions.remove(topic)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have these queues and no others. Raises StateError when topics were subscribed."""
        self._decide(Mode.ASSIGN)
        self._assign(queues)

    def _assign(self, queues: Iterable[MessageQueue]) -> None:
        self.assigned = tuple(dict.fromkeys(queues))

    def filter_assigned(self, topic: str, expression: str) -> None:
        """Want only these tags of assigned queues of a topic. Raises InvalidExpressionError."""
        tags = parse_tags(expression)
        self._assigned_tags[topic] = Subscribed(tags.expression, TAG, 0, frozenset(tags.tags))

    def _decide(self, mode: Mode) -> None:
        if self.mode not in (None, mode):
            raise StateError(f"consumer {self._node.group} either subscribes topics or is assigned queues, not both")
        self.mode = mode

    def topics(self) -> list[str]:
        return [*self._subscriptions.by_topic, *(queue.topic for queue in self.assigned)]

    def subscribed(self, topic: str) -> Subscribed | None:
        """What pulls need to know of a topic's filter."""
        if self.mode is Mode.ASSIGN:
            return self._assigned_tags.get(topic, _ALL)
        return self._subscriptions.subscribed(topic)

    def rebalance(self, assignment: Assignment, now: int) -> Flow[tuple[bool, int]]:
        """One round (`RebalanceLoop.run`); queues that the application has assigned stay."""
        if self.mode is Mode.ASSIGN:
            return True, now
        before = _by_topic(assignment)
        _, now = yield from assignment.rebalance(list(self._subscriptions.by_topic), now)
        after = _by_topic(assignment)
        namespace = self._node.namespace
        for topic in sorted(after.keys() | before.keys()):
            if after.get(topic) != before.get(topic):
                every = namespace.unwrap_queues(self._node.routes.readable(topic) or ())
                own = namespace.unwrap_queues(after.get(topic, ()))
                self._call(self._listeners.get(topic), namespace.unwrap(topic), every, own)
        return not assignment.incomplete, now


def _by_topic(assignment: Assignment) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in sorted(assignment.queues, key=queue_order):
        found.setdefault(queue.topic, []).append(queue)
    return found


_ALL: Final = Subscribed("*", TAG, 0)
