"""Messages of a directory for people to read: by queue, by key, or as they lie in the log (docs/doctor.md).

Owns: the way that leads to them. A topic's messages are found by its queues, those with a key by the index; where there
is no such way, or it was asked for, the log is walked over. Memory does not grow with what is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mqproto.engine.store.doctor.messages import Bounds, TopicMessages, behind_from, walk_over
from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.log.records import facts_of, store_time_of
from mqproto.message import MessageExt
from mqproto.wire.names import HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC
from mqproto.wire.properties import REAL_QUEUE_ID, REAL_TOPIC, RETRY_TOPIC


@dataclass(frozen=True, slots=True)
class DumpSelection:
    """Selection of messages that are wanted.

    Offsets of `bounds` are queue offsets; physical ones with `physical` or without a topic.
    """

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    bounds: Bounds = Bounds()  # noqa: RUF009 - it is frozen
    physical: bool = False

    @property
    def by_place(self) -> bool:
        """Offsets are physical ones."""
        return self.physical or self.topic is None


class Dumped(NamedTuple):
    """Message that was found, or (`record` None) one that cannot be read, and why."""

    place: str
    record: memoryview | None
    why: str = ""


class Dump:
    """Search for messages. `run` gives what it finds; `notes` is what an operator should know, and grows meanwhile."""

    __slots__ = ("_directory", "_wanted", "notes")

    def __init__(self, directory: Directory, wanted: DumpSelection) -> None:
        self._directory = directory
        self._wanted = wanted
        self.notes: list[str] = []

    def run(self) -> Iterator[Dumped]:
        """In the order of the log. Raises OSError."""
        wanted = self._wanted
        if wanted.key is not None and not wanted.physical:
            return self._by_key(wanted.key)
        if wanted.topic is not None and not wanted.physical:
            return self._by_queue(wanted.topic)
        return self._walk(self._start(), self._directory.log.limit)

    # --- ways ---

    def _by_queue(self, topic: str) -> Iterator[Dumped]:
        messages = TopicMessages(self._directory, topic, queue_id=self._wanted.queue_id, bounds=self._wanted.bounds)
        messages.survey()
        self.notes += messages.notes
        for found in messages.messages():
            place = f"{topic}/{found.queue_id}@{found.offset}, at {found.physical} of the log"
            yield Dumped(place, found.record, found.why)

    def _by_key(self, key: str) -> Iterator[Dumped]:
        """By the index as far as it goes, then over what it may lack."""
        wanted, log = self._wanted, self._directory.log
        if wanted.topic is None:
            self.notes.append(
                "the index knows keys by their topic only: the whole log is read; --topic would be quicker"
            )
            yield from self._walk(self._start(), log.limit)
            return
        found = self._indexed(wanted.topic, key)
        if found is None:
            self.notes.append("there is no index: the whole log is read")
            yield from self._walk(self._start(), log.limit)
            return
        begin, end, places = found
        end = min(end, behind_from(self._directory))
        yield from self._walk(log.start, min(begin, end))
        for place in places:
            record = log.record(place) if begin <= place < end else None
            if record is not None and self._is_wanted(place, record):
                yield Dumped(str(place), record)
        yield from self._walk(max(end, log.start), log.limit)

    def _indexed(self, topic: str, key: str) -> tuple[int, int, list[int]] | None:
        """From where to where (physical offsets) the index speaks of messages, and places of those that may have a key,
        sorted; None without an index.
        """
        places: set[int] = set()
        begin: int | None = None
        end = 0
        for index in self._directory.index_files():
            if not index.slots:
                self.notes.append(f"{index.path} is of no use: how many slots it has is not known")
                return None
            if index.count > 1:
                begin = index.head.begin if begin is None else begin
                end = index.head.end
                places.update(index.find(topic, key))
        return None if begin is None else (begin, end, sorted(places))

    def _start(self) -> int:
        """Where to begin in the log, by offset or time."""
        wanted, log = self._wanted, self._directory.log
        if wanted.bounds.from_offset is not None and wanted.by_place:
            at = max(wanted.bounds.from_offset, log.start)
            return at if log.record(at) is not None else log.search(at)
        start = log.start
        if wanted.bounds.from_time is not None:
            for part in log.parts:
                record = log.record(part.start)
                if record is not None and store_time_of(record) < wanted.bounds.from_time:
                    start = part.start
        return start

    def _walk(self, start: int, end: int) -> Iterator[Dumped]:
        if start < 0:
            return
        for place, record in walk_over(self._directory, start, end, self.notes.append):
            if self._is_wanted(place, record):
                yield Dumped(str(place), record)

    def _is_wanted(self, place: int, record: memoryview) -> bool:
        wanted, bounds = self._wanted, self._wanted.bounds
        facts = facts_of(record)
        if wanted.topic is not None and facts.topic != wanted.topic:
            return False
        if wanted.queue_id is not None and facts.queue_id != wanted.queue_id:
            return False
        if wanted.key is not None and not facts.has_key(wanted.key):
            return False
        if not _within(place if wanted.by_place else facts.queue_offset, bounds.from_offset, bounds.to_offset):
            return False
        return _within(facts.store_time, bounds.from_time, bounds.to_time)


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value < high)


def destination(message: MessageExt) -> tuple[str, int | None] | None:
    """Topic and queue that a message is really for, if it only waits where it is: delayed, half, or to be retried."""
    properties = message.properties
    if message.topic in (SCHEDULE_TOPIC, HALF_TOPIC) and REAL_TOPIC in properties:
        queue = properties.get(REAL_QUEUE_ID, "")
        return properties[REAL_TOPIC], int(queue) if queue.isascii() and queue.isdigit() and len(queue) < 10 else None
    if message.topic.startswith(RETRY_PREFIX) and RETRY_TOPIC in properties:
        return properties[RETRY_TOPIC], None
    return None
