"""The stored form of properties, by scanning bytes and by the dict: both say the same of a message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.sends.message_writer import PropertyScanner, delay_level
from mqproto.wire import properties as names
from mqproto.wire.ids import java_hash
from tests.engine.broker.sends.test_fast_send import NAME, PROPERTIES, TEXT

SCANNER = PropertyScanner("Cluster")


def check(text: str) -> None:
    """What the scan says is what the properties say."""
    scanned = SCANNER.scan(text.encode())
    given_properties = names.decode(text)
    if scanned is None:
        odd = any(name in given_properties for name in ("CLUSTER", "DELAY", "TRAN_MSG"))
        assert odd or "WAIT\x01" in text
        return
    stored, waits, code, unique, keys = scanned
    tags = given_properties.get("TAGS")
    assert code == (0 if tags is None else java_hash(tags))
    assert unique == given_properties.get("UNIQ_KEY")
    assert keys == given_properties.get("KEYS")
    assert waits == (given_properties.get("WAIT", "true").lower() == "true")
    assert stored.endswith(b"\x02")
    expected = given_properties | {"CLUSTER": "Cluster"}
    found = names.decode_bytes(stored)
    if text.count("WAIT\x01") < 2:
        expected.pop("WAIT", None)
    else:  # a second one stays, which nothing reads
        found.pop("WAIT", None)
        expected.pop("WAIT", None)
    assert found == expected


@pytest.mark.parametrize("text", PROPERTIES)
def test_scanning(text: str) -> None:
    check(text)


@settings(max_examples=500)
@given(
    st.lists(st.tuples(NAME, st.one_of(st.sampled_from(["true", "false", ""]), TEXT)), max_size=5),
    st.sampled_from(["", "\x02"]),
)
def test_scanning_anything(entries: list[tuple[str, str]], end: str) -> None:
    check("\x02".join(f"{name}\x01{value}" for name, value in entries) + (end if entries else ""))


def test_codes_are_remembered_within_bounds() -> None:
    scanner = PropertyScanner("Cluster")
    for n in range(10_000):
        assert scanner.code(b"tag%d" % n) == java_hash(f"tag{n}")
    assert scanner.code(b"x" * 1000) == java_hash("x" * 1000)
    assert len(scanner._codes) <= 4096


@pytest.mark.parametrize(
    ("text", "level"), [("1", 1), ("+2", 2), ("-1", -1), ("0", 0), ("007", 7), ("2147483647", 2147483647)]
)
def test_delay_levels_of_messages(text: str, level: int) -> None:
    assert delay_level({"DELAY": text}) == level


@pytest.mark.parametrize("text", ["x", "1.0", "2147483648", "1_0", " 1", "١"])
def test_what_is_no_level(text: str) -> None:
    with pytest.raises(Refused):
        delay_level({"DELAY": text})
