"""Consumption without a node: the flows that it begins are run by hand."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from mqproto.errors import MQError, NoRoute
from mqproto.message import ConsumeContext, ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.namespaces import NO_NAMESPACE
from mqproto.state.consumer.offsets import RemoteOffsets
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConcurrentConsumption, ConsumeTask
from mqproto.state.consumer.push.orderly import OrderlyConsumption
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Effect, Flow
from mqproto.state.node.contract import Ticket

QUEUE = MessageQueue("T", "b", 0)
Q0, Q1 = QUEUE, MessageQueue("T", "b", 1)


def message(offset: int, **others: Any) -> MessageExt:
    return MessageExt("T", b"x", queue_offset=offset, physical_offset=1000 + offset, broker_name="b", **others)


def task(count: int, **context: Any) -> ConsumeTask:
    return ConsumeTask(
        "g", "listener", [message(n) for n in range(count)], ConsumeContext(QUEUE, **context), ProcessQueue(QUEUE, 0)
    )


def locate(queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
    """For offsets that are never stored."""
    raise AssertionError


class HandFlows:
    """Flows that wait, oldest first, each with the effect that it waits for; and what operators are told."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.flows: list[tuple[Generator[Effect, tuple[Any, int], None], Effect]] = []
        self._tickets: dict[Generator[Effect, tuple[Any, int], None], Ticket[None]] = {}

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]:
        ticket = Ticket[None]()
        try:
            self.flows.append((flow, next(flow)))
            self._tickets[flow] = ticket
        except StopIteration:
            ticket.settle(None)
        return ticket

    def go_on(self, outcome: object, now: int, index: int = 0) -> Effect | None:
        """Resume a flow; its next effect, or None at its end."""
        flow, _ = self.flows.pop(index)
        try:
            effect = flow.send((outcome, now))
        except StopIteration:
            self._tickets.pop(flow).settle(None)
            return None
        self.flows.insert(index, (flow, effect))
        return effect

    def effect(self, index: int = 0) -> Effect:
        return self.flows[index][1]


class HandHost(HandFlows):
    """Node, queues and consumer in one, as consumption sees them."""

    namespace = NO_NAMESPACE

    def __init__(self) -> None:
        super().__init__()
        self.delivered: list[ConsumeTask] = []
        self.resent: list[Message] = []
        self.resend_failure: MQError | None = None
        self.no_master = False
        self.moves = 0
        self.ends: list[int] = []
        self.idles = 0

    def wall(self, now: int) -> int:
        return now + 1_000_000

    def deliver(self, task: ConsumeTask, now: int) -> None:
        self.delivered.append(task)

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        yield from ()
        if self.no_master:
            raise NoRoute(queue.topic)
        return "b:1", now

    def resend(self, message: Message, now: int) -> Flow[int]:
        yield from ()
        self.resent.append(message)
        if self.resend_failure is not None:
            raise self.resend_failure
        return now

    def moved(self, queue: ProcessQueue, now: int) -> None:
        self.moves += 1

    def ended(self, task: ConsumeTask, result: object, succeeded: int, now: int) -> None:
        self.ends.append(succeeded)

    def idle(self, now: int) -> None:
        self.idles += 1


class Bench:
    """Concurrent consumption of one queue."""

    def __init__(self, **settings: Any) -> None:
        self.host = HandHost()
        self.host.resend_failure = NoRoute("%RETRY%g")
        self.offsets = RemoteOffsets("g", locate)
        self.consumption = ConcurrentConsumption(
            ConsumerSettings(group="g", **settings), "listener", self.offsets, self.host, self.host, self.host
        )
        self.queue = ProcessQueue(QUEUE, 0)
        self.queue.start(0)

    def pulled(self, *messages: MessageExt, now: int = 0) -> None:
        self.consumption.submit(self.queue, self.queue.put(messages, 0), now)

    def answer(self, index: int, result: object, now: int = 1) -> None:
        self.consumption.consumed(self.host.delivered[index], result, now)

    def committed(self) -> int | None:
        return self.offsets.known(QUEUE)


class OrderedBench(HandHost):
    """Ordered consumption of two queues."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.unlocked: set[MessageQueue] = set()
        self.leavings: list[ProcessQueue] = []
        self.offsets = RemoteOffsets("g", locate)
        self.ordered = OrderlyConsumption(
            ConsumerSettings(group="g", orderly=True, **settings), "listener", self.offsets, self, self, self
        )
        self.queues = {queue: self.make(queue) for queue in (Q0, Q1)}

    def make(self, queue: MessageQueue, start: int = 0) -> ProcessQueue:
        made = ProcessQueue(queue, 0)
        made.start(start)
        return made

    def may_consume(self, queue: MessageQueue, now: int) -> bool:
        return queue not in self.unlocked

    def left(self, queue: ProcessQueue, now: int) -> None:
        self.leavings.append(queue)

    def pulled(self, queue: MessageQueue, *messages: MessageExt, now: int = 0) -> None:
        at = self.queues[queue]
        self.ordered.submit(at, at.put(messages, 0), now)

    def answer(self, result: object = ConsumeStatus.SUCCESS, index: int = -1, now: int = 1) -> None:
        self.ordered.consumed(self.delivered[index], result, now)

    def offsets_seen(self, queue: MessageQueue = Q0) -> list[int]:
        return [one.queue_offset for task in self.delivered if task.context.queue == queue for one in task.messages]
