"""Retention: which files of the log are deleted when, and when the disk has no room for messages
(docs/protocol/store.md 9.1).

A small machine inside the store: every so often a job looks at the disks and at the ages of the oldest files; then the
files that have to go leave the log in memory, so that no reader finds them any more, and are removed one by one with
pauses; queues and index are trimmed to that (`trimming`). The file that is written never goes, nor one whose messages
are not yet durable in log and queues.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.flush.flusher import Flusher
from mqproto.engine.store.log.commit_log import CommitLog, LogFile
from mqproto.engine.store.retention.file_age import FileAge
from mqproto.engine.store.retention.trimming import FindMinimums, RemoveFiles, RemoveQueueFiles, Trimmer
from mqproto.engine.store.retention.watermarks import Watermarks
from mqproto.engine.store.settings import StoreSettings
from mqproto.state.node.contract import Job

#: Nothing is deleted before the store has been open for so long (docs/protocol/store.md 9.1), unless somebody asks.
_FIRST_MS: Final = 60_000
#: Rounds that a request grants, and the time between them where nothing is looked at unasked.
_ROUNDS: Final = 20
_INTERVAL_MS: Final = 10_000
_HOUR_MS: Final = 3_600_000
_HOURS: Final = 24


class LookAround:
    """Job: how full the disks are, and when files were last written."""

    __slots__ = ("_files", "_folders", "log_files", "times", "usages")

    def __init__(self, files: Files, folders: tuple[str, ...], log_files: list[LogFile]) -> None:
        self._files = files
        self._folders = folders
        self.log_files = log_files
        self.usages: tuple[tuple[int, int] | None, ...] = ()
        self.times: list[int | None] = []

    def run(self) -> None:
        self.usages = tuple([self._files.usage(folder) for folder in self._folders])
        self.times = [self._files.modified(log_file.path) for log_file in self.log_files]

    def last_written(self) -> list[int | None]:
        """When each file was last written.

        A file is not younger than the one after it, whatever a wrong clock made of its time.
        """
        found: list[int | None] = []
        limit: int | None = None
        for time in reversed(self.times):
            if time is not None and (limit is None or time < limit):
                limit = time
            found.append(None if time is None else limit)
        found.reverse()
        return found


RetentionJob = LookAround | FindMinimums | RemoveFiles | RemoveQueueFiles


class Retention:
    """Retention of one store. One job runs at a time."""

    __slots__ = (
        "_busy",
        "_clean_from",
        "_dead",
        "_files",
        "_flusher",
        "_hours",
        "_jobs",
        "_log",
        "_look_due",
        "_notices",
        "_rounds",
        "_settings",
        "_time",
        "_trimmer",
        "_utc_offset",
        "_work_due",
        "watermarks",
    )

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        log: CommitLog,
        flusher: Flusher,
        trimmer: Trimmer,
        jobs: list[Job],
        notices: list[str],
        utc_offset_ms: int,
    ) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._flusher = flusher
        self._trimmer = trimmer
        self._jobs = jobs
        self._notices = notices
        self._utc_offset = utc_offset_ms
        self._hours = settings.delete_hours
        #: How full the disks are.
        self.watermarks = Watermarks(settings)
        self._time = FileAge(settings.file_reserved_time * _HOUR_MS, 0)
        #: Files that have left the log and are not removed yet, oldest first.
        self._dead: deque[LogFile] = deque()
        self._busy = False
        #: When to look (monotonic), and from when on files may be deleted; None until the first call of `timer`.
        self._look_due = 0
        self._clean_from: int | None = None
        #: When to go on with what was begun.
        self._work_due = 0
        #: Rounds that were asked for.
        self._rounds = 0

    def begin(self) -> None:
        """The store is open: look at the disks once, so that it is known at once whether there is room. Blocks."""
        self._time = FileAge(self._settings.file_reserved_time * _HOUR_MS, self._log.last_time)
        self._trimmer.begin()
        if self._settings.clean_resource_interval:
            self._look(tuple([self._files.usage(folder) for folder in self.watermarks.folders]))

    def configure(self) -> None:
        """Take over what is set; the next look at the disks goes by it."""
        settings = self._settings
        self._hours = settings.delete_hours
        self._time.keep(settings.file_reserved_time * _HOUR_MS)
        self._trimmer.configure(settings)
        before = self.watermarks.refusal
        self.watermarks.configure(settings)
        self._judge(before)
        if settings.clean_resource_interval:
            self._look_due = 0

    def request(self) -> None:
        """Delete what is old at once, whatever the hour, and go on for some rounds."""
        self._rounds = _ROUNDS
        self._look_due = 0

    # --- deadlines ---

    def next_deadline(self) -> int | None:
        """When `timer` wants to be called; 0 is now, None never."""
        if self._busy or self._trimmer.busy:
            return None
        due: int | None = None
        if self._settings.clean_resource_interval or self._rounds:
            due = self._look_due
        if (self._dead or self._trimmer.behind) and (due is None or self._work_due < due):
            due = self._work_due
        return due

    def timer(self, now: int, wall: int) -> None:
        interval = self._settings.clean_resource_interval
        if self._clean_from is None:
            self._clean_from = now + _FIRST_MS
            self._time.at(now, wall)
            if not self._rounds:
                self._look_due = now + interval
        if self._busy or self._trimmer.busy:
            return
        if (interval or self._rounds) and now >= self._look_due:
            self._busy = True
            self._look_due = now + (interval or _INTERVAL_MS)
            oldest = self._log.log_files[: min(self._settings.delete_file_batch_max, len(self._log.log_files) - 1)]
            self._jobs.append(LookAround(self._files, self.watermarks.folders, oldest))
        elif now >= self._work_due:
            if self._dead:
                self._busy = True
                self._jobs.append(RemoveFiles(self._files, [self._dead[0].path]))
            elif self._trimmer.behind:
                self._trimmer.step()

    def done(self, job: RetentionJob, now: int, wall: int) -> None:
        """A job ended, well or not: what it did not do is done again later."""
        if isinstance(job, LookAround):
            self._busy = False
            time = self._time.at(now, wall)
            if job.usages:
                self._look(job.usages)
                if not self._dead and len(job.times) == len(job.log_files):
                    self._choose(job, now, wall, time)
        elif isinstance(job, FindMinimums):
            self._trimmer.found(job)
        elif self._busy:  # only files of the log are removed while nothing else is done
            self._busy = False
            if isinstance(job, RemoveFiles) and not job.paths:
                self._dead.popleft()
                self._work_due = now + (self._settings.delete_commit_log_files_interval if self._dead else 0)
            else:
                self._work_due = now + self._settings.redelete_hanged_file_interval
        else:
            self._work_due = now + self._trimmer.removed(job)

    # --- deciding ---

    def _look(self, usages: tuple[tuple[int, int] | None, ...]) -> None:
        before = self.watermarks.refusal
        self.watermarks.looked(usages)
        self._judge(before)

    def _judge(self, before: str) -> None:
        """The marks say something new, perhaps, and said this `before`."""
        refusal = self.watermarks.refusal
        self._log.refuse("disk", refusal)
        if bool(refusal) != bool(before):
            self._notices.append(
                f"messages are refused: {refusal}" if refusal else "messages are taken again: the disk has room"
            )

    def _choose(self, job: LookAround, now: int, wall: int, time: int) -> None:
        """Let files leave the log: old ones if it is time, the disk is pressed, or somebody asked; younger ones if a
        disk is full.
        """
        settings = self._settings
        asked = self._rounds > 0
        if asked:
            self._rounds -= 1
            time = wall
        elif self._clean_from is not None and now < self._clean_from:
            return
        forced = self.watermarks.forced and settings.clean_file_forcibly_enable
        timed = (wall + self._utc_offset) // _HOUR_MS % _HOURS in self._hours
        if not (asked or timed or forced or self.watermarks.pressed):
            return
        log, reserved = self._log, settings.file_reserved_time * _HOUR_MS
        durable = min(self._flusher.flushed, self._flusher.rounds.settled)
        excess = -(-self.watermarks.excess() // log.file_size)
        young = (excess or settings.delete_file_batch_max) if forced else 0
        counts = [0, 0]
        for log_file, written in zip(job.log_files, job.last_written(), strict=True):
            old = written is not None and time - written >= reserved
            if log_file.start + log.file_size > durable or not (old or young > 0):
                break
            young -= 1
            counts[not old] += 1
            self._dead.append(log.drop_first())
        self._work_due = now
        for count, why in zip(
            counts, (f"they are older than {settings.file_reserved_time} hours", self.watermarks.state), strict=True
        ):
            if count:
                self._notices.append(
                    f"{count} files of the log are deleted, it begins at offset {log.start} now: {why}"
                )
