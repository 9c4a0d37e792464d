"""One consume queue in memory."""

from __future__ import annotations


class Queue:
    """What the store knows of one queue of a topic.

    `max_offset` is the next offset that a reader may ask for: everything below it is visible. `next_offset` is the one that the
    next message gets; it runs ahead of `max_offset` only under SYNC_FLUSH, while messages are not durable yet. `parked` is the
    broker's own.
    """

    __slots__ = ("max_offset", "min_offset", "next_offset", "parked", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.parked: object = None
