"""Base of all clients: what all kinds share and what is independent of waiting.

Owns: settings and identity of a client, which instance (node and driver) it belongs to while it runs.
Leaves to others: the protocol (`mqproto.state`), waiting, threads and tasks (runtimes), the table (`instances`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from mqproto.adapters.base.settings.client_settings import client_settings, name_server_list, text_option, tls_options
from mqproto.adapters.base.settings.options import ClientOptions
from mqproto.adapters.io.files import LocalOffsetFile
from mqproto.adapters.io.identity import client_identity
from mqproto.adapters.io.lifecycle import Lifecycle
from mqproto.errors import InvalidSetting
from mqproto.state.client.node import ClientNode, client_id
from mqproto.state.cluster.addresses import check_address
from mqproto.state.flows.effects import Flow, Wait
from mqproto.state.node.contract import Ticket
from mqproto.wire.names import wrap_namespace

if TYPE_CHECKING:
    from mqproto.adapters.io.tls import TlsClient

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Offset files of broadcasting consumers lie here, below the home directory (docs/protocol/client.md 5.4).
OFFSET_FOLDER: Final = ".rocketmq_offsets"


class BaseClient:
    """One client: a producer, a consumer. It has a node from its start on, alone or together with others (`instances`).

    A kind of client says what its start and its end mean inside the node: `_begin_start` and `_closing`.
    """

    _node: ClientNode
    _instance: Any = None
    #: Whether `_joined` has run to its end: else there is nothing of the client in the node.
    _has_joined = False

    def __init__(
        self, kind: str, namesrv: str | Sequence[str] | None, options: ClientOptions, *, keep_default_name: bool = False
    ) -> None:
        self._settings = client_settings(namesrv, options)
        self._identity = client_identity(
            text_option(options, "client_ip"), text_option(options, "instance_name"), keep_default=keep_default_name
        )
        self._tls_options = tls_options(options)
        #: What secures the connections; None leaves them plain.
        self._tls = self._make_tls() if self._settings.tls else None
        self._lifecycle = Lifecycle(kind)

    def _make_tls(self) -> TlsClient:
        from mqproto.adapters.base.settings.tls_settings import tls_client  # most programs need no OpenSSL

        return tls_client(self._tls_options)

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        return client_id(self._identity, self._settings.unit_name, stream=self._settings.stream)

    @property
    def _instance_key(self) -> Hashable:
        """Clients with equal keys share an instance: the same id, and the same cluster reached in the same way."""
        return self.client_id, self._settings.connection_key(), tuple(self._tls_options.values())

    def _name(self) -> str:
        """What threads and log lines are called."""
        raise NotImplementedError

    def _new_node(self) -> ClientNode:
        url = self._settings.address_server
        if not url:
            return ClientNode(self._settings, self._identity, None)
        from mqproto.adapters.base.address_server import AddressServer  # most programs need no HTTP

        return ClientNode(self._settings, self._identity, AddressServer(url))

    def _joined(self, node: ClientNode) -> None:
        """The node is this one now: called once, before the start."""
        self._node = node

    def _check_name_servers(self, namesrv: str | Sequence[str]) -> tuple[str, ...]:
        """The addresses of a list that shall take the place of the present one.

        Raises InvalidSetting, and StateError after the end.
        """
        if self._lifecycle.closed:
            self._lifecycle.check()
        addresses = name_server_list(namesrv)
        for address in addresses:
            check_address("namesrv", address)
        if not self._lifecycle.running:
            self._settings.name_servers = addresses
        return addresses

    def update_name_server_addresses(self, namesrv: str | Sequence[str]) -> None:
        """Ask these name servers from now on, `host:port;host:port` or a sequence. Links to others end, and what they
        were asked is asked of the new ones; known routes stay. Clients that share an instance share the list. No
        address server is asked any more.

        Before or after the start. Raises InvalidSetting, and StateError after the end.
        """
        addresses = self._check_name_servers(namesrv)
        if self._lifecycle.running:
            self._enter(self._node.set_name_servers, addresses)

    def _enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T:
        """Ask the node something while the client runs. Raises StateError when its driver has ended."""
        raise NotImplementedError

    def _open_offsets(self, group: str, options: Mapping[str, Any]) -> LocalOffsetFile:
        """The offset file of a broadcasting consumer of this client. Raises InvalidSetting when it cannot be read."""
        folder = Path(text_option(options, "local_offset_store_dir") or Path.home() / OFFSET_FOLDER)
        try:
            return LocalOffsetFile(folder, self.client_id, wrap_namespace(self._settings.namespace, group))
        except OSError as error:
            raise InvalidSetting(
                "local_offset_store_dir", folder, f"the offset file cannot be read: {error}"
            ) from error

    # Verbs for the driver.

    def _begin_start(self, now: int) -> Ticket[None]:
        """Register with the node; the ticket is settled when the client can be used."""
        raise NotImplementedError

    def _closing(self, now: int) -> Flow[None]:
        """Unregister, for a client that leaves a node which others still use."""
        raise NotImplementedError

    def _begin_close(self, timeout_ms: int, now: int) -> Ticket[None]:
        return self._node.start(self._closed_within(timeout_ms, now), now, limited=False)

    def _closed_within(self, timeout_ms: int, now: int) -> Flow[None]:
        yield Wait(self._node.spawn(self._closing(now), now), now + timeout_ms)

    def _deliver(self, task: Any) -> None:
        """Something for the application, outside the node; must not block."""
        raise NotImplementedError

    def _close_within(self, timeout_ms: int) -> float:
        """Bound the node's own steps at the end; gives the seconds after which the driver stops waiting for them."""
        self._node.settings.close_timeout_ms = max(1, timeout_ms)
        return timeout_ms / 1000 + 1.0
