"""Settings of a push consumer, with the defaults of Apache's 4.9 client (docs/protocol/client.md 1.9.3).

Names are snake_case forms of Apache's, with their units (milliseconds where nothing else is said). Settings without an
effect in any release (`consumeThreadMax`, `adjustThreadPoolNumsThreshold`) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mqproto.errors import InvalidSetting
from mqproto.validation import LONGEST_MS, check_consumer_group, check_range, check_topic
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel

#: Group that Apache's client starts with and refuses to run in.
DEFAULT_GROUP: Final = "DEFAULT_CONSUMER"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_FORMAT: Final = "%Y%m%d%H%M%S"
_HALF_HOUR: Final = timedelta(minutes=30)
#: Most deliveries that may be with the application at once.
THREADS_MAX: Final = 1_000
#: `max_reconsume_times` -1 means this many for concurrent consumption, and no limit for ordered consumption.
RECONSUME_TIMES_CONCURRENT: Final = 16
RECONSUME_TIMES_ENDLESS: Final = 2**31 - 1


@dataclass(slots=True)
class ConsumerSettings:
    """Settings of one push consumer."""

    group: str = DEFAULT_GROUP
    message_model: MessageModel = MessageModel.CLUSTERING
    #: Where a group begins in a queue that it has no offset for.
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    #: For CONSUME_FROM_TIMESTAMP: yyyyMMddHHmmss in local time; empty means half an hour before the start.
    consume_timestamp: str = ""
    #: One listener call at a time for each queue, in the order of the queue (docs/protocol/client.md 4.13).
    orderly: bool = False
    #: Deliveries that may be with the application at once.
    consume_thread_min: int = 20
    consume_concurrently_max_span: int = 2_000
    pull_threshold_for_queue: int = 1_000
    #: Shared out over the queues when it is not -1.
    pull_threshold_for_topic: int = -1
    #: Mebibytes of bodies, as the next.
    pull_threshold_size_for_queue: int = 100
    pull_threshold_size_for_topic: int = -1
    pull_interval: int = 0
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = 32
    post_subscription_when_pull: bool = False
    unit_mode: bool = False
    max_reconsume_times: int = -1
    suspend_current_queue_time_millis: int = 1_000
    #: Minutes after which a running delivery is taken for lost and its messages are sent back.
    consume_timeout: int = 15
    #: How long closing waits for running deliveries.
    await_termination_millis_when_shutdown: int = 0
    pull_time_delay_millis_when_exception: int = 1_000
    persist_consumer_offset_interval: int = 5_000
    rebalance_interval: int = 20_000
    #: Tell the trace topic of everything that is consumed (docs/protocol/client.md 3.14); an empty topic means the
    #: usual one.
    enable_msg_trace: bool = False
    customized_trace_topic: str = ""

    def check(self) -> None:
        """Raises `InvalidName` for the group and `InvalidSetting` for the first other value that cannot be used."""
        check_consumer_group(self.group)
        if self.group == DEFAULT_GROUP:
            raise InvalidSetting("group", self.group, "choose a name of your own")
        if not isinstance(self.message_model, MessageModel):
            raise InvalidSetting("message_model", self.message_model, "a MessageModel expected")
        if not isinstance(self.consume_from_where, ConsumeFromWhere):
            raise InvalidSetting("consume_from_where", self.consume_from_where, "a ConsumeFromWhere expected")
        if self.consume_timestamp:
            check_timestamp(self.consume_timestamp)
        if self.customized_trace_topic:
            check_topic(self.customized_trace_topic)
        for key, low, high in _RANGES:
            check_range(key, getattr(self, key), low, high)
        for key, high in _TOPIC_RANGES:
            value = getattr(self, key)
            if value != -1:
                check_range(key, value, 1, high)

    def resize(self, consume_thread_min: int) -> None:
        """Set `consume_thread_min`, if it may be that. Raises InvalidSetting."""
        check_places(consume_thread_min)
        self.consume_thread_min = consume_thread_min

    def start_time(self, wall: int, utc_offset_ms: int) -> int:
        """The wall time that CONSUME_FROM_TIMESTAMP means to a consumer that starts at `wall`."""
        return start_time(self.consume_timestamp, wall, utc_offset_ms)

    @property
    def reconsume_limit(self) -> int:
        """`max_reconsume_times` with its default resolved (docs/protocol/client.md 4.12, 4.13)."""
        if self.max_reconsume_times != -1:
            return self.max_reconsume_times
        return RECONSUME_TIMES_ENDLESS if self.orderly else RECONSUME_TIMES_CONCURRENT


def check_timestamp(consume_timestamp: str) -> datetime:
    """The time that the setting says, as if it were UTC. Raises InvalidSetting."""
    try:
        return datetime.strptime(consume_timestamp, _TIMESTAMP_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        raise InvalidSetting("consume_timestamp", consume_timestamp, "yyyyMMddHHmmss expected") from None


def start_time(consume_timestamp: str, wall: int, utc_offset_ms: int) -> int:
    """The wall time that the setting, or its absence, means to a consumer that starts at `wall`."""
    if not consume_timestamp:
        return wall - _HALF_HOUR // timedelta(milliseconds=1)
    return (check_timestamp(consume_timestamp) - _EPOCH) // timedelta(milliseconds=1) - utc_offset_ms


def check_places(consume_thread_min: int) -> None:
    """Raises InvalidSetting for a number of deliveries at once that cannot be."""
    check_range("consume_thread_min", consume_thread_min, 1, THREADS_MAX)


_RANGES: Final = (
    ("consume_thread_min", 1, THREADS_MAX),
    ("consume_concurrently_max_span", 1, 65_535),
    ("pull_threshold_for_queue", 1, 65_535),
    ("pull_threshold_size_for_queue", 1, 1_024),
    ("pull_interval", 0, 65_535),
    ("consume_message_batch_max_size", 1, 1_024),
    ("pull_batch_size", 1, 1_024),
    ("max_reconsume_times", -1, RECONSUME_TIMES_ENDLESS),
    ("suspend_current_queue_time_millis", 10, 30_000),
    ("consume_timeout", 1, LONGEST_MS // 60_000),
    ("await_termination_millis_when_shutdown", 0, LONGEST_MS),
    ("pull_time_delay_millis_when_exception", 1, LONGEST_MS),
    ("persist_consumer_offset_interval", 1, LONGEST_MS),
    ("rebalance_interval", 1, LONGEST_MS),
)
_TOPIC_RANGES: Final = (("pull_threshold_for_topic", 6_553_500), ("pull_threshold_size_for_topic", 102_400))
