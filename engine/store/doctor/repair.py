"""Repair of a data directory, so that it agrees with its log again.

What a check found decides what is done. Damage of the log is stepped over or cut off, as the caller chose; queues and
index are made again from the log; a configuration file that cannot be read is replaced by its backup. Whatever is taken
away or overwritten is first put into a folder `set-aside-N` of the directory.
Should a repair be broken off, the next one, and the next start of a broker too, make queues and index again: before the
first queue is taken away the directory is marked as not stopped in an orderly way, and its checkpoint is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from mqproto.engine.settings import check as check_settings
from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.doctor.checks.check import Check, CheckProgress
from mqproto.engine.store.doctor.checks.findings import CHECKPOINT, HEAD, INDEX, LOG, QUEUES, Report
from mqproto.engine.store.doctor.checks.queues import UNLISTED
from mqproto.engine.store.doctor.views.directory import Directory, open_directory
from mqproto.engine.store.errors import StoreDamaged, StoreError, StoreLocked, StoreUnwritable
from mqproto.engine.store.layout import offset_name
from mqproto.engine.store.report import LostRange, Recover
from mqproto.engine.store.settings import StoreSettings
from mqproto.engine.store.store import Store

_COPIED: Final = 1 << 20
#: What is made from the log.
_DERIVED: Final = ("consumequeue", "consumequeue_ext", "index")
_ASIDE: Final = "set-aside-"
_CONFIG_BACKUP: Final = ".bak"


class RepairRefused(StoreError):  # noqa: N818 - a name that says what happened needs no suffix
    """Refusal of a repair that cannot be done as asked. Nothing was changed."""


@dataclass(slots=True)
class RepairPlan:
    """Plan of a repair: what it would do, in sentences; nothing if the directory needs none."""

    steps: list[str] = field(default_factory=list)
    #: What is wrong and stays so.
    left: list[str] = field(default_factory=list)
    #: The log is damaged: the caller must choose between skipping and cutting.
    needs_choice: bool = False
    #: Queues and index are made again.
    rebuilds: bool = False
    #: Names of the configuration files that their backups replace.
    configs: list[str] = field(default_factory=list)


class Repair:
    """Repair of one directory: `survey` to its end, look at `plan`, then `run`."""

    __slots__ = (
        "_commit_log",
        "_files",
        "_index_pair",
        "_recover",
        "_settings",
        "aside",
        "lost",
        "plan",
        "rebuild",
        "report",
        "root",
    )

    def __init__(
        self,
        files: Files,
        root: str,
        *,
        recover: Recover = Recover.REFUSE,
        rebuild: bool = False,
        settings: StoreSettings | None = None,
        commit_log: str = "",
        index_pair: tuple[int, int] | None = None,
    ) -> None:
        """`recover`: what to do about damage of the log. `rebuild`: make queues and index again even if they seem good.
        `settings`: what the broker is set to; sizes of files come from the directory where it still has such files.
        """
        self._files = files
        self.root = root.rstrip("/") or "/"
        self._recover = recover
        self.rebuild = rebuild
        self._settings = settings or StoreSettings()
        self._commit_log = commit_log
        self._index_pair = index_pair
        self.plan = RepairPlan()
        #: Of the check before, and after `run` of the one afterwards.
        self.report = Report(0)
        #: Messages that were lost with damage of the log, by the places of their queues.
        self.lost: list[LostRange] = []
        #: The folder with what was taken away; empty: nothing was, or nothing is left there.
        self.aside = ""

    def _open(self) -> Directory:
        return open_directory(self._files, self.root, commit_log=self._commit_log, index_pair=self._index_pair)

    def _check(self) -> Iterator[CheckProgress]:
        directory = self._open()
        try:
            checking = Check(directory, delay_levels=self._settings.message_delay_level)
            self.report = checking.report
            yield from checking.run()
        finally:
            directory.close()

    # --- before ---

    def survey(self) -> Iterator[CheckProgress]:
        """Check the directory and make the plan.

        Changes nothing. Raises StoreUnreadable, StoreLocked when a broker runs.
        """
        directory = self._open()
        try:
            if directory.running:
                raise StoreLocked(f"{self.root}/lock")
            self._fit_settings(directory)
            yield from self._check()
            self._make_plan(directory)
        finally:
            directory.close()

    def _fit_settings(self, directory: Directory) -> None:
        """The sizes of files that a broker of this directory has."""
        settings = replace(self._settings, store_path_root_dir=self.root, store_path_commit_log=self._commit_log)
        if directory.log.parts:
            settings.mapped_file_size_commit_log = directory.log.file_size
        if directory.queue_size_found:
            settings.mapped_file_size_consume_queue = directory.queue_size_found
        for index in directory.index_files():
            if index.slots:
                settings.max_hash_slot_num, settings.max_index_num = index.slots, index.entries_max
        if self._index_pair is not None:
            settings.max_hash_slot_num, settings.max_index_num = self._index_pair
        self._settings = settings
        check_settings(self._settings)

    def _make_plan(self, directory: Directory) -> None:
        report, plan = self.report, self.plan
        found = report.by_part
        plan.needs_choice = report.damaged_from >= 0 or CHECKPOINT in found
        plan.rebuilds = self.rebuild or plan.needs_choice or QUEUES in found or INDEX in found or CHECKPOINT in found
        if report.damaged_from >= 0:
            plan.steps.append(self._damage_text())
        if report.tail:
            plan.steps.append(f"cut off {report.tail} bytes behind the end of the log at {report.end}")
        if CHECKPOINT in found:
            plan.steps.append("make the checkpoint again; what it knows to be lost stays lost")
        if plan.rebuilds:
            settings = self._settings
            index = (
                f"{settings.max_hash_slot_num} slots and {settings.max_index_num} entries"
                if settings.message_index_enable
                else "none"
            )
            plan.steps.append(
                f"make queues and index again from {report.records} records of the log "
                f"(queue files of {settings.queue_file_size} bytes; index: {index})"
            )
        elif not directory.clean:
            plan.steps.append("recover as the next start would: add to queues and index what they are behind")
        for config in directory.configs():
            if config.warning:
                plan.configs.append(config.name)
                plan.steps.append(f"let the backup of config/{config.name} take its place")
            elif config.damage or not isinstance(config.value, dict):
                plan.left.append(f"config/{config.name} and its backup cannot be read: restore one of them")
        if HEAD in found:
            plan.left.append(f"{found[HEAD]} records claim what cannot be true; their bodies are whole, and they stay")
        if not report.damaged_from >= 0 and LOG in found:
            plan.left.append("a file of the log has a name that cannot be")

    def _damage_text(self) -> str:
        report = self.report
        place = (
            f"the log is damaged from offset {report.damaged_from} on, with {report.good_behind} good records behind it"
        )
        if self._recover is Recover.SKIP:
            return f"{place}: step over what is damaged and keep the good ones"
        if self._recover is Recover.CUT:
            return f"{place}: end the log there, which gives up the {report.good_behind} good records"
        return f"{place}: choose --recover skip, which keeps them, or --recover cut, which gives them up"

    # --- doing it ---

    def run(self, wall: int, utc_offset_ms: int = 0) -> Iterator[CheckProgress]:
        """Do what the plan says, and check again; the result is in `report`. Blocks.

        Raises RepairRefused before anything is changed; StoreLocked, StoreDamaged and StoreUnwritable on the way: what
        was taken away is in `aside` then, and the repair can be begun again.
        """
        plan = self.plan
        if plan.needs_choice and self._recover is Recover.REFUSE:
            raise RepairRefused("the log is damaged: choose --recover skip or --recover cut")
        before = self._queues_before()
        try:
            skips = self.report.damaged_from >= 0 and self._recover is Recover.SKIP
            self._change(before_skip=skips)
            if skips:
                self._skip(wall, utc_offset_ms)
            self._reopen(Recover.REFUSE, wall, utc_offset_ms, before)
        except OSError as failure:
            raise StoreUnwritable(str(failure.filename or self.root), failure.strerror or str(failure)) from failure
        yield from self._check()
        if self.report.clean:
            self._drop_derived()

    def _queues_before(self) -> set[tuple[str, int]]:
        """The queues that there are, also those that a repair before this one had put aside when it was broken off."""
        files, root = self._files, self.root
        asides = [f"{root}/{name}" for name in files.names(root) if name.startswith(_ASIDE)]
        found: set[tuple[str, int]] = set()
        for folder in (root, *asides):
            for topic in files.names(f"{folder}/consumequeue"):
                names = files.names(f"{folder}/consumequeue/{topic}")
                found.update((topic, int(name)) for name in names if name.isascii() and name.isdigit())
        return found

    def _change(self, *, before_skip: bool) -> None:
        """What is done to files before the store is opened."""
        lock = self._files.lock(f"{self.root}/lock")
        if lock is None:
            raise StoreLocked(f"{self.root}/lock")
        try:
            if self.plan.rebuilds and not before_skip:
                self._take_derived()
            if self.report.damaged_from >= 0 and not before_skip:
                self._cut(self.report.damaged_from)
            elif self.report.tail:
                self._cut(self.report.end)
            for name in self.plan.configs:
                self._restore_config(name)
        finally:
            lock.release()

    def _skip(self, wall: int, utc_offset_ms: int) -> None:
        """Let the store step over the damage while the queues still know which messages were there.

        They are made again afterwards.
        """
        try:
            self._reopen(Recover.SKIP, wall, utc_offset_ms, None)
        except StoreDamaged as failure:
            if failure.path.startswith(self._settings.commit_log_folder):
                raise
            self._with_lock_take_derived()
            self._reopen(Recover.SKIP, wall, utc_offset_ms, None)
            return
        for _ in self._check():
            pass
        if not self.report.clean:
            self._with_lock_take_derived()

    def _with_lock_take_derived(self) -> None:
        lock = self._files.lock(f"{self.root}/lock")
        if lock is None:
            raise StoreLocked(f"{self.root}/lock")
        try:
            self._take_derived()
        finally:
            lock.release()

    def _reopen(self, recover: Recover, wall: int, utc_offset_ms: int, before: set[tuple[str, int]] | None) -> None:
        """Open and close the store. Queues that were not there `before`, of topics that were deleted, go again."""
        store = Store.open(
            self._settings, self._files, wall=wall, utc_offset_ms=utc_offset_ms, recover=recover, thorough=True
        )
        self.lost += [lost for lost in store.recovery.lost if lost not in self.lost]
        if before and self.plan.rebuilds:
            topics = self._open().topics()
            if topics is not None:
                store.delete_queues(
                    lambda queue: (
                        (queue.topic, queue.queue_id) not in before
                        and queue.topic not in topics
                        and queue.topic not in UNLISTED
                    )
                )
        store.run_jobs(0, wall)
        store.close(wall)

    # --- setting aside ---

    def _folder(self, name: str = "") -> str:
        """The folder for what is taken away, made, or one in it."""
        if not self.aside:
            number = 1
            while self._files.exists(f"{self.root}/{_ASIDE}{number}"):
                number += 1
            self.aside = f"{self.root}/{_ASIDE}{number}"
            self._files.make_folder(self.aside)
            self._files.sync_folder(self.root)
        if name:
            self._files.make_folder(f"{self.aside}/{name}")
            self._files.sync_folder(self.aside)
        return f"{self.aside}/{name}" if name else self.aside

    def _cut(self, begin: int) -> None:
        """Let the log end at an offset: whole files behind it are moved away, the rest of its own file is copied and
        made zero.
        """
        files = self._files
        directory = self._open()
        log = directory.log
        try:
            kept = self._folder("commitlog")
            for part in log.parts:
                if part.start >= begin:
                    files.rename(part.path, f"{kept}/{offset_name(part.start)}")
            files.sync_folder(kept)
            files.sync_folder(log.folder)
            last = log.part_at(begin)
            if last is None or last.start >= begin:
                return
            self._copy_rest(last.path, begin - last.start, f"{kept}/{offset_name(begin)}")
            file = files.create(last.path, log.file_size)
            try:
                file.clear(begin - last.start, log.file_size)
                file.sync()
            finally:
                file.close()
        finally:
            directory.close()

    def _copy_rest(self, path: str, start: int, target: str) -> None:
        """Copy the bytes of a file from a position on, without the zeros at its end."""
        source = self._files.open_to_read(path)
        length = 0
        try:
            at = source.next_data(start)
            while at < source.size:
                data = source.read(at, _COPIED).rstrip(b"\0")
                if data:
                    length = at - start + len(data)
                    copy = self._files.create(target, length)
                    copy.write(at - start, data)
                    copy.close()
                at = source.next_data(at + _COPIED)
        finally:
            source.close()
        copy = self._files.create(target, length)
        copy.sync()
        copy.close()
        self._files.sync_folder(target.rpartition("/")[0])

    def _take_derived(self) -> None:
        """Move queues, index and checkpoint away.

        From the first moment on a start of a broker would make them again.
        """
        files, root, aside = self._files, self.root, self._folder()
        files.write(f"{root}/abort", b"")
        if files.exists(f"{root}/checkpoint"):
            files.rename(f"{root}/checkpoint", f"{aside}/checkpoint")
        files.sync_folder(root)
        for name in _DERIVED:
            if files.exists(f"{root}/{name}"):
                self._move(f"{root}/{name}", f"{aside}/{name}")

    def _move(self, old: str, new: str) -> None:
        """Move a folder, file by file: it may exist already at the other end."""
        files = self._files
        files.make_folder(new)
        for name in files.names(old):
            if files.is_folder(f"{old}/{name}"):
                self._move(f"{old}/{name}", f"{new}/{name}")
            else:
                files.rename(f"{old}/{name}", f"{new}/{name}")
        files.remove_tree(old)

    def _restore_config(self, name: str) -> None:
        files, path = self._files, f"{self.root}/config/{name}"
        if files.exists(path):
            files.rename(path, f"{self._folder('config')}/{name}")
        files.write(path + ".tmp", files.read(path + _CONFIG_BACKUP))
        files.rename(path + ".tmp", path)
        files.sync_folder(f"{self.root}/config")

    def _drop_derived(self) -> None:
        """All is well: what can be made from the log again is of no use any more."""
        if not self.aside:
            return
        files = self._files
        for name in (*_DERIVED, "checkpoint"):
            path = f"{self.aside}/{name}"
            if files.is_folder(path):
                files.remove_tree(path)
            elif files.exists(path):
                files.remove(path)
        if not files.names(self.aside):
            files.remove_tree(self.aside)
            self.aside = ""
