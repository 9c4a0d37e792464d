"""A time-out that several steps share."""

from __future__ import annotations

import time


class Budget:
    """Begins when it is made."""

    __slots__ = ("_until",)

    def __init__(self, timeout_ms: int) -> None:
        self._until = time.monotonic_ns() + timeout_ms * 1_000_000

    def left_ms(self) -> int:
        """What is left of it in milliseconds, 0 when it is over. Rounded up: nothing ends early."""
        return max(0, -((time.monotonic_ns() - self._until) // 1_000_000))
