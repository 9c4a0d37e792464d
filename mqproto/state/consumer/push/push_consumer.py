"""Push consumer: messages of a group's queues go to a listener (docs/protocol/client.md 1.2, 4).

Owns: its loops, its end, the trace and the rates of what is consumed, and its parts: the prefetch (`prefetch`),
consumption (`concurrent`, `orderly`), the renewal of locks (`lock_renewal`), messages of operators
(`direct_consumption`).
Leaves to others: the start (`base`), links and flows (client node), calling the listener (adapter).

An adapter makes a core on a node, starts `start` as a flow of the node, calls the listener for every `ConsumeTask` that
a `Deliver` action brings, and answers by `ClientNode.consumed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster.offset_queries import offset_by_time
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy
from mqproto.state.consumer.base import ConsumerBase, consume_trace
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.life import Phase
from mqproto.state.consumer.loops import persist_loop
from mqproto.state.consumer.offsets import OFFSET_TIMEOUT_MS, OffsetFile
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConcurrentConsumption, ConsumeTask
from mqproto.state.consumer.push.direct_consumption import DirectConsumption
from mqproto.state.consumer.push.lock_renewal import LockRenewal
from mqproto.state.consumer.push.orderly import OrderlyConsumption
from mqproto.state.consumer.push.prefetch import PushPrefetch
from mqproto.state.consumer.push.queue_locks import HeldQueueLocks
from mqproto.state.consumer.running_info import ConsumeRates, queue_info, running_info, start_facts
from mqproto.state.consumer.send_back import send_message_back
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.consumer.subscriptions import check_subscription
from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.trace import outcome_code
from mqproto.wire.bodies import ConsumerData, ConsumeType
from mqproto.wire.filters.tags import TAG
from mqproto.wire.names import retry_topic


class PushConsumerCore(ConsumerBase):
    """Push consumer of one group. Its `listener` is the adapter's: it comes back in every `ConsumeTask`."""

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
        self._locks = HeldQueueLocks(self._node) if settings.orderly and not self.broadcasts else None
        self._prefetch = PushPrefetch(
            settings,
            self._offsets,
            strategy or Averagely(),
            self._start_time,
            self._subscriptions,
            self._locks,
            self._node,
            self,
        )
        self._assignment = self._prefetch.assignment
        self._consumption: ConcurrentConsumption | OrderlyConsumption
        #: Of a consumer whose queues need locks.
        self._renewal: LockRenewal | None = None
        if settings.orderly:
            ordered = OrderlyConsumption(settings, listener, self._offsets, self._node, self._prefetch, self)
            self._consumption = ordered
            if self._locks is not None:
                self._renewal = LockRenewal(self._locks, self._assignment, ordered, self._node)
        else:
            self._consumption = ConcurrentConsumption(
                settings, listener, self._offsets, self._node, self._prefetch, self
            )
        self._direct = DirectConsumption(settings, listener, node.namespace, self._deliver_directly)
        self._rates = ConsumeRates()
        if settings.enable_msg_trace:
            self._trace = consume_trace(node, settings.group, settings.customized_trace_topic)
        #: Settled when the last delivery has ended, while somebody waits for that.
        self._idle: Ticket[None] | None = None

    def _start_time(self) -> int:
        return self.settings.start_time(self._started_at, self._utc_offset_ms)

    # --- subscriptions

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG, *, now: int) -> None:
        """Consume a topic, filtered by tags or by another kind of expression (SQL92), before or after the start.

        Replaces a subscription of the same topic. Raises InvalidName, InvalidExpressionError, StateError.
        """
        self.life.check_open()
        topic = self.namespace.wrap(topic)
        check_subscription(topic, expression, kind)
        self._subscriptions.add(topic, expression, kind, self._node.wall(now))
        self._announce(now)

    def unsubscribe(self, topic: str, *, now: int) -> None:
        """Stop consuming a topic; its queues are given up at once. An unknown topic is no error."""
        if self._subscriptions.remove(self.namespace.wrap(topic)):
            self._announce(now)

    # --- life

    def _own_topics(self) -> Iterable[str]:
        return () if self.broadcasts else (retry_topic(self.group),)

    def _begin_loops(self, now: int) -> None:
        settings, spawn = self.settings, self.node.spawn
        interval_ms = settings.persist_consumer_offset_interval
        self._loops = [
            spawn(self._rebalance_loop.run(self._prefetch.rebalance, settings.rebalance_interval, now), now),
            spawn(persist_loop(self._assignment.refresh, interval_ms, now), now),
            spawn(self._sweep_loop(now), now),
        ]
        if self._renewal is not None:
            self._loops.append(spawn(self._renewal.loop(now), now))

    def _sweep_loop(self, now: int) -> Flow[None]:
        """Send back what the listener works on for too long."""
        while isinstance(self._consumption, ConcurrentConsumption):
            _, now = yield Sleep(now + self.settings.consume_timeout * 60_000)
            self._consumption.sweep(now)

    def shutdown(self, now: int) -> Flow[None]:
        """The end: running deliveries are waited for as the settings say, offsets stored, the group unregistered.

        Twice is harmless.
        """
        if self.life.ending:
            yield Wait(self._stopped)
            return
        registered = self.phase is not Phase.CREATED
        self.life.phase = Phase.STOPPING
        self._consumption.deliveries.stopped = True
        for loop in self._loops:
            self.node.cancel(loop, now)
        patience_ms = self.settings.await_termination_millis_when_shutdown
        if patience_ms and self._consumption.deliveries.running:
            self._idle = Ticket()
            _, now = yield Wait(self._idle, now + patience_ms)
        if registered:
            if self._renewal is None:
                stored = self.node.spawn(self._assignment.persist(now), now)
                _, now = yield Wait(stored, now + OFFSET_TIMEOUT_MS)
            else:
                now = yield from self._renewal.hand_over(now)
            self._assignment.close(now)
            yield from self.node.remove_consumer(self, now)
        yield from self._close_trace(now)
        self.life.phase = Phase.STOPPED
        self.node.wake(self._stopped, now)

    # --- what the application asks

    def suspend(self, now: int) -> None:
        """Stop pulls and rebalancing; what is cached is still delivered."""
        self._prefetch.suspend()

    def resume(self, now: int) -> None:
        """Pull again, and rebalance at once."""
        self._prefetch.resume(now)
        self._rebalance_loop.soon(now)

    def update_core_pool_size(self, count: int, now: int) -> None:
        """Let so many deliveries be with the application at once, 1 to 1,000, instead of `consume_thread_min`.

        Raises InvalidSetting.
        """
        self.settings.resize(count)
        self._consumption.resize(count, now)

    def reset_to_time(self, topic: str, wall: int, now: int) -> Flow[None]:
        """Move our queues of a topic to their first messages stored at or after a wall time, as operators do.

        Queues of other members stay where they are. Raises StateError unless it runs, and MQErrors of brokers that
        cannot say where that is; nothing has moved then.
        """
        self.life.check_running()
        found: dict[MessageQueue, int] = {}
        for queue in sorted((one for one in self._assignment.queues if one.topic == topic), key=queue_order):
            found[queue], now = yield from offset_by_time(self.node.routes, queue, wall, now)
        self.reset_offsets(topic, found, now)

    def send_message_back(self, message: MessageExt, delay_level: int, broker_name: str | None, now: int) -> Flow[None]:
        """See `send_message_back`. Raises StateError unless the consumer runs."""
        self.life.check_running()
        limit = self.settings.reconsume_limit
        yield from send_message_back(message, delay_level, broker_name, self.group, limit, self._node, now)

    # --- for the prefetch: see `PushPrefetchHost`

    def submit(self, queue: ProcessQueue, messages: list[MessageExt], now: int) -> None:
        self._rates.of(queue.queue.topic).pulled(now, len(messages), now - queue.last_pull_at)
        self._consumption.submit(queue, messages, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        return self._consumption.is_busy(queue)

    def is_delivering(self, queue: ProcessQueue) -> bool:
        return self._consumption.is_busy(queue)

    def released(self, queue: ProcessQueue, now: int) -> None:
        pass  # what its listener still works on ends by itself

    # --- for consumption: see `ConsumptionHost`

    def deliver(self, task: ConsumeTask, now: int) -> None:
        if self._trace is not None:
            self._trace.consuming(task, now)
        self.node.actions.append(Deliver(task))

    def _deliver_directly(self, task: ConsumeTask) -> None:
        """Hand a message of an operator's to the application."""
        self.node.actions.append(Deliver(task))

    def ended(self, task: ConsumeTask, result: object, succeeded: int, now: int) -> None:
        failed = len(task.messages) - succeeded
        if self._trace is not None:
            self._trace.consumed(
                task, outcome_code(result, succeeded, len(task.messages), overdue=task.overdue), succeeded, now
            )
        self._rates.of(task.process_queue.queue.topic).consumed(now, succeeded, failed, now - task.started_at)

    def idle(self, now: int) -> None:
        if self._idle is not None:
            self.node.wake(self._idle, now)

    # --- for the node and the brokers

    def consumed(self, task: ConsumeTask, result: object, now: int) -> None:
        """The application is done with a task; adapters call `ClientNode.consumed`."""
        if not self._direct.consumed(task, result, now):
            self._consumption.consumed(task, result, now)

    def heartbeat_data(self) -> ConsumerData:
        settings = self.settings
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            settings.message_model,
            settings.consume_from_where,
            list(self._subscriptions.by_topic.values()),
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
        subscriptions = self._subscriptions.by_topic
        statuses = {topic: self._rates.of(topic).status(now) for topic in subscriptions}
        return running_info(self.settings, facts, subscriptions.values(), queues, statuses)

    def consume_directly(
        self, message: MessageExt, broker_name: str, reply: Callable[[bytes, int], None], now: int
    ) -> None:
        refusal = None if self.phase is Phase.RUNNING else f"consumer {self.group} is {self.phase.value}"
        self._direct.begin(message, broker_name, reply, refusal, now)
