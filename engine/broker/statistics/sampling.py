"""Sampling of counters: an alarm at the next tick, while there is something that no tick has seen yet
(docs/protocol/broker.md 9.2).

Owns: which counters changed, and the passes over them, in slices.
Leaves to others: what is counted (`broker_stats`), what a counter keeps (`mqproto.engine.counters`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mqproto.engine.broker.interfaces.clock import Timers
from mqproto.engine.counters import WINDOWS, Counter

#: Counters that one alarm marks before others get their turn: about a millisecond.
_AT_A_TIME: Final = 1000


class Sampler:
    """Sampler of counters at the ticks of all windows."""

    def __init__(self, timers: Timers, woken: Callable[[int], None]) -> None:
        self._timers = timers
        #: Called when something is counted after a rest, and before each tick, with the milliseconds since the first
        #: tick.
        self._woken = woken
        #: Time of the first tick (monotonic).
        self._origin = 0
        #: Counters that the next tick of each window has to mark.
        self._waiting: tuple[list[Counter], ...] = tuple([[] for _ in WINDOWS])
        #: The last tick of each window that was seen to.
        self._seen = [0] * len(WINDOWS)
        self._pass: Iterator[None] | None = None

    def begin(self) -> None:
        self._origin = self._timers.now

    @property
    def elapsed(self) -> int:
        """Milliseconds since the first tick."""
        return self._timers.now - self._origin

    @property
    def busy(self) -> bool:
        """Whether something was counted since the last tick of the shortest window."""
        return bool(self._waiting[0]) or self._pass is not None

    def touch(self, counter: Counter) -> None:
        """A counter whose `changed` is not set has counted something."""
        counter.changed = True
        waiting = self._waiting[0]
        if not waiting:
            self._wake()
        waiting.append(counter)

    def add(self, counter: Counter) -> None:
        """The same from inside of `woken`."""
        counter.changed = True
        self._waiting[0].append(counter)

    def _wake(self) -> None:
        elapsed = self.elapsed
        for number, window in enumerate(WINDOWS):
            if not self._waiting[number]:
                self._seen[number] = elapsed // window.period
        self._woken(elapsed)
        if self._pass is None:
            self._timers.alarms.set(self.sample, self._origin + (self._seen[0] + 1) * WINDOWS[0].period)

    def sample(self) -> None:
        """Alarm: a tick, or the next slice of what one has to mark."""
        if self._pass is None:
            self._woken(self.elapsed // WINDOWS[0].period * WINDOWS[0].period - 1)
            self._pass = self._slices(self.elapsed)
        if next(self._pass, self) is None:
            self._timers.alarms.set(self.sample, self._timers.now)
            return
        self._pass = None
        ticks = [
            (self._seen[number] + 1) * window.period for number, window in enumerate(WINDOWS) if self._waiting[number]
        ]
        if ticks:
            self._timers.alarms.set(self.sample, self._origin + min(ticks))

    def _slices(self, elapsed: int) -> Iterator[None]:
        """Mark what waits for the ticks that have come."""
        done = 0
        for number, window in enumerate(WINDOWS):
            tick = elapsed // window.period
            if tick == self._seen[number]:
                continue
            self._seen[number] = tick
            batch = self._waiting[number][:]
            self._waiting[number].clear()
            for counter in batch:
                counter.mark(number, tick)
                if number:
                    counter.waits[number] = False
                else:
                    counter.changed = False
                    self._pass_on(counter)
                done += 1
                if done % _AT_A_TIME == 0:
                    yield

    def _pass_on(self, counter: Counter) -> None:
        """What the shortest window has seen is news for the longer ones."""
        for number in range(1, len(WINDOWS)):
            if not counter.waits[number]:
                counter.waits[number] = True
                self._waiting[number].append(counter)
