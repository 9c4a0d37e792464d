"""Check of the log: its files, and every record in them (docs/protocol/store.md 2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.engine.store.doctor.checks.findings import HEAD, LOG, LOOK, MEND_LOG, Report
from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.doctor.views.log import Stop, Walk
from mqproto.engine.store.log.records import Facts, measure, store_time_of
from mqproto.wire.record_layout import HEADS, HOSTS_AT, MAGIC_V1, MAGIC_V2, RECORD_FIXED, SIZE_MAGIC

#: No topic has one of these names, or one of these letters in its name: it is the name of a folder, in UTF-8.
_NO_NAMES: Final = ("", ".", "..")
_NO_LETTERS: Final = "/\\\0\ufffd"


class LogCheck:
    """Walk over the whole log, damaged places included."""

    __slots__ = ("_directory", "_report", "end", "gone", "last_time", "latest_time", "stop")

    def __init__(self, directory: Directory, report: Report) -> None:
        self._directory = directory
        self._report = report
        #: Nothing from here on is looked at: what a running broker appends.
        self.stop = directory.end() if directory.running else directory.log.limit
        #: Below this offset a running broker has deleted the files while we looked at them.
        self.gone = -1
        #: Where the log ends.
        self.end = directory.log.start
        #: Store time of the last record, and the latest of all.
        self.last_time = 0
        self.latest_time = 0

    def check_files(self) -> None:
        """Sizes, names and gaps."""
        log, report = self._directory.log, self._report
        for name in log.strange:
            report.note(f"{log.folder}/{name} does not belong into the log; {LOOK}")
        for index, part in enumerate(log.parts):
            last = index == len(log.parts) - 1
            if part.size != log.file_size and not (last and self._directory.running):
                what = f"it has {part.size} bytes and not {log.file_size} as the other files"
                if last and part.size == 0:
                    report.note(f"{part.path} is empty: the next start removes it")
                else:
                    report.lost(
                        part.path,
                        None,
                        part.start + part.size,
                        what,
                        "a broker that starts refuses it; `store repair` can lengthen it",
                    )
            if part.start % log.file_size:
                report.add(LOG, part.path, None, "its name is no multiple of the size of the files", "restore the file")
            before = log.parts[index - 1] if index else None
            if before is not None and part.start > before.start + log.file_size:
                missing = (part.start - before.start) // log.file_size - 1
                begin = before.start + log.file_size
                report.lost(
                    part.path,
                    part.start,
                    begin,
                    f"{missing} files are missing before it",
                    "restore them, or `store repair`",
                )

    def records(self) -> Iterator[tuple[int, memoryview]]:
        """Offset and bytes of all records whose form is good.

        A file that cannot be read is passed over from there on.
        """
        log = self._directory.log
        log.tolerant = True
        offset = log.start
        while offset < self.stop:
            walk = Walk(log)
            yield from walk.records(offset, self.stop)
            offset = self.end = walk.end
            self._count(walk.count)
            if walk.stop is Stop.THERE:
                return
            if self._unreadable(offset) or self._deleted(offset):
                offset += log.file_size - offset % log.file_size
                continue
            record = log.record(offset)
            if record is not None:
                self._wrong_crc(offset)
                self._report.records += 1  # it has its place, but is not good
                yield offset, record
                offset = self.end = offset + len(record)
                continue
            later = log.search(offset + 1, self.stop)
            if later < 0 or not self._belongs(later):
                self._tail(offset, later)
                return
            self._damage(offset, later)
            offset = later

    def _count(self, records: int) -> None:
        report = self._report
        report.records += records
        if 0 <= report.damaged_from < self.end:
            report.good_behind += records

    def seen(self, record: memoryview) -> None:
        """Take note of when a record was stored."""
        self.last_time = time = store_time_of(record)
        if time > self.latest_time:
            self.latest_time = time

    def check_fields(self, offset: int, facts: Facts) -> None:
        """What no length and no checksum shows: whether the fields of a record can be true."""
        wrong = ""
        if facts.topic in _NO_NAMES or any(letter in facts.topic for letter in _NO_LETTERS):
            wrong = f"no topic has the name {facts.topic!r}"
        elif facts.queue_id < 0 or facts.queue_offset < 0:
            wrong = f"it claims place {facts.queue_offset} of queue {facts.queue_id}"
        elif facts.store_time <= 0:
            wrong = f"it claims to be stored at {facts.store_time}"
        if wrong:
            self._report.add(HEAD, self._path(offset), offset, wrong, "its head is damaged; its body is whole")

    def _path(self, offset: int) -> str:
        part = self._directory.log.part_at(offset)
        return self._directory.log.folder if part is None else part.path

    def _unreadable(self, offset: int) -> bool:
        """Whether the disk does not give the file that holds an offset."""
        log = self._directory.log
        part = log.part_at(offset)
        if part is None or part.path not in log.unreadable:
            return False
        what = f"it cannot be read: {log.unreadable[part.path]}"
        self._report.lost(part.path, offset, offset, what, "copy what the disk still gives, to another disk")
        return True

    def _deleted(self, offset: int) -> bool:
        """Whether a running broker has just deleted a file, because it was old."""
        directory = self._directory
        part = directory.log.part_at(offset)
        if part is None or not directory.running or directory.files.exists(part.path):
            return False
        self._report.note(f"the broker deleted {part.path} meanwhile")
        self.gone = part.start + directory.log.file_size
        return True

    def _wrong_crc(self, offset: int) -> None:
        self._report.lost(
            self._path(offset), offset, offset, "the body of a record is not what its checksum says", MEND_LOG
        )

    def _damage(self, offset: int, later: int) -> None:
        what = (
            f"there is no record: {self._reason(offset)}; "
            f"the next good one begins {later - offset} bytes further on, at {later}"
        )
        self._report.lost(self._path(offset), offset, offset, what, MEND_LOG)

    def _belongs(self, later: int) -> bool:
        """Whether a good record behind a place where there is none belongs to the log. It may be left over: Apache does
        not clear what it cuts off, and a machine that lost power may have written the later of two records only.
        """
        directory = self._directory
        if directory.log.part_at(self.end) is None:
            return True  # a file is missing
        if directory.clean or directory.running:
            record = directory.log.record(later)
            return record is not None and store_time_of(record) >= self.last_time
        return directory.files.restarted_since(f"{directory.root}/abort") is not True

    def _tail(self, offset: int, later: int) -> None:
        """Bytes behind the end: a torn record, or what an earlier recovery cut off."""
        log = self._directory.log
        count = log.bytes_from(offset)
        self._report.tail = count
        if not count:
            return
        if self._directory.clean:
            self._report.note(
                f"{count} bytes behind the end of the log at {offset} are left over from before; they are not used"
            )
        else:
            what = "a torn record and what follows it" if later < 0 else "left over from before"
            self._report.note(
                f"{count} bytes behind the end of the log at {offset}: {what}; the next start cuts them off"
            )

    def _reason(self, offset: int) -> str:
        """Why there is no record."""
        log = self._directory.log
        part = log.part_at(offset)
        if part is None:
            return "its file is missing"
        head = log.read(offset, max(each.size for each in HEADS))
        if len(head) < RECORD_FIXED:
            rest = log.file_size - (offset - part.start)
            return "its file ends here" if len(head) < rest else "the file has no room for one"
        size, magic = SIZE_MAGIC.unpack_from(head)
        if not any(head):
            return "nothing but zeros"
        if magic not in (MAGIC_V1, MAGIC_V2):
            return f"the magic {magic:#010x} is none of a record"
        if not RECORD_FIXED <= size <= part.start + log.file_size - offset:
            return f"its size of {size} bytes cannot be"
        claimed = HEADS[head[HOSTS_AT] >> 4 & 3].unpack_from(head)[6]
        if claimed != offset:
            return f"it claims to lie at offset {claimed}"
        whole = memoryview(log.read(offset, size))
        return "its file ends before it" if len(whole) < size else self._inside(whole, offset)

    def _inside(self, record: memoryview, offset: int) -> str:
        return "its lengths do not add up" if measure(record, 0, offset, False) <= 0 else "its checksum differs"
