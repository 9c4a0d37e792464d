"""Bodies between clients and brokers: heartbeats, locks, and what brokers ask clients (docs/protocol/wire.md 15)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Final

from mqproto.message import MessageQueue
from mqproto.wire.bodies.members import (
    BOOL,
    F64,
    I32,
    I64,
    LARGE,
    OPTIONAL_TEXT,
    QUEUE,
    TEXT,
    Body,
    Kind,
    body,
    enum_of,
    list_of,
    map_of,
    member,
    nested,
    queue_map,
)
from mqproto.wire.fastjson import JsonError, to_text


class ConsumeType(StrEnum):
    """Kind of a consumer: it asks itself (pull), or its client asks for it (push)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Model of a group: every member gets every message, or one of them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Place where a group without a committed offset begins.

    The second to fourth are old names that Java reads as the first.
    """

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class DirectConsumeResult(StrEnum):
    """Outcome of a message that an operator pushed to a consumer."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


# --- heartbeat --------------------------------------------------------------------------------------------------------


@body
class SubscriptionData(Body):
    """Subscription of a consumer to a topic. A newer one has a larger `version`: milliseconds in Java, nanoseconds in
    Go.

    `codes` are what the sender computed: one client computes them wrongly, so a broker works them out of `expression`.
    """

    topic: str = member("topic", TEXT, default="")
    expression: str = member("subString", TEXT, default="")
    type: str = member("expressionType", TEXT, default="TAG")
    tags: list[str] = member("tagsSet", list_of(TEXT), default_factory=list)
    codes: list[int] = member("codeSet", list_of(I32), default_factory=list)
    version: int = member("subVersion", I64, default=0)
    class_filter: bool = member("classFilterMode", BOOL, default=False)


@body
class ConsumerData(Body):
    """One consumer group of a client.

    An enum is None when the peer's word for it is unknown: such a heartbeat is refused.
    """

    group: str = member("groupName", TEXT, default="")
    consume_type: ConsumeType | None = member("consumeType", enum_of(ConsumeType), default=None)
    message_model: MessageModel | None = member("messageModel", enum_of(MessageModel), default=None)
    consume_from_where: ConsumeFromWhere | None = member("consumeFromWhere", enum_of(ConsumeFromWhere), default=None)
    subscriptions: list[SubscriptionData] = member(
        "subscriptionDataSet", list_of(nested(SubscriptionData)), default_factory=list
    )
    unit_mode: bool = member("unitMode", BOOL, default=False)


def _read_producer(value: Any) -> str:
    if not isinstance(value, dict):
        raise JsonError(f"no producer: {type(value).__name__}")
    return to_text(value.get("groupName") or "")


PRODUCER: Final[Kind[str]] = Kind(_read_producer, lambda group: {"groupName": group})


@body
class HeartbeatData(Body):
    """All that a client runs: the body of HEART_BEAT 34. `producers` are group names."""

    client_id: str = member("clientID", TEXT, default="")
    producers: list[str] = member("producerDataSet", list_of(PRODUCER), default_factory=list)
    consumers: list[ConsumerData] = member("consumerDataSet", list_of(nested(ConsumerData)), default_factory=list)


@body
class ConsumerIds(Body):
    """Client ids of a group's members: the answer to GET_CONSUMER_LIST_BY_GROUP 38."""

    client_ids: list[str] = member("consumerIdList", list_of(TEXT), default_factory=list)


@body
class CheckClient(Body):
    """A subscription to be checked before it is used: the body of CHECK_CLIENT_CONFIG 46."""

    client_id: str = member("clientId", TEXT, default="")
    group: str = member("group", TEXT, default="")
    subscription: SubscriptionData = member(
        "subscriptionData", nested(SubscriptionData), default_factory=SubscriptionData
    )


# --- locks ------------------------------------------------------------------------------------------------------------


@body
class LockRequest(Body):
    """Queues to lock or unlock for a client: the body of LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42."""

    group: str = member("consumerGroup", TEXT, default="")
    client_id: str = member("clientId", TEXT, default="")
    queues: list[MessageQueue] = member("mqSet", list_of(QUEUE), default_factory=list)


@body
class LockAnswer(Body):
    """The queues that are locked now: the answer to LOCK_BATCH_MQ 41."""

    queues: list[MessageQueue] = member("lockOKMQSet", list_of(QUEUE), default_factory=list)


# --- what brokers ask clients -----------------------------------------------------------------------------------------


def _read_offsets(value: Any) -> dict[MessageQueue, int]:
    """Offsets by queue; C++ consumers are sent a list of queues that have their offset within."""
    if type(value) is list:
        return {QUEUE.read(one): I64.read(one.get("offset") or 0) for one in value}
    return _OFFSETS.read(value)


_OFFSETS: Final[Kind[dict[MessageQueue, int]]] = queue_map(I64)


@body
class ResetOffsets(Body):
    """New offsets by queue: the body of RESET_CONSUMER_CLIENT_OFFSET 220 and the answer to 222."""

    limit: ClassVar[int] = LARGE

    offsets: dict[MessageQueue, int] = member("offsetTable", Kind(_read_offsets, _OFFSETS.write), default_factory=dict)

    def to_list_value(self) -> dict[str, Any]:
        """The form for C++ consumers, which cannot read objects as keys."""
        return {
            "offsetTable": [
                {"brokerName": queue.broker_name, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
                for queue, offset in self.offsets.items()
            ]
        }


@body
class ConsumerStatus(Body):
    """Offsets as clients see them: 221 fills `offsets`, the broker's answer to 223 `by_client`."""

    limit: ClassVar[int] = LARGE

    offsets: dict[MessageQueue, int] = member("messageQueueTable", _OFFSETS, default_factory=dict)
    by_client: dict[str, dict[MessageQueue, int]] = member(
        "consumerTable", map_of(TEXT, _OFFSETS), default_factory=dict
    )


@body
class ProcessQueueInfo(Body):
    """State of one queue at a consumer. Times in wall milliseconds. Go spells `dropped` as one would."""

    commit_offset: int = member("commitOffset", I64, default=0)
    cached_min_offset: int = member("cachedMsgMinOffset", I64, default=0)
    cached_max_offset: int = member("cachedMsgMaxOffset", I64, default=0)
    cached_count: int = member("cachedMsgCount", I32, default=0)
    cached_size_mib: int = member("cachedMsgSizeInMiB", I32, default=0)
    transaction_min_offset: int = member("transactionMsgMinOffset", I64, default=0)
    transaction_max_offset: int = member("transactionMsgMaxOffset", I64, default=0)
    transaction_count: int = member("transactionMsgCount", I32, default=0)
    locked: bool = member("locked", BOOL, default=False)
    try_unlock_times: int = member("tryUnlockTimes", I64, default=0)
    last_lock_time: int = member("lastLockTimestamp", I64, default=0)
    dropped: bool = member("droped", BOOL, default=False)
    last_pull_time: int = member("lastPullTimestamp", I64, default=0)
    last_consume_time: int = member("lastConsumeTimestamp", I64, default=0)


@body
class ConsumeStatusData(Body):
    """Rates of the consumption of a topic: times in milliseconds, rates a second, failures of the last hour."""

    pull_rt: float = member("pullRT", F64, default=0.0)
    pull_tps: float = member("pullTPS", F64, default=0.0)
    consume_rt: float = member("consumeRT", F64, default=0.0)
    consume_ok_tps: float = member("consumeOKTPS", F64, default=0.0)
    consume_failed_tps: float = member("consumeFailedTPS", F64, default=0.0)
    consume_failed_count: int = member("consumeFailedMsgs", I64, default=0)


@body
class ConsumerRunningInfo(Body):
    """The answer of a client to GET_CONSUMER_RUNNING_INFO 307. Brokers relay it unread: one client's is no JSON."""

    limit: ClassVar[int] = LARGE

    properties: dict[str, str] = member("properties", map_of(TEXT, TEXT), default_factory=dict)
    subscriptions: list[SubscriptionData] = member(
        "subscriptionSet", list_of(nested(SubscriptionData)), default_factory=list
    )
    queues: dict[MessageQueue, ProcessQueueInfo] = member(
        "mqTable", queue_map(nested(ProcessQueueInfo)), default_factory=dict
    )
    statuses: dict[str, ConsumeStatusData] = member(
        "statusTable", map_of(TEXT, nested(ConsumeStatusData)), default_factory=dict
    )
    stack: str | None = member("jstack", OPTIONAL_TEXT, default=None)


@body
class ConsumeDirectlyResult(Body):
    """The answer of a client to CONSUME_MESSAGE_DIRECTLY 309."""

    order: bool = member("order", BOOL, default=False)
    auto_commit: bool = member("autoCommit", BOOL, default=True)
    result: DirectConsumeResult | None = member("consumeResult", enum_of(DirectConsumeResult), default=None)
    remark: str | None = member("remark", OPTIONAL_TEXT, default=None)
    spent_ms: int = member("spentTimeMills", I64, default=0)


@body
class OffsetMoved(Body):
    """An event that a broker stores in topic OFFSET_MOVED_EVENT when a pull asked for what is no longer there."""

    group: str = member("consumerGroup", TEXT, default="")
    queue: MessageQueue = member("messageQueue", QUEUE, default=MessageQueue("", "", 0))
    offset_request: int = member("offsetRequest", I64, default=0)
    offset_new: int = member("offsetNew", I64, default=0)
