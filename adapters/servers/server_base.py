"""Base of embedded servers, whatever drives them; runtimes add `start`, `close` and the context manager.

What a server is made from (`mqproto.adapters.servers.server_setup`) is imported when one starts: a program that only
sends loads no broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqproto.adapters.io.lifecycle import Lifecycle
from mqproto.errors import StateError

if TYPE_CHECKING:
    from mqproto.adapters.servers.server_setup import Opened

#: What a server is, for logs and names of threads.
BROKER: Final = "broker"
NAME_SERVER: Final = "name server"


class BaseServer:
    """One or more servers that start and close together."""

    def __init__(self, plan: Callable[[], Sequence[Opened]]) -> None:
        self._plan = plan
        #: What is open; empty before the start.
        self.opened: Sequence[Opened] = ()
        self._lifecycle = Lifecycle("server")

    def _find(self, role: str) -> Opened:
        for opened in self.opened:
            if opened.role == role:
                return opened
        raise StateError(f"the {role} is not started")

    def _clean_up(self) -> None:
        for opened in self.opened:
            opened.clean_up()


class BaseNameServer(BaseServer):
    """A name server in this process.

    It listens on loopback and a free port unless told otherwise. `directory` keeps the KV configuration; without it
    nothing outlives the server. `settings` are by Apache's keys, values as in its files. Starting raises
    InvalidSetting, PortTaken or ListenFailed.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:

        def plan() -> Sequence[Opened]:
            from mqproto.adapters.servers.server_setup import NameServerOptions

            return (NameServerOptions(host=host, port=port, directory=directory, settings=settings or {}).open(),)

        super().__init__(plan)

    @property
    def address(self) -> str:
        """`host:port` for brokers and clients."""
        return self._find(NAME_SERVER).address


class BaseBroker(BaseServer):
    """A broker in this process, registered with the name servers `namesrv` (`host:port;host:port`, empty for none).

    It listens on loopback and a free port (and another two below it) unless told otherwise. `store` is the data
    directory; without it the broker gets a temporary one that goes with it. `recover` says what to do about damaged
    data: "refuse" to start (StoreDamaged), "skip" it and keep what is good behind it, or "cut" the log there.
    `settings` are by Apache's keys, values as in `broker.conf`. Starting ends when the broker is registered; it raises
    InvalidSetting, PortTaken, ListenFailed, StoreLocked, StoreUnwritable or StoreDamaged.
    """

    def __init__(
        self,
        namesrv: str = "",
        host: str | None = None,
        port: int | None = None,
        *,
        store: str | os.PathLike[str] | None = None,
        recover: str = "refuse",
        settings: Mapping[str, str] | None = None,
    ) -> None:

        def plan() -> Sequence[Opened]:
            from mqproto.adapters.servers.server_setup import BrokerOptions

            options = BrokerOptions(
                host=host, port=port, namesrv=namesrv, store=store, recover=recover, settings=settings or {}
            )
            return (options.open(),)

        super().__init__(plan)

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return self._find(BROKER).address

    @property
    def directory(self) -> Path | None:
        """Where the data are."""
        return self._find(BROKER).directory


class BaseStandalone(BaseServer):
    """A name server and a broker that is registered with it, in this process. See `BaseBroker` for the arguments."""

    def __init__(
        self,
        host: str | None = None,
        namesrv_port: int = 0,
        port: int | None = None,
        *,
        store: str | os.PathLike[str] | None = None,
        recover: str = "refuse",
        settings: Mapping[str, str] | None = None,
    ) -> None:

        def plan() -> Sequence[Opened]:
            from mqproto.adapters.servers.server_setup import StandaloneOptions

            return StandaloneOptions(
                host=host, namesrv_port=namesrv_port, port=port, store=store, recover=recover, settings=settings or {}
            ).open()

        super().__init__(plan)

    @property
    def namesrv_address(self) -> str:
        """`host:port` of the name server: what clients are given."""
        return self._find(NAME_SERVER).address

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker."""
        return self._find(BROKER).address

    @property
    def directory(self) -> Path | None:
        """Where the broker's data are."""
        return self._find(BROKER).directory
