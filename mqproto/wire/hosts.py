"""Hosts: `host:port` texts and the bytes that records and ids hold for them.

In a record a host is the address (4 bytes, or 16 when the flag for IPv6 is set) and the port as an i32
(docs/protocol/wire.md 7). In text the *last* colon separates the port, because brokers register bare IPv6 addresses
such as `::1:10911`; we write IPv6 addresses in brackets and read them with or without, and with or without a zone
(`fe80::1%lo`).
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct
from typing import Final

_PORT: Final = Struct(">i")
_HOST_V4: Final = Struct(">4Bi")
#: Distance of the port that 4.4 clients send to ("VIP channel") from the ordinary one.
VIP_DISTANCE: Final = 2
PORT_MAX: Final = 65535


class HostError(ValueError):
    """A text or some bytes do not name a host; `given` is what was given."""

    def __init__(self, given: object, why: str) -> None:
        super().__init__(f"{given!r} is no host: {why}")
        self.given = given
        self.why = why


def split_address(address: str) -> tuple[str, int]:
    """`host:port` as its two parts; the last colon splits and brackets around an IPv6 address are removed.

    Raises HostError for a missing or impossible port or an empty host.
    """
    host, colon, port_text = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host:
        raise HostError(address, "expected host:port")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > PORT_MAX:
        raise HostError(address, f"the port is a number from 0 to {PORT_MAX}")
    return host, int(port_text)


def join_address(host: str, port: int) -> str:
    """The text of a host and a port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def vip_address(address: str) -> str:
    """The address of a broker's fast listener, two ports below the given one (docs/protocol/client.md 1.8).

    Raises HostError.
    """
    host, port = split_address(address)
    if port < VIP_DISTANCE:
        raise HostError(address, f"there is no port {VIP_DISTANCE} below")
    return join_address(host, port - VIP_DISTANCE)


def encode_ip(ip: str) -> bytes:
    """4 or 16 bytes of an address in text; a zone after `%` and brackets are dropped. Raises HostError."""
    bare = ip.strip("[]").partition("%")[0]
    try:
        return IPv6Address(bare).packed if ":" in bare else IPv4Address(bare).packed
    except AddressValueError as failure:
        raise HostError(ip, str(failure)) from None


def decode_ip(data: bytes | memoryview) -> str:
    """The text of 4 or 16 address bytes. Raises HostError for any other length."""
    if len(data) == 4:
        return ".".join(map(str, data))
    if len(data) == 16:
        return str(IPv6Address(bytes(data)))
    raise HostError(bytes(data), "an address has 4 or 16 bytes")


def encode_host(address: str) -> bytes:
    """`ip:port` as 8 or 20 bytes: the address, then the port as i32 (docs/protocol/wire.md 7).

    Names are not resolved. Raises HostError.
    """
    host, port = split_address(address)
    return encode_ip(host) + _PORT.pack(port)


def decode_host(data: bytes | memoryview) -> str:
    """The text of 8 or 20 host bytes. Raises HostError for any other length."""
    if len(data) == 8:
        a, b, c, d, port = _HOST_V4.unpack(data)
        return f"{a}.{b}.{c}.{d}:{port}"
    if len(data) == 20:
        return f"[{decode_ip(data[:16])}]:{_PORT.unpack(data[16:])[0]}"
    raise HostError(bytes(data), "a host has 8 or 20 bytes")
