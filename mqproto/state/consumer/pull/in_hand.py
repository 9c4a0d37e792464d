"""Messages in hand of a lite pull consumer: those that wait for a poll, and those that were polled and not confirmed.

Owns: the order in which polls get batches (as they arrived), and which process queues move by a confirmation.
Leaves to others: where messages come from (`prefetch`), what a confirmation means for offsets (`positions`), what the
trace says of both (`trace`).

Polled messages stay in their process queue until they are confirmed, so that no offset passes them and flow control
counts them. In the trace they begin with the poll and end with the confirmation, if there can be one.
"""

from __future__ import annotations

from collections import deque

from mqproto.message import MessageExt
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.producer.trace import Tracer
from mqproto.wire.tracing import ConsumeCode


class Batch:
    """Messages of one queue, in its order."""

    __slots__ = ("messages", "queue", "started_at", "trace_id")

    def __init__(self, queue: ProcessQueue, messages: list[MessageExt], trace_id: str = "") -> None:
        self.queue = queue
        self.messages = messages
        #: When it was polled.
        self.started_at = 0
        #: Its id in the message trace, from the poll on.
        self.trace_id = trace_id


class Claim:
    """Claim of a poll: what it got, in case its caller is interrupted (see `MessagesInHand.put_back`)."""

    __slots__ = ("batch",)

    def __init__(self) -> None:
        self.batch: Batch | None = None


class MessagesInHand:
    """Batches of one consumer. Those of dropped process queues are passed over."""

    __slots__ = ("_polled", "_ready", "_trace", "waiting")

    def __init__(self, trace: Tracer | None = None) -> None:
        self._trace = trace
        #: Messages that wait for a poll.
        self.waiting = 0
        self._ready: deque[Batch] = deque()
        self._polled: list[Batch] = []

    def add(self, queue: ProcessQueue, messages: list[MessageExt]) -> None:
        self._ready.append(Batch(queue, messages))
        self.waiting += len(messages)

    def take(self, limit: int | None, now: int) -> Batch | None:
        """The next batch, cut to `limit` messages; None when there is none."""
        while self._ready:
            batch = self._ready.popleft()
            if batch.queue.dropped:
                self.waiting -= len(batch.messages)
                continue
            if limit is not None and limit < len(batch.messages):
                self._ready.appendleft(Batch(batch.queue, batch.messages[limit:], batch.trace_id))
                batch.messages = batch.messages[:limit]
            self.waiting -= len(batch.messages)
            self._polled.append(batch)
            batch.started_at = now
            if self._trace is not None and not batch.trace_id:
                self._trace.consuming(batch, now)
            return batch
        return None

    def put_back(self, batch: Batch) -> None:
        """The application never got this batch: it is the next to be polled.

        Nothing happens once it was confirmed.
        """
        if batch in self._polled:
            self._polled.remove(batch)
            self._ready.appendleft(batch)
            self.waiting += len(batch.messages)

    def confirm(self, now: int) -> list[ProcessQueue]:
        """Whatever was polled is done with; the process queues that move by that."""
        moved: dict[ProcessQueue, None] = {}
        for batch in self._polled:
            if not batch.queue.dropped:
                batch.queue.settle(batch.messages)
                moved[batch.queue] = None
                if self._trace is not None:
                    self._trace.consumed(batch, ConsumeCode.SUCCESS, len(batch.messages), now)
        self._polled.clear()
        return list(moved)

    def sweep(self) -> None:
        """Forget the batches of process queues that were dropped."""
        self._ready = deque(batch for batch in self._ready if not batch.queue.dropped)
        self.waiting = sum(len(batch.messages) for batch in self._ready)
        self._polled = [batch for batch in self._polled if not batch.queue.dropped]
