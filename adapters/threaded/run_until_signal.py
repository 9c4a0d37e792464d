"""Servers that run until a signal ends them, for the command line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mqproto.adapters.sync.servers import SyncServer
from mqproto.adapters.threaded.runtime import RUNTIME
from mqproto.adapters.threaded.wakeup import Wakeup

if TYPE_CHECKING:
    from mqproto.adapters.servers.server_setup import Opened


class _Server(SyncServer):
    _runtime = RUNTIME


def run_until_signal(
    plan: Callable[[], Sequence[Opened]], announce: Callable[[Sequence[Opened]], None], backend: str = ""
) -> None:
    """Open what `plan` opens, call `announce` when clients can use it, and serve until SIGINT or SIGTERM.

    To be called in the main thread.

    Raises what opening raises. `backend` is not used: there is one kind of threads.
    """
    with Wakeup(signal.SIGINT, signal.SIGTERM) as wakeup, _Server(plan) as server:
        announce(server.opened)
        wakeup.wait()
