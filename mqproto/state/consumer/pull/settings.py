"""Settings of pull consumers, with the defaults of Apache's 4.9 client (docs/protocol/client.md 1.9.4, 1.9.5).

Names are snake_case forms of Apache's, with their units (milliseconds where nothing else is said). `pull_thread_nums`
is left out: no thread pulls here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqproto.errors import InvalidSetting
from mqproto.state.consumer.settings import DEFAULT_GROUP, RECONSUME_TIMES_ENDLESS, check_timestamp, start_time
from mqproto.validation import LONGEST_MS, check_consumer_group, check_range, check_topic
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel


@dataclass(slots=True)
class PullingSettings:
    """Settings that both kinds have."""

    group: str = DEFAULT_GROUP
    message_model: MessageModel = MessageModel.CLUSTERING
    unit_mode: bool = False
    #: How long a broker may hold a pull at the end of a queue.
    broker_suspend_max_time_millis: int = 20_000
    #: How long the answer to a pull that may be held is waited for.
    consumer_timeout_millis_when_suspend: int = 30_000
    #: How long the answer to any other pull is waited for.
    consumer_pull_timeout_millis: int = 10_000
    persist_consumer_offset_interval: int = 5_000
    rebalance_interval: int = 20_000

    def check(self) -> None:
        """Raises `InvalidName` for the group and `InvalidSetting` for the first other value that cannot be used."""
        check_consumer_group(self.group)
        if self.group == DEFAULT_GROUP:
            raise InvalidSetting("group", self.group, "choose a name of your own")
        if not isinstance(self.message_model, MessageModel):
            raise InvalidSetting("message_model", self.message_model, "a MessageModel expected")
        for key in _TIMES:
            check_range(key, getattr(self, key), 1, LONGEST_MS)
        if self.broker_suspend_max_time_millis > self.consumer_timeout_millis_when_suspend:
            raise InvalidSetting(
                "broker_suspend_max_time_millis",
                self.broker_suspend_max_time_millis,
                "more than consumer_timeout_millis_when_suspend",
            )


@dataclass(slots=True)
class PullConsumerSettings(PullingSettings):
    """Settings of one pull consumer."""

    #: How often a message that was sent back comes again before it is a dead letter.
    max_reconsume_times: int = 16

    def check(self) -> None:
        """As `PullingSettings.check`."""
        super(PullConsumerSettings, self).check()
        check_range("max_reconsume_times", self.max_reconsume_times, 0, RECONSUME_TIMES_ENDLESS)


@dataclass(slots=True)
class LitePullSettings(PullingSettings):
    """Settings of one lite pull consumer."""

    #: Where a group begins in a queue that it has no offset for.
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    #: For CONSUME_FROM_TIMESTAMP: yyyyMMddHHmmss in local time; empty means half an hour before the start.
    consume_timestamp: str = ""
    #: Each poll confirms what earlier polls have brought.
    auto_commit: bool = True
    #: How often what was confirmed is stored.
    auto_commit_interval_millis: int = 5_000
    pull_batch_size: int = 10
    #: Messages that wait for a poll, of all queues together.
    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1_000
    #: Mebibytes of bodies.
    pull_threshold_size_for_queue: int = 100
    consume_max_span: int = 2_000
    #: How long a poll waits unless it says otherwise.
    poll_timeout_millis: int = 5_000
    #: How often the queues of watched topics are compared.
    topic_metadata_check_interval_millis: int = 30_000
    pull_time_delay_millis_when_exception: int = 1_000
    #: Tell the trace topic of everything that is polled (docs/protocol/client.md 3.14); an empty topic means the usual
    #: one.
    enable_msg_trace: bool = False
    customized_trace_topic: str = ""

    def check(self) -> None:
        """As `PullingSettings.check`."""
        super(LitePullSettings, self).check()
        if not isinstance(self.consume_from_where, ConsumeFromWhere):
            raise InvalidSetting("consume_from_where", self.consume_from_where, "a ConsumeFromWhere expected")
        if self.consume_timestamp:
            check_timestamp(self.consume_timestamp)
        if self.customized_trace_topic:
            check_topic(self.customized_trace_topic)
        for key, low, high in _LITE_RANGES:
            check_range(key, getattr(self, key), low, high)

    def start_time(self, wall: int, utc_offset_ms: int) -> int:
        """The wall time that CONSUME_FROM_TIMESTAMP means to a consumer that starts at `wall`."""
        return start_time(self.consume_timestamp, wall, utc_offset_ms)


_TIMES: Final = (
    "broker_suspend_max_time_millis",
    "consumer_timeout_millis_when_suspend",
    "consumer_pull_timeout_millis",
    "persist_consumer_offset_interval",
    "rebalance_interval",
)
_LITE_RANGES: Final = (
    ("auto_commit_interval_millis", 1_000, LONGEST_MS),
    ("pull_batch_size", 1, 1_024),
    ("pull_threshold_for_all", 1, 6_553_500),
    ("pull_threshold_for_queue", 1, 65_535),
    ("pull_threshold_size_for_queue", 1, 1_024),
    ("consume_max_span", 1, 65_535),
    ("poll_timeout_millis", 0, LONGEST_MS),
    ("topic_metadata_check_interval_millis", 1_000, LONGEST_MS),
    ("pull_time_delay_millis_when_exception", 1, LONGEST_MS),
)
