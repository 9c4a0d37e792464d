"""Addresses in text and in bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire.hosts import (
    HostError,
    decode_host,
    decode_ip,
    encode_host,
    encode_ip,
    join_address,
    split_address,
    vip_address,
)
from tests.golden.golden import GOLDEN


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("10.0.0.1:10911", "10.0.0.1", 10911),
        ("broker.local:0", "broker.local", 0),
        ("[::1]:9876", "::1", 9876),
        ("::1:10911", "::1", 10911),
        ("[fe80::1%lo]:10911", "fe80::1%lo", 10911),
    ],
)
def test_the_last_colon_splits(address: str, host: str, port: int) -> None:
    """Brokers register bare IPv6 addresses too (MSG-06)."""
    assert split_address(address) == (host, port)
    assert split_address(join_address(host, port)) == (host, port)


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "[]:1", "host:", "host:-1", "host:65536", "host:1 ", "host:٣", "host:1_0"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(HostError):
        split_address(address)


def test_bytes_of_hosts() -> None:
    assert encode_host("192.168.0.9:10911") == bytes.fromhex("c0a8000900002a9f")
    assert encode_host("[2001:db8::9]:10911") == bytes.fromhex("20010db8000000000000000000000009" + "00002a9f")
    assert encode_host("::1:1") == bytes(15) + b"\x01\0\0\0\x01"
    assert encode_host("[fe80::1%lo]:1") == bytes.fromhex("fe80000000000000000000000000000100000001")
    for text in ("host:1", "1.2.3:1", "256.0.0.1:1", "::g:1"):
        with pytest.raises(HostError):
            encode_host(text)


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 65535))
def test_hosts_round_trip(ip: bytes, port: int) -> None:
    data = ip + port.to_bytes(4, "big")
    assert encode_host(decode_host(data)) == data
    assert encode_host(decode_host(memoryview(data))) == data
    assert encode_ip(decode_ip(ip)) == ip


@given(st.binary(max_size=24))
def test_reading_a_host_raises_nothing_but_its_error(data: bytes) -> None:
    for read, lengths in ((decode_host, (8, 20)), (decode_ip, (4, 16))):
        if len(data) in lengths:
            read(data)
        else:
            with pytest.raises(HostError):
                read(data)


def test_fast_listener_is_two_ports_below() -> None:
    for vector in GOLDEN.vectors("vip-address"):
        assert vip_address(vector.input) == vector.output()
    for address in ("host", "host:x", "host:1"):
        with pytest.raises(HostError):
            vip_address(address)
