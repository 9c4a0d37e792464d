"""Prefetch of a push consumer (docs/protocol/client.md 4.8, 4.9): its queues, pulled ahead within a window.

Owns: the window, the suspension, the pull requests, one round of rebalancing, whether a queue is locked.
Leaves to others: which queues there are and where they begin (`assignment`), the pull loop (`pull_loop`), what becomes
of messages (consumption), the requests about locks (`queue_locks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.allocation.allocate import Strategy
from mqproto.state.consumer.allocation.assignment import Assignment, AssignmentNode
from mqproto.state.consumer.offsets import OffsetStore
from mqproto.state.consumer.process_queue import ProcessQueue, Window
from mqproto.state.consumer.pull_loop import PULL_TIMEOUT_MS, PullNode, Subscribed, pull_header, pull_loop
from mqproto.state.consumer.push.queue_locks import HeldQueueLocks
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.consumer.subscriptions import Subscriptions
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import MessageModel


class PushPrefetchNode(AssignmentNode, PullNode, Protocol):
    """Members of the node that the prefetch needs."""

    def wake(self, ticket: Ticket[None], now: int) -> None: ...


class PushPrefetchHost(Protocol):
    """Consumer of what is pulled."""

    def submit(self, queue: ProcessQueue, messages: list[MessageExt], now: int) -> None:
        """New messages are in the process queue."""

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Whether the application works on messages of this process queue."""

    def is_delivering(self, queue: ProcessQueue) -> bool:
        """Whether a delivery of this process queue has no answer yet, be it taken by the application or not."""

    def released(self, queue: ProcessQueue, now: int) -> None:
        """The queue was given up: it is not in the table any more."""


class PushPrefetch:
    """Assigned queues of one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        offsets: OffsetStore,
        strategy: Strategy,
        start_time: Callable[[], int],
        subscriptions: Subscriptions,
        locks: HeldQueueLocks | None,
        node: PushPrefetchNode,
        host: PushPrefetchHost,
    ) -> None:
        """`start_time` as in `Assignment`; `locks` are those of a consumer whose queues need them."""
        self._settings = settings
        self._offsets = offsets
        self._subscriptions = subscriptions
        self._locks = locks
        self._node = node
        self._host = host
        self._commits = settings.message_model is MessageModel.CLUSTERING
        self._suspended = False
        span = None if settings.orderly else settings.consume_concurrently_max_span
        self.window = Window(settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue, span)
        self.assignment = Assignment(settings, strategy, offsets, node, self, start_time)

    def suspend(self) -> None:
        """Stop pulls and rebalancing."""
        self._suspended = True

    def resume(self, now: int) -> None:
        """Pull again."""
        self._suspended = False
        for queue in list(self.assignment.queues.values()):
            self.moved(queue, now)

    def rebalance(self, now: int) -> Flow[tuple[bool, int]]:
        """One round (`RebalanceLoop.run`); nothing happens while the consumer is suspended."""
        if not self._suspended:
            changed, now = yield from self.assignment.rebalance(list(self._subscriptions.by_topic), now)
            if changed:
                self._share_window()
                self._node.heartbeat(now)
        return not self.assignment.incomplete, now

    def _share_window(self) -> None:
        """Limits for a topic are divided by our queues (docs/protocol/client.md 4.8)."""
        count, settings = len(self.assignment.queues), self._settings
        if count and settings.pull_threshold_for_topic != -1:
            self.window.count = max(1, settings.pull_threshold_for_topic // count)
        if count and settings.pull_threshold_size_for_topic != -1:
            self.window.size_mib = max(1, settings.pull_threshold_size_for_topic // count)

    # --- for pull loops: see `PullHost`

    @property
    def pull_interval_ms(self) -> int:
        return self._settings.pull_interval

    @property
    def pull_timeout_ms(self) -> int:
        return PULL_TIMEOUT_MS

    @property
    def failure_pause_ms(self) -> int:
        return self._settings.pull_time_delay_millis_when_exception

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        if not self._suspended and not self.window.is_full(queue):
            return None
        if queue.room is None:
            queue.room = Ticket()
        return queue.room

    def subscribed(self, topic: str) -> Subscribed | None:
        return self._subscriptions.subscribed(topic)

    def pull_fields(self, queue: ProcessQueue, subscribed: Subscribed) -> dict[str, str]:
        settings = self._settings
        return pull_header(
            settings.group,
            queue,
            subscribed,
            batch=settings.pull_batch_size,
            commit_offset=self._offsets.known(queue.queue) if self._commits else 0,
            post_subscription=settings.post_subscription_when_pull,
        )

    def arrived(self, queue: ProcessQueue, fresh: list[MessageExt], now: int) -> None:
        self._host.submit(queue, fresh, now)

    def caught_up(self, queue: ProcessQueue) -> None:
        if not len(queue):
            self._offsets.update(queue.queue, queue.next_offset)

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        self.assignment.outside(queue, next_offset, now)

    # --- for the assignment: see `AssignmentHost`

    def pull(self, queue: ProcessQueue, now: int) -> Flow[None]:
        return pull_loop(queue, self, self._node, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        return self._host.is_busy(queue)

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        if self._locks is None:
            return True, now
        return (yield from self._locks.acquire(queue, now))

    def released(self, queue: ProcessQueue, now: int) -> None:
        self._host.released(queue, now)

    def unlock(self, queue: ProcessQueue, now: int) -> Flow[None]:
        if (
            self._locks is not None
            and queue.queue not in self.assignment.queues
            and not self._host.is_delivering(queue)
        ):
            yield from self._locks.release([queue.queue], now)

    # --- for consumption: see `OrderlyQueues`

    def moved(self, queue: ProcessQueue, now: int) -> None:
        """Let a pull loop go on that waits for the window or for `resume`, if it may."""
        room = queue.room
        if room is not None and not self._suspended and not self.window.is_full(queue):
            queue.room = None
            self._node.wake(room, now)

    def may_consume(self, queue: MessageQueue, now: int) -> bool:
        return self._locks is None or self._locks.is_valid(queue, now)

    def left(self, queue: ProcessQueue, now: int) -> None:
        if self._locks is not None:
            self.assignment.ended_late(queue, now)
