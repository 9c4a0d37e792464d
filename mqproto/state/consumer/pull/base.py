"""What consumers that are asked for messages have in common: the pull consumer and the lite pull consumer
(docs/protocol/client.md 5).

Owns: the end of their life, calls of listeners for queues, what the application may ask about queues and offsets.
Leaves to others: which messages go to the application, and when their offsets move (pull_consumer, lite_pull).

User code runs outside the node: a listener's call goes out as a `ListenerCall` by a `Deliver` action, and no answer is
expected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mqproto.errors import ClientError, NoRoute
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster import offset_queries
from mqproto.state.cluster.brokers import REFRESH_TIMEOUT_MS
from mqproto.state.consumer.base import ConsumerBase, Phase
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.offsets import OFFSET_TIMEOUT_MS, OffsetFile
from mqproto.state.consumer.pull.settings import PullingSettings
from mqproto.state.consumer.pull_loop import Subscribed
from mqproto.state.flows.effects import Flow, Refresh, Wait
from mqproto.state.node.contract import Deliver
from mqproto.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    DirectConsumeResult,
    SubscriptionData,
)
from mqproto.wire.filters.tags import TAG
from mqproto.wire.flags import pull_flag
from mqproto.wire.headers import PullMessageRequest


@dataclass(slots=True, eq=False)
class ListenerCall:
    """Call `function(*arguments)` for the client that `listener` stands for.

    Whatever it returns or raises changes nothing here.
    """

    group: str
    listener: Any
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class PullConsumerBase(ConsumerBase, ABC):
    """One group of one client node. `listener` is the adapter's: it comes back in every `ListenerCall`."""

    settings: PullingSettings

    def __init__(
        self,
        node: ClientNode,
        settings: PullingSettings,
        listener: Any,
        offset_file: OffsetFile | None,
        offset_storage: OffsetStorage | None,
    ) -> None:
        """`settings` are checked, with the group as it travels. Else as `ConsumerBase`."""
        super().__init__(node, settings.group, settings.message_model, offset_file, offset_storage)
        self.listener = listener

    # --- what a kind decides

    @abstractmethod
    def _persist(self, now: int) -> Flow[None]:
        """Store the offsets that are known."""

    @abstractmethod
    def _end(self, now: int) -> None:
        """The consumer is over: forget queues and messages."""

    # --- life

    def shutdown(self, now: int) -> Flow[None]:
        """The end: offsets stored, the group unregistered. Twice is harmless."""
        if self.phase in (Phase.STOPPING, Phase.STOPPED):
            yield Wait(self._stopped)
            return
        registered = self.phase is not Phase.CREATED
        self.phase = Phase.STOPPING
        for loop in self._loops:
            self.cancel(loop, now)
        self._leave(now)
        if registered:
            stored = self.spawn(self._persist(now), now)
            _, now = yield Wait(stored, now + OFFSET_TIMEOUT_MS)
            yield from self.node.remove_consumer(self, now)
        self._end(now)
        yield from self._close_trace(now)
        self.phase = Phase.STOPPED
        self.node.wake(self._stopped, now)

    def _leave(self, now: int) -> None:
        """The consumer begins to end: let go whoever waits for it."""

    def call(self, function: Callable[..., Any] | None, *arguments: Any) -> None:
        """Have the adapter call a listener."""
        if function is not None:
            self.act(Deliver(ListenerCall(self.group, self.listener, function, arguments)))

    # --- what the application asks. Queues and topics are the application's; times are wall milliseconds.

    def fetch_queues(self, topic: str, now: int) -> Flow[tuple[MessageQueue, ...]]:
        """The readable queues of a topic, asked of a name server now, in queue order.

        Raises NoRoute and other MQErrors.
        """
        queues, _ = yield from self._fetch_queues(self.namespace.wrap(topic), now)
        return self.namespace.unwrap_queues(queues)

    def _fetch_queues(self, topic: str, now: int) -> Flow[tuple[tuple[MessageQueue, ...], int]]:
        failure, now = yield Refresh(topic, now + REFRESH_TIMEOUT_MS)
        if failure is not None:
            raise failure
        queues = self.routes.readable(topic)
        if not queues:
            raise NoRoute(topic)
        return queues, now

    def max_offset(self, queue: MessageQueue, now: int) -> Flow[int]:
        """The offset that the next message of the queue will get."""
        offset, _ = yield from offset_queries.max_offset(self.routes, self.namespace.wrap_queue(queue), now)
        return offset

    def min_offset(self, queue: MessageQueue, now: int) -> Flow[int]:
        """The offset of the oldest message that is still there."""
        offset, _ = yield from offset_queries.min_offset(self.routes, self.namespace.wrap_queue(queue), now)
        return offset

    def search_offset(self, queue: MessageQueue, timestamp: int, now: int) -> Flow[int]:
        """The offset of the first message that was stored at `timestamp` or later, as the broker finds it."""
        offset, _ = yield from offset_queries.offset_by_time(
            self.routes, self.namespace.wrap_queue(queue), timestamp, now
        )
        return offset

    def earliest_msg_store_time(self, queue: MessageQueue, now: int) -> Flow[int]:
        """When the oldest message that is still there was stored; -1 for an empty queue."""
        when, _ = yield from offset_queries.earliest_store_time(self.routes, self.namespace.wrap_queue(queue), now)
        return when

    def _commit_all(self, offsets: Mapping[MessageQueue, int], now: int) -> Flow[None]:
        """Store offsets and wait for all the answers; raises the first failure when all have come."""
        tickets = [self.node.spawn(self._offsets.commit(queue, offset, now), now) for queue, offset in offsets.items()]
        for ticket in tickets:
            _, now = yield Wait(ticket)
        for ticket in tickets:
            failure, _ = ticket.result()
            if failure is not None:
                raise failure

    # --- for the node and the brokers

    def _told_subscriptions(self) -> Iterable[SubscriptionData]:
        """What heartbeats say of subscriptions."""
        return list(self._subscriptions.values())

    def heartbeat_data(self) -> ConsumerData:
        """Consumers that are asked always say that they begin at the end, wherever they do (docs/protocol/client.md
        1.7).
        """
        settings = self.settings
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            settings.message_model,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            list(self._told_subscriptions()),
            settings.unit_mode,
        )

    def consume_directly(
        self, message: MessageExt, broker_name: str, reply: Callable[[bytes, int], None], now: int
    ) -> None:
        """No listener could be given a message of an operator's."""
        remark = f"consumer {self.group} is asked for its messages, it has no listener"
        reply(ConsumeDirectlyResult(result=DirectConsumeResult.CR_THROW_EXCEPTION, remark=remark).to_json(), now)

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """Nothing goes out here that is answered."""


def pull_fields(
    group: str,
    queue: MessageQueue,
    offset: int,
    max_nums: int,
    subscribed: Subscribed,
    *,
    suspend_ms: int,
    hold: bool,
    lite: bool,
) -> dict[str, str]:
    """The extFields of PULL_MESSAGE of a consumer that is asked (docs/protocol/client.md 5.1, 5.2). With `hold` the
    broker may wait for a message.

    Such a pull brings its expression along, so it names a version only where the broker keeps what it makes of one: not
    for tags.
    """
    header = PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_nums,
        sys_flag=pull_flag(commit_offset=False, suspend=hold, subscription=True, lite=lite),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        subscription=subscribed.expression,
        sub_version=0 if subscribed.kind == TAG else subscribed.version,
        expression_type=subscribed.kind,
    )
    return {**header.encode(), "bname": queue.broker_name}


def check_offset(queue: MessageQueue, offset: int) -> None:
    """Raises ClientError for an offset that no queue can have."""
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ClientError(f"{queue} can have no offset {offset!r}")
