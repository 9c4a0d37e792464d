"""Servers in this process, each driven by tasks of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

from mqproto.adapters.anyio.driver import Driver
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.adapters.servers.server_base import BaseBroker, BaseNameServer, BaseServer, BaseStandalone

if TYPE_CHECKING:
    from mqproto.adapters.servers.server_setup import Opened


class AsyncServer(BaseServer):
    """A server that starts and closes by coroutines. `async with` does both."""

    def __init__(self, plan: Callable[[], Sequence[Opened]]) -> None:
        super().__init__(plan)
        self._drivers: list[Driver] = []

    async def start(self) -> Self:
        """Open and serve; ends when clients can use it. Only once: raises StateError after that."""
        self._lifecycle.start()
        try:
            self.opened = await anyio.to_thread.run_sync(self._plan)
            for one in self.opened:
                driver = Driver(
                    one.node, one.listeners, notices=one.notices, name=f"mqproto-{one.role.replace(' ', '-')}"
                )
                self._drivers.append(driver)
            for driver in self._drivers:
                await driver.start()
            for driver, opened in zip(self._drivers, self.opened, strict=True):
                if opened.ready is not None:
                    await driver.wait(opened.ready)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise
        return self

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Stop in order: connections end, the store is made durable. Twice, or before the start, is harmless."""
        if not self._lifecycle.close():
            return
        for driver in reversed(self._drivers):  # a broker unregisters at the name server, so that goes last
            await driver.stop(timeout_ms / 1000)
        await anyio.to_thread.run_sync(self._clean_up)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # the time-out bounds it; a cancelled server still ends in order
            await self.close()


class NameServer(BaseNameServer, AsyncServer):
    __doc__ = BaseNameServer.__doc__


class Broker(BaseBroker, AsyncServer):
    __doc__ = BaseBroker.__doc__


class Standalone(BaseStandalone, AsyncServer):
    __doc__ = BaseStandalone.__doc__
