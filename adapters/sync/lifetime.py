"""End of clients for every runtime in which waiting is a plain call, and the pools that end with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Final

from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.instances import Instance
from mqproto.adapters.io.exits import forget
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.adapters.sync.runtime import Pool, SyncDriver, SyncRuntime
from mqproto.errors import StateError

#: How long the threads of a pool get to end at least: those that have nothing to do need a moment.
_POOL_S: Final = 0.05


class SyncLifetime(BaseClient):
    """Lifetime of a client: the instance that it belongs to, and its pools."""

    _runtime: ClassVar[SyncRuntime]
    _driver: SyncDriver
    _instance: Instance[SyncDriver] | None = None
    _pools: tuple[Pool, ...] = ()

    def _new_pool(self, purpose: str, limit: int) -> Pool:
        """A pool that ends with the client: the last one first."""
        pool = self._runtime.pool(f"{self._name()}-{purpose}", limit)
        self._pools = (pool, *self._pools)
        return pool

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End cleanly within `timeout_ms`.

        Twice, or before the start, is harmless: it does not wait for a close that is under way.
        """
        try:
            if self._lifecycle.close():
                self._end(timeout_ms)
            else:
                forget(self)
        except BaseException:
            self._let_end(timeout_ms)
            raise

    def _give_up_start(self) -> None:
        """End after a start that has failed or was interrupted."""
        try:
            self._lifecycle.close()
            # also where somebody else has closed it, who may have come before the instance
            self._end(CLOSE_TIMEOUT_MS)
        except BaseException:
            self._let_end(CLOSE_TIMEOUT_MS)
            raise

    def _end(self, timeout_ms: int) -> None:
        """Leave the instance and end the pools, as far as they have come about. Twice is harmless."""
        deadline = time.monotonic() + timeout_ms / 1000
        forget(self)
        if self._instance is not None:
            self._leave(self._instance, timeout_ms)
        for pool in self._pools:
            pool.close(max(_POOL_S, deadline - time.monotonic()))

    def _let_end(self, timeout_ms: int) -> None:
        """Have it end by itself, without waiting, however far it has come: an interrupt came to whoever closes it."""
        forget(self)
        for pool in self._pools:
            pool.close(0.0)
        instance = self._instance
        if instance is not None:
            alone = self._runtime.instances.leave(instance, self)
            with suppress(StateError):
                if alone:
                    instance.driver.enter(instance.node.close)
                elif self._has_joined:
                    instance.driver.enter(self._begin_close, timeout_ms)

    def _leave(self, instance: Instance[SyncDriver], timeout_ms: int) -> None:
        driver_timeout = self._close_within(timeout_ms)
        if not self._runtime.instances.leave(instance, self):
            if self._has_joined:
                with suppress(StateError):  # the others have closed meanwhile, and this one with them
                    instance.driver.wait(self._begin_close, timeout_ms)
            return
        with instance.lock:  # who is about to start the driver does that first, or not at all
            pass
        instance.driver.stop(driver_timeout)

    def _begin_exit(self) -> None:
        """For `exits`."""
        if self._instance is not None and self._instance.started:
            self._close_within(CLOSE_TIMEOUT_MS)
            with suppress(StateError):  # it has ended already
                self._instance.driver.enter(self._node.close)

    def _called(self, function: Callable[..., Any], *arguments: object, pool: Pool | None = None) -> object:
        """What a function of the application gives, here and now: the caller is in the pool already."""
        return function(*arguments)
