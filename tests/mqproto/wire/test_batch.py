"""Bodies of batches against Apache's own functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import LocalProtocolError
from mqproto.wire import properties
from mqproto.wire.batch import BatchEntry, BatchError, decode_batch, encode_batch
from tests.golden.golden import GOLDEN, VERSIONS


def test_batches_agree_with_java() -> None:
    """4.4 and 5.3 write what we write; 4.9 leaves the last mark of the properties out, which we read (MSG-01)."""
    (vector,) = GOLDEN.vectors("batch-encode")
    entries = [
        BatchEntry(bytes.fromhex(one["body"]), properties.encode_bytes(one["properties"]), one["flag"])
        for one in vector.input
    ]
    assert [properties.decode_bytes(entry.properties) for entry in decode_batch(encode_batch(entries))] == [
        one["properties"] for one in vector.input
    ]
    sizes = {version: len(vector.output(version)) // 2 for version in vector.outputs}
    assert sizes["4.4.0"] == sizes["5.3.3"] == len(encode_batch(entries)) == sizes["4.9.7"] + len(entries)


def test_batches_of_java_are_read_and_written_again() -> None:
    for vector in GOLDEN.vectors("batch-decode"):
        data = bytes.fromhex(vector.input)
        for expected in vector.outputs.values():
            entries = decode_batch(data)
            assert [
                {"flag": entry.flag, "body": entry.body.hex(), "properties": properties.decode_bytes(entry.properties)}
                for entry in entries
            ] == expected
            assert encode_batch(entries) == data


def test_properties_that_do_not_fit_are_refused() -> None:
    """MSG-03."""
    assert decode_batch(encode_batch([BatchEntry(b"x", bytes(32767))]))[0].properties == bytes(32767)
    with pytest.raises(LocalProtocolError, match="32768 bytes"):
        encode_batch([BatchEntry(b"x", bytes(32768))])


entries = st.lists(
    st.builds(BatchEntry, st.binary(max_size=30), st.binary(max_size=30), st.integers(-(1 << 31), (1 << 31) - 1)),
    max_size=5,
)


@given(entries, st.integers(0, 400))
def test_round_trip_and_cuts(entries: list[BatchEntry], cut: int) -> None:
    data = encode_batch(entries)
    assert decode_batch(memoryview(data)) == entries
    whole = [encode_batch(entries[:count]) for count in range(len(entries) + 1)]
    part = data[:cut]
    if part in whole:
        assert decode_batch(part) == entries[: whole.index(part)]
    else:
        with pytest.raises(BatchError) as caught:
            decode_batch(part)
        assert whole[caught.value.count] == part[: caught.value.position]


@given(st.binary(max_size=80))
def test_reading_raises_nothing_but_its_error(data: bytes) -> None:
    try:
        decoded = decode_batch(data)
    except BatchError as failure:
        assert failure.position < len(data)  # noqa: PT017
    else:
        assert len(decoded) <= len(data) // 22


def test_an_entry_that_contradicts_its_size_is_refused() -> None:
    data = bytearray(encode_batch([BatchEntry(b"body", b"a\x01b\x02")]))
    data[3] += 1
    with pytest.raises(BatchError, match="30 bytes and says 31"):
        decode_batch(bytes(data))
    with pytest.raises(BatchError, match="body of -1 bytes"):
        decode_batch(bytes(16) + b"\xff\xff\xff\xff" + bytes(8))
    with pytest.raises(BatchError, match="properties of 65535 bytes"):
        decode_batch(bytes(20) + b"\xff\xff" + bytes(65535))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_batch_that_apaches_producer_sent(version: str) -> None:
    """Three messages, each with an id of its own (MSG-08); written again they are the same bytes."""
    (request,) = [entry for entry in GOLDEN.capture(version, "produce-batch") if entry.is_request and entry.code == 320]
    entries = decode_batch(request.body)
    assert [entry.body for entry in entries] == [b"message-0", b"message-1", b"message-2"]
    assert len({properties.decode_bytes(entry.properties)["UNIQ_KEY"] for entry in entries}) == 3
    assert encode_batch(entries) == request.body
