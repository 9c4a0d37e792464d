"""Command `store`: care of a data directory that lies on this machine (docs/doctor.md).

Each subcommand has a module of its own.
"""

from __future__ import annotations

from mqproto.adapters.cli.store import check, dump, inspect, repair
from mqproto.adapters.cli.store.options import Commands


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "store",
        help="look after a data directory",
        description="Look after a data directory, ours or Apache's. "
        "Looking changes nothing and is safe beside a running broker.",
    )
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    inspect.add_command(subcommands)
    check.add_command(subcommands)
    repair.add_command(subcommands)
    dump.add_command(subcommands)
