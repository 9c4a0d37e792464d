"""Binary header of a frame, the serialize type ROCKETMQ: read and written (docs/protocol/wire.md 3)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from mqproto.errors import LocalProtocolError, RemoteProtocolError
from mqproto.wire.frame.command import BINARY, LANGUAGE_NAMES, NO_LANGUAGE, Command

_WORD: Final = struct.Struct(">i")
_HALF: Final = struct.Struct(">h")
_HEAD: Final = struct.Struct(">hBhiii")

#: Of a binary header without remark and fields.
_FIXED: Final = _HEAD.size + 4


def decode_binary_header(header: bytes | memoryview, body: bytes | memoryview) -> Command:
    """The command of a header's bytes. Raises `RemoteProtocolError`."""

    size = len(header)
    if size < _FIXED:
        raise RemoteProtocolError(f"binary header of {size} bytes is cut off")
    code, language, version, opaque, flag, length = _HEAD.unpack_from(header)
    if length < 0 or length > size - _FIXED:
        raise RemoteProtocolError(f"remark of {length} bytes in a binary header of {size}")
    at = _HEAD.size
    remark = str(header[at : at + length], "utf-8", "replace") if length else None
    at += length
    length = _WORD.unpack_from(header, at)[0]
    at += 4
    if length > size - at:
        raise RemoteProtocolError(f"fields of {length} bytes in a binary header of {size}")
    fields = _fields(header, at, at + length) if length > 0 else None
    if language >= len(LANGUAGE_NAMES):
        language = NO_LANGUAGE
    return Command(code, fields, body, opaque, flag, remark, language, version, BINARY)


def _fields(header: bytes | memoryview, at: int, end: int) -> dict[str, str]:
    """Entries until `end`.

    A later value replaces an earlier one; an empty name or value is none at all, as 4.9 has it.
    """
    fields: dict[str, str] = {}
    while at < end:
        if end - at < 6:
            raise RemoteProtocolError("binary header ends within a field")
        length = _HALF.unpack_from(header, at)[0]
        at += 2
        if length < 0 or length > end - at - 4:
            raise RemoteProtocolError(f"field name of {length} bytes does not fit its binary header")
        name = str(header[at : at + length], "utf-8", "replace")
        at += length
        length = _WORD.unpack_from(header, at)[0]
        at += 4
        if length < 0 or length > end - at:
            raise RemoteProtocolError(f"field value of {length} bytes does not fit its binary header")
        if length == 0:
            fields.pop(name, None)
        elif name:
            fields[name] = str(header[at : at + length], "utf-8", "replace")
        at += length
    return fields


def encode_binary_header(
    code: int, fields: Mapping[str, str] | None, flag: int, language: int, opaque: int, remark: str | None, version: int
) -> bytes:
    """The header alone. Raises `LocalProtocolError` for what it cannot carry."""
    parts: list[bytes] = []
    try:
        for name, value in fields.items() if fields else ():
            key = name.encode("utf-8", "replace")
            data = value.encode("utf-8", "replace")
            parts += (_HALF.pack(len(key)), key, _WORD.pack(len(data)), data)
    except (AttributeError, TypeError):
        raise LocalProtocolError(f"fields are text only: {fields!r:.200}") from None
    except struct.error as error:
        raise LocalProtocolError(f"field name is too long: {error}") from None
    block = b"".join(parts)
    note = b"" if remark is None else remark.encode("utf-8", "replace")
    try:
        head = _HEAD.pack(code, language & 0xFF, version, opaque, flag, len(note))
    except struct.error as error:
        # above all a code of more than 16 bits: Java cuts it, and it arrives as another one
        raise LocalProtocolError(
            f"code {code}, version {version} or opaque {opaque} does not fit a binary header: {error}"
        ) from None
    return b"".join((head, note, _WORD.pack(len(block)), block))
