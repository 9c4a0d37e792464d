"""Fault tolerance of sends: which brokers to avoid, and until when (docs/protocol/client.md 3.4, in the form of 4.9.8).

Owns: for each broker its last latency and the time from which it is taken again.
Leaves to others: the round robin over queues (`routes.PublishInfo`), when to measure (`core`).

Nothing here changes the shared list of queues; up to 4.9.7 Java edited a queue in it when it picked a less bad broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqproto.message import MessageQueue
from mqproto.state.cluster.routes import PublishInfo

#: The latency that a failure counts as.
ISOLATED_MS: Final = 30_000


@dataclass(slots=True)
class _Fault:
    latency_ms: int
    available_from: int


class FaultTable:
    """Table of latencies by broker name.

    `latency_max` rises; a latency of at least entry i keeps its broker off for `not_available[i]` ms.
    """

    __slots__ = ("_faults", "_latency_max", "_not_available", "_turn")

    def __init__(self, latency_max: Sequence[int], not_available: Sequence[int], turn: int = 0) -> None:
        self._latency_max = tuple(latency_max)
        self._not_available = tuple(not_available)
        self._faults: dict[str, _Fault] = {}
        self._turn = turn & 0x7FFF_FFFF

    def update(self, broker_name: str, latency_ms: int, now: int, *, isolate: bool = False) -> None:
        """A request to the broker took so long; `isolate`: it failed, which counts as 30 s."""
        counted = ISOLATED_MS if isolate else latency_ms
        off = 0
        for bound, duration in zip(self._latency_max, self._not_available, strict=True):
            if counted >= bound:
                off = duration
        self._faults[broker_name] = _Fault(latency_ms, now + off)

    def available(self, broker_name: str, now: int) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or now >= fault.available_from

    def pick(self, info: PublishInfo, now: int, last_broker: str | None = None) -> MessageQueue | None:
        """The next queue in turn whose broker is not avoided, at another than `last_broker` where there is one; if all
        brokers are avoided, one at the better half of them. None of no queues.
        """
        queues = info.queues
        count = len(queues)
        same: MessageQueue | None = None
        for _ in range(count):
            queue = queues[info.next_turn() % count]
            if self.available(queue.broker_name, now):
                if queue.broker_name != last_broker:
                    return queue
                same = queue
        if same is not None:
            return same
        broker_name = self._least_bad(info, now)
        if broker_name is None:
            return info.pick(last_broker)
        turn = info.next_turn()
        return MessageQueue(queues[0].topic, broker_name, turn % info.write_queues[broker_name])

    def _least_bad(self, info: PublishInfo, now: int) -> str | None:
        """A broker of the topic from the better half of the avoided ones. Brokers that do not hold the topic are left
        alone here:
        Java drops them from the table when it stumbles on them, although other topics may need to avoid them.
        """
        known = [name for name in info.write_queues if name in self._faults]
        known.sort(
            key=lambda name: (
                not self.available(name, now),
                self._faults[name].latency_ms,
                self._faults[name].available_from,
            )
        )
        half = len(known) // 2
        if half == 0:
            return known[0] if known else None
        self._turn = (self._turn + 1) & 0x7FFF_FFFF
        return known[self._turn % half]
