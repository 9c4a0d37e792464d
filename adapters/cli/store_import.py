"""`store import`: topics out of a file into a data directory."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from mqproto.adapters.cli.options import add_settings, pair
from mqproto.adapters.cli.output import complain, show
from mqproto.adapters.cli.progress import ProgressBar
from mqproto.adapters.cli.store.options import Commands, add_directory, confirmed, opened
from mqproto.adapters.cli.tables import size_text, table
from mqproto.adapters.io.config_file import read_settings
from mqproto.adapters.io.identity import utc_offset_ms, wall_ms
from mqproto.engine.settings import apply
from mqproto.engine.store import DiskFiles, StoreSettings, StoreUnwritable
from mqproto.engine.store.doctor import Directory
from mqproto.engine.store.doctor.exportfile import ExportReader
from mqproto.engine.store.doctor.importing import Import, settings_for
from mqproto.engine.store.doctor.planning import DirectoryTarget, Fate, ImportPlan, NoTarget, Planner, QueuePlan, Target
from mqproto.engine.store.doctor.views.tables import TableFiles
from mqproto.errors import InvalidSetting


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "import",
        help="put exported topics into a data directory",
        description="Put the topics of an export into a data directory that no broker works on. What would be done is shown first.",
        epilog="Exit code: 0 done (or nothing to do), 1 not done or not all, 2 it could not begin.",
    )
    add_directory(parser)
    parser.add_argument("file", metavar="FILE", help="what `store export` wrote")
    parser.add_argument("--yes", action="store_true", help="do it without asking")
    parser.add_argument(
        "--append", action="store_true", help="put messages behind those of queues that have others, with new offsets"
    )
    parser.add_argument(
        "--rename", metavar="OLD=NEW", type=pair, action="append", default=[], help="another name for a topic"
    )
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="what is to be done, as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.file == "-":
        return complain("an import reads its file twice: save it, and name it")
    try:
        with Path(options.file).open("rb") as file:
            return _import(options, file)
    except OSError as failure:
        return complain(f"{failure.filename or options.file}: {failure.strerror or failure}")


def _import(options: argparse.Namespace, file: BinaryIO) -> int:
    files = DiskFiles()
    size = file.seek(0, 2)
    file.seek(0)
    directory = (
        None if not files.names(options.directory) and not Path(options.directory).is_file() else opened(options)
    )
    try:
        if directory is not None and directory.running:
            return complain(f"a broker runs on {directory.root}: stop it first")
        settings = _settings(options, directory)
        plan = _plan(options, ExportReader(file.read), size, directory)
    finally:
        if directory is not None:
            directory.close()
    if options.json:
        show(json.dumps(_fields(plan), ensure_ascii=False))
    else:
        for line in _lines(plan):
            show(line)
    if plan.refused:
        return complain(
            "some queues have other messages: --append puts the new ones behind them, --rename under another topic", 1
        )
    if plan.empty:
        return 0
    if not options.yes and not confirmed(f"import into {options.directory}?"):
        print("nothing was changed; --yes does it", file=sys.stderr if options.json else sys.stdout)
        return 1
    file.seek(0)
    done = _run(
        Import(files, settings, ExportReader(file.read), plan, wall=wall_ms(), utc_offset_ms=utc_offset_ms()), plan
    )
    print(f"{done} messages were imported", file=sys.stderr if options.json else sys.stdout)
    return 0


def _settings(options: argparse.Namespace, directory: Directory | None) -> StoreSettings:
    """What the directory shows of its settings, and what the options say."""
    settings = StoreSettings(store_path_root_dir=options.directory) if directory is None else settings_for(directory)
    apply(settings, read_settings(options.config))  # keys of the broker's other parts have no effect here
    settings.unknown.clear()
    apply(settings, dict(options.set))
    for key, text in settings.unknown.items():
        raise InvalidSetting(key, text, "there is no such setting of the store")
    if options.commitlog:
        settings.store_path_commit_log = options.commitlog
    return replace(settings, store_path_root_dir=options.directory.rstrip("/") or "/")


def _plan(options: argparse.Namespace, reader: ExportReader, size: int, directory: Directory | None) -> ImportPlan:
    rename = dict(options.rename)
    target: Target = NoTarget()
    if directory is not None:
        target = there = DirectoryTarget(directory, {rename.get(each.topic, each.topic) for each in reader.head.queues})
        with ProgressBar("looking") as bar:
            for place in there.survey():
                bar.show(place - directory.log.start, directory.log.limit - directory.log.start)
    planner = Planner(reader, target, rename=rename, append=options.append)
    with ProgressBar("reading") as bar:
        for _ in planner.run():
            bar.show(reader.position, size)
    tables = TableFiles(DiskFiles(), options.directory.rstrip("/") or "/").load()
    planner.plan.notes += tables.notes
    planner.merge(tables)
    return planner.plan


def _run(importing: Import, plan: ImportPlan) -> int:
    try:
        with ProgressBar("importing", unit=lambda count: f"{count} messages") as bar:
            for done in importing.run():
                bar.show(done, plan.exported)
    except BaseException:
        with contextlib.suppress(StoreUnwritable):  # what went wrong first is what counts
            importing.close()
        raise
    importing.close()
    return importing.stored


# --- what is shown ---

_WORDS = {
    Fate.KEPT: "keep their offsets",
    Fate.CONTINUED: "continue, offsets are kept",
    Fate.THERE: "are there",
    Fate.APPENDED: "are appended, with new offsets",
    Fate.REFUSED: "REFUSED: the queue has other messages",
}


def _lines(plan: ImportPlan) -> Iterator[str]:
    rows = [
        (each.topic, each.queue_id, each.messages, each.present, size_text(each.bytes), *_offsets(each), _words(each))
        for each in plan.queues
    ]
    yield from table(("topic", "queue", "messages", "there", "size", "from", "to", "which"), rows)
    yield ""
    yield f"messages  {plan.messages} to import"
    yield f"topics    {', '.join(each.name for each in plan.topics) or 'none'} to add or change"
    yield f"groups    {', '.join(plan.groups) or 'none'} to add"
    yield f"offsets   {_taken(plan)} to add or raise, {_kept(plan)} are there and stay, {_lost(plan)} have no meaning here"
    for note in plan.notes:
        yield f"note: {note}"


def _taken(plan: ImportPlan) -> int:
    return sum(each.taken for each in plan.offsets)


def _kept(plan: ImportPlan) -> int:
    return sum(each.here is not None and not each.taken for each in plan.offsets)


def _lost(plan: ImportPlan) -> int:
    return sum(each.here is None and not each.taken for each in plan.offsets)


def _offsets(one: QueuePlan) -> tuple[int, int]:
    """The offsets that the messages have in the target."""
    if one.keeps_offsets:
        return one.source.begin, one.source.end
    return one.first, one.first + one.messages


def _words(one: QueuePlan) -> str:
    if one.fate is Fate.APPENDED and one.keeps_offsets:
        return "are appended, offsets are kept"
    return _WORDS[one.fate]


def _fields(plan: ImportPlan) -> dict[str, Any]:
    return {
        "created": plan.head.created,
        "messages": plan.messages,
        "queues": [
            {
                "topic": each.topic,
                "from": each.source.topic,
                "queueId": each.queue_id,
                "messages": each.messages,
                "present": each.present,
                "bytes": each.bytes,
                "begin": _offsets(each)[0],
                "end": _offsets(each)[1],
                "fate": each.fate.value,
            }
            for each in plan.queues
        ],
        "topics": [each.name for each in plan.topics],
        "groups": plan.groups,
        "offsets": {
            "taken": _taken(plan),
            "kept": _kept(plan),
            "lost": _lost(plan),
        },
        "notes": plan.notes,
    }
