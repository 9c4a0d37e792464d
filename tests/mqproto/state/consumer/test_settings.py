"""What a push consumer can be told, and what is refused."""

from __future__ import annotations

import pytest

from mqproto.errors import InvalidName, InvalidSetting
from mqproto.state.consumer.process_queue import Window
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.wire.bodies import MessageModel
from tests.mqproto.state.consumers import make
from tests.mqproto.state.scripted_broker import Cluster


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("consume_thread_min", 0),
        ("consume_thread_min", 1001),
        ("consume_concurrently_max_span", 0),
        ("pull_threshold_for_queue", 65_536),
        ("pull_threshold_for_topic", 0),
        ("pull_threshold_for_topic", 6_553_501),
        ("pull_threshold_size_for_queue", 1_025),
        ("pull_threshold_size_for_topic", -2),
        ("pull_interval", -1),
        ("consume_message_batch_max_size", 0),
        ("pull_batch_size", 1_025),
        ("max_reconsume_times", -2),
        ("consume_timeout", 0),
        ("consume_timestamp", "yesterday"),
        ("consume_timestamp", "20261301000000"),
        ("message_model", "CLUSTERING!"),
        ("consume_from_where", None),
        ("group", "DEFAULT_CONSUMER"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(cluster: Cluster, key: str, value: object) -> None:
    settings = ConsumerSettings(group="g")
    setattr(settings, key, value)
    with pytest.raises(InvalidSetting) as refusal:
        PushConsumerCore(cluster.stage.node, settings, None)
    assert refusal.value.key == key


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("consume_thread_min", 1, 1_000),
        ("consume_concurrently_max_span", 1, 65_535),
        ("pull_threshold_for_queue", 1, 65_535),
        ("pull_threshold_for_topic", 1, 6_553_500),
        ("pull_threshold_size_for_queue", 1, 1_024),
        ("pull_threshold_size_for_topic", 1, 102_400),
        ("pull_interval", 0, 65_535),
        ("consume_message_batch_max_size", 1, 1_024),
        ("pull_batch_size", 1, 1_024),
        ("max_reconsume_times", -1, 2**31 - 1),
        ("suspend_current_queue_time_millis", 10, 30_000),
        ("consume_timeout", 1, 1_440),
        ("await_termination_millis_when_shutdown", 0, 86_400_000),
        ("pull_time_delay_millis_when_exception", 1, 86_400_000),
        ("persist_consumer_offset_interval", 1, 86_400_000),
        ("rebalance_interval", 1, 86_400_000),
    ],
)
def test_settings_have_the_ranges_of_apache(key: str, low: int, high: int) -> None:
    """docs/protocol/client.md 1.9.3."""
    settings = ConsumerSettings(group="g")
    for value in (low, high):
        setattr(settings, key, value)
        settings.check()
    for value in (low - 1, high + 1):
        setattr(settings, key, value)
        if value != -1:
            with pytest.raises(InvalidSetting):
                settings.check()


def test_settings_have_the_defaults_of_apache() -> None:
    """docs/protocol/client.md 1.9.3, as of 4.9."""
    settings = ConsumerSettings(group="g")
    settings.check()
    assert (settings.message_model, settings.consume_from_where, settings.orderly) == (
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        False,
    )
    assert (settings.consume_thread_min, settings.consume_concurrently_max_span, settings.pull_threshold_for_queue) == (
        20,
        2_000,
        1_000,
    )
    assert (
        settings.pull_threshold_size_for_queue,
        settings.pull_threshold_for_topic,
        settings.pull_threshold_size_for_topic,
    ) == (
        100,
        -1,
        -1,
    )
    assert (settings.pull_interval, settings.pull_batch_size, settings.consume_message_batch_max_size) == (0, 32, 1)
    assert (settings.post_subscription_when_pull, settings.unit_mode, settings.max_reconsume_times) == (
        False,
        False,
        -1,
    )
    assert (settings.suspend_current_queue_time_millis, settings.consume_timeout) == (1_000, 15)
    assert (settings.await_termination_millis_when_shutdown, settings.pull_time_delay_millis_when_exception) == (
        0,
        1_000,
    )
    assert (settings.persist_consumer_offset_interval, settings.rebalance_interval) == (5_000, 20_000)
    assert (settings.reconsume_limit, ConsumerSettings(group="g", orderly=True).reconsume_limit) == (16, 2**31 - 1)
    window = Window()
    assert (window.count, window.size_mib, window.span) == (1_000, 100, 2_000)


@pytest.mark.parametrize("group", ["", "a b", "g" * 121])
def test_groups_that_no_retry_topic_can_be_made_of_are_refused(cluster: Cluster, group: str) -> None:
    """LIM-01."""
    with pytest.raises(InvalidName):
        PushConsumerCore(cluster.stage.node, ConsumerSettings(group=group), None)
    PushConsumerCore(cluster.stage.node, ConsumerSettings(group="g" * 120), None)


def test_the_start_time_is_local_text() -> None:
    settings = ConsumerSettings(group="g", consume_timestamp="20231114221320")
    assert settings.start_time(0, 0) == 1_700_000_000_000
    assert settings.start_time(0, 3_600_000) == 1_700_000_000_000 - 3_600_000
    assert ConsumerSettings(group="g").start_time(1_700_000_000_000, 5) == 1_700_000_000_000 - 1_800_000


def test_broadcasting_needs_a_file(cluster: Cluster) -> None:
    with pytest.raises(InvalidSetting, match="an offset file is needed"):
        make(cluster, message_model=MessageModel.BROADCASTING)
