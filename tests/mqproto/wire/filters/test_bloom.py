"""The Bloom filter of consumer groups against Apache's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import ClientError
from mqproto.wire.filters.bloom import BloomFilter, passes
from tests.golden.golden import GOLDEN, Vector


def shape(vector: Vector) -> BloomFilter:
    return BloomFilter(vector.input["errorRate"], vector.input["expected"])


@pytest.mark.parametrize("vector", GOLDEN.vectors("bloom-shape"), ids=lambda vector: str(vector.input))
def test_shape(vector: Vector) -> None:
    bloom = shape(vector)
    assert {"bits": bloom.bits, "hashes": bloom.hashes} == vector.outputs["4.9.7"]
    assert bloom.size * 8 == bloom.bits


@pytest.mark.parametrize("vector", GOLDEN.vectors("bloom-positions"), ids=lambda vector: str(vector.input))
def test_positions(vector: Vector) -> None:
    assert list(shape(vector).positions_of(vector.input["text"])) == vector.outputs["4.9.7"]


@pytest.mark.parametrize("vector", GOLDEN.vectors("bloom-bits"), ids=lambda vector: str(vector.input))
def test_bits(vector: Vector) -> None:
    bloom = shape(vector)
    masks = [bloom.mask(bloom.positions_of(text)) for text in vector.input["text"].split(" then ")]
    assert bloom.bitmap(masks).hex() == vector.outputs["4.9.7"]


def test_positions_of_a_group_for_a_topic() -> None:
    bloom = BloomFilter(20, 32)
    assert bloom.positions("group", "topic") == bloom.positions_of("group#topic")


@pytest.mark.parametrize(("rate", "expected"), [(0, 32), (100, 32), (20, 0), (-1, 32)])
def test_no_shape(rate: int, expected: int) -> None:
    with pytest.raises(ClientError):
        BloomFilter(rate, expected)


@given(st.sets(st.text(max_size=40), max_size=20), st.integers(1, 99), st.integers(1, 300))
def test_whoever_is_in_passes(texts: set[str], rate: int, expected: int) -> None:
    bloom = BloomFilter(rate, expected)
    masks = [bloom.mask(bloom.positions_of(text)) for text in texts]
    bitmap = bloom.bitmap(masks)
    assert len(bitmap) == bloom.size
    assert all(passes(bitmap, mask) for mask in masks)
    assert not texts or not passes(bytes(bloom.size), masks[0])
