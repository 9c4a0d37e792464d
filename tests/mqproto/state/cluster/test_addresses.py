"""Addresses of name servers: lists, what a cloud's console puts before them, what is none."""

from __future__ import annotations

import pytest

from mqproto.errors import InvalidSetting
from mqproto.state.cluster.addresses import bare_address, check_address, endpoint_namespace, parse_addresses


def test_lists() -> None:
    assert parse_addresses(" a:1; b:2 ;;c:3;") == ("a:1", "b:2", "c:3")
    assert parse_addresses("") == ()
    assert parse_addresses("http://a:1;b:2") == ("a:1", "b:2")


def test_an_address_from_a_console() -> None:
    assert bare_address("http://MQ_INST_1_x.mq.example:80") == "MQ_INST_1_x.mq.example:80"
    assert bare_address("a:1") == "a:1"
    assert endpoint_namespace("http://MQ_INST_1_x.mq.example:80") == "MQ_INST_1_x"
    assert endpoint_namespace("MQ_INST_1_x.mq.example:80") == "MQ_INST_1_x"
    assert endpoint_namespace("mq.example:80") == ""


@pytest.mark.parametrize("address", ["a:1", "::1:9876", "[::1]:9876", "a:65535"])
def test_addresses(address: str) -> None:
    check_address("name_servers", address)


@pytest.mark.parametrize("address", ["", "a", ":1", "a:", "a:0", "a:65536", "a:x", "a,b:1"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(InvalidSetting):
        check_address("name_servers", address)
