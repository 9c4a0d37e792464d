"""Bodies that are configuration files too: topics, subscription groups, offsets (docs/protocol/wire.md 15;
docs/protocol/store.md 10).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Final

from mqproto.wire.bodies.members import (
    BOOL,
    I32,
    I64,
    LARGE,
    OPTIONAL_TEXT,
    TEXT,
    UNKNOWN,
    Body,
    Kind,
    body,
    enum_of,
    list_of,
    map_of,
    member,
    nested,
    optional,
)


class TopicFilterType(StrEnum):
    """Number of tags of a topic's messages: one, or more. Nothing acts on it."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


_FILTER_TYPE: Final = enum_of(TopicFilterType)


def _filter_type(value: Any) -> str:
    """The name of a filter type, whether it came as name or ordinal; an unknown one is as good as none."""
    return _FILTER_TYPE.read(value) or TopicFilterType.SINGLE_TAG


#: A table of texts, or none at all: written when it is there, even when it is empty.
OPTIONAL_TEXTS: Final = optional(map_of(TEXT, TEXT))


@body
class DataVersion(Body):
    """Version of a table. `timestamp` in wall milliseconds; `state_version` is 5.x's, None in 4.x."""

    timestamp: int = member("timestamp", I64, default=0)
    counter: int = member("counter", I64, default=0)
    state_version: int | None = member("stateVersion", optional(I64), default=None)

    def next(self, wall: int) -> None:
        """Count a change of the table, made at `wall` milliseconds."""
        self.timestamp = wall
        self.counter += 1


OPTIONAL_VERSION: Final = optional(nested(DataVersion))


@body
class TopicConfig(Body):
    """One topic of a broker. `attributes` are 5.x's."""

    name: str = member("topicName", TEXT, default="")
    read_queues: int = member("readQueueNums", I32, default=16)
    write_queues: int = member("writeQueueNums", I32, default=16)
    perm: int = member("perm", I32, default=6)
    filter_type: str = member("topicFilterType", Kind(_filter_type, str), default="SINGLE_TAG")
    sys_flag: int = member("topicSysFlag", I32, default=0)
    order: bool = member("order", BOOL, default=False)
    attributes: dict[str, str] | None = member("attributes", OPTIONAL_TEXTS, default=None)
    unknown: dict[str, Any] = member("", UNKNOWN, default_factory=dict)


@body
class TopicTable(Body):
    """All topics of a broker: topics.json, and the body of GET_ALL_TOPIC_CONFIG 21."""

    data_version: DataVersion = member("dataVersion", nested(DataVersion), default_factory=DataVersion)
    topics: dict[str, TopicConfig] = member("topicConfigTable", map_of(TEXT, nested(TopicConfig)), default_factory=dict)
    unknown: dict[str, Any] = member("", UNKNOWN, default_factory=dict)


@body
class GroupConfig(Body):
    """One subscription group of a broker. `retry_max_times` -1 retries for ever."""

    name: str = member("groupName", TEXT, default="")
    consume_enable: bool = member("consumeEnable", BOOL, default=True)
    consume_from_min_enable: bool = member("consumeFromMinEnable", BOOL, default=True)
    consume_broadcast_enable: bool = member("consumeBroadcastEnable", BOOL, default=True)
    retry_queues: int = member("retryQueueNums", I32, default=1)
    retry_max_times: int = member("retryMaxTimes", I32, default=16)
    broker_id: int = member("brokerId", I64, default=0)
    which_broker_when_consume_slowly: int = member("whichBrokerWhenConsumeSlowly", I64, default=1)
    notify_consumer_ids_changed_enable: bool = member("notifyConsumerIdsChangedEnable", BOOL, default=True)
    unknown: dict[str, Any] = member("", UNKNOWN, default_factory=dict)


@body
class TopicConfigList(Body):
    """Topics to be made or changed together: the body of UPDATE_AND_CREATE_TOPIC_LIST 18 of 5.x."""

    limit: ClassVar[int] = LARGE

    topics: list[TopicConfig] = member("topicConfigList", list_of(nested(TopicConfig)), default_factory=list)


@body
class GroupConfigList(Body):
    """Groups to be made or changed together: the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST 225 of 5.x."""

    limit: ClassVar[int] = LARGE

    groups: list[GroupConfig] = member("groupConfigList", list_of(nested(GroupConfig)), default_factory=list)


@body
class GroupTable(Body):
    """All subscription groups of a broker: subscriptionGroup.json, and the body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    201.
    """

    data_version: DataVersion = member("dataVersion", nested(DataVersion), default_factory=DataVersion)
    groups: dict[str, GroupConfig] = member(
        "subscriptionGroupTable", map_of(TEXT, nested(GroupConfig)), default_factory=dict
    )
    unknown: dict[str, Any] = member("", UNKNOWN, default_factory=dict)


@body
class OffsetTable(Body):
    """Committed offsets by `topic@group` and queue id: consumerOffset.json, and the body of GET_ALL_CONSUMER_OFFSET
    43.
    """

    limit: ClassVar[int] = LARGE

    offsets: dict[str, dict[int, int]] = member("offsetTable", map_of(TEXT, map_of(I32, I64)), default_factory=dict)
    data_version: DataVersion | None = member("dataVersion", OPTIONAL_VERSION, default=None)


@body
class DelayOffsets(Body):
    """Next queue offset by delay level (from 1): delayOffset.json, and the body of GET_ALL_DELAY_OFFSET 45."""

    offsets: dict[int, int] = member("offsetTable", map_of(I32, I64), default_factory=dict)
    data_version: DataVersion | None = member("dataVersion", OPTIONAL_VERSION, default=None)


@body
class CorrectionOffsets(Body):
    """Offsets by queue id: the body of QUERY_CORRECTION_OFFSET 308."""

    offsets: dict[int, int] = member("correctionOffsets", map_of(I32, I64), default_factory=dict)


@body
class KVTable(Body):
    """Texts by key: runtime info 28, a namespace of the name server 219, the answer to a registration 103."""

    table: dict[str, str] = member("table", map_of(TEXT, TEXT), default_factory=dict)


@body
class TopicList(Body):
    """Topic names: 206, 224, 304, 305, 311, 312, 313. Only 304 names a broker."""

    topics: list[str] = member("topicList", list_of(TEXT), default_factory=list)
    broker_address: str | None = member("brokerAddr", OPTIONAL_TEXT, default=None)


@body
class GroupList(Body):
    """Group names: 300."""

    groups: list[str] = member("groupList", list_of(TEXT), default_factory=list)
