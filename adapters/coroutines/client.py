"""Start of clients whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar, TypeVarTuple

from mqproto.adapters.coroutines.lifetime import AsyncLifetime

# sync: from mqproto.adapters.io.exits import remember

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class AsyncClient(AsyncLifetime):
    """Client of any kind: `async with` starts and closes it."""

    def _enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T:
        return self._driver.enter(verb, *arguments)

    def _prepare(self) -> None:
        """Make what the client needs besides its instance, before the start."""

    async def start(self) -> Self:
        """Begin; ends when the client can be used. Only once: raises StateError after that, and when the instance that
        it shares has a client of the same kind and group. What the start meets (NoNameServer and other MQErrors) is
        raised; the client is closed then.
        """
        self._lifecycle.start()
        self._scopes = set()  # async only
        try:
            # sync: remember(self)
            self._prepare()
            instance = self._runtime.instances.join(self)
            self._driver = instance.driver
            async with instance.lock:
                self._lifecycle.check()  # closed by somebody else meanwhile
                if not instance.started:
                    await self._driver.start()
                    instance.started = True
            await self._driver.wait(self._begin_start)
        except BaseException:
            await self._give_up_start()
            raise
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # the time-out bounds it; a cancelled client still ends cleanly
        with self._runtime.shield():  # async only
            await self.close()
