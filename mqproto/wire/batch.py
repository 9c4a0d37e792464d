"""Bodies of SEND_BATCH_MESSAGE: several messages of one topic that travel and are stored together
(docs/protocol/wire.md 11).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from mqproto.errors import LocalProtocolError, RemoteProtocolError
from mqproto.wire import properties

#: Size of the entry, magic number and CRC (both 0 and unread), flag, size of the body.
_HEAD: Final = Struct(">iiiii")
_PROPERTIES_SIZE: Final = Struct(">H")
#: What an entry takes besides body and properties.
ENTRY_OVERHEAD: Final = _HEAD.size + _PROPERTIES_SIZE.size


class BatchError(RemoteProtocolError):
    """The body of a batch cannot be read; `position` is where the broken entry begins, `count` how many came before
    it.
    """

    def __init__(self, position: int, count: int, why: str) -> None:
        super().__init__(f"entry {count} of the batch, at byte {position}: {why}")
        self.position = position
        self.count = count
        self.why = why


@dataclass(slots=True)
class BatchEntry:
    """One message of a batch: its own flag, body and encoded properties. Everything else is the batch's."""

    body: bytes
    properties: bytes
    flag: int = 0


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    """The body that holds the entries. Raises LocalProtocolError for properties of more than 32,767 bytes."""
    parts: list[bytes] = []
    for entry in entries:
        encoded = entry.properties
        if len(encoded) > properties.ENCODED_MAX:
            raise LocalProtocolError(f"properties of {len(encoded)} bytes do not fit an entry of a batch")
        size = ENTRY_OVERHEAD + len(entry.body) + len(encoded)
        parts += (
            _HEAD.pack(size, 0, 0, entry.flag, len(entry.body)),
            entry.body,
            _PROPERTIES_SIZE.pack(len(encoded)),
            encoded,
        )
    return b"".join(parts)


def decode_batch(body: bytes | memoryview) -> list[BatchEntry]:
    """The entries of a batch, all of them or BatchError."""
    data = bytes(body)
    entries: list[BatchEntry] = []
    at = 0
    while at < len(data):
        start = at + _HEAD.size
        if start > len(data):
            raise BatchError(at, len(entries), "it breaks off")
        size, _, _, flag, body_size = _HEAD.unpack_from(data, at)
        body_end = start + body_size
        properties_start = body_end + _PROPERTIES_SIZE.size
        if body_size < 0 or properties_start > len(data):
            raise BatchError(at, len(entries), f"its body of {body_size} bytes does not fit")
        properties_size: int = _PROPERTIES_SIZE.unpack_from(data, body_end)[0]
        end = properties_start + properties_size
        if properties_size > properties.ENCODED_MAX or end > len(data):
            raise BatchError(at, len(entries), f"its properties of {properties_size} bytes do not fit")
        if end - at != size:
            raise BatchError(at, len(entries), f"it has {end - at} bytes and says {size}")
        entries.append(BatchEntry(data[start:body_end], data[properties_start:end], flag))
        at = end
    return entries
