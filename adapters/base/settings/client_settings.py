"""Settings of clients, read from the options that users write (`options`) and from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from mqproto.adapters.base.settings.options import ClientOptions, ConsumerOptions, LitePullOptions, PullConsumerOptions
from mqproto.errors import InvalidSetting
from mqproto.state.client.settings import ClientSettings
from mqproto.state.cluster.addresses import endpoint_namespace, parse_addresses
from mqproto.state.consumer.allocation.allocate import Strategy
from mqproto.state.consumer.allocation.strategies import find_strategy
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.pull.settings import LitePullSettings, PullConsumerSettings
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.producer.settings import ProducerSettings, TransactionSettings
from mqproto.validation import LONGEST_MS, check_range
from mqproto.wire.compression import Compression

T = TypeVar("T")

#: What an address server has unless it is told otherwise.
ADDRESS_SERVER_PORT: Final = 8080
ADDRESS_SERVER_SUBGROUP: Final = "nsaddr"
_DOMAIN: Final = "ROCKETMQ_NAMESRV_DOMAIN"
_SUBGROUP: Final = "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"

#: Where a setting lives, for those whose name is not that of the attribute.
_CLIENT: Final[Mapping[str, str]] = {
    "namespace": "namespace",
    "namespace_v2": "namespace_v2",
    "unit_name": "unit_name",
    "unit_mode": "unit_mode",
    "vip_channel_enabled": "vip_channel",
    "poll_name_server_interval": "poll_name_server_interval_ms",
    "heartbeat_broker_interval": "heartbeat_broker_interval_ms",
    "mq_client_api_timeout": "api_timeout_ms",
    "connect_timeout_millis": "connect_timeout_ms",
}
_PRODUCER: Final[Mapping[str, str]] = {
    "create_topic_key": "create_topic_key",
    "default_topic_queue_nums": "default_topic_queues",
    "send_msg_timeout": "send_timeout_ms",
    "send_msg_max_timeout_per_request": "attempt_timeout_ms",
    "compress_msg_body_over_howmuch": "compress_body_over",
    "compress_level": "compress_level",
    "retry_times_when_send_failed": "retry_times",
    "retry_times_when_send_async_failed": "retry_times_async",
    "retry_another_broker_when_not_store_ok": "retry_another_broker_when_not_store_ok",
    "max_message_size": "max_message_size",
    "enable_msg_trace": "enable_msg_trace",
    "customized_trace_topic": "customized_trace_topic",
    "send_latency_fault_enable": "latency_fault_tolerance",
    "latency_max": "latency_max_ms",
    "not_available_duration": "not_available_ms",
    "retry_response_codes": "retry_codes",
    "send_window_messages": "send_window_messages",
    "send_window_bytes": "send_window_bytes",
    "compress_type": "compress_type",
}
_TRANSACTIONS: Final[Mapping[str, str]] = {
    **_PRODUCER,
    "check_thread_pool_max_size": "check_thread_pool_max_size",
    "check_request_hold_max": "check_request_hold_max",
}
#: What the application calls a setting of the core.
_AS_WRITTEN: Final[Mapping[str, str]] = {
    "name_servers": "namesrv",
    **{attribute: name for names in (_CLIENT, _TRANSACTIONS) for name, attribute in names.items()},
}
#: What may be asked for; others are only read.
_COMPRESSIONS: Final = (Compression.ZLIB.name, Compression.LZ4.name, Compression.ZSTD.name)
#: What a consumer is made with besides settings.
CONSUMER_PARTS: Final = frozenset({"allocate_message_queue_strategy", "offset_store", "local_offset_store_dir"})
#: Everything else of a consumer has the attribute's name, but for what says who the client is.
_CONSUMER: Final[Mapping[str, str]] = {
    name: name
    for name in ConsumerOptions.__annotations__
    if name not in ClientOptions.__annotations__ and name not in CONSUMER_PARTS
}
#: With the values that they have when nothing is said.
TLS_OPTIONS: Final[Mapping[str, Any]] = {
    "tls_config_file": "",
    "tls_test_mode_enable": False,
    "tls_client_auth_server": True,
    "tls_client_trust_cert_path": "",
    "tls_client_cert_path": "",
    "tls_client_key_path": "",
    "tls_client_key_password": "",
    "tls_check_hostname": True,
}
_OTHERS: Final = frozenset(
    {
        "client_ip",
        "instance_name",
        "client_channel_max_idle_time_seconds",
        "namesrv_domain",
        "namesrv_domain_subgroup",
        "credentials",
        "tls",
        "ssl_context",
        *TLS_OPTIONS,
    }
)


def client_settings(namesrv: str | Sequence[str] | None, options: Mapping[str, Any]) -> ClientSettings:
    """The settings of a client node. `namesrv` None means the environment's NAMESRV_ADDR, as with Apache's client
    (docs/protocol/client.md 1.4).

    Where no name server is given, an address server is asked if `namesrv_domain` or the environment's
    ROCKETMQ_NAMESRV_DOMAIN names one.
    """
    settings = ClientSettings()
    given = _joined(os.environ.get("NAMESRV_ADDR", "") if namesrv is None else namesrv)
    settings.name_servers = parse_addresses(given)
    settings.namespace = next(filter(None, (endpoint_namespace(address.strip()) for address in given.split(";"))), "")
    _fill(settings, _CLIENT, options)
    if not settings.name_servers:
        domain, subgroup = text_option(options, "namesrv_domain"), text_option(options, "namesrv_domain_subgroup")
        settings.address_server = address_server_url(domain, subgroup, settings.unit_name)
    if "client_channel_max_idle_time_seconds" in options:
        seconds = _checked("client_channel_max_idle_time_seconds", options["client_channel_max_idle_time_seconds"], 120)
        check_range("client_channel_max_idle_time_seconds", seconds, 1, LONGEST_MS // 1000)
        settings.max_idle_ms = seconds * 1000
    settings.credentials = options.get("credentials")
    settings.tls = _checked("tls", options.get("tls", options.get("ssl_context") is not None), False)
    check_as_written(settings.check)
    return settings


def address_server_url(domain: str, subgroup: str, unit_name: str) -> str:
    """Where to ask; empty texts mean the environment's, and in the end that nobody is asked.

    A domain may hold a port of its own.
    """
    domain = domain or os.environ.get(_DOMAIN, "")
    if not domain:
        return ""
    subgroup = subgroup or os.environ.get(_SUBGROUP, "") or ADDRESS_SERVER_SUBGROUP
    host = domain if ":" in domain else f"{domain}:{ADDRESS_SERVER_PORT}"
    unit = f"-{unit_name}?nofix=1" if unit_name and not unit_name.isspace() else ""
    return f"http://{host}/rocketmq/{subgroup}{unit}"


def name_server_list(namesrv: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses of a list, as one text or several. Raises InvalidSetting."""
    return parse_addresses(_joined(namesrv))


def _joined(namesrv: object) -> str:
    if isinstance(namesrv, str):
        return namesrv
    if isinstance(namesrv, Sequence) and all(isinstance(one, str) for one in namesrv):
        return ";".join(namesrv)
    raise InvalidSetting("namesrv", namesrv, "a text host:port;host:port or a sequence of texts host:port expected")


def check_as_written(check: Callable[[], None]) -> None:
    """Run a check of the core, whose own names of settings are not always those that the application has written."""
    try:
        check()
    except InvalidSetting as error:
        raise InvalidSetting(_AS_WRITTEN.get(error.key, error.key), error.value, error.why) from None


def producer_settings(group: str, options: Mapping[str, Any]) -> ProducerSettings:
    """The settings of a producer; raises InvalidSetting, also for options that no producer has."""
    _refuse_unknown(options, _PRODUCER)
    settings = ProducerSettings(group=group)
    _fill(settings, _PRODUCER, options)
    return settings


def transaction_settings(group: str, options: Mapping[str, Any]) -> TransactionSettings:
    """The settings of a producer of messages in transactions; raises InvalidSetting, also for unknown options."""
    _refuse_unknown(options, _TRANSACTIONS)
    settings = TransactionSettings(group=group)
    _fill(settings, _TRANSACTIONS, options)
    return settings


def consumer_settings(group: str, options: Mapping[str, Any]) -> ConsumerSettings:
    """The settings of a push consumer; raises InvalidSetting, also for options that no consumer has."""
    _refuse_unknown(options, {**_CONSUMER, **dict.fromkeys(CONSUMER_PARTS, "")})
    settings = ConsumerSettings(group=group, unit_mode=bool(options.get("unit_mode", False)))
    _fill(settings, _CONSUMER, options)
    return settings


def pull_consumer_settings(group: str, options: Mapping[str, Any]) -> PullConsumerSettings:
    """The settings of a pull consumer; raises InvalidSetting, also for options that it does not have."""
    _refuse_unknown(options, PullConsumerOptions.__annotations__)
    settings = PullConsumerSettings(group=group, unit_mode=bool(options.get("unit_mode", False)))
    _fill(settings, _own_names(PullConsumerOptions), options)
    return settings


def lite_pull_settings(group: str, options: Mapping[str, Any]) -> LitePullSettings:
    """The settings of a lite pull consumer; raises InvalidSetting, also for options that it does not have."""
    _refuse_unknown(options, LitePullOptions.__annotations__)
    settings = LitePullSettings(group=group, unit_mode=bool(options.get("unit_mode", False)))
    _fill(settings, _own_names(LitePullOptions), options)
    return settings


def stream_option(options: Mapping[str, Any]) -> bool:
    """Whether a client that pulls says so."""
    return _checked("enable_stream_request_type", options.get("enable_stream_request_type", True), True)


def _own_names(options: type) -> dict[str, str]:
    """The options of a kind of consumer that are settings of its core, whose attributes have the same names."""
    others = {*ClientOptions.__annotations__, *CONSUMER_PARTS, "enable_stream_request_type"}
    return {name: name for name in options.__annotations__ if name not in others}


def check_options(options: Mapping[str, Any]) -> None:
    """Raises InvalidSetting for options that no client has."""
    _refuse_unknown(options, {})


def strategy_option(options: Mapping[str, Any]) -> Strategy | None:
    """How a consumer shares queues out; None for the default. Raises InvalidSetting."""
    name = "allocate_message_queue_strategy"
    return find_strategy(options[name]) if name in options else None


def storage_option(options: Mapping[str, Any]) -> OffsetStorage | None:
    """Where the application keeps offsets itself; None where it does not. Raises InvalidSetting."""
    storage = options.get("offset_store")
    if storage is None:
        return None
    if isinstance(storage, type) or not all(callable(getattr(storage, name, None)) for name in ("read", "save")):
        raise InvalidSetting("offset_store", storage, "an object with methods read and save expected")
    found: OffsetStorage = storage
    return found


def tls_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a client is told about TLS, complete.

    Raises InvalidSetting, also where TLS is described and not asked for.
    """
    context = options.get("ssl_context")
    values = {name: _checked(name, options.get(name, default), default) for name, default in TLS_OPTIONS.items()}
    described = [name for name in ("ssl_context", *TLS_OPTIONS) if options.get(name) is not None]
    if described and not options.get("tls", context is not None):
        raise InvalidSetting(described[0], "...", "it has no effect without tls=True")
    if context is not None and len(described) > 1:
        raise InvalidSetting(described[1], "...", "ssl_context says all of it already")
    return {**values, "ssl_context": context}


def text_option(options: Mapping[str, Any], name: str) -> str:
    """An option that is a text; empty when it is not given."""
    return _checked(name, options.get(name, ""), "")


def _refuse_unknown(options: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in own and name not in _CLIENT and name not in _OTHERS:
            raise InvalidSetting(name, value, f"there is no such setting{_nearest(name, {*own, *_CLIENT, *_OTHERS})}")


def _nearest(name: str, known: Collection[str]) -> str:
    """A hint for whoever has mistyped a name, or written it as Java does."""
    import difflib  # programs without mistakes need it not

    snake_case = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    found = difflib.get_close_matches(snake_case, known, 1, 0.8)
    return f"; is {found[0]} meant?" if found else ""


def _fill(settings: Any, names: Mapping[str, str], options: Mapping[str, Any]) -> None:
    for name, attribute in names.items():
        if name in options:
            setattr(settings, attribute, _checked(name, options[name], getattr(settings, attribute)))


def _checked(name: str, value: Any, default: T) -> T:
    """The value, if it is of the default's type (True is no number here).

    Lists do for tuples, collections for sets, names for choices.
    """
    if isinstance(default, tuple) and isinstance(value, list):
        value = tuple(value)
    elif isinstance(default, frozenset) and isinstance(value, Collection) and not isinstance(value, str | bytes):
        value = frozenset(value)
    elif isinstance(default, Compression) and isinstance(value, str):
        if value.upper() not in _COMPRESSIONS:
            raise InvalidSetting(name, value, f"one of {', '.join(_COMPRESSIONS)} expected")
        value = Compression[value.upper()]
    if type(value) is not type(default):
        raise InvalidSetting(
            name, "..." if "password" in name else value, f"a value of type {type(default).__name__} expected"
        )
    checked: T = value
    return checked
