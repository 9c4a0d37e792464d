"""What is true when a data directory is opened (store.md 8).

The log is what counts: queues and index are made to agree with it. After an orderly end its last part is checked; after a crash
everything since the file that the checkpoint's times point to, and queues and index are made again from there on.

Where the log stops, it has come to its end, or the last record was torn, or something is missing. It is the latter when there is proof
that more was durable once: then nothing is changed and StoreDamaged tells where and why, unless the caller asked to cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from engine.store.checkpoint import Checkpoint, write_checkpoint
from engine.store.commitlog import CommitLog, LogFile
from engine.store.consumequeue import ConsumeQueues
from engine.store.errors import StoreDamaged
from engine.store.files import Files
from engine.store.index import Index
from engine.store.layout import RECORD_FIXED, is_offset_name
from engine.store.pieces import sync_queue_files
from engine.store.queue import Queue
from engine.store.records import facts_of, measure, next_record
from engine.store.redispatch import Redispatch
from engine.store.scanning import Scan, bytes_behind, next_nonzero, search, time_of
from engine.store.settings import SYNC_FLUSH, StoreSettings

#: After an orderly end so much of the log is checked, so that a start does not take longer the more was stored.
_CHECKED_MAX: Final = 4 << 20


class Ending(Enum):
    """How the log ended."""

    EMPTY = "empty"
    #: Behind the last record there is nothing.
    WHOLE = "whole"
    #: The last record was not written to its end, and nothing shows that it was durable once.
    TORN = "torn"
    #: The caller let damaged data be dropped.
    CUT = "cut"


@dataclass(slots=True)
class RecoveryReport:
    """What opening found and did. Offsets are physical."""

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
    #: What an operator should know, one sentence each.
    notes: list[str] = field(default_factory=list)


class Recovery:
    """One opening of a directory. `run` decides first and changes files afterwards."""

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        checkpoint: Checkpoint,
        abort: str,
    ) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._abort = abort
        self._report = RecoveryReport(clean=not files.exists(abort))
        self._empty_files: list[LogFile] = []
        #: There is something behind the end of the log.
        self._leftovers = False

    def run(self, wall: int, cut: bool) -> RecoveryReport:
        """Open the log for writing, with queues and index that agree with it. `cut`: drop what is damaged instead of raising
        StoreDamaged. Blocks."""
        report = self._report
        self._checkpoint.load()
        self._find_log_files()
        self._queues.load(self._log.start, report.notes)
        self._index.load(report.notes)
        scan = self._scan(self._check_from() if report.clean else self._start_after_crash())
        if scan.latest_time < self._checkpoint.log_time and report.checked_from > self._log.start:
            scan = self._scan(self._log.start)  # the clock may have gone back, and what is later lies before
        report.begin, report.end, report.checked = self._log.start, scan.end, scan.count
        self._leftovers = next_nonzero(self._log, scan.end) >= 0
        reasons = self._missing(scan)
        if reasons and not cut:
            raise StoreDamaged(self._log.path_of(self._file_start(scan.end)), scan.end, tuple(reasons))
        report.notes += reasons
        if self._leftovers:
            report.dropped = bytes_behind(self._log, scan.end)
        report.ending = Ending.CUT if reasons else Ending.TORN if report.dropped else Ending.WHOLE if scan.count else Ending.EMPTY
        self._apply(scan, wall)
        return report

    # --- what is there ---

    def _scan(self, start: int) -> Scan:
        """Walk over the log from a record on."""
        check_crc = self._settings.check_crc_on_recover
        if self._report.clean:
            scan = Scan(self._log, check_crc)
        else:
            scan = Scan(self._log, check_crc, self._checkpoint.log_time, self._power_lost())
        self._report.checked_from = start
        scan.run(start)
        return scan

    def _find_log_files(self) -> None:
        log, files, notes = self._log, self._files, self._report.notes
        names = []
        for name in files.names(log.folder):
            if is_offset_name(name):
                names.append(name)
            else:
                notes.append(f"{log.folder}/{name} is no file of the log and was left out")
        found = [LogFile(f"{log.folder}/{name}", int(name)) for name in names]
        while found and files.size(found[-1].path) == 0:
            self._empty_files.append(found.pop())
        for before, log_file in zip([None, *found], found, strict=False):
            if (size := files.size(log_file.path)) != log.file_size:
                raise StoreDamaged(log_file.path, None, (f"it has {size} bytes instead of the configured {log.file_size}",))
            if log_file.start % log.file_size or (before is not None and before.start + log.file_size != log_file.start):
                raise StoreDamaged(log_file.path, None, ("the file before it is missing",))
        log.log_files = found
        if not found and self._empty_files:
            log.base = log.end = self._empty_files[-1].start

    def _file_start(self, offset: int) -> int:
        return offset - offset % self._log.file_size

    def _power_lost(self) -> bool:
        """Whether more than the process ended, so that the disk may hold any mixture of what was not synced."""
        return self._files.restarted_since(self._abort) is True

    # --- where to begin ---

    def _start_after_crash(self) -> int:
        """The newest file whose first record is old enough for everything before it to be complete (store.md 8.3)."""
        log = self._log
        limit = self._checkpoint.recover_from
        for log_file in reversed(log.log_files):
            data = log.file_of(log_file).read(0, RECORD_FIXED)
            if next_record(data, 0, log_file.start) == 0 and 0 < time_of(memoryview(data)) <= limit:
                return log_file.start
        return log.start

    def _check_from(self) -> int:
        """A record not too far before the place where the queues end, or the start of its file."""
        log = self._log
        queues_end = self._queues.known_end
        log_file = log.log_file_at(queues_end - 1)
        if log_file is None:
            return log.start if queues_end <= log.start or not log.log_files else log.log_files[-1].start
        target = queues_end - _CHECKED_MAX
        if target <= log_file.start:
            return log_file.start
        found = next_record(bytes(log.view_of(log_file)[target - log_file.start : queues_end - log_file.start]), 0, target)
        return target + found if found >= 0 else log_file.start

    # --- what is missing ---

    def _missing(self, scan: Scan) -> list[str]:
        """Why there must have been more behind the end of the scan; empty if nothing says so."""
        report = self._report
        reasons = []
        durable = self._checkpoint.log_time
        if scan.latest_time < durable and durable > 0:
            reasons.append(f"messages stored up to {durable} were durable, but the last one that can be read is of {scan.latest_time}")
        # Queues are ahead of the log after a crash, unless they are only written what is durable.
        if self._queues.known_end > scan.end and (report.clean or self._settings.flush_disk_type == SYNC_FLUSH):
            reasons.append(f"queues know messages up to offset {self._queues.known_end}")
        later = search(self._log, scan.end + 1) if self._leftovers else -1
        if later >= 0:
            report.dropped_records = self._count_from(later)
            if self._belongs(later, scan):
                reasons.append(f"a good record follows at offset {later}")
        return reasons

    def _belongs(self, later: int, scan: Scan) -> bool:
        """Whether a good record behind the end of the log shows that the log was longer.

        After an orderly end, a record that is older than the last one was cut off by an earlier recovery. After a crash nothing that was
        written is lost as long as the machine ran on; a machine that lost power may have written the later of two records only.
        """
        if self._report.clean:
            record = self._log.view_of(self._log_file(later))[later - self._file_start(later) :]
            return time_of(record) >= scan.last_time
        return not self._power_lost()

    def _count_from(self, start: int) -> int:
        """How many good records there are from one on, with gaps."""
        count = 0
        while start >= 0:
            scan = Scan(self._log, True)
            scan.run(start)
            count += scan.count
            start = search(self._log, scan.end + 1)
        return count

    def _log_file(self, offset: int) -> LogFile:
        log_file = self._log.log_file_at(offset)
        assert log_file is not None
        return log_file

    # --- making it so ---

    def _apply(self, scan: Scan, wall: int) -> None:
        report, log, queues = self._report, self._log, self._queues
        end = scan.end
        self._remove_files_behind(end)
        orderly = report.clean and report.ending is not Ending.CUT
        if not orderly:
            for file in log.files_between(report.checked_from, end):
                file.sync()
            self._files.sync_folder(log.folder)
        log.resume(end, self._leftovers)
        log.last_time = scan.last_time
        begin, strange = self._dispatch_from(end)
        intact = report.clean or self._files.restarted_since(self._abort) is False
        redispatch = Redispatch(
            self._files, self._settings, log, queues, self._index, report.checked_from, intact, report.notes, self._promise_nothing
        )
        if begin < end or not orderly:
            if report.clean:
                self._promise_nothing()
            report.dispatched_from = redispatch.run(begin, end, wall)
            report.dispatched = redispatch.count
        if not orderly or strange:
            redispatch.clear_behind()
            for queue in queues.by_key.values():
                queues.correct_min(queue, log.start)
        sync_queue_files(self._files, redispatch.touched, redispatch.made)
        if report.ending is Ending.CUT:
            self._lower_checkpoint(scan.latest_time)

    def _promise_nothing(self) -> None:
        """Queues and index are about to lose what the checkpoint, or an orderly end, says of them. If we die on the way the next opening
        has to know."""
        checkpoint = self._checkpoint
        checkpoint.queue_time = 0
        write_checkpoint(self._files, checkpoint.path, checkpoint.times)
        checkpoint.saved(checkpoint.times)
        if not self._files.exists(self._abort):
            self._files.write(self._abort, b"")
        self._files.sync_folder(self._settings.store_path_root_dir)

    def _dispatch_from(self, end: int) -> tuple[int, bool]:
        """Where queues and index have to be made again from, and whether entries of queues were dropped for it.

        After an orderly end that is where the queues end. An entry may lead to a message that is not there: left over by a recovery of
        Apache's, which does not clear what it cuts.
        """
        log, queues = self._log, self._queues
        if not queues.by_key:
            return log.start, False
        if not self._report.clean:
            return self._report.checked_from, False
        known_end, strange = log.start, False
        for queue in queues.by_key.values():
            queue_end, dropped = self._drop_strange_entries(queue)
            known_end = max(known_end, queue_end)
            strange |= dropped
        return min(known_end, end), strange

    def _remove_files_behind(self, end: int) -> None:
        """Empty files, files that were made ahead, and what was cut off."""
        log = self._log
        for log_file in self._empty_files:
            self._report.notes.append(f"{log_file.path} is empty and was removed")
            self._files.remove(log_file.path)
        while log.log_files and log.log_files[-1].start > end:
            log_file = log.log_files.pop()
            if log_file.file is not None:
                log_file.file.close()
            if log_file in log.mapped:
                log.mapped.remove(log_file)
            self._files.remove(log_file.path)

    def _drop_strange_entries(self, queue: Queue) -> tuple[int, bool]:
        """Let a queue end with an entry that leads to its own message. Gives where that message ends, and whether entries were dropped."""
        queues, log = self._queues, self._log
        before = queue.next_offset
        end = -1
        while queue.next_offset > queue.min_offset:
            entry = queues.entry(queue, queue.next_offset - 1)
            if entry is not None:
                end = entry[0] + entry[1]
                if entry[0] < log.start or not self._is_strange(entry, queue):
                    break
            queue.next_offset -= 1
            queue.written = queue.max_offset = queue.next_offset
        dropped = before - queue.next_offset
        if dropped:
            self._report.notes.append(f"{queue} had {dropped} entries that lead to no message of it")
        return end, dropped > 0

    def _is_strange(self, entry: tuple[int, int, int], queue: Queue) -> bool:
        """Whether the last entry of a queue leads to no message, or to one of another queue, which knows it. A message that nobody else
        knows stays where it is, even if it claims another place: no checksum covers that part of it."""
        record = self._record(entry[0], entry[1])
        if record is None:
            return True
        facts = facts_of(record)
        claimed = self._queues.by_key.get((facts.topic, facts.queue_id))
        if claimed is queue and facts.queue_offset == queue.next_offset - 1:
            return False
        known = None if claimed is None else self._queues.entry(claimed, facts.queue_offset)
        if known is not None and known[0] == entry[0]:
            return True
        self._report.notes.append(f"the message at offset {entry[0]} claims another place than {queue}, where it is")
        return False

    def _record(self, offset: int, size: int) -> memoryview | None:
        """The record at an offset, if there is one of that size."""
        log_file = self._log.log_file_at(offset)
        if log_file is None:
            return None
        view, at = self._log.view_of(log_file), offset - log_file.start
        return view[at : at + size] if measure(view, at, offset, False) == size else None

    def _lower_checkpoint(self, latest: int) -> None:
        """The checkpoint must not speak of messages that were given up, or the next opening would miss them again."""
        checkpoint = self._checkpoint
        checkpoint.log_time = min(checkpoint.log_time, max(latest, 0))
        checkpoint.queue_time = min(checkpoint.queue_time, max(latest, 0))
        write_checkpoint(self._files, checkpoint.path, checkpoint.times)
        checkpoint.saved(checkpoint.times)
