"""The expressions of consumer groups as a broker keeps them: consumerFilter.json (docs/protocol/store.md 10.6)."""

from __future__ import annotations

from typing import Any

from mqproto.wire.bodies.members import (
    BOOL,
    I32,
    I64,
    TEXT,
    UNKNOWN,
    Body,
    body,
    list_of,
    map_of,
    member,
    nested,
    optional,
)


@body
class BloomData(Body):
    """The bits of one group for one topic, in bitmaps of `bits` bits."""

    bits: int = member("bitNum", I32, default=0)
    positions: list[int] = member("bitPos", list_of(I32), default_factory=list)


@body
class ConsumerFilter(Body):
    """Expression of one group for one topic.

    Times in wall milliseconds; a `dead_time` of 0 means that the group is there.
    """

    topic: str = member("topic", TEXT, default="")
    group: str = member("consumerGroup", TEXT, default="")
    expression: str = member("expression", TEXT, default="")
    type: str = member("expressionType", TEXT, default="")
    version: int = member("clientVersion", I64, default=0)
    born_time: int = member("bornTime", I64, default=0)
    dead_time: int = member("deadTime", I64, default=0)
    #: Follows from the times. Written for people who read the file.
    dead: bool = member("dead", BOOL, default=False)
    bloom: BloomData | None = member("bloomFilterData", optional(nested(BloomData)), default=None)


@body
class TopicFilters(Body):
    """All groups' of one topic."""

    topic: str = member("topic", TEXT, default="")
    groups: dict[str, ConsumerFilter] = member(
        "groupFilterData", map_of(TEXT, nested(ConsumerFilter)), default_factory=dict
    )


@body
class ConsumerFilters(Body):
    """The whole file."""

    topics: dict[str, TopicFilters] = member(
        "filterDataByTopic", map_of(TEXT, nested(TopicFilters)), default_factory=dict
    )
    unknown: dict[str, Any] = member("", UNKNOWN, default_factory=dict)
