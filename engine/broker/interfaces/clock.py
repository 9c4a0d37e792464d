"""Time and notices of a broker, which most of its rooms need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from mqproto.state.node.deadlines import Deadlines

Alarm: TypeAlias = Callable[[], None]


class Clock(Protocol):
    """Clock of the entry that runs; it stands still until the next one."""

    @property
    def now(self) -> int:
        """Monotonic milliseconds."""

    @property
    def wall(self) -> int:
        """Wall time in milliseconds."""


class Timers(Clock, Protocol):
    """Timers of the broker: functions that are called at a time."""

    @property
    def alarms(self) -> Deadlines[Alarm]:
        """The alarms that are set, each with its monotonic time."""

    def after(self, delay_ms: int, alarm: Alarm) -> None:
        """Call a function once, at the latest so long from now."""


class Notices(Protocol):
    """Notices to the operator."""

    def notice(self, text: str) -> None:
        """Report something in one line."""
