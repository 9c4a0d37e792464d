"""Requests as real clients sent them, and what can go wrong with them on their way."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from mqproto.codec import Command, decode, encode
from mqproto.errors import RemoteProtocolError
from mqproto.state.node.contract import Buffer
from tests.golden.golden import GOLDEN

#: What stands in a field instead of what belongs there.
ODD_VALUES = (
    "",
    " ",
    "x",
    "-1",
    "-9223372036854775808",
    "2147483648",
    "9223372036854775807",
    "1" * 400,
    "NaN",
    "1e9",
    "é\x00",
    "null",
    "0x10",
)
#: Bodies that no request has.
ODD_BODIES = (b"", b"{", b"[]", b"null", b"{}", b'{"a":' * 100, bytes(100), b"\xff" * 50, b'"' * 7)


def recorded(side: str, limit: int = 4) -> list[Command]:
    """A few requests of each kind that brokers ("broker") or name servers ("namesrv") got, in a fixed order."""
    found: dict[int, list[Command]] = {}
    for version in GOLDEN.versions:
        for name in GOLDEN.capture_names(version):
            for entry in GOLDEN.capture(version, name):
                if entry.frame and entry.is_request and entry.direction == ">" and entry.link.endswith(side):
                    of_code = found.setdefault(entry.code, [])
                    if len(of_code) < limit:
                        of_code.append(decode(entry.frame[4:]))
    return [command for code in sorted(found) for command in found[code]]


def broken_fields(command: Command) -> Iterator[tuple[str, Command]]:
    """The request with each of its fields left out or odd, and with odd bodies; each with a word on what was done."""
    for name in command.fields:
        fields = {key: value for key, value in command.fields.items() if key != name}
        yield f"without {name}", _with(command, fields, command.body)
        for value in ODD_VALUES:
            yield f"{name}={value[:30]!r}", _with(command, {**command.fields, name: value}, command.body)
    yield "without fields", _with(command, {}, command.body)
    for body in ODD_BODIES:
        yield f"body {body[:10]!r}", _with(command, command.fields, body)


def _with(command: Command, fields: dict[str, str], body: Buffer) -> Command:
    return Command(
        command.code,
        fields,
        body,
        command.opaque,
        command.flag & ~2,
        command.remark,
        command.language,
        command.version,
        command.serialize_type,
    )


def mutated(random: Random, frame: bytes) -> bytes:
    """The bytes of a frame, mostly somehow damaged."""
    data = bytearray(frame)
    match random.randrange(6):
        case 0:
            for _ in range(random.randint(1, 8)):
                data[random.randrange(len(data))] = random.randrange(256)
        case 1:
            at = random.randrange(len(data))
            del data[at : at + random.randint(1, 40)]
        case 2:
            at = random.randrange(len(data))
            data[at:at] = random.randbytes(random.randint(1, 40))
        case 3:
            data[random.randrange(8)] ^= 1 << random.randrange(8)
        case 4:
            at = random.randrange(8, len(data))
            data[at:] = data[at:].swapcase()
        case _:
            return _odd(random, frame)
    return bytes(data)


def _odd(random: Random, frame: bytes) -> bytes:
    """A whole frame with an odd field."""
    try:
        command = decode(frame[4:])
    except RemoteProtocolError:
        return frame
    if command.fields:
        name = random.choice(sorted(command.fields))
        return encode(_with(command, {**command.fields, name: random.choice(ODD_VALUES)}, command.body))
    return encode(_with(command, command.fields, random.choice(ODD_BODIES)))
