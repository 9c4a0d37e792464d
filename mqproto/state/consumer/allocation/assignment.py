"""Assignment (docs/protocol/client.md 4.3, 4.4, 4.7): the queues that a consumer has, where each begins, and how it is
given up.

Owns: the table of process queues, where each begins, corrections of offsets, and that a queue is free only behind its
last offset.
Leaves to others: when to rebalance (`loops`), who gets what (`members`), pulls and consumption (the consumer).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from mqproto.errors import MQError, StateError
from mqproto.message import MessageQueue
from mqproto.state.cluster.offset_queries import max_offset, offset_by_time
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.consumer.allocation.allocate import Changes, Strategy, changes
from mqproto.state.consumer.allocation.members import MemberAllocation, MemberNode
from mqproto.state.consumer.offsets import OffsetStore
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.flows.effects import Flow, Sleep, Wait, current
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel
from mqproto.wire.names import RETRY_PREFIX

#: Time that running deliveries get before the offset of their queue is moved under them (docs/protocol/client.md 4.9,
#: 6: OFFSET_ILLEGAL and reset).
CORRECTION_PAUSE_MS: Final = 10_000
#: Limit of questions about offsets in a queue (docs/protocol/client.md 5.3).
QUERY_TIMEOUT_MS: Final = 5_000
#: Before a queue is tried again that somebody else has.
ACQUIRE_PAUSE_MS: Final = 1_000


class AssignmentSettings(Protocol):
    """Settings of a consumer that an assignment needs."""

    @property
    def group(self) -> str: ...

    @property
    def message_model(self) -> MessageModel: ...

    @property
    def consume_from_where(self) -> ConsumeFromWhere: ...


class AssignmentNode(MemberNode, Protocol):
    """Members of the node that an assignment needs."""

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...

    def cancel(self, ticket: Ticket[None], now: int) -> None: ...


class AssignmentHost(Protocol):
    """Consumer of the assigned queues: it pulls them, and knows whether the application is still at work on one."""

    @property
    def failure_pause_ms(self) -> int:
        """Before the next try of what failed."""

    def pull(self, queue: ProcessQueue, now: int) -> Flow[None]:
        """The pull loop of a queue whose beginning is known."""

    def is_busy(self, queue: ProcessQueue) -> bool:
        """Whether the application has messages of this process queue."""

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        """Make a queue ours alone, where that is needed before it may be consumed: whether it is. Raises MQError."""

    def released(self, queue: ProcessQueue, now: int) -> None:
        """The queue was given up: it is not in the table any more."""

    def unlock(self, queue: ProcessQueue, now: int) -> Flow[None]:
        """Give back what `acquire` got, unless the application still works on the queue: then this is called again at
        the end of that.
        """


class Assignment:
    """Table of process queues, and what changes it.

    A queue stays in it while its offset is being corrected: nobody else may have it then.
    """

    def __init__(
        self,
        settings: AssignmentSettings,
        strategy: Strategy,
        offsets: OffsetStore,
        node: AssignmentNode,
        host: AssignmentHost,
        start_time: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._offsets = offsets
        self._node = node
        self._host = host
        #: The wall time of CONSUME_FROM_TIMESTAMP.
        self._start_time = start_time
        self._allocation = MemberAllocation(
            settings.group, settings.message_model is MessageModel.BROADCASTING, strategy, node
        )
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self.incomplete = False
        #: Where queues that are being corrected shall go on.
        self._targets: dict[MessageQueue, int] = {}
        #: Queues that were given up lately: settled when the broker knows all about that.
        self._leaving: dict[MessageQueue, Ticket[None]] = {}

    # --- rebalancing

    def rebalance(self, topics: Collection[str], now: int) -> Flow[tuple[bool, int]]:
        """One round over the subscribed topics; True when the queues changed. A topic whose facts cannot be had keeps
        its queues, and makes the round `incomplete`.
        """
        changed = self.incomplete = False
        for topic in topics:
            share, now = yield from self._allocation.share(topic, now)
            if share is None:
                self.incomplete = True
            else:
                changed |= self._apply(changes(topic, self.queues, share), now)
        left = [queue for queue in self.queues if queue.topic not in topics]
        self._apply(Changes(sorted(left, key=queue_order), []), now)
        return changed or bool(left), now

    def _apply(self, found: Changes, now: int) -> bool:
        self._leaving = {queue: ticket for queue, ticket in self._leaving.items() if not ticket.settled}
        for queue in found.lost:
            self.give_up(queue, now)
        for queue in found.gained:
            self._take(queue, now)
        return bool(found)

    def assign(self, wanted: Collection[MessageQueue], now: int) -> bool:
        """Have these queues and no others, as the application says; whether that changes anything."""
        lost = [queue for queue in self.queues if queue not in wanted]
        gained = [queue for queue in wanted if queue not in self.queues]
        return self._apply(Changes(sorted(lost, key=queue_order), sorted(set(gained), key=queue_order)), now)

    # --- one queue

    def _take(self, queue: MessageQueue, now: int, first_offset: int | None = None) -> None:
        """Begin a queue at this offset, which changes nothing about the one in memory, or where the kept one says."""
        if first_offset is None:
            self._offsets.forget(queue)
        process_queue = self.queues[queue] = ProcessQueue(queue, now)
        process_queue.loop = self._node.spawn(self._run(process_queue, first_offset, now), now)

    def retake(self, queue: MessageQueue, now: int) -> None:
        """Begin a queue of ours anew, from its kept offset: somebody else had it meanwhile."""
        process_queue = self.queues.get(queue)
        if process_queue is not None and not process_queue.dropped:
            self._stop(process_queue, now)
            self._take(queue, now)

    def seek(self, queue: MessageQueue, offset: int, now: int) -> None:
        """Begin a queue of ours anew at this offset.

        The offset in memory stays. Raises StateError when it is not ours.
        """
        process_queue = self.queues.get(queue)
        if process_queue is None:
            raise StateError(f"group {self._settings.group}: {queue} is not assigned to this consumer")
        self._targets.pop(queue, None)
        self._stop(process_queue, now)
        self._take(queue, now, offset)

    def _run(self, queue: ProcessQueue, first_offset: int | None, now: int) -> Flow[None]:
        """Acquire the queue and find where to begin, however often that takes, then pull."""
        leaving = self._leaving.get(queue.queue)
        if leaving is not None and not leaving.settled:
            # else we might read the offset from before, and be unlocked after we locked
            _, now = yield Wait(leaving)
        offset: int | None = None
        while offset is None:
            if queue.dropped:
                return
            offset, now = yield from self._try_first_offset(queue.queue, first_offset, now)
        if not queue.dropped:
            queue.start(offset)
            if first_offset is None and self._offsets.known(queue.queue) is None:
                # else the application has said meanwhile how far it is
                self._offsets.update(queue.queue, offset)
            yield from self._host.pull(queue, now)

    def _try_first_offset(
        self, queue: MessageQueue, first_offset: int | None, now: int
    ) -> Flow[tuple[int | None, int]]:
        """None when the queue is not to be had or a question failed, after a pause."""
        pause_ms = ACQUIRE_PAUSE_MS
        try:
            acquired, now = yield from self._host.acquire(queue, now)
            if acquired and first_offset is not None:
                return first_offset, now
            if acquired:
                return (yield from self._first_offset(queue, now))
        except MQError as error:
            self._node.notice(f"group {self._settings.group}: where to begin in {queue} cannot be found out: {error}")
            pause_ms = self._host.failure_pause_ms
            now = yield from current(now)
        _, now = yield Sleep(now + pause_ms)
        return None, now

    def _first_offset(self, queue: MessageQueue, now: int) -> Flow[tuple[int, int]]:
        """The kept offset, or where the settings say that a new group begins (docs/protocol/client.md 4.3).

        Raises MQError.
        """
        kept, now = yield from self._offsets.fetch(queue, now)
        if kept is not None:
            return kept, now
        where = self._settings.consume_from_where
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0, now
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            if is_retry:
                return (yield from max_offset(self._node.routes, queue, now, QUERY_TIMEOUT_MS))
            return (yield from offset_by_time(self._node.routes, queue, self._start_time(), now, QUERY_TIMEOUT_MS))
        if is_retry:
            return 0, now
        return (yield from max_offset(self._node.routes, queue, now, QUERY_TIMEOUT_MS))

    def give_up(self, queue: MessageQueue, now: int) -> None:
        """The queue is somebody else's now: store how far it got, and forget it.

        What still runs for it finds it dropped.
        """
        process_queue = self.queues.pop(queue)
        self._stop(process_queue, now)
        offset = self._targets.pop(queue, None)
        if offset is None:
            offset = self._offsets.known(queue)
        self._offsets.forget(queue)
        self._begin_leaving(process_queue, offset, now)
        self._host.released(process_queue, now)

    def ended_late(self, queue: ProcessQueue, now: int) -> None:
        """The last delivery of a queue that was given up has ended only now."""
        if queue.queue not in self.queues:
            self._begin_leaving(queue, None, now)

    def _begin_leaving(self, queue: ProcessQueue, offset: int | None, now: int) -> None:
        before = self._leaving.get(queue.queue)
        self._leaving[queue.queue] = self._node.spawn(self._leave(queue, offset, before, now), now)

    def _leave(self, queue: ProcessQueue, offset: int | None, before: Ticket[None] | None, now: int) -> Flow[None]:
        """Store the last offset, and give the queue free only when it is: Apache's brokers carry out the requests of a
        link in any order, and the next owner would begin before what we have consumed.
        """
        if before is not None and not before.settled:
            _, now = yield Wait(before)
        if offset is not None:
            yield from self._offsets.keep(queue.queue, offset, now)
            now = yield from current(now)
        yield from self._host.unlock(queue, now)

    def _stop(self, queue: ProcessQueue, now: int) -> None:
        queue.drop()
        if queue.loop is not None:
            self._node.cancel(queue.loop, now)

    # --- corrections

    def reset(self, offsets: Mapping[MessageQueue, int], now: int) -> None:
        """An operator moves our queues to these offsets (docs/protocol/client.md 6).

        Queues that are not ours are somebody else's affair.
        """
        for queue in sorted(self.queues.keys() & offsets.keys(), key=queue_order):
            process_queue = self.queues[queue]
            self._targets[queue] = offsets[queue]
            if not process_queue.dropped:
                self._stop(process_queue, now)
                self._node.spawn(self._correct(process_queue, 0, now), now)

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        """The queue does not have the offset of the pull: go on at the one that it has. Called by its pull loop.

        At once only after a pause, so that a broker that changes its mind does not get pulls in a tight loop.
        """
        self._node.notice(
            f"group {self._settings.group}: {queue.queue} has no offset {queue.next_offset}, going on at {next_offset}"
        )
        queue.drop()
        self._targets[queue.queue] = next_offset
        self._node.spawn(self._correct(queue, self._host.failure_pause_ms, now), now)

    def _correct(self, queue: ProcessQueue, pause_ms: int, now: int) -> Flow[None]:
        """Give running deliveries time (they change nothing any more, but would overlap with what comes again), then
        take the queue anew from its target.
        """
        _, now = yield Sleep(now + (CORRECTION_PAUSE_MS if self._host.is_busy(queue) else pause_ms))
        while self.queues.get(queue.queue) is queue:
            target = self._targets[queue.queue]
            self._offsets.update(queue.queue, target, may_decrease=True)
            yield from self._offsets.persist([queue.queue], now)
            now = yield from current(now)
            if self.queues.get(queue.queue) is queue and self._targets[queue.queue] == target:
                del self._targets[queue.queue]
                # Not by asking for the kept offset: a broker may answer that before it has taken what we just sent it.
                self._take(queue.queue, now, target)

    # --- the end

    def persist(self, now: int) -> Flow[None]:
        """Store the offsets of all queues."""
        return self._offsets.persist(list(self.queues), now)

    def give_up_all(self, now: int) -> list[Ticket[None]]:
        """Give up every queue; settled when the brokers know all about these and those that were given up before."""
        for queue in list(self.queues):
            self.give_up(queue, now)
        return list(self._leaving.values())

    def refresh(self, now: int) -> Flow[None]:
        """The same, every few seconds."""
        return self._offsets.refresh(list(self.queues), now)

    def close(self, now: int) -> None:
        """Drop everything; offsets were stored before."""
        for process_queue in self.queues.values():
            self._stop(process_queue, now)
        self.queues.clear()
