"""Figures of the store as a whole: puts and reads a second, their times, totals of days (docs/protocol/broker.md 2.17).

Owns: a sample of the totals each second while there is traffic, Apache's spans of 10, 60 and 600 s, put times.
Leaves to others: the totals themselves, which are counted where things happen.

A put takes as long as its sender waits for the disk: 0 ms without SYNC_FLUSH, for then it is over when the entry is. A
read takes 0 ms, too, unless a job had to fetch what it reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from mqproto.engine.broker.interfaces.clock import Timers
from mqproto.engine.store import Store

_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
#: Seconds of the spans, and samples that the longest needs.
SPANS: Final = (10, 60, 600)
_KEPT: Final = SPANS[-1] + 1
#: Put times as Apache groups them: labels, and the last millisecond of each but the last.
LABELS: Final = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)
_BOUNDS: Final = (0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999)
#: Put times that are told apart: all that take longer count as this.
_WAIT_MAX_MS: Final = 10_000


class TrafficCounters(Protocol):
    """Messages and reads that a broker counts while it serves, since the start."""

    #: Messages that clients have sent, and that they were given.
    messages_in: int
    messages_out: int
    #: Reads that gave messages, and that gave none.
    reads_found: int
    reads_missed: int


class Totals(NamedTuple):
    """Totals since the start: messages put, reads that gave messages, reads that gave none, messages given."""

    puts: int
    found: int
    missed: int
    given: int


class Sample(NamedTuple):
    """Sample of the totals at a second since the start."""

    second: int
    totals: Totals


class StoreStats:
    """Figures of one broker's store. `utc_offset_ms`: local time minus UTC, for the days."""

    def __init__(
        self, timers: Timers, traffic: TrafficCounters, store: Store, utc_offset_ms: int, busy: Callable[[], bool]
    ) -> None:
        self._timers = timers
        self._traffic = traffic
        self._store = store
        self._utc_offset = utc_offset_ms
        self._busy = busy
        self._origin = 0
        #: When the broker began (wall).
        self.boot_time = 0
        #: Puts that failed; the longest put and read, in milliseconds.
        self.put_failures = 0
        self.put_max_ms = 0
        self.read_max_ms = 0
        self._samples: deque[Sample] = deque((Sample(0, Totals(0, 0, 0, 0)),), maxlen=_KEPT + 1)
        self.awake = False
        #: The minute since the start, messages put before it, and puts that took time in it by their milliseconds;
        #: those of the last one.
        self._minute = 0
        self._minute_base = 0
        self._waits: dict[int, int] = {}
        self._last_puts = 0
        self._last_waits: dict[int, int] = {}
        #: The local day, and the totals at its beginning and at that of the day before.
        self._day = 0
        self._today = self._yesterday = self._samples[0].totals

    def begin(self) -> None:
        self._origin = self._timers.now
        self.boot_time = self._timers.wall
        self._day = self._local_day()

    # --- counting ---

    @property
    def totals(self) -> Totals:
        return Totals(
            self._store.writer.put_count,
            self._traffic.reads_found,
            self._traffic.reads_missed,
            self._traffic.messages_out,
        )

    def put_waited(self, since: int, count: int) -> None:
        """So many puts of an earlier entry (its time) were just answered: the disk has them, or took too long."""
        waited = self._timers.now - since
        if waited > 0:
            self.put_max_ms = max(self.put_max_ms, waited)
            self._roll()
            waited = min(waited, _WAIT_MAX_MS)
            self._waits[waited] = self._waits.get(waited, 0) + count

    def read_waited(self, since: int) -> None:
        """A read of an earlier entry (its time) has just ended."""
        self.read_max_ms = max(self.read_max_ms, self._timers.now - since)

    def missing(self) -> None:
        """A read gave no messages."""
        self._traffic.reads_missed += 1
        if not self.awake:
            self.wake()

    # --- sampling ---

    def wake(self) -> None:
        """Something is counted again: sample each second."""
        if self.awake:
            return
        self.awake = True
        self._roll()
        timers = self._timers
        timers.alarms.set(self.sample, timers.now + _SECOND_MS - (timers.now - self._origin) % _SECOND_MS)

    def sample(self) -> None:
        """Alarm: a second is over."""
        timers = self._timers
        changed = self._sample_now()
        self._roll()
        if changed or self._busy():
            timers.alarms.set(self.sample, timers.now + _SECOND_MS - (timers.now - self._origin) % _SECOND_MS)
        else:
            self.awake = False

    def _sample_now(self) -> bool:
        """Whether anything changed since the last second."""
        totals = self.totals
        changed = totals != self._samples[-1].totals
        if changed:
            self._samples.append(Sample((self._timers.now - self._origin) // _SECOND_MS, totals))
        return changed

    def _roll(self) -> None:
        """Minutes and days that have begun since the last sample begin with what that had counted."""
        totals = self._samples[-1].totals
        minute = (self._timers.now - self._origin) // _MINUTE_MS
        if minute != self._minute:
            follows = minute == self._minute + 1
            self._last_waits = self._waits if follows else {}
            self._last_puts = totals.puts - self._minute_base if follows else 0
            self._waits = {}
            self._minute = minute
            self._minute_base = totals.puts
        day = self._local_day()
        if day > self._day:
            self._yesterday = self._today if day == self._day + 1 else totals
            self._today = totals
            self._day = day
        elif day < self._day - 1:
            # the clock was far ahead; one that is set back over midnight does not begin a day twice
            self._day = day

    def _local_day(self) -> int:
        return (self._timers.wall + self._utc_offset) // _DAY_MS

    # --- reading ---

    def _at(self, second: int) -> Totals:
        """The totals at a second."""
        at = bisect_right(self._samples, second, key=lambda sample: sample.second)
        return self._samples[max(0, at - 1)].totals

    def per_second(self) -> list[tuple[float, float, float, float]]:
        """For each of `SPANS`: messages put, reads that gave some, reads that gave none, messages given, a second.
        Zeros where the start is not that long ago.
        """
        last = (self._timers.now - self._origin) // _SECOND_MS
        end = self._at(last)
        found = []
        for seconds in SPANS:
            begin = self._at(last - seconds) if last >= seconds else end
            puts, hits, misses, given = [(after - before) / seconds for after, before in zip(end, begin, strict=True)]
            found.append((puts, hits, misses, given))
        return found

    def put_times(self) -> list[int]:
        """How many puts of the minute took how long, by `LABELS`."""
        self._roll()
        counts = [0] * len(LABELS)
        for waited, count in self._waits.items():
            counts[sum([waited > bound for bound in _BOUNDS])] += count
        counts[0] = max(0, self._store.writer.put_count - self._minute_base - sum(counts))
        return counts

    def put_latency(self, part: float) -> float:
        """Milliseconds within which such a part of the puts of the last minute was over."""
        self._roll()
        slower = self._last_puts * (1 - part)
        passed = 0
        for waited in sorted(self._last_waits, reverse=True):
            passed += self._last_waits[waited]
            if passed > slower:
                return float(waited)
        return 0.0

    def days(self) -> tuple[Totals, Totals, Totals]:
        """The totals at the beginning of yesterday and of today in local time, and now."""
        self._roll()
        return self._yesterday, self._today, self.totals
