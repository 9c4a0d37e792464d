"""Simple consumer: a push consumer without a listener. The application takes messages one by one and says of each what
became of it.

To consumption this is an application like any other: what is delivered waits (`held_messages`) until somebody takes it,
and the answer comes when the application has one. So everything else is as with a listener: places
(`consume_thread_min`, here the messages that are delivered and not acknowledged), order, retries, dead letters, the
offset, which never passes a message that is not acknowledged.

What nobody settles in time is reported to the adapter, by a `Deliver` action with a `ClaimExpired`.

Owns: what an acknowledgement means, and messages that were taken for too long.
Leaves to others: everything about brokers and queues (`push_consumer` and its parts), waiting and threads (adapters).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mqproto.errors import InvalidSetting, StateError
from mqproto.message import ConsumeStatus, MessageExt
from mqproto.state.client.node import ClientNode
from mqproto.state.consumer.allocation.allocate import Strategy
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.offsets import OffsetFile
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.held_messages import HeldMessages
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.send_back import FIRST_RETRY_LEVEL
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow, Sleep
from mqproto.state.node.contract import Deliver

_MINUTE_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class ClaimExpired:
    """Message that was taken and that nobody settled, for the client that `listener` stands for. It has no answer."""

    group: str
    listener: Any
    message: MessageExt
    taken_at: int


class SimpleConsumerCore(PushConsumerCore):
    """Consumer whose messages are taken (`held`) and settled (`ack`, `retry_later`) one by one.

    A taken message that nobody settles within `consume_timeout` comes again: through the broker in clustering, from
    here in order and in broadcasting. So does what was not settled when the consumer is closed or loses the queue.
    Whoever settles such a message late gets an answer that says so.
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
        super().__init__(
            node,
            settings,
            listener,
            strategy=strategy,
            offset_file=offset_file,
            offset_storage=offset_storage,
            utc_offset_ms=utc_offset_ms,
        )
        self.held = HeldMessages(self._node, self)

    # --- what the application asks

    def taken_at(self, message: MessageExt) -> int | None:
        """When a message was taken that nobody has settled; None for any other."""
        task = self.held.find(message)
        return None if task is None else task.started_at

    def ack(self, message: MessageExt, now: int) -> bool:
        """The message is done with. False when that does not count: it was settled before, it took too long, its queue
        is somebody else's now, or the consumer is closed; then it comes again, or has come already.
        """
        return self._settle(message, ConsumeStatus.SUCCESS, now)

    def retry_later(self, message: MessageExt, now: int, delay_level: int = 0) -> bool:
        """The message shall come again: after a time that the broker chooses (longer each time), or that `delay_level`
        names; -1 makes it a dead letter. In order its queue pauses instead; broadcasting drops it. False as with `ack`.
        """
        task = self.held.find(message)
        if task is not None:
            task.context.delay_level_when_next_consume = delay_level
        return self._settle(message, ConsumeStatus.RECONSUME_LATER, now)

    def _settle(self, message: MessageExt, result: ConsumeStatus, now: int) -> bool:
        task = self.held.settle(message)
        if task is None:
            return False
        counts = not task.process_queue.dropped
        self.node.consumed(task, result, now)
        return counts

    # --- what takes too long, and the end

    def _sweep_loop(self, now: int) -> Flow[None]:
        patience_ms = self.settings.consume_timeout * _MINUTE_MS
        taken = self.held.taken
        while True:
            oldest = next(iter(taken.values()), None)
            _, now = yield Sleep((now if oldest is None else oldest.started_at) + patience_ms)
            for task in [one for one in taken.values() if one.started_at <= now - patience_ms]:
                self._expire(task, now)

    def _expire(self, task: ConsumeTask, now: int) -> None:
        (message,) = task.messages
        self.held.settle(message)
        self.node.actions.append(Deliver(ClaimExpired(self.group, self.listener, message, task.started_at)))
        if not task.process_queue.dropped:
            self._node.notice(
                f"group {self.group}: the message at offset {message.queue_offset} of {task.context.queue} "
                f"was not acknowledged within {self.settings.consume_timeout} min and comes again"
            )
        if self.broadcasts and not self.settings.orderly:
            message.reconsume_times += 1
            self.held.add(task, now)
        else:
            task.context.delay_level_when_next_consume = FIRST_RETRY_LEVEL
            self.consumed(task, ConsumeStatus.RECONSUME_LATER, now)

    def shutdown(self, now: int) -> Flow[None]:
        """As with a listener; what nobody has taken is not waited for, and waiting receives get nothing."""
        if not self.life.ending:
            self._consumption.deliveries.stopped = True
            self.held.close(now)
        yield from super().shutdown(now)

    # --- for the prefetch and consumption

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Nobody has begun with what waits here."""
        return self.held.is_taken_from(queue)

    def released(self, queue: ProcessQueue, now: int) -> None:
        self.held.withdraw_dropped(now)

    def deliver(self, task: ConsumeTask, now: int) -> None:
        self.held.add(task, now)

    def _deliver_directly(self, task: ConsumeTask) -> None:
        self.held.add(task, task.started_at)

    # --- for held messages: see `HoldHost`

    def begun(self, task: ConsumeTask, now: int) -> None:
        if self._trace is not None and not task.trace_id and task in self._consumption.deliveries.running:
            self._trace.consuming(task, now)

    def withdraw(self, task: ConsumeTask, now: int) -> None:
        if not self._direct.consumed(task, StateError(f"consumer {self.group} is closed"), now):
            self._consumption.withdraw(task, now)
