"""Redispatch: queues and index are made again from the log, from some record on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.errors import StoreDamaged
from mqproto.engine.store.flush.flush_jobs import DELETED
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.index.index_repair import cut_index
from mqproto.engine.store.layout import BLANK_SIZE, ENTRY, HOLE_CODE, UNIT, is_offset_name
from mqproto.engine.store.log.commit_log import NO_ROOM, CommitLog
from mqproto.engine.store.log.records import Facts, facts_of, time_of
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.queues.queue_files import shorten
from mqproto.engine.store.queues.queue_io import FileWrite, write_out
from mqproto.engine.store.recovery.scan import Scan, known_records
from mqproto.engine.store.report import LostRange, RecoveryReport
from mqproto.engine.store.settings import StoreSettings
from mqproto.wire.properties import KEYS, UNIQ_KEY
from mqproto.wire.record_layout import RECORD_FIXED

#: Entries, in bytes, that may wait in memory before they are written.
_ENTRIES_MAX: Final = 16 << 20
#: Keys that may wait until the index file has room for them.
_LATE_MAX: Final = 1024
#: What may be kept in memory because the disk is full: bytes of entries, and keys. Beyond, a start needs room on the
#: disk.
_IN_MEMORY_MAX: Final = 128 << 20
_KEYS_MAX: Final = 1 << 20


class _BeginEarlier(Exception):  # noqa: N818 - nothing is wrong
    """Signal that a queue lacks entries of messages before the place where we began: begin again from `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Redispatch:
    """Redispatch of messages, so that queues and index agree with the log."""

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        report: RecoveryReport,
        intact: bool,
        promise_nothing: Callable[[], None],
    ) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        #: Records from here on are known to be good.
        self._checked_from = report.checked_from
        self._report = report
        #: All that was written is there; otherwise what was not durable may be missing.
        self._intact = intact
        self._notes = report.notes
        #: Makes durable that the next opening has to make queues and index again from the beginning, should this one
        #: not come to its end.
        self._promise_nothing = promise_nothing
        self._delays = settings.delay_levels
        self._waiting = 0
        self._write_at = _ENTRIES_MAX
        self._settle_at = _LATE_MAX
        self._start = 0
        #: Messages that claim to begin a queue at a place that the log never had room for.
        self._doubtful: dict[Queue, tuple[Facts, int, int]] = {}
        #: Places of messages that are known to be gone, with the offsets where they lay.
        self._gone: dict[Queue, dict[int, int]] = {}
        #: Queue files that were changed, and which of them are new.
        self.touched: set[str] = set()
        self.made: set[str] = set()
        self.count = 0

    def run(self, start: int, end: int, wall: int) -> int:
        """Drop what queues and index know of records from `start` on, and read those up to `end` again. Gives where it
        really began:
        earlier, when queues turn out to lack more. Blocks.
        """
        while True:
            self._start = start
            self.count = 0
            self._queues.drop_units()
            self._cut_queues(start)
            cut_index(self._index, start, self._time_at, self._intact, self._notes)
            try:
                self._read(end, wall)
            except _BeginEarlier as found:
                start = found.offset
                self._promise_nothing()
                self._drop_tails()
                self._report.lost.clear()
                continue
            self._settle_index(wall)
            self._tell_lost_ends()
            return start

    def _time_at(self, offset: int) -> int:
        record = self._log.slice(offset, offset + RECORD_FIXED)
        return -1 if record is None else time_of(record)

    def _cut_queues(self, start: int) -> None:
        if start >= self._queues.known_end and not self.touched:
            return
        for queue in self._queues.by_key.values():
            if queue.written > queue.first:
                last = self._queues.last(queue)
                if last is None or last[0] >= start:
                    end = queue.written
                    shorten(self._queues, queue, start)
                    self._find_gone(queue, end)

    def _find_gone(self, queue: Queue, end: int) -> None:
        """Remember which entries behind the new end of a queue stand for messages that are gone: blank ones, and those
        that lead to a part of the log that is skipped.
        """
        at = queue.written
        while at < end:
            entries = self._queues.file_entries(queue, at, end)
            for physical, size, code in ENTRY.iter_unpack(entries):
                if size == BLANK_SIZE or code == HOLE_CODE or self._is_skipped(physical):
                    self._gone.setdefault(queue, {})[at] = physical
                at += 1
            if not entries:
                return

    def _is_skipped(self, offset: int) -> bool:
        return any(begin <= offset < end for begin, end in self._report.skipped)

    def _drop_tails(self) -> None:
        for queue in self._queues.dirty:
            queue.tail.clear()
            queue.max_offset = queue.next_offset = queue.written
        self._queues.dirty = []
        self._waiting = 0
        self._doubtful.clear()

    def _read(self, end: int, wall: int) -> None:
        for offset, record in self._records(end):
            self.count += 1
            facts = facts_of(record)
            if not facts.has_entry and not facts.is_indexed:
                continue
            try:
                queue = self._queues.queue(facts.topic, facts.queue_id)
            except ValueError as failure:
                self._notes.append(f"the message at offset {offset} is in no queue: {failure}")
                continue
            if facts.has_entry:
                self._add_entry(queue, facts, offset, len(record))
            if facts.is_indexed and self._settings.message_index_enable:
                self._index.add(
                    queue, facts.properties.get(UNIQ_KEY), facts.properties.get(KEYS), offset, facts.store_time
                )
                if len(self._index.late) >= self._settle_at:
                    self._settle_index(wall)
            if self._waiting >= self._write_at:
                self._write()
        self._settle_doubts()

    def _records(self, end: int) -> Iterator[tuple[int, memoryview]]:
        """The records from the start on. What recovery has not checked is checked now."""
        if self._start < self._checked_from:
            scan = Scan(self._log, False)
            for offset, record in scan.records(self._start):
                if offset >= self._checked_from:
                    break
                yield offset, record
            else:
                if self._start > self._log.start:
                    raise _BeginEarlier(self._log.start)
                raise StoreDamaged(
                    self._log.folder, scan.end, ("a record that queues need to be made again cannot be read",)
                )
        yield from known_records(self._log, max(self._start, self._checked_from), end)

    def _add_entry(self, queue: Queue, facts: Facts, offset: int, size: int) -> None:
        place = facts.queue_offset
        if place != queue.next_offset:
            if place == 0:
                queue = self._begin_anew(queue)
            elif place < queue.next_offset:
                self._tell_claim(queue, place, offset)
                return
            elif place - queue.next_offset > offset // RECORD_FIXED:
                if not self._is_vouched_for(queue, facts, offset, size):
                    return
            else:
                self._fill_gap(queue, place, offset, size)
        self._append_entry(queue, facts, offset, size)

    def _append_entry(self, queue: Queue, facts: Facts, offset: int, size: int) -> None:
        code = facts.tags_code(self._delays)
        if self._queues.extension.enabled:
            code = self._queues.extend(queue, code, facts.store_time, b"")
            self._waiting += UNIT.size
        self._queues.add(queue, ENTRY.pack(offset, size, code))
        queue.max_offset = queue.next_offset
        self._waiting += ENTRY.size

    def _is_vouched_for(self, queue: Queue, facts: Facts, offset: int, size: int) -> bool:
        """Whether a message has its place although the log before it never had room for the messages before: those of a
        queue that moved here from elsewhere do. No checksum covers the place, so the first one counts once another one
        follows it.
        """
        if queue.next_offset != queue.first:
            self._tell_claim(queue, facts.queue_offset, offset)
            return False
        before = self._doubtful.pop(queue, None)
        if before is not None:
            if before[0].queue_offset + 1 == facts.queue_offset:
                self._begin_with(queue, *before)
                return True
            self._tell_claim(queue, before[0].queue_offset, before[1])
        self._doubtful[queue] = facts, offset, size
        return False

    def _begin_with(self, queue: Queue, facts: Facts, offset: int, size: int) -> None:
        self._fill_gap(queue, facts.queue_offset, offset, size)
        self._append_entry(queue, facts, offset, size)

    def _settle_doubts(self) -> None:
        """A message that its queue has no other one of is taken at its word."""
        for queue, (facts, offset, size) in self._doubtful.items():
            if queue.next_offset == queue.first:
                self._begin_with(queue, facts, offset, size)
            else:
                self._tell_claim(queue, facts.queue_offset, offset)
        self._doubtful.clear()

    def _tell_claim(self, queue: Queue, place: int, offset: int) -> None:
        self._notes.append(f"the message at offset {offset} claims place {place} in {queue}, where it cannot be")

    def _begin_anew(self, old: Queue) -> Queue:
        """The topic was deleted and made again: only its new messages count."""
        self._notes.append(f"{old} begins anew")
        self._queues.remove(old)
        for folder in self._queues.folders_of(old):
            self._files.remove_tree(folder)
        return self._queues.queue(old.topic, old.queue_id)

    def _fill_gap(self, queue: Queue, place: int, offset: int, size: int) -> None:
        """Entries are missing before a message: their messages lie further back, or are gone. Entries that take their
        places lead to that message (`HOLE_CODE`), so that offsets never decrease within a queue.
        """
        hole = ENTRY.pack(offset, size, HOLE_CODE)
        log_start = self._log.start
        gone = self._gone.get(queue, {})
        if gone and all(each in gone for each in range(queue.next_offset, place)):
            lost = [each for each in range(queue.next_offset, place) if self._is_skipped(gone[each])]
            if not lost and queue.next_offset == queue.first:
                self._queues.begin_at(queue, place)
                return
            self._tell_lost(queue, lost)
            self._add_holes(queue, hole, place)
            return
        last = self._queues.last(queue) if queue.next_offset > queue.first else None
        if self._start > log_start:
            raise _BeginEarlier(log_start if last is None else max(log_start, min(last[0], self._start - 1)))
        if queue.next_offset == queue.first:
            self._queues.begin_at(queue, place)
            return
        self._tell_lost(queue, list(range(queue.next_offset, place)))
        self._add_holes(queue, hole, place)

    def _add_holes(self, queue: Queue, hole: bytes, end: int) -> None:
        self._queues.add(queue, hole * (end - queue.next_offset))
        queue.next_offset = queue.max_offset = end

    def _tell_lost(self, queue: Queue, places: list[int]) -> None:
        if places:
            self._notes.append(
                f"messages {places[0]} to {places[-1]} of {queue.topic}, queue {queue.queue_id}, are gone"
            )
            self._report.lost.append(LostRange(queue.topic, queue.queue_id, places[0], places[-1]))

    def _tell_lost_ends(self) -> None:
        """Messages that were the last ones of their queues leave no place: those that come next get theirs."""
        for queue, gone in self._gone.items():
            places = sorted(each for each in gone if each >= queue.next_offset and self._is_skipped(gone[each]))
            if places:
                self._tell_lost(queue, places)
                self._notes.append(f"{queue.topic}, queue {queue.queue_id}, ends at {queue.next_offset} now")

    def _write(self) -> None:
        """Put entries into files.

        On a full disk they stay in memory, for the store to write them when there is room.
        """
        queues = self._queues
        try:
            for queue in queues.dirty:
                if not queue.removed:
                    self._write_queue(queue)
        except OSError as failure:
            if failure.errno not in NO_ROOM or self._waiting > _IN_MEMORY_MAX:
                raise
            queues.dirty = [queue for queue in queues.dirty if queue.tail and not queue.removed]
            self._write_at = self._waiting + _ENTRIES_MAX
            self._tell_full("entries of queues")
        else:
            queues.dirty = []
            self._waiting = 0
            self._write_at = _ENTRIES_MAX

    def _write_queue(self, queue: Queue) -> None:
        extension = self._queues.extension
        if queue.units is not None:
            self._write_out(extension.unwritten(queue.units))
            extension.wrote(queue.units, queue.units.written + len(queue.units.tail))
        self._write_out(self._queues.unwritten(queue, queue.next_offset))
        self._queues.wrote(queue, queue.next_offset)

    def _settle_index(self, wall: int) -> None:
        try:
            self._index.settle(wall)
        except OSError as failure:
            if failure.errno not in NO_ROOM or len(self._index.late) > _KEYS_MAX:
                raise
            self._settle_at = len(self._index.late) + _LATE_MAX
            self._tell_full("keys of the index")
        else:
            self._settle_at = _LATE_MAX

    def _tell_full(self, what: str) -> None:
        note = f"the disk is full: {what} are kept in memory until there is room"
        if note not in self._notes:
            self._notes.append(note)

    def _write_out(self, writes: Iterator[FileWrite]) -> None:
        for write in writes:
            write_out(self._files, write)
            self.touched.add(write.path)
            if write.at == 0:
                self.made.add(write.path)

    def clear_behind(self) -> None:
        """Write what is known and make what lies behind it in the files zero, so that it is not taken for entries
        later; and finish removing what was deleted. Blocks.
        """
        self._write()
        for folder in (self._queues.folder, self._queues.extension.folder):
            for topic in self._files.names(folder):
                for name in self._files.names(f"{folder}/{topic}"):
                    if name.endswith(DELETED):
                        self._files.remove_tree(f"{folder}/{topic}/{name}")
        per_file = self._queues.per_file
        for queue in self._queues.by_key.values():
            keep = queue.written - 1 - (queue.written - 1) % per_file if queue.written > queue.first else -1
            for name in self._files.names(queue.folder):
                path = f"{queue.folder}/{name}"
                if not is_offset_name(name):
                    continue
                start = int(name) // ENTRY.size
                if start > keep:
                    if not self._files.is_folder(path):
                        self._files.remove(path)
                        self.made.add(path)  # its folder is synced like that of a new one
                elif start == keep and queue.written % per_file:
                    file = self._files.open(path)
                    if file.clear((queue.written - start) * ENTRY.size, file.size):
                        self.touched.add(path)
                    file.close()
        if self._queues.extension.enabled:
            self._queues.begin_extension()
            for queue in self._queues.by_key.values():
                if queue.units is not None:
                    self.touched.update(self._queues.extension.cut(queue.units))
