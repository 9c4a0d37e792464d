"""Check of index files against the log (docs/protocol/store.md 5): every entry is a key that its message has, every key
has an entry, every slot and link of a chain is the one that adding the entries in their order makes.

The entries lie in the order of the log, so both are read once, side by side. For each file a table of its slots is
kept, as adding one entry after the other would have left it: links that go anywhere but to the entry before in the
slot, in a circle too, differ from it.
"""

from __future__ import annotations

from array import array
from typing import Final

from mqproto.engine.store.doctor.checks.findings import INDEX, LOOK, REBUILD, Report
from mqproto.engine.store.doctor.checks.log import LogCheck
from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.doctor.views.indexes import IndexView
from mqproto.engine.store.index.index_reader import HEAD_SIZE
from mqproto.engine.store.layout import INDEX_ENTRY, INDEX_SLOT
from mqproto.engine.store.log.records import Facts
from mqproto.wire.ids import index_hash, java_hash
from mqproto.wire.properties import KEYS, UNIQ_KEY

_CHUNK: Final = 8192
_SLOTS_AT_A_TIME: Final = 1 << 18
_NONE: Final = 1 << 63
_LITTLE_ENDIAN: Final = array("H", (1,)).tobytes()[0] == 1
_I32_MAX: Final = 0x7FFFFFFF
#: Faults of one file that are reported one by one.
_TOLD_MAX: Final = 16
_Entry = tuple[int, int, int, int]


class IndexChecks:
    """Check of all index files, oldest first. `physical` is the offset of the entry that comes next."""

    __slots__ = (
        "_begun",
        "_directory",
        "_entries",
        "_first_time",
        "_index",
        "_last_physical",
        "_last_time",
        "_log",
        "_lost",
        "_newest",
        "_number",
        "_place",
        "_prefixes",
        "_report",
        "_stop",
        "_told",
        "_views",
        "physical",
    )

    def __init__(self, directory: Directory, report: Report, log: LogCheck) -> None:
        self._directory = directory
        self._report = report
        self._stop = log.stop
        self._log = log
        self._views = directory.index_files()
        self._index: IndexView | None = None
        #: The newest entry of each slot so far.
        self._newest: array[int] = array("i")
        self._entries: list[_Entry] = []
        #: Where in `_entries` the next one lies, and its number.
        self._place = 0
        self._number = 0
        self._last_physical = -1
        #: Store times of the messages of the file's first and last entry; None: not seen.
        self._first_time: int | None = None
        self._last_time: int | None = None
        #: An entry of the current file was compared.
        self._begun = False
        #: Messages with keys that are in no file: before the first file, between files, behind the last one.
        self._lost = {"before": 0, "between": 0, "behind": 0}
        self._prefixes: dict[str, int] = {}
        self._told = 0
        self.physical = _NONE
        for name in directory.index_names()[1]:
            report.note(f"{directory.root}/index/{name} does not belong into the index; {LOOK}")
        self._next_file()
        while self.physical < directory.log.start:
            self._advance()

    # --- along the log ---

    def seen(self, offset: int, facts: Facts) -> None:
        """A record comes by."""
        while self.physical < offset:
            if self.physical >= self._log.gone:
                self._fault("leads to offset {} where no message begins", self.physical)
            self._last_time = None
            self._advance()
        hashes = self._hashes(facts) if facts.is_indexed else []
        found: list[int] = []
        while self.physical == offset:
            found.append(self._entries[self._place][0])
            self._check_time(facts.store_time)
            self._begun = True
            self._advance()
        if found != hashes:
            self._compare(offset, found, hashes)
        self._report.keys += len(found)

    def _hashes(self, facts: Facts) -> list[int]:
        """The hashes of a message's keys, in their order."""
        topic = facts.topic
        prefix = self._prefixes.get(topic)
        if prefix is None:
            prefix = self._prefixes[topic] = java_hash(topic + "#")
        properties = facts.properties
        unique = properties.get(UNIQ_KEY)
        keys = properties.get(KEYS)
        hashes = [index_hash(unique, prefix)] if unique else []
        if keys:
            hashes += [index_hash(key, prefix) for key in keys.split(" ") if key]
        return hashes

    def _compare(self, offset: int, found: list[int], hashes: list[int]) -> None:
        known = set(hashes)
        if any(each not in known for each in found):
            self._report.add(
                INDEX,
                self._path(),
                None,
                f"an entry leads to the message at offset {offset}, which has no such key",
                REBUILD,
            )
        missing = known.difference(found)
        if not missing:
            return
        if self._index is None and not found:
            self._lost["behind"] += 1
        elif not self._begun:
            self._lost["before" if self._report.index_files == 1 else "between"] += 1
        else:
            what = f"{len(missing)} keys of the message at offset {offset} are missing"
            self._report.add(INDEX, self._path(), None, what, REBUILD)

    def _check_time(self, store_time: int) -> None:
        """Seconds since the first entry; those of the first one itself may be counted from the file before
        (docs/protocol/store.md 5.3).
        """
        index = self._index
        self._last_time = store_time
        if self._number == 1:
            self._first_time = store_time
        if index is None or self._number == 1:
            return
        seconds = (
            min(max((store_time - index.head.begin_time) // 1000, 0), _I32_MAX) if index.head.begin_time > 0 else 0
        )
        if self._entries[self._place][2] != seconds:
            self._fault("has a time that is not its message's, which is at offset {}", self.physical)

    # --- along the entries ---

    def _advance(self) -> None:
        """Go on to the next entry, and check the link of the one that is left."""
        index = self._index
        assert index is not None
        key_hash, physical, _, previous = self._entries[self._place]
        number = self._number
        slot = key_hash % index.slots
        if key_hash < 0 or previous != self._newest[slot]:
            self._fault("has a wrong link to the entry before it, of the message at offset {}", physical)
        self._newest[slot] = number
        self._last_physical = physical
        self._place += 1
        self._number = number + 1
        self._next_entry()

    def _next_entry(self) -> None:
        """Set `physical` to that of the entry at `_number`, if need be of the next file."""
        index = self._index
        while index is not None:
            if self._place >= len(self._entries):
                count = min(_CHUNK, index.count - self._number)
                self._entries = list(INDEX_ENTRY.iter_unpack(index.entries(self._number, count))) if count > 0 else []
                self._place = 0
            if not self._entries:
                self._finish_file(index)
                self._next_file()
                return
            physical = self._entries[self._place][1]
            if self._last_physical <= physical < self._stop:
                self.physical = physical
                return
            self._last_time = None
            if physical < self._stop or self._directory.whole:
                self._fault("is not in the order of the log: it leads to offset {}", physical)
            self._newest[self._entries[self._place][0] % index.slots] = self._number
            self._place += 1
            self._number += 1

    def _next_file(self) -> None:
        self._entries, self._place, self._number = [], 0, 1
        self._first_time = self._last_time = None
        self._begun = False
        self._told = 0
        self.physical = _NONE
        self._index = None
        for index in self._views:
            self._report.index_files += 1
            if not index.slots:
                what = f"{index.size} bytes: it cannot be found out how many slots and entries it has"
                self._report.add(
                    INDEX,
                    index.path,
                    None,
                    what,
                    "name them by --hash-slots and --max-index, or `store repair` makes it again",
                )
                continue
            if index.count > index.entries_max:
                self._report.add(
                    INDEX,
                    index.path,
                    36,
                    f"its head counts {index.count} entries, it has room for {index.entries_max}",
                    REBUILD,
                )
            self._index = index
            self._newest = array("i", bytes(INDEX_SLOT.size * index.slots))
            self._next_entry()
            return

    def _finish_file(self, index: IndexView) -> None:
        """All entries were seen: do head and slots say the same?"""
        head = index.head
        if index.count > 1:
            first, last = index.entry(1), index.entry(min(index.count, index.entries_max) - 1)
            self._compare_head(index, 16, "the first offset is", head.begin, first[1])
            self._compare_head(index, 24, "the last offset is", head.end, last[1])
        if self._first_time is not None:
            self._compare_head(index, 0, "the first message is of", head.begin_time, self._first_time)
        if self._last_time is not None:
            self._compare_head(index, 8, "the last message is of", head.end_time, self._last_time)
        used = len(self._newest) - self._newest.count(0)
        if not used <= head.slots_used < index.count:
            # up to 4.7.0 every entry counts, and a file may be continued by another release
            self._compare_head(index, 32, "the number of slots in use is", head.slots_used, used)
        self._compare_slots(index)

    def _compare_head(self, index: IndexView, at: int, what: str, found: int, known: int) -> None:
        """Apache's broker writes the head field by field, so while it runs they may be of different entries."""
        if found != known and (index.count >= index.entries_max or not self._directory.running):
            self._report.add(INDEX, index.path, at, f"its head says that {what} {found}; it is {known}", REBUILD)

    def _compare_slots(self, index: IndexView) -> None:
        ahead = 0
        for first in range(0, index.slots, _SLOTS_AT_A_TIME):
            count = min(_SLOTS_AT_A_TIME, index.slots - first)
            found = array("i", index.file.read(HEAD_SIZE + INDEX_SLOT.size * first, INDEX_SLOT.size * count))
            if _LITTLE_ENDIAN:
                found.byteswap()
            known = self._newest[first : first + count]
            if found == known:
                continue
            for place, (is_there, should_be) in enumerate(zip(found, known, strict=True)):
                if is_there == should_be:
                    continue
                if is_there >= index.count and not self._directory.whole:
                    ahead += 1
                else:
                    what = f"slot {first + place} leads to entry {is_there}; its newest one is {should_be}"
                    self._tell(HEAD_SIZE + INDEX_SLOT.size * (first + place), what)
        if ahead:
            self._report.note(f"{index.path}: {ahead} slots lead to entries that its head does not count yet")

    # --- reporting ---

    def finish(self, end: int) -> None:
        """The log is at its end, which is given."""
        self._stop = min(self._stop, end)
        while self._index is not None:
            if self.physical < end or self._directory.whole:
                self._fault("leads to offset {} where no message begins", self.physical)
            self._last_time = None
            self._advance()
        lost, report, whole = self._lost, self._report, self._directory.whole
        folder = f"{self._directory.root}/index"
        if lost["before"]:
            report.note(
                f"{folder}: the keys of {lost['before']} older messages are not in the index, "
                f"as after a crash of Apache's broker"
            )
        if lost["between"]:
            report.note(
                f"{folder}: between two files the keys of {lost['between']} messages are missing, "
                f"as after a crash of Apache's broker"
            )
        if lost["behind"] and not report.index_files:
            report.note(f"{folder}: there is no index; {lost['behind']} messages have keys")
        elif lost["behind"] and not whole:
            report.note(f"{folder} is {lost['behind']} messages behind the log")
        elif lost["behind"]:
            report.add(INDEX, folder, None, f"the keys of the last {lost['behind']} messages are missing", REBUILD)

    def _path(self) -> str:
        return f"{self._directory.root}/index" if self._index is None else self._index.path

    def _fault(self, what: str, physical: int) -> None:
        index = self._index
        assert index is not None
        self._tell(index.entries_at + INDEX_ENTRY.size * self._number, f"entry {self._number} {what.format(physical)}")

    def _tell(self, at: int, what: str) -> None:
        self._told += 1
        if self._told <= _TOLD_MAX:
            self._report.add(INDEX, self._path(), at, what, REBUILD)
        else:
            self._report.add_untold(INDEX)
