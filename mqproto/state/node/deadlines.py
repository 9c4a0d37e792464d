"""Deadlines: keys and when they expire.

Owns: a set of keys, each with one absolute time. Setting and cancelling cost O(log n) and O(1); memory follows what is
live, because entries that were replaced or cancelled are swept once they outnumber the live ones (calls with 30 s to go
that were answered at once would pile up otherwise).
Leaves to others: clocks (drivers), and what a key means (owners).
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

#: More than there can be.
NO_LIMIT: Final = 1 << 62

K = TypeVar("K", bound=Hashable)

#: Stale heap entries that are tolerated beyond the number of live ones, so that small tables are not swept all the
#: time.
SWEEP_SLACK: Final = 64


class Deadlines(Generic[K]):
    """Keys and when they expire, in whole milliseconds of the caller's clock."""

    __slots__ = ("_heap", "_live", "_turn")

    def __init__(self) -> None:
        # (when, turn, key): the turn keeps keys from being compared and expires equal times in the order they were set.
        self._heap: list[tuple[int, int, K]] = []
        self._live: dict[K, tuple[int, int, K]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def set(self, key: K, when: int) -> None:
        """Let `key` expire at `when`, in place of any time it had."""
        self._turn += 1
        entry = (when, self._turn, key)
        self._live[key] = entry
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > 2 * len(self._live) + SWEEP_SLACK:
            self._heap = list(self._live.values())
            heapify(self._heap)

    def cancel(self, key: K) -> bool:
        """Forget `key`; False if it had no time (any more)."""
        return self._live.pop(key, None) is not None

    def when(self, key: K) -> int | None:
        """The time of `key`, or None."""
        entry = self._live.get(key)
        return None if entry is None else entry[0]

    def earliest(self) -> int | None:
        """The next time at which something expires, or None."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if self._is_live(entry):
                return entry[0]
            heappop(heap)
        return None

    def due(self, now: int, limit: int = NO_LIMIT) -> list[K]:
        """Remove and return the keys whose time is `now` or earlier, in order of their times: `limit` of them, the rest
        stays due.
        """
        keys: list[K] = []
        heap = self._heap
        while heap and heap[0][0] <= now and len(keys) < limit:
            entry = heappop(heap)
            if self._is_live(entry):
                del self._live[entry[2]]
                keys.append(entry[2])
        return keys

    def _is_live(self, entry: tuple[int, int, K]) -> bool:
        """Whether a heap entry was neither replaced nor cancelled.

        By its turn: a tuple's identity does not outlive compilation.
        """
        live = self._live.get(entry[2])
        return live is not None and live[1] == entry[1]
