"""Manager of the tables with a file: what is loaded at the start, and when a changed table is saved.

Owns: when each table is written, at most one save of a table at a time, how many changes are on the disk.
Leaves to others: what the tables hold (the modules beside this one, `filters`), files
(`mqproto.engine.store.disk.config_files`).

Files and rhythm are Apache's (docs/protocol/store.md 10): topics and groups are saved at each change, consumer offsets
after 5 s, delay progress after 10 s, everything at the end. Changes while a save runs are in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from mqproto.engine.slices import Steps, joined_text
from mqproto.engine.store import ConfigDamaged, ConfigFile
from mqproto.engine.store.disk.files import Files
from mqproto.state.node.contract import Job
from mqproto.wire.bodies import Body, pretty_pieces

#: Pause before a table that could not be saved is tried again.
_RETRY_MS: Final = 10_000

T = TypeVar("T")


class ConfigTable:
    """Table with a file."""

    __slots__ = ("body", "changed", "delay_ms", "file", "saving", "since")

    def __init__(self, file: ConfigFile, body: Callable[[], Body], delay_ms: int) -> None:
        self.file = file
        self.body = body
        #: How long a change may wait for its save.
        self.delay_ms = delay_ms
        self.changed = False
        #: Its text is made, or written.
        self.saving = False
        #: Number of the first change that no finished save holds; None when all are saved.
        self.since: int | None = None


class ConfigManager:
    """Manager of the tables in `folder`.

    `after` calls a function some time later, `notice` reports to the operator, `in_slices` does long work.
    """

    def __init__(
        self,
        folder: str,
        files: Files | None,
        after: Callable[[int, Callable[[], None]], None],
        notice: Callable[[str], None],
        in_slices: Callable[[object, Steps[str], Callable[[str], None]], None],
    ) -> None:
        self._folder = folder
        self._files = files
        self._after = after
        self._notice = notice
        self._in_slices = in_slices
        self._tables: list[ConfigTable] = []
        #: Jobs under way, each with its table and the number of changes when it was made.
        self._running: dict[Job, tuple[ConfigTable, int]] = {}
        #: Jobs to run now; the owner empties the list.
        self.jobs: list[Job] = []
        #: Changes of the tables that are saved at each change: what was answered because of one must not be forgotten.
        self.changes = 0
        #: How many of these, counted from the first, are on the disk.
        self.saved = 0

    @property
    def busy(self) -> bool:
        return any(kept.saving for kept in self._tables)

    def keep(
        self, name: str, parse: Callable[[str], T], body: Callable[[], Body], delay_ms: int = 0, *, needed: bool = True
    ) -> tuple[T | None, ConfigTable]:
        """Load a table from its file, to be saved by `changed` from now on.

        Raises ConfigDamaged when neither the file nor its backup can be read. A table that is not `needed` begins anew
        then: it holds progress, and repeating some of it is better than no broker (DLY-04). Raises OSError.
        """
        file = ConfigFile(f"{self._folder}/{name}", self._files)
        kept = ConfigTable(file, body, delay_ms)
        self._tables.append(kept)
        value = None
        try:
            value = file.load(parse)
        except ConfigDamaged as damage:
            if needed:
                raise
            self._notice(f"{damage}: starting without it")
        if file.warning:
            self._notice(file.warning)
        kept.changed = not file.found  # so that one that is missing at the next start was lost
        return value, kept

    def tell_missing(self, names: Iterable[str]) -> None:
        """There are messages already: report tables that should be there and are not."""
        for kept in self._tables:
            path = kept.file.path
            if path.rpartition("/")[2] in names and not kept.file.found:
                self._notice(
                    f"there are messages, but no {path}: if it was lost, bring it back before consumers connect"
                )

    def changed(self, kept: ConfigTable) -> None:
        """The table has changed: save it, in its rhythm."""
        kept.changed = True
        if kept.delay_ms:
            self._after(kept.delay_ms, self.save_due)
            return
        self.changes += 1
        if kept.since is None:
            kept.since = self.changes
        self._count_saved()
        self._begin(kept)

    def save_due(self) -> None:
        """Alarm: begin every save that is wanted."""
        for kept in self._tables:
            self._begin(kept)

    def _begin(self, kept: ConfigTable) -> None:
        if kept.changed and not kept.saving:
            kept.saving = True
            kept.changed = False
            changes = self.changes  # what the text will hold; later ones are in the next
            pieces = pretty_pieces(kept.body())

            def save(text: str) -> None:
                job = kept.file.save_job(text)
                self._running[job] = kept, changes
                self.jobs.append(job)

            self._in_slices(kept, joined_text(pieces), save)

    def done(self, job: Job, failure: Exception | None) -> bool:
        """A job ended; False if it is none of ours.

        A table that could not be saved is tried again, with its next change at the latest.
        """
        entry = self._running.pop(job, None)
        if entry is None:
            return False
        kept, changes = entry
        kept.saving = False
        if failure is not None:
            self._notice(f"a table was not saved: {failure}")
            kept.changed = True
            self._after(_RETRY_MS, self.save_due)
            return True
        if kept.since is not None:
            kept.since = changes + 1 if kept.changed else None
        self._count_saved()
        if kept.changed and not kept.delay_ms:
            self._begin(kept)
        return True

    def save_all(self) -> None:
        """Save whatever has changed, at once. Blocks. Raises OSError."""
        for kept in self._tables:
            if kept.changed:
                kept.file.save(kept.body().to_pretty())
                kept.changed = False
                kept.since = None
        self._count_saved()

    def _count_saved(self) -> None:
        self.saved = min((kept.since - 1 for kept in self._tables if kept.since is not None), default=self.changes)
