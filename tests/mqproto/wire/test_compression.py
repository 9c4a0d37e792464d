"""Compressed bodies: what Java makes is inflated, what is broken or too large is refused."""

from __future__ import annotations

import sys
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import CompressionMissing
from mqproto.wire.compression import BodyError, Compression, check_available, deflate, inflate, plain_flag, zlib_inflate
from tests.golden.golden import GOLDEN, Vector

KINDS = [(Compression.ZLIB, 0x301), (Compression.LZ4, 0x101), (Compression.ZSTD, 0x201)]
kinds = pytest.mark.parametrize(("kind", "flag"), KINDS, ids=["zlib", "lz4", "zstd"])


def packed_by_java() -> list[tuple[bytes, int, bytes]]:
    return [
        (bytes.fromhex(made["compressed"]), made["compressionFlag"] | 1, bytes.fromhex(vector.input["body"]))
        for vector in GOLDEN.vectors("compressor")
        if "compressed" in (made := vector.output())
    ]


def test_bodies_that_java_packed_are_inflated() -> None:
    """All three kinds; the flags are ours too."""
    samples = packed_by_java()
    assert sorted(flag for _, flag, _ in samples) == [0x101, 0x201, 0x301]
    for packed, flag, plain in samples:
        assert inflate(packed, flag) == plain
        kind = Compression(flag >> 8)
        ours, bits = deflate(plain, kind)
        assert bits == flag
        assert inflate(ours, bits) == plain


def test_zlib_is_javas() -> None:
    for vector in GOLDEN.vectors("zlib-compress"):
        plain = bytes.fromhex(vector.input["body"])
        assert zlib_inflate(bytes.fromhex(vector.output())) == plain
        packed, _ = deflate(plain, level=vector.input["level"])
        assert zlib_inflate(packed) == plain
    assert all(vector.output() for vector in GOLDEN.vectors("zlib-round-trip"))


@pytest.mark.parametrize("vector", GOLDEN.vectors("zlib-uncompress"), ids=lambda vector: vector.input or "empty")
def test_broken_zlib_is_refused_where_java_refuses_it(vector: Vector) -> None:
    data = bytes.fromhex(vector.input)
    if vector.fails():
        with pytest.raises(BodyError):
            zlib_inflate(data)
    else:
        assert zlib_inflate(data) == bytes.fromhex(vector.output())


def test_flags_that_old_and_new_releases_write_for_zlib() -> None:
    packed = zlib.compress(b"body" * 9)
    assert inflate(packed, 0x001) == inflate(packed, 0x301) == b"body" * 9
    assert inflate(packed, 0x300) == packed, "the type bits alone say nothing"
    for kind in (4, 5, 6, 7):
        with pytest.raises(BodyError, match="unknown kind"):
            inflate(packed, kind << 8 | 1)
    assert plain_flag(0x301 | 0x30 | 0x4) == 0x34


@kinds
def test_a_bomb_is_refused_at_the_limit(kind: Compression, flag: int) -> None:
    packed, bits = deflate(bytes(4 << 20), kind)
    assert bits == flag
    assert len(packed) < 40_000
    assert inflate(packed, flag, 4 << 20) == bytes(4 << 20)
    with pytest.raises(BodyError, match="more than"):
        inflate(packed, flag, (4 << 20) - 1)


@kinds
def test_every_cut_is_noticed(kind: Compression, flag: int) -> None:
    packed, _ = deflate(b"some text, some more text, some text" * 5, kind)
    for length in range(1, len(packed)):
        with pytest.raises(BodyError):
            inflate(packed[:length], flag)


@pytest.mark.parametrize(("kind", "flag"), KINDS[1:], ids=["lz4", "zstd"])
def test_frames_follow_each_other_and_rubbish_does_not(kind: Compression, flag: int) -> None:
    packed, _ = deflate(b"one", kind)
    more, _ = deflate(b"two" * 9, kind)
    assert inflate(packed + more, flag) == b"one" + b"two" * 9
    with pytest.raises(BodyError):
        inflate(packed + b"rubbish behind it", flag)


@given(st.binary(max_size=64), st.integers(0, 0x7FF))
def test_inflating_raises_nothing_but_its_error(data: bytes, flag: int) -> None:
    with suppress(BodyError):
        inflate(data, flag, 1 << 16)


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.data())
def test_a_damaged_body_raises_nothing_but_its_error(
    plain: bytes, kind: tuple[Compression, int], data: st.DataObject
) -> None:
    packed, flag = deflate(plain, kind[0])
    assert inflate(packed, flag) == plain
    at = data.draw(st.integers(0, len(packed) - 1))
    with suppress(BodyError):
        inflate(packed[:at] + bytes((packed[at] ^ data.draw(st.integers(1, 255)),)) + packed[at + 1 :], flag, 1 << 16)


@pytest.mark.parametrize(("kind", "flag"), KINDS[1:], ids=["lz4", "zstd"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, kind: Compression, flag: int) -> None:
    for module in ("lz4", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CompressionMissing, match=r"install mqproto\[compression\]"):
        deflate(b"x", kind)
    with pytest.raises(CompressionMissing, match=r"install mqproto\[compression\]"):
        check_available(kind)
    with pytest.raises(CompressionMissing, match=r"install mqproto\[compression\]"):
        inflate(b"x", flag)
