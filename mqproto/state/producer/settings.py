"""Settings of producers, with Apache's defaults (docs/protocol/client.md 1.9.2).

Names are snake_case forms of Apache's; times are milliseconds. `check` is called before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from mqproto.errors import InvalidSetting
from mqproto.validation import LONGEST_MS, check_range, check_topic
from mqproto.wire.compression import Compression

#: Template topic whose route stands in for a topic that does not exist yet (docs/protocol/client.md 2.4).
CREATE_TOPIC_KEY: Final = "TBW102"


class NodeSettings(Protocol):
    """Settings of the client node that its producers obey too."""

    unit_mode: bool
    #: Limit of a question to a name server.
    api_timeout_ms: int
    heartbeat_broker_interval_ms: int


@dataclass(slots=True)
class ProducerSettings:
    """Settings of one producer."""

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
    #: Report everything that is sent to the trace topic (docs/protocol/client.md 3.14); empty means the usual topic.
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
    """Settings of one producer of messages in transactions (docs/protocol/client.md 3.11)."""

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
