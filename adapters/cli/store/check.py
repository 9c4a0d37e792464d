"""Command `store check`: whether a data directory is whole."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from mqproto.adapters.cli.output import complain, show
from mqproto.adapters.cli.progress import ProgressBar
from mqproto.adapters.cli.store.options import Commands, add_directory, opened, state_text
from mqproto.engine.store.doctor import Check, Report
from mqproto.engine.store.doctor.checks.check import LIMIT


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "check",
        help="check every record, queue entry and index entry",
        description="Check every record, queue entry and index entry of a data directory against each other. "
        "Nothing is changed.",
        epilog="Exit code: 0 nothing is wrong, 1 something is, 2 the check could not begin.",
    )
    add_directory(parser)
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        default=LIMIT,
        help=f"findings that are shown; the rest is counted (default: {LIMIT})",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.limit < 0:
        return complain(f"--limit {options.limit}: must be 0 or more")
    directory = opened(options)
    try:
        check = Check(directory, limit=options.limit)
        with ProgressBar("checking") as bar:
            for progress in check.run():
                bar.show(*progress)
    finally:
        directory.close()
    if options.json:
        fields = {
            "clean": check.report.clean,
            "running": directory.running,
            "orderlyEnd": directory.clean,
            **asdict(check.report),
        }
        show(json.dumps(fields, ensure_ascii=False))
    else:
        for line in report_lines(check.report, directory.root, state_text(directory)):
            show(line)
    return 0 if check.report.clean else 1


def report_lines(report: Report, root: str, state: str) -> list[str]:
    """A report for people: the state, what was looked at, what is wrong, what is unusual."""
    looked_at = (
        f"{report.records} records from {report.begin} to {report.end}, "
        f"{report.entries} entries of {report.queues} queues, "
        f"{report.keys} keys of {report.index_files} index files, {report.configs} configuration files"
    )
    lines = [f"{root}: {state}", looked_at]
    lines += [f"wrong: {finding}" for finding in report.findings]
    if report.count > len(report.findings):
        lines.append(f"wrong: {report.count - len(report.findings)} more; --limit shows more of them")
    lines += [f"note: {note}" for note in report.notes]
    lines.append(
        "nothing is wrong" if report.clean else f"{report.count} thing{'s are' if report.count > 1 else ' is'} wrong"
    )
    return lines
