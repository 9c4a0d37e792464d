"""Commit log: records one after another in files of one size (docs/protocol/store.md 2, 3).

Owns: the files, where the next record goes, and how far blocks are allocated ahead of it. A record is only ever written
where blocks are allocated already, because a map that the disk cannot back kills the process.
Leaves to others: what a record holds (`writing`), when to flush (`flusher`), what is true after a crash (`recovery`).
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.layout import FILLER_SIZE, MAGIC_FILLER, offset_name
from mqproto.engine.store.settings import StoreSettings
from mqproto.state.node.contract import Job
from mqproto.wire.record_layout import SIZE_MAGIC

#: Allocated at opening, before the first job can run: small, so that a start takes milliseconds.
_FIRST_WINDOW: Final = 4 << 20
#: Files mapped at a time; address space is cheap, file descriptors are not.
_MAPPED_MAX: Final = 64
#: What a file system answers when it has no room.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LogFile:
    """File of the log. Opened and mapped when touched."""

    __slots__ = ("file", "path", "start", "view")

    def __init__(self, path: str, start: int) -> None:
        self.path = path
        self.start = start
        self.file: File | None = None
        self.view: memoryview | None = None


class AllocateLog:
    """Job: allocate the next blocks of the file that is written."""

    __slots__ = ("end", "file", "start")

    def __init__(self, file: File, start: int, end: int) -> None:
        self.file = file
        self.start = start
        self.end = end

    def run(self) -> None:
        self.file.allocate(self.start, self.end - self.start)


class CreateLog:
    """Job: make the next file, before it is needed."""

    __slots__ = ("allocated", "file", "files", "folder", "log_file", "size")

    def __init__(self, files: Files, folder: str, log_file: LogFile, size: int, allocated: int) -> None:
        self.files = files
        self.folder = folder
        self.log_file = log_file
        self.size = size
        self.allocated = allocated
        self.file: File | None = None

    def run(self) -> None:
        file = self.files.create(self.log_file.path, self.size)
        try:
            file.allocate(0, self.allocated)
            self.files.sync_folder(self.folder)
        except OSError:
            file.close()
            raise
        self.file = file


class CommitLog:
    """Log that is ready to be appended to.

    The hot path is not here but in `Writer.append`: it writes a record at `end` into `view` (whose first byte is offset
    `base`) as long as record and filler head stay below `soft`, and calls `make_room` otherwise.
    """

    __slots__ = (
        "_busy",
        "_short",
        "_spare",
        "_spare_limit",
        "base",
        "end",
        "file_size",
        "files",
        "folder",
        "jobs",
        "last_time",
        "limit",
        "log_files",
        "mapped",
        "refusals",
        "skipped",
        "soft",
        "stopped",
        "unsynced_names",
        "view",
        "window",
    )

    def __init__(self, files: Files, settings: StoreSettings, jobs: list[Job]) -> None:
        self.files = files
        self.jobs = jobs
        self.folder = settings.commit_log_folder
        self.file_size = settings.mapped_file_size_commit_log
        self.window = settings.allocation_window
        #: All files in order, without gaps; the last one is written.
        self.log_files: list[LogFile] = []
        self.mapped: list[LogFile] = []
        #: Where the next record goes.
        self.end = 0
        #: Bytes that were left out at the ends of files.
        self.skipped = 0
        #: Store time of the last record.
        self.last_time = 0
        #: First offset of the file that is written, and the file mapped.
        self.base = 0
        self.view = memoryview(b"")
        #: Up to here blocks are allocated.
        self.limit = 0
        #: Up to here `append` needs not ask.
        self.soft = 0
        #: A file was made without its folder being synced.
        self.unsynced_names = False
        #: Nothing more is written.
        self.stopped = False
        #: Why nothing is written for now, by who says so.
        self.refusals: dict[str, str] = {}
        self._busy = False
        #: The disk is nearly full: nothing is prepared, until there is room again.
        self._short = False
        self._spare: LogFile | None = None
        self._spare_limit = 0

    # --- files ---

    @property
    def start(self) -> int:
        """Where the log begins."""
        return self.log_files[0].start if self.log_files else self.base

    def path_of(self, start: int) -> str:
        return f"{self.folder}/{offset_name(start)}"

    def file_of(self, log_file: LogFile) -> File:
        """The file, opened."""
        file = log_file.file
        if file is None:
            file = log_file.file = self.files.open(log_file.path)
        return file

    def view_of(self, log_file: LogFile) -> memoryview:
        """The file, mapped. The oldest map goes when there are too many, unless it is written."""
        view = log_file.view
        if view is None:
            view = log_file.view = self.file_of(log_file).view()
            self.mapped.append(log_file)
            if len(self.mapped) > _MAPPED_MAX:
                self._unmap(next(each for each in self.mapped if each.view is not self.view and each is not log_file))
        return view

    def _unmap(self, log_file: LogFile) -> None:
        self.mapped.remove(log_file)
        log_file.view = None
        if log_file.file is not None:
            log_file.file.close()
            log_file.file = None

    def log_file_at(self, offset: int) -> LogFile | None:
        """The file that holds an offset."""
        index = (offset - self.start) // self.file_size
        return self.log_files[index] if 0 <= index < len(self.log_files) else None

    def slice(self, start: int, end: int) -> memoryview | None:
        """Bytes of the log, if they lie in one file."""
        at = start - self.base
        if at >= 0:
            return self.view[at : end - self.base] if end - self.base <= self.file_size and self.log_files else None
        log_file = self.log_file_at(start)
        if log_file is None or end > log_file.start + self.file_size:
            return None
        return self.view_of(log_file)[start - log_file.start : end - log_file.start]

    def drop_first(self) -> LogFile:
        """Take the oldest file out of the log; removing it is the caller's.

        Slices of it stay valid for as long as they are held.
        """
        log_file = self.log_files.pop(0)
        if log_file.view is not None:
            self._unmap(log_file)
        elif log_file.file is not None:
            log_file.file.close()
            log_file.file = None
        return log_file

    # --- opening ---

    def resume(self, end: int, leftovers: bool) -> bool:
        """Go on writing at `end`: in the last file, or in a new one that begins there. Gives whether there is room for
        that; if not, what there is can be read, and the next append asks again. Blocks.

        If there are `leftovers` behind `end` they are made zero, so that nothing old can be taken for a record that
        follows a new one.
        """
        self.end = end
        self.limit = end
        room = True
        if self.log_files and end < self.log_files[-1].start + self.file_size:
            log_file = self.log_files[-1]
            if leftovers and self.file_of(log_file).clear(end - log_file.start, self.file_size):
                self.file_of(log_file).sync()
            self._write_into(log_file)
            room = self._begin_window()
        else:
            try:
                made = self._create(end)
                self._add(made)
            except OSError as failure:
                if failure.errno not in NO_ROOM or not self.log_files:
                    raise
                self._write_into(self.log_files[-1])  # full to its end, so the next append makes the file that follows
                room = False
            else:
                room = self._begin_window()
        if self.unsynced_names:
            self.files.sync_folder(self.folder)
            self.unsynced_names = False
        self._short = self._short or not room
        self.look_ahead()
        return room

    def _begin_window(self) -> bool:
        """Allocate the first blocks; False if the disk has none."""
        try:
            self._allocate_now(min(self.end + _FIRST_WINDOW, self.base + self.file_size), self.end + FILLER_SIZE)
        except OSError as failure:
            if failure.errno not in NO_ROOM:
                raise
            return False
        return True

    def _create(self, start: int) -> LogFile:
        """Make a file at once."""
        log_file = LogFile(self.path_of(start), start)
        log_file.file = self.files.create(log_file.path, self.file_size)
        self.unsynced_names = True
        return log_file

    def _add(self, log_file: LogFile) -> None:
        self.log_files.append(log_file)
        self._write_into(log_file)

    def _write_into(self, log_file: LogFile) -> None:
        self.base = log_file.start
        self.view = self.view_of(log_file)

    # --- room ---

    def make_room(self, size: int) -> None:
        """See to it that a record of `size` bytes, which must fit a file, can be written at `end`, in the next file if
        need be.

        Raises OSError when the disk has no room; then nothing has changed.
        """
        if self.end + size + FILLER_SIZE > self.base + self.file_size:
            self._roll(size)
        needed = self.end + size + FILLER_SIZE
        if needed > self.limit:
            self._allocate_now(min(max(needed, self.limit + self.window), self.base + self.file_size), needed)
        self.look_ahead()

    def _roll(self, size: int) -> None:
        """Close the file with a filler and go on in the next one, which a job has made or is made now."""
        following = self.base + self.file_size
        log_file, limit = self._spare, self._spare_limit
        if log_file is None:
            log_file, limit = self._create(following), following
            needed = following + size + FILLER_SIZE
            try:
                limit = self._allocate(
                    log_file, limit, min(max(needed, limit + self.window), following + self.file_size), needed
                )
            except OSError:
                self.file_of(log_file).close()
                if not self._busy:  # a job may just be making the same file
                    self.files.remove(log_file.path)
                raise
        if self.end < following:
            SIZE_MAGIC.pack_into(self.view, self.end - self.base, following - self.end, MAGIC_FILLER)
        self._spare = None
        self._add(log_file)
        self.skipped += following - self.end
        self.end = following
        self.limit = limit

    def _allocate_now(self, wanted: int, needed: int) -> None:
        self.limit = self._allocate(self.log_files[-1], self.limit, wanted, needed)

    def _allocate(self, log_file: LogFile, start: int, wanted: int, needed: int) -> int:
        """Allocate up to `wanted`, on a nearly full disk less, but at least up to `needed`; gives how far it went."""
        file = self.file_of(log_file)
        base = log_file.start
        end = wanted
        while True:
            try:
                file.allocate(start - base, end - start)
            except OSError as failure:
                if failure.errno not in NO_ROOM or end <= needed:
                    raise
                end = max(start + (end - start) // 4, needed)
            else:
                self._short = end < wanted
                return end

    def look_ahead(self) -> None:
        """Start the job that prepares what comes next, when half of what is prepared will have been used."""
        if self.stopped or self.refusals:
            self.soft = 0
            return
        if self._short:
            self.soft = self.limit
            return
        file_end = self.base + self.file_size
        ready = self._spare is not None and self.limit == file_end
        ahead = min(self.window, self.file_size) // 2
        if self._busy or ready or self.end <= self.limit - ahead:
            self.soft = self.limit if self._busy or ready else self.limit - ahead
            return
        self._busy = True
        self.soft = self.limit
        if self.limit < file_end:
            file = self.file_of(self.log_files[-1])
            self.jobs.append(
                AllocateLog(file, self.limit - self.base, min(self.limit + self.window, file_end) - self.base)
            )
        else:
            spare = LogFile(self.path_of(file_end), file_end)
            self.jobs.append(
                CreateLog(self.files, self.folder, spare, self.file_size, min(self.window, self.file_size))
            )

    def prepared(self, job: AllocateLog | CreateLog, failure: Exception | None) -> None:
        """The job ended. One that failed is made good at once when the room is needed, or refused then."""
        self._busy = False
        if failure is not None:
            self._short = True
            return
        if isinstance(job, AllocateLog):
            if job.file is self.log_files[-1].file:
                self.limit = max(self.limit, self.base + job.end)
        elif job.log_file.start == self.base + self.file_size:
            job.log_file.file = job.file
            self._spare = job.log_file
            self._spare_limit = job.log_file.start + job.allocated
        elif job.file is not None:  # it came too late
            job.file.close()
        self.look_ahead()

    # --- closing ---

    def stop(self) -> None:
        """Let every append ask first, for good."""
        self.stopped = True
        self.soft = 0

    def refuse(self, who: str, why: str) -> None:
        """Let every append ask first and be refused for a reason, or (empty) no longer for this one."""
        if why:
            self.refusals[who] = why
            self.soft = 0
        else:
            self.refusals.pop(who, None)

    def files_between(self, start: int, end: int) -> list[File]:
        """The files with bytes of a range, in order."""
        return [
            self.file_of(each) for each in self.log_files if each.start < end and each.start + self.file_size > start
        ]

    def close(self) -> None:
        """Give all files back; a spare file that was never used is removed."""
        if self._spare is not None:
            if self._spare.file is not None:
                self._spare.file.close()
            with suppress(OSError):  # it does no harm, the next opening takes it or removes it
                self.files.remove(self._spare.path)
            self._spare = None
        for log_file in self.log_files:
            log_file.view = None
            if log_file.file is not None:
                log_file.file.close()
                log_file.file = None
        self.view = memoryview(b"")
        self.soft = 0
