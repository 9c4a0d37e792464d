"""Frames as bytes: decoding and encoding of whole commands, in both serialisations (docs/protocol/wire.md 1 to 6).

Owns: the header word, what is refused and with which limits.
Leaves to others: the stream (`FrameSplitter`), the two forms of a header (`mqproto.wire.frame`), the meaning of codes
and fields (`headers`), bodies, and which answer belongs to which request (connections).

`decode` and `FrameSplitter.feed` raise `RemoteProtocolError` and nothing else, whatever the bytes are. The encoders
raise `LocalProtocolError` for what no frame can carry. This module is a hot path: plain typed code that mypyc compiles
as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from mqproto.errors import LocalProtocolError, RemoteProtocolError
from mqproto.wire.codes import VERSION
from mqproto.wire.frame.binary_header import decode_binary_header, encode_binary_header
from mqproto.wire.frame.command import (
    BINARY,
    JSON,
    LANGUAGE,
    NO_LANGUAGE,
    NO_OPAQUE,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
)
from mqproto.wire.frame.json_header import decode_json_header, encode_json_header
from mqproto.wire.frame.splitter import MAX_FRAME, MAX_TOTAL, MIN_TOTAL, FrameSplitter

__all__ = [
    "BINARY",
    "JSON",
    "LANGUAGE",
    "MAX_FRAME",
    "MAX_TOTAL",
    "MIN_TOTAL",
    "NO_LANGUAGE",
    "NO_OPAQUE",
    "ONEWAY_FLAG",
    "RESPONSE_FLAG",
    "Command",
    "FrameSplitter",
    "decode",
    "encode",
    "encode_head",
    "encode_request",
    "encode_response",
    "json_header_end",
]

_HEADER_MASK: Final = 0xFFFFFF

_UNSIGNED: Final = struct.Struct(">I")
_TWO_WORDS: Final = struct.Struct(">ii")


def decode(frame: bytes | memoryview) -> Command:
    """The command of one frame, given without its length word. Raises `RemoteProtocolError`."""
    if len(frame) < 4:
        raise RemoteProtocolError(f"frame of {len(frame)} bytes has no header word")
    word: int = _UNSIGNED.unpack_from(frame)[0]
    kind = word >> 24
    end = 4 + (word & _HEADER_MASK)
    if end > len(frame):
        raise RemoteProtocolError(f"header of {end - 4} bytes in a frame that has room for {len(frame) - 4}")
    if kind == JSON:
        return decode_json_header(str(frame[4:end], "utf-8", "replace"), frame[end:])
    if kind == BINARY:
        return decode_binary_header(frame[4:end], frame[end:])
    raise RemoteProtocolError(f"unknown serialize type {kind}")


def json_header_end(frame: bytes) -> int:
    """Where the JSON header of a frame ends that is given without its length word; 0 where it has none, or not the
    whole of it.
    """
    if len(frame) < 4:
        return 0
    word: int = _UNSIGNED.unpack_from(frame)[0]  # of a JSON header the top byte is 0
    return word + 4 if word <= _HEADER_MASK and word + 4 <= len(frame) else 0


def _frame(
    kind: int,
    code: int,
    fields: Mapping[str, str] | None,
    flag: int,
    language: int,
    opaque: int,
    remark: str | None,
    version: int,
    body_length: int,
) -> bytes:
    """Length word, header word, header."""
    if kind == JSON:
        header = encode_json_header(code, fields, flag, language, opaque, remark, version)
    elif kind == BINARY:
        header = encode_binary_header(code, fields, flag, language, opaque, remark, version)
    else:
        raise LocalProtocolError(f"unknown serialize type {kind}")
    size = len(header)
    if 4 + size + body_length > MAX_TOTAL:
        raise LocalProtocolError(
            f"frame of {8 + size + body_length} bytes (header {size}) is above the limit of {MAX_FRAME}"
        )
    return _TWO_WORDS.pack(4 + size + body_length, kind << 24 | size) + header


def encode_head(command: Command, body_length: int) -> bytes:
    """Everything of a frame up to its body, for bodies that are sent behind it as views.

    `command.body` is not looked at.
    """
    return _frame(
        command.serialize_type,
        command.code,
        command.fields,
        command.flag,
        command.language,
        command.opaque,
        command.remark,
        command.version,
        body_length,
    )


def encode(command: Command) -> bytes:
    """The whole frame, length word included."""
    body = command.body
    head = encode_head(command, len(body))
    return b"".join((head, body)) if body else head


def encode_request(
    code: int,
    opaque: int,
    fields: Mapping[str, str] | None = None,
    body: bytes | memoryview = b"",
    *,
    oneway: bool = False,
    version: int = VERSION,
    serialize_type: int = JSON,
) -> bytes:
    """The frame of a request of ours."""
    head = _frame(
        serialize_type, code, fields, ONEWAY_FLAG if oneway else 0, LANGUAGE, opaque, None, version, len(body)
    )
    return b"".join((head, body)) if body else head


def encode_response(
    opaque: int,
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes | memoryview = b"",
    *,
    remark: str | None = None,
    serialize_type: int = JSON,
) -> bytes:
    """The frame of an answer of ours; `opaque` and `serialize_type` are those of the request."""
    head = _frame(serialize_type, code, fields, RESPONSE_FLAG, LANGUAGE, opaque, remark, VERSION, len(body))
    return b"".join((head, body)) if body else head
