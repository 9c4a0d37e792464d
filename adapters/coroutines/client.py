"""Start and end of clients whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel

from mqproto.adapters.anyio.driver import Driver
from mqproto.adapters.anyio.stacks import task_stacks
from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.instances import Instance, Instances, deliver
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.errors import StateError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def _driver_of(instance: Instance[Any], name: str) -> Driver:
    node = instance.node
    node.stacks = task_stacks
    return Driver(node, {}, deliver, node.cancel, node.notices, name=name)


#: Clients of different event loops cannot share.
INSTANCES: Final[Instances[Driver]] = Instances(_driver_of, anyio.Lock, anyio.lowlevel.current_token)
#: The driver that the present task belongs to, and the scope that a client put around what runs in it.
_inside: Final[ContextVar[tuple[Driver, anyio.CancelScope] | None]] = ContextVar("mqproto_inside", default=None)


class AsyncClient(BaseClient):
    """What all kinds of clients share: `async with` starts and closes."""

    _driver: Driver
    _instance: Instance[Driver] | None = None

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
        self._scopes: set[anyio.CancelScope] = set()
        try:
            self._prepare()
            instance = INSTANCES.join(self)
            self._driver = instance.driver
            async with instance.lock:
                self._lifecycle.check()  # closed by somebody else meanwhile
                if not instance.started:
                    await self._driver.start()
                    instance.started = True
            await self._driver.wait(self._begin_start)
        except BaseException:
            self._lifecycle.close()
            with anyio.CancelScope(shield=True):
                await self._end(CLOSE_TIMEOUT_MS)
            raise
        return self

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End in order within `timeout_ms`. Twice, or before the start, is harmless: it does not wait for a close that
        is under way.

        Raises StateError outside of the event loop that it was started in, unless that one has ended.
        """
        if (
            self._lifecycle.running
            and self._instance is not None
            and self._instance.started
            and not self._driver.is_over()
        ):
            self._driver.check_home()
        if self._lifecycle.close():
            await self._end(timeout_ms)

    async def _end(self, timeout_ms: int) -> None:
        """Leave the instance, as far as it has come about. Twice is harmless."""
        instance = self._instance
        if instance is None:
            return
        driver = instance.driver
        patience = self._close_within(timeout_ms)
        inside = _inside.get()
        if INSTANCES.leave(instance, self):
            if driver.begun and driver.is_over():
                return
            try:
                with anyio.CancelScope(shield=True):
                    async with instance.lock:  # who is about to start the driver does that first, or not at all
                        pass
            finally:
                await driver.stop(patience, from_inside=inside is not None and inside[0] is driver)
            return
        if self._has_joined:
            with suppress(StateError):  # the others have closed meanwhile, and this one with them
                await driver.wait(self._begin_close, timeout_ms)
        for scope in self._scopes:
            if inside is None or scope is not inside[1]:
                scope.cancel()

    @contextmanager
    def _cancelled_at_close(self) -> Iterator[anyio.CancelScope]:
        """Around what runs for the application in a task of the driver's, which others may need for longer than this
        client lives.
        """
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            token = _inside.set((self._driver, scope))
            try:
                yield scope
            finally:
                _inside.reset(token)
                self._scopes.discard(scope)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # the time-out bounds it; a cancelled client still ends in order
            await self.close()
