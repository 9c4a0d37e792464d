"""Process queue: the messages of one assigned queue that were pulled and are not finished yet.

A *process queue* lives from the moment its queue is assigned until it is taken away; then it is `dropped` for good. A
queue that is assigned again gets a new one, so whatever still runs for the old one (a pull on its way, a listener)
finds it dropped and changes nothing.

Owns: cached messages and their counts, the offset below which everything is finished, how much may be cached.
Leaves to others: pulls (`pull_loop`), deliveries (consumption, polls), which queues there are (`assignment`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.node.contract import Ticket

_MIB_SHIFT: Final = 20


class ProcessQueue:
    """Unfinished messages of one assigned queue, in the order of their offsets (docs/protocol/client.md 4.5).

    Messages come in by `put`, always with rising offsets, and are finished in any order by `settle`. Everything below
    `commit_offset` is finished; that is the offset to keep.
    """

    __slots__ = (
        "_messages",
        "_order",
        "broker_id",
        "dropped",
        "last_consume_at",
        "last_pull_at",
        "loop",
        "next_offset",
        "queue",
        "room",
        "size",
        "started",
        "trouble",
    )

    def __init__(self, queue: MessageQueue, now: int) -> None:
        self.queue = queue
        #: The next offset to pull: everything below was pulled, filtered away or skipped.
        self.next_offset = 0
        #: Body bytes of the unfinished messages, inflated.
        self.size = 0
        #: Set once, never cleared.
        self.dropped = False
        #: Whether it is known where to begin.
        self.started = False
        #: Broker to pull from (0: the master), as the last answer suggested.
        self.broker_id = 0
        self.last_pull_at = now
        self.last_consume_at = now
        #: The pull loop.
        self.loop: Ticket[None] | None = None
        #: What the pull loop waits for while the window is full or the consumer is suspended.
        self.room: Ticket[None] | None = None
        #: The pull trouble of the last notice, so that there is one notice and not one with every pull.
        self.trouble = ""
        self._messages: dict[int, MessageExt] = {}
        # Offsets in rising order. Finished ones are swept off both ends when these are looked at, so each costs O(1)
        # once.
        self._order: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message: MessageExt) -> bool:
        return self._messages.get(message.queue_offset) is message

    def start(self, offset: int) -> None:
        """Set where to begin. Only while nothing is cached."""
        assert not self._messages
        self.next_offset = offset
        self.started = True

    def put(self, messages: Iterable[MessageExt], next_offset: int) -> list[MessageExt]:
        """Take in what a pull brought and answer the new messages.

        Messages below the offset of the pull, or out of order, were seen before (or belong to nobody): not new.
        """
        fresh: list[MessageExt] = []
        floor = self.next_offset
        for message in messages:
            offset = message.queue_offset
            if offset < floor:
                continue
            floor = offset + 1
            self._messages[offset] = message
            self._order.append(offset)
            self.size += len(message.body)
            fresh.append(message)
        self.next_offset = max(floor, next_offset)
        return fresh

    def settle(self, messages: Iterable[MessageExt]) -> int:
        """Messages are finished.

        Those that are not (or no longer) cached are passed over. Answers the offset to commit.
        """
        cached = self._messages
        for message in messages:
            if cached.get(message.queue_offset) is message:
                del cached[message.queue_offset]
                self.size -= len(message.body)
        return self.commit_offset

    @property
    def commit_offset(self) -> int:
        """The smallest unfinished offset, or where the next pull begins when all is finished."""
        first = self.first
        return self.next_offset if first is None else first

    @property
    def first(self) -> int | None:
        """The smallest unfinished offset."""
        order = self._order
        while order and order[0] not in self._messages:
            order.popleft()
        return order[0] if order else None

    @property
    def last(self) -> int | None:
        """The largest unfinished offset."""
        order = self._order
        while order and order[-1] not in self._messages:
            order.pop()
        return order[-1] if order else None

    @property
    def span(self) -> int:
        """Distance between the first and the last unfinished offset."""
        first, last = self.first, self.last
        return 0 if first is None or last is None else last - first

    def drop(self) -> None:
        """The queue is not ours any more: what was cached is forgotten, whoever waits finds it `dropped`."""
        self.dropped = True
        self._messages.clear()
        self.size = 0


@dataclass(slots=True)
class Window:
    """Limits of what may be cached of a queue (docs/protocol/client.md 4.9, checks 5 to 7a).

    One pull may go beyond by its batch.
    """

    count: int = 1_000
    size_mib: int = 100
    #: Offsets between the first and the last unfinished message; None for orderly consumption, which has no gaps.
    span: int | None = 2_000

    def is_full(self, queue: ProcessQueue) -> bool:
        return (
            len(queue) > self.count
            or queue.size >> _MIB_SHIFT > self.size_mib
            or (self.span is not None and queue.span > self.span)
        )
