"""Bodies that operators read: statistics, connections, dumps (docs/protocol/wire.md 15)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from mqproto.message import MessageQueue
from mqproto.wire.bodies.clients import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
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
    optional,
    queue_map,
)
from mqproto.wire.codes import Language
from mqproto.wire.fastjson import JsonError, truncate


@body
class ConsumeOffsets(Body):
    """Progress of a group on one queue; the time is when the last consumed message was stored, in wall milliseconds."""

    broker_offset: int = member("brokerOffset", I64, default=0)
    consumer_offset: int = member("consumerOffset", I64, default=0)
    last_timestamp: int = member("lastTimestamp", I64, default=0)


@body
class ConsumeStats(Body):
    """Progress of a group: the answer to GET_CONSUME_STATS 208. A rate that is no number travels as null."""

    limit: ClassVar[int] = LARGE

    offsets: dict[MessageQueue, ConsumeOffsets] = member(
        "offsetTable", queue_map(nested(ConsumeOffsets)), default_factory=dict
    )
    tps: float = member("consumeTps", F64, default=0.0)


@body
class ConsumeStatsList(Body):
    """Progress of all groups of a broker: the answer to GET_BROKER_CONSUME_STATS 317."""

    limit: ClassVar[int] = LARGE

    stats: list[dict[str, list[ConsumeStats]]] = member(
        "consumeStatsList", list_of(map_of(TEXT, list_of(nested(ConsumeStats)))), default_factory=list
    )
    broker_address: str | None = member("brokerAddr", OPTIONAL_TEXT, default=None)
    total_diff: int = member("totalDiff", I64, default=0)


@body
class TopicOffset(Body):
    """The ends of one queue; the time is that of the last message, in wall milliseconds, 0 for none."""

    min_offset: int = member("minOffset", I64, default=0)
    max_offset: int = member("maxOffset", I64, default=0)
    last_update_timestamp: int = member("lastUpdateTimestamp", I64, default=0)


@body
class TopicStats(Body):
    """The ends of all queues of a topic: the answer to GET_TOPIC_STATS_INFO 202."""

    limit: ClassVar[int] = LARGE

    offsets: dict[MessageQueue, TopicOffset] = member(
        "offsetTable", queue_map(nested(TopicOffset)), default_factory=dict
    )


@body
class StatsItem(Body):
    """A counter over a span: sum, events a second, average of an event."""

    total: int = member("sum", I64, default=0)
    tps: float = member("tps", F64, default=0.0)
    average: float = member("avgpt", F64, default=0.0)


@body
class BrokerStats(Body):
    """A counter of a broker: the answer to VIEW_BROKER_STATS_DATA 315."""

    minute: StatsItem = member("statsMinute", nested(StatsItem), default_factory=StatsItem)
    hour: StatsItem = member("statsHour", nested(StatsItem), default_factory=StatsItem)
    day: StatsItem = member("statsDay", nested(StatsItem), default_factory=StatsItem)


@body
class QueueTimeSpan(Body):
    """Store times of one queue: its ends and where the group is, in wall milliseconds; `delay_time` in milliseconds."""

    queue: MessageQueue = member("messageQueue", QUEUE, default=MessageQueue("", "", 0))
    min_time: int = member("minTimeStamp", I64, default=0)
    max_time: int = member("maxTimeStamp", I64, default=0)
    consume_time: int = member("consumeTimeStamp", I64, default=0)
    delay_time: int = member("delayTime", I64, default=0)


@body
class ConsumeTimeSpans(Body):
    """The answer to QUERY_CONSUME_TIME_SPAN 303."""

    spans: list[QueueTimeSpan] = member("consumeTimeSpanSet", list_of(nested(QueueTimeSpan)), default_factory=list)


# --- connections ------------------------------------------------------------------------------------------------------


def _read_language(value: Any) -> Language | None:
    """By name, None for one that nobody knows, or by number."""
    if isinstance(value, str):
        return Language.__members__.get(value)
    number = truncate(value)
    if number is None or not 0 <= number < len(Language):
        raise JsonError(f"no language: {str(value)[:40]}")
    return Language(number)


LANGUAGE: Final[Kind[Language | None]] = Kind(
    _read_language, lambda language: None if language is None else language.name
)


@body
class ClientConnection(Body):
    """One client of a group; `address` is `ip:port`, `language` None when it is unknown."""

    client_id: str = member("clientId", TEXT, default="")
    address: str = member("clientAddr", TEXT, default="")
    language: Language | None = member("language", LANGUAGE, default=None)
    version: int = member("version", I32, default=0)


@body
class ConsumerConnection(Body):
    """Members and subscriptions of a consumer group: the answer to GET_CONSUMER_CONNECTION_LIST 203."""

    connections: list[ClientConnection] = member(
        "connectionSet", list_of(nested(ClientConnection)), default_factory=list
    )
    subscriptions: dict[str, SubscriptionData] = member(
        "subscriptionTable", map_of(TEXT, nested(SubscriptionData)), default_factory=dict
    )
    consume_type: ConsumeType | None = member("consumeType", enum_of(ConsumeType), default=None)
    message_model: MessageModel | None = member("messageModel", enum_of(MessageModel), default=None)
    consume_from_where: ConsumeFromWhere | None = member("consumeFromWhere", enum_of(ConsumeFromWhere), default=None)


@body
class GroupSubscription(Body):
    """Subscription of an online group to a topic, None for none: the answer to QUERY_SUBSCRIPTION_BY_CONSUMER 345 of
    5.x.
    """

    group: str = member("group", TEXT, default="")
    topic: str = member("topic", TEXT, default="")
    subscription: SubscriptionData | None = member("subscriptionData", optional(nested(SubscriptionData)), default=None)


@body
class ProducerConnection(Body):
    """Members of a producer group: the answer to GET_PRODUCER_CONNECTION_LIST 204."""

    connections: list[ClientConnection] = member(
        "connectionSet", list_of(nested(ClientConnection)), default_factory=list
    )


@body
class ProducerInfo(Body):
    """One member of a producer group; the time is its last heartbeat, in wall milliseconds."""

    client_id: str = member("clientId", TEXT, default="")
    address: str = member("remoteIP", TEXT, default="")
    language: Language | None = member("language", LANGUAGE, default=None)
    version: int = member("version", I32, default=0)
    last_update_timestamp: int = member("lastUpdateTimestamp", I64, default=0)


@body
class ProducerTable(Body):
    """All producers of a broker by group: the answer to GET_ALL_PRODUCER_INFO 328."""

    producers: dict[str, list[ProducerInfo]] = member(
        "data", map_of(TEXT, list_of(nested(ProducerInfo))), default_factory=dict
    )


# --- dumps ------------------------------------------------------------------------------------------------------------


@body
class QueueEntry(Body):
    """One entry of a consume queue; `matches` says whether the group's filter takes it."""

    physical_offset: int = member("physicOffset", I64, default=0)
    size: int = member("physicSize", I32, default=0)
    tags_code: int = member("tagsCode", I64, default=0)
    matches: bool = member("eval", BOOL, default=False)
    extension: str | None = member("extendDataJson", OPTIONAL_TEXT, default=None)
    bit_map: str | None = member("bitMap", OPTIONAL_TEXT, default=None)
    note: str | None = member("msg", OPTIONAL_TEXT, default=None)


@body
class QueueDump(Body):
    """Entries of a consume queue: the answer to QUERY_CONSUME_QUEUE 321."""

    entries: list[QueueEntry] = member("queueData", list_of(nested(QueueEntry)), default_factory=list)
    min_index: int = member("minQueueIndex", I64, default=0)
    max_index: int = member("maxQueueIndex", I64, default=0)
    subscription: SubscriptionData | None = member("subscriptionData", optional(nested(SubscriptionData)), default=None)
    filter_data: str | None = member("filterData", OPTIONAL_TEXT, default=None)
