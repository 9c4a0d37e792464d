"""What a client node and its producers can be told, with Apache's defaults (docs/protocol/client.md 1.9), and who they
are.

Names are snake_case forms of Apache's; times are milliseconds. `check` raises `InvalidSetting` and is called before
anything starts. Leaves to others: consumers' settings (`consumer`), environment variables, host names and process ids
(adapters).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mqproto.acl import Credentials, check_credentials
from mqproto.errors import InvalidSetting
from mqproto.validation import check_namespace, check_topic
from mqproto.wire.compression import Compression

#: Template topic whose route stands in for a topic that does not exist yet (docs/protocol/client.md 2.4).
CREATE_TOPIC_KEY: Final = "TBW102"


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who a client node is. All of it comes from the adapter: a node reads neither host names nor process ids nor
    random sources.

    `ip` is the text of an IPv4 or IPv6 address (docs/protocol/client.md CI-2); `instance_name` is already replaced
    where it was "DEFAULT" (CI-4: process id, "#", a number that no other instance of the process has); `seed` spreads
    clients over name servers, brokers and queues and tells unique ids of one process apart; `utc_offset_ms` is local
    time minus UTC, which unique ids hold.
    """

    ip: str
    process_id: int
    instance_name: str
    seed: int = 0
    utc_offset_ms: int = 0


def parse_addresses(text: str) -> tuple[str, ...]:
    """The addresses of a name server list as Apache writes it, `host:port;host:port` (docs/protocol/client.md 1.4);
    blanks are trimmed.
    """
    return tuple(bare_address(part) for part in (one.strip() for one in text.split(";")) if part)


def bare_address(address: str) -> str:
    """An address without the `http://` that one from a cloud's console may begin with (docs/protocol/client.md 1.4)."""
    return address.rpartition("/")[2] if address.startswith("http://") else address


def endpoint_namespace(address: str) -> str:
    """The namespace that the address of an instance names, as in `http://MQ_INST_1_x.host:port`; empty for other
    addresses.
    """
    found = _INSTANCE.match(address)
    return found.group(1) if found is not None else ""


_INSTANCE: Final = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.", re.ASCII)


def check_address(key: str, address: str) -> None:
    """Raises `InvalidSetting` unless `address` is `host:port`; the last colon splits, so IPv6 literals pass."""
    host, _, port = address.rpartition(":")
    if not host or "," in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= 65_535:
        raise InvalidSetting(key, address, "host:port expected, of several with a semicolon between two")


def check_range(key: str, value: int, low: int, high: int) -> None:
    """Raises `InvalidSetting` unless `low <= value <= high`."""
    if not low <= value <= high:
        raise InvalidSetting(key, value, f"must lie between {low} and {high}")


#: Longest time that a setting may name: a day. Longer ones are slips of a unit.
LONGEST_MS: Final = 86_400_000


@dataclass(slots=True)
class ClientSettings:
    """What all producers and consumers of a node share."""

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
    #: Where an address server tells the name servers; used when none are given (docs/protocol/client.md 1.4).
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


@dataclass(slots=True)
class ProducerSettings:
    """One producer (docs/protocol/client.md 1.9.2)."""

    group: str = "DEFAULT_PRODUCER"
    create_topic_key: str = CREATE_TOPIC_KEY
    #: Queues per broker that an automatically created topic gets.
    default_topic_queues: int = 4
    #: The budget of one send with all its attempts.
    send_timeout_ms: int = 3_000
    #: Bodies of this size and more are compressed.
    compress_body_over: int = 4_096
    compress_level: int = 5
    #: Further attempts of a send that waits for its result.
    retry_times: int = 2
    #: Further attempts of a send with a callback: only after a lost connection.
    retry_times_async: int = 2
    #: Try elsewhere when a broker stored the message but could not flush or replicate it in time.
    retry_another_broker_when_not_store_ok: bool = False
    max_message_size: int = 4_194_304
    #: Avoid brokers that were slow or failed lately (docs/protocol/client.md 3.4).
    latency_fault_tolerance: bool = False
    latency_max_ms: tuple[int, ...] = (50, 100, 550, 1_000, 2_000, 3_000, 15_000)
    not_available_ms: tuple[int, ...] = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
    #: Answer codes after which a send is tried elsewhere (docs/protocol/client.md 3.3).
    retry_codes: frozenset[int] = field(default_factory=lambda: frozenset({1, 14, 16, 17, 204, 205}))
    #: What may be in flight at once; further sends wait for room within their own budget. A message larger than the
    #: window passes alone.
    send_window_messages: int = 10_000
    send_window_bytes: int = 32 << 20
    #: LZ4 and Zstandard need the extra `compression`, here and at consumers, which must be 4.9.4 or later.
    compress_type: Compression = Compression.ZLIB
    #: Tell the trace topic of everything that is sent (docs/protocol/client.md 3.14); an empty topic means the usual
    #: one.
    enable_msg_trace: bool = False
    customized_trace_topic: str = ""
    #: How long one attempt may take while another can follow, so that a broker that says nothing does not use up the
    #: budget; -1: no limit.
    attempt_timeout_ms: int = -1

    def check(self) -> None:
        """Raises `InvalidSetting` for the first value that cannot be used.

        The group name is checked by the producer.
        """
        check_range("default_topic_queues", self.default_topic_queues, 1, 1_024)
        check_range("send_timeout_ms", self.send_timeout_ms, 1, LONGEST_MS)
        if self.attempt_timeout_ms != -1:
            check_range("attempt_timeout_ms", self.attempt_timeout_ms, 1, LONGEST_MS)
        check_range("compress_body_over", self.compress_body_over, 0, 1 << 31)
        check_range("compress_level", self.compress_level, 0, 9)
        check_range("retry_times", self.retry_times, 0, 1_000)
        check_range("retry_times_async", self.retry_times_async, 0, 1_000)
        check_range("max_message_size", self.max_message_size, 1, 1 << 24)
        if self.customized_trace_topic:
            check_topic(self.customized_trace_topic)
        for code in self.retry_codes:
            if type(code) is not int:
                raise InvalidSetting("retry_codes", code, "a response code is a number")
        check_range("send_window_messages", self.send_window_messages, 1, 1 << 24)
        check_range("send_window_bytes", self.send_window_bytes, 1, 1 << 32)
        if self.compress_type is Compression.ZLIB_UNTYPED:
            raise InvalidSetting("compress_type", self.compress_type.name, "it is only read: ZLIB means the same")
        if len(self.latency_max_ms) != len(self.not_available_ms) or not _rises(self.latency_max_ms):
            raise InvalidSetting(
                "latency_max_ms", self.latency_max_ms, "must rise, and have as many entries as not_available_duration"
            )


@dataclass(slots=True)
class TransactionSettings(ProducerSettings):
    """One producer of messages in transactions (docs/protocol/client.md 3.11)."""

    #: Questions of brokers that the listener answers at a time.
    check_thread_pool_max_size: int = 1
    #: Questions that may wait for the listener or be with it; more are dropped, and come again.
    check_request_hold_max: int = 2_000

    def check(self) -> None:
        """Raises `InvalidSetting` for the first value that cannot be used."""
        ProducerSettings.check(self)
        check_range("check_thread_pool_max_size", self.check_thread_pool_max_size, 1, 1_000)
        check_range("check_request_hold_max", self.check_request_hold_max, 1, 1 << 20)


def _rises(values: Iterable[int]) -> bool:
    last = -1
    for value in values:
        if value <= last:
            return False
        last = value
    return True
