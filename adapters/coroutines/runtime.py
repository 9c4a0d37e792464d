"""Port of a runtime whose methods are coroutines: what it brings for clients and servers.

Nothing in this package knows which one it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from socket import socket
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, TypeVarTuple

from mqproto.adapters.base.instances import Instances
from mqproto.state.node.contract import Node, Ticket

if TYPE_CHECKING:
    from mqproto.adapters.io.tls import TlsClient

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class AsyncDriver(Protocol):
    """Driver as clients and servers use it: see `mqproto.adapters.anyio.Driver`."""

    failure: BaseException | None
    tls: TlsClient | None
    #: Whether its loop runs, or has run.
    begun: bool

    @property
    def ending(self) -> bool: ...
    def is_over(self) -> bool: ...
    async def start(self) -> None: ...
    async def stop(self, timeout: float = 10.0, *, from_inside: bool = False) -> bool: ...
    def enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T: ...
    async def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T: ...
    def check_home(self) -> None: ...
    def soon(self, work: Callable[[*Ts], Coroutine[Any, Any, object]], *arguments: *Ts) -> None: ...
    def signal(self) -> tuple[Awaitable[object], Callable[[], object]]: ...


class Scope(Protocol):
    """Part of a task that can be cancelled alone (`with`)."""

    @property
    def cancel_called(self) -> bool: ...
    def cancel(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: Any) -> bool | None: ...


class Threads(Protocol):
    """Limit of the threads that run plain functions of the application."""

    @property
    def total_tokens(self) -> float: ...
    @total_tokens.setter
    def total_tokens(self, value: float) -> None: ...


class AsyncRuntime(Protocol):
    """Runtime as clients and servers use it."""

    @property
    def instances(self) -> Instances[Any]:
        """The client instances of this runtime."""

    @property
    def cancelled(self) -> type[BaseException]:
        """The exception by which a task of the present event loop is cancelled."""

    def driver(
        self,
        node: Node,
        listeners: Mapping[str, socket],
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        notices: deque[str] | None,
        name: str,
    ) -> AsyncDriver: ...

    def scope(self) -> Scope: ...

    def shield(self) -> AbstractContextManager[object]:
        """Around what goes on to its end although the task is cancelled."""

    def turns(self, limit: int) -> AbstractAsyncContextManager[object]:
        """Lets so many tasks through at a time, in their order."""

    def threads(self, limit: int) -> Threads: ...

    async def checkpoint(self) -> None:
        """Let others run, and end here if the task is cancelled."""

    async def in_thread(self, work: Callable[[], T], *, threads: Any = None, abandon: bool = False) -> T:
        """Call a plain function in a thread, one of `threads` if there are any. With `abandon` it is left alone when
        the caller is cancelled, else it is waited for.
        """

    def interrupted(self, interrupt: BaseException) -> None:
        """It came to the application's code in a task of a driver's: bring it to whoever runs the event loop."""

    async def beside(self, work: Callable[[], T]) -> T:
        """Do something that may block and wait for it, without stopping others."""
