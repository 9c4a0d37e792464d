"""The lite pull consumer: the application polls, the consumer pulls ahead and keeps the offsets
(docs/protocol/client.md 5.2).

Owns: who says which queues it has, polls, what a confirmation means, positions and what of them is stored.
Leaves to others: life, listeners, questions about offsets (active), which queues there are and where they begin
(assignment), the pull loop (pull) and when it waits (pull_gate), messages on their way to a poll (handout), watched
topics (watching).

What the offsets mean: a *position* is where a queue goes on behind everything that was handed out. A message that the
last poll handed out counts as being worked on until the next poll or commit; only then does it leave the process queue,
so the position, which is never behind an unfinished message, moves over it. With `auto_commit` the next poll also makes
the position the offset to be stored. A queue that moves to another member takes along the offset that was confirmed:
what was handed out since comes again there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from mqproto.errors import ClientError, StateError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster.offset_queries import max_offset, min_offset
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy
from mqproto.state.consumer.allocation.assignment import Assignment
from mqproto.state.consumer.base import Phase, check_subscription
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.offsets import OffsetFile
from mqproto.state.consumer.process_queue import ProcessQueue, Window
from mqproto.state.consumer.pull.base import PullConsumerBase, check_offset, pull_fields
from mqproto.state.consumer.pull.dead_letters import bury
from mqproto.state.consumer.pull.flow_control import FlowControl
from mqproto.state.consumer.pull.in_hand import Claim, MessagesInHand
from mqproto.state.consumer.pull.pull_consumer import QueueListener
from mqproto.state.consumer.pull.running_info import pull_running_info
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.state.consumer.pull.topic_watch import TopicListener, TopicWatch
from mqproto.state.consumer.pull_loop import Subscribed, pull_loop
from mqproto.state.consumer.running_info import queue_info, start_facts
from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Ticket
from mqproto.validation import check_topic
from mqproto.wire.filters.tags import TAG, parse_tags
from mqproto.wire.flags import COMPRESSED


class Mode(Enum):
    """Who says which queues the consumer has. The first call that needs one decides, for good."""

    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"


class LitePullConsumerCore(PullConsumerBase):
    """A lite pull consumer. Its `listener` is the adapter's: it comes back in every `ListenerCall`."""

    settings: LitePullSettings

    def __init__(
        self,
        node: ClientNode,
        settings: LitePullSettings,
        listener: Any,
        *,
        strategy: Strategy | None = None,
        offset_file: OffsetFile | None = None,
        offset_storage: OffsetStorage | None = None,
        utc_offset_ms: int = 0,
    ) -> None:
        """Raises InvalidName and InvalidSetting.

        BROADCASTING needs an `offset_file`; `utc_offset_ms` is local time minus UTC.
        """
        settings = replace(settings, group=node.namespace.wrap(settings.group))
        settings.check()
        super().__init__(node, settings, listener, offset_file, offset_storage)
        self.settings = settings
        self.mode: Mode | None = None
        self._utc_offset_ms = utc_offset_ms
        self._assignment = Assignment(settings, strategy or Averagely(), self._offsets, self, self._start_time)
        window = Window(
            settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue, settings.consume_max_span
        )
        if settings.enable_msg_trace:
            self._open_trace(settings.customized_trace_topic)
        self._in_hand = MessagesInHand(self._trace)
        self._gate = FlowControl(window, settings.pull_threshold_for_all, self._in_hand, node.wake)
        self._watch = TopicWatch(self)
        self._listeners: dict[str, QueueListener | None] = {}
        #: What the application has assigned, and the tags that it wants of assigned topics.
        self._wanted: tuple[MessageQueue, ...] = ()
        self._assigned_tags: dict[str, Subscribed] = {}
        #: Queues whose position has moved since it was last made the offset to store.
        self._moved: set[MessageQueue] = set()
        #: Settled when messages arrive or the consumer ends.
        self._arrived: Ticket[None] = Ticket()

    # --- what its parts ask of it

    @property
    def pull_interval_ms(self) -> int:
        return 0

    @property
    def pull_timeout_ms(self) -> int:
        return self.settings.consumer_timeout_millis_when_suspend

    @property
    def failure_pause_ms(self) -> int:
        return self.settings.pull_time_delay_millis_when_exception

    def _start_time(self) -> int:
        return self.settings.start_time(self._started_at, self._utc_offset_ms)

    # --- which queues

    def subscribe(self, topic: str, expression: str, kind: str, listener: QueueListener | None, now: int) -> None:
        """Have a share of a topic's queues, filtered by tags or another kind of expression (SQL92), before or after the
        start.

        `listener` is called when the share changes. Replaces what was said of the topic before. Raises InvalidName,
        InvalidExpressionError, and StateError at the end of life or when queues were assigned.
        """
        self._check_open()
        topic = self.namespace.wrap(topic)
        check_subscription(topic, expression, kind)
        self._decide(Mode.SUBSCRIBE)
        self._subscribe(topic, expression, kind, now)
        self._listeners[topic] = listener
        self._announce(now)

    def unsubscribe(self, topic: str, now: int) -> None:
        """Give up a topic: its share, or its assigned queues. An unknown one is no error."""
        topic = self.namespace.wrap(topic)
        self._listeners.pop(topic, None)
        if self.mode is Mode.ASSIGN:
            self._take_wanted([queue for queue in self._wanted if queue.topic != topic], now)
        else:
            self._unsubscribe(topic, now)

    def assign(self, queues: Iterable[MessageQueue], now: int) -> None:
        """Have these queues and no others, before or after the start; those that stay go on untouched.

        Raises InvalidName, and StateError at the end of life or when topics were subscribed.
        """
        self._check_open()
        wanted = self.namespace.wrap_queues(queues)
        for queue in wanted:
            check_topic(queue.topic)
        self._decide(Mode.ASSIGN)
        self._take_wanted(wanted, now)

    def _take_wanted(self, wanted: Iterable[MessageQueue], now: int) -> None:
        self._wanted = tuple(dict.fromkeys(wanted))
        if self.phase is Phase.RUNNING:
            self._assignment.assign(self._wanted, now)
            self.node.heartbeats.send(now)

    def filter_assigned(self, topic: str, expression: str) -> None:
        """Want only these tags of assigned queues of a topic.

        Before the start; raises InvalidExpressionError and StateError.
        """
        if self.phase is not Phase.CREATED:
            raise StateError(
                f"consumer {self.group} is {self.phase.value}: what assigned queues bring is said before the start"
            )
        tags = parse_tags(expression)
        self._assigned_tags[self.namespace.wrap(topic)] = Subscribed(tags.expression, TAG, 0, frozenset(tags.tags))

    def _decide(self, mode: Mode) -> None:
        if self.mode not in (None, mode):
            raise StateError(f"consumer {self.group} either subscribes topics or is assigned queues, not both")
        self.mode = mode

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that it has now, in queue order."""
        return self.namespace.unwrap_queues(sorted(self._assignment.queues, key=queue_order))

    def topics(self) -> Collection[str]:
        return list(
            dict.fromkeys([*self._subscriptions, *(queue.topic for queue in self._wanted), *self._watch.topics])
        )

    def watch(self, topic: str, listener: TopicListener) -> None:
        """Have `listener` called when the queues of a topic change. Raises InvalidName."""
        topic = self.namespace.wrap(topic)
        check_topic(topic)
        self._watch.add(topic, listener)

    # --- life

    def _begin_loops(self, now: int) -> None:
        settings = self.settings
        self._loops = [self.spawn(self._watch.loop(settings.topic_metadata_check_interval_millis, now), now)]
        interval_ms = (
            settings.auto_commit_interval_millis if settings.auto_commit else settings.persist_consumer_offset_interval
        )
        self._loops.append(self.spawn(self._persist_loop(self._assignment.refresh, interval_ms, now), now))
        if self.mode is Mode.ASSIGN:
            self._assignment.assign(self._wanted, now)
        self._loops.append(self.spawn(self._rebalance_loop(self._share_out, settings.rebalance_interval, now), now))

    def _persist(self, now: int) -> Flow[None]:
        return self._assignment.persist(now)

    def _leave(self, now: int) -> None:
        self.node.wake(self._arrived, now)

    def _end(self, now: int) -> None:
        self._assignment.close(now)
        self._in_hand.sweep()

    def _share_out(self, now: int) -> Flow[tuple[bool, int]]:
        """One round; queues that the application has assigned are not shared out."""
        if self.mode is Mode.ASSIGN:
            return True, now
        before = self._by_topic()
        _, now = yield from self._assignment.rebalance(list(self._subscriptions), now)
        after = self._by_topic()
        namespace = self.namespace
        for topic in sorted(after.keys() | before.keys()):
            if after.get(topic) != before.get(topic):
                every = namespace.unwrap_queues(self.routes.readable(topic) or ())
                self.call(
                    self._listeners.get(topic),
                    namespace.unwrap(topic),
                    every,
                    namespace.unwrap_queues(after.get(topic, ())),
                )
        return not self._assignment.incomplete, now

    def _by_topic(self) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in sorted(self._assignment.queues, key=queue_order):
            found.setdefault(queue.topic, []).append(queue)
        return found

    # --- polling

    def poll(self, claim: Claim, timeout_ms: int, limit: int | None, now: int) -> Flow[list[MessageExt]]:
        """The next messages, of one queue and in its order: at most `limit`, else as many as a pull brought.

        Waits for at most `timeout_ms`; empty when none came, or the consumer was closed meanwhile. What was handed out
        before counts as done from now on. Raises StateError unless it runs, ClientError for a time or number that makes
        no sense.
        """
        if timeout_ms < 0:
            raise ClientError(f"a poll that waits for {timeout_ms} ms makes no sense")
        messages = self.poll_now(claim, limit, now)
        deadline = now + timeout_ms
        while not messages and now < deadline and self.phase is Phase.RUNNING:
            if self._arrived.settled:
                self._arrived = Ticket()
            _, now = yield Wait(self._arrived, deadline)
            messages = self._hand_out(claim, limit, now)
        return messages

    def poll_now(self, claim: Claim, limit: int | None, now: int) -> list[MessageExt]:
        """As `poll`, without waiting: no flow for what is there."""
        self._check_running()
        if limit is not None and limit < 1:
            raise ClientError(f"a poll of {limit} messages makes no sense")
        self._confirm(now)
        return self._hand_out(claim, limit, now)

    def _hand_out(self, claim: Claim, limit: int | None, now: int) -> list[MessageExt]:
        crowded = self._gate.crowded
        batch = claim.batch = self._in_hand.take(limit, now)
        if batch is None:
            return []
        if crowded:
            self._gate.relieve(now)
        self.namespace.unwrap_messages(batch.messages)
        return batch.messages

    def put_back(self, claim: Claim, now: int) -> None:
        """The caller of a poll was interrupted and does not have what it claimed: it is polled again."""
        if claim.batch is not None:
            self._in_hand.put_back(claim.batch)
            self.node.wake(self._arrived, now)

    def _confirm(self, now: int) -> None:
        """What was handed out is done with; with `auto_commit` that is what will be stored."""
        for process_queue in self._in_hand.confirm(now):
            self._moved.add(process_queue.queue)
            self._gate.open(process_queue, now)
        if self.settings.auto_commit and self._moved:
            for queue in self._moved:
                position = self._position(queue)
                if position is not None:
                    self._offsets.update(queue, position, may_decrease=True)
            self._moved.clear()

    def _position(self, queue: MessageQueue) -> int | None:
        """Where a queue of ours goes on behind what was handed out and confirmed; None while that is not known."""
        process_queue = self._assignment.queues.get(queue)
        if process_queue is None or process_queue.dropped or not process_queue.started:
            return None
        return process_queue.commit_offset

    # --- offsets

    def commit(
        self, offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None, persist: bool, now: int
    ) -> None:
        """As `commit_sync`, but in memory, from where it is stored every few seconds; with `persist` it is sent at once
        as well, without an answer.
        """
        chosen = self._choose(offsets, now)
        if persist:
            self.spawn(self._offsets.persist(list(chosen), now), now)

    def commit_sync(self, offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None, now: int) -> Flow[None]:
        """Store offsets, and wait until they are stored: the given ones, or the positions of the given queues, or of
        all.

        A position is behind everything that was handed out. Raises StateError when a queue is not ours (nothing is
        changed then), ClientError for what is no offset, and the first failure of a broker, whatever the others said.
        """
        yield from self._commit_all(self._choose(offsets, now), now)

    def _choose(
        self, offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None, now: int
    ) -> dict[MessageQueue, int]:
        """The offsets that a commit means, put into memory."""
        self._check_running()
        chosen: dict[MessageQueue, int] = {}
        if isinstance(offsets, Mapping):
            for plain, offset in offsets.items():
                check_offset(plain, offset)
                chosen[self._ours(plain)] = offset
        else:
            queues = list(self._assignment.queues) if offsets is None else [self._ours(queue) for queue in offsets]
            self._confirm(now)
            for queue in queues:
                position = self._position(queue)
                if position is not None:
                    chosen[queue] = position
        for queue, offset in chosen.items():
            self._offsets.update(queue, offset, may_decrease=True)
        return dict(sorted(chosen.items(), key=lambda item: queue_order(item[0])))

    def _ours(self, queue: MessageQueue) -> MessageQueue:
        """The queue as it travels. Raises StateError when it is not ours."""
        wrapped = self.namespace.wrap_queue(queue)
        if wrapped not in self._assignment.queues:
            raise StateError(f"group {self.group}: {queue} is not assigned to this consumer")
        return wrapped

    def committed(self, queue: MessageQueue, now: int) -> Flow[int | None]:
        """The group's offset of any queue: the one in memory for a queue of ours, else the stored one; None when there
        is none.

        Raises MQError when that cannot be known now.
        """
        self._check_running()
        queue = self.namespace.wrap_queue(queue)
        known = self._offsets.known(queue)
        if known is not None:
            return known
        kept, _ = yield from self._offsets.fetch(queue, now)
        return kept

    def seek(self, queue: MessageQueue, offset: int, now: int) -> Flow[None]:
        """Go on at this offset with the next poll. What is cached is forgotten; what was handed out can be confirmed no
        more.

        Raises StateError when the queue is not ours, ClientError for an offset outside of it, other MQErrors when that
        cannot be known.
        """
        wrapped = yield from self._about_to_seek(queue)
        low, now = yield from min_offset(self.routes, wrapped, now)
        high, now = yield from max_offset(self.routes, wrapped, now)
        if not isinstance(offset, int) or not low <= offset <= high:
            raise ClientError(f"offset {offset!r} is not in {queue}, which has {low} to {high}")
        self._seek(wrapped, offset, now)

    def seek_to_begin(self, queue: MessageQueue, now: int) -> Flow[None]:
        """Go on at the oldest message that is still there. As `seek`."""
        wrapped = yield from self._about_to_seek(queue)
        offset, now = yield from min_offset(self.routes, wrapped, now)
        self._seek(wrapped, offset, now)

    def seek_to_end(self, queue: MessageQueue, now: int) -> Flow[None]:
        """Go on at the message that comes next. As `seek`."""
        wrapped = yield from self._about_to_seek(queue)
        offset, now = yield from max_offset(self.routes, wrapped, now)
        self._seek(wrapped, offset, now)

    def _about_to_seek(self, queue: MessageQueue) -> Flow[MessageQueue]:
        yield from ()  # a flow without effects
        self._check_running()
        return self._ours(queue)

    def _seek(self, queue: MessageQueue, offset: int, now: int) -> None:
        self._check_running()
        self._assignment.seek(queue, offset, now)
        self._in_hand.sweep()
        self._moved.add(queue)
        self._gate.relieve(now)

    # --- pulling

    def pull(self, queue: ProcessQueue, now: int) -> Flow[None]:
        return pull_loop(queue, self, now)

    def subscribed(self, topic: str) -> Subscribed | None:
        if self.mode is Mode.ASSIGN:
            return self._assigned_tags.get(topic, _ALL)
        return super().subscribed(topic)

    def pull_fields(self, queue: ProcessQueue, subscribed: Subscribed) -> dict[str, str]:
        settings, suspend_ms = self.settings, self.settings.broker_suspend_max_time_millis
        return pull_fields(
            self.group,
            queue.queue,
            queue.next_offset,
            settings.pull_batch_size,
            subscribed,
            suspend_ms=suspend_ms,
            hold=True,
            lite=True,
        )

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        return self._gate.hold(queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull from these queues no more. What is cached is still polled. Raises StateError when one is not ours."""
        self._gate.pause([self._ours(queue) for queue in queues])

    def resume(self, queues: Iterable[MessageQueue], now: int) -> None:
        """Pull from these queues again. Raises StateError when one is not ours."""
        for queue in [self._ours(queue) for queue in queues]:
            self._gate.resume(self._assignment.queues[queue], now)

    def arrived(self, queue: ProcessQueue, fresh: list[MessageExt], now: int) -> None:
        good = [message for message in fresh if not message.sys_flag & COMPRESSED]
        for message in fresh:
            if message.sys_flag & COMPRESSED:
                self.spawn(self._bury(queue, message, now), now)
        if good:
            self._in_hand.add(queue, good)
            self.node.wake(self._arrived, now)

    def _bury(self, queue: ProcessQueue, message: MessageExt, now: int) -> Flow[None]:
        yield from bury(queue, message, self, now)
        if not queue.dropped:
            queue.settle([message])
            self._moved.add(queue.queue)

    def caught_up(self, queue: ProcessQueue) -> None:
        """Whatever lies below the next offset was filtered away, or is cached: the position knows."""
        self._moved.add(queue.queue)

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        """The queue does not have the offset that was asked for.

        What is cached is still polled, unless the queue became shorter.
        """
        asked = queue.next_offset
        self.notice(f"group {self.group}: {queue.queue} has no offset {asked}, going on at {next_offset}")
        if next_offset > asked:
            queue.next_offset = next_offset
            self._moved.add(queue.queue)
            return
        target = min(queue.commit_offset, next_offset)
        known = self._offsets.known(queue.queue)
        if known is not None and known > target:
            self._offsets.update(queue.queue, target, may_decrease=True)
        queue.drop()
        self._in_hand.sweep()
        self.spawn(self._begin_again(queue, target, now), now)

    def _begin_again(self, queue: ProcessQueue, offset: int, now: int) -> Flow[None]:
        """After a pause, so that a broker that changes its mind is not asked in a tight loop."""
        _, now = yield Sleep(now + self.failure_pause_ms)
        if self._assignment.queues.get(queue.queue) is queue:
            self._assignment.seek(queue.queue, offset, now)

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Corrections need not wait for the application: what it has of a dropped queue changes nothing any more."""
        return False

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        yield from ()  # nothing has to be had before a queue is pulled
        return True, now

    def released(self, queue: ProcessQueue, now: int) -> None:
        self._gate.forget(queue)
        self._moved.discard(queue.queue)
        self._in_hand.sweep()
        self._gate.relieve(now)

    def unlock(self, queue: ProcessQueue, now: int) -> Flow[None]:
        yield from ()  # nothing was acquired

    # --- for the node and the brokers

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        self._assignment.reset(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic and offset >= 0}, now
        )
        self._in_hand.sweep()
        self._gate.relieve(now)

    def running_info(self, now: int) -> bytes:
        ahead = self.node.wall_ahead
        queues = {
            queue: queue_info(process_queue, self._offsets.known(queue), None, ahead)
            for queue, process_queue in self._assignment.queues.items()
        }
        facts = start_facts(self._started_at, self.node.name_servers.addresses)
        return pull_running_info(self.settings, facts, self._subscriptions.values(), queues)


_ALL: Final = Subscribed("*", TAG, 0)
