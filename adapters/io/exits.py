"""Exit of the interpreter: clients that nobody has closed by then.

All of them begin to close at once and share one time-out: a program with many clients whose brokers do not answer ends
as soon as one with a single client. No thread is started for that, which an interpreter that exits may refuse.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import Final, Protocol

from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS

#: What is left of the time-out at least for each client: those that have ended meanwhile need none.
_LEAST_MS: Final = 50


class Exiting(Protocol):
    """Client as the exit needs it."""

    def _begin_exit(self) -> None:
        """Begin to end, if it runs; does not wait."""

    def close(self, timeout_ms: int) -> None: ...


_running: Final[set[Exiting]] = set()


def remember(client: Exiting) -> None:
    """Close it at the exit, unless it is forgotten before; ahead of all that was registered with `atexit` by now."""
    _running.add(client)
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def forget(client: Exiting) -> None:
    """It has closed. One that was not remembered is no error."""
    _running.discard(client)


def _close_all() -> None:
    deadline = time.monotonic_ns() // 1_000_000 + CLOSE_TIMEOUT_MS
    clients = list(_running)
    for client in clients:
        client._begin_exit()
    for client in clients:
        client.close(max(_LEAST_MS, deadline - time.monotonic_ns() // 1_000_000))


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_running.clear)  # they are the parent's
