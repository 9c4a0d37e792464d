"""Recovery of a data directory when it is opened (docs/protocol/store.md 8).

The log is what counts: queues and index are made to agree with it. After an orderly end its last part is checked; after
a crash everything since the file that the checkpoint's times point to, and queues and index are made again from there
on.

Where the log stops, it has come to its end, or the last record was torn, or something is missing. It is the latter when
there is proof that more was durable once: then nothing is changed and StoreDamaged says where and why, unless the
caller asked to skip or to cut.
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.errors import StoreDamaged
from mqproto.engine.store.flush.checkpoint import Checkpoint, write_checkpoint
from mqproto.engine.store.flush.manifest import Manifest, adopt_queues, index_lost_from, read_manifest, restore_ends
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.log.commit_log import CommitLog, LogFile
from mqproto.engine.store.log.records import next_record, time_of
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.queues.queue_files import correct_min, load_queues
from mqproto.engine.store.queues.queue_io import sync_queue_files
from mqproto.engine.store.recovery.damage import SkipPlan, end_of_damage, step_over
from mqproto.engine.store.recovery.log_files import LogFilesFound, find_log_files
from mqproto.engine.store.recovery.queue_ends import drop_strange_entries
from mqproto.engine.store.recovery.redispatch import Redispatch
from mqproto.engine.store.recovery.scan import Scan, bytes_behind, next_nonzero, search
from mqproto.engine.store.report import Ending, Recover, RecoveryReport
from mqproto.engine.store.settings import SYNC_FLUSH, StoreSettings
from mqproto.wire.record_layout import RECORD_FIXED

#: After an orderly end so much of the log is checked, so that a start does not take longer the more was stored.
_CHECKED_MAX: Final = 4 << 20


class Recovery:
    """Recovery at one opening of a directory. `run` decides first and changes files afterwards."""

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
        self._found = LogFilesFound([], [], -1)
        self._plan = SkipPlan(files, f"{settings.store_path_root_dir}/recovered")
        #: How many parts of the log are skipped because their files were missing.
        self._made = 0
        self._manifest: Manifest | None = None
        self._manifest_path = f"{settings.store_path_root_dir}/manifest"
        #: What queues or index lost of an orderly end begins here; -1: nothing.
        self._lost_from = -1
        #: There is something behind the end of the log.
        self._leftovers = False

    def run(self, wall: int, recover: Recover, thorough: bool) -> RecoveryReport:
        """Open the log for writing, with queues and index that agree with it. `recover` says what to do about damage,
        `thorough` to look for it in the whole log. Raises StoreDamaged. Blocks.
        """
        report, log = self._report, self._log
        self._checkpoint.load()
        self._found = find_log_files(self._files, log, recover, report)
        self._plan.repeat(log, report)
        self._made = len(report.skipped)
        self._load(recover, thorough)
        scan = self._scan(log.start if thorough else self._check_from() if report.clean else self._start_after_crash())
        if scan.latest_time < self._checkpoint.log_time and report.checked_from > log.start:
            scan = self._scan(log.start)  # the clock may have gone back, and what is later lies before
        if self._manifest is not None and scan.end > self._manifest.log_end:
            self._forget_manifest(recover)  # somebody else went on with the log
            scan = self._scan(self._check_from())
        given_up = self._decide(scan, recover)
        if report.clean and self._manifest is None and scan.count and self._checkpoint.queue_time < scan.last_time:
            report.notes.append(
                "the checkpoint is older than the last message, as after a crash: its queues and keys are made again"
            )
            self._lost_from = self._start_after_crash()
        report.begin, report.end, report.checked = log.start, scan.end, scan.count
        if self._leftovers:
            report.dropped = bytes_behind(log, scan.end)
        if report.skipped:
            report.ending = Ending.SKIPPED
        elif given_up or self._found.behind:
            report.ending = Ending.CUT
        else:
            report.ending = Ending.TORN if report.dropped else Ending.WHOLE if scan.count else Ending.EMPTY
        self._apply(scan, wall, given_up)
        if report.skipped:
            self._plan.remove()
        return report

    def _load(self, recover: Recover, thorough: bool) -> None:
        """Find queues and index: by the manifest of an orderly end, otherwise by looking at each of them."""
        report = self._report
        if report.clean and not report.skipped and not thorough:
            self._manifest = read_manifest(self._files, self._manifest_path, self._checkpoint, report.notes)
        self._index.load(report.notes)
        if self._manifest is None or not self._adopt(self._manifest):
            self._forget_manifest(recover)

    def _adopt(self, manifest: Manifest) -> bool:
        """Believe a manifest; False if it does not fit to what is there."""
        begin = (
            adopt_queues(manifest, self._queues, self._report.notes) if manifest.log_start == self._log.start else None
        )
        if begin is None:
            return False
        self._lost_from = begin
        if self._settings.message_index_enable and (lost := index_lost_from(manifest, self._index)) >= 0:
            self._report.notes.append(
                f"files of {self._index.folder} are missing: the index is made again from offset {lost} on"
            )
            self._lost_from = lost if begin < 0 else min(begin, lost)
        return True

    def _forget_manifest(self, recover: Recover) -> None:
        """Look into each queue."""
        self._manifest = None
        self._lost_from = -1
        self._queues.by_key.clear()
        self._queues.forget_maps()
        self._queues.known_end = -1
        unusable: list[Queue] = []

        def on_unusable(queue: Queue, damage: StoreDamaged) -> None:
            if recover is Recover.REFUSE:
                raise damage
            self._report.notes.append(f"{damage.path}: {damage.reasons[0]}: {queue} is made again from the log")
            unusable.append(queue)

        load_queues(self._queues, self._log.start, self._report.notes, on_unusable)
        if unusable:
            self._promise_nothing()
            self._lost_from = self._log.start
        for queue in unusable:
            for folder in self._queues.folders_of(queue):
                self._files.remove_tree(folder)

    def _decide(self, scan: Scan, recover: Recover) -> bool:
        """Decide what to do where the scan stopped, and go on with it behind what is skipped.

        Gives whether data was given up.
        """
        report, log = self._report, self._log
        while True:
            self._leftovers = next_nonzero(log, scan.end) >= 0
            later = search(log, scan.end + 1) if self._leftovers else -1
            belongs = later >= 0 and self._belongs(later, scan)
            reasons = self._missing(scan, later if belongs else -1)
            if reasons and recover is Recover.SKIP:
                known = self._queues.known_end
                following = end_of_damage(log, scan.end, known)
                if following >= 0 and (belongs or later < 0 or following < later or following <= known):
                    report.skipped.append((scan.end, following))
                    report.notes.append(
                        f"the log is damaged from offset {scan.end} to {following}: {'; '.join(reasons)}"
                    )
                    scan.run(following)
                    continue
            if later >= 0:
                report.dropped_records = self._count_from(later)
            if reasons and recover is Recover.REFUSE:
                raise self._refusal(scan.end, reasons)
            report.notes += reasons
            return bool(reasons)

    def _refusal(self, end: int, reasons: list[str]) -> StoreDamaged:
        count = self._report.dropped_records
        if count:
            remedy = (
                f"--recover skip steps over the damage and keeps the {count} good messages behind it; "
                f"--recover cut lets the log end here and drops them"
            )
        else:
            remedy = "no good message follows; --recover skip or cut goes on with the log as it is"
        return StoreDamaged(self._log.path_of(self._file_start(end)), end, tuple(reasons), remedy)

    # --- what is there ---

    def _scan(self, start: int) -> Scan:
        """Walk over the log from a record on."""
        check_crc = self._settings.check_crc_on_recover
        if self._report.clean:
            scan = Scan(self._log, check_crc)
        else:
            scan = Scan(self._log, check_crc, self._checkpoint.log_time, self._power_lost())
        if 0 <= self._found.lengthened < start:
            start = self._found.lengthened
        self._report.checked_from = start
        scan.run(start)
        return scan

    def _file_start(self, offset: int) -> int:
        return offset - offset % self._log.file_size

    def _power_lost(self) -> bool:
        """Whether more than the process ended, so that the disk may hold any mixture of what was not synced."""
        return self._files.restarted_since(self._abort) is True

    # --- where to begin ---

    def _start_after_crash(self) -> int:
        """The newest file whose first record is old enough for everything before it to be complete
        (docs/protocol/store.md 8.3).
        """
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
        found = next_record(
            bytes(log.view_of(log_file)[target - log_file.start : queues_end - log_file.start]), 0, target
        )
        return target + found if found >= 0 else log_file.start

    # --- what is missing ---

    def _missing(self, scan: Scan, later: int) -> list[str]:
        """Why there must have been more behind the end of the scan; empty if nothing says so. `later`: the next good
        record that belongs to the log, -1 if there is none.
        """
        reasons = []
        durable = self._checkpoint.log_time
        if scan.latest_time < durable and durable > 0:
            reasons.append(
                f"messages stored up to {durable} were durable, "
                f"but the last one that can be read is of {scan.latest_time}"
            )
        # Queues are ahead of the log after a crash, unless they are only written what is durable.
        if self._queues.known_end > scan.end and (self._report.clean or self._settings.flush_disk_type == SYNC_FLUSH):
            reasons.append(f"queues know messages up to offset {self._queues.known_end}")
        if later >= 0:
            reasons.append(f"a good record follows at offset {later}")
        return reasons

    def _belongs(self, later: int, scan: Scan) -> bool:
        """Whether a good record behind the end of the log shows that the log was longer.

        After an orderly end, a record that is older than the last one was cut off by an earlier recovery. After a crash
        nothing that was written is lost as long as the machine ran on; a machine that lost power may have written the
        later of two records only.
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

    def _apply(self, scan: Scan, wall: int, given_up: bool) -> None:
        report, log, queues = self._report, self._log, self._queues
        end = scan.end
        self._step_over(scan)
        self._remove_files_behind(end)
        orderly = report.clean and report.ending not in (Ending.CUT, Ending.SKIPPED)
        if not orderly:
            for file in log.files_between(min([report.checked_from, *(begin for begin, _ in report.skipped)]), end):
                file.sync()
            self._files.sync_folder(log.folder)
        if not log.resume(end, self._leftovers):
            report.full = True
            report.notes.append("the disk is full: messages are refused until there is room")
        log.last_time = scan.last_time
        begin, strange = self._dispatch_from(end)
        intact = report.clean or self._files.restarted_since(self._abort) is False
        redispatch = Redispatch(
            self._files, self._settings, log, queues, self._index, report, intact, self._promise_nothing
        )
        if begin < end or not orderly:
            if report.clean:
                self._promise_nothing()
            report.dispatched_from = redispatch.run(begin, end, wall)
            report.dispatched = redispatch.count
        if self._manifest is not None and self._lost_from >= 0 and orderly:
            restore_ends(self._manifest, queues, report.notes)
        if not orderly or strange:
            redispatch.clear_behind()
            for queue in queues.by_key.values():
                correct_min(queues, queue, log.start)
        queues.forget_maps()  # some files are gone, and may come again
        sync_queue_files(self._files, redispatch.touched, redispatch.made)
        if given_up:
            self._lower_checkpoint(scan)

    def _step_over(self, scan: Scan) -> None:
        """Make passable what is skipped. Should that be broken off, the next opening goes on with it."""
        report = self._report
        if not report.skipped:
            return
        found, time = report.skipped[self._made :], max(scan.latest_time, 1)
        for begin, end in found:
            if kept := self._plan.keep(self._log, begin, end):
                report.notes.append(f"{end - begin} damaged bytes of the log are kept in {kept}")
        self._plan.write(report.skipped, time)
        for begin, end in found:
            step_over(self._log, begin, end, time)
        report.skipped.sort()

    def _promise_nothing(self) -> None:
        """Queues and index are about to lose what the checkpoint, or an orderly end, says of them. If we die on the way
        the next opening has to know.
        """
        checkpoint = self._checkpoint
        checkpoint.queue_time = 0
        write_checkpoint(self._files, checkpoint.path, checkpoint.times)
        checkpoint.saved(checkpoint.times)
        if not self._files.exists(self._abort):
            self._files.write(self._abort, b"")
        self._files.sync_folder(self._settings.store_path_root_dir)

    def _dispatch_from(self, end: int) -> tuple[int, bool]:
        """Where queues and index have to be made again from, and whether entries of queues were dropped for it.

        After an orderly end that is where the queues end. An entry may lead to a message that is not there: left over
        by a recovery of Apache's, which does not clear what it cuts.
        """
        log, queues = self._log, self._queues
        if not queues.by_key:
            return log.start, False
        begin, lost_from = self._report.checked_from, self._lost_from
        if self._report.skipped:
            begin = min(begin, self._report.skipped[0][0])
        if lost_from >= 0 or self._report.skipped:
            return min(begin if lost_from < 0 else min(lost_from, begin), end), True
        if not self._report.clean:
            return begin, False
        if self._manifest is not None:
            return min(queues.known_end, end), False
        return drop_strange_entries(log, queues, end, self._report.notes)

    def _remove_files_behind(self, end: int) -> None:
        """Empty files, files that were made ahead, and what was cut off."""
        log = self._log
        for log_file in self._found.empty:
            self._report.notes.append(f"{log_file.path} is empty and was removed")
            self._files.remove(log_file.path)
        for log_file in reversed(self._found.behind):
            self._files.remove(log_file.path)
        while log.log_files and log.log_files[-1].start > end:
            log_file = log.log_files.pop()
            if log_file.file is not None:
                log_file.file.close()
            if log_file in log.mapped:
                log.mapped.remove(log_file)
            self._files.remove(log_file.path)

    def _lower_checkpoint(self, scan: Scan) -> None:
        """The checkpoint must not speak of messages that were given up, or the next opening would miss them again."""
        checkpoint, latest = self._checkpoint, max(scan.latest_time, 0)
        checkpoint.log_time = min(checkpoint.log_time, latest)
        checkpoint.queue_time = min(checkpoint.queue_time, latest)
        if checkpoint.changed:
            write_checkpoint(self._files, checkpoint.path, checkpoint.times)
            checkpoint.saved(checkpoint.times)
