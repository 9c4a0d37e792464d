"""Splitter of a byte stream into frames (docs/protocol/wire.md 1)."""

from __future__ import annotations

import struct
from typing import Final

from mqproto.errors import RemoteProtocolError

#: The largest frame that a peer accepts, length word included (docs/protocol/wire.md 1).
MAX_FRAME: Final = 16_777_216
#: The largest value of the length word.
MAX_TOTAL: Final = MAX_FRAME - 4
#: The smallest: a header word, no header, no body.
MIN_TOTAL: Final = 4

_WORD: Final = struct.Struct(">i")


class FrameSplitter:
    """Splitter of a byte stream into frames.

    The events do not depend on how the stream was split. A length word that no frame can have is refused as soon as its
    four bytes are there, without waiting for what it claims. Frames that came before it are given out first: then
    `fault` holds the error, and the next `feed` raises it. So the owner of a link asks `fault` once it has handled what
    `feed` gave.
    """

    __slots__ = ("_need", "_rest", "fault")

    def __init__(self) -> None:
        self._rest = bytearray()
        #: How many bytes `_rest` must hold before there is something to do.
        self._need = 4
        self.fault: RemoteProtocolError | None = None

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame that are kept."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, each without its length word.

        Raises `RemoteProtocolError` when the stream is broken and no frame is left to give out.
        """
        if self.fault is not None:
            raise self.fault
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._need:
                return []
            data = bytes(rest)
            rest.clear()
        frames: list[bytes] = []
        at = 0
        size = len(data)
        while size - at >= 4:
            total: int = _WORD.unpack_from(data, at)[0]
            if total < MIN_TOTAL or total > MAX_TOTAL:
                return self._refuse(total, data[at : at + 16], frames)
            end = at + 4 + total
            if end > size:
                self._need = 4 + total
                rest += data[at:]
                return frames
            frames.append(data[at + 4 : end])
            at = end
        self._need = 4
        if at < size:
            rest += data[at:]
        return frames

    def _refuse(self, total: int, head: bytes, frames: list[bytes]) -> list[bytes]:
        self.fault = RemoteProtocolError(
            f"not a remoting frame: length {total} is out of range, the bytes are {head!r}"
        )
        if frames:
            return frames
        raise self.fault
