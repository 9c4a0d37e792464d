"""Damage in the log that is stepped over, so that everything good behind it is kept.

The damaged part becomes something that every scan passes, ours and Apache's: blank records that are rolled back
(docs/protocol/store.md 2.3, 6), which no queue and no index ever takes, or a filler where it reaches to the end of its
file. The damaged bytes are kept in a file beside.
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.layout import FILLER_SIZE, MAGIC_FILLER, offset_name
from mqproto.engine.store.log.commit_log import CommitLog, LogFile
from mqproto.engine.store.log.records import FILLER, NOTHING, measure, next_record
from mqproto.engine.store.recovery.scan import search
from mqproto.engine.store.report import RecoveryReport
from mqproto.wire.flags import TRANSACTION_ROLLBACK
from mqproto.wire.ids import body_crc
from mqproto.wire.record_layout import HEAD_V4, LENGTH, MAGIC_V1, RECORD_FIXED, SIZE_MAGIC

#: Topic of the blank records; a shorter head of it where there is little room.
DAMAGED_TOPIC: Final = b"RMQ_SYS_DAMAGED"
#: The shortest record has a topic of one character.
SMALLEST: Final = RECORD_FIXED + 1
#: The longest blank record: every release reads it, whatever its largest message is set to.
_LONGEST: Final = 1 << 20
_CHUNK: Final = 1 << 20
_NOBODY: Final = bytes(8)


def end_of_damage(log: CommitLog, begin: int, known_end: int) -> int:
    """Where the log goes on behind a place that is no record; -1 if nothing follows.

    `known_end` is where the last message ends that a queue knows: the damaged record may have been that one.
    """
    log_file = log.log_file_at(begin)
    if log_file is None:
        return -1
    following = _behind_record(log, log_file, begin)
    if following < 0:
        following = search(log, begin + 1)
    while following >= 0 and not _fits(log, begin, following):
        following = search(log, following + 1)
    if (
        following < 0
        and begin < known_end <= log_file.start + log.file_size - FILLER_SIZE
        and _fits(log, begin, known_end)
    ):
        following = known_end
    return following


def _behind_record(log: CommitLog, log_file: LogFile, begin: int) -> int:
    """The end of the damaged record, if its head still says so and something fit follows there. A message may hold what
    looks like a record; so this comes before any search.
    """
    view = log.view_of(log_file)
    at = begin - log_file.start
    if next_record(bytes(view[at : at + RECORD_FIXED]), 0, begin) != 0:
        return -1
    size: int = SIZE_MAGIC.unpack_from(view, at)[0]
    if not SMALLEST <= size <= len(view) - at - FILLER_SIZE:
        return -1
    what = measure(view, at + size, begin + size, True)
    return begin + size if what > 0 or what in (FILLER, NOTHING) else -1


def _fits(log: CommitLog, begin: int, end: int) -> bool:
    """Whether the last part of a range, in the file of its end, has the size of a record."""
    size = end - max(begin, end - end % log.file_size)
    return size == 0 or size >= SMALLEST


def step_over(log: CommitLog, begin: int, end: int, time: int) -> None:
    """Make a range of the log passable.

    `time` is the store time of a message beside it. The caller syncs the log. Blocks.
    """
    while begin < end and (log_file := log.log_file_at(begin)) is not None:
        file = log.file_of(log_file)
        border = log_file.start + log.file_size
        if border <= end:
            file.write(begin - log_file.start, SIZE_MAGIC.pack(border - begin, MAGIC_FILLER))
            begin = border
            continue
        size = min(end - begin, _LONGEST)
        if 0 < end - begin - size < SMALLEST:
            size -= SMALLEST
        file.write(begin - log_file.start, blank_record(begin, size, time))
        begin += size


def blank_record(offset: int, size: int, time: int) -> bytes:
    """A whole record that stands for nothing."""
    topic = DAMAGED_TOPIC[: size - RECORD_FIXED]
    body = bytes(size - RECORD_FIXED - len(topic))
    head = HEAD_V4.pack(
        size,
        MAGIC_V1,
        body_crc(body),
        0,
        0,
        0,
        offset,
        TRANSACTION_ROLLBACK,
        time,
        _NOBODY,
        time,
        _NOBODY,
        0,
        0,
        len(body),
    )
    return b"".join((head, body, bytes((len(topic),)), topic, LENGTH.pack(0)))


class SkipPlan:
    """Plan of what is skipped: where damaged bytes are kept, and what is about to be stepped over: a file that is there
    until queues and index agree with it.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._path = f"{folder}/plan"

    def _make_folder(self) -> None:
        self._files.make_folder(self._folder)
        self._files.sync_folder(self._folder.rpartition("/")[0])

    def keep(self, log: CommitLog, begin: int, end: int) -> str:
        """Copy a range to a file of its own and make it durable; gives its path, empty if there were only zeros.

        An older file stays. Blocks.
        """
        files = self._files
        path = base = f"{self._folder}/{offset_name(begin)}"
        number = 1
        while files.exists(path):
            number += 1
            path = f"{base}.{number}"
        copy: File | None = None
        try:
            at = begin
            while at < end and (log_file := log.log_file_at(at)) is not None:
                file = log.file_of(log_file)
                data = file.read(at - log_file.start, min(_CHUNK, end - at))
                if data.count(0) != len(data):
                    if copy is None:
                        self._make_folder()
                        copy = files.create(path, end - begin)
                    copy.write(at - begin, data)
                at = min(log_file.start + file.next_data(at - log_file.start + len(data)), end)
            if copy is None:
                return ""
            copy.sync()
        finally:
            if copy is not None:
                copy.close()
        files.sync_folder(self._folder)
        return path

    def write(self, ranges: list[tuple[int, int]], time: int) -> None:
        """Make the plan durable. Blocks."""
        files = self._files
        self._make_folder()
        files.write(f"{self._path}.tmp", "".join(f"{begin} {end} {time}\n" for begin, end in ranges).encode())
        files.rename(f"{self._path}.tmp", self._path)
        files.sync_folder(self._folder)

    def repeat(self, log: CommitLog, report: RecoveryReport) -> None:
        """Do again what an earlier opening may have left half done; its parts count as skipped. Blocks."""
        if not self._files.exists(self._path):
            return
        report.notes.append(
            "an earlier opening was stepping over damage and did not come to its end: this one did it again"
        )
        for line in self._files.read(self._path).decode("ascii", "replace").splitlines():
            words = line.split()
            if len(words) == 3 and all(word.isdigit() for word in words):
                begin, end, time = map(int, words)
                if (begin, end) not in report.skipped:
                    step_over(log, begin, end, time)
                    report.skipped.append((begin, end))
        for log_file in log.log_files:
            if any(begin < log_file.start + log.file_size and end > log_file.start for begin, end in report.skipped):
                log.file_of(log_file).sync()

    def remove(self) -> None:
        self._files.remove(self._path)
        self._files.sync_folder(self._folder)
