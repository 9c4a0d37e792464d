"""Servers for every runtime in which waiting is a plain call (threads, greenlets)."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.adapters.servers.server_base import BaseBroker, BaseNameServer, BaseServer, BaseStandalone
from mqproto.adapters.sync.runtime import Runtime, SyncDriver


class SyncServer(BaseServer):
    """A server that starts and closes by plain calls. `with` does both."""

    _runtime: ClassVar[Runtime]

    def __init__(self, plan: Callable[[], Sequence[Any]]) -> None:
        super().__init__(plan)
        self._drivers: list[SyncDriver] = []

    def start(self) -> Self:
        """Open and serve; ends when clients can use it. Only once: raises StateError after that."""
        self._lifecycle.start()
        atexit.register(self.close)
        try:
            self.opened = self._runtime.beside(self._plan)
            self._drivers = [
                self._runtime.driver(
                    one.node, one.listeners, None, None, one.notices, f"mqproto-{one.role.replace(' ', '-')}"
                )
                for one in self.opened
            ]
            for driver in self._drivers:
                driver.start()
            for driver, opened in zip(self._drivers, self.opened, strict=True):
                if opened.ready is not None:
                    driver.wait(opened.ready)
        except BaseException:
            self.close()
            raise
        return self

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Stop in order: connections end, the store is made durable. Twice, or before the start, is harmless."""
        if not self._lifecycle.close():
            return
        atexit.unregister(self.close)
        for driver in reversed(self._drivers):  # a broker unregisters at the name server, so that goes last
            driver.stop(timeout_ms / 1000)
        self._runtime.beside(self._clean_up)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncNameServer(BaseNameServer, SyncServer):
    __doc__ = BaseNameServer.__doc__


class SyncBroker(BaseBroker, SyncServer):
    __doc__ = BaseBroker.__doc__


class SyncStandalone(BaseStandalone, SyncServer):
    __doc__ = BaseStandalone.__doc__
