"""Start and end of clients for every runtime in which waiting is a plain call."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import ClassVar, Self, TypeVar, TypeVarTuple

from adapters.driving import CLOSE_TIMEOUT_MS
from adapters.faces.client import ClientFace
from adapters.faces.instances import Instance
from adapters.sync.kit import Driver, Kit
from mqproto.errors import StateError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SyncClient(ClientFace):
    """What all kinds of clients share: `with` starts and closes."""

    _kit: ClassVar[Kit]
    _driver: Driver
    _instance: Instance[Driver] | None = None

    def _enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T:
        return self._driver.enter(verb, *arguments)

    def _prepare(self) -> None:
        """Make what the client needs besides its instance, before the start."""

    def _clean_up(self, seconds: float) -> None:
        """End what `_prepare` has made; may wait for so long."""

    def start(self) -> Self:
        """Begin; ends when the client can be used. Only once: raises StateError after that, and when the instance that it shares has
        a client of the same kind and group. What the start meets (NoNameServer and other MQErrors) is raised; the client is closed then.
        """
        self._life.start()
        atexit.register(self.close)
        try:
            self._prepare()
            self._instance = self._kit.instances.join(self)
            self._driver = self._instance.driver
            with self._instance.lock:
                if not self._instance.started:
                    self._driver.start()
                    self._instance.started = True
            self._driver.wait(self._begin_start)
        except BaseException:
            self.close()
            raise
        return self

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End in order within `timeout_ms`. Twice, or before the start, is harmless."""
        running = self._life.close()
        atexit.unregister(self.close)
        if not running:
            return
        deadline = time.monotonic() + timeout_ms / 1000
        if self._instance is not None:
            patience = self._close_within(timeout_ms)
            if self._kit.instances.leave(self._instance, self):
                self._driver.stop(patience)
            else:
                with suppress(StateError):  # the others have closed meanwhile, and this one with them
                    self._driver.wait(self._begin_close, timeout_ms)
        self._clean_up(max(0.0, deadline - time.monotonic()))

    def update_name_server_addresses(self, namesrv: str | Sequence[str]) -> None:
        """Ask these name servers from now on, `host:port;host:port` or a sequence. Links to others end, and what they were asked is asked
        of the new ones; known routes stay. Clients that share an instance share the list. No address server is asked any more.

        Before or after the start. Raises InvalidSetting, and StateError after the end.
        """
        addresses = self._check_name_servers(namesrv)
        if self._life.running:
            self._driver.enter(self._node.set_name_servers, addresses)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
