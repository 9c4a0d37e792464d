"""Counters, and Apache's snapshots of a minute, an hour and a day (docs/protocol/broker.md 9.2).

Apache appends the value of every counter to a list every 10 s, 10 min and 1 h. Here the ticks of these three rhythms
are numbers since the start, and a counter keeps its numbers at those ticks only before which it changed: an idle one
costs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

from mqproto.wire.bodies import BrokerStats, StatsItem


class CounterWindow:
    """Window of a counter: a tick every `period` ms, of which the last `keep` count, both ends of the span included."""

    __slots__ = ("keep", "period")

    def __init__(self, period: int, keep: int) -> None:
        self.period = period
        self.keep = keep


#: Minute, hour, day. Each tick of a longer one is a tick of the shorter ones, too.
WINDOWS: Final = (CounterWindow(10_000, 7), CounterWindow(600_000, 7), CounterWindow(3_600_000, 25))

#: What a mark holds: tick, events, messages, bytes, milliseconds.
_WIDTH: Final = 5
#: Places in a mark, and so what can be asked for.
TIMES: Final = 1
COUNT: Final = 2
SIZE: Final = 3
SPENT: Final = 4


class Counter:
    """Counter of events, each with one or more messages, their bytes and milliseconds.

    Whoever counts adds to the numbers and calls `Sampler.touch` unless `changed` is set already.
    """

    __slots__ = ("born", "changed", "marks", "more", "size", "spent", "times", "waits")

    def __init__(self, elapsed: int) -> None:
        """`elapsed`: ms from the first tick to now."""
        #: Events; messages beyond one for each of them; bytes; milliseconds.
        self.times = 0
        self.more = 0
        self.size = 0
        self.spent = 0
        #: Something was counted since the last tick of the minute's window.
        self.changed = False
        #: The same for the windows of hour and day, by the number of the window.
        self.waits = [False] * len(WINDOWS)
        #: The last tick of each window before there was this counter: it is a mark of zeros.
        self.born = tuple([elapsed // window.period for window in WINDOWS])
        self.marks = tuple([array("q") for _ in WINDOWS])

    @property
    def count(self) -> int:
        """Messages."""
        return self.times + self.more

    def mark(self, number: int, tick: int) -> None:
        """Keep the numbers as those of a tick of a window; what no span can reach any more is dropped."""
        marks = self.marks[number]
        marks.extend((tick, self.times, self.times + self.more, self.size, self.spent))
        first = tick - WINDOWS[number].keep + 1
        while len(marks) > _WIDTH and marks[_WIDTH] <= first:
            del marks[:_WIDTH]

    def at(self, number: int, tick: int, place: int) -> int:
        """One of the numbers at a tick of a window, as far as that is still known."""
        marks = self.marks[number]
        for at in range(len(marks) - _WIDTH, -1, -_WIDTH):
            if marks[at] <= tick:
                return marks[at + place]
        return 0

    def rests(self, tick: int) -> bool:
        """Whether nothing was counted that the window of the day can still show at its tick."""
        days = self.marks[-1]
        return not self.changed and not any(self.waits) and (not days or days[-_WIDTH] <= tick - WINDOWS[-1].keep)


class CounterReader(Counter):
    """Counter of what one group reads from one queue."""

    __slots__ = ("behind",)

    def __init__(self, elapsed: int) -> None:
        super().__init__(elapsed)
        #: Bytes from the last message that was read to the end of the log, when it was read.
        self.behind = 0


def span(counters: Iterable[Counter], number: int, elapsed: int, place: int, *, timeless: bool = False) -> StatsItem:
    """What counters that stand for one of Apache's counted together in a window.

    `timeless`: events do not count there.
    """
    window = WINDOWS[number]
    together = list(counters)
    last = elapsed // window.period
    born = min([counter.born[number] for counter in together], default=last)
    if born >= last:
        return StatsItem()
    first = max(last - window.keep + 1, born)
    total = sum([counter.at(number, last, place) - counter.at(number, first, place) for counter in together])
    times = (
        0
        if timeless
        else sum([counter.at(number, last, TIMES) - counter.at(number, first, TIMES) for counter in together])
    )
    return StatsItem(total, total * 1000 / ((last - first) * window.period), total / times if times else 0.0)


def spans(counters: Iterable[Counter], elapsed: int, place: int, *, timeless: bool = False) -> BrokerStats:
    """The same in all three windows."""
    together = list(counters)
    return BrokerStats(*[span(together, number, elapsed, place, timeless=timeless) for number in range(len(WINDOWS))])
