"""Settings of the servers: typed attributes in Python, Apache's keys in files and requests (docs/protocol/broker.md 8).

A class of settings is a dataclass whose fields are made by `setting`; the key of a field is its name in camel case,
unless it says otherwise. One text (`broker.conf`) may hold the keys of several classes, so `apply_all` shares it out.
Keys that no class has are kept (`mqproto.engine.ignored` has those of Apache that have no meaning here).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from mqproto.errors import InvalidSetting
from mqproto.wire.hosts import PORT_MAX, HostError, split_address
from mqproto.wire.names import TOPIC_LENGTH_MAX
from mqproto.wire.properties_text import PropertiesError, format_properties, parse_properties

__all__ = [
    "BrokerSettings",
    "NamesrvSettings",
    "PropertiesError",
    "ServerSettings",
    "Setting",
    "Settings",
    "apply",
    "apply_all",
    "check",
    "format_properties",
    "parse_properties",
    "setting",
    "table",
    "to_properties",
]

Value: TypeAlias = bool | int | float | str
T = TypeVar("T", bool, int, float, str)

_I64_MAX: Final = (1 << 63) - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_WORDS: Final = {"true": True, "false": False}
#: Longest wait that is granted to a pull. Clients ask for 15 to 20 s; a link without traffic is closed after 120 s.
_SUSPEND_MAX_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Setting:
    """Key of a setting: where its value lives and which values it takes."""

    key: str
    attribute: str
    kind: type
    low: float
    high: float
    choices: tuple[str, ...]
    #: Other spellings of the key that are read, not written.
    also: tuple[str, ...]
    #: A change takes effect while the server runs. Others do at its next start.
    live: bool
    #: Printed by `-m` (Apache marks such keys as important).
    important: bool

    def parse(self, text: str) -> Value:
        """The value of a text. Blanks around numbers and words do not count. Raises InvalidSetting."""
        bare = text.strip()
        if self.kind is bool:
            word = _WORDS.get(bare.lower())
            if word is None:
                raise InvalidSetting(self.key, text, "true or false expected")
            return self.checked(word)
        if self.kind is int:
            if not _INTEGER.fullmatch(bare) or len(bare) > 20:
                raise InvalidSetting(self.key, text, "a whole number expected")
            return self.checked(int(bare))
        if self.kind is float:
            try:
                return self.checked(float(bare))
            except ValueError:
                raise InvalidSetting(self.key, text, "a number expected") from None
        return self.checked(bare if self.choices else text)

    def checked(self, value: Value) -> Value:
        """The value, if it has the type and lies in the range. Raises InvalidSetting."""
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:
            raise InvalidSetting(self.key, value, f"a value of type {self.kind.__name__} expected")
        if self.choices:
            if self.text(value) not in self.choices:
                why = (
                    f"one of {', '.join(self.choices)} expected"
                    if len(self.choices) > 1
                    else f"only {self.choices[0]} is supported"
                )
                raise InvalidSetting(self.key, self.text(value), why)
        elif not isinstance(value, str) and not self.low <= value <= self.high:
            raise InvalidSetting(self.key, value, f"must be between {self.low} and {self.high}")
        return value

    def text(self, value: Value) -> str:
        """The value as a file holds it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)


def setting(
    default: T,
    *,
    key: str = "",
    also: tuple[str, ...] = (),
    low: float = 0,
    high: float = _I64_MAX,
    choices: tuple[str, ...] = (),
    live: bool = False,
    important: bool = False,
) -> T:
    """A field of a class of settings. `low` and `high` bound numbers, `choices` are the texts that a value may have."""
    facts = {
        "key": key,
        "also": also,
        "low": low,
        "high": high,
        "choices": choices,
        "live": live,
        "important": important,
    }
    value: T = field(default=default, metadata=facts)
    return value


@dataclass(slots=True, kw_only=True)
class Settings:
    """Base of all classes of settings."""

    #: Keys and texts that were applied and have no attribute.
    unknown: dict[str, str] = field(default_factory=dict)

    def check_together(self) -> None:
        """What a single key's range cannot say. Raises InvalidSetting."""


_TABLES: Final[dict[type, dict[str, Setting]]] = {}


def table(settings: type[Settings]) -> dict[str, Setting]:
    """The settings of a class by key, in the order of its fields."""
    found = _TABLES.get(settings)
    if found is None:
        _TABLES[settings] = found = {}
        for each in dataclasses.fields(settings):
            facts: Mapping[str, Any] = each.metadata
            if facts:
                head, *rest = each.name.split("_")
                key = facts["key"] or head + "".join(map(str.capitalize, rest))
                found[key] = Setting(attribute=each.name, kind=type(each.default), **{**facts, "key": key})
    return found


def _spellings(settings: Settings) -> dict[str, Setting]:
    return {spelling: each for each in table(type(settings)).values() for spelling in (each.key, *each.also)}


def apply(settings: Settings, pairs: Mapping[str, str]) -> None:
    """Set what the pairs of key and text say. Raises InvalidSetting; nothing is changed then."""
    apply_all((settings,), pairs)


def apply_all(all_settings: Sequence[Settings], pairs: Mapping[str, str]) -> None:
    """The same for several objects that share one text: each takes its keys, the first keeps the unknown ones."""
    changes: list[tuple[Settings, str, Value]] = []
    unknown: dict[str, str] = {}
    tables = [(settings, _spellings(settings)) for settings in all_settings]
    for key, text in pairs.items():
        found = [(settings, spellings[key]) for settings, spellings in tables if key in spellings]
        if not found:
            unknown[key] = text
        changes += [(settings, each.attribute, each.parse(text)) for settings, each in found]
    before = [(settings, attribute, getattr(settings, attribute)) for settings, attribute, _ in changes]
    for settings, attribute, value in changes:
        setattr(settings, attribute, value)
    try:
        for settings in all_settings:
            check(settings)
    except InvalidSetting:
        for settings, attribute, value in reversed(before):
            setattr(settings, attribute, value)
        raise
    all_settings[0].unknown.update(unknown)


def check(settings: Settings) -> None:
    """Raises InvalidSetting for the first attribute with a value that its key does not take."""
    for each in table(type(settings)).values():
        each.checked(getattr(settings, each.attribute))
    settings.check_together()


def to_properties(*all_settings: Settings) -> dict[str, str]:
    """Every key with its text, the unknown ones last, as a file or an answer lists them."""
    pairs: dict[str, str] = {}
    for settings in all_settings:
        for each in table(type(settings)).values():
            pairs[each.key] = each.text(getattr(settings, each.attribute))
    for settings in all_settings:
        pairs |= settings.unknown
    return pairs


def _check_addresses(key: str, text: str) -> None:
    """Raises InvalidSetting unless the text is a list `host:port;host:port`, which may be empty."""
    for address in filter(None, text.split(";")):
        try:
            split_address(address.strip())
        except HostError as failure:
            raise InvalidSetting(key, text, str(failure)) from None


@dataclass(slots=True, kw_only=True)
class ServerSettings(Settings):
    """Keys of every server (docs/protocol/broker.md 8.4). Port 0 takes a free one."""

    listen_port: int = setting(0, high=PORT_MAX)
    bind_address: str = setting("0.0.0.0")
    #: A connection that neither reads nor writes for so long is closed.
    server_channel_max_idle_time_seconds: int = setting(120, low=1, live=True)
    #: Bytes of answers that a peer may leave untaken before no more is read from it (4.9); 0: 4 MiB.
    write_buffer_high_water_mark: int = setting(0, high=1 << 30, live=True)
    #: Our own: connections that are kept; one more is closed at once.
    max_connections: int = setting(50_000, low=1, live=True)
    #: Our own: bytes of requests that have not come whole, of all connections. Beyond it the one that holds most of
    #: them is closed.
    max_unfinished_bytes: int = setting(256 << 20, low=32 << 20, live=True)
    rocketmq_home: str = setting("")
    config_black_list: str = setting("")

    def black_list(self) -> set[str]:
        """Keys that no request may change (4.9)."""
        return {key.strip() for key in self.config_black_list.split(";")} | {"configBlackList", "rocketmqHome"}


@dataclass(slots=True, kw_only=True)
class NamesrvSettings(ServerSettings):
    """Keys of the name server (docs/protocol/broker.md 8.5)."""

    listen_port: int = setting(9876, high=PORT_MAX)
    kv_config_path: str = setting("~/namesrv/kvConfig.json")
    config_store_path: str = setting("~/namesrv/namesrv.properties")
    #: Add a topic's line of the namespace ORDER_TOPIC_CONFIG to its route.
    order_message_enable: bool = setting(False, live=True)
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath")


@dataclass(slots=True, kw_only=True)
class BrokerSettings(ServerSettings):
    """Keys of the broker (docs/protocol/broker.md 8.2).

    Those of the store are `mqproto.engine.store`'s. Times are milliseconds.
    """

    listen_port: int = setting(10911, high=PORT_MAX)
    config_black_list: str = setting("configBlackList;brokerConfigPath")

    # Who it is.
    namesrv_addr: str = setting("", live=True, important=True)
    broker_ip1: str = setting("", key="brokerIP1", important=True)
    broker_ip2: str = setting("", key="brokerIP2")
    broker_name: str = setting("DEFAULT_BROKER", important=True)
    broker_cluster_name: str = setting("DefaultCluster", important=True)
    broker_id: int = setting(0, important=True)
    #: There are no replicas: whoever counts on one must not believe that it is there.
    broker_role: str = setting("ASYNC_MASTER", choices=("ASYNC_MASTER",), important=True)
    enable_dleger_commit_log: bool = setting(False, key="enableDLegerCommitLog", choices=("false",))
    region_id: str = setting("DefaultRegion", live=True)

    # Topics and groups.
    broker_permission: int = setting(6, high=15, live=True)
    default_topic_queue_nums: int = setting(8, low=1, high=1 << 16)
    auto_create_topic_enable: bool = setting(True, live=True, important=True)
    auto_create_subscription_group: bool = setting(True, live=True)
    cluster_topic_enable: bool = setting(True)
    broker_topic_enable: bool = setting(True)
    trace_topic_enable: bool = setting(False, important=True)
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", important=True)
    trace_on: bool = setting(True, live=True)

    # Registration with name servers.
    register_broker_timeout_mills: int = setting(6000, low=1, live=True)
    register_name_server_period: int = setting(30_000, low=1, live=True)
    compressed_register: bool = setting(False, live=True)
    force_register: bool = setting(True, live=True)

    # Sends.
    start_accept_send_request_time_stamp: int = setting(0, live=True)
    reject_transaction_message: bool = setting(False, live=True, important=True)
    store_reply_message_enable: bool = setting(True, live=True)

    # Protection (docs/protection.md).
    broker_fast_failure_enable: bool = setting(True, live=True)
    wait_time_mills_in_send_queue: int = setting(200, live=True)
    wait_time_mills_in_pull_queue: int = setting(5000, live=True)
    wait_time_mills_in_heartbeat_queue: int = setting(31_000, live=True)
    wait_time_mills_in_transaction_queue: int = setting(3000, live=True)
    #: Acknowledgements that may wait for the disk.
    send_thread_pool_queue_capacity: int = setting(10_000, low=1, live=True)
    #: Pulls that may be parked.
    pull_thread_pool_queue_capacity: int = setting(100_000, low=4, live=True)
    #: Reads that may wait for the disk.
    query_thread_pool_queue_capacity: int = setting(20_000, low=1, live=True)
    #: Our own, by the name that clients have for what they ask: how long a pull may be parked at most.
    broker_suspend_max_time_millis: int = setting(_SUSPEND_MAX_MS, live=True)
    #: Our own: bytes of answers that slow peers leave untaken, all together, until they get no more.
    max_untaken_bytes: int = setting(256 << 20, low=1 << 20, live=True)

    # Pulls and consumers.
    long_polling_enable: bool = setting(True, live=True)
    short_polling_time_mills: int = setting(1000, low=1, live=True)
    notify_consumer_ids_changed_enable: bool = setting(True, live=True)
    slave_read_enable: bool = setting(False, live=True)
    flush_consumer_offset_interval: int = setting(5000, low=1)
    disable_consume_if_consumer_read_slowly: bool = setting(False, live=True)
    consumer_fallbehind_threshold: int = setting(16 << 30, live=True)

    # Filters.
    enable_property_filter: bool = setting(False, live=True)
    enable_calc_filter_bit_map: bool = setting(False, live=True)
    expect_consumer_num_use_filter: int = setting(32, low=1, high=1 << 16)
    max_error_rate_of_bloom_filter: int = setting(20, low=1, high=99)
    filter_data_clean_time_span: int = setting(86_400_000, live=True)
    filter_support_retry: bool = setting(False, live=True)

    # Transactions.
    transaction_time_out: int = setting(6000, live=True, important=True)
    transaction_check_max: int = setting(15, low=1, live=True, important=True)
    transaction_check_interval: int = setting(60_000, low=1, live=True, important=True)

    # Access.
    acl_enable: bool = setting(False, choices=("false",), important=True)
    #: Links to name servers.
    use_tls: bool = setting(False, key="useTLS", choices=("false",))

    #: Bounds of the period between registrations, whatever is configured.
    REGISTER_PERIOD_MIN: ClassVar[int] = 10_000
    REGISTER_PERIOD_MAX: ClassVar[int] = 60_000

    @property
    def register_period(self) -> int:
        """Milliseconds between two registrations, within Apache's bounds."""
        return min(max(self.register_name_server_period, self.REGISTER_PERIOD_MIN), self.REGISTER_PERIOD_MAX)

    def namesrv_addresses(self) -> list[str]:
        """The name servers to register with."""
        return [address.strip() for address in self.namesrv_addr.split(";") if address.strip()]

    def check_together(self) -> None:
        _check_addresses("namesrvAddr", self.namesrv_addr)
        for key, name in (("brokerName", self.broker_name), ("brokerClusterName", self.broker_cluster_name)):
            # Both are names of topics as well. Host names, which brokers are often called by, have dots that other
            # topics may not have.
            if not _NAME.fullmatch(name) or len(name) > TOPIC_LENGTH_MAX:
                raise InvalidSetting(
                    key, name, f"1 to {TOPIC_LENGTH_MAX} letters, digits or '.', '_', '-', '%', '|' expected"
                )


_NAME: Final = re.compile(r"[%|a-zA-Z0-9_.-]+")
