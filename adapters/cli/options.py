"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
from typing import Final

LOCAL_NAME_SERVER: Final = "127.0.0.1:9876"


def pair(text: str) -> tuple[str, str]:
    """An argument `name=value`; both must have text."""
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    return name, value


def setting_pair(text: str) -> tuple[str, str]:
    """An argument `key=value`; the value may be empty."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    return key.strip(), value


def add_name_server(parser: argparse.ArgumentParser, default: str | None = LOCAL_NAME_SERVER) -> None:
    """The option `-n`. NAMESRV_ADDR comes before the default, as with Apache's programs."""
    known = "NAMESRV_ADDR" if default is None else f"NAMESRV_ADDR, else {default}"
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR",
        default=os.environ.get("NAMESRV_ADDR") or default,
        help=f"name servers, host:port;host:port (default: {known})",
    )
