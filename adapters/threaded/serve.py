"""Servers that run until a signal ends them, for the command line."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from adapters.sync.servers import SyncServer
from adapters.threaded.kit import KIT

if TYPE_CHECKING:
    from adapters.serving import Opened


class _Server(SyncServer):
    _kit = KIT


def serve(plan: Callable[[], Sequence[Opened]], announce: Callable[[Sequence[Opened]], None], backend: str = "") -> None:
    """Open what `plan` opens, call `announce` when clients can use it, and serve until SIGINT or SIGTERM. From the main thread.

    Raises what opening raises. `backend` is not used: there is one kind of threads.
    """
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    with _Server(plan) as server:
        announce(server.opened)
        asked.wait()
