"""Servers that run until a signal ends them, for the command line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import gevent
import gevent.event

from mqproto.adapters.gevent.runtime import RUNTIME
from mqproto.adapters.sync.servers import SyncServer

if TYPE_CHECKING:
    from mqproto.adapters.servers.server_setup import Opened


class _Server(SyncServer):
    _runtime = RUNTIME


def run_until_signal(
    plan: Callable[[], Sequence[Opened]], announce: Callable[[Sequence[Opened]], None], backend: str = ""
) -> None:
    """See `mqproto.adapters.threaded.run_until_signal`. `backend` is not used: there is one hub."""
    asked = gevent.event.Event()
    watchers = [gevent.signal_handler(number, asked.set) for number in (signal.SIGINT, signal.SIGTERM)]
    with _Server(plan) as server:
        announce(server.opened)
        asked.wait()
    for watcher in watchers:
        watcher.cancel()
