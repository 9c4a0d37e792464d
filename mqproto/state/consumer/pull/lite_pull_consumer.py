"""Lite pull consumer (docs/protocol/client.md 5.2): the application polls, the consumer pulls ahead and keeps the
offsets.

Owns: its loops, and its parts, which its public methods call: the selection of queues (`queue_selection`), the
prefetch (`prefetch`), positions with commits and seeks (`positions`), polls (`polls`), watched topics (`topic_watch`).
Leaves to others: the start and the end (`base`), calls of listeners (adapter).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mqproto.errors import StateError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy
from mqproto.state.consumer.base import consume_trace
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.life import Phase
from mqproto.state.consumer.loops import persist_loop
from mqproto.state.consumer.offsets import OffsetFile
from mqproto.state.consumer.pull.base import PullConsumerBase, QueueListener
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.polls import Polls
from mqproto.state.consumer.pull.positions import Offsets, Positions, Seeks
from mqproto.state.consumer.pull.prefetch import Prefetch
from mqproto.state.consumer.pull.queue_selection import Mode, QueueSelection
from mqproto.state.consumer.pull.running_info import pull_running_info
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.state.consumer.pull.topic_watch import TopicListener, TopicWatch
from mqproto.state.consumer.running_info import queue_info, start_facts
from mqproto.state.consumer.subscriptions import check_subscription
from mqproto.state.flows.effects import Flow
from mqproto.validation import check_topic


class LitePullConsumerCore(PullConsumerBase):
    """Lite pull consumer of one group. Its `listener` is the adapter's: it comes back in every `ListenerCall`."""

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
        self._utc_offset_ms = utc_offset_ms
        if settings.enable_msg_trace:
            self._trace = consume_trace(node, settings.group, settings.customized_trace_topic)
        self._selection = QueueSelection(self._subscriptions, self._node, self._call)
        self._prefetch = Prefetch(
            settings,
            self._offsets,
            strategy or Averagely(),
            self._start_time,
            self._selection.subscribed,
            self._trace,
            self._node,
        )
        self._assignment = self._prefetch.assignment
        self._positions = Positions(settings, self._offsets, self._prefetch, self.life, self._node)
        self._seeks = Seeks(self._prefetch, self.life, self._node)
        self._polls = Polls(self._prefetch, self._positions, self.life, node.namespace)
        self._watch = TopicWatch(self._node, self._call)

    def _start_time(self) -> int:
        return self.settings.start_time(self._started_at, self._utc_offset_ms)

    # --- which queues

    def subscribe(self, topic: str, expression: str, kind: str, listener: QueueListener | None, now: int) -> None:
        """Have a share of a topic's queues, filtered by tags or SQL92, before or after the start.

        `listener` is called when the share changes. Replaces what was said of the topic before. Raises InvalidName,
        InvalidExpressionError, and StateError at the end of life or when queues were assigned.
        """
        self.life.check_open()
        topic = self.namespace.wrap(topic)
        check_subscription(topic, expression, kind)
        self._selection.subscribe(topic, expression, kind, listener, self._node.wall(now))
        self._announce(now)

    def unsubscribe(self, topic: str, now: int) -> None:
        """Give up a topic: its share, or its assigned queues. An unknown one is no error."""
        changed = self._selection.unsubscribe(self.namespace.wrap(topic))
        if self._selection.mode is Mode.ASSIGN:
            self._take_assigned(now)
        elif changed:
            self._announce(now)

    def assign(self, queues: Iterable[MessageQueue], now: int) -> None:
        """Have these queues and no others, before or after the start; those that stay go on untouched.

        Raises InvalidName, and StateError at the end of life or when topics were subscribed.
        """
        self.life.check_open()
        assigned = self.namespace.wrap_queues(queues)
        for queue in assigned:
            check_topic(queue.topic)
        self._selection.assign(assigned)
        self._take_assigned(now)

    def _take_assigned(self, now: int) -> None:
        if self.phase is Phase.RUNNING:
            self._assignment.assign(self._selection.assigned, now)
            self.node.heartbeats.send(now)

    def filter_assigned(self, topic: str, expression: str) -> None:
        """Want only these tags of assigned queues of a topic.

        Before the start; raises InvalidExpressionError and StateError.
        """
        if self.phase is not Phase.CREATED:
            raise StateError(
                f"consumer {self.group} is {self.phase.value}: what assigned queues bring is said before the start"
            )
        self._selection.filter_assigned(self.namespace.wrap(topic), expression)

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that it has now, in queue order."""
        return self.namespace.unwrap_queues(sorted(self._assignment.queues, key=queue_order))

    def topics(self) -> Collection[str]:
        return list(dict.fromkeys([*self._selection.topics(), *self._watch.topics]))

    def watch(self, topic: str, listener: TopicListener) -> None:
        """Have `listener` called when the queues of a topic change. Raises InvalidName."""
        topic = self.namespace.wrap(topic)
        check_topic(topic)
        self._watch.add(topic, listener)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull from these queues no more. What is cached is still polled. Raises StateError when one is not ours."""
        self._prefetch.pause(queues)

    def resume(self, queues: Iterable[MessageQueue], now: int) -> None:
        """Pull from these queues again. Raises StateError when one is not ours."""
        self._prefetch.resume(queues, now)

    # --- life

    def _begin_loops(self, now: int) -> None:
        settings, spawn = self.settings, self.node.spawn
        self._loops = [spawn(self._watch.loop(settings.topic_metadata_check_interval_millis, now), now)]
        interval_ms = (
            settings.auto_commit_interval_millis if settings.auto_commit else settings.persist_consumer_offset_interval
        )
        self._loops.append(spawn(persist_loop(self._assignment.refresh, interval_ms, now), now))
        if self._selection.mode is Mode.ASSIGN:
            self._assignment.assign(self._selection.assigned, now)
        self._loops.append(spawn(self._rebalance_loop.run(self._rebalance, settings.rebalance_interval, now), now))

    def _rebalance(self, now: int) -> Flow[tuple[bool, int]]:
        return self._selection.rebalance(self._assignment, now)

    def _persist(self, now: int) -> Flow[None]:
        return self._assignment.persist(now)

    def _leave(self, now: int) -> None:
        self._prefetch.wake_polls(now)

    def _end(self, now: int) -> None:
        self._prefetch.close(now)

    # --- polls

    def poll(self, claim: Claim, timeout_ms: int, limit: int | None, now: int) -> Flow[list[MessageExt]]:
        """The next messages, of one queue and in its order: at most `limit`, else as many as a pull brought.

        Waits for at most `timeout_ms`; empty when none came, or the consumer was closed meanwhile. What was polled
        before counts as done from now on. Raises StateError unless it runs, ClientError for a senseless time or number.
        """
        return self._polls.poll(claim, timeout_ms, limit, now)

    def poll_now(self, claim: Claim, limit: int | None, now: int) -> list[MessageExt]:
        """As `poll`, without waiting: no flow for what is there."""
        return self._polls.poll_now(claim, limit, now)

    def put_back(self, claim: Claim, now: int) -> None:
        """The caller of a poll was interrupted and does not have what it claimed: it is polled again."""
        self._polls.put_back(claim, now)

    # --- offsets

    def commit(self, offsets: Offsets, persist: bool, now: int) -> None:
        """As `commit_sync`, but in memory, from where it is stored every few seconds; with `persist` it is sent at once
        as well, without an answer.
        """
        self._positions.commit(offsets, persist, now)

    def commit_sync(self, offsets: Offsets, now: int) -> Flow[None]:
        """Store the given offsets, or the positions of the given queues, or of all, and wait until they are stored.

        A position is behind everything that was polled. Raises StateError when a queue is not ours (nothing is
        changed then), ClientError for what is no offset, and the first failure of a broker, whatever the others said.
        """
        return self._positions.commit_sync(offsets, now)

    def committed(self, queue: MessageQueue, now: int) -> Flow[int | None]:
        """The group's offset of any queue: of our queues the one in memory, else the stored one; None without one.

        Raises MQError when that cannot be known now.
        """
        return self._positions.committed(queue, now)

    def seek(self, queue: MessageQueue, offset: int, now: int) -> Flow[None]:
        """Go on at this offset with the next poll. What is cached is forgotten, what was polled cannot be confirmed.

        Raises StateError when the queue is not ours, ClientError for an offset outside of it, other MQErrors when that
        cannot be known.
        """
        return self._seeks.to_offset(queue, offset, now)

    def seek_to_begin(self, queue: MessageQueue, now: int) -> Flow[None]:
        """Go on at the oldest message that is still there. As `seek`."""
        return self._seeks.to_begin(queue, now)

    def seek_to_end(self, queue: MessageQueue, now: int) -> Flow[None]:
        """Go on at the message that comes next. As `seek`."""
        return self._seeks.to_end(queue, now)

    # --- for the node and the brokers

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        self._prefetch.reset(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic and offset >= 0}, now
        )

    def running_info(self, now: int) -> bytes:
        ahead = self.node.wall_ahead
        queues = {
            queue: queue_info(process_queue, self._offsets.known(queue), None, ahead)
            for queue, process_queue in self._assignment.queues.items()
        }
        facts = start_facts(self._started_at, self.node.name_servers.addresses)
        return pull_running_info(self.settings, facts, self._subscriptions.by_topic.values(), queues)
