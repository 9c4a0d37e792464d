"""Identities of messages: hashes, checksums, offset ids and the ids that producers make (docs/protocol/wire.md 12).

Owns: Java's string hash as the consume queue and the index use it, the CRC of bodies, both kinds of message id.
Leaves to others: clocks, process ids and addresses. The maker of a `UniqueIds` brings them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from struct import Struct, unpack
from typing import Final
from zlib import crc32 as _zlib_crc32

from mqproto.wire.hosts import decode_host, decode_ip

OFFSET_ID_V4: Final = 32
OFFSET_ID_V6: Final = 56

# --- hashes ---

_SHORT: Final = 8
_CHUNK: Final = 32


def _lanes(bits: int) -> int:
    """A mask over one chunk that keeps every second lane of `bits` bits, from the lowest on."""
    return sum(((1 << bits) - 1) << low for low in range(0, 8 * _CHUNK, 2 * bits))


_M8: Final = _lanes(8)
_M16: Final = _lanes(16)
_M32: Final = _lanes(32)
_M64: Final = _lanes(64)
_M128: Final = _lanes(128)
_P4: Final = 31**4
_P8: Final = 31**8
_P16: Final = 31**16
#: 31**n modulo 2**32, by the length n of a chunk.
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(_CHUNK + 1))


def _hash_chunk(data: bytes) -> int:
    """The hash, not yet reduced, of at most 32 bytes.

    The bytes are the lanes of one integer; each step joins neighbours (`high * 31**k + low`), so five steps hash a
    whole chunk. A loop takes about 40 ns for each byte, this about 600 ns for a unique id of 32. Lanes double their
    width with each step and therefore never overflow.
    """
    n = int.from_bytes(data, "big")
    n = ((n >> 8) & _M8) * 31 + (n & _M8)
    n = ((n >> 16) & _M16) * 961 + (n & _M16)
    n = ((n >> 32) & _M32) * _P4 + (n & _M32)
    n = ((n >> 64) & _M64) * _P8 + (n & _M64)
    return (n >> 128) * _P16 + (n & _M128)


def java_hash(text: str, start: int = 0) -> int:
    """Java's `String.hashCode` over UTF-16 code units, a signed 32-bit number.

    `start` is the hash of a text that comes before: `java_hash("b", java_hash("a")) == java_hash("ab")`.
    """
    if not text.isascii():
        data = text.encode("utf-16-le", "surrogatepass")
        h = start
        for unit in unpack(f"<{len(data) >> 1}H", data):
            h = h * 31 + unit
    elif len(text) <= _SHORT:
        h = start
        for unit in text.encode():
            h = h * 31 + unit
    else:
        encoded = text.encode()
        h = start
        for at in range(0, len(encoded), _CHUNK):
            chunk = encoded[at : at + _CHUNK]
            h = (h & 0xFFFFFFFF) * _POWERS[len(chunk)] + _hash_chunk(chunk)
    h &= 0xFFFFFFFF
    return h - 0x100000000 if h & 0x80000000 else h


def index_hash(text: str, start: int = 0) -> int:
    """The hash that an index entry holds for a key (`topic#key`): never negative, 0 for the smallest integer
    (docs/protocol/store.md 5).
    """
    h = java_hash(text, start)
    if h >= 0:
        return h
    return 0 if h == -0x80000000 else -h


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 of a stored body with the top bit cleared, as records hold it (docs/protocol/wire.md 7)."""
    return _zlib_crc32(body) & 0x7FFFFFFF


# --- ids of stored messages ---

_I64: Final = Struct(">q")


class IdError(ValueError):
    """A text is no message id of the wanted kind; `given` is that text."""

    def __init__(self, given: str, why: str) -> None:
        super().__init__(f"{given!r} is no message id: {why}")
        self.given = given
        self.why = why


def hex_to_bytes(text: str) -> bytes:
    """The bytes of hex digits in either case.

    Raises IdError for anything else (Java reads other letters as arbitrary bits).
    """
    try:
        if " " not in text and text.isascii():
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise IdError(text, "hex digits expected")


def offset_msg_id(store_host: bytes | memoryview, physical_offset: int) -> str:
    """The id that a broker gives: store host (8 or 20 bytes, see `hosts`) and physical offset in upper-case hex."""
    return (bytes(store_host) + _I64.pack(physical_offset)).hex().upper()


def parse_offset_msg_id(msg_id: str) -> tuple[str, int]:
    """The broker's `ip:port` and the physical offset of an offset id of 32 (IPv4) or 56 (IPv6) digits.

    Raises IdError.
    """
    if len(msg_id) not in (OFFSET_ID_V4, OFFSET_ID_V6):
        raise IdError(msg_id, f"an offset id has {OFFSET_ID_V4} or {OFFSET_ID_V6} digits")
    data = hex_to_bytes(msg_id)
    port = int.from_bytes(data[-12:-8], "big", signed=True)
    if not 0 <= port <= 65535:
        raise IdError(msg_id, f"it would name port {port}")
    return decode_host(data[:-8]), int.from_bytes(data[-8:], "big", signed=True)


# --- ids that producers make ---

_TIME: Final = Struct(">I")
_TWO_DIGITS: Final = tuple(f"{byte:02X}" for byte in range(256))


class UniqueIds:
    """Maker of `UNIQ_KEY`s (docs/protocol/wire.md 12): address, process id, a constant of the process, time within the
    month, a counter.

    `ip` are the 4 or 16 bytes of the client's address; `process_id` counts by its low 16 bits; two makers of one
    process differ in `salt`, any i32 (Java: the hash of the class loader); `utc_offset_ms` is local time minus UTC.
    """

    __slots__ = ("_counter", "_head", "_month_end", "_month_start", "_stamp", "_stamped", "_utc_offset")

    def __init__(self, ip: bytes, process_id: int, salt: int, utc_offset_ms: int = 0) -> None:
        if len(ip) not in (4, 16):
            raise ValueError(f"an address has 4 or 16 bytes, not {len(ip)}")
        self._head = (
            (ip + (process_id & 0xFFFF).to_bytes(2, "big") + (salt & 0xFFFFFFFF).to_bytes(4, "big")).hex().upper()
        )
        self._utc_offset = utc_offset_ms
        self._month_start = 0
        self._month_end = 0
        self._counter = 0
        #: What the ids of one millisecond have in common, and which one that is.
        self._stamped = 0
        self._stamp = self._stamp_of(0)

    def next(self, wall: int) -> str:
        """A new id at wall time `wall` (ms): 32 hex digits, or 56 with an IPv6 address.

        The counter wraps after 65,536.
        """
        if wall != self._stamped:
            self._stamp = self._stamp_of(wall)
            self._stamped = wall
        count = self._counter
        self._counter = (count + 1) & 0xFFFF
        return self._stamp + _TWO_DIGITS[count >> 8] + _TWO_DIGITS[count & 0xFF]

    def _stamp_of(self, wall: int) -> str:
        if not self._month_start <= wall < self._month_end:
            self._month_start, self._month_end = month_around(wall, self._utc_offset)
        return self._head + _TIME.pack(wall - self._month_start).hex().upper()


_EPOCH: Final = datetime(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)


def month_around(wall: int, utc_offset_ms: int) -> tuple[int, int]:
    """First millisecond of the local month that `wall` lies in, and of the next one, both as wall times."""
    local = _EPOCH + timedelta(milliseconds=wall + utc_offset_ms)
    first = datetime(local.year, local.month, 1)
    following = datetime(local.year + local.month // 12, local.month % 12 + 1, 1)
    return (first - _EPOCH) // _MILLISECOND - utc_offset_ms, (following - _EPOCH) // _MILLISECOND - utc_offset_ms


def unique_id_ip(unique_id: str) -> str:
    """The address inside a unique id. Raises IdError."""
    data = _unique_bytes(unique_id)
    return decode_ip(data[:4] if len(data) == 16 else data[:16])


def unique_id_process(unique_id: str) -> int:
    """The low 16 bits of the maker's process id. Raises IdError."""
    data = _unique_bytes(unique_id)
    return int.from_bytes(data[-12:-10], "big")


def unique_id_time(unique_id: str, wall: int, utc_offset_ms: int = 0) -> int:
    """When the id was made, as a wall time, seen from `wall`.

    An id holds only the time within its month: the current month is assumed, or the one before if that lay in the
    future. Raises IdError.
    """
    within = int.from_bytes(_unique_bytes(unique_id)[-6:-2], "big")
    start, _ = month_around(wall, utc_offset_ms)
    if start + within > wall:
        start, _ = month_around(start - 1, utc_offset_ms)
    return start + within


def _unique_bytes(unique_id: str) -> bytes:
    if len(unique_id) not in (OFFSET_ID_V4, OFFSET_ID_V6):
        raise IdError(unique_id, f"a unique id has {OFFSET_ID_V4} or {OFFSET_ID_V6} digits")
    return hex_to_bytes(unique_id)
