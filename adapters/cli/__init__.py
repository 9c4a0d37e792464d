"""Command line of clients and servers. Plain argparse and plain text, so that it runs with nothing installed.

Exit codes: 0 done, 1 the work failed (a message could not be sent), 2 it could not begin (a wrong option, a port taken,
a locked data directory). Errors are one line on standard error that says what is wrong and what to do.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from mqproto import __version__
from mqproto.adapters.cli.output import complain
from mqproto.compiling import is_compiled
from mqproto.errors import MQError

__all__ = ["main"]

#: The module of each command. A command imports its own alone: a server starts in a fraction of the time that all of
#: them take.
_MODULES: Final = {
    "standalone": "servers",
    "namesrv": "servers",
    "broker": "servers",
    "send": "send",
    "consume": "consume",
    "store": "store",
}


def _version(options: argparse.Namespace) -> int:
    kind = ", compiled" if is_compiled() else ""
    print(f"mqproto {__version__} (Python {sys.version.split()[0]}, {sys.platform}{kind})")
    return 0


def build_parser(command: str = "") -> argparse.ArgumentParser:
    """The parser; with the name of a command, of that one and its like alone."""
    parser = argparse.ArgumentParser(prog="mqproto", description="RocketMQ in Python: name server, broker and clients.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in [_MODULES[command]] if command in _MODULES else dict.fromkeys(_MODULES.values()):
        add_commands: Callable[[object], None] = importlib.import_module(f"mqproto.adapters.cli.{module}").add_commands
        add_commands(commands)
    version = commands.add_parser("version", help="print the version and exit")
    version.set_defaults(run=_version)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the arguments are those of the process unless given. Gives the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = build_parser(words[0] if words else "").parse_args(words)
    try:
        code: int = options.run(options)
    except MQError as error:
        return complain(str(error))
    except BrokenPipeError:
        # The reader of our output left (`... | head`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return code
