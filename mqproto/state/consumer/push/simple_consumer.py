"""A push consumer without a listener: the application takes messages one by one and says of each what became of it.

To consumption this is an application like any other: what is handed out waits here until somebody takes it, and the
answer comes when the application has one. So everything else is as with a listener: places (`consume_thread_min`, here
the messages that are handed out and not acknowledged), order, retries, dead letters, the offset, which never passes a
message that is not acknowledged.

What nobody settles in time is told to the adapter, by a `Deliver` action with an `ClaimExpired`.

Owns: messages that wait to be taken, who waits for one, which are taken and since when.
Leaves to others: everything about brokers and queues (consumer and its parts), waiting and threads (adapters).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from mqproto.errors import InvalidSetting, StateError
from mqproto.message import ConsumeStatus, MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.consumer.allocation.allocate import Strategy
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.offsets import OffsetFile
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.push_consumer import Phase, PushConsumerCore
from mqproto.state.consumer.send_back import FIRST_RETRY_LEVEL
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Action, Deliver, Ticket
from mqproto.wire import properties as names

_MINUTE_MS: Final = 60_000


class HeldClaim:
    """What an application got and when, for when it was interrupted and will never know: see
    `SimpleConsumerCore.give_back`.
    """

    __slots__ = ("message", "queue", "taken_at")

    message: MessageExt | None
    #: Only of a message.
    queue: MessageQueue

    def __init__(self) -> None:
        self.message = None
        self.taken_at = 0


@dataclass(slots=True, eq=False)
class ClaimExpired:
    """A message, taken at that time, that nobody settled: for the client that `listener` stands for, which has nothing
    to answer.
    """

    group: str
    listener: Any
    message: MessageExt
    taken_at: int


class SimpleConsumerCore(PushConsumerCore):
    """A consumer whose messages are taken (`take`, `receive`) and settled (`ack`, `retry_later`) one by one.

    A taken message that nobody settles within `consume_timeout` comes again: through the broker in clustering, from
    here in order and in broadcasting. So does what was not settled when the consumer is closed or loses the queue.
    Whoever settles such a message late is told.
    """

    def __init__(
        self,
        node: ClientNode,
        settings: ConsumerSettings,
        listener: Any,
        *,
        strategy: Strategy | None = None,
        offset_file: OffsetFile | None = None,
        offset_storage: OffsetStorage | None = None,
        utc_offset_ms: int = 0,
    ) -> None:
        """As `PushConsumerCore`; raises InvalidSetting also for deliveries of more than one message."""
        if settings.consume_message_batch_max_size != 1:
            raise InvalidSetting(
                "consume_message_batch_max_size",
                settings.consume_message_batch_max_size,
                "messages are taken one by one",
            )
        self._parked: deque[ConsumeTask] = deque()
        #: By identity of the message, those that were taken first in front.
        self._taken: dict[int, ConsumeTask] = {}
        self._takers: deque[Ticket[None]] = deque()
        self._ended = False
        super().__init__(
            node,
            settings,
            listener,
            strategy=strategy,
            offset_file=offset_file,
            offset_storage=offset_storage,
            utc_offset_ms=utc_offset_ms,
        )

    def deliver(self, task: ConsumeTask, now: int) -> None:
        self._park(task, now)

    def act(self, action: Action) -> None:
        """Messages of operators come by here."""
        if isinstance(action, Deliver):
            assert isinstance(action.task, ConsumeTask)
            self._park(action.task, action.task.started_at)
        else:
            super().act(action)

    def _park(self, task: ConsumeTask, now: int, *, in_front: bool = False) -> None:
        if in_front:
            self._parked.appendleft(task)
        else:
            self._parked.append(task)
        if self._takers:
            self.node.wake(self._takers.popleft(), now)

    # --- what the application asks

    def take(self, claim: HeldClaim, now: int) -> MessageExt | None:
        """A message that waits here; None when there is none."""
        while self._parked:
            task = self._parked.popleft()
            if task.process_queue.dropped:
                self._withdraw([task], now)
                continue
            (message,) = task.messages
            task.started_at = now
            message.properties[names.CONSUME_START_TIME] = str(self.wall(now))
            self._taken[id(message)] = task
            if self._trace is not None and not task.trace_id and task in self._consumption.deliveries.running:
                self._trace.consuming(task, now)
            claim.message, claim.queue, claim.taken_at = message, task.context.queue, now
            return message
        return None

    def taken_at(self, message: MessageExt) -> int | None:
        """When a message was taken that nobody has settled; None for any other."""
        task = self._taken.get(id(message))
        return None if task is None else task.started_at

    def receive(self, claim: HeldClaim, timeout_ms: int | None, now: int) -> Flow[MessageExt | None]:
        """The next message; None when none came within `timeout_ms`, or the consumer is closed.

        Who waits longest is served first.
        """
        deadline = None if timeout_ms is None else now + timeout_ms
        while not self._ended:
            message = self.take(claim, now)
            if message is not None or (deadline is not None and now >= deadline):
                return message
            turn: Ticket[None] = Ticket()
            self._takers.append(turn)
            try:
                _, now = yield Wait(turn, deadline)
            finally:
                if not turn.settled:
                    self._takers.remove(turn)
        return None

    def give_back(self, claim: HeldClaim, now: int) -> None:
        """Whoever waited was interrupted: a message that it got all the same is for the next."""
        message, claim.message = claim.message, None
        task = None if message is None else self._taken.pop(id(message), None)
        if task is not None:
            self._park(task, now, in_front=True)

    def ack(self, message: MessageExt, now: int) -> bool:
        """The message is done with. False when that does not count: it was settled before, it took too long, its queue
        is somebody else's now, or the consumer is closed; then it comes again, or has come already.
        """
        return self._settle(message, ConsumeStatus.SUCCESS, now)

    def retry_later(self, message: MessageExt, now: int, delay_level: int = 0) -> bool:
        """The message shall come again: after a time that the broker chooses (longer each time), or that `delay_level`
        names; -1 makes it a dead letter. In order its queue pauses instead; broadcasting drops it. False as with `ack`.
        """
        task = self._taken.get(id(message))
        if task is not None:
            task.context.delay_level_when_next_consume = delay_level
        return self._settle(message, ConsumeStatus.RECONSUME_LATER, now)

    def _settle(self, message: MessageExt, result: ConsumeStatus, now: int) -> bool:
        task = self._taken.pop(id(message), None)
        if task is None:
            return False
        counts = not task.process_queue.dropped
        self.node.consumed(task, result, now)
        return counts

    # --- what takes too long, and the end

    def _sweep_loop(self, now: int) -> Flow[None]:
        patience_ms = self.settings.consume_timeout * _MINUTE_MS
        while True:
            oldest = next(iter(self._taken.values()), None)
            _, now = yield Sleep((now if oldest is None else oldest.started_at) + patience_ms)
            for task in [one for one in self._taken.values() if one.started_at <= now - patience_ms]:
                self._expire(task, now)

    def _expire(self, task: ConsumeTask, now: int) -> None:
        (message,) = task.messages
        del self._taken[id(message)]
        self.node.actions.append(Deliver(ClaimExpired(self.group, self.listener, message, task.started_at)))
        if not task.process_queue.dropped:
            self.notice(
                f"group {self.group}: the message at offset {message.queue_offset} of {task.context.queue} was not acknowledged within "
                f"{self.settings.consume_timeout} min and comes again"
            )
        if self.broadcasts and not self.settings.orderly:
            message.reconsume_times += 1
            self._park(task, now)
        else:
            task.context.delay_level_when_next_consume = FIRST_RETRY_LEVEL
            self.consumed(task, ConsumeStatus.RECONSUME_LATER, now)

    def _withdraw(self, tasks: Iterable[ConsumeTask], now: int) -> None:
        for task in tasks:
            if not self._direct.consumed(task, StateError(f"consumer {self.group} is closed"), now):
                self._consumption.withdraw(task, now)

    def _withdraw_dropped(self, now: int) -> None:
        dropped = [task for task in self._parked if task.process_queue.dropped]
        if dropped:
            self._parked = deque(task for task in self._parked if not task.process_queue.dropped)
            self._withdraw(dropped, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Nobody has begun with what waits here."""
        return any(task.process_queue.queue == queue.queue for task in self._taken.values())

    def released(self, queue: ProcessQueue, now: int) -> None:
        self._withdraw_dropped(now)

    def shutdown(self, now: int) -> Flow[None]:
        """As with a listener; what nobody has taken is not waited for, and whoever waits is told that nothing will
        come.
        """
        if self.phase not in (Phase.STOPPING, Phase.STOPPED):
            self._ended = self._consumption.deliveries.stopped = True
            parked, self._parked = self._parked, deque()
            self._withdraw(parked, now)
            while self._takers:
                self.node.wake(self._takers.popleft(), now)
        yield from super().shutdown(now)
