"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mqproto.errors import ClientError

LOCAL_NAME_SERVER: Final = "127.0.0.1:9876"


class OptionError(ClientError):
    """Failure of an option that says what cannot be."""


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


def time_ms(text: str) -> int:
    """An argument that is a time: milliseconds, or ISO form, UTC unless it says otherwise. As wall time in ms."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
        return max(int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: 2024-05-01T12:00:00Z or milliseconds expected"
        ) from None


def add_name_server(parser: argparse.ArgumentParser, default: str | None = LOCAL_NAME_SERVER) -> None:
    """The option `-n`. NAMESRV_ADDR comes before the default, as with Apache's programs."""
    known = "NAMESRV_ADDR" if default is None else f"NAMESRV_ADDR, else {default}"
    parser.add_argument(
        "-n",
        "--namesrv",
        "--namesrvAddr",
        metavar="ADDR",
        default=os.environ.get("NAMESRV_ADDR") or default,
        help=f"name servers, host:port;host:port (default: {known})",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options `-c` and `--set`: what a server is set to."""
    parser.add_argument(
        "-c", "--config", "--configFile", metavar="FILE", type=Path, help="settings in Apache's format, key=value"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        type=setting_pair,
        action="append",
        default=[],
        help="one setting; may be repeated",
    )
