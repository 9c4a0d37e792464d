"""Orderly consumption: of each queue one delivery at a time, in the order of the queue, and nothing passes a message
that fails (docs/protocol/client.md 4.13).

Owns: what waits in each queue, which delivery of a queue is running, what was consumed and not committed, pauses after
failures.
Leaves to others: locks of queues (`queue_locks`), calls of listeners (adapter), the cached messages (`process_queue`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from mqproto.errors import MQError
from mqproto.message import ConsumeContext, ConsumeStatus, MessageExt, MessageQueue
from mqproto.state.consumer.offsets import OffsetStore
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull_loop import reason_of
from mqproto.state.consumer.push.concurrent import (
    ConsumeTask,
    ConsumptionHost,
    ConsumptionNode,
    ConsumptionQueues,
    Deliveries,
    Verdict,
    judge,
    split,
)
from mqproto.state.consumer.send_back import restore_topic, retry_message
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow, Sleep, current
from mqproto.wire import properties as names
from mqproto.wire.flags import COMPRESSED

#: Bounds of the pause after a failure, wherever it was set.
PAUSE_MIN_MS: Final = 10
PAUSE_MAX_MS: Final = 30_000


class OrderlyQueues(ConsumptionQueues, Protocol):
    """Queues that are consumed in order: each is locked for one member of the group at a time."""

    def may_consume(self, queue: MessageQueue, now: int) -> bool:
        """Whether the queue is locked for us; `resumed` is called when that becomes true."""

    def left(self, queue: ProcessQueue, now: int) -> None:
        """The last delivery of a queue that is not ours any more has ended."""


def judge_ordered(result: object, task: ConsumeTask) -> Verdict:
    """The meaning of a listener's result in ordered consumption (docs/protocol/client.md 4.13).

    COMMIT succeeds as SUCCESS does. ROLLBACK while `auto_commit` is on lets the task's own messages fail: Java drops
    them, with a line in its log that the result is not allowed.
    """
    if result is ConsumeStatus.COMMIT:
        return judge(ConsumeStatus.SUCCESS, task)
    if result is ConsumeStatus.ROLLBACK:
        mistake = (
            f"the listener of group {task.group} returned ROLLBACK with auto_commit on: "
            "only what it was given comes again"
        )
        return Verdict(0, mistake if task.context.auto_commit else None)
    return judge(result, task)


class _Line:
    """Line of the messages that wait in one process queue, in the order of the queue."""

    __slots__ = ("held", "queue", "uncommitted", "waiting")

    def __init__(self, queue: ProcessQueue) -> None:
        self.queue = queue
        self.waiting: deque[MessageExt] = deque()
        #: Consumed, but to be committed only with others; before everything that waits.
        self.uncommitted: list[MessageExt] = []
        #: A delivery of it waits its turn, or it pauses after a failure.
        self.held = False


class OrderlyConsumption:
    """Deliveries of one consumer, in the order of each queue."""

    def __init__(
        self,
        settings: ConsumerSettings,
        listener: Any,
        offsets: OffsetStore,
        node: ConsumptionNode,
        queues: OrderlyQueues,
        host: ConsumptionHost,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._offsets = offsets
        self._node = node
        self._queues = queues
        self._host = host
        self.deliveries = Deliveries(settings.consume_thread_min)
        self._lines: dict[MessageQueue, _Line] = {}
        #: By queue, not by process queue: a queue that went and came back must not be consumed twice at a time.
        self._running: dict[MessageQueue, ConsumeTask] = {}

    def submit(self, queue: ProcessQueue, messages: list[MessageExt], now: int) -> None:
        """New messages of a queue."""
        line = self._lines.get(queue.queue)
        if line is None or line.queue is not queue:
            line = self._lines[queue.queue] = _Line(queue)
        for message in messages:
            restore_topic(message, self._settings.group, self._node.namespace)
        line.waiting += messages
        self._next(line, now)
        self._deliver(now)

    def resumed(self, queue: MessageQueue, now: int) -> None:
        """The queue may be consumed (again)."""
        line = self._lines.get(queue)
        if line is not None:
            self._next(line, now)
            self._deliver(now)

    def _next(self, line: _Line, now: int) -> None:
        """Let the next delivery of a queue wait for its turn, unless something of the queue is under way."""
        queue = line.queue.queue
        if line.queue.dropped:
            if self._lines.get(queue) is line:
                del self._lines[queue]
            return
        if line.held or not line.waiting or queue in self._running or not self._queues.may_consume(queue, now):
            return
        size = self._settings.consume_message_batch_max_size
        (chunk, *_) = split([line.waiting[index] for index in range(min(size, len(line.waiting)))], size)
        for _ in chunk:
            line.waiting.popleft()
        line.held = True
        plain = self._node.namespace.unwrap_queue(queue)
        context = ConsumeContext(
            plain, suspend_current_queue_time_millis=self._settings.suspend_current_queue_time_millis
        )
        self.deliveries.add(ConsumeTask(self._settings.group, self._listener, chunk, context, line.queue))

    def resize(self, limit: int, now: int) -> None:
        """Let so many deliveries be with the application at once from now on."""
        self.deliveries.limit = limit
        self._deliver(now)

    def _deliver(self, now: int) -> None:
        wall = str(self._node.wall(now))
        while tasks := self.deliveries.take(now):
            for task in tasks:
                queue = task.process_queue.queue
                line = self._lines[queue]
                assert line.queue is task.process_queue
                line.held = False
                if not self._queues.may_consume(queue, now):  # it waited for its turn too long
                    self._put_back(line, task.messages)
                    self.deliveries.finished(task)
                elif task.messages[0].sys_flag & COMPRESSED:
                    self._unreadable(task, line, now)
                else:
                    self._running[queue] = task
                    for message in task.messages:
                        message.properties[names.CONSUME_START_TIME] = wall
                    self._host.deliver(task, now)

    def _unreadable(self, task: ConsumeTask, line: _Line, now: int) -> None:
        """A body that cannot be read stops its queue, as a message does whose listener never succeeds."""
        (message,) = task.messages
        if not message.reconsume_times:
            self._node.notice(
                f"the body of the message at offset {message.queue_offset} of {task.process_queue.queue} "
                f"cannot be read: it waits{reason_of(message)}"
            )
        self.deliveries.finished(task)
        line.held = True
        self._node.spawn(self._failed(task.messages, task.context.suspend_current_queue_time_millis, line, now), now)

    def consumed(self, task: ConsumeTask, result: object, now: int) -> None:
        """The application's answer to a delivery. One that was answered already changes nothing."""
        if task not in self.deliveries.running:
            return
        queue = task.process_queue.queue
        verdict = judge_ordered(result, task)
        if verdict.complaint is not None and not isinstance(result, BaseException):
            # an adapter shows exceptions, with where they rose
            self._node.notice(verdict.complaint)
        self._host.ended(task, result, verdict.succeeded, now)
        line = self._lines.get(queue)
        if line is not None and not task.process_queue.dropped:
            self._settle(line, task.filtered, now)
            self._conclude(task, result, verdict.succeeded, line, now)
        self._end(task, now)

    def withdraw(self, task: ConsumeTask, now: int) -> None:
        """The application never began with a delivery and will not get it, because its queue was dropped or all of this
        ends: its messages stay unfinished.
        """
        if task in self.deliveries.running:
            self._end(task, now)

    def _end(self, task: ConsumeTask, now: int) -> None:
        """Let others have the place of a delivery, and its queue go on or be left."""
        queue = task.process_queue.queue
        self.deliveries.finished(task)
        del self._running[queue]
        line = self._lines.get(queue)
        if line is None or task.process_queue.dropped:
            self._queues.left(task.process_queue, now)
        if line is not None:
            self._next(line, now)
        self._deliver(now)
        if not self.deliveries.running:
            self._host.idle(now)

    def _conclude(self, task: ConsumeTask, result: object, succeeded: int, line: _Line, now: int) -> None:
        """Carry out what the result says of the queue."""
        auto_commit, pause_ms = task.context.auto_commit, task.context.suspend_current_queue_time_millis
        if result is ConsumeStatus.ROLLBACK and not auto_commit:
            again, line.uncommitted = [*line.uncommitted, *task.messages], []
            line.held = True
            self._node.spawn(self._come_again(again, pause_ms, line, now), now)
            return
        done, failed = task.messages[:succeeded], task.messages[succeeded:]
        if done and (auto_commit or result is ConsumeStatus.COMMIT):
            committed, line.uncommitted = [*line.uncommitted, *done], []
            self._settle(line, committed, now)
        elif done:
            self._keep_uncommitted(line, done)
        if failed:
            line.held = True
            self._node.spawn(self._failed(failed, pause_ms, line, now), now)

    def _keep_uncommitted(self, line: _Line, done: list[MessageExt]) -> None:
        """They stay cached, so a listener that never commits ends up with a full window: a notice says that once."""
        limit, before = self._settings.pull_threshold_for_queue, len(line.uncommitted)
        line.uncommitted += done
        if before <= limit < len(line.uncommitted):
            self._node.notice(
                f"{len(line.uncommitted)} messages of {line.queue.queue} wait for a commit: it is fetched no more"
            )

    def _failed(self, messages: list[MessageExt], pause_ms: int, line: _Line, now: int) -> Flow[None]:
        """What failed comes again after a pause; a message that failed too often becomes a dead letter."""
        limit = self._settings.reconsume_limit
        left: list[MessageExt] = []
        for message in messages:
            if message.reconsume_times >= limit and not message.sys_flag & COMPRESSED:
                given, now = yield from self._give_up(message, limit, now)
                if given:
                    self._settle(line, [message], now)
                    continue
            message.reconsume_times += 1
            left.append(message)
        yield from self._come_again(left, pause_ms, line, now)

    def _come_again(self, messages: list[MessageExt], pause_ms: int, line: _Line, now: int) -> Flow[None]:
        self._put_back(line, messages)
        if messages:
            _, now = yield Sleep(now + min(max(pause_ms, PAUSE_MIN_MS), PAUSE_MAX_MS))
        line.held = False
        self._next(line, now)
        self._deliver(now)

    def _give_up(self, message: MessageExt, limit: int, now: int) -> Flow[tuple[bool, int]]:
        """Send a copy to the retry topic with its attempts used up: the broker files it among the dead letters."""
        try:
            copy = retry_message(message, self._settings.group, limit, self._node.namespace)
            now = yield from self._node.resend(copy, now)
            return True, now
        except MQError as error:
            self._node.notice(
                f"message {message.msg_id} failed too often and cannot be made a dead letter, "
                f"it is tried again: {error}"
            )
            return False, (yield from current(now))

    def _put_back(self, line: _Line, messages: list[MessageExt]) -> None:
        line.waiting.extendleft(reversed(messages))

    def _settle(self, line: _Line, messages: list[MessageExt], now: int) -> None:
        if messages and not line.queue.dropped:
            self._offsets.update(line.queue.queue, line.queue.settle(messages))
            self._queues.moved(line.queue, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Whether the application has messages of this queue, be they of an earlier assignment."""
        return queue.queue in self._running
