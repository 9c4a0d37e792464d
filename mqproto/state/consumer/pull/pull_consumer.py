"""Pull consumer (docs/protocol/client.md 5.1): the application pulls messages of a queue from an offset, and keeps its
offsets itself.

Owns: single pulls, the offsets that the application sets, the queues that are this member's.
Leaves to others: life and calls of listeners (`base`), queries about offsets (`queue_queries`), the reading of answers
(`pull_loop`), who gets which queue (`allocation`).

Queues are allocated for the topics that the application has registered, and for those that it has pulled from; a share
is only advice, any queue can be pulled at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from mqproto.codec import Command
from mqproto.errors import ClientError
from mqproto.message import MessageExt, MessageQueue, PullResult, PullStatus
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster.brokers import find_reader
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy
from mqproto.state.consumer.allocation.members import MemberAllocation
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.loops import persist_loop
from mqproto.state.consumer.offsets import OffsetFile
from mqproto.state.consumer.pull.base import PullConsumerBase, QueueListener
from mqproto.state.consumer.pull.pull_request import check_offset, pull_fields
from mqproto.state.consumer.pull.running_info import pull_running_info
from mqproto.state.consumer.pull.settings import PullConsumerSettings
from mqproto.state.consumer.pull_loop import Subscribed, read_answer
from mqproto.state.consumer.running_info import start_facts
from mqproto.state.consumer.send_back import send_message_back
from mqproto.state.consumer.subscriptions import subscription_data
from mqproto.state.flows.effects import Call, Flow, answer, current
from mqproto.validation import check_topic
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.filters.tags import TAG
from mqproto.wire.flags import COMPRESSED
from mqproto.wire.headers import PullMessageResponse
from mqproto.wire.record import decode_records

#: Messages of one pull unless the application says otherwise.
PULL_MAX_NUMS: Final = 32
#: Queues whose offsets the application may have set, or that were found at a slave; more are a slip.
QUEUES_MAX: Final = 65_536

_STATUS: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class PullConsumerCore(PullConsumerBase):
    """Pull consumer of one group. Its `listener` is the adapter's: it comes back in every `ListenerCall`."""

    settings: PullConsumerSettings

    def __init__(
        self,
        node: ClientNode,
        settings: PullConsumerSettings,
        listener: Any,
        *,
        strategy: Strategy | None = None,
        offset_file: OffsetFile | None = None,
        offset_storage: OffsetStorage | None = None,
    ) -> None:
        """Raises InvalidName and InvalidSetting. BROADCASTING needs an `offset_file`."""
        settings = replace(settings, group=node.namespace.wrap(settings.group))
        settings.check()
        super().__init__(node, settings, listener, offset_file, offset_storage)
        self.settings = settings
        self._allocation = MemberAllocation(self.group, self.broadcasts, strategy or Averagely(), self._node)
        self._listeners: dict[str, QueueListener | None] = {}
        #: Topics that were pulled from: allocated like the registered ones, but no heartbeat names them.
        self._pulled: set[str] = set()
        #: Our share of each topic.
        self._own: dict[str, frozenset[MessageQueue]] = {}
        #: Queues whose offset was set and is not stored yet.
        self._unsaved: set[MessageQueue] = set()
        #: Where the last answer said that a queue is better read, if that is a slave.
        self._slaves: dict[MessageQueue, int] = {}

    # --- life

    def _begin_loops(self, now: int) -> None:
        settings = self.settings
        self._loops = [
            self.node.spawn(self._rebalance_loop.run(self._rebalance, settings.rebalance_interval, now), now),
            self.node.spawn(persist_loop(self._refresh, settings.persist_consumer_offset_interval, now), now),
        ]

    def _end(self, now: int) -> None:
        self._own.clear()

    def register(self, topic: str, listener: QueueListener | None, now: int) -> None:
        """Take a share of a topic's queues, before or after the start; `listener` is called when the share changes.

        Raises InvalidName.
        """
        topic = self.namespace.wrap(topic)
        check_topic(topic)
        if topic not in self._subscriptions.by_topic:
            self._subscriptions.add(topic, "*", TAG, self._node.wall(now)).version = 0
        self._listeners[topic] = listener
        self.node.heartbeats.send(now)
        self._rebalance_loop.soon(now)

    def topics(self) -> Collection[str]:
        return sorted(self._subscriptions.by_topic.keys() | self._pulled)

    # --- pulling

    def pull(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int,
        kind: str,
        block: bool,
        timeout_ms: int | None,
        now: int,
    ) -> Flow[PullResult]:
        """One pull. With `block` the broker may hold it at the end of the queue (`broker_suspend_max_time_millis`).

        Given a `timeout_ms` (else it is as in the settings), a broker holds it for at most two thirds of that, so that
        its answer comes in time. Raises ClientError and InvalidExpressionError for arguments that make no sense,
        StateError unless it runs, NoRoute, BrokerError, and RecordError when the first message found cannot be read:
        its `queue_offset` says which one to step over.
        """
        self.life.check_running()
        queue = self.namespace.wrap_queue(queue)
        check_offset(queue, offset)
        if max_nums <= 0:
            raise ClientError(f"max_nums must be at least 1, not {max_nums}")
        data = subscription_data(queue.topic, expression, kind, self._node.wall(now))
        subscribed = Subscribed(data.expression, kind, data.version, frozenset(data.tags))
        fields, limit_ms = self._pull_header(queue, subscribed, offset, max_nums, block, timeout_ms)
        # What a slave does not answer is pulled from the master the next time.
        address, _, now = yield from find_reader(self.node.routes, queue, self._slaves.pop(queue, 0), now)
        self._pulled.add(queue.topic)
        outcome, now = yield Call(address, RequestCode.PULL_MESSAGE, fields, deadline=now + limit_ms)
        return self._result(answer(outcome), queue, subscribed, address)

    def _pull_header(
        self,
        queue: MessageQueue,
        subscribed: Subscribed,
        offset: int,
        max_nums: int,
        block: bool,
        timeout_ms: int | None,
    ) -> tuple[dict[str, str], int]:
        """The extFields, and how long the answer is waited for."""
        settings = self.settings
        suspend_ms = settings.broker_suspend_max_time_millis
        if timeout_ms is None:
            timeout_ms = (
                settings.consumer_timeout_millis_when_suspend if block else settings.consumer_pull_timeout_millis
            )
        elif block:
            suspend_ms = min(suspend_ms, timeout_ms * 2 // 3)
        fields = pull_fields(
            self.group, queue, offset, max_nums, subscribed, suspend_ms=suspend_ms, hold=block, lite=False
        )
        return fields, timeout_ms

    def _result(self, command: Command, queue: MessageQueue, subscribed: Subscribed, address: str) -> PullResult:
        pulled = read_answer(command, queue, subscribed.tags, address)
        header = PullMessageResponse.decode(command.fields)
        if pulled.broker_id and len(self._slaves) < QUEUES_MAX:
            self._slaves[queue] = pulled.broker_id
        messages = pulled.messages or []
        if messages and messages[0].sys_flag & COMPRESSED:
            decode_records(command.body, queue.broker_name)  # says why it cannot be read
        self.namespace.unwrap_messages(messages)
        return PullResult(
            _STATUS[command.code], pulled.next_offset, header.min_offset, header.max_offset, tuple(messages)
        )

    # --- offsets

    def update_consume_offset(self, queue: MessageQueue, offset: int, now: int) -> None:
        """Set the group's offset of a queue in memory; it may go down. It is stored every few seconds and at the end.

        Raises StateError unless it runs, ClientError for what is no offset.
        """
        self.life.check_running()
        queue = self.namespace.wrap_queue(queue)
        check_offset(queue, offset)
        if queue not in self._unsaved and len(self._unsaved) >= QUEUES_MAX:
            raise ClientError(f"offsets of {QUEUES_MAX} queues wait to be stored")
        self._offsets.update(queue, offset, may_decrease=True)
        self._unsaved.add(queue)

    def commit(self, queue: MessageQueue, offset: int, oneway: bool, now: int) -> Flow[None]:
        """Store an offset now: with an answer, whose failure is raised, or `oneway`.

        The offset in memory becomes this one too.
        """
        self.update_consume_offset(queue, offset, now)
        queue = self.namespace.wrap_queue(queue)
        if oneway:
            self._unsaved.discard(queue)
            yield from self._offsets.persist([queue], now)
            return
        failure, now = yield from self._offsets.commit(queue, offset, now)
        if failure is not None:
            raise failure
        if self._offsets.known(queue) == offset:
            self._unsaved.discard(queue)

    def fetch_consume_offset(self, queue: MessageQueue, from_store: bool, now: int) -> Flow[int | None]:
        """The group's offset: the one in memory, else (or with `from_store` always) the stored one; None without one.

        Raises MQError when that cannot be known now.
        """
        self.life.check_running()
        queue = self.namespace.wrap_queue(queue)
        known = self._offsets.known(queue)
        if known is not None and not from_store:
            return known
        kept, _ = yield from self._offsets.fetch(queue, now)
        return kept

    def _persist(self, now: int) -> Flow[None]:
        return self._store(self._offsets.persist, now)

    def _refresh(self, now: int) -> Flow[None]:
        return self._store(self._offsets.refresh, now)

    def _store(self, store: Callable[[list[MessageQueue], int], Flow[None]], now: int) -> Flow[None]:
        """Own queues every time, others only when the application has set them since: they may be somebody else's
        affair by now.
        """
        own = [queue for share in self._own.values() for queue in share]
        yield from store(own, now)
        self._unsaved.difference_update(own)
        for queue in sorted(self._unsaved, key=queue_order):
            offset = self._offsets.known(queue)
            now = yield from current(now)
            failure, now = (None, now) if offset is None else (yield from self._offsets.commit(queue, offset, now))
            if failure is None and self._offsets.known(queue) == offset:
                self._unsaved.discard(queue)

    # --- rebalancing

    def queues_in_balance(self, topic: str) -> tuple[MessageQueue, ...]:
        """Our share of a topic, in queue order; empty while it is not known."""
        share = self._own.get(self.namespace.wrap(topic), frozenset())
        return self.namespace.unwrap_queues(sorted(share, key=queue_order))

    def _rebalance(self, now: int) -> Flow[tuple[bool, int]]:
        """One round; a topic whose facts cannot be had keeps its queues."""
        complete = True
        for topic in self.topics():
            share, now = yield from self._allocation.share(topic, now)
            if share is None:
                complete = complete and topic not in self._subscriptions.by_topic
            else:
                self._take_share(topic, frozenset(share), now)
        return complete, now

    def _take_share(self, topic: str, share: frozenset[MessageQueue], now: int) -> None:
        before = self._own.get(topic, frozenset())
        if share == before:
            return
        self._own[topic] = share
        for queue in sorted(before - share, key=queue_order):
            offset = self._offsets.known(queue)
            self._offsets.forget(queue)
            if offset is not None:
                self.node.spawn(self._offsets.keep(queue, offset, now), now)
        namespace = self.namespace
        every = namespace.unwrap_queues(self.node.routes.readable(topic) or ())
        own = namespace.unwrap_queues(sorted(share, key=queue_order))
        self._call(self._listeners.get(topic), namespace.unwrap(topic), every, own)

    def send_message_back(
        self, message: MessageExt, delay_level: int, broker_name: str | None, consumer_group: str | None, now: int
    ) -> Flow[None]:
        """See `send_message_back`: to this group or another. Raises StateError unless the consumer runs."""
        self.life.check_running()
        group = self.group if consumer_group is None else self.namespace.wrap(consumer_group)
        limit = self.settings.max_reconsume_times
        yield from send_message_back(message, delay_level, broker_name, group, limit, self._node, now)

    # --- for the node and the brokers

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        if topic in self._subscriptions.by_topic or topic in self._pulled:
            self._rebalance_loop.soon(now)

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        """The offsets of our own queues; where the application pulls is its own affair."""
        for queue, offset in offsets.items():
            if queue.topic == topic and offset >= 0 and queue in self._own.get(topic, ()):
                self._offsets.update(queue, offset, may_decrease=True)

    def running_info(self, now: int) -> bytes:
        facts = start_facts(self._started_at, self.node.name_servers.addresses)
        return pull_running_info(self.settings, facts, self._subscriptions.by_topic.values(), {})
