"""Positions of a lite pull consumer: where each of its queues goes on, which of that is stored, and seeks.

A *position* is where a queue goes on behind everything that was polled. A message that the last poll brought counts as
being worked on until the next poll or commit; only then does it leave the process queue, so the position, which is
never behind an unfinished message, moves over it. With `auto_commit` the next poll also makes the position the offset
to be stored. A queue that moves to another member takes along the offset that was confirmed: what was polled since
comes again there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from mqproto.errors import ClientError
from mqproto.message import MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.cluster.offset_queries import max_offset, min_offset
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.life import Life
from mqproto.state.consumer.offsets import OffsetStore
from mqproto.state.consumer.pull.prefetch import Prefetch
from mqproto.state.consumer.pull.pull_request import check_offset
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.state.flows.effects import Flow, R, Wait
from mqproto.state.node.contract import Ticket

#: Argument of a commit: offsets by queue, or queues whose positions are meant; None means all queues.
Offsets: TypeAlias = Mapping[MessageQueue, int] | Iterable[MessageQueue] | None


class PositionNode(Protocol):
    """Members of the node that positions need."""

    @property
    def namespace(self) -> Namespace: ...

    @property
    def routes(self) -> RouteTable: ...

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]: ...


class Positions:
    """Positions of one consumer's queues, and its commits."""

    def __init__(
        self, settings: LitePullSettings, offsets: OffsetStore, prefetch: Prefetch, life: Life, node: PositionNode
    ) -> None:
        self._settings = settings
        self._offsets = offsets
        self._prefetch = prefetch
        self._life = life
        self._node = node

    def confirm(self, now: int) -> None:
        """What was polled is done with; with `auto_commit` that is what will be stored."""
        moved = self._prefetch.moved
        for process_queue in self._prefetch.in_hand.confirm(now):
            moved.add(process_queue.queue)
            self._prefetch.flow_control.open(process_queue, now)
        if self._settings.auto_commit and moved:
            for queue in moved:
                position = self._position(queue)
                if position is not None:
                    self._offsets.update(queue, position, may_decrease=True)
            moved.clear()

    def _position(self, queue: MessageQueue) -> int | None:
        """Where a queue of ours goes on behind what was polled and confirmed; None while that is not known."""
        process_queue = self._prefetch.assignment.queues.get(queue)
        if process_queue is None or process_queue.dropped or not process_queue.started:
            return None
        return process_queue.commit_offset

    # --- commits

    def commit(self, offsets: Offsets, persist: bool, now: int) -> None:
        """As `commit_sync`, but in memory, from where it is stored every few seconds; with `persist` it is sent at once
        as well, without an answer.
        """
        chosen = self._choose(offsets, now)
        if persist:
            self._node.spawn(self._offsets.persist(list(chosen), now), now)

    def commit_sync(self, offsets: Offsets, now: int) -> Flow[None]:
        """Store offsets, and wait until they are stored. Raises the first failure when all answers have come."""
        chosen = self._choose(offsets, now)
        tickets = [self._node.spawn(self._offsets.commit(queue, offset, now), now) for queue, offset in chosen.items()]
        for ticket in tickets:
            _, now = yield Wait(ticket)
        for ticket in tickets:
            failure, _ = ticket.result()
            if failure is not None:
                raise failure

    def _choose(self, offsets: Offsets, now: int) -> dict[MessageQueue, int]:
        """The offsets that a commit means, put into memory."""
        self._life.check_running()
        ours = self._prefetch.ours
        chosen: dict[MessageQueue, int] = {}
        if isinstance(offsets, Mapping):
            for plain, offset in offsets.items():
                check_offset(plain, offset)
                chosen[ours(plain)] = offset
        else:
            queues = list(self._prefetch.assignment.queues) if offsets is None else [ours(queue) for queue in offsets]
            self.confirm(now)
            for queue in queues:
                position = self._position(queue)
                if position is not None:
                    chosen[queue] = position
        for queue, offset in chosen.items():
            self._offsets.update(queue, offset, may_decrease=True)
        return dict(sorted(chosen.items(), key=lambda item: queue_order(item[0])))

    def committed(self, queue: MessageQueue, now: int) -> Flow[int | None]:
        """The group's offset of any queue; see `LitePullConsumerCore.committed`."""
        self._life.check_running()
        queue = self._node.namespace.wrap_queue(queue)
        known = self._offsets.known(queue)
        if known is not None:
            return known
        kept, _ = yield from self._offsets.fetch(queue, now)
        return kept


class Seeks:
    """Seeks of one consumer: queues that go on elsewhere as the application says."""

    def __init__(self, prefetch: Prefetch, life: Life, node: PositionNode) -> None:
        self._prefetch = prefetch
        self._life = life
        self._node = node

    def to_offset(self, queue: MessageQueue, offset: int, now: int) -> Flow[None]:
        """Go on at this offset, which must lie in the queue."""
        wrapped = self._ours(queue)
        low, now = yield from min_offset(self._node.routes, wrapped, now)
        high, now = yield from max_offset(self._node.routes, wrapped, now)
        if not isinstance(offset, int) or not low <= offset <= high:
            raise ClientError(f"offset {offset!r} is not in {queue}, which has {low} to {high}")
        self._seek(wrapped, offset, now)

    def to_begin(self, queue: MessageQueue, now: int) -> Flow[None]:
        """Go on at the oldest message that is still there."""
        wrapped = self._ours(queue)
        offset, now = yield from min_offset(self._node.routes, wrapped, now)
        self._seek(wrapped, offset, now)

    def to_end(self, queue: MessageQueue, now: int) -> Flow[None]:
        """Go on at the message that comes next."""
        wrapped = self._ours(queue)
        offset, now = yield from max_offset(self._node.routes, wrapped, now)
        self._seek(wrapped, offset, now)

    def _ours(self, queue: MessageQueue) -> MessageQueue:
        self._life.check_running()
        return self._prefetch.ours(queue)

    def _seek(self, queue: MessageQueue, offset: int, now: int) -> None:
        self._life.check_running()
        self._prefetch.seek(queue, offset, now)
