"""Time-out that several steps share."""

from __future__ import annotations

import time

from mqproto.errors import InvalidSetting


def check_timeout(timeout_ms: int) -> None:
    """Raises InvalidSetting for what is no number of milliseconds: nodes reckon in whole ones.

    Less than 1 is none left, and no mistake.
    """
    if not isinstance(timeout_ms, int) or isinstance(timeout_ms, bool):
        raise InvalidSetting("timeout_ms", repr(timeout_ms), "a whole number of milliseconds expected")


class Budget:
    """Time that is left of a time-out, which begins when this is made."""

    __slots__ = ("_until",)

    def __init__(self, timeout_ms: int) -> None:
        """Raises InvalidSetting."""
        check_timeout(timeout_ms)
        self._until = time.monotonic_ns() + timeout_ms * 1_000_000

    def left_ms(self) -> int:
        """What is left of it in milliseconds, 0 when it is over. Rounded up: nothing ends early."""
        return max(0, -((time.monotonic_ns() - self._until) // 1_000_000))
