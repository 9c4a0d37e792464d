"""Files of the log as they are found at opening: complete and each of the configured size, or a clear error."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.errors import StoreDamaged
from mqproto.engine.store.layout import is_offset_name
from mqproto.engine.store.log.commit_log import CommitLog, LogFile
from mqproto.engine.store.recovery.damage import step_over
from mqproto.engine.store.report import Recover, RecoveryReport

#: Missing files that are made in place of the lost ones; where there are more, a name is wrong.
_MADE_MAX: Final = 1000
_SETTING: Final = "set mappedFileSizeCommitLog to what the directory was made with"


class LogFilesFound(NamedTuple):
    """Files that are there besides those of the log, and where the walk over it has to begin at the latest."""

    #: Empty files at the end; files behind a gap, if the log is to be cut there. Both are to be removed.
    empty: list[LogFile]
    behind: list[LogFile]
    #: Start of the first file that was too short; -1: none was.
    lengthened: int


def find_log_files(files: Files, log: CommitLog, recover: Recover, report: RecoveryReport) -> LogFilesFound:
    """Put the files into `log`.

    Raises StoreDamaged for a file that is missing or too short, unless the caller wants to step over it: then it is
    made or lengthened. A file that is too long, or begins where none can begin, is always refused: then it is the
    setting that is wrong. Blocks.
    """
    found = []
    for name in files.names(log.folder):
        path = f"{log.folder}/{name}"
        if is_offset_name(name) and not files.is_folder(path):
            found.append(LogFile(path, int(name)))
        else:
            report.notes.append(f"{path} is no file of the log and was left out")
    empty: list[LogFile] = []
    while found and files.size(found[-1].path) == 0:
        empty.append(found.pop())
    short = _short_files(files, log, found, recover)
    behind = _behind_gap(log, found, recover)
    if behind:
        report.notes.append(f"{len(behind)} files behind a missing one were dropped, from {behind[0].path} on")
    log.log_files = found[: len(found) - len(behind)]
    lengthened = -1
    for log_file in short:
        if log_file not in behind:
            files.create(log_file.path, log.file_size).close()
            report.notes.append(f"{log_file.path} was too short and was lengthened")
            lengthened = log_file.start if lengthened < 0 else lengthened
    _fill_gaps(files, log, report)
    if not found and empty:
        log.base = log.end = empty[-1].start
    return LogFilesFound(empty, behind, lengthened)


def _short_files(files: Files, log: CommitLog, found: list[LogFile], recover: Recover) -> list[LogFile]:
    """The files that are shorter than they should be."""
    short = []
    for log_file in found:
        size = files.size(log_file.path)
        if size != log.file_size:
            why = f"it has {size} bytes instead of the configured {log.file_size}"
            if size > log.file_size or log_file.start % log.file_size:
                raise StoreDamaged(log_file.path, None, (why,), _SETTING)
            if recover is Recover.REFUSE:
                raise StoreDamaged(
                    log_file.path, None, (why,), f"{_SETTING}; --recover skip or cut lengthens a file that lost its end"
                )
            short.append(log_file)
        elif log_file.start % log.file_size:
            raise StoreDamaged(log_file.path, None, (f"no file of {log.file_size} bytes begins there",), _SETTING)
    return short


def _behind_gap(log: CommitLog, found: list[LogFile], recover: Recover) -> list[LogFile]:
    """The files that the log loses when it is cut at the first gap."""
    for at, (before, log_file) in enumerate(pairwise(found), 1):
        missing = (log_file.start - before.start) // log.file_size - 1
        if missing and recover is Recover.CUT:
            return found[at:]
        if missing and (recover is Recover.REFUSE or missing > _MADE_MAX):
            raise _gap(log_file, missing, log.file_size)
    return []


def _gap(log_file: LogFile, missing: int, file_size: int) -> StoreDamaged:
    what = "the file before it is missing" if missing == 1 else f"{missing} files before it are missing"
    remedy = (
        "put them back if there is a copy; "
        "--recover skip keeps all other files and makes an empty one for each that is missing, "
        f"--recover cut drops everything from offset {log_file.start - missing * file_size} on"
    )
    return StoreDamaged(log_file.path, None, (what,), remedy)


def _fill_gaps(files: Files, log: CommitLog, report: RecoveryReport) -> None:
    """Make the files that are missing."""
    at = 1
    while at < len(log.log_files):
        start = log.log_files[at - 1].start + log.file_size
        if log.log_files[at].start != start:
            made = LogFile(log.path_of(start), start)
            files.create(made.path, log.file_size).close()
            log.log_files.insert(at, made)
            step_over(log, start, start + log.file_size, 0)
            log.file_of(made).sync()
            report.notes.append(f"{made.path} was missing: an empty one took its place")
            if report.skipped and report.skipped[-1][1] == start:
                start = report.skipped.pop()[0]
            report.skipped.append((start, made.start + log.file_size))
        at += 1
    if report.skipped:
        files.sync_folder(log.folder)
