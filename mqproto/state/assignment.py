"""The queues that one consumer has: which they are, where each begins, and how it is given up (client.md 4.3, 4.4, 4.7).

Owns: the table of process queues, the questions to the brokers that an assignment takes, corrections of offsets.
Leaves to others: when to share out (consumer), who gets what (rebalance), pulling and consuming (pull, consumption).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from mqproto.bodies import ConsumeFromWhere, ConsumerIds, MessageModel
from mqproto.codec import Command
from mqproto.codes import RequestCode
from mqproto.errors import BrokerError, MQError, NoRoute
from mqproto.headers import (
    GetConsumerListByGroupRequest,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
)
from mqproto.message import MessageQueue
from mqproto.names import RETRY_PREFIX
from mqproto.state.consumer_settings import ConsumerSettings
from mqproto.state.flows import Call, Flow, Refresh, Sleep, current, success
from mqproto.state.lookup import find_broker
from mqproto.state.node import Ticket
from mqproto.state.offsets import OffsetStore
from mqproto.state.pull import ProcessQueue
from mqproto.state.rebalance import Changes, Strategy, changes, queue_order, text_order
from mqproto.state.routes import RouteTable

#: Time that running deliveries get before the offset of their queue is moved under them (client.md 4.9, 6: OFFSET_ILLEGAL and reset).
CORRECTION_PAUSE_MS: Final = 10_000
#: Limit of questions about offsets in a queue (client.md 5.3).
QUERY_TIMEOUT_MS: Final = 5_000
#: Before a queue is tried again that somebody else has.
ACQUIRE_PAUSE_MS: Final = 1_000


class AssignmentHost(Protocol):
    """What an assignment needs of its consumer and its node."""

    @property
    def client_id(self) -> str: ...

    @property
    def routes(self) -> RouteTable: ...

    @property
    def api_timeout_ms(self) -> int: ...

    @property
    def failure_pause_ms(self) -> int:
        """Before the next try of what failed."""

    def notice(self, text: str) -> None:
        """A line for the operator."""

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...

    def cancel(self, ticket: Ticket[None], now: int) -> None: ...

    def pull(self, queue: ProcessQueue, now: int) -> Flow[None]:
        """The pull loop of a queue whose beginning is known."""

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Whether the application has messages of this process queue."""

    def unknown(self, now: int) -> Ticket[None]:
        """A broker does not know us: a heartbeat is due."""

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        """What a queue takes before it may be consumed: True once it is ours alone, where that is needed. Raises MQError."""

    def released(self, queue: ProcessQueue, now: int) -> None:
        """The queue was given up and its offset stored."""


class Assignment:
    """The table, and what changes it. A queue stays in it while its offset is being corrected: nobody else may have it then."""

    def __init__(
        self, settings: ConsumerSettings, strategy: Strategy, offsets: OffsetStore, host: AssignmentHost, start_time: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._strategy = strategy
        self._offsets = offsets
        self._host = host
        #: The wall time of CONSUME_FROM_TIMESTAMP.
        self._start_time = start_time
        self._broadcasts = settings.message_model is MessageModel.BROADCASTING
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self.incomplete = False
        #: Where queues that are being corrected shall go on.
        self._targets: dict[MessageQueue, int] = {}
        self._turn = 0

    # --- sharing out

    def rebalance(self, topics: Collection[str], now: int) -> Flow[tuple[bool, int]]:
        """One round over the subscribed topics; True when the queues changed. A topic whose facts cannot be had keeps its queues, and
        makes the round `incomplete`."""
        changed = self.incomplete = False
        for topic in topics:
            share, now = yield from self._share(topic, now)
            if share is None:
                self.incomplete = True
            else:
                changed |= self._apply(changes(topic, self.queues, share), now)
        left = [queue for queue in self.queues if queue.topic not in topics]
        self._apply(Changes(sorted(left, key=queue_order), []), now)
        return changed or bool(left), now

    def _share(self, topic: str, now: int) -> Flow[tuple[Sequence[MessageQueue] | None, int]]:
        host = self._host
        queues = host.routes.readable(topic)
        if not queues:
            _, now = yield Refresh(topic, now + host.api_timeout_ms)
            queues = host.routes.readable(topic)
            if not queues:
                return None, now
        if self._broadcasts:
            return queues, now
        try:
            client_ids, now = yield from self._members(topic, now)
        except MQError as error:
            host.notice(f"group {self._settings.group}: the members cannot be had, topic {topic} stays shared out as it is: {error}")
            return None, (yield from current(now))
        if host.client_id not in client_ids:
            host.unknown(now)
        try:
            ordered = sorted(queues, key=queue_order)
            return self._strategy.allocate(self._settings.group, host.client_id, ordered, sorted(client_ids, key=text_order)), now
        except Exception as error:  # a strategy may be the application's own
            host.notice(f"group {self._settings.group}: topic {topic} stays shared out as it is: {error!r}")
            return None, now

    def _members(self, topic: str, now: int) -> Flow[tuple[list[str], int]]:
        """GET_CONSUMER_LIST_BY_GROUP at one broker of the topic; the brokers know the group by its heartbeats."""
        self._turn += 1
        address = self._host.routes.any_address(topic, self._turn)
        if address is None:
            raise NoRoute(topic)
        fields = GetConsumerListByGroupRequest(self._settings.group).encode()
        outcome, now = yield Call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields, deadline=now + self._host.api_timeout_ms)
        command = success(outcome, address)
        client_ids = ConsumerIds.from_json(command.body).client_ids
        if not client_ids:
            raise BrokerError(command.code, "no members", address)
        return client_ids, now

    def _apply(self, found: Changes, now: int) -> bool:
        for queue in found.lost:
            self.give_up(queue, now)
        for queue in found.gained:
            self._take(queue, now)
        return bool(found)

    # --- one queue

    def _take(self, queue: MessageQueue, now: int, first_offset: int | None = None) -> None:
        """Begin a queue at this offset, or where the kept one says."""
        self._offsets.forget(queue)
        process_queue = self.queues[queue] = ProcessQueue(queue, now)
        process_queue.loop = self._host.spawn(self._run(process_queue, first_offset, now), now)

    def retake(self, queue: MessageQueue, now: int) -> None:
        """Begin a queue of ours anew, from its kept offset: somebody else had it meanwhile."""
        process_queue = self.queues.get(queue)
        if process_queue is not None and not process_queue.dropped:
            self._stop(process_queue, now)
            self._take(queue, now)

    def _run(self, queue: ProcessQueue, first_offset: int | None, now: int) -> Flow[None]:
        """Acquire the queue and find where to begin, however often that takes, then pull."""
        offset: int | None = None
        while offset is None:
            if queue.dropped:
                return
            offset, now = yield from self._try_first_offset(queue.queue, first_offset, now)
        if not queue.dropped:
            queue.start(offset)
            self._offsets.update(queue.queue, offset, may_decrease=True)
            yield from self._host.pull(queue, now)

    def _try_first_offset(self, queue: MessageQueue, first_offset: int | None, now: int) -> Flow[tuple[int | None, int]]:
        """None when the queue is not to be had or a question failed, after a pause."""
        pause_ms = ACQUIRE_PAUSE_MS
        try:
            acquired, now = yield from self._host.acquire(queue, now)
            if acquired and first_offset is not None:
                return first_offset, now
            if acquired:
                return (yield from self._first_offset(queue, now))
        except MQError as error:
            self._host.notice(f"group {self._settings.group}: where to begin in {queue} cannot be found out: {error}")
            pause_ms = self._host.failure_pause_ms
            now = yield from current(now)
        _, now = yield Sleep(now + pause_ms)
        return None, now

    def _first_offset(self, queue: MessageQueue, now: int) -> Flow[tuple[int, int]]:
        """The kept offset, or where the settings say that a new group begins (client.md 4.3). Raises MQError."""
        kept, now = yield from self._offsets.fetch(queue, now)
        if kept is not None:
            return kept, now
        where = self._settings.consume_from_where
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0, now
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return (yield from self._last_offset(queue, now) if is_retry else self._offset_by_time(queue, now))
        if is_retry:
            return 0, now
        return (yield from self._last_offset(queue, now))

    def _last_offset(self, queue: MessageQueue, now: int) -> Flow[tuple[int, int]]:
        fields = GetMaxOffsetRequest(queue.topic, queue.queue_id).encode()
        command, now = yield from self._query(queue, RequestCode.GET_MAX_OFFSET, fields, now)
        return GetMaxOffsetResponse.decode(command.fields).offset, now

    def _offset_by_time(self, queue: MessageQueue, now: int) -> Flow[tuple[int, int]]:
        fields = SearchOffsetRequest(queue.topic, queue.queue_id, self._start_time()).encode()
        command, now = yield from self._query(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, now)
        return SearchOffsetResponse.decode(command.fields).offset, now

    def _query(self, queue: MessageQueue, code: int, fields: dict[str, str], now: int) -> Flow[tuple[Command, int]]:
        """Ask the master about a queue. Raises MQError for anything but success."""
        address, now = yield from find_broker(self._host.routes, queue, now, master_only=True)
        outcome, now = yield Call(address, code, {**fields, "bname": queue.broker_name}, deadline=now + QUERY_TIMEOUT_MS)
        return success(outcome, address), now

    def give_up(self, queue: MessageQueue, now: int) -> None:
        """The queue is somebody else's now: store how far it got, and forget it. What still runs for it finds it dropped."""
        process_queue = self.queues.pop(queue)
        self._stop(process_queue, now)
        offset = self._targets.pop(queue, None)
        if offset is None:
            offset = self._offsets.known(queue)
        self._offsets.forget(queue)
        if offset is not None:
            self._host.spawn(self._offsets.keep(queue, offset, now), now)
        self._host.released(process_queue, now)

    def _stop(self, queue: ProcessQueue, now: int) -> None:
        queue.drop()
        if queue.loop is not None:
            self._host.cancel(queue.loop, now)

    # --- corrections

    def reset(self, offsets: Mapping[MessageQueue, int], now: int) -> None:
        """An operator moves our queues to these offsets (client.md 6). Queues that are not ours are somebody else's affair."""
        for queue in sorted(self.queues.keys() & offsets.keys(), key=queue_order):
            process_queue = self.queues[queue]
            self._targets[queue] = offsets[queue]
            if not process_queue.dropped:
                self._stop(process_queue, now)
                self._host.spawn(self._correct(process_queue, 0, now), now)

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        """The queue does not have the offset that we asked for: go on at the one that it has. Called by the queue's own pull loop.

        At once only after a pause, so that a broker that changes its mind is not asked in a tight loop.
        """
        self._host.notice(f"group {self._settings.group}: {queue.queue} has no offset {queue.next_offset}, going on at {next_offset}")
        queue.drop()
        self._targets[queue.queue] = next_offset
        self._host.spawn(self._correct(queue, self._host.failure_pause_ms, now), now)

    def _correct(self, queue: ProcessQueue, pause_ms: int, now: int) -> Flow[None]:
        """Give running deliveries time (they change nothing any more, but would overlap with what comes again), then take the queue
        anew from its target."""
        _, now = yield Sleep(now + (CORRECTION_PAUSE_MS if self._host.is_busy(queue) else pause_ms))
        while self.queues.get(queue.queue) is queue:
            target = self._targets[queue.queue]
            self._offsets.update(queue.queue, target, may_decrease=True)
            yield from self._offsets.persist([queue.queue], now)
            now = yield from current(now)
            if self.queues.get(queue.queue) is queue and self._targets[queue.queue] == target:
                del self._targets[queue.queue]
                # Not by asking for the kept offset: a broker may answer that before it has taken what we just told it.
                self._take(queue.queue, now, target)

    # --- the end

    def persist(self, now: int) -> Flow[None]:
        """Store the offsets of all queues."""
        return self._offsets.persist(list(self.queues), now)

    def close(self, now: int) -> None:
        """Drop everything; offsets were stored before."""
        for process_queue in self.queues.values():
            self._stop(process_queue, now)
        self.queues.clear()
