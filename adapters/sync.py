"""The waiting faces of servers, for every runtime in which waiting is a plain call (threads, greenlets)."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from socket import socket
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeVar, TypeVarTuple

from adapters.servers import BrokerFace, NameServerFace, ServerFace, StandaloneFace
from mqproto.state.node import Node, Ticket

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: How long closing may take unless the caller says otherwise.
CLOSE_TIMEOUT_MS = 10_000


class Driver(Protocol):
    """See `adapters.threaded.Driver`."""

    def start(self) -> None: ...
    def stop(self, timeout: float = 10.0) -> bool: ...
    def enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T: ...
    def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T: ...
    def launch(self, wake: Callable[[], None], verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> Ticket[T]: ...


class Pool(Protocol):
    """Runs work beside the caller, a limited number at a time."""

    def submit(self, work: Callable[[], object]) -> bool: ...
    def close(self, timeout: float) -> bool: ...


class Kit(Protocol):
    """What a runtime brings."""

    def driver(
        self,
        node: Node,
        listeners: Mapping[str, socket],
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        remarks: deque[str] | None,
        name: str,
    ) -> Driver: ...

    def pool(self, name: str, limit: int) -> Pool: ...

    def beside(self, work: Callable[[], T]) -> T:
        """Do something that may block and wait for it, without stopping others."""


class SyncServer(ServerFace):
    """A server that starts and closes by plain calls. `with` does both."""

    _kit: ClassVar[Kit]

    def __init__(self, plan: Callable[[], Sequence[Any]]) -> None:
        super().__init__(plan)
        self._drivers: list[Driver] = []

    def start(self) -> Self:
        """Open and serve; ends when clients can use it. Only once: raises StateError after that."""
        self._life.start()
        atexit.register(self.close)
        try:
            self._opened = self._kit.beside(self._plan)
            self._drivers = [
                self._kit.driver(one.node, one.listeners, None, None, one.remarks, f"mqproto-{one.role.replace(' ', '-')}")
                for one in self._opened
            ]
            for driver in self._drivers:
                driver.start()
            for driver, opened in zip(self._drivers, self._opened, strict=True):
                if opened.ready is not None:
                    driver.wait(opened.ready)
        except BaseException:
            self.close()
            raise
        return self

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Stop in order: connections end, the store is made durable. Twice, or before the start, is harmless."""
        if not self._life.close():
            return
        atexit.unregister(self.close)
        for driver in reversed(self._drivers):  # a broker unregisters at the name server, so that goes last
            driver.stop(timeout_ms / 1000)
        self._kit.beside(self._clean_up)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class SyncNameServer(NameServerFace, SyncServer):
    __doc__ = NameServerFace.__doc__


class SyncBroker(BrokerFace, SyncServer):
    __doc__ = BrokerFace.__doc__


class SyncStandalone(StandaloneFace, SyncServer):
    __doc__ = StandaloneFace.__doc__
