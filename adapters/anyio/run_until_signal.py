"""Servers that run until a signal ends them, for the command line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from mqproto.adapters.anyio.runtime import RUNTIME
from mqproto.adapters.coroutines.servers import AsyncServer

if TYPE_CHECKING:
    from mqproto.adapters.servers.server_setup import Opened


class _Server(AsyncServer):
    _runtime = RUNTIME


def run_until_signal(
    plan: Callable[[], Sequence[Opened]], announce: Callable[[Sequence[Opened]], None], backend: str = "asyncio"
) -> None:
    """See `mqproto.adapters.threaded.run_until_signal`. `backend` is "asyncio" or "trio"."""
    anyio.run(_run, plan, announce, backend=backend)


async def _run(plan: Callable[[], Sequence[Opened]], announce: Callable[[Sequence[Opened]], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with _Server(plan) as server:
            announce(server.opened)
            async for _ in signals:
                break
