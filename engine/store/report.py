"""Report of an opening, and what opening may do about damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Recover(Enum):
    """Choice what opening does when data is damaged or missing that was durable once."""

    #: Change nothing and raise StoreDamaged.
    REFUSE = "refuse"
    #: Step over what is damaged and keep everything good behind it.
    SKIP = "skip"
    #: Let the log end where the damage begins.
    CUT = "cut"


class Ending(Enum):
    """Ending of the log, as opening found it."""

    EMPTY = "empty"
    #: Behind the last record there is nothing.
    WHOLE = "whole"
    #: The last record was not written to its end, and nothing shows that it was durable once.
    TORN = "torn"
    #: The caller let damaged data be dropped with all that lay behind it.
    CUT = "cut"
    #: The caller let damaged data be stepped over.
    SKIPPED = "skipped"


class LostRange(NamedTuple):
    """Messages of a queue that were in a damaged part of the log: their places, both included."""

    topic: str
    queue_id: int
    first: int
    last: int


@dataclass(slots=True)
class RecoveryReport:
    """Report of what opening found and did. Offsets are physical."""

    #: The broker before was stopped in an orderly way.
    clean: bool = True
    ending: Ending = Ending.EMPTY
    begin: int = 0
    end: int = 0
    #: From here on records were checked, and their number.
    checked_from: int = 0
    checked: int = 0
    #: From here on queues and index were made again, from so many records.
    dispatched_from: int = 0
    dispatched: int = 0
    #: Bytes behind the end that were not zero, and records among them that were good.
    dropped: int = 0
    dropped_records: int = 0
    #: Damaged parts of the log that were stepped over (begin, end), and the messages that are known to have been in
    #: them.
    skipped: list[tuple[int, int]] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    #: The disk has no room for another message.
    full: bool = False
    #: What an operator should know, one sentence each.
    notes: list[str] = field(default_factory=list)
