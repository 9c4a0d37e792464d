"""Servers in this process whose methods are coroutines."""

from __future__ import annotations

# sync: import atexit
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from mqproto.adapters.coroutines.runtime import AsyncDriver, AsyncRuntime
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.adapters.servers.server_base import BaseBroker, BaseNameServer, BaseServer, BaseStandalone

if TYPE_CHECKING:
    from mqproto.adapters.servers.server_setup import Opened


class AsyncServer(BaseServer):
    """Server that starts and closes by coroutines. `async with` does both."""

    _runtime: ClassVar[AsyncRuntime]

    def __init__(self, plan: Callable[[], Sequence[Opened]]) -> None:
        super().__init__(plan)
        self._drivers: list[AsyncDriver] = []

    async def start(self) -> Self:
        """Open and serve; ends when clients can use it. Only once: raises StateError after that."""
        self._lifecycle.start()
        # sync: atexit.register(self.close)
        try:
            self.opened = await self._runtime.beside(self._plan)
            for one in self.opened:
                name = f"mqproto-{one.role.replace(' ', '-')}"
                self._drivers.append(self._runtime.driver(one.node, one.listeners, None, None, one.notices, name))
            for driver in self._drivers:
                await driver.start()
            for driver, opened in zip(self._drivers, self.opened, strict=True):
                if opened.ready is not None:
                    await driver.wait(opened.ready)
        except BaseException:
            with self._runtime.shield():  # async only
                await self.close()
            raise
        return self

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Stop cleanly: connections end, the store is made durable. Twice, or before the start, is harmless."""
        if not self._lifecycle.close():
            return
        # sync: atexit.unregister(self.close)
        for driver in reversed(self._drivers):  # a broker unregisters at the name server, so that goes last
            await driver.stop(timeout_ms / 1000)
        await self._runtime.beside(self._clean_up)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # the time-out bounds it; a cancelled server still ends cleanly
        with self._runtime.shield():  # async only
            await self.close()


class AsyncNameServer(BaseNameServer, AsyncServer):
    __doc__ = BaseNameServer.__doc__


class AsyncBroker(BaseBroker, AsyncServer):
    __doc__ = BaseBroker.__doc__


class AsyncStandalone(BaseStandalone, AsyncServer):
    __doc__ = BaseStandalone.__doc__
