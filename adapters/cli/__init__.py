"""The command line. Plain argparse and plain text, so that it runs with nothing installed.

Exit codes: 0 done, 1 the work failed (a message could not be sent), 2 it could not begin (a wrong option, a port taken, a locked
data directory). Errors are one line on standard error that says what is wrong and what to do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from adapters.cli import consuming, sending, serving, store
from adapters.cli.output import complain
from mqproto import __version__
from mqproto.errors import MQError

__all__ = ["main"]


def _version(options: argparse.Namespace) -> int:
    print(f"mqproto {__version__} (Python {sys.version.split()[0]}, {sys.platform})")
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mqproto", description="RocketMQ in Python: name server, broker and clients.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    serving.add_commands(commands)
    sending.add_command(commands)
    consuming.add_command(commands)
    store.add_command(commands)
    version = commands.add_parser("version", help="print the version and exit")
    version.set_defaults(run=_version)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the arguments are those of the process unless given. Gives the exit code."""
    options = build_parser().parse_args(arguments)
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
