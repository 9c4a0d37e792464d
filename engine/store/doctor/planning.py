"""What an import would do to a directory: asked before anything is changed, and for the import itself."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from mqproto.engine.store.doctor.exportfile import ExportedMessage, ExportedQueue, ExportHead, ExportReader
from mqproto.engine.store.doctor.messages import Range, TopicMessages
from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.doctor.views.tables import Tables
from mqproto.engine.store.errors import StoreError
from mqproto.engine.store.queues.consume_queues import is_topic_name
from mqproto.message import MessageExt
from mqproto.wire.bodies import TopicConfig
from mqproto.wire.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqproto.wire.record import RecordError, decode_record

#: Topics whose messages mean something by their place only: they cannot move (docs/doctor.md).
UNMOVABLE: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC})
#: A property of 5.x that belongs to the place of a message and not to the message (docs/protocol/store.md 2.2).
RECORD_CRC: Final = "__CRC32#"
#: Messages between two reports of progress.
_STEP: Final = 1000


class ImportRefused(StoreError):  # noqa: N818 - a name that says what happened needs no suffix
    """An import cannot be done as asked. What was imported before stays."""


class Target(Protocol):
    """What a plan asks of the directory that messages go to."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First offset of a queue, and the one that its next message gets; zeros if there is no such queue."""

    def record(self, topic: str, queue_id: int, offset: int) -> bytes | memoryview | None:
        """The record of a message; None if it cannot be read."""


class NoTarget:
    """A directory that is still to be made."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return 0, 0

    def record(self, topic: str, queue_id: int, offset: int) -> None:
        return None


class DirectoryTarget:
    """A directory that is looked at. `survey` first, to its end."""

    __slots__ = ("_directory", "_messages", "_ranges", "_tails")

    def __init__(self, directory: Directory, topics: Iterable[str]) -> None:
        """Raises OSError."""
        self._directory = directory
        self._messages = TopicMessages(directory, topics, without_queues=False)
        self._ranges: dict[tuple[str, int], Range] = {}
        #: Offsets and places in the log of what queues do not know yet.
        self._tails: list[tuple[array[int], array[int]]] = []

    def survey(self) -> Iterator[int]:
        """Find what is there. Yields physical offsets. Raises OSError."""
        yield from self._messages.survey()
        ranges = self._messages.ranges
        self._ranges = {(one.topic, one.queue_id): one for one in ranges}
        self._tails = [(array("q"), array("q")) for _ in ranges]
        for one in ranges:
            one.begin = max(one.begin, one.known)
        for found in self._messages.messages():
            self._tails[found.number][0].append(found.offset)
            self._tails[found.number][1].append(found.physical)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        one = self._ranges.get((topic, queue_id))
        return (0, 0) if one is None else (one.start, one.place)

    def record(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        one = self._ranges[topic, queue_id]
        if offset < one.known:
            entry = one.view.entry(offset)
            return None if entry is None else self._directory.log.record(entry[0])
        offsets, places = self._tails[self._messages.ranges.index(one)]
        at = bisect_left(offsets, offset)
        return self._directory.log.record(places[at]) if at < len(offsets) and offsets[at] == offset else None


class Fate(Enum):
    """What happens to the messages of one queue."""

    #: The queue is new or empty: they keep their offsets.
    KEPT = "kept"
    #: The first ones are there, from an import before: the rest follows.
    CONTINUED = "continued"
    #: All of them are there.
    THERE = "there"
    #: The queue has other messages: they are appended, with new offsets.
    APPENDED = "appended"
    #: The queue has other messages, and nobody asked to append.
    REFUSED = "refused"


@dataclass(slots=True)
class QueuePlan:
    """One queue: `topic` is its name in the target, `first` the offset of the next message in the target, `present` how
    many of the `messages` of the export are there.
    """

    source: ExportedQueue
    topic: str
    queue_id: int
    low: int
    first: int
    fate: Fate = Fate.KEPT
    messages: int = 0
    present: int = 0
    bytes: int = 0

    @property
    def keeps_offsets(self) -> bool:
        """Whether offsets mean the same in the target as in the source."""
        return self.fate in (Fate.KEPT, Fate.CONTINUED, Fate.THERE) or (
            self.fate is Fate.APPENDED and self.first == self.source.begin
        )


@dataclass(slots=True)
class OffsetPlan:
    """A committed offset of the export, by the topic's name in the target; `here` is what the target has."""

    topic: str
    group: str
    queue_id: int
    offset: int
    here: int | None
    taken: bool


@dataclass(slots=True)
class ImportPlan:
    """What an import would do."""

    head: ExportHead
    queues: list[QueuePlan] = field(default_factory=list)
    #: Configurations as they will be, where they change.
    topics: list[TopicConfig] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    offsets: list[OffsetPlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """Messages that are to be stored."""
        return sum(each.messages - each.present for each in self.queues if each.fate is not Fate.REFUSED)

    @property
    def exported(self) -> int:
        """All messages of the export."""
        return sum(each.messages for each in self.queues)

    @property
    def refused(self) -> list[QueuePlan]:
        return [each for each in self.queues if each.fate is Fate.REFUSED]

    @property
    def empty(self) -> bool:
        """Nothing is left to do."""
        return not (self.messages or self.topics or self.groups or any(each.taken for each in self.offsets))


class Planner:
    """Reads an export to its end, so that it is known to be whole, and compares it with a directory. `run` yields the
    messages read so far; afterwards `plan` is complete.
    """

    __slots__ = ("_append", "_target", "plan", "reader")

    def __init__(
        self, reader: ExportReader, target: Target, *, rename: Mapping[str, str], append: bool = False
    ) -> None:
        """Raises ImportRefused for names that cannot be."""
        self.reader = reader
        self._target = target
        self._append = append
        self.plan = ImportPlan(reader.head)
        self.plan.queues = list(_queues(reader.head, target, rename))

    def run(self) -> Iterator[int]:
        """Raises ExportDamaged and what the target raises."""
        plans = self.plan.queues
        same = [0] * len(plans)
        for message in self.reader.messages():
            one = plans[message.number]
            one.messages += 1
            one.bytes += len(message.record)
            if message.offset < one.first and same[message.number] >= 0:
                same[message.number] = self._compare(one, message, same[message.number])
            if self.reader.messages_read % _STEP == 0:
                yield self.reader.messages_read
        for one, count in zip(plans, same, strict=True):
            self._judge(one, count)

    def _compare(self, one: QueuePlan, message: ExportedMessage, count: int) -> int:
        """Count a message that the target has already; -1 when it has another one in its place."""
        if message.offset < one.low:
            return count + 1  # it was there, and its time is over
        record = self._target.record(one.topic, one.queue_id, message.offset)
        return count + 1 if record is not None and is_same(message.record, record) else -1

    def _judge(self, one: QueuePlan, count: int) -> None:
        source = one.source
        empty = one.low == one.first
        if one.first == 0 or (empty and one.first == source.begin):
            one.fate = Fate.KEPT
        elif count > 0 and source.begin < one.first:
            one.present = count
            one.fate = Fate.THERE if count == one.messages else Fate.CONTINUED
        elif one.messages == 0:
            one.fate = Fate.THERE
        else:
            one.fate = Fate.APPENDED if self._append else Fate.REFUSED

    def merge(self, tables: Tables) -> None:
        """Add to the plan what becomes of the tables: what the directory has stays, what it lacks is added.

        After `run`.
        """
        plan, head = self.plan, self.plan.head
        for topic, (old, queues) in _by_topic(plan.queues).items():
            wanted = head.topics.get(old) or TopicConfig(old, queues, queues)
            merged = _merged(tables.topics.topics.get(topic), wanted, topic, queues, plan.notes)
            if merged is not None:
                plan.topics.append(merged)
        for group in head.groups:
            if group in tables.groups.groups:
                if tables.groups.groups[group].to_value() != head.groups[group].to_value():
                    plan.notes.append(f"group {group} is configured otherwise here, and stays so")
            else:
                plan.groups.append(group)
        by_place = {(each.source.topic, each.queue_id): each for each in plan.queues}
        for (topic, group), by_queue in head.offsets.items():
            for queue_id, offset in by_queue.items():
                one = by_place.get((topic, queue_id))
                if one is not None:
                    here = tables.offsets.offsets.get(f"{one.topic}@{group}", {}).get(queue_id)
                    offset = min(offset, one.source.end)  # a group that was further has consumed all of the export
                    plan.offsets.append(
                        OffsetPlan(one.topic, group, queue_id, offset, here, _is_taken(one, offset, here))
                    )


def _is_taken(one: QueuePlan, offset: int, here: int | None) -> bool:
    """Whether a committed offset replaces that of the target: where it means the same, and the group was further
    there.
    """
    if here is None:
        return one.keeps_offsets
    return here < offset and one.keeps_offsets and one.fate is not Fate.APPENDED


def _queues(head: ExportHead, target: Target, rename: Mapping[str, str]) -> Iterator[QueuePlan]:
    known = {each.topic for each in head.queues}
    for old in rename:
        if old not in known:
            raise ImportRefused(f"the export has no topic {old}")
    seen: set[tuple[str, int]] = set()
    for source in head.queues:
        topic = rename.get(source.topic, source.topic)
        if not is_topic_name(topic):
            raise ImportRefused(f"no topic has the name {topic!r}")
        if topic in UNMOVABLE:
            raise ImportRefused(f"{topic} belongs to the broker itself: no messages can be put there")
        if (topic, source.queue_id) in seen:
            raise ImportRefused(f"two topics of the export would become {topic}")
        seen.add((topic, source.queue_id))
        low, first = target.bounds(topic, source.queue_id)
        yield QueuePlan(source, topic, source.queue_id, low, first)


def _by_topic(queues: list[QueuePlan]) -> dict[str, tuple[str, int]]:
    """By topic in the target: its name in the export, and how many queues it needs."""
    found: dict[str, tuple[str, int]] = {}
    for one in queues:
        _, count = found.get(one.topic, ("", 0))
        found[one.topic] = one.source.topic, max(count, one.queue_id + 1)
    return found


def _merged(
    here: TopicConfig | None, wanted: TopicConfig, topic: str, queues: int, notes: list[str]
) -> TopicConfig | None:
    """The configuration that a topic needs; None if the one that is there does."""
    if here is None:
        made = TopicConfig.from_value(wanted.to_value())
        made.name = topic
        made.read_queues = max(made.read_queues, queues)
        return made
    if (here.perm, here.order, here.sys_flag) != (wanted.perm, wanted.order, wanted.sys_flag):
        notes.append(f"topic {topic} is configured otherwise here, and stays so")
    if here.read_queues >= queues:
        return None
    notes.append(f"topic {topic} gets {queues} queues to read, it has {here.read_queues}")
    grown = TopicConfig.from_value(here.to_value())
    grown.read_queues = queues
    return grown


def is_same(one: bytes | memoryview, other: bytes | memoryview) -> bool:
    """Whether two records hold the same message, wherever and whenever they were stored."""
    try:
        return _essence(decode_record(one)) == _essence(decode_record(other))
    except RecordError:
        return False


def _essence(message: MessageExt) -> tuple[object, ...]:
    return (
        message.body,
        {name: value for name, value in message.properties.items() if name != RECORD_CRC},
        message.flag,
        message.sys_flag,
        message.born_time,
        message.born_host_bytes,
        message.store_host_bytes,
        message.reconsume_times,
        message.prepared_offset,
    )
