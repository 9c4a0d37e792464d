"""Settings of clients by their public names."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import pytest

import mqproto.adapters.threaded
from mqproto.acl import SessionCredentials
from mqproto.adapters.base.settings.client_settings import (
    CONSUMER_PARTS,
    client_settings,
    consumer_settings,
    producer_settings,
    storage_option,
    strategy_option,
    tls_options,
)
from mqproto.adapters.base.settings.options import ClientOptions, ConsumerOptions, ProducerOptions
from mqproto.adapters.io.identity import broker_name, client_identity
from mqproto.errors import InvalidSetting
from mqproto.message import MessageQueue
from mqproto.state.client.settings import ClientSettings
from mqproto.state.consumer.allocation.strategies import BY_NAME
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel
from mqproto.wire.compression import Compression


class Storage:
    def read(self, group: str, queue: MessageQueue) -> int | None:
        return None

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None: ...


#: A value of each option that differs from its default.
CLIENT: ClientOptions = {
    "client_ip": "192.0.2.7",
    "instance_name": "one",
    "namespace": "ns",
    "namespace_v2": "ns2",
    "namesrv_domain": "d",
    "namesrv_domain_subgroup": "s",
    "unit_name": "u",
    "unit_mode": True,
    "vip_channel_enabled": True,
    "poll_name_server_interval": 1001,
    "heartbeat_broker_interval": 1002,
    "mq_client_api_timeout": 1003,
    "connect_timeout_millis": 1004,
    "client_channel_max_idle_time_seconds": 7,
    "credentials": SessionCredentials("key", "secret"),
    "tls": True,
    "tls_config_file": "file",
    "tls_test_mode_enable": True,
    "tls_client_auth_server": False,
    "tls_client_trust_cert_path": "trust",
    "tls_client_cert_path": "certificate",
    "tls_client_key_path": "key",
    "tls_client_key_password": "password",
    "tls_check_hostname": False,
}
PRODUCER: ProducerOptions = {
    **CLIENT,
    "create_topic_key": "T",
    "default_topic_queue_nums": 5,
    "send_msg_timeout": 1005,
    "send_msg_max_timeout_per_request": 400,
    "compress_msg_body_over_howmuch": 10,
    "compress_level": 1,
    "retry_times_when_send_failed": 6,
    "retry_times_when_send_async_failed": 7,
    "retry_another_broker_when_not_store_ok": True,
    "max_message_size": 1000,
    "enable_msg_trace": True,
    "customized_trace_topic": "traces",
    "send_latency_fault_enable": True,
    "latency_max": (1, 2),
    "not_available_duration": (3, 4),
    "retry_response_codes": [2, 1500],
    "send_window_messages": 11,
    "send_window_bytes": 12,
    "compress_type": "zstd",
}
CONSUMER: ConsumerOptions = {
    **CLIENT,
    "message_model": MessageModel.BROADCASTING,
    "orderly": True,
    "consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    "consume_timestamp": "20200101000000",
    "consume_thread_min": 3,
    "consume_concurrently_max_span": 4,
    "pull_threshold_for_queue": 5,
    "pull_threshold_for_topic": 6,
    "pull_threshold_size_for_queue": 7,
    "pull_threshold_size_for_topic": 8,
    "pull_interval": 9,
    "consume_message_batch_max_size": 10,
    "pull_batch_size": 11,
    "post_subscription_when_pull": True,
    "max_reconsume_times": 12,
    "suspend_current_queue_time_millis": 13,
    "consume_timeout": 14,
    "await_termination_millis_when_shutdown": 15,
    "pull_time_delay_millis_when_exception": 16,
    "persist_consumer_offset_interval": 17,
    "enable_msg_trace": True,
    "customized_trace_topic": "traces",
    "local_offset_store_dir": "x",
    "allocate_message_queue_strategy": "AVG_BY_CIRCLE",
    "offset_store": Storage(),
}


def test_every_option_arrives() -> None:
    client = client_settings("a:1;b:2", CLIENT)
    expected = ClientSettings(
        ("a:1", "b:2"), "u", True, True, True, 1001, 1002, 1003, 1004, 7000, namespace="ns", namespace_v2="ns2"
    )
    expected.credentials = SessionCredentials("key", "secret")
    assert client == expected
    assert tls_options(CLIENT) == {
        "ssl_context": None,
        **{name: value for name, value in CLIENT.items() if name.startswith("tls_")},
    }
    codes = frozenset({2, 1500})
    assert producer_settings("g", PRODUCER) == ProducerSettings(
        "g",
        "T",
        5,
        1005,
        10,
        1,
        6,
        7,
        True,
        1000,
        True,
        (1, 2),
        (3, 4),
        codes,
        11,
        12,
        Compression.ZSTD,
        True,
        "traces",
        400,
    )
    settings = consumer_settings("g", CONSUMER)
    for name, value in CONSUMER.items():
        if name not in ClientOptions.__annotations__ and name not in CONSUMER_PARTS:
            assert getattr(settings, name) == value, name
    assert (strategy_option(CONSUMER), storage_option(CONSUMER)) == (BY_NAME["AVG_BY_CIRCLE"], CONSUMER["offset_store"])
    assert (strategy_option({}), storage_option({})) == (None, None)
    assert settings.unit_mode
    assert settings != ConsumerSettings("g")


def test_every_option_is_tested() -> None:
    assert {*PRODUCER, "ssl_context"} == set(ProducerOptions.__annotations__)
    assert {*CONSUMER, "ssl_context"} == set(ConsumerOptions.__annotations__)


def test_a_context_asks_for_tls() -> None:
    context = ssl.create_default_context()
    assert client_settings("a:1", {"ssl_context": context}).tls
    assert tls_options({"ssl_context": context})["ssl_context"] is context
    assert not client_settings("a:1", {}).tls
    with pytest.raises(InvalidSetting, match="without tls=True"):
        tls_options({"ssl_context": context, "tls": False})


def test_name_servers_as_a_list_or_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_settings(["a:1", "b:2"], {}).name_servers == ("a:1", "b:2")
    monkeypatch.setenv("NAMESRV_ADDR", "c:3; d:4 ;")
    assert client_settings(None, {}).name_servers == ("c:3", "d:4")
    assert client_settings("", {}).name_servers == ()
    monkeypatch.delenv("NAMESRV_ADDR")
    assert client_settings(None, {}).name_servers == ()


def test_an_address_may_name_a_namespace() -> None:
    """docs/protocol/client.md 1.4: as the console of a cloud shows it."""
    settings = client_settings("http://MQ_INST_1_x.mq.example:80", {})
    assert (settings.name_servers, settings.namespace) == (("MQ_INST_1_x.mq.example:80",), "MQ_INST_1_x")
    assert client_settings(["a:1", " MQ_INST_2_y.mq.example:80 "], {}).namespace == "MQ_INST_2_y"
    assert client_settings("http://MQ_INST_1_x.mq.example:80", {"namespace": "own"}).namespace == "own"
    for plain in ("http://mq.example:80", "MQ_INST_1.mq.example:80", "x.MQ_INST_1_x.mq.example:80"):
        assert client_settings(plain, {}).namespace == ""


def test_an_address_server_is_asked_only_where_the_user_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN", "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"):
        monkeypatch.delenv(name, raising=False)
    assert client_settings(None, {}).address_server == ""
    assert client_settings(None, {"namesrv_domain": "d"}).address_server == "http://d:8080/rocketmq/nsaddr"
    assert (
        client_settings(None, {"namesrv_domain": "d:81", "namesrv_domain_subgroup": "s"}).address_server
        == "http://d:81/rocketmq/s"
    )
    assert (
        client_settings("", {"namesrv_domain": "d", "unit_name": "u"}).address_server
        == "http://d:8080/rocketmq/nsaddr-u?nofix=1"
    )
    assert client_settings("a:1", {"namesrv_domain": "d"}).address_server == "", "who names servers asks nobody"
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "e")
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", "t")
    assert client_settings(None, {}).address_server == "http://e:8080/rocketmq/t"
    assert (
        client_settings(None, {"namesrv_domain": "d", "namesrv_domain_subgroup": "s"}).address_server
        == "http://d:8080/rocketmq/s"
    )
    monkeypatch.setenv("NAMESRV_ADDR", "c:3")
    assert client_settings(None, {"namesrv_domain": "d"}).address_server == ""


@pytest.mark.parametrize("storage", [Storage, object(), {"read": 1}])
def test_what_is_no_offset_storage(storage: object) -> None:
    with pytest.raises(InvalidSetting, match="offset_store"):
        storage_option({"offset_store": storage})


@pytest.mark.parametrize("options", [{"latency_max": [1, 2], "not_available_duration": [3, 4]}])
def test_lists_do_for_tuples(options: Any) -> None:
    assert producer_settings("g", options).latency_max_ms == (1, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"send_msg_timeout": "1000"},
        {"send_msg_timeout": 1.5},
        {"send_msg_timeout": True},
        {"latency_max": 3},
        {"pull_batch_size": 3},
        {"compress_type": "BROTLI"},
        {"compress_type": 3},
        {"retry_response_codes": "12"},
        {"retry_response_codes": 2},
        {"anything": 3},
    ],
)
def test_what_a_producer_cannot_be_told(options: Any) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(options))):
        producer_settings("g", options)


def test_what_a_client_cannot_be_told() -> None:
    for options in ({"unit_mode": "yes"}, {"client_channel_max_idle_time_seconds": 0}, {"connect_timeout_millis": -1}):
        with pytest.raises(InvalidSetting):
            client_settings("a:1", options)
    with pytest.raises(InvalidSetting):
        consumer_settings("g", {"message_model": "BROADCASTING"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("send_msg_timout", "; is send_msg_timeout meant?"),
        ("sendMsgTimeout", "; is send_msg_timeout meant?"),
        ("namespaceV2", "; is namespace_v2 meant?"),
        ("orderly", ""),
    ],
)
def test_a_name_that_nobody_knows(name: str, hint: str) -> None:
    options: Any = {name: 1}
    with pytest.raises(InvalidSetting) as caught:
        mqproto.adapters.threaded.Producer("g", "a:1", **options)
    assert str(caught.value) == f"setting {name}=1: there is no such setting{hint}"


#: What lies outside of the limits of each option that has some.
OUTSIDE: dict[str, Any] = {
    "poll_name_server_interval": 0,
    "heartbeat_broker_interval": 0,
    "mq_client_api_timeout": 0,
    "connect_timeout_millis": 0,
    "client_channel_max_idle_time_seconds": 86_401,
    "default_topic_queue_nums": 0,
    "send_msg_timeout": 0,
    "send_msg_max_timeout_per_request": 0,
    "compress_msg_body_over_howmuch": -1,
    "compress_level": 10,
    "retry_times_when_send_failed": -1,
    "retry_times_when_send_async_failed": -1,
    "max_message_size": 0,
    "latency_max": (2, 1),
    "retry_response_codes": ["1"],
    "send_window_messages": 0,
    "send_window_bytes": 0,
    "compress_type": "ZLIB_UNTYPED",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_wrong_is_called_as_it_was_written(name: str) -> None:
    """Not as the core calls it, whose names the application has never seen."""
    options: Any = {name: OUTSIDE[name]}
    with pytest.raises(InvalidSetting, match=f"^setting {name}=") as caught:
        mqproto.adapters.threaded.Producer("g", "a:1", **options)
    assert caught.value.key == name


@pytest.mark.parametrize("name", sorted({"check_thread_pool_max_size", "check_request_hold_max"}))
def test_what_is_wrong_with_questions_is_called_as_it_was_written(name: str) -> None:
    options: Any = {name: 0}
    with pytest.raises(InvalidSetting, match=f"^setting {name}="):
        mqproto.adapters.threaded.TransactionProducer("g", (print, print), "a:1", **options)


@pytest.mark.parametrize("namesrv", ["a", "a:b", "a:1,b:2", ["a:1", "b"], 9876, b"a:1", ("a", 1), [None]], ids=repr)
def test_what_is_no_list_of_name_servers(namesrv: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^setting namesrv=.*host:port") as caught:
        mqproto.adapters.threaded.Producer("g", namesrv)
    assert caught.value.key == "namesrv"
    with (
        mqproto.adapters.threaded.Producer("g", "a:1") as producer,
        pytest.raises(InvalidSetting, match=r"^setting namesrv=.*host:port"),
    ):
        producer.update_name_server_addresses(namesrv)


def test_what_may_be_none() -> None:
    """So that whoever may have it or not need not tell both cases apart."""
    options: ConsumerOptions = {"credentials": None, "ssl_context": None, "offset_store": None}
    consumer = mqproto.adapters.threaded.PushConsumer("g", print, "a:1", **options)
    assert consumer._settings.credentials is None
    assert not consumer._settings.tls


def test_clients_of_one_process_differ_unless_they_are_named() -> None:
    first, second = client_identity("", ""), client_identity("", "DEFAULT")
    assert first.instance_name != second.instance_name
    assert client_identity("192.0.2.1", "mine").instance_name == "mine"
    assert client_identity("192.0.2.1", "mine").ip == "192.0.2.1"
    assert client_identity("", "", keep_default=True).instance_name == "DEFAULT"


def test_a_broker_is_called_as_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "host.example")
    assert broker_name() == "host.example"
    monkeypatch.setattr("socket.gethostname", lambda: "no name!")
    assert broker_name() == "DEFAULT_BROKER"
