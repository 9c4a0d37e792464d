"""Concurrent consumption (docs/protocol/client.md 4.10, 4.12): deliveries to the application, and what becomes of their
messages by its answer.

Owns: deliveries that are ready and running, the meaning of a listener's result, when a failed message is sent back.
Leaves to others: calls of listeners (adapter), the cache of each queue (`process_queue`), the requests that send a
message back (`send_back`), what is done when (`push_consumer`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mqproto.errors import MQError
from mqproto.message import ConsumeContext, ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.consumer.offsets import OffsetStore
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull_loop import reason_of
from mqproto.state.consumer.send_back import FIRST_RETRY_LEVEL, restore_topic, retry_message, send_back
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow, Sleep, current
from mqproto.state.node.contract import Ticket
from mqproto.wire import properties as names
from mqproto.wire.bodies import MessageModel
from mqproto.wire.flags import COMPRESSED

#: Deliveries whose send-back failed come again after this time (docs/protocol/client.md 4.10).
LOCAL_RETRY_MS: Final = 5_000
#: Overdue deliveries that one sweep sends back (docs/protocol/client.md 4.6).
SWEEP_MAX: Final = 16


@dataclass(slots=True, eq=False)
class ConsumeTask:
    """Delivery: call `listener(messages, context)` and answer by `ClientNode.consumed(task, result, now)`, once.

    The result is what the listener returned, or the exception that it raised. A task may stay unanswered only when the
    application goes away altogether: its messages then come again, here or elsewhere.
    """

    group: str
    listener: Any
    messages: list[MessageExt]
    context: ConsumeContext
    process_queue: ProcessQueue
    #: When it was delivered.
    started_at: int = 0
    #: Its messages were sent back because it took too long: the result does not matter any more.
    overdue: bool = False
    #: Messages that the application's filters took out of `messages`: they are done with, whatever the result.
    filtered: list[MessageExt] = field(default_factory=list)
    #: What the message trace knows this delivery by.
    trace_id: str = ""


@dataclass(slots=True)  # made for every delivery: frozen ones take three times as long
class Verdict:
    """Meaning of a result: so many messages from the front succeeded, the others failed.

    `complaint` is for the operator.
    """

    succeeded: int
    complaint: str | None = None


def judge(result: object, task: ConsumeTask) -> Verdict:
    """The meaning of a listener's result (CON-01).

    Only `ConsumeStatus.SUCCESS` succeeds, as far as `ack_index` reaches. RECONSUME_LATER, an exception of any kind,
    None and every other value let all messages fail, so that a mistake costs repetitions and never a message.
    """
    size = len(task.messages)
    if result is ConsumeStatus.SUCCESS:
        return Verdict(min(size, max(0, task.context.ack_index + 1)))
    if result is ConsumeStatus.RECONSUME_LATER:
        return Verdict(0)
    if isinstance(result, BaseException):
        return Verdict(0, f"the listener of group {task.group} raised {type(result).__name__}: {result}")
    if isinstance(result, ConsumeStatus):
        return Verdict(
            0, f"the listener of group {task.group} returned {result.name}, which only ordered consumption knows"
        )
    return Verdict(0, f"the listener of group {task.group} returned {result!r} instead of a ConsumeStatus")


class Deliveries:
    """Deliveries of one consumer: those that wait their turn, and at most `limit` that are with the application.

    A running one keeps its place until `finished`, also while its failed messages are being sent back: so a broker that
    takes nothing back slows consumption down instead of piling up requests.
    """

    __slots__ = ("_ready", "limit", "running", "stopped")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running: set[ConsumeTask] = set()
        #: Nothing is delivered any more.
        self.stopped = False
        self._ready: deque[ConsumeTask] = deque()

    def __len__(self) -> int:
        """How many wait their turn."""
        return len(self._ready)

    def add(self, task: ConsumeTask) -> None:
        self._ready.append(task)

    def take(self, now: int) -> list[ConsumeTask]:
        """The deliveries whose turn has come; they run from now on. Those of dropped queues are left out."""
        taken: list[ConsumeTask] = []
        while self._ready and not self.stopped and len(self.running) < self.limit:
            task = self._ready.popleft()
            if task.process_queue.dropped:
                continue
            task.started_at = now
            task.process_queue.last_consume_at = now
            self.running.add(task)
            taken.append(task)
        return taken

    def finished(self, task: ConsumeTask) -> None:
        self.running.discard(task)

    def overdue(self, since: int) -> list[ConsumeTask]:
        """Running deliveries that started at `since` or before and are not marked yet, the oldest first.

        Waiting ones are never among them: nobody has begun with their messages (CON-08).
        """
        late = (task for task in self.running if task.started_at <= since and not task.overdue)
        return sorted(late, key=lambda task: task.started_at)


def split(messages: list[MessageExt], size: int) -> list[list[MessageExt]]:
    """Cut what a pull brought into lists for single deliveries. A message whose body cannot be read stands alone."""
    if len(messages) == 1:
        return [messages]
    chunks: list[list[MessageExt]] = []
    room = 0
    for message in messages:
        if message.sys_flag & COMPRESSED:
            chunks.append([message])
            room = 0
            continue
        if not room:
            chunks.append([])
            room = size
        chunks[-1].append(message)
        room -= 1
    return chunks


class ConsumptionNode(Protocol):
    """Members of the node that consumption needs. Flows that take time answer the time."""

    @property
    def namespace(self) -> Namespace: ...

    def wall(self, now: int) -> int:
        """The wall time."""

    def notice(self, text: str) -> None:
        """A line for the operator."""

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        """The broker that stored a queue's messages, by the route. Raises MQError."""

    def resend(self, message: Message, now: int) -> Flow[int]:
        """Send a message of the client's own making. Raises MQError."""


class ConsumptionQueues(Protocol):
    """Queues that are consumed."""

    def moved(self, queue: ProcessQueue, now: int) -> None:
        """Messages were finished: there may be room to pull."""


class ConsumptionHost(Protocol):
    """Consumer of deliveries: it passes them to the application, and learns what became of them."""

    def deliver(self, task: ConsumeTask, now: int) -> None:
        """Hand a delivery to the application."""

    def ended(self, task: ConsumeTask, result: object, succeeded: int, now: int) -> None:
        """The application has answered."""

    def idle(self, now: int) -> None:
        """No delivery is running."""


class ConcurrentConsumption:
    """Deliveries in any order, each message finished on its own (docs/protocol/client.md 4.10)."""

    def __init__(
        self,
        settings: ConsumerSettings,
        listener: Any,
        offsets: OffsetStore,
        node: ConsumptionNode,
        queues: ConsumptionQueues,
        host: ConsumptionHost,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._offsets = offsets
        self._node = node
        self._queues = queues
        self._host = host
        self._namespace = node.namespace
        self._sends_back = settings.message_model is MessageModel.CLUSTERING
        self.deliveries = Deliveries(settings.consume_thread_min)

    def submit(self, queue: ProcessQueue, messages: list[MessageExt], now: int) -> None:
        """New messages of a queue: deliver them as soon as there is a place."""
        group, namespace = self._settings.group, self._namespace
        for message in messages:
            restore_topic(message, group, namespace)
        self._add(queue, messages, now)

    def _add(self, queue: ProcessQueue, messages: list[MessageExt], now: int) -> None:
        for chunk in split(messages, self._settings.consume_message_batch_max_size):
            context = ConsumeContext(self._namespace.unwrap_queue(queue.queue))
            self.deliveries.add(ConsumeTask(self._settings.group, self._listener, chunk, context, queue))
        self._deliver(now)

    def resize(self, limit: int, now: int) -> None:
        """Let so many deliveries be with the application at once from now on."""
        self.deliveries.limit = limit
        self._deliver(now)

    def _deliver(self, now: int) -> None:
        """Give the application what it has places for."""
        wall = str(self._node.wall(now))
        while tasks := self.deliveries.take(now):
            for task in tasks:
                if task.messages[0].sys_flag & COMPRESSED:
                    unreadable = task.messages[0]
                    self._node.notice(
                        f"the body of the message at offset {unreadable.queue_offset} of {task.process_queue.queue} "
                        f"cannot be read{reason_of(unreadable)}"
                    )
                    self._give_back(task, task.messages, now)
                    continue
                for message in task.messages:
                    message.properties[names.CONSUME_START_TIME] = wall
                self._host.deliver(task, now)

    def consumed(self, task: ConsumeTask, result: object, now: int) -> None:
        """The application's answer to a delivery. One that was answered already, or given up, changes nothing."""
        if task not in self.deliveries.running:
            return
        verdict = judge(result, task)
        if verdict.complaint is not None and not isinstance(result, BaseException):
            # an adapter shows exceptions, with where they rose
            self._node.notice(verdict.complaint)
        self._host.ended(task, result, verdict.succeeded, now)
        self._settle(task.process_queue, task.filtered, now)
        if task.process_queue.dropped or task.overdue:
            self.deliveries.finished(task)
        else:
            self._settle(task.process_queue, task.messages[: verdict.succeeded], now)
            self._give_back(task, task.messages[verdict.succeeded :], now)
        self._go_on(now)

    def withdraw(self, task: ConsumeTask, now: int) -> None:
        """The application never began with a delivery and will not get it, because its queue was dropped or all of this
        ends: its messages stay unfinished.
        """
        self.deliveries.finished(task)
        self._go_on(now)

    def _give_back(self, task: ConsumeTask, failed: list[MessageExt], now: int) -> None:
        """Send failed messages back, or drop them in BROADCASTING, where nobody would bring them again."""
        if failed and self._sends_back:
            self._node.spawn(self._send_back_all(task, failed, now), now)
            return
        if failed:
            self._node.notice(
                f"{len(failed)} failed messages of {task.process_queue.queue} are dropped: broadcasting does not repeat"
            )
            self._settle(task.process_queue, failed, now)
        self.deliveries.finished(task)

    def _go_on(self, now: int) -> None:
        self._deliver(now)
        if not self.deliveries.running:
            self._host.idle(now)

    def _send_back_all(self, task: ConsumeTask, failed: list[MessageExt], now: int) -> Flow[None]:
        """The failed messages of a delivery that has ended; it keeps its place meanwhile."""
        stuck, now = yield from self._send_back_each(task, failed, task.context.delay_level_when_next_consume, now)
        self.deliveries.finished(task)
        self._go_on(now)
        yield from self._keep(task.process_queue, stuck, now)

    def _send_back_each(
        self, task: ConsumeTask, failed: list[MessageExt], level: int, now: int
    ) -> Flow[tuple[list[MessageExt], int]]:
        """One after the other; answers those that nobody took."""
        queue = task.process_queue
        stuck: list[MessageExt] = []
        for message in failed:
            if message not in queue:  # dropped meanwhile, or sent back as overdue
                continue
            taken, now = yield from self._send_back(message, queue.queue, level, now)
            if taken:
                self._settle(queue, [message], now)
            else:
                message.reconsume_times += 1
                stuck.append(message)
        return stuck, now

    def _send_back(self, message: MessageExt, queue: MessageQueue, level: int, now: int) -> Flow[tuple[bool, int]]:
        """By request 36; where that fails, as a new message.

        False: both failed and the message stays with us (CON-09).
        """
        group, limit = self._settings.group, self._settings.reconsume_limit
        try:
            address, now = yield from self._node.master(queue, now)
            now = yield from send_back(message, group, level, limit, address, now, self._namespace)
            return True, now
        except MQError as error:
            refusal = str(error)
        now = yield from current(now)
        if not message.sys_flag & COMPRESSED:
            try:
                now = yield from self._node.resend(retry_message(message, group, limit, self._namespace), now)
                return True, now
            except MQError as error:
                refusal += f"; as a new message: {error}"
                now = yield from current(now)
        self._node.notice(
            f"the message at offset {message.queue_offset} of {queue} could not be sent back, "
            f"it is tried again here: {refusal}"
        )
        return False, now

    def _keep(self, queue: ProcessQueue, stuck: list[MessageExt], now: int) -> Flow[None]:
        """Messages that no broker took come again from here after a while."""
        if stuck:
            _, now = yield Sleep(now + LOCAL_RETRY_MS)
            if not queue.dropped:
                self._add(queue, stuck, now)

    def _settle(self, queue: ProcessQueue, messages: Sequence[MessageExt], now: int) -> None:
        if messages and not queue.dropped:
            self._offsets.update(queue.queue, queue.settle(messages))
            self._queues.moved(queue, now)

    def sweep(self, now: int) -> None:
        """Send back what runs for longer than `consume_timeout` (docs/protocol/client.md 4.6).

        Its worker keeps its place until it answers.
        """
        if self._sends_back:
            for task in self.deliveries.overdue(now - self._settings.consume_timeout * 60_000)[:SWEEP_MAX]:
                task.overdue = True
                self._node.spawn(self._send_back_overdue(task, now), now)

    def _send_back_overdue(self, task: ConsumeTask, now: int) -> Flow[None]:
        stuck, now = yield from self._send_back_each(task, task.messages, FIRST_RETRY_LEVEL, now)
        if task in self.deliveries.running:
            task.overdue = not stuck  # what is left is judged by the answer after all, or found by the next sweep
        else:
            yield from self._keep(task.process_queue, stuck, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Whether the application has messages of this process queue."""
        return any(task.process_queue is queue for task in self.deliveries.running)
