"""Command `store repair`: a data directory is made to agree with its log again."""

from __future__ import annotations

import argparse
import time

from mqproto.adapters.cli.options import add_settings
from mqproto.adapters.cli.output import complain, show
from mqproto.adapters.cli.progress import ProgressBar
from mqproto.adapters.cli.store.options import Commands, add_directory, confirmed, index_pair
from mqproto.adapters.io.config_file import read_settings
from mqproto.engine.settings import apply
from mqproto.engine.store import DiskFiles, StoreSettings
from mqproto.engine.store.doctor import Repair
from mqproto.engine.store.report import Recover
from mqproto.errors import MQError


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "repair",
        help="make queues and index again from the log, cut a torn tail",
        description="Let a data directory agree with its log again. "
        "First it says what it would do; then it asks, or goes on with --yes.",
        epilog="Exit code: 0 nothing is wrong (any more), 1 something is, 2 the repair could not begin. "
        "What it takes away is put into a folder set-aside-N of the directory. "
        "With -c broker.conf, queues and index are made as that broker makes them: "
        "delay levels, with or without index, sizes of files.",
    )
    add_directory(parser)
    parser.add_argument("--yes", action="store_true", help="do it without asking")
    parser.add_argument(
        "--recover",
        choices=("skip", "cut"),
        help="if the log is damaged: skip steps over the damage and keeps what is good behind it, "
        "cut ends the log there",
    )
    parser.add_argument("--rebuild", action="store_true", help="make queues and index again even if they seem good")
    add_settings(parser)
    parser.set_defaults(run=run)


def _settings(options: argparse.Namespace) -> StoreSettings:
    """What the broker is set to. Raises InvalidSetting, SettingsUnreadable."""
    settings = StoreSettings()
    apply(settings, {**read_settings(options.config), **dict(options.set)})
    return settings


def run(options: argparse.Namespace) -> int:
    settings = _settings(options)
    repair = Repair(
        DiskFiles(),
        options.directory,
        recover=Recover(options.recover) if options.recover else Recover.REFUSE,
        rebuild=options.rebuild,
        settings=settings,
        commit_log=options.commitlog or settings.store_path_commit_log,
        index_pair=index_pair(options),
    )
    with ProgressBar("checking") as bar:
        for progress in repair.survey():
            bar.show(*progress)
    plan = repair.plan
    for step in plan.steps:
        show(f"to do: {step}")
    for text in plan.left:
        show(f"cannot be repaired: {text}")
    if not plan.steps:
        show("nothing can be done" if plan.left else "nothing is wrong, nothing to do")
        return 1 if plan.left else 0
    if plan.needs_choice and options.recover is None:
        return complain("the log is damaged: choose --recover skip or --recover cut; nothing was changed", 1)
    if not options.yes and not confirmed("do this?"):
        show("nothing was changed; --yes does it")
        return 1
    return _do(repair)


def _do(repair: Repair) -> int:
    wall = int(time.time() * 1000)
    try:
        with ProgressBar("checking again") as bar:
            for progress in repair.run(wall, time.localtime().tm_gmtoff * 1000):
                bar.show(*progress)
    except MQError as error:
        where = f"; what was taken away is in {repair.aside}" if repair.aside else ""
        return complain(f"{error}{where}; the repair can be begun again")
    for lost in repair.lost:
        show(f"lost: {lost.topic}/{lost.queue_id} {lost.first} to {lost.last}")
    for finding in repair.report.findings:
        show(f"still wrong: {finding}")
    if repair.aside:
        show(f"what was taken away is in {repair.aside}")
    show("repaired" if repair.report.clean else f"{repair.report.count} things are still wrong")
    return 0 if repair.report.clean else 1
