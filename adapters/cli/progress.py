"""Progress bar for long work, on standard error and only if that is a terminal."""

from __future__ import annotations

import sys
import time
from typing import Final

from mqproto.adapters.cli.tables import size_text

_WIDTH: Final = 30
_PAUSE: Final = 0.1


class ProgressBar:
    """Bar that shows the done part of the bytes and the time that is left. To be used by `with`: the bar is wiped off
    at the end.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._shown = sys.stderr.isatty()
        self._began = time.monotonic()
        self._last = 0.0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, done: int, total: int) -> None:
        """Show how far it is, not too often."""
        now = time.monotonic()
        if not self._shown or now < self._last + _PAUSE:
            return
        self._last = now
        share = done / total if total else 1.0
        full = int(share * _WIDTH)
        left = f", {(now - self._began) * (1 - share) / share:.0f} s left" if share > 0.01 else ""
        bar = "#" * full + "." * (_WIDTH - full)
        sys.stderr.write(f"\r\x1b[K{self._label} [{bar}] {size_text(done)} of {size_text(total)}{left}")
        sys.stderr.flush()
