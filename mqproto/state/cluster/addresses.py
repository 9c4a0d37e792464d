"""Addresses of name servers as users and address servers write them (docs/protocol/client.md 1.4)."""

from __future__ import annotations

import re
from typing import Final

from mqproto.errors import InvalidSetting

_INSTANCE: Final = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.", re.ASCII)


def parse_addresses(text: str) -> tuple[str, ...]:
    """The addresses of a name server list as Apache writes it, `host:port;host:port` (docs/protocol/client.md 1.4);
    blanks are trimmed.
    """
    return tuple(bare_address(part) for part in (one.strip() for one in text.split(";")) if part)


def bare_address(address: str) -> str:
    """An address without the `http://` that one from a cloud's console may begin with (docs/protocol/client.md 1.4)."""
    return address.rpartition("/")[2] if address.startswith("http://") else address


def endpoint_namespace(address: str) -> str:
    """The namespace in the address of an instance, as in `http://MQ_INST_1_x.host:port`; empty for other addresses."""
    found = _INSTANCE.match(address)
    return found.group(1) if found is not None else ""


def check_address(key: str, address: str) -> None:
    """Raises `InvalidSetting` unless `address` is `host:port`; the last colon splits, so IPv6 literals pass."""
    host, _, port = address.rpartition(":")
    if not host or "," in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= 65_535:
        raise InvalidSetting(key, address, "host:port expected, of several with a semicolon between two")
