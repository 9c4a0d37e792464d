"""Messages of a topic, in the order of the log, out of a directory that is only looked at.

Consume queues lead to them as far as they go. A running broker writes its queues some time after the log, and after a
crash they may lack entries too: from `walk_from` on, where queues may be behind, the log itself is read, and all of it
for a topic that has no queue. Owns: which messages belong to a range of offsets or times. Memory is bounded by the
number of queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Final, NamedTuple

from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.doctor.views.log import Stop, Walk
from mqproto.engine.store.doctor.views.queues import QueueView
from mqproto.engine.store.layout import BLANK_SIZE, ENTRY, HOLE_CODE
from mqproto.engine.store.log.records import Facts, facts_of, store_time_of

#: Entries of a queue that are read at a time.
_CHUNK: Final = 512


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a selection, by queue offset or by store time (ms); the end is not included. None: no limit."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None


class FoundMessage(NamedTuple):
    """Message of a queue. `record` is None when it cannot be read, `why` says why then."""

    queue_id: int
    offset: int
    physical: int
    record: memoryview | None
    why: str = ""


class Range:
    """Queue of which messages are wanted: those with offsets from `begin` up to `end`."""

    __slots__ = (
        "begin",
        "behind",
        "end",
        "from_seen",
        "known",
        "place",
        "queue_id",
        "start",
        "to_seen",
        "view",
    )

    def __init__(self, view: QueueView) -> None:
        self.queue_id = view.queue_id
        self.view = view
        self.begin = 0
        self.end = 0
        #: Entries from `start` up to `known` lead to records before the place where the walk begins.
        self.start = 0
        self.known = 0
        #: The next place, as far as was walked, and the physical offset from which on the walk counts for this queue.
        self.place = 0
        self.behind = 0
        #: Found by the walk: first places at or after the two times.
        self.from_seen: int | None = None
        self.to_seen: int | None = None


class TopicMessages:
    """Messages of one topic: `survey` finds which there are, then `messages` gives them."""

    __slots__ = ("_bounds", "_directory", "_queue_id", "_ranges", "_topic", "notes", "walk_end", "walk_from")

    def __init__(
        self, directory: Directory, topic: str, *, queue_id: int | None = None, bounds: Bounds | None = None
    ) -> None:
        """`queue_id`: only that queue of the topic. Raises OSError."""
        self._directory = directory
        self._topic = topic
        self._queue_id = queue_id
        self._bounds = bounds or Bounds()
        #: By queue id.
        self._ranges: dict[int, Range] = {}
        #: What an operator should know, one sentence each.
        self.notes: list[str] = []
        for name, number in directory.queue_names():
            if name == topic and queue_id in (None, number):
                self._add(number)
        self.walk_from = behind_from(directory) if self._ranges else directory.log.start
        self.walk_end = directory.log.limit
        if not self._ranges:
            self.notes.append(f"there is no consume queue of {topic}: the whole log is read for it")

    def _add(self, queue_id: int) -> Range:
        one = self._ranges[queue_id] = Range(self._directory.queue(self._topic, queue_id))
        return one

    def _is_of(self, facts: Facts) -> bool:
        return facts.topic == self._topic and facts.has_entry and self._queue_id in (None, facts.queue_id)

    # --- what there is ---

    def survey(self) -> None:
        """Find where all ranges begin and end. Blocks. Raises OSError."""
        for one in self._ranges.values():
            self._look_at(one)
        for physical, record in self._walk(self.notes.append):
            facts = facts_of(record)
            if self._is_of(facts):
                self._pass(facts, physical)
        for one in self._ranges.values():
            self._limit(one)

    def _look_at(self, one: Range) -> None:
        log_start = self._directory.log.start
        end = one.view.end()
        one.start = one.view.begin(log_start, end)
        one.known = self._first_from(one, self.walk_from, one.start, end)
        one.place = one.known

    def _first_from(self, one: Range, physical: int, low: int, high: int) -> int:
        """The first place whose message lies at a physical offset or behind."""
        while low < high:
            middle = (low + high) // 2
            if one.view.raw_entry(middle)[0] < physical:
                low = middle + 1
            else:
                high = middle
        return low

    def _pass(self, facts: Facts, physical: int) -> None:
        """The walk came by a message of the topic."""
        one = self._ranges.get(facts.queue_id) or self._add(facts.queue_id)
        offset = facts.queue_offset
        if offset < one.place:
            if offset != 0:
                return  # it claims a place that another one has
            one.start = one.known = 0  # its topic was deleted and made again
            one.behind = physical
            one.from_seen = one.to_seen = None
        elif one.start == one.known == one.place:
            one.start = one.known = offset
        one.place = offset + 1
        bounds = self._bounds
        if one.from_seen is None and bounds.from_time is not None and facts.store_time >= bounds.from_time:
            one.from_seen = offset
        if one.to_seen is None and bounds.to_time is not None and facts.store_time >= bounds.to_time:
            one.to_seen = offset

    def _limit(self, one: Range) -> None:
        """Set where the range begins and ends, by offset and time."""
        bounds = self._bounds
        one.begin, one.end = one.start, one.place
        if bounds.from_time is not None:
            one.begin = self._by_time(one, bounds.from_time, one.from_seen)
        if bounds.to_time is not None:
            one.end = self._by_time(one, bounds.to_time, one.to_seen)
        if bounds.from_offset is not None:
            one.begin = max(one.begin, bounds.from_offset)
        if bounds.to_offset is not None:
            one.end = min(one.end, bounds.to_offset)
        one.begin = min(one.begin, one.place)
        one.end = max(one.end, one.begin)

    def _by_time(self, one: Range, time: int, seen: int | None) -> int:
        """The first place whose message was stored at a time or later. One that cannot be read counts as earlier."""
        low, high = one.start, one.known
        while low < high:
            middle = (low + high) // 2
            entry = one.view.entry(middle)
            record = None if entry is None else self._directory.log.record(entry[0])
            if record is None or store_time_of(record) < time:
                low = middle + 1
            else:
                high = middle
        return low if low < one.known or seen is None else seen

    # --- the messages ---

    def messages(self) -> Iterator[FoundMessage]:
        """All messages of the ranges, each queue in its order. Raises OSError."""
        for physical, queue_id, offset, size in merge(*(self._entries(one) for one in self._ranges.values())):
            yield self._read(queue_id, offset, physical, size)
        nexts = {queue_id: max(one.begin, one.known) for queue_id, one in self._ranges.items()}
        for physical, record in self._walk(None):
            facts = facts_of(record)
            if not self._is_of(facts):
                continue
            queue_id, offset = facts.queue_id, facts.queue_offset
            one = self._ranges[queue_id]
            if physical >= one.behind and nexts[queue_id] <= offset < one.end:
                nexts[queue_id] = offset + 1
                yield FoundMessage(queue_id, offset, physical, record)

    def _entries(self, one: Range) -> Iterator[tuple[int, int, int, int]]:
        """Physical offset, queue id, queue offset and size by the queue's entries."""
        place, end = one.begin, min(one.end, one.known)
        while place < end:
            data = one.view.chunk(place, min(_CHUNK, end - place))
            if not data:  # the file is gone
                place += one.view.per_file - place % one.view.per_file
                continue
            for physical, size, code in ENTRY.iter_unpack(data):
                if size != BLANK_SIZE and code != HOLE_CODE:
                    yield physical, one.queue_id, place, size
                place += 1

    def _read(self, queue_id: int, offset: int, physical: int, size: int) -> FoundMessage:
        log = self._directory.log
        record = log.record(physical, True)
        if record is None:
            gone = physical < log.start or not log.read(physical, 1)
            return FoundMessage(
                queue_id, offset, physical, None, "it is no longer in the log" if gone else "its record is damaged"
            )
        facts = facts_of(record)
        if (facts.topic, facts.queue_id) != (self._topic, queue_id) or len(record) != size:
            return FoundMessage(queue_id, offset, physical, None, "the queue leads to another message")
        return FoundMessage(queue_id, offset, physical, record)

    def _walk(self, note: Callable[[str], None] | None) -> Iterator[tuple[int, memoryview]]:
        if self.walk_from < self.walk_end:
            yield from walk_over(self._directory, self.walk_from, self.walk_end, note)


def walk_over(
    directory: Directory, start: int, end: int, note: Callable[[str], None] | None = None
) -> Iterator[tuple[int, memoryview]]:
    """Offset and bytes of all good records of the log between two offsets. Places without one are passed over, `note`
    is called then, but not for the end: there a record may just be written, or was torn. Raises OSError.
    """
    log = directory.log
    while start < end:
        walk = Walk(log)
        yield from walk.records(start, end)
        if walk.stop is Stop.THERE:
            return
        following = log.search(walk.end + 1, end)
        if following < 0:
            return
        if note is not None:
            note(f"{following - walk.end} bytes of the log cannot be read, from offset {walk.end} on")
        start = following


def behind_from(directory: Directory) -> int:
    """Offset of the log from which on queues and index may lack messages.

    A file whose first message is older than what the checkpoint promises (docs/protocol/store.md 8.3) begins there, or
    the log ends there, when its broker was stopped in an orderly way.
    """
    log = directory.log
    if directory.whole:
        return log.limit
    for part in reversed(log.parts):
        record = log.record(part.start)
        if record is not None and 0 < store_time_of(record) <= directory.checkpoint.recover_from:
            return part.start
    return log.start
