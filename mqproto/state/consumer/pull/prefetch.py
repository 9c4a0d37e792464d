"""Prefetch of a lite pull consumer: its assigned queues, pulled ahead of its polls (docs/protocol/client.md 5.2).

Owns: the pull requests, what becomes of their answers, queues that go on elsewhere because of an answer or a seek.
Leaves to others: which queues there are and where they begin (`assignment`), when the pull loop (`pull_loop`) waits
(`flow_control`), messages on their way to a poll (`in_hand`), what of positions is stored (`positions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from mqproto.errors import StateError
from mqproto.message import MessageExt, MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.consumer.allocation.allocate import Strategy
from mqproto.state.consumer.allocation.assignment import Assignment, AssignmentNode
from mqproto.state.consumer.offsets import OffsetStore
from mqproto.state.consumer.process_queue import ProcessQueue, Window
from mqproto.state.consumer.pull.dead_letters import DeadLetterNode, make_dead_letter
from mqproto.state.consumer.pull.flow_control import FlowControl
from mqproto.state.consumer.pull.in_hand import MessagesInHand
from mqproto.state.consumer.pull.pull_request import pull_fields
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.state.consumer.pull_loop import PullNode, Subscribed, pull_loop
from mqproto.state.flows.effects import Flow, Sleep
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.trace import Tracer
from mqproto.wire.flags import COMPRESSED


class PrefetchNode(AssignmentNode, PullNode, DeadLetterNode, Protocol):
    """Members of the node that the prefetch needs."""

    @property
    def namespace(self) -> Namespace: ...

    def wake(self, ticket: Ticket[None], now: int) -> None: ...


class Prefetch:
    """Assigned queues of one consumer, with the messages that wait for a poll."""

    def __init__(
        self,
        settings: LitePullSettings,
        offsets: OffsetStore,
        strategy: Strategy,
        start_time: Callable[[], int],
        subscribed: Callable[[str], Subscribed | None],
        trace: Tracer | None,
        node: PrefetchNode,
    ) -> None:
        """`start_time` as in `Assignment`; `subscribed` answers what pulls need to know of a topic's filter."""
        self._settings = settings
        self._offsets = offsets
        self._subscribed = subscribed
        self._node = node
        self.assignment = Assignment(settings, strategy, offsets, node, self, start_time)
        self.in_hand = MessagesInHand(trace)
        window = Window(
            settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue, settings.consume_max_span
        )
        self.flow_control = FlowControl(window, settings.pull_threshold_for_all, self.in_hand, node.wake)
        #: Queues whose position has moved since it was last made the offset to store.
        self.moved: set[MessageQueue] = set()
        #: Settled when messages arrive or the consumer ends.
        self._arrival: Ticket[None] = Ticket()

    # --- for polls

    def next_arrival(self) -> Ticket[None]:
        """A ticket to wait for until messages arrive or the consumer ends."""
        if self._arrival.settled:
            self._arrival = Ticket()
        return self._arrival

    def wake_polls(self, now: int) -> None:
        self._node.wake(self._arrival, now)

    # --- what the application says of its queues

    def ours(self, queue: MessageQueue) -> MessageQueue:
        """The queue as it travels. Raises StateError when it is not ours."""
        wrapped = self._node.namespace.wrap_queue(queue)
        if wrapped not in self.assignment.queues:
            raise StateError(f"group {self._settings.group}: {queue} is not assigned to this consumer")
        return wrapped

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull from these queues no more. What is cached is still polled. Raises StateError when one is not ours."""
        self.flow_control.pause([self.ours(queue) for queue in queues])

    def resume(self, queues: Iterable[MessageQueue], now: int) -> None:
        """Pull from these queues again. Raises StateError when one is not ours."""
        for queue in [self.ours(queue) for queue in queues]:
            self.flow_control.resume(self.assignment.queues[queue], now)

    def seek(self, queue: MessageQueue, offset: int, now: int) -> None:
        """Go on at this offset, and forget what is cached. Raises StateError when the queue is not ours."""
        self.assignment.seek(queue, offset, now)
        self.in_hand.sweep()
        self.moved.add(queue)
        self.flow_control.relieve(now)

    def reset(self, offsets: Mapping[MessageQueue, int], now: int) -> None:
        """An operator moves queues, some of them ours, to these offsets."""
        self.assignment.reset(offsets, now)
        self.in_hand.sweep()
        self.flow_control.relieve(now)

    def close(self, now: int) -> None:
        self.assignment.close(now)
        self.in_hand.sweep()

    # --- for pull loops: see `PullHost`

    @property
    def pull_interval_ms(self) -> int:
        return 0

    @property
    def pull_timeout_ms(self) -> int:
        return self._settings.consumer_timeout_millis_when_suspend

    @property
    def failure_pause_ms(self) -> int:
        return self._settings.pull_time_delay_millis_when_exception

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        return self.flow_control.hold(queue)

    def subscribed(self, topic: str) -> Subscribed | None:
        return self._subscribed(topic)

    def pull_fields(self, queue: ProcessQueue, subscribed: Subscribed) -> dict[str, str]:
        settings = self._settings
        return pull_fields(
            settings.group,
            queue.queue,
            queue.next_offset,
            settings.pull_batch_size,
            subscribed,
            suspend_ms=settings.broker_suspend_max_time_millis,
            hold=True,
            lite=True,
        )

    def arrived(self, queue: ProcessQueue, fresh: list[MessageExt], now: int) -> None:
        good = [message for message in fresh if not message.sys_flag & COMPRESSED]
        for message in fresh:
            if message.sys_flag & COMPRESSED:
                self._node.spawn(self._put_away(queue, message, now), now)
        if good:
            self.in_hand.add(queue, good)
            self.wake_polls(now)

    def _put_away(self, queue: ProcessQueue, message: MessageExt, now: int) -> Flow[None]:
        """A message that cannot be read becomes a dead letter; the position moves over it."""
        yield from make_dead_letter(queue, message, self._settings, self._node, now)
        if not queue.dropped:
            queue.settle([message])
            self.moved.add(queue.queue)

    def caught_up(self, queue: ProcessQueue) -> None:
        """Whatever lies below the next offset was filtered away, or is cached: the position knows."""
        self.moved.add(queue.queue)

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        """The queue does not have the offset of the pull.

        What is cached is still polled, unless the queue became shorter.
        """
        pulled = queue.next_offset
        self._node.notice(
            f"group {self._settings.group}: {queue.queue} has no offset {pulled}, going on at {next_offset}"
        )
        if next_offset > pulled:
            queue.next_offset = next_offset
            self.moved.add(queue.queue)
            return
        target = min(queue.commit_offset, next_offset)
        known = self._offsets.known(queue.queue)
        if known is not None and known > target:
            self._offsets.update(queue.queue, target, may_decrease=True)
        queue.drop()
        self.in_hand.sweep()
        self._node.spawn(self._begin_again(queue, target, now), now)

    def _begin_again(self, queue: ProcessQueue, offset: int, now: int) -> Flow[None]:
        """After a pause, so that a broker that changes its mind does not get pulls in a tight loop."""
        _, now = yield Sleep(now + self.failure_pause_ms)
        if self.assignment.queues.get(queue.queue) is queue:
            self.assignment.seek(queue.queue, offset, now)

    # --- for the assignment: see `AssignmentHost`

    def pull(self, queue: ProcessQueue, now: int) -> Flow[None]:
        return pull_loop(queue, self, self._node, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Corrections need not wait for the application: what it has of a dropped queue changes nothing any more."""
        return False

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        yield from ()  # nothing has to be had before a queue is pulled
        return True, now

    def released(self, queue: ProcessQueue, now: int) -> None:
        self.flow_control.forget(queue)
        self.moved.discard(queue.queue)
        self.in_hand.sweep()
        self.flow_control.relieve(now)

    def unlock(self, queue: ProcessQueue, now: int) -> Flow[None]:
        yield from ()  # nothing was acquired
