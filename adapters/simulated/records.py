"""What happened in a simulated cluster, as its applications saw it: sends and deliveries.

Owns: the record of each send and each delivery, and how far each group has finished each queue.
Leaves to others: making them happen (`cluster`), what must be true of them (`checks`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue, SendResult
from mqproto.state.node import Ticket


@dataclass(slots=True, eq=False)
class Sent:
    """One send of a producer. Times are virtual."""

    producer: str
    #: What was sent: one message, or those of a batch.
    messages: tuple[Message, ...]
    begun: int
    budget_ms: int
    #: Whether the broker was asked for an answer.
    oneway: bool
    ticket: Ticket[Any]
    #: When the application was told the outcome; None: not yet.
    ended: int | None = None
    #: How often it was told.
    wakes: int = 0
    #: How long the producer was frozen meanwhile.
    frozen_ms: int = 0

    @property
    def result(self) -> SendResult | None:
        """What the broker acknowledged; None while there is no answer, after a failure, and for one-way sends."""
        if self.oneway or not self.ticket.settled or self.ticket.failure is not None:
            return None
        result: SendResult = self.ticket.result()
        return result


@dataclass(slots=True, eq=False)
class Delivery:
    """One call of a listener."""

    consumer: str
    group: str
    #: The queue that the messages lie in; of the retry topic, where they come from there.
    queue: MessageQueue
    #: Stands for the time that the consumer has this queue without interruption.
    incarnation: object
    messages: list[MessageExt]
    begun: int
    #: The smallest offset of the queue that the group had not consumed with success then.
    behind: int
    #: When the listener had returned; None: not yet.
    ended: int | None = None
    result: object = None

    @property
    def succeeded(self) -> bool:
        return self.result is ConsumeStatus.SUCCESS


@dataclass(slots=True)
class Progress:
    """Which messages of one queue a group is done with."""

    #: Everything below.
    below: int = 0
    beyond: set[int] = field(default_factory=set)

    def finished(self, offset: int) -> None:
        if offset >= self.below:
            self.beyond.add(offset)
            while self.below in self.beyond:
                self.beyond.discard(self.below)
                self.below += 1


@dataclass(slots=True)
class Records:
    """Everything since the beginning."""

    sends: list[Sent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    #: By group and queue what a listener has returned from, whatever it said, and what it said to have succeeded.
    finished: dict[tuple[str, MessageQueue], Progress] = field(default_factory=dict)
    succeeded: dict[tuple[str, MessageQueue], Progress] = field(default_factory=dict)
    #: Groups that do not see every message of their topics.
    filtering: set[str] = field(default_factory=set)
    #: Groups that consume in order.
    orderly: set[str] = field(default_factory=set)

    def ended(self, delivery: Delivery, result: object, now: int) -> None:
        """A listener has returned."""
        delivery.ended = now
        delivery.result = result
        key = delivery.group, delivery.queue
        for table in (self.finished, self.succeeded) if delivery.succeeded else (self.finished,):
            progress = table.setdefault(key, Progress())
            for message in delivery.messages:
                progress.finished(message.queue_offset)

    def behind(self, group: str, queue: MessageQueue) -> int:
        """The smallest offset that a group has not consumed with success."""
        progress = self.succeeded.get((group, queue))
        return 0 if progress is None else progress.below
