"""Renewal of queue locks, and the hand-over of locked queues at the end (docs/protocol/client.md 4.13)."""

from __future__ import annotations

from typing import Protocol

from mqproto.state.consumer.allocation.assignment import Assignment
from mqproto.state.consumer.offsets import OFFSET_TIMEOUT_MS
from mqproto.state.consumer.push.orderly import OrderlyConsumption
from mqproto.state.consumer.push.queue_locks import LOCK_TIMEOUT_MS, RENEW_MS, RETRY_MS, HeldQueueLocks
from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Ticket


class RenewalNode(Protocol):
    """Members of the node that the renewal needs."""

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...


class LockRenewal:
    """Renewal of one ordered consumer's locks."""

    def __init__(
        self, locks: HeldQueueLocks, assignment: Assignment, consumption: OrderlyConsumption, node: RenewalNode
    ) -> None:
        self._locks = locks
        self._assignment = assignment
        self._consumption = consumption
        self._node = node

    def loop(self, now: int) -> Flow[None]:
        """Renew locks in time, at once again where that failed; what was lost to another member begins anew."""
        locks = self._locks
        while True:
            oldest = min((at for queue in locks.held() if (at := locks.locked_at(queue)) is not None), default=now)
            _, now = yield Sleep(now + (RENEW_MS if now - oldest < RENEW_MS else RETRY_MS))
            lost, now = yield from locks.renew(locks.held(), now)
            for queue in lost:
                self._assignment.retake(queue, now)
            # A lock may have run out before it was renewed: what came meanwhile still waits.
            for queue in list(self._assignment.queues):
                if locks.is_valid(queue, now):
                    self._consumption.resumed(queue, now)

    def hand_over(self, now: int) -> Flow[int]:
        """Store offsets and give locks back before other members learn of our end: they would find a queue locked, and
        Java's try again after 20 s. Those of listeners that still run go last.
        """
        deadline = now + OFFSET_TIMEOUT_MS + LOCK_TIMEOUT_MS
        for ticket in self._assignment.give_up_all(now):
            _, now = yield Wait(ticket, deadline)
        deadline = now + LOCK_TIMEOUT_MS
        for ticket in [self._node.spawn(self._locks.release([queue], now), now) for queue in self._locks.held()]:
            _, now = yield Wait(ticket, deadline)
        return now
