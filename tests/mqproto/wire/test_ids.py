"""Hashes, checksums and message ids against Apache's own functions, and what hypothesis finds."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire.hosts import encode_host, encode_ip
from mqproto.wire.ids import (
    IdError,
    UniqueIds,
    body_crc,
    hex_to_bytes,
    index_hash,
    java_hash,
    month_around,
    offset_msg_id,
    parse_offset_msg_id,
    unique_id_ip,
    unique_id_process,
    unique_id_time,
)
from tests.golden.golden import GOLDEN, Vector


def slow_hash(text: str) -> int:
    """The definition, one UTF-16 code unit after the other."""
    data = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(data), 2):
        h = (31 * h + int.from_bytes(data[at : at + 2], "big")) % (1 << 32)
    return h - (1 << 32) if h >= 1 << 31 else h


@pytest.mark.parametrize("kind", ["string-hash", "tags-code"])
def test_hash_is_javas(kind: str) -> None:
    for vector in GOLDEN.vectors(kind):
        assert java_hash(vector.input) == vector.output()


def test_index_hash_and_slot_are_javas() -> None:
    for vector in GOLDEN.vectors("index-hash"):
        assert index_hash(vector.input) == vector.output()
    for vector in GOLDEN.vectors("index-slot"):
        assert index_hash(vector.input["text"]) % vector.input["slots"] == vector.output()


@given(st.text() | st.text(st.characters(codec="ascii"), min_size=1, max_size=200))
def test_hash_follows_its_definition(text: str) -> None:
    assert java_hash(text) == slow_hash(text)


@given(st.text(), st.text(st.characters(codec="ascii"), max_size=100))
def test_hash_goes_on_from_a_prefix(head: str, tail: str) -> None:
    assert java_hash(tail, java_hash(head)) == java_hash(head + tail)
    assert index_hash(tail, java_hash(head)) == index_hash(head + tail)


def test_index_hash_of_the_smallest_integer_is_0() -> None:
    """The text hashes to -2^31, whose absolute value does not exist."""
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert index_hash("polygenelubricants") == 0


def test_crc_is_javas() -> None:
    """The top bit is cleared (MSG-12)."""
    for vector in GOLDEN.vectors("crc32"):
        assert body_crc(bytes.fromhex(vector.input)) == vector.output()
    assert body_crc(b"123456789") == 0x4BF43926
    assert body_crc(b"\x00abc") == 1797343180
    assert body_crc(b"") == 0


def test_offset_ids_are_made_as_java_makes_them() -> None:
    for vector in GOLDEN.vectors("message-id-create"):
        given = vector.input
        host = encode_ip(given["host"]) + given["port"].to_bytes(4, "big")
        assert offset_msg_id(host, given["offset"]) == vector.output()


@pytest.mark.parametrize("vector", GOLDEN.vectors("message-id-decode"), ids=lambda vector: str(vector.input) or "empty")
def test_offset_ids_are_read_as_java_reads_them(vector: Vector) -> None:
    if vector.fails():
        with pytest.raises(IdError):
            parse_offset_msg_id(vector.input)
        return
    expected = vector.output()
    host, offset = parse_offset_msg_id(vector.input)
    assert encode_host(host) == encode_ip(expected["host"]) + expected["port"].to_bytes(4, "big")
    assert offset == expected["offset"]


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 65535),
    st.integers(0, (1 << 63) - 1),
)
def test_offset_id_round_trip(ip: bytes, port: int, offset: int) -> None:
    """56 digits on an IPv6 broker included (MSG-06)."""
    host = ip + port.to_bytes(4, "big")
    msg_id = offset_msg_id(host, offset)
    address, back = parse_offset_msg_id(msg_id)
    assert (encode_host(address), back) == (host, offset)
    assert parse_offset_msg_id(msg_id.lower()) == (address, back)


@given(st.text() | st.text("0123456789abcdefABCDEF ", max_size=60))
def test_reading_an_id_raises_nothing_but_its_error(text: str) -> None:
    for read in (
        parse_offset_msg_id,
        unique_id_ip,
        unique_id_process,
        hex_to_bytes,
        lambda text: unique_id_time(text, 1_700_000_000_000),
    ):
        with suppress(IdError):
            read(text)


def test_hex_is_read_as_java_reads_it() -> None:
    """Where Java makes bytes of what is no hex (`0`, `zz`), we refuse."""
    assert {vector.input: vector.output() for vector in GOLDEN.vectors("hex-to-bytes")} == {
        "0A0b": "0a0b",
        "": None,
        None: None,
        "0": "",
        "zz": "ff",
    }
    assert hex_to_bytes("0A0b") == b"\x0a\x0b"
    assert hex_to_bytes("") == b""
    for text in ("0", "zz", "0A 0b", "٠٠"):
        with pytest.raises(IdError):
            hex_to_bytes(text)


def test_parts_of_a_unique_id_are_read_as_java_reads_them() -> None:
    for vector in GOLDEN.vectors("unique-id-ip"):
        assert encode_ip(unique_id_ip(vector.input)) == encode_ip(vector.output())
    for vector in GOLDEN.vectors("unique-id-process"):
        assert unique_id_process(vector.input) == vector.output()


#: 00:00 UTC on the 14th of November 2023 is 13 days into its month.
NOVEMBER_14 = 1_699_920_000_000
DAY = 86_400_000


def test_unique_id_layout() -> None:
    """The id of docs/protocol/wire.md 19, vector 8: 192.0.2.2, process 0x429f, salt 0x5ffd2b27, known time."""
    ids = UniqueIds(encode_ip("192.0.2.2"), 0x7_429F, 0x5FFD2B27)
    start, _ = month_around(NOVEMBER_14, 0)
    assert ids.next(start + 0x942A9340) == "C0000202429F5FFD2B27942A93400000"
    assert ids.next(start + 0x942A9341) == "C0000202429F5FFD2B27942A93410001"


def test_unique_ids_of_an_ipv6_client_have_56_digits() -> None:
    made = UniqueIds(encode_ip("2001:db8::3"), 0x135C, -1).next(NOVEMBER_14)
    assert made == "20010DB8000000000000000000000003135CFFFFFFFF" + f"{13 * DAY:08X}" + "0000"
    assert unique_id_ip(made) == "2001:db8::3"


def test_unique_ids_differ_while_the_counter_wraps() -> None:
    ids = UniqueIds(bytes(4), 1, 2)
    assert len({ids.next(NOVEMBER_14 + count // 60_000) for count in range(120_000)}) == 120_000


def test_unique_id_refuses_an_address_of_another_length() -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes"):
        UniqueIds(b"abc", 1, 2)


@pytest.mark.parametrize("hours", [0, 8, -11])
def test_time_of_a_unique_id(hours: int) -> None:
    """The month is not in the id: the one around the reader's clock is taken, or the one before for what would lie in
    the future.
    """
    offset = hours * 3_600_000
    ids = UniqueIds(bytes(4), 1, 2, offset)
    assert unique_id_time(ids.next(NOVEMBER_14), NOVEMBER_14 + 5, offset) == NOVEMBER_14
    assert unique_id_time(ids.next(NOVEMBER_14), NOVEMBER_14 + 20 * DAY, offset) == NOVEMBER_14
    assert ids.next(NOVEMBER_14 + 18 * DAY)[20:28] < ids.next(NOVEMBER_14)[20:28], (
        "the month begins anew, also backwards"
    )


@given(st.datetimes(datetime(1970, 2, 1), datetime(3000, 1, 1)), st.integers(-12, 14))
def test_month_is_the_local_one(moment: datetime, hours: int) -> None:
    local = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (first + timedelta(days=32)).replace(day=1)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    wall = (local - epoch) // timedelta(milliseconds=1)
    start, end = month_around(wall, hours * 3_600_000)
    assert start == (first - epoch) // timedelta(milliseconds=1)
    assert end == (following - epoch) // timedelta(milliseconds=1)
    assert start <= wall < end
