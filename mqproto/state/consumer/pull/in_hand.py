"""Messages on their way to an application that polls: those that wait, and those that it has and has not confirmed.

Owns: the order in which batches are handed out (as they arrived), and which process queues move by a confirmation.
Leaves to others: where messages come from (pull), what a confirmation means for offsets (lite_pull), how the trace
tells of both (trace).

Handed-out messages stay in their process queue until they are confirmed, so that no offset passes them and flow control
counts them. The trace has them begun when they are handed out and done when they are confirmed; of what can be
confirmed no more it hears no end.
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
        #: When it was handed out.
        self.started_at = 0
        #: What the message trace knows it by; once it has an id, its beginning was told.
        self.trace_id = trace_id


class Claim:
    """What a poll got, for when its caller was interrupted and will never know: see `MessagesInHand.put_back`."""

    __slots__ = ("batch",)

    def __init__(self) -> None:
        self.batch: Batch | None = None


class MessagesInHand:
    """All batches of one consumer. Those of dropped process queues are passed over."""

    __slots__ = ("_handed", "_ready", "_trace", "waiting")

    def __init__(self, trace: Tracer | None = None) -> None:
        self._trace = trace
        #: Messages that wait for a poll.
        self.waiting = 0
        self._ready: deque[Batch] = deque()
        self._handed: list[Batch] = []

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
            self._handed.append(batch)
            batch.started_at = now
            if self._trace is not None and not batch.trace_id:
                self._trace.consuming(batch, now)
            return batch
        return None

    def put_back(self, batch: Batch) -> None:
        """The application never got this batch: it is the next to be handed out.

        Nothing happens once it was confirmed.
        """
        if batch in self._handed:
            self._handed.remove(batch)
            self._ready.appendleft(batch)
            self.waiting += len(batch.messages)

    def confirm(self, now: int) -> list[ProcessQueue]:
        """Whatever was handed out is done with; the process queues that move by that."""
        moved: dict[ProcessQueue, None] = {}
        for batch in self._handed:
            if not batch.queue.dropped:
                batch.queue.settle(batch.messages)
                moved[batch.queue] = None
                if self._trace is not None:
                    self._trace.consumed(batch, ConsumeCode.SUCCESS, len(batch.messages), now)
        self._handed.clear()
        return list(moved)

    def sweep(self) -> None:
        """Forget the batches of process queues that were dropped."""
        self._ready = deque(batch for batch in self._ready if not batch.queue.dropped)
        self.waiting = sum(len(batch.messages) for batch in self._ready)
        self._handed = [batch for batch in self._handed if not batch.queue.dropped]
