"""Port of a runtime in which waiting is a plain call: what it brings for clients and servers.

Nothing in this package knows which one it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from socket import socket
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, TypeVarTuple

from mqproto.adapters.base.instances import Instances
from mqproto.state.node.contract import Node, Ticket

if TYPE_CHECKING:
    from mqproto.adapters.io.tls import TlsClient

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Ts = TypeVarTuple("Ts")

#: How many callbacks of futures run at a time.
CALLBACKS_AT_A_TIME: Final = 4


class SyncDriver(Protocol):
    """Driver as clients and servers use it: see `mqproto.adapters.threaded.Driver`."""

    failure: BaseException | None
    tls: TlsClient | None

    def is_over(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self, timeout: float = 10.0) -> bool: ...
    def enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T: ...
    def enter_from_pool(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T: ...
    def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T: ...
    def outcome(self, ticket: Ticket[T]) -> T: ...
    def give_up(self, ticket: Ticket[Any]) -> None: ...
    def launch(
        self,
        wake: Callable[[], None],
        verb: Callable[[*Ts, int], Ticket[T]],
        arguments: tuple[*Ts],
        together: bool = False,
    ) -> Ticket[T]: ...


class Pool(Protocol):
    """Pool that runs work beside the caller, a limited number at a time."""

    def submit(self, work: Callable[[], object]) -> bool: ...
    def grow(self, limit: int) -> None: ...
    def close(self, timeout: float) -> bool: ...


class SyncRuntime(Protocol):
    """Runtime as clients and servers use it."""

    def driver(
        self,
        node: Node,
        listeners: Mapping[str, socket],
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        notices: deque[str] | None,
        name: str,
    ) -> SyncDriver: ...

    @property
    def instances(self) -> Instances[SyncDriver]:
        """The client instances of this runtime."""

    def pool(self, name: str, limit: int) -> Pool: ...

    def future(self, pool: Pool, read: Callable[[Ticket[Any]], Any]) -> OpenFuture[Any]:
        """A future whose callbacks run in the pool; `read` is the driver's `outcome`."""

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        """It came to the application's code in a pool: have whom it is meant for hear of it."""

    def beside(self, work: Callable[[], T]) -> T:
        """Do something that may block and wait for it, without stopping others."""


class AnySendFuture(Protocol[T_co]):
    """Future of any runtime: what `concurrent.futures.Future` and its like have in common.

    Callbacks get the future and may use the producer.
    """

    def result(self, timeout: float | None = None) -> T_co: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def done(self) -> bool: ...
    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...


class OpenFuture(AnySendFuture[T], Protocol[T]):
    """Future as it is for whoever starts the operation behind it: see `mqproto.adapters.io.outcome.Outcome`."""

    ticket: Ticket[T]
    room: Ticket[None] | None

    def ended(self) -> None: ...
    def set_result(self, result: T) -> None: ...
    def set_exception(self, exception: BaseException | None) -> None: ...
