"""Taking topics out of a data directory, with what belongs to them: configurations, groups, committed offsets
(docs/doctor.md).

Left behind is what means something only together with the rest of its broker: delayed messages that still wait, open
transactions, the broker's own topics. It is counted and told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mqproto.engine.store.doctor.exportfile import ExportedQueue, ExportHead, ExportWriter
from mqproto.engine.store.doctor.messages import Bounds, FoundMessage, TopicMessages
from mqproto.engine.store.doctor.planning import UNMOVABLE
from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.doctor.views.tables import TableFiles, Tables
from mqproto.engine.store.errors import StoreError
from mqproto.engine.store.log.records import facts_of
from mqproto.wire.bodies import DelayOffsets
from mqproto.wire.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SYSTEM_GROUP_PREFIX,
    TOPIC_LENGTH_MAX,
    retry_topic,
)
from mqproto.wire.properties import REAL_TOPIC
from mqproto.wire.record import decode_record

#: Unreadable messages that are named; the rest is counted.
_NAMED_MAX: Final = 20
_TRANSACTION_GROUP: Final = SYSTEM_GROUP_PREFIX + "TRANS"
#: Digits of a queue offset in the body of an op message.
_DIGITS_MAX: Final = 19


class ExportRefused(StoreError):  # noqa: N818 - a name that says what happened needs no suffix
    """An export cannot be made as asked."""


class Export:
    """One export. `survey` first, to its end; then `head` is known and `queue_io` are the bytes of the file."""

    __slots__ = (
        "_directory",
        "_messages",
        "_skip_damaged",
        "_writer",
        "gone",
        "head",
        "notes",
        "skipped",
        "tables",
        "unreadable",
    )

    def __init__(
        self,
        directory: Directory,
        topics: Sequence[str],
        groups: Sequence[str] = (),
        *,
        from_time: int | None = None,
        to_time: int | None = None,
        created: int,
        writer: str = "",
        skip_damaged: bool = False,
    ) -> None:
        """Topics and groups by name; without groups, all that have committed offsets of the topics. Times are store
        times in ms, the end is not included; `created` is now, and `writer` says who writes. `skip_damaged`: leave out
        what cannot be read.

        Raises ExportRefused, ConfigDamaged, OSError.
        """
        for topic in topics:
            if topic in UNMOVABLE:
                raise ExportRefused(f"{topic} belongs to the broker itself: its messages mean nothing elsewhere")
            if len(topic.encode()) > TOPIC_LENGTH_MAX:
                raise ExportRefused(
                    f"the name {topic} is longer than {TOPIC_LENGTH_MAX} bytes: only 5.x keeps such topics"
                )
        self._directory = directory
        self._messages = TopicMessages(directory, topics, bounds=Bounds(from_time=from_time, to_time=to_time))
        self._skip_damaged = skip_damaged
        self._writer = ExportWriter()
        self.tables = TableFiles(directory.files, directory.root).load()
        self.head = ExportHead(created, writer, from_time, to_time)
        #: What an operator should know, one sentence each.
        self.notes = self.tables.notes + self._messages.notes
        #: Messages that cannot be read, and the first of them in words; those that retention has taken meanwhile are
        #: only counted.
        self.skipped = 0
        self.unreadable: list[str] = []
        self.gone = 0
        self._add_tables(sorted(set(topics)), groups)

    @property
    def messages(self) -> int:
        """Messages given so far."""
        return self._writer.messages

    @property
    def size(self) -> int:
        """Bytes of their records."""
        return self._writer.bytes

    def _add_tables(self, topics: list[str], groups: Sequence[str]) -> None:
        head, tables = self.head, self.tables
        for topic in topics:
            if topic in tables.topics.topics:
                head.topics[topic] = tables.topics.topics[topic]
            for group, by_queue in tables.committed(topic).items():
                if by_queue and (group in groups or not groups):
                    head.offsets[topic, group] = by_queue
        found = {group for _, group in head.offsets}
        for group in groups:
            if group not in found and group not in tables.groups.groups:
                raise ExportRefused(f"there is no group {group} in {self._directory.root}, and no offset of one")
        for group in sorted(found | set(groups)):
            if group in tables.groups.groups:
                head.groups[group] = tables.groups.groups[group]

    def survey(self) -> Iterator[int]:
        """Find what there is to take.

        Yields physical offsets. Raises ExportRefused for a topic that is not there, and OSError.
        """
        yield from self._messages.survey()
        self.notes += [note for note in self._messages.notes if note not in self.notes]
        head = self.head
        head.queues = [ExportedQueue(one.topic, one.queue_id, one.begin, one.end) for one in self._messages.ranges]
        known = {each.topic for each in head.queues} | set(head.topics)
        for topic in sorted(self._messages.topics - known):
            raise ExportRefused(f"there is no topic {topic} in {self._directory.root}")
        self.notes += left_behind(
            self._directory, self._messages.topics, {group for _, group in head.offsets}, self.tables
        )

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the file.

        Raises ExportRefused when a message cannot be read, unless damage is to be left out; and OSError.
        """
        writer = self._writer
        yield writer.begin(self.head)
        for found in self._messages.messages():
            if found.record is None:
                self._miss(found)
                continue
            block = writer.message(found.number, found.offset, found.record)
            if block:
                yield block
        yield writer.end()

    def _miss(self, found: FoundMessage) -> None:
        if found.physical < self._directory.log.start:
            self.gone += 1
            return
        one = self._messages.ranges[found.number]
        words = f"message {found.offset} of {one.topic}/{one.queue_id}, at {found.physical} of the log: {found.why}"
        if not self._skip_damaged:
            raise ExportRefused(f"{words}; --skip-damaged leaves such messages out")
        self.skipped += 1
        if len(self.unreadable) < _NAMED_MAX:
            self.unreadable.append(words)


def left_behind(directory: Directory, topics: frozenset[str], groups: set[str], tables: Tables) -> list[str]:
    """What belongs to topics and is not taken with them, in words."""
    notes = []
    waiting = _count_waiting(directory, topics)
    if waiting:
        notes.append(
            f"{waiting} delayed messages still wait in {SCHEDULE_TOPIC} and are not taken: let their broker deliver them first"
        )
    open_count = _count_open(directory, topics, tables)
    if open_count:
        notes.append(f"{open_count} half messages of open transactions are not taken")
    for group in sorted(groups):
        topic = retry_topic(group)
        left = 0 if topic in topics else _count_uncommitted(directory, topic, tables.committed(topic).get(group, {}))
        if left:
            notes.append(f"{left} messages wait in {topic} for group {group}: name that topic too to take them along")
    return notes


def _count_waiting(directory: Directory, topics: frozenset[str]) -> int:
    """Delayed messages of the topics that were not delivered yet."""
    state = directory.config("delayOffset.json")
    progress = DelayOffsets.from_value(state.value).offsets if state is not None and state.value is not None else {}
    return sum(
        facts_of(record).properties.get(REAL_TOPIC) in topics
        for record in _records_from(
            directory, SCHEDULE_TOPIC, {level - 1: offset for level, offset in progress.items()}
        )
    )


def _count_open(directory: Directory, topics: frozenset[str], tables: Tables) -> int:
    """Half messages of the topics that are neither committed nor rolled back."""
    done: set[int] = set()
    for record in _records_from(directory, OP_HALF_TOPIC, tables.committed(OP_HALF_TOPIC).get(_TRANSACTION_GROUP, {})):
        done.update(
            int(part) for part in decode_record(record).body.split(b",") if part.isdigit() and len(part) <= _DIGITS_MAX
        )
    count = 0
    for record in _records_from(directory, HALF_TOPIC, tables.committed(HALF_TOPIC).get(_TRANSACTION_GROUP, {})):
        facts = facts_of(record)
        count += facts.queue_offset not in done and facts.properties.get(REAL_TOPIC) in topics
    return count


def _records_from(directory: Directory, topic: str, starts: dict[int, int]) -> Iterator[memoryview]:
    """The messages of a topic of the broker, from an offset on in each queue."""
    messages = TopicMessages(directory, [topic], without_queues=False)
    for _ in messages.survey():
        pass
    for one in messages.ranges:
        one.begin = min(max(one.begin, starts.get(one.queue_id, 0)), one.end)
    for found in messages.messages():
        if found.record is not None:
            yield found.record


def _count_uncommitted(directory: Directory, topic: str, committed: dict[int, int]) -> int:
    messages = TopicMessages(directory, [topic], without_queues=False)
    for _ in messages.survey():
        pass
    return sum(max(one.end - max(one.begin, committed.get(one.queue_id, 0)), 0) for one in messages.ranges)
