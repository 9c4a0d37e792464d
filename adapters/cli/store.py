"""`store`: looks after a data directory that lies on this machine (docs/doctor.md). Each subcommand has a module of its own."""

from __future__ import annotations

from mqproto.adapters.cli import store_check, store_dump, store_export, store_import, store_inspect, store_repair
from mqproto.adapters.cli.store_options import Commands


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "store",
        help="look after a data directory",
        description="Look after a data directory, ours or Apache's. Looking changes nothing and is safe beside a running broker.",
    )
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    store_inspect.add_command(subcommands)
    store_check.add_command(subcommands)
    store_repair.add_command(subcommands)
    store_dump.add_command(subcommands)
    store_export.add_command(subcommands)
    store_import.add_command(subcommands)
