"""Findings of a check, and the report that collects them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: What to do, in the words of the findings.
REBUILD: Final = "`store repair` makes queues and index again from the log"
MEND_LOG: Final = "`store repair`, or `--recover skip` or `cut` at the next start; skip keeps what is good behind it"
LOOK: Final = "nothing is lost by it; remove it if nobody needs it"

# Parts of a directory in which something can be wrong.

#: The log has lost data: a place without record, a body that changed, a missing or short file.
LOG: Final = "log"
#: A whole record whose head cannot be true.
HEAD: Final = "head"
QUEUES: Final = "queues"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding: one thing that is wrong, in which part and file, where (the physical offset in the log, the position in
    other files, None for the whole file), what, and what to do.
    """

    part: str
    path: str
    offset: int | None
    what: str
    advice: str

    def __str__(self) -> str:
        place = self.path if self.offset is None else f"{self.path} at {self.offset}"
        return f"{place}: {self.what}; {self.advice}"


@dataclass(slots=True)
class Report:
    """Report of a check. `findings` holds the first ones, up to a limit; `count` is the number of all of them."""

    limit: int
    findings: list[Finding] = field(default_factory=list)
    count: int = 0
    #: The number of findings in each part.
    by_part: dict[str, int] = field(default_factory=dict)
    #: What is unusual, but not wrong.
    notes: list[str] = field(default_factory=list)
    #: Where the log begins and ends.
    begin: int = 0
    end: int = 0
    #: What was looked at.
    records: int = 0
    queues: int = 0
    entries: int = 0
    index_files: int = 0
    keys: int = 0
    configs: int = 0
    #: Where the first damage of the log begins; -1: there is none.
    damaged_from: int = -1
    #: Records that are good although they lie behind it.
    good_behind: int = 0
    #: Bytes behind the end of the log that are not used.
    tail: int = 0

    @property
    def clean(self) -> bool:
        """Nothing is wrong."""
        return self.count == 0

    def add(self, part: str, path: str, offset: int | None, what: str, advice: str) -> None:
        self.add_untold(part)
        if len(self.findings) < self.limit:
            self.findings.append(Finding(part, path, offset, what, advice))

    def add_untold(self, part: str) -> None:
        """One more finding, which is only counted."""
        self.by_part[part] = self.by_part.get(part, 0) + 1
        self.count += 1

    def lost(self, path: str, offset: int | None, begin: int, what: str, advice: str) -> None:
        """The log has lost data, from the offset `begin` on."""
        self.add(LOG, path, offset, what, advice)
        if self.damaged_from < 0 or begin < self.damaged_from:
            self.damaged_from = begin

    def note(self, text: str) -> None:
        if len(self.notes) < self.limit and text not in self.notes:
            self.notes.append(text)
