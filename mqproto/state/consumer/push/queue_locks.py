"""Locks of queues at their brokers (docs/protocol/client.md 4.13), so that consumption is ordered over all members of a
group.

A broker gives a queue to one client of a group at a time, until it is unlocked or was not renewed for a minute. We
trust a lock for half of that, so that two members never both believe that they have it.

Owns: which queues are locked for us and since when, the requests.
Leaves to others: which queues need one (`assignment`), the renewal (`lock_renewal`), what waits for one (`orderly`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from mqproto.errors import MQError
from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.flows.effects import Call, Flow, current, success
from mqproto.wire.bodies import LockAnswer, LockRequest
from mqproto.wire.codes import RequestCode

#: Limit of a lock or unlock request.
LOCK_TIMEOUT_MS: Final = 1_000
#: How long we trust a lock; the broker keeps it for 60 s.
VALID_MS: Final = 30_000
#: How often locks are renewed.
RENEW_MS: Final = 20_000
#: How soon a lock is tried again that was not to be had, and how soon a renewal that failed.
RETRY_MS: Final = 1_000


class LockNode(Protocol):
    """Members of the node that locks need."""

    @property
    def group(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        """The broker of a queue. Raises MQError."""


class HeldQueueLocks:
    """Locks of one consumer."""

    __slots__ = ("_asked", "_locked_at", "_node")

    def __init__(self, node: LockNode) -> None:
        self._node = node
        self._locked_at: dict[MessageQueue, int] = {}
        #: What may be ours without our knowing it: asked for, and the answer did not come or nobody waited for it any
        #: more.
        self._asked: set[MessageQueue] = set()

    def locked_at(self, queue: MessageQueue) -> int | None:
        """When the broker last said that the queue is ours; None when it is not."""
        return self._locked_at.get(queue)

    def held(self) -> list[MessageQueue]:
        """What is locked: queues of ours, and those that were given up while their listener was running."""
        return list(self._locked_at)

    def is_valid(self, queue: MessageQueue, now: int) -> bool:
        """Whether the queue may be consumed."""
        locked_at = self._locked_at.get(queue)
        return locked_at is not None and now - locked_at <= VALID_MS

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        """LOCK_BATCH_MQ for one queue: whether it is ours now, and the time. Raises MQError."""
        address, now = yield from self._node.master(queue, now)
        asked = now
        self._asked.add(queue)
        locked, now = yield from self._ask(address, [queue], now)
        self._asked.discard(queue)
        if queue in locked:
            self._locked_at[queue] = asked  # it holds at least since then
        return queue in locked, now

    def renew(self, queues: Collection[MessageQueue], now: int) -> Flow[tuple[list[MessageQueue], int]]:
        """Renew what is locked of `queues`, by one request for each broker. Answers those that are somebody else's now,
        and the time.

        A broker that does not answer changes nothing: its locks run out by themselves.
        """
        lost: list[MessageQueue] = []
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues, key=queue_order):
            if queue in self._locked_at:
                by_broker.setdefault(queue.broker_name, []).append(queue)
        for held in by_broker.values():
            try:
                address, now = yield from self._node.master(held[0], now)
                mine = [queue for queue in held if queue in self._locked_at]
                asked = now
                locked, now = yield from self._ask(address, mine, now)
            except MQError:
                now = yield from current(now)
                continue
            late: list[MessageQueue] = []
            for queue in mine:
                if queue not in locked:
                    lost.append(queue)
                elif queue in self._locked_at:
                    self._locked_at[queue] = asked
                elif queue not in self._asked:
                    # it was released meanwhile, and the broker may have done that before it renewed the lock
                    late.append(queue)
            if late:
                now = yield from self._unlock(address, late, now)
        for queue in lost:
            self._locked_at.pop(queue, None)
        return lost, now

    def _ask(self, address: str, queues: list[MessageQueue], now: int) -> Flow[tuple[set[MessageQueue], int]]:
        body = LockRequest(self._node.group, self._node.client_id, queues).to_json()
        outcome, now = yield Call(address, RequestCode.LOCK_BATCH_MQ, {}, body, now + LOCK_TIMEOUT_MS)
        return set(LockAnswer.from_json(bytes(success(outcome, address).body)).queues), now

    def release(self, queues: Collection[MessageQueue], now: int) -> Flow[None]:
        """UNLOCK_BATCH_MQ for what is locked of `queues`: the locks are free when it has ended. At a broker out of
        reach they run out.

        Also for what was asked for when nobody waits for the answer any more: the broker has locked it.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues, key=queue_order):
            if self._locked_at.pop(queue, None) is not None or queue in self._asked:
                self._asked.discard(queue)
                by_broker.setdefault(queue.broker_name, []).append(queue)
        for mine in by_broker.values():
            try:
                address, now = yield from self._node.master(mine[0], now)
            except MQError:
                now = yield from current(now)
                continue
            now = yield from self._unlock(address, mine, now)

    def _unlock(self, address: str, queues: list[MessageQueue], now: int) -> Flow[int]:
        body = LockRequest(self._node.group, self._node.client_id, queues).to_json()
        try:
            _, now = yield Call(address, RequestCode.UNLOCK_BATCH_MQ, {}, body, now + LOCK_TIMEOUT_MS)
        except MQError:
            now = yield from current(now)
        return now
