"""Check of a whole data directory against itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.doctor.checks.findings import CHECKPOINT as TIMES
from mqproto.engine.store.doctor.checks.findings import CONFIG, MEND_LOG, Report
from mqproto.engine.store.doctor.checks.index import IndexChecks
from mqproto.engine.store.doctor.checks.log import LogCheck
from mqproto.engine.store.doctor.checks.queues import QueueChecks
from mqproto.engine.store.doctor.views.directory import Directory, open_directory
from mqproto.engine.store.errors import StoreUnreadable
from mqproto.engine.store.layout import CHECKPOINT
from mqproto.engine.store.log.records import facts_of
from mqproto.engine.store.settings import StoreSettings, parse_delay_levels

#: Findings that are kept by default.
LIMIT: Final = 100
#: Bytes of the log between two reports of progress.
_STEP: Final = 4 << 20


class CheckProgress(NamedTuple):
    """Bytes of the log that were looked at, and all of them."""

    done: int
    total: int


class Check:
    """Check of one directory. Walk through `run`; the result is in `report`."""

    def __init__(self, directory: Directory, *, limit: int = LIMIT, delay_levels: str = "") -> None:
        """`delay_levels`: the broker's messageDelayLevel; ValueError for a text that is none."""
        self._directory = directory
        self._delays = parse_delay_levels(delay_levels or StoreSettings().message_delay_level)
        self.report = Report(limit)

    def run(self) -> Iterator[CheckProgress]:
        """Look at everything, in steps. Raises StoreUnreadable. Blocks."""
        try:
            yield from self._run()
        except OSError as failure:
            raise StoreUnreadable(
                str(failure.filename or self._directory.root), failure.strerror or str(failure)
            ) from failure

    def _run(self) -> Iterator[CheckProgress]:
        directory, report = self._directory, self.report
        if directory.running:
            report.note("a broker runs on the directory: what it has not written to files yet counts as behind")
        self._check_configs()
        log = LogCheck(directory, report)
        log.check_files()
        queues = QueueChecks(directory, report, self._delays, log)
        queues.check_files()
        index = IndexChecks(directory, report, log)
        begin = report.begin = directory.log.start
        total = log.stop - begin
        next_report = begin + _STEP
        for offset, record in log.records():
            facts = facts_of(record)
            log.seen(record)
            log.check_fields(offset, facts)
            queues.seen(offset, len(record), facts)
            index.seen(offset, facts)
            if offset >= next_report:
                next_report = offset + _STEP
                yield CheckProgress(offset - begin, total)
        report.end = log.end
        queues.finish(log.end)
        index.finish(log.end)
        self._check_checkpoint(log)
        yield CheckProgress(total, total)

    def _check_configs(self) -> None:
        for config in self._directory.configs():
            self.report.configs += 1
            path = f"{self._directory.root}/config/{config.name}"
            if config.damage:
                self.report.add(
                    CONFIG, path, None, f"it cannot be read, nor can its backup: {config.damage}", "restore one of them"
                )
            elif not isinstance(config.value, dict):
                self.report.add(CONFIG, path, None, "it is no table", "restore it, or its backup")
            elif config.warning and not self._directory.running:
                # Apache's broker has none for a moment when it replaces one
                self.report.add(
                    CONFIG, path, None, config.warning, "look what is lost with it; the next save replaces it"
                )

    def _check_checkpoint(self, log: LogCheck) -> None:
        directory, report = self._directory, self.report
        path = directory.checkpoint.path
        if not directory.files.exists(path):
            if report.records:
                report.note(f"{path} is missing: after a crash the whole log is read")
        elif directory.files.size(path) < CHECKPOINT.size:
            report.add(
                TIMES,
                path,
                None,
                "it is too short",
                "the next start makes a new one; after a crash the whole log is read",
            )
        elif directory.checkpoint.log_time > log.latest_time and not directory.running:
            durable = directory.checkpoint.log_time
            what = (
                f"messages stored up to {durable} were durable, "
                f"but the last one that can be read is of {log.latest_time}"
            )
            report.add(TIMES, path, 0, what, MEND_LOG)


def check(
    files: Files,
    root: str,
    *,
    commit_log: str = "",
    index_pair: tuple[int, int] | None = None,
    limit: int = LIMIT,
    delay_levels: str = "",
) -> Report:
    """Check a whole data directory without changing it. Raises StoreUnreadable. Blocks.

    Beside a running broker, and after a crash until the next start, queues and index may be behind the log: a note.
    """
    directory = open_directory(files, root, commit_log=commit_log, index_pair=index_pair)
    try:
        checking = Check(directory, limit=limit, delay_levels=delay_levels)
        for _ in checking.run():
            pass
        return checking.report
    finally:
        directory.close()
