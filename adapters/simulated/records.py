"""Records of a simulated cluster, as its applications saw it: sends, other operations and deliveries.

Owns: the record of each operation and each delivery, and how far each group has finished each queue.
Leaves to others: making them happen (`cluster`), what must be true of them (`checks`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue, SendResult
from mqproto.state.node.contract import Ticket


@dataclass(slots=True, eq=False)
class RecordedOperation:
    """Operation that an application began and waits for. Times are virtual."""

    client: str
    what: str
    begun: int
    #: None: it may take any time.
    budget_ms: int | None
    ticket: Ticket[Any]
    #: When the application got the outcome; None: not yet.
    ended: int | None = None
    #: How often it got the outcome.
    wakes: int = 0
    #: How long the client was frozen meanwhile.
    frozen_ms: int = 0

    def __str__(self) -> str:
        return f"the {self.what} of {self.client} at {self.begun}"


@dataclass(slots=True, eq=False)
class Sent(RecordedOperation):
    """One send of a producer."""

    #: What was sent: one message, or those of a batch.
    messages: tuple[Message, ...] = ()
    #: Whether the broker was asked for no answer.
    oneway: bool = False

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
    #: False for what was consumed, but waits to be committed with others.
    committed: bool = True

    @property
    def succeeded(self) -> bool:
        return self.committed and self.result in (ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT)


@dataclass(slots=True)
class RecordedProgress:
    """Progress of a group in one queue: which messages it is done with."""

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
    #: Everything else that applications wait for.
    operations: list[RecordedOperation] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    #: By group and queue how far offsets may be, and what succeeded. Offsets may pass what a listener has returned
    #: from, whatever it said: what failed comes again another way. In order they may pass only what succeeded, and was
    #: committed.
    finished: dict[tuple[str, MessageQueue], RecordedProgress] = field(default_factory=dict)
    succeeded: dict[tuple[str, MessageQueue], RecordedProgress] = field(default_factory=dict)
    #: Groups that do not see every message of their topics.
    filtering: set[str] = field(default_factory=set)
    #: Groups that consume in order.
    orderly: set[str] = field(default_factory=set)
    #: Groups whose members may get a message after a later one.
    unordered: set[str] = field(default_factory=set)
    #: By incarnation of a queue: what succeeded and waits for a commit.
    _uncommitted: dict[object, list[Delivery]] = field(default_factory=dict)

    def ended(self, delivery: Delivery, result: object, now: int, *, auto_commit: bool = True) -> None:
        """A listener has returned."""
        delivery.ended = now
        delivery.result = result
        waiting = self._uncommitted.setdefault(delivery.incarnation, [])
        if auto_commit or delivery.group not in self.orderly:
            done = [delivery] if delivery.succeeded or delivery.group not in self.orderly else []
        elif result is ConsumeStatus.COMMIT:
            done = [*waiting, delivery]
            waiting.clear()
        else:
            done = []
            delivery.committed = False
            if result is ConsumeStatus.SUCCESS:
                waiting.append(delivery)
            elif result is ConsumeStatus.ROLLBACK:
                waiting.clear()
        for one in done:
            one.committed = True
            self._note(self.finished, one)
        if result in (ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT):
            self._note(self.succeeded, delivery)
        elif result is ConsumeStatus.ROLLBACK:
            self._come_again(delivery)

    def _come_again(self, delivery: Delivery) -> None:
        """Everything since the last commit, unless another member has had it too and may still commit it (nobody can
        keep two members apart when a broker was started again and has forgotten its locks).
        """
        below = self.finished.get((delivery.group, delivery.queue), RecordedProgress()).below
        others = (
            one
            for incarnation, waiting in self._uncommitted.items()
            if incarnation is not delivery.incarnation
            for one in waiting
        )
        if not any(
            (one.group, one.queue) == (delivery.group, delivery.queue) and one.messages[-1].queue_offset >= below
            for one in others
        ):
            self.succeeded[delivery.group, delivery.queue] = RecordedProgress(below)

    @staticmethod
    def _note(table: dict[tuple[str, MessageQueue], RecordedProgress], delivery: Delivery) -> None:
        progress = table.setdefault((delivery.group, delivery.queue), RecordedProgress())
        for message in delivery.messages:
            progress.finished(message.queue_offset)

    def behind(self, group: str, queue: MessageQueue) -> int:
        """The smallest offset that a group has not consumed with success."""
        progress = self.succeeded.get((group, queue))
        return 0 if progress is None else progress.below
