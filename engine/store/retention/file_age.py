"""Age of files: it is counted by the wall clock, unless that leapt.

A clock that was set to another year makes every file look years old, and what is deleted for it is gone. So time that
the wall clock gained on the monotonic one does not age files until the broker has run on with it for as long as files
are kept: by then whatever was written before the leap is old enough by either clock. A clock that is set back is
believed at once, files are kept longer then. The same holds for a start long after the last message: the years between
may never have been.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Differences between two looks that are no leap: clocks are slewed, and corrected by small steps.
_TOLERANCE_MS: Final = 60_000
#: Leaps that are remembered; beyond it the last two count as one.
_LEAPS_MAX: Final = 64


class FileAge:
    """Clock to count ages by.

    `reserved_ms` is how long files are kept, `known` the last wall time that the store knows of (0: none).
    """

    __slots__ = ("_believed", "_known", "_leaps", "_reserved")

    def __init__(self, reserved_ms: int, known: int) -> None:
        self._reserved = reserved_ms
        self._known = known
        #: How far the wall clock is ahead of the monotonic one as far as it is believed; None before the first look.
        self._believed: int | None = None
        #: Leaps forward: when each will be believed (monotonic), and how far the wall clock is ahead since then.
        self._leaps: deque[tuple[int, int]] = deque()

    def keep(self, reserved_ms: int) -> None:
        """Files are kept for another time now.

        Leaps that were noticed before are believed when the old time is over.
        """
        self._reserved = reserved_ms

    def at(self, now: int, wall: int) -> int:
        """The wall time to count ages by, never later than `wall`.

        To be asked often: leaps are noticed between two calls.
        """
        lead = wall - now
        leaps = self._leaps
        if self._believed is None:
            self._believed = self._known - now if 0 < self._known < wall - self._reserved else lead
        while leaps and leaps[0][0] <= now:
            self._believed = leaps.popleft()[1]
        while leaps and leaps[-1][1] > lead + _TOLERANCE_MS:
            leaps.pop()
        newest = leaps[-1][1] if leaps else self._believed
        if lead > newest + _TOLERANCE_MS:
            if len(leaps) == _LEAPS_MAX:
                leaps.pop()
            leaps.append((now + self._reserved, lead))
        elif not leaps:
            self._believed = lead
        return min(wall, now + self._believed)
