"""`store export`: topics of a data directory into a file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from mqproto import __version__
from mqproto.adapters.cli.options import time_ms
from mqproto.adapters.cli.output import complain
from mqproto.adapters.cli.progress import ProgressBar
from mqproto.adapters.cli.store.options import Commands, add_directory, opened
from mqproto.adapters.cli.tables import size_text
from mqproto.adapters.io.identity import wall_ms
from mqproto.engine.store import DiskFiles
from mqproto.engine.store.doctor.exporting import Export


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "export",
        help="copy topics into a file",
        description="Copy topics of a data directory into a file, with their configurations, groups and committed offsets. "
        "The directory is not changed.",
        epilog="Exit code: 0 done, 1 done, but damaged messages are left out, 2 not done.",
    )
    add_directory(parser)
    parser.add_argument("file", metavar="FILE", help="where to; `-` is standard output")
    parser.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="may be repeated")
    parser.add_argument(
        "--group",
        metavar="GROUP",
        action="append",
        default=[],
        help="may be repeated (default: all with offsets of the topics)",
    )
    parser.add_argument(
        "--from-time", metavar="TIME", type=time_ms, help="only messages stored at this time or later (ISO or ms)"
    )
    parser.add_argument("--to-time", metavar="TIME", type=time_ms, help="only messages stored before this time")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
    parser.add_argument("--skip-damaged", action="store_true", help="leave out messages that cannot be read")
    parser.add_argument("--json", action="store_true", help="what was done, as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    to_output = options.file == "-"
    path = Path(options.file)
    if not to_output and path.exists() and (path.is_dir() or not options.force):
        return complain(f"{path} {'is a directory' if path.is_dir() else 'is there: --force replaces it'}")
    if to_output and sys.stdout.isatty():
        return complain("an export is no text for a terminal: name a file, or use a pipe")
    directory = opened(options)
    try:
        export = Export(
            directory, options.topic, options.group, from_time=options.from_time, to_time=options.to_time, created=wall_ms(),
            writer=f"mqproto {__version__}", skip_damaged=options.skip_damaged,
        )  # fmt: skip
        with ProgressBar("looking") as bar:
            for place in export.survey():
                bar.show(place - directory.log.start, directory.log.limit - directory.log.start)
        total = sum(queue.end - queue.begin for queue in export.head.queues)
        if to_output:
            _write(sys.stdout.buffer, export, total)
        else:
            _write_file(path, export, total)
    except OSError as failure:
        if isinstance(failure, BrokenPipeError):
            raise
        return complain(f"{failure.filename or path}: {failure.strerror or failure}")
    finally:
        directory.close()
    _tell(export, options.json, options.file)
    return 1 if export.skipped else 0


def _write(out: BinaryIO, export: Export, total: int) -> None:
    with ProgressBar("exporting", unit=_messages) as bar:
        for piece in export.pieces():
            out.write(piece)
            bar.show(export.messages, total)
    out.flush()


def _messages(count: int) -> str:
    return f"{count} messages"


def _write_file(path: Path, export: Export, total: int) -> None:
    """Write beside, make durable, put in place: there is a whole file or none."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as out:
            _write(out, export, total)
            os.fsync(out.fileno())
        part.replace(path)
        DiskFiles().sync_folder(str(path.parent))
    finally:
        part.unlink(missing_ok=True)


def _tell(export: Export, as_json: bool, file: str) -> None:
    """What was done; on standard error if the file is on standard output."""
    for words in export.unreadable:
        complain(f"left out: {words}")
    if export.skipped > len(export.unreadable):
        complain(f"left out: {export.skipped - len(export.unreadable)} more")
    out = sys.stderr if file == "-" else sys.stdout
    if as_json:
        print(json.dumps(_fields(export, file), ensure_ascii=False), file=out)
        return
    head = export.head
    count = f"{export.messages} messages ({size_text(export.size)}) of {len(head.queues)} queues"
    print(f"{count}, {len(head.topics)} topics, {len(head.groups)} groups, {_offsets(export)} offsets", file=out)
    for note in export.notes:
        print(f"note: {note}", file=out)
    if export.gone:
        print(f"note: {export.gone} messages were deleted meanwhile", file=out)


def _offsets(export: Export) -> int:
    return sum(map(len, export.head.offsets.values()))


def _fields(export: Export, file: str) -> dict[str, Any]:
    return {
        "file": file,
        "messages": export.messages,
        "bytes": export.size,
        "skipped": export.skipped,
        "gone": export.gone,
        "queues": [
            {"topic": each.topic, "queueId": each.queue_id, "begin": each.begin, "end": each.end}
            for each in export.head.queues
        ],
        "topics": sorted(export.head.topics),
        "groups": sorted(export.head.groups),
        "offsets": _offsets(export),
        "notes": export.notes,
    }
