"""The push consumer: one group of one client node (docs/protocol/client.md 1.2, 4).

Owns: the end of its life, which rounds it goes through, and the wiring of its parts.
Leaves to others: its start, its subscriptions and the rounds themselves (consumer_base), which queues it has
(assignment), pulling (pull), deliveries (consumption), where offsets are kept (offsets), links and flows (client node),
calling the listener (adapter).

An adapter makes a core on a node, starts `start` as a flow of the node, calls the listener for every `ConsumeTask` that
a `Deliver` action brings, and answers by `ClientNode.consumed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mqproto.message import ConsumeContext, MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster.offset_queries import offset_by_time
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy
from mqproto.state.consumer.allocation.assignment import Assignment
from mqproto.state.consumer.base import ConsumerBase, Phase, check_subscription
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.offsets import OFFSET_TIMEOUT_MS, OffsetFile
from mqproto.state.consumer.process_queue import ProcessQueue, Window
from mqproto.state.consumer.pull_loop import PULL_TIMEOUT_MS, Subscribed, pull_header, pull_loop
from mqproto.state.consumer.push.concurrent import ConcurrentConsumption, ConsumeTask
from mqproto.state.consumer.push.direct_consumption import DirectConsumption
from mqproto.state.consumer.push.orderly import OrderlyConsumption
from mqproto.state.consumer.push.queue_locks import LOCK_TIMEOUT_MS, RENEW_MS, RETRY_MS, HeldQueueLocks
from mqproto.state.consumer.running_info import TopicRates, queue_info, running_info, start_facts
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.trace import outcome_code
from mqproto.wire.bodies import ConsumerData, ConsumeType
from mqproto.wire.filters.tags import TAG
from mqproto.wire.names import retry_topic

__all__ = [
    "TAG",
    "ConsumeContext",
    "ConsumeTask",
    "ConsumerSettings",
    "Phase",
    "PushConsumerCore",
    "check_subscription",
]


class PushConsumerCore(ConsumerBase):
    """A push consumer. Its `listener` is the adapter's: it comes back in every `ConsumeTask`."""

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
        """Raises InvalidName and InvalidSetting. BROADCASTING needs an `offset_file`, unless the application keeps
        offsets itself in an `offset_storage`; `utc_offset_ms` is local time minus UTC.
        """
        settings.check()
        if node.namespace:
            settings = replace(settings, group=node.namespace.wrap(settings.group))
            settings.check()
        super().__init__(node, settings.group, settings.message_model, offset_file, offset_storage)
        #: The group in them is as it travels.
        self.settings = settings
        self.listener = listener
        self._utc_offset_ms = utc_offset_ms
        self._suspended = False
        span = None if settings.orderly else settings.consume_concurrently_max_span
        self._window = Window(settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue, span)
        self._locks = HeldQueueLocks(self) if settings.orderly and not self.broadcasts else None
        self._consumption: ConcurrentConsumption | OrderlyConsumption
        if settings.orderly:
            self._consumption = OrderlyConsumption(settings, listener, self._offsets, self)
        else:
            self._consumption = ConcurrentConsumption(settings, listener, self._offsets, self)
        self._assignment = Assignment(settings, strategy or Averagely(), self._offsets, self, self._start_time)
        self._direct = DirectConsumption(settings, listener, node.namespace, self.act)
        self._rates: dict[str, TopicRates] = {}
        if settings.enable_msg_trace:
            self._open_trace(settings.customized_trace_topic)
        #: Settled when the last delivery has ended, while somebody waits for that.
        self._idle: Ticket[None] | None = None

    # --- what its parts ask of it

    @property
    def pull_interval_ms(self) -> int:
        return self.settings.pull_interval

    @property
    def pull_timeout_ms(self) -> int:
        return PULL_TIMEOUT_MS

    @property
    def failure_pause_ms(self) -> int:
        return self.settings.pull_time_delay_millis_when_exception

    # --- subscriptions

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG, *, now: int) -> None:
        """Consume a topic, filtered by tags or by another kind of expression (SQL92), before or after the start.

        Replaces a subscription of the same topic. Raises InvalidName, InvalidExpressionError, StateError.
        """
        self._check_open()
        topic = self.namespace.wrap(topic)
        check_subscription(topic, expression, kind)
        self._subscribe(topic, expression, kind, now)
        self._announce(now)

    def unsubscribe(self, topic: str, *, now: int) -> None:
        """Stop consuming a topic; its queues are given up at once. An unknown topic is no error."""
        self._unsubscribe(self.namespace.wrap(topic), now)

    # --- life

    def _own_topics(self) -> Iterable[str]:
        return () if self.broadcasts else (retry_topic(self.group),)

    def _begin_loops(self, now: int) -> None:
        settings = self.settings
        self._loops = [
            self.spawn(self._rebalance_loop(self._share_out, settings.rebalance_interval, now), now),
            self.spawn(
                self._persist_loop(self._assignment.refresh, settings.persist_consumer_offset_interval, now), now
            ),
            self.spawn(self._sweep_loop(now), now),
        ]
        if self._locks is not None:
            self._loops.append(self.spawn(self._lock_loop(self._locks, now), now))

    def shutdown(self, now: int) -> Flow[None]:
        """The end: running deliveries are waited for as the settings say, offsets stored, the group unregistered.

        Twice is harmless.
        """
        if self.phase in (Phase.STOPPING, Phase.STOPPED):
            yield Wait(self._stopped)
            return
        registered = self.phase is not Phase.CREATED
        self.phase = Phase.STOPPING
        self._consumption.deliveries.stopped = True
        for loop in self._loops:
            self.cancel(loop, now)
        patience_ms = self.settings.await_termination_millis_when_shutdown
        if patience_ms and self._consumption.deliveries.running:
            self._idle = Ticket()
            _, now = yield Wait(self._idle, now + patience_ms)
        if registered:
            if self._locks is None:
                _, now = yield Wait(self.spawn(self._assignment.persist(now), now), now + OFFSET_TIMEOUT_MS)
            else:
                now = yield from self._hand_over(self._locks, now)
            self._assignment.close(now)
            yield from self.node.remove_consumer(self, now)
        yield from self._close_trace(now)
        self.phase = Phase.STOPPED
        self.node.wake(self._stopped, now)

    def _hand_over(self, locks: HeldQueueLocks, now: int) -> Flow[int]:
        """Store offsets and give locks back before other members hear of our end: they would find a queue locked, and
        Java's try again after 20 s. Those of listeners that still run go last.
        """
        deadline = now + OFFSET_TIMEOUT_MS + LOCK_TIMEOUT_MS
        for ticket in self._assignment.give_up_all(now):
            _, now = yield Wait(ticket, deadline)
        deadline = now + LOCK_TIMEOUT_MS
        for ticket in [self.spawn(locks.release([queue], now), now) for queue in locks.held()]:
            _, now = yield Wait(ticket, deadline)
        return now

    def suspend(self, now: int) -> None:
        """Stop pulling and sharing out; what is cached is still delivered."""
        self._suspended = True

    def resume(self, now: int) -> None:
        """Pull again, and share queues out at once."""
        self._suspended = False
        for queue in list(self._assignment.queues.values()):
            self._make_room(queue, now)
        self.rebalance_soon(now)

    def update_core_pool_size(self, count: int, now: int) -> None:
        """Let so many deliveries be with the application at once, 1 to 1,000, instead of `consume_thread_min`.

        Raises InvalidSetting.
        """
        self.settings.resize(count)
        self._consumption.resize(count, now)

    def reset_to_time(self, topic: str, wall: int, now: int) -> Flow[None]:
        """Move our queues of a topic to their first messages stored at or after a wall time, as a reset by operators
        does.

        Queues of other members stay where they are. Raises StateError unless it runs, and MQErrors of brokers that
        cannot say where that is; nothing has moved then.
        """
        self._check_running()
        found: dict[MessageQueue, int] = {}
        for queue in sorted((one for one in self._assignment.queues if one.topic == topic), key=queue_order):
            found[queue], now = yield from offset_by_time(self.routes, queue, wall, now)
        self.reset_offsets(topic, found, now)

    def send_message_back(self, message: MessageExt, delay_level: int, broker_name: str | None, now: int) -> Flow[None]:
        """See `ConsumerBase._send_message_back`."""
        return self._send_message_back(message, delay_level, broker_name, None, self.settings.reconsume_limit, now)

    # --- loops

    def _share_out(self, now: int) -> Flow[tuple[bool, int]]:
        """One round; nothing is shared out while the consumer is suspended."""
        if not self._suspended:
            changed, now = yield from self._assignment.rebalance(list(self._subscriptions), now)
            if changed:
                self._share_window()
                self.node.heartbeats.send(now)
        return not self._assignment.incomplete, now

    def _share_window(self) -> None:
        """Limits for a topic are shared out over all our queues (docs/protocol/client.md 4.8)."""
        count = len(self._assignment.queues)
        if count and self.settings.pull_threshold_for_topic != -1:
            self._window.count = max(1, self.settings.pull_threshold_for_topic // count)
        if count and self.settings.pull_threshold_size_for_topic != -1:
            self._window.size_mib = max(1, self.settings.pull_threshold_size_for_topic // count)

    def _sweep_loop(self, now: int) -> Flow[None]:
        while isinstance(self._consumption, ConcurrentConsumption):
            _, now = yield Sleep(now + self.settings.consume_timeout * 60_000)
            self._consumption.sweep(now)

    def _lock_loop(self, locks: HeldQueueLocks, now: int) -> Flow[None]:
        """Renew locks in time, at once again where that failed; what was lost to another member is begun anew when it
        comes back.
        """
        while True:
            oldest = min((at for queue in locks.held() if (at := locks.locked_at(queue)) is not None), default=now)
            _, now = yield Sleep(now + (RENEW_MS if now - oldest < RENEW_MS else RETRY_MS))
            lost, now = yield from locks.renew(locks.held(), now)
            for queue in lost:
                self._assignment.retake(queue, now)
            for queue in list(
                self._assignment.queues
            ):  # a lock may have run out before it was renewed: what came meanwhile still waits
                self._resume(queue, now)

    # --- pulling

    def pull(self, queue: ProcessQueue, now: int) -> Flow[None]:
        return pull_loop(queue, self, now)

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        if not self._suspended and not self._window.is_full(queue):
            return None
        if queue.room is None:
            queue.room = Ticket()
        return queue.room

    def _make_room(self, queue: ProcessQueue, now: int) -> None:
        """Let a pull loop go on that waits for the window or for `resume`, if it may."""
        room = queue.room
        if room is not None and not self._suspended and not self._window.is_full(queue):
            queue.room = None
            self.node.wake(room, now)

    def pull_fields(self, queue: ProcessQueue, subscribed: Subscribed) -> dict[str, str]:
        return pull_header(
            self.group,
            queue,
            subscribed,
            batch=self.settings.pull_batch_size,
            commit_offset=0 if self.broadcasts else self._offsets.known(queue.queue),
            post_subscription=self.settings.post_subscription_when_pull,
        )

    def arrived(self, queue: ProcessQueue, fresh: list[MessageExt], now: int) -> None:
        self._rate(queue.queue.topic).pulled(now, len(fresh), now - queue.last_pull_at)
        self._consumption.submit(queue, fresh, now)

    def caught_up(self, queue: ProcessQueue) -> None:
        if not len(queue):
            self._offsets.update(queue.queue, queue.next_offset)

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        self._assignment.outside(queue, next_offset, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        return self._consumption.is_busy(queue)

    # --- order

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        if self._locks is None:
            return True, now
        return (yield from self._locks.acquire(queue, now))

    def may_consume(self, queue: MessageQueue, now: int) -> bool:
        return self._locks is None or self._locks.is_valid(queue, now)

    def _resume(self, queue: MessageQueue, now: int) -> None:
        if isinstance(self._consumption, OrderlyConsumption) and self.may_consume(queue, now):
            self._consumption.resumed(queue, now)

    def released(self, queue: ProcessQueue, now: int) -> None:
        pass  # what its listener still works on ends by itself

    def unlock(self, queue: ProcessQueue, now: int) -> Flow[None]:
        if (
            self._locks is not None
            and queue.queue not in self._assignment.queues
            and not self._consumption.is_busy(queue)
        ):
            yield from self._locks.release([queue.queue], now)

    def left(self, queue: ProcessQueue, now: int) -> None:
        if self._locks is not None:
            self._assignment.ended_late(queue, now)

    def _start_time(self) -> int:
        return self.settings.start_time(self._started_at, self._utc_offset_ms)

    # --- consumption

    def consumed(self, task: ConsumeTask, result: object, now: int) -> None:
        """The application is done with a task; adapters call `ClientNode.consumed`."""
        if not self._direct.consumed(task, result, now):
            self._consumption.consumed(task, result, now)

    def moved(self, queue: ProcessQueue, now: int) -> None:
        self._make_room(queue, now)

    def deliver(self, task: ConsumeTask, now: int) -> None:
        if self._trace is not None:
            self._trace.consuming(task, now)
        self.node.actions.append(Deliver(task))

    def ended(self, task: ConsumeTask, result: object, succeeded: int, now: int) -> None:
        failed = len(task.messages) - succeeded
        if self._trace is not None:
            self._trace.consumed(
                task, outcome_code(result, succeeded, len(task.messages), overdue=task.overdue), succeeded, now
            )
        self._rate(task.process_queue.queue.topic).consumed(now, succeeded, failed, now - task.started_at)

    def idle(self, now: int) -> None:
        if self._idle is not None:
            self.node.wake(self._idle, now)

    def _rate(self, topic: str) -> TopicRates:
        rates = self._rates.get(topic)
        if rates is None:
            rates = self._rates[topic] = TopicRates()
        return rates

    # --- for the node and the brokers

    def heartbeat_data(self) -> ConsumerData:
        settings = self.settings
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            settings.message_model,
            settings.consume_from_where,
            list(self._subscriptions.values()),
            settings.unit_mode,
        )

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        self._assignment.reset(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic and offset >= 0}, now
        )

    def running_info(self, now: int) -> bytes:
        ahead = self.node.wall_ahead
        queues = {
            queue: queue_info(
                one, self._offsets.known(queue), None if self._locks is None else self._locks.locked_at(queue), ahead
            )
            for queue, one in self._assignment.queues.items()
        }
        facts = start_facts(self._started_at, self.node.name_servers.addresses)
        statuses = {topic: self._rate(topic).status(now) for topic in self._subscriptions}
        return running_info(self.settings, facts, self._subscriptions.values(), queues, statuses)

    def consume_directly(
        self, message: MessageExt, broker_name: str, reply: Callable[[bytes, int], None], now: int
    ) -> None:
        refusal = None if self.phase is Phase.RUNNING else f"consumer {self.group} is {self.phase.value}"
        self._direct.begin(message, broker_name, reply, refusal, now)
