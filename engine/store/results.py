"""Results of reads and queries, and the parts of a batch: what the store gives and takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class GetStatus(Enum):
    """Status of a read of a queue (docs/protocol/store.md 14.1). The names go into answers."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class GetResult:
    """Result of a read.

    `views` are slices of the mapped log, whole records in order; records that lie side by side share a view. They stay
    valid for as long as they are held. `size` is their length together, `count` the number of records in them.
    `suggest_slave` says that what was read lies further back than memory reaches. `damaged`: what an operator should
    know of a queue that leads to no messages. `behind`: bytes from the last message that was looked at to the end of
    the log.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    views: list[memoryview]
    size: int
    count: int
    suggest_slave: bool
    damaged: str = ""
    behind: int = 0


@dataclass(slots=True)
class QueryResult:
    """Result of a query by key: whole records in the order of the log; last store time and offset of the index."""

    views: list[memoryview]
    index_last_time: int
    index_last_offset: int


@dataclass(slots=True)
class BatchPart:
    """Message of a batch; what the others share is given to `Writer.append_batch`."""

    body: bytes | memoryview
    properties: bytes
    flag: int
    tags_code: int
    uniq_key: str | None
    keys: str | None
    #: Bitmap of the filters that it passes (`Writer.append`).
    filter_bits: bytes = b""
