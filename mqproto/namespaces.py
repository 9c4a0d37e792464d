"""Namespace of a client: names as the application writes them, and names as they travel (docs/protocol/client.md 1.8).

Inside a client everything (routes, queues, offsets, heartbeats) bears wire names; what comes from the application is
wrapped where it enters, what goes to the application is unwrapped where it leaves. All of it is done twice without
harm, and does nothing in the empty namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqproto.message import MessageExt, MessageQueue
from mqproto.wire.names import unwrap_namespace, wrap_namespace


class Namespace:
    """One namespace; the empty name stands for none."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name: Final = name

    def __bool__(self) -> bool:
        return bool(self.name)

    def wrap(self, name: str) -> str:
        """A topic or group as it travels. System names stay as they are."""
        return wrap_namespace(self.name, name) if self.name else name

    def unwrap(self, name: str) -> str:
        """A topic or group as the application knows it. Names of other namespaces stay as they are."""
        return unwrap_namespace(self.name, name) if self.name else name

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue of the application's as it travels."""
        return MessageQueue(self.wrap(queue.topic), queue.broker_name, queue.queue_id) if self.name else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the application knows it."""
        return MessageQueue(self.unwrap(queue.topic), queue.broker_name, queue.queue_id) if self.name else queue

    def wrap_queues(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        """Queues of the application's as they travel, in the same order."""
        return tuple(map(self.wrap_queue, queues))

    def unwrap_queues(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        """Queues as the application knows them, in the same order."""
        return tuple(map(self.unwrap_queue, queues))

    def unwrap_messages(self, messages: Iterable[MessageExt]) -> None:
        """Give messages, in place, the topics that the application knows."""
        if self.name:
            for message in messages:
                message.topic = self.unwrap(message.topic)


#: No namespace: every name is what it is.
NO_NAMESPACE: Final = Namespace()
