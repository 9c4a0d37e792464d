"""Facts that filters find in records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.engine.store import ReadFilter, properties_of
from mqproto.wire import properties
from mqproto.wire.record import decode_record
from tests.engine.store.harness import Rig, memory_rig

V6 = bytes(range(16)) + (10911).to_bytes(4, "big")
TEXT = properties.encode_bytes({"n": "1", "名": "值", "KEYS": "a b"})


def record(rig: Rig, born_host: bytes, body: bytes = b"body") -> bytes:
    queue = rig.store.queue("Topic", 0)
    place = rig.store.writer.append(queue, body, TEXT, 0, 0, 0, born_host, bytes(8), 0, 0, 0, None, None, 1)
    view = rig.store.reader.record(place)
    assert view is not None
    return bytes(view)


@pytest.mark.parametrize("born_host", [bytes(8), V6], ids=["v4", "v6"])
@pytest.mark.parametrize("body", [b"", b"body" * 500], ids=["empty", "long"])
def test_properties_are_those_of_the_whole_message(rig: Rig, born_host: bytes, body: bytes) -> None:
    data = record(rig, born_host, body)
    assert properties_of(memoryview(data)) == decode_record(data).properties == {"n": "1", "名": "值", "KEYS": "a b"}


@given(st.lists(st.tuples(st.integers(8, 10_000), st.integers(0, 255)), max_size=20), st.booleans())
def test_of_damaged_records_some_or_none(changes: list[tuple[int, int]], v6: bool) -> None:
    data = bytearray(record(memory_rig(), V6 if v6 else bytes(8)))
    for at, value in changes:
        data[8 + at % (len(data) - 8)] = value
    assert isinstance(properties_of(memoryview(data)), dict)


@pytest.mark.parametrize("size", [-1, -(1 << 31), (1 << 31) - 1, 200])
def test_of_a_length_that_leads_nowhere_none(rig: Rig, size: int) -> None:
    data = bytearray(record(rig, bytes(8)))
    data[84:88] = size.to_bytes(4, "big", signed=True)
    assert properties_of(memoryview(data)) == {}


def test_a_judge_takes_everything_unless_it_says_otherwise() -> None:
    read_filter = ReadFilter(1)
    assert read_filter.may_take(b"")
    assert read_filter.takes(memoryview(b""))
