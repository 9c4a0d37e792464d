"""Check of consume queues against the log (docs/protocol/store.md 4): every entry leads to its own message, every
message has its entry.

The records come in the order of the log, which is that of the entries of each queue. So log and queues are read once,
side by side, and what is kept in memory are a few hundred bytes and one chunk of entries for each queue.
What does not fit is collected as runs of places with the same fault. They are reported at the end: a topic that was
deleted and made again begins anew, and then what its earlier messages lack is no fault.
"""

from __future__ import annotations

from typing import Any, Final

from mqproto.engine.store.doctor.checks.findings import LOOK, QUEUES, REBUILD, Report
from mqproto.engine.store.doctor.checks.log import LogCheck
from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.doctor.views.queues import QueueView
from mqproto.engine.store.doctor.views.units import UnitsView
from mqproto.engine.store.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE, HOLE_CODE, offset_name
from mqproto.engine.store.log.records import Facts
from mqproto.engine.store.queues.extension import is_address
from mqproto.wire.ids import java_hash
from mqproto.wire.names import SCHEDULE_TOPIC
from mqproto.wire.properties import DELAY, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, TAGS

#: Bytes of entries that are kept for all queues together, and the number of entries that are read at a time.
_KEPT_MAX: Final = 32 << 20
_CHUNK_MAX: Final = 1024
_CHUNK_MIN: Final = 16
#: Runs of one queue that are reported one by one.
_RUNS_MAX: Final = 32
#: Entries that are looked at together where no record goes with them.
_SWEEP: Final = 1 << 14
#: No delay level is longer. Levels are whole seconds.
_DELAY_MAX: Final = 10 * 366 * 86_400_000
#: Topics that are in no table.
UNLISTED: Final = frozenset({SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"})

_MISSING: Final = "have no entry"
_BLANK: Final = "have a blank entry"
_ELSEWHERE: Final = "have an entry that leads elsewhere"
_SIZE: Final = "have an entry with another size"
_CODE: Final = "have an entry with another tags code"


class EntryRun:
    """Run of places that follow each other and have the same fault; the offset is that of the first one's message."""

    __slots__ = ("fault", "first", "last", "offset")

    def __init__(self, fault: str, place: int, offset: int) -> None:
        self.fault = fault
        self.first = self.last = place
        self.offset = offset


class QueueCheck:
    """Check of one queue."""

    __slots__ = ("at", "count", "data", "next", "runs", "unseen", "view")

    def __init__(self, view: QueueView) -> None:
        self.view = view
        #: The place of the next message; -1: none was seen.
        self.next = -1
        #: The chunk that was read: its first place, its bytes, its entries.
        self.at = 0
        self.data = b""
        self.count = 0
        self.runs: list[EntryRun] = []
        #: Runs that were not kept.
        self.unseen = 0

    def fault(self, fault: str, place: int, offset: int) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.fault == fault and last.last + 1 == place:
            last.last = place
        elif len(self.runs) < _RUNS_MAX:
            self.runs.append(EntryRun(fault, place, offset))
        else:
            self.unseen += 1


class QueueChecks:
    """Check of all queues."""

    __slots__ = (
        "_behind",
        "_by_key",
        "_chunk",
        "_delays",
        "_directory",
        "_kept",
        "_log",
        "_log_start",
        "_report",
        "_topics",
        "_units",
        "stop",
    )

    def __init__(self, directory: Directory, report: Report, delays: tuple[int, ...], log: LogCheck) -> None:
        self._directory = directory
        self._report = report
        #: Milliseconds of each delay level.
        self._delays = delays
        self._topics: dict[str, Any] | None = directory.topics()
        self._log_start = directory.log.start
        #: Entries of messages from here on are not looked at: a running broker appends them.
        self.stop = log.stop
        self._log = log
        self._kept = 0
        #: Queues that end before their messages do, by how many, and from which offset on.
        self._behind: list[tuple[QueueView, int, int]] = []
        self._units = UnitsView(directory.files, directory.root)
        self._by_key = {(view.topic, view.queue_id): QueueCheck(view) for view in directory.queues()}
        self._chunk = max(_CHUNK_MIN, min(_CHUNK_MAX, _KEPT_MAX // ENTRY_SIZE // max(len(self._by_key), 1)))
        report.queues = len(self._by_key)

    def check_files(self) -> None:
        """Sizes, names and gaps."""
        for check in self._by_key.values():
            view = check.view
            for name in view.strange:
                self._report.note(f"{view.folder}/{name} does not belong into a queue; {LOOK}")
            for index, part in enumerate(view.parts):
                size = view.per_file * ENTRY_SIZE
                last = index == len(view.parts) - 1
                if part.size != size and not (last and self._directory.running):
                    self._report.add(
                        QUEUES,
                        part.path,
                        None,
                        f"it has {part.size} bytes and not {size} as the other queues' files",
                        REBUILD,
                    )
                if part.first % view.per_file:
                    self._report.add(
                        QUEUES, part.path, None, "its name is no multiple of the size of the files", REBUILD
                    )
                elif index and part.first > view.parts[index - 1].first + view.per_file:
                    self._report.add(QUEUES, part.path, None, "a file is missing before it", REBUILD)

    # --- along the log ---

    def seen(self, offset: int, size: int, facts: Facts) -> None:
        """A record comes by."""
        if not facts.has_entry:
            return
        self._compare(facts.topic, facts.queue_id, facts.queue_offset, offset, size, facts, True)
        if INNER_MULTI_DISPATCH in facts.properties:
            self._seen_by_others(offset, size, facts)

    def _seen_by_others(self, offset: int, size: int, facts: Facts) -> None:
        """A message that lies in more queues than its own (docs/protocol/store.md 4.6)."""
        names = facts.properties[INNER_MULTI_DISPATCH].split(",")
        places = facts.properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
        for name, place in zip(names, places, strict=False):
            queue_id = 0 if name.startswith("%LMQ%") else facts.queue_id
            if place.isascii() and place.isdigit() and (name, queue_id) in self._by_key:
                self._compare(name, queue_id, int(place), offset, size, facts, False)

    def _compare(self, topic: str, queue_id: int, place: int, offset: int, size: int, facts: Facts, own: bool) -> None:
        check = self._by_key.get((topic, queue_id))
        if check is None:
            check = self._by_key[topic, queue_id] = QueueCheck(self._directory.queue(topic, queue_id))
        if place != check.next:
            self._jump(check, place, offset)
        check.next = place + 1
        index = place - check.at
        if not 0 <= index < check.count:
            self._load(check, place)
            index = 0
            if not check.count:
                check.fault(_MISSING, place, offset)
                return
        physical, entry_size, code = ENTRY.unpack_from(check.data, index * ENTRY_SIZE)
        if physical == offset and entry_size == size:
            if code != (
                facts.tags_code(self._delays) if own else java_hash(facts.properties.get(TAGS, ""))
            ) and not self._code_is_good(code, facts):
                check.fault(_CODE, place, offset)
            self._report.entries += 1
        elif entry_size == 0:
            check.fault(_MISSING, place, offset)
        elif entry_size == BLANK_SIZE or code == HOLE_CODE:
            check.fault(_BLANK, place, offset)
        else:
            check.fault(_SIZE if physical == offset else _ELSEWHERE, place, offset)

    def _load(self, check: QueueCheck, place: int) -> None:
        if self._kept > _KEPT_MAX:
            for other in self._by_key.values():
                other.data, other.count = b"", 0
            self._kept = 0
        self._kept -= len(check.data)
        check.at = place
        check.data = check.view.chunk(place, self._chunk)
        check.count = len(check.data) // ENTRY_SIZE
        self._kept += len(check.data)

    def _code_is_good(self, code: int, facts: Facts) -> bool:
        """An unexpected tags code may be an address in the extension, or a time by another table of delays."""
        if is_address(code):
            unit = self._units.unit(facts.topic, facts.queue_id, code)
            if unit is None:  # whoever filters looks at the message then
                self._report.note(
                    f"{facts.topic}/{facts.queue_id} has entries whose units in consumequeue_ext are missing"
                )
                return True
            if unit.store_time != facts.store_time:
                return False
            code = unit.tags_code
            if code == facts.tags_code(self._delays):
                return True
        delay = code - facts.store_time
        if (
            facts.topic != SCHEDULE_TOPIC
            or not facts.properties.get(DELAY, "").isdigit()
            or not 0 <= delay <= _DELAY_MAX
            or delay % 1000
        ):
            return False
        self._report.note(
            f"delay level {facts.queue_id + 1} lasts {delay // 1000} s here: "
            f"the broker has or had another messageDelayLevel"
        )
        return True

    def _jump(self, check: QueueCheck, place: int, offset: int) -> None:
        """The message that comes by is not the next one of its queue."""
        if check.next < 0:
            self._sweep(check, check.view.first, place, expired=True)
        elif place == 0:
            check.runs.clear()  # the topic was deleted and made again
            check.unseen = 0
        elif place > check.next:
            self._sweep(check, check.next, place, expired=False)
        else:
            path = self._path(check, place)
            what = f"the message at offset {offset} claims place {place} of {check.view}, where another one came before"
            self._report.add(
                QUEUES,
                path,
                None,
                what,
                "the head of one of them is damaged, or a queue lost its end; the later one is served",
            )

    # --- entries without a record ---

    def _sweep(self, check: QueueCheck, first: int, end: int, *, expired: bool) -> int:
        """Look at entries that no record goes with: they must be blank, or if `expired` lead before the log.

        Gives where they end.
        """
        place = first
        while place < end:
            data = check.view.chunk(place, min(_SWEEP, end - place))
            if not data:
                part = check.view.part_at(place)
                if part is not None or not any(other.first > place for other in check.view.parts):
                    break
                place = min(other.first for other in check.view.parts if other.first > place)
                continue
            for physical, size, code in ENTRY.iter_unpack(data):
                if size == 0 and physical == 0:
                    if not expired:
                        return place
                elif code != HOLE_CODE and not self._goes_without(physical, size, expired):
                    check.fault(_stray(physical), place, physical)
                place += 1
        return place

    def _goes_without(self, physical: int, size: int, expired: bool) -> bool:
        if size == BLANK_SIZE:
            return True
        if physical >= self.stop and not self._directory.whole:
            return True
        return size > 0 and (0 <= physical < self._log.gone or (expired and 0 <= physical < self._log_start))

    def finish(self, end: int) -> None:
        """The log is at its end, which is given: report what was collected."""
        self.stop = min(self.stop, end)
        for check in self._by_key.values():
            if check.next < 0:
                self._sweep(check, check.view.first, check.view.limit, expired=True)
            else:
                self._sweep(check, check.next, check.view.limit, expired=False)
            for run in check.runs:
                if run.fault == _MISSING and run.last + 1 == check.next:
                    self._judge_behind(check, run)
                else:
                    self._tell(check, run)
            if check.unseen:
                what = f"more entries do not fit: {check.unseen}"
                self._report.add(QUEUES, check.view.folder, None, what, REBUILD)
        self._note_behind()

    def _note_behind(self) -> None:
        if not self._behind:
            return
        view, messages, offset = self._behind[0]
        queues = f"{view} is {messages} messages" if len(self._behind) == 1 else ""
        if not queues:
            messages, offset = sum(each[1] for each in self._behind), min(each[2] for each in self._behind)
            queues = f"{len(self._behind)} queues are together {messages} messages"
        self._report.note(f"{queues} behind the log, from the one at offset {offset} on")

    def _judge_behind(self, check: QueueCheck, run: EntryRun) -> None:
        """A queue ends before its messages do."""
        count = run.last + 1 - run.first
        view = check.view
        if not self._directory.whole:
            self._behind.append((view, count, run.offset))
        elif (
            not view.parts
            and self._topics is not None
            and view.topic not in self._topics
            and view.topic not in UNLISTED
        ):
            self._report.note(f"{view} is gone, as its topic is; the log still has {count} of its messages")
        elif not view.parts:
            self._report.add(
                QUEUES, view.folder, None, f"the queue is missing; the log has {count} of its messages", REBUILD
            )
        else:
            what = (
                f"the queue ends at place {run.first}, "
                f"but the log has {count} more of its messages, from offset {run.offset} on"
            )
            self._report.add(QUEUES, self._path(check, run.first), self._position(check, run.first), what, REBUILD)

    def _tell(self, check: QueueCheck, run: EntryRun) -> None:
        if (
            run.fault == _MISSING
            and self._directory.running
            and not self._directory.files.exists(self._path(check, run.first))
        ):
            return  # the broker has just deleted it
        places = (
            f"place {run.first} of {check.view}"
            if run.first == run.last
            else f"places {run.first} to {run.last} of {check.view}"
        )
        if run.fault in (_MISSING, _BLANK, _ELSEWHERE, _SIZE, _CODE):
            fault = run.fault if run.first != run.last else run.fault.replace("have", "has")
            what = f"{places} {fault}; the message is at offset {run.offset}"
        else:
            what = f"{places}: {run.fault}"
        self._report.add(QUEUES, self._path(check, run.first), self._position(check, run.first), what, REBUILD)

    def _path(self, check: QueueCheck, place: int) -> str:
        view = check.view
        return f"{view.folder}/{offset_name((place - place % view.per_file) * ENTRY_SIZE)}"

    def _position(self, check: QueueCheck, place: int) -> int:
        return place % check.view.per_file * ENTRY_SIZE


def _stray(physical: int) -> str:
    return "it leads to no message of its queue" if physical >= 0 else "it is damaged"
