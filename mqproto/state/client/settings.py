"""Settings of a client node, with Apache's defaults (docs/protocol/client.md 1.9), and who the client is.

Names are snake_case forms of Apache's; times are milliseconds. `check` raises `InvalidSetting` and is called before
anything starts. Leaves to others: settings of producers and consumers (`settings` of their rooms), environment
variables, host names and process ids (adapters).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from mqproto.acl import Credentials, check_credentials
from mqproto.state.cluster.addresses import check_address
from mqproto.validation import LONGEST_MS, check_namespace, check_range


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Identity of a client node. The adapter makes it: a node reads no host names, process ids or random sources.

    `ip` is the text of an IPv4 or IPv6 address (docs/protocol/client.md CI-2); `instance_name` is already replaced
    where it was "DEFAULT" (CI-4: process id, "#", a number that no other instance of the process has); `seed` spreads
    clients over name servers, brokers and queues and keeps unique ids of one process apart; `utc_offset_ms` is local
    time minus UTC, which unique ids hold.
    """

    ip: str
    process_id: int
    instance_name: str
    seed: int = 0
    utc_offset_ms: int = 0


@dataclass(slots=True)
class ClientSettings:
    """Settings that all producers and consumers of a node share."""

    #: `host:port` of the name servers.
    name_servers: tuple[str, ...] = ()
    unit_name: str = ""
    unit_mode: bool = False
    #: Whether requests that Apache lets go there use the broker's second port (docs/protocol/client.md 1.8).
    vip_channel: bool = False
    tls: bool = False
    poll_name_server_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    #: Limit of calls that the node makes on its own behalf: routes, heartbeats, unregistering.
    api_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    #: A connection without traffic for this long is closed.
    max_idle_ms: int = 120_000
    #: Operations of the application that may be in flight at once; one more fails with `TooManyRequests`.
    in_flight_limit: int = 65_535
    #: How long `close` waits for operations in flight, consumers and brokers.
    close_timeout_ms: int = 3_000
    #: What requests are signed with; None leaves them unsigned.
    credentials: Credentials | None = field(default=None, repr=False)
    #: Address server that names the name servers; used when none are given (docs/protocol/client.md 1.4).
    address_server: str = ""
    #: Topics and groups of the application live in this namespace; empty for none (docs/protocol/client.md 1.8).
    namespace: str = ""
    #: A namespace that travels beside the names, for proxies and brokers of 5.2 and later.
    namespace_v2: str = ""
    #: Whether this is a client that pulls: its id and all its requests say so since 4.9.4 (docs/protocol/client.md
    #: CI-1, 9).
    stream: bool = False

    def connection_key(self) -> Hashable:
        """Equal for clients that reach the same cluster in the same way, so that they can share connections."""
        account = self.credentials if isinstance(self.credentials, Hashable) else id(self.credentials)
        return (
            self.name_servers,
            self.address_server,
            self.tls,
            self.vip_channel,
            self.unit_name,
            self.unit_mode,
            self.namespace,
            self.namespace_v2,
            account,
        )

    def check(self) -> None:
        """Raises `InvalidSetting` for the first value that cannot be used."""
        for address in self.name_servers:
            check_address("name_servers", address)
        if self.namespace:
            check_namespace(self.namespace)
        if self.namespace_v2:
            check_namespace(self.namespace_v2)
        for key in (
            "poll_name_server_interval_ms",
            "heartbeat_broker_interval_ms",
            "api_timeout_ms",
            "connect_timeout_ms",
            "max_idle_ms",
            "close_timeout_ms",
        ):
            check_range(key, getattr(self, key), 1, LONGEST_MS)
        if self.credentials is not None:
            check_credentials(self.credentials)
        check_range("in_flight_limit", self.in_flight_limit, 1, 1 << 24)
