"""Flow control of a lite pull consumer (docs/protocol/client.md 5.2): what it pulls ahead is limited, and the
application may pause queues.

Owns: which queues are paused, which loops wait because too much is cached, when they look again.
Leaves to others: the loops (`pull_loop`), what is cached (`process_queue`, `in_hand`), the queues (`assignment`).
"""

from __future__ import annotations

from collections.abc import Callable

from mqproto.message import MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue, Window
from mqproto.state.consumer.pull.in_hand import MessagesInHand
from mqproto.state.node.contract import Ticket


class FlowControl:
    """Flow control of one consumer. A loop that it holds waits for the ticket of its queue (`ProcessQueue.room`)."""

    def __init__(
        self, window: Window, limit: int, in_hand: MessagesInHand, wake: Callable[[Ticket[None], int], None]
    ) -> None:
        """`window` limits what each queue caches, `limit` the messages of all queues that wait for a poll; `wake`
        settles a ticket.
        """
        self._window = window
        self._limit = limit
        self._in_hand = in_hand
        self._wake = wake
        self._paused: set[MessageQueue] = set()
        #: Process queues whose loop waits because too much is cached.
        self._full: dict[ProcessQueue, None] = {}

    @property
    def crowded(self) -> bool:
        """Whether so many messages wait for a poll that no queue may be pulled."""
        return self._in_hand.waiting > self._limit

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        """See `PullHost.hold`."""
        if queue.queue not in self._paused:
            if not self.crowded and not self._window.is_full(queue):
                return None
            self._full[queue] = None
        if queue.room is None:
            queue.room = Ticket()
        return queue.room

    def open(self, queue: ProcessQueue, now: int) -> None:
        """Let a loop look again whether it may pull."""
        self._full.pop(queue, None)
        room, queue.room = queue.room, None
        if room is not None:
            self._wake(room, now)

    def relieve(self, now: int) -> None:
        """Messages have left: if few enough wait now, every loop that this held looks again."""
        if self._full and not self.crowded:
            for queue in [queue for queue in self._full if not self._window.is_full(queue)]:
                self.open(queue, now)

    def pause(self, queues: list[MessageQueue]) -> None:
        """Pull from these queues no more. What is cached is still polled."""
        self._paused.update(queues)

    def resume(self, queue: ProcessQueue, now: int) -> None:
        """Pull from this queue again."""
        self._paused.discard(queue.queue)
        self.open(queue, now)

    def forget(self, queue: ProcessQueue) -> None:
        """The queue is given up; should it come back, it is not paused."""
        self._paused.discard(queue.queue)
        self._full.pop(queue, None)
