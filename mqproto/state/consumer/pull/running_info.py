"""Running information of a pull consumer: its answer to GET_CONSUMER_RUNNING_INFO (docs/protocol/client.md 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.settings import PullingSettings
from mqproto.state.consumer.running_info import setting_properties
from mqproto.wire.bodies import ConsumerRunningInfo, ConsumeType, ProcessQueueInfo, SubscriptionData


def pull_running_info(
    settings: PullingSettings,
    facts: Mapping[str, str],
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueueInfo],
) -> bytes:
    """The body. Java's has no settings and no queues; here operators see both."""
    properties = setting_properties(settings, ConsumeType.CONSUME_ACTIVELY)
    return ConsumerRunningInfo({**properties, **facts}, list(subscriptions), dict(queues), {}).to_json()
