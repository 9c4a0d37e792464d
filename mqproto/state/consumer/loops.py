"""Loops of a consumer: the one that rebalances its queues, and the one that stores its offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Ticket

#: Offsets are stored for the first time this long after the start (docs/protocol/client.md 1.3).
FIRST_PERSIST_MS: Final = 10_000
#: How soon the first round that lacked something is followed by another.
REBALANCE_RETRY_MS: Final = 1_000


class RebalanceLoop:
    """Rounds of rebalancing of one consumer: at an interval, and whenever something calls for one."""

    def __init__(self, wake: Callable[[Ticket[None], int], None]) -> None:
        """`wake` settles a ticket."""
        self._wake = wake
        #: Settled to have a round before the time.
        self._called: Ticket[None] = Ticket()

    def soon(self, now: int) -> None:
        """Call for a round. Calls during a round make one more."""
        self._wake(self._called, now)

    def run(self, rebalance: Callable[[int], Flow[tuple[bool, int]]], interval_ms: int, now: int) -> Flow[None]:
        """Run until it is cancelled. `rebalance` is one round; it answers whether it had all that it needed. A
        round that lacks something (the retry topic, which the first heartbeat has only just made) is soon followed by
        another, then less and less soon, until something calls for one.
        """
        retry_ms = REBALANCE_RETRY_MS
        while True:
            called = self._called = Ticket()
            complete, now = yield from rebalance(now)
            pause_ms = interval_ms if complete else min(interval_ms, retry_ms)
            retry_ms = REBALANCE_RETRY_MS if complete else 2 * pause_ms
            _, now = yield Wait(called, now + pause_ms)
            if called.settled:
                retry_ms = REBALANCE_RETRY_MS


def persist_loop(persist: Callable[[int], Flow[None]], interval_ms: int, now: int) -> Flow[None]:
    """Store offsets at an interval."""
    _, now = yield Sleep(now + FIRST_PERSIST_MS)
    while True:
        yield from persist(now)
        _, now = yield Sleep(now + interval_ms)
