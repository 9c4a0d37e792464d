"""Counters against Apache's lists of snapshots, computed the plain way (docs/protocol/broker.md 9.2)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.engine.counters import COUNT, SIZE, SPENT, WINDOWS, Counter, CounterReader, spans
from mqproto.wire.bodies import BrokerStats, StatsItem


class Snapshot(NamedTuple):
    time: int
    times: int
    value: int


class Apaches:
    """One of Apache's counters: a value, how often it was added to, and a list of snapshots for each window."""

    def __init__(self) -> None:
        self.times = 0
        self.value = 0
        self.lists: tuple[deque[Snapshot], ...] = tuple(deque(maxlen=window.keep) for window in WINDOWS)

    def sample(self, number: int, now: int) -> None:
        snapshots = self.lists[number]
        if not snapshots:
            snapshots.append(Snapshot(now - WINDOWS[number].period, 0, 0))
        snapshots.append(Snapshot(now, self.times, self.value))

    def shows(self) -> BrokerStats:
        return BrokerStats(*[self._item(snapshots) for snapshots in self.lists])

    def _item(self, snapshots: deque[Snapshot]) -> StatsItem:
        if not snapshots:
            return StatsItem()
        first, last = snapshots[0], snapshots[-1]
        total, times = last.value - first.value, last.times - first.times
        return StatsItem(total, total * 1000 / (last.time - first.time), total / times if times else 0.0)


@settings(max_examples=60, deadline=None)
@given(
    born=st.integers(0, 40_000),
    events=st.lists(
        st.tuples(st.sampled_from([1, 3000, 9999, 10_000, 65_000, 600_000, 3_600_000, 90_000_000]), st.integers(1, 9)),
        max_size=30,
    ),
)
def test_the_same_as_lists_of_snapshots(born: int, events: list[tuple[int, int]]) -> None:
    """Whatever is counted when, at each moment both show the same."""
    theirs = Apaches()
    ours = Counter(born)
    now = born
    for pause, count in [*events, (25, 1), (100_000, 1)]:
        for number, window in enumerate(WINDOWS):
            # A tick that finds nothing new marks nothing.
            first, last = now // window.period + 1, (now + pause) // window.period
            for tick in range(max(first, last - window.keep), last + 1):
                theirs.sample(number, tick * window.period)
            if first <= last and ours.changed:
                ours.mark(number, first)
        now += pause
        assert spans([ours], now, COUNT) == theirs.shows()
        theirs.times += 1
        theirs.value += count
        ours.times += 1
        ours.more += count - 1
        ours.changed = True


def test_counters_that_stand_for_one_are_added() -> None:
    """The span is that of the oldest; an average is of all events."""
    old, young = Counter(0), CounterReader(25_000)
    old.times, old.more, old.size = 2, 4, 600
    old.mark(0, 1)
    young.times, young.size, young.spent = 2, 200, 7
    young.mark(0, 3)
    minute = spans([old, young], 30_000, COUNT).minute
    assert minute == StatsItem(8, 8 * 1000 / 30_000, 2.0)
    assert spans([old, young], 30_000, SIZE).minute == StatsItem(800, 800 * 1000 / 30_000, 200.0)
    assert spans([young], 30_000, SPENT).minute == StatsItem(7, 0.7, 3.5)
    assert spans([old, young], 30_000, COUNT, timeless=True).minute == StatsItem(8, 8 * 1000 / 30_000, 0.0)
    assert spans([old, young], 30_000, COUNT).hour == StatsItem()
    assert spans([], 30_000, COUNT) == BrokerStats()


def test_marks_are_bounded() -> None:
    counter = Counter(0)
    for tick in range(1, 200):
        counter.times += 1
        for number in range(len(WINDOWS)):
            counter.mark(number, tick)
    assert [len(marks) // 5 for marks in counter.marks] == [7, 7, 25]


def test_one_that_rests() -> None:
    counter = Counter(0)
    assert counter.rests(0)
    counter.changed = True
    assert not counter.rests(100)
    counter.changed = False
    counter.mark(2, 3)
    assert [counter.rests(tick) for tick in (3, 27, 28)] == [False, False, True]
    counter.waits[1] = True
    assert not counter.rests(28)
