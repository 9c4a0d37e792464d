"""Compressed bodies (docs/protocol/wire.md 8): bits of the message's sysFlag name the way.

zlib is always there; LZ4 (frame format) and Zstandard need the packages of the extra `compression`. Inflating is
bounded, because a few kilobytes of a hostile body can stand for gigabytes.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

from mqproto.errors import CompressionMissing, RemoteProtocolError
from mqproto.wire.flags import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT

LEVEL: Final = 5
#: Default limit of what a body may inflate to: more than any that fits a frame plainly, by a factor of eight.
INFLATED_MAX: Final = 128 << 20
#: A piece of a Zstandard frame inflates without a limit of its own: 4 bytes to at most 128 KiB, so this much to at most
#: 16 MiB.
_ZSTD_PIECE: Final = 512


class Compression(IntEnum):
    """Ways to pack a body, by the number in the type bits.

    Releases before 4.9.4 know zlib alone and write the number 0 for it.
    """

    ZLIB_UNTYPED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


class BodyError(RemoteProtocolError):
    """A body cannot be inflated: it is broken, of an unknown kind, or larger than allowed."""


def check_available(kind: Compression) -> None:
    """Raises CompressionMissing, which names the extra to install, unless bodies can be packed and read in this way
    here.
    """
    deflate(b"", kind)


def deflate(body: bytes, kind: Compression = Compression.ZLIB, level: int = LEVEL) -> tuple[bytes, int]:
    """The packed body and the bits to set in the sysFlag (0x301 for zlib). Raises CompressionMissing."""
    match kind:
        case Compression.ZLIB | Compression.ZLIB_UNTYPED:
            packed = zlib.compress(body, level)
        case Compression.LZ4:
            packed = _lz4_deflate(body)
        case Compression.ZSTD:
            packed = _zstd_deflate(body, level)
    return packed, COMPRESSED | kind << COMPRESSION_SHIFT


def inflate(body: bytes, sys_flag: int, limit: int = INFLATED_MAX) -> bytes:
    """The plain body of a message with this sysFlag; the body itself when it is not compressed.

    Raises BodyError for a broken body, an unknown kind or a result of more than `limit` bytes, and CompressionMissing.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    if kind == Compression.ZLIB or kind == Compression.ZLIB_UNTYPED:
        return zlib_inflate(body, limit)
    if kind == Compression.LZ4:
        return _lz4_inflate(body, limit)
    if kind == Compression.ZSTD:
        return _zstd_inflate(body, limit)
    raise BodyError(f"unknown kind of compression {kind}")


def plain_flag(sys_flag: int) -> int:
    """The sysFlag without what it says of compression."""
    return sys_flag & ~(COMPRESSED | COMPRESSION_MASK)


def zlib_inflate(data: bytes, limit: int = INFLATED_MAX) -> bytes:
    """The content of a zlib stream; empty stays empty and what follows the stream is ignored, as by Java.

    Raises BodyError.
    """
    if not data:
        return b""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, limit + 1)
    except zlib.error as failure:
        raise BodyError(f"the body is no zlib stream: {failure}") from None
    if len(plain) > limit:
        raise _too_large(limit)
    if not stream.eof:
        raise BodyError("the zlib stream breaks off")
    return plain


def _too_large(limit: int) -> BodyError:
    return BodyError(f"the body inflates to more than {limit} bytes")


def _lz4_deflate(body: bytes) -> bytes:
    try:
        import lz4.frame
    except ImportError:
        raise CompressionMissing("LZ4") from None
    packed: bytes = lz4.frame.compress(body)
    return packed


def _lz4_inflate(data: bytes, limit: int) -> bytes:
    try:
        import lz4.frame
    except ImportError:
        raise CompressionMissing("LZ4") from None
    parts: list[bytes] = []
    size = 0
    while data:
        stream = lz4.frame.LZ4FrameDecompressor()
        try:
            plain: bytes = stream.decompress(data, max_length=limit + 1 - size)
        except RuntimeError as failure:
            raise BodyError(f"the body is no LZ4 frame: {failure}") from None
        size += len(plain)
        if size > limit:
            raise _too_large(limit)
        if not stream.eof:
            raise BodyError("the LZ4 frame breaks off")
        parts.append(plain)
        data = stream.unused_data or b""
    return b"".join(parts)


def _zstd_deflate(body: bytes, level: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise CompressionMissing("Zstandard") from None
    return zstandard.ZstdCompressor(level=level).compress(body)


def _zstd_inflate(data: bytes, limit: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise CompressionMissing("Zstandard") from None
    parts: list[bytes] = []
    size = 0
    at = 0
    while at < len(data):
        stream = zstandard.ZstdDecompressor().decompressobj()
        while not stream.eof:
            piece = data[at : at + _ZSTD_PIECE]
            if not piece:
                raise BodyError("the Zstandard frame breaks off")
            try:
                plain = stream.decompress(piece)
            except zstandard.ZstdError as failure:
                raise BodyError(f"the body is no Zstandard frame: {failure}") from None
            at += len(piece) - len(stream.unused_data)
            size += len(plain)
            if size > limit:
                raise _too_large(limit)
            parts.append(plain)
    return b"".join(parts)
