"""Held messages of a simple consumer: those that wait to be taken, and those that were taken and are not settled."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.flows.effects import Flow, Wait
from mqproto.state.node.contract import Ticket
from mqproto.wire import properties as names


class HeldClaim:
    """Claim of a receive: what it got and when, in case its caller is interrupted (see `HeldMessages.give_back`)."""

    __slots__ = ("message", "queue", "taken_at")

    message: MessageExt | None
    #: Only of a message.
    queue: MessageQueue

    def __init__(self) -> None:
        self.message = None
        self.taken_at = 0


class HoldNode(Protocol):
    """Members of the node that held messages need."""

    def wall(self, now: int) -> int: ...

    def wake(self, ticket: Ticket[None], now: int) -> None: ...


class HoldHost(Protocol):
    """Consumer of held messages."""

    def begun(self, task: ConsumeTask, now: int) -> None:
        """The application has taken a message."""

    def withdraw(self, task: ConsumeTask, now: int) -> None:
        """Nobody will take this message: its queue was dropped, or the consumer ends."""


class HeldMessages:
    """Messages of one consumer, each a delivery of its own, in the order in which they came."""

    def __init__(self, node: HoldNode, host: HoldHost) -> None:
        self._node = node
        self._host = host
        self.waiting: deque[ConsumeTask] = deque()
        #: By identity of the message, those that were taken first in front.
        self.taken: dict[int, ConsumeTask] = {}
        #: Receives that wait, the oldest first.
        self.receivers: deque[Ticket[None]] = deque()
        self._closed = False

    def add(self, task: ConsumeTask, now: int, *, in_front: bool = False) -> None:
        if in_front:
            self.waiting.appendleft(task)
        else:
            self.waiting.append(task)
        if self.receivers:
            self._node.wake(self.receivers.popleft(), now)

    def take(self, claim: HeldClaim, now: int) -> MessageExt | None:
        """A message that waits; None when there is none."""
        while self.waiting:
            task = self.waiting.popleft()
            if task.process_queue.dropped:
                self._host.withdraw(task, now)
                continue
            (message,) = task.messages
            task.started_at = now
            message.properties[names.CONSUME_START_TIME] = str(self._node.wall(now))
            self.taken[id(message)] = task
            self._host.begun(task, now)
            claim.message, claim.queue, claim.taken_at = message, task.context.queue, now
            return message
        return None

    def receive(self, claim: HeldClaim, timeout_ms: int | None, now: int) -> Flow[MessageExt | None]:
        """The next message; None when none came within `timeout_ms`, or the consumer is closed.

        Who waits longest is served first.
        """
        deadline = None if timeout_ms is None else now + timeout_ms
        while not self._closed:
            message = self.take(claim, now)
            if message is not None or (deadline is not None and now >= deadline):
                return message
            turn: Ticket[None] = Ticket()
            self.receivers.append(turn)
            try:
                _, now = yield Wait(turn, deadline)
            finally:
                if not turn.settled:
                    self.receivers.remove(turn)
        return None

    def give_back(self, claim: HeldClaim, now: int) -> None:
        """Whoever waited was interrupted: a message that it got all the same is for the next."""
        message, claim.message = claim.message, None
        task = None if message is None else self.settle(message)
        if task is not None:
            self.add(task, now, in_front=True)

    def settle(self, message: MessageExt) -> ConsumeTask | None:
        """The delivery of a message that was taken, which is taken no longer; None for any other message."""
        return self.taken.pop(id(message), None)

    def find(self, message: MessageExt) -> ConsumeTask | None:
        """The delivery of a message that was taken and is not settled; None for any other message."""
        return self.taken.get(id(message))

    def is_taken_from(self, queue: ProcessQueue) -> bool:
        """Whether the application has messages of this queue, be they of an earlier assignment."""
        return any(task.process_queue.queue == queue.queue for task in self.taken.values())

    def withdraw_dropped(self, now: int) -> None:
        """Let nobody take messages of queues that were given up."""
        dropped = [task for task in self.waiting if task.process_queue.dropped]
        if dropped:
            self.waiting = deque(task for task in self.waiting if not task.process_queue.dropped)
            for task in dropped:
                self._host.withdraw(task, now)

    def close(self, now: int) -> None:
        """Nobody takes a message any more, and waiting receives get nothing."""
        self._closed = True
        waiting, self.waiting = self.waiting, deque()
        for task in waiting:
            self._host.withdraw(task, now)
        while self.receivers:
            self._node.wake(self.receivers.popleft(), now)
