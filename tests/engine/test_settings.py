"""Settings: Apache's keys, typed values, ranges, and several classes over one file."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mqproto.engine.ignored import BROKER_IGNORED, NAMESRV_IGNORED
from mqproto.engine.settings import (
    BrokerSettings,
    NamesrvSettings,
    Settings,
    apply,
    apply_all,
    check,
    parse_properties,
    setting,
    table,
    to_properties,
)
from mqproto.errors import InvalidSetting


@dataclass(slots=True, kw_only=True)
class Sample(Settings):
    mapped_file_size: int = setting(1024, key="mappedFileSize", also=("mapedFileSize",), low=100, high=1 << 20)
    flush_disk_type: str = setting("ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    ratio: float = setting(0.9, high=1)
    broker_name: str = setting("shared")
    enabled: bool = setting(False)


def test_keys_are_apaches() -> None:
    assert table(BrokerSettings)["brokerIP1"].attribute == "broker_ip1"
    assert table(BrokerSettings)["notifyConsumerIdsChangedEnable"].attribute == "notify_consumer_ids_changed_enable"
    assert table(BrokerSettings)["startAcceptSendRequestTimeStamp"].kind is int
    assert not BROKER_IGNORED.keys() & table(BrokerSettings).keys()
    assert not NAMESRV_IGNORED.keys() & table(NamesrvSettings).keys()


def test_defaults_are_within_their_ranges() -> None:
    for settings in (BrokerSettings(), NamesrvSettings(), Sample()):
        check(settings)


def test_a_broker_conf_is_read() -> None:
    """The file of Apache's distribution, with a blank behind a number, which Java would skip in silence."""
    settings = BrokerSettings()
    text = """
        # a broker
        brokerClusterName = DefaultCluster
        brokerName=broker-a
        brokerId=1\x20
        deleteWhen = 04
        autoCreateTopicEnable=FALSE
        namesrvAddr=127.0.0.1:9876; [::1]:9877
    """
    apply(settings, parse_properties(text))
    assert settings.broker_name == "broker-a"
    assert settings.broker_id == 1
    assert settings.auto_create_topic_enable is False
    assert settings.namesrv_addresses() == ["127.0.0.1:9876", "[::1]:9877"]
    assert settings.unknown == {"deleteWhen": "04"}


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("listenPort", "65536", "between 0 and 65535"),
        ("listenPort", "-1", "between 0 and 65535"),
        ("brokerId", "one", "whole number"),
        ("brokerId", "1_0", "whole number"),
        ("brokerId", "", "whole number"),
        ("brokerId", "9" * 5000, "whole number"),
        ("brokerPermission", "16", "between 0 and 15"),
        ("traceOn", "yes", "true or false"),
        ("brokerName", "", "1 to 127"),
        ("brokerName", "a/b", "1 to 127"),
        ("brokerClusterName", "c" * 128, "1 to 127"),
        ("namesrvAddr", "127.0.0.1:9876;nowhere", "no host"),
    ],
)
def test_a_bad_value_is_told_and_changes_nothing(key: str, text: str, why: str) -> None:
    settings = BrokerSettings()
    with pytest.raises(InvalidSetting, match=why) as caught:
        apply(settings, {"regionId": "elsewhere", "other": "x", key: text})
    assert (caught.value.key, str(caught.value.value)) == (key, text)
    assert settings == BrokerSettings()


def test_words_fractions_and_other_spellings() -> None:
    settings = Sample()
    apply(settings, {"flushDiskType": "SYNC_FLUSH ", "mapedFileSize": "+200", "ratio": "0.5"})
    assert (settings.flush_disk_type, settings.mapped_file_size, settings.ratio) == ("SYNC_FLUSH", 200, 0.5)
    for key, text in (
        ("flushDiskType", "sync"),
        ("ratio", "2"),
        ("ratio", "nan"),
        ("ratio", "x"),
        ("mappedFileSize", "99"),
    ):
        with pytest.raises(InvalidSetting):
            apply(settings, {key: text})


def test_attributes_that_a_program_set_are_checked_too() -> None:
    for settings, why in (
        (BrokerSettings(broker_id=-1), "between"),
        (BrokerSettings(broker_id=True), "type int"),
        (BrokerSettings(broker_name="a b"), "1 to 127"),
        (Sample(flush_disk_type="NEVER"), "one of ASYNC_FLUSH, SYNC_FLUSH"),
    ):
        with pytest.raises(InvalidSetting, match=why):
            check(settings)
    check(Sample(ratio=1))


def test_several_classes_share_one_text() -> None:
    """A key goes to every class that has it, and one that nobody has is kept once."""
    broker, store = BrokerSettings(), Sample()
    apply_all((broker, store), {"brokerName": "b", "mappedFileSize": "512", "brokerId": "2", "mystery": "?"})
    assert (broker.broker_name, store.broker_name) == ("b", "b")
    assert (broker.broker_id, store.mapped_file_size) == (2, 512)
    assert (broker.unknown, store.unknown) == ({"mystery": "?"}, {})
    with pytest.raises(InvalidSetting):
        apply_all((broker, store), {"brokerName": "c", "ratio": "3"})
    assert (broker.broker_name, store.broker_name) == ("b", "b")


def test_all_keys_are_listed_and_read_back() -> None:
    broker, store = BrokerSettings(listen_port=1, trace_on=False), Sample(ratio=0.25)
    broker.unknown["mystery"] = "?"
    pairs = to_properties(broker, store)
    assert pairs["listenPort"] == "1"
    assert pairs["traceOn"] == "false"
    assert list(pairs)[-1] == "mystery"
    again, again_store = BrokerSettings(), Sample()
    store.broker_name = broker.broker_name
    apply_all((again, again_store), to_properties(broker, store))
    assert (again, again_store) == (broker, store)


def test_registration_keeps_to_apaches_bounds() -> None:
    assert [BrokerSettings(register_name_server_period=period).register_period for period in (1, 30_000, 99_000)] == [
        10_000,
        30_000,
        60_000,
    ]


def test_black_list() -> None:
    assert NamesrvSettings().black_list() == {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
