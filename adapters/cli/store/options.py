"""Options of all subcommands of `store`: which directory, and how it is opened."""

from __future__ import annotations

import argparse
import sys
from typing import TypeAlias

from mqproto.engine.store import DiskFiles
from mqproto.engine.store.doctor import Directory, open_directory

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_directory(parser: argparse.ArgumentParser) -> None:
    """The data directory and what cannot be seen in it."""
    parser.add_argument("directory", metavar="DIR", help="the data directory (a broker's storePathRootDir)")
    parser.add_argument("--commitlog", metavar="DIR", default="", help="folder of the log, if it does not lie in DIR")
    parser.add_argument(
        "--hash-slots", metavar="N", type=int, help="maxHashSlotNum of the broker, if it is not found out"
    )
    parser.add_argument("--max-index", metavar="N", type=int, help="maxIndexNum of the broker, if it is not found out")


def index_pair(options: argparse.Namespace) -> tuple[int, int] | None:
    """Slots and entries of an index file, as far as the options say.

    The one that is left out has Apache's ratio to the other.
    """
    slots: int | None = options.hash_slots
    entries: int | None = options.max_index
    if slots is None and entries is None:
        return None
    return slots or max((entries or 0) // 4, 1), entries or 4 * (slots or 0)


def opened(options: argparse.Namespace) -> Directory:
    """The directory, to be looked at. Raises StoreUnreadable."""
    return open_directory(DiskFiles(), options.directory, commit_log=options.commitlog, index_pair=index_pair(options))


def state_text(directory: Directory) -> str:
    """In words: who works on it, and how the last broker ended."""
    if directory.owner is not None:
        who = f" (process {directory.owner})" if directory.owner else ""
        return f"a broker runs on it{who}: what it has not written to files is not seen"
    return "stopped in an orderly way" if directory.clean else "not stopped in an orderly way: the next start recovers"


def confirmed(question: str) -> bool:
    """Ask, if somebody is there to answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
