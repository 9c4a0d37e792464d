"""The Bloom filter in which a broker notes which consumer groups' expressions a message passes (docs/protocol/broker.md
4.6).

A bitmap has `bits` bits; every group owns `hashes` of them for each topic. A message that passes the expression of a
group has all the bits of that group set, so one whose bits are not all set does not pass it. The other way round
nothing is certain: groups share bits.

Owns: size, positions and the order of bits, all as Apache's brokers have them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, log
from typing import Final

from mqproto.errors import ClientError

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


class BloomFilter:
    """The shape of all bitmaps of one broker.

    `error_rate` in per cent (1 to 99): how many messages that do not pass may look as if they did, with `expected`
    groups (1 or more) in one bitmap. Raises ClientError for others.
    """

    __slots__ = ("bits", "hashes")

    def __init__(self, error_rate: int, expected: int) -> None:
        if not 1 <= error_rate <= 99 or expected < 1:
            raise ClientError(f"no Bloom filter: error rate {error_rate} %, {expected} expected")
        doublings = log(error_rate / 100) / log(0.5)
        self.hashes = ceil(doublings)
        bits = ceil(expected * (log(1 / 2.718281828459045) / log(0.5)) * doublings)
        self.bits = -(-bits // 8) * 8

    @property
    def size(self) -> int:
        """Bytes of a bitmap."""
        return self.bits // 8

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of a consumer group for one topic. Some may be equal."""
        return self.positions_of(f"{group}#{topic}")

    def positions_of(self, text: str) -> tuple[int, ...]:
        """The bits of any text."""
        both = murmur3(text.encode("utf-8", "replace"))
        low, high = both & 0xFFFFFFFF, both >> 32
        found = []
        for turn in range(1, self.hashes + 1):
            word = (low + turn * high) & 0xFFFFFFFF
            if word >= 1 << 31:
                word = ~word & 0xFFFFFFFF  # Java turns the bits of a negative number round
            found.append(word % self.bits)
        return tuple(found)

    def mask(self, positions: Iterable[int]) -> int:
        """Positions as a number, for `bitmap` and `passes`."""
        number = 0
        for position in positions:
            number |= 1 << position
        return number

    def bitmap(self, masks: Iterable[int]) -> bytes:
        """The bitmap in which the bits of these masks are set: bit n is bit n % 8 of byte n // 8."""
        number = 0
        for mask in masks:
            number |= mask
        return number.to_bytes(self.size, "little")


def passes(bitmap: bytes, mask: int) -> bool:
    """Whether all bits of a mask are set in a bitmap."""
    return int.from_bytes(bitmap, "little") & mask == mask


def murmur3(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 (x64, 128 bits, seed 0)."""
    one = two = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        one ^= _mix(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        one = ((_turn(one, 27) + two) * 5 + 0x52DCE729) & _MASK
        two ^= _mix(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        two = ((_turn(two, 31) + one) * 5 + 0x38495AB5) & _MASK
    one ^= _mix(int.from_bytes(data[whole : whole + 8], "little"), _C1, 31, _C2)
    two ^= _mix(int.from_bytes(data[whole + 8 :], "little"), _C2, 33, _C1)
    one ^= len(data)
    two ^= len(data)
    one = (one + two) & _MASK
    two = (two + one) & _MASK
    return (_finish(one) + _finish(two)) & _MASK


def _turn(word: int, count: int) -> int:
    return (word << count | word >> (64 - count)) & _MASK


def _mix(word: int, before: int, count: int, after: int) -> int:
    return _turn(word * before & _MASK, count) * after & _MASK


def _finish(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
