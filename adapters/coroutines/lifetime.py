"""End of clients whose methods are coroutines, and the tasks that end with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, Final

from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.instances import Instance
from mqproto.adapters.coroutines.runtime import AsyncDriver, AsyncRuntime, Scope
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.errors import StateError

#: The driver that the present task belongs to, and the scope that a client put around what runs in it.
_inside: Final[ContextVar[tuple[AsyncDriver, Scope] | None]] = ContextVar("mqproto_inside", default=None)


class AsyncLifetime(BaseClient):
    """Lifetime of a client: the instance that it belongs to, and its tasks."""

    _runtime: ClassVar[AsyncRuntime]
    _driver: AsyncDriver
    _instance: Instance[AsyncDriver] | None = None
    _scopes: set[Scope]

    def _new_pool(self, purpose: str, limit: int) -> Tasks:
        """A pool of tasks that end with the client."""
        return Tasks(self, limit)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End cleanly within `timeout_ms`. Twice, or before the start, is harmless: it does not wait for a close that
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

    async def _give_up_start(self) -> None:
        """End after a start that has failed or was cancelled."""
        self._lifecycle.close()
        with self._runtime.shield():
            await self._end(CLOSE_TIMEOUT_MS)

    async def _end(self, timeout_ms: int) -> None:
        """Leave the instance, as far as it has come about. Twice is harmless."""
        instance = self._instance
        if instance is None:
            return
        driver = instance.driver
        driver_timeout = self._close_within(timeout_ms)
        inside = _inside.get()
        if self._runtime.instances.leave(instance, self):
            if driver.begun and driver.is_over():
                return
            try:
                with self._runtime.shield():
                    async with instance.lock:  # who is about to start the driver does that first, or not at all
                        pass
            finally:
                await driver.stop(driver_timeout, from_inside=inside is not None and inside[0] is driver)
            return
        if self._has_joined:
            with suppress(StateError):  # the others have closed meanwhile, and this one with them
                await driver.wait(self._begin_close, timeout_ms)
        for scope in self._scopes:
            if inside is None or scope is not inside[1]:
                scope.cancel()

    @contextmanager
    def _cancelled_at_close(self) -> Iterator[None]:
        """Around what runs for the application in a task of the driver's, which may live longer than this client."""
        with self._runtime.scope() as scope:
            self._scopes.add(scope)
            token = _inside.set((self._driver, scope))
            try:
                yield
            finally:
                _inside.reset(token)
                self._scopes.discard(scope)

    def _is_cancelled(self, error: BaseException) -> bool:
        """Whether an exception in a task of the client says that all of it ends."""
        inside = _inside.get()
        ending = self._driver.ending or (inside is not None and inside[1].cancel_called)
        return ending and isinstance(error, self._runtime.cancelled)

    async def _called(self, function: Callable[..., Any], *arguments: object, pool: Tasks | None = None) -> object:
        """What a function of the application gives: awaited if it is a coroutine function, else run in a thread.

        A thread of a pool is left alone when the caller is cancelled, any other is waited for.
        """
        if is_coroutine_function(function):
            return await function(*arguments)
        work = partial(function, *arguments)
        if pool is None:
            result = await self._runtime.in_thread(work)
        else:
            result = await self._runtime.in_thread(work, threads=pool.threads, abandon=True)
        return await result if inspect.isawaitable(result) else result


class Tasks:
    """Pool of tasks that run work for a client, `limit` at a time, and are cancelled when it is closed."""

    __slots__ = ("_client", "_turns", "threads")

    def __init__(self, client: AsyncLifetime, limit: int) -> None:
        self._client = client
        self._turns = client._runtime.turns(limit)
        #: For plain functions that the work calls.
        self.threads = client._runtime.threads(limit)

    def submit(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Have a coroutine function run, which must not raise."""
        self._client._driver.soon(self._run, work)

    async def _run(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        with self._client._cancelled_at_close():
            async with self._turns:
                await work()


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether the application's function, or object that is called like one, gives a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  # an object whose call is a coroutine function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
