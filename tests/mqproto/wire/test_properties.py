"""The property string against Apache's own functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire import properties
from tests.golden.golden import GOLDEN, VERSIONS, Vector


def test_writing_agrees_with_java_but_for_order() -> None:
    """4.4 and 5.3 end the string with the mark, as we do; 4.9.1 to 5.1 do not (MSG-01)."""
    for vector in GOLDEN.vectors("properties-encode"):
        given = {name: value for name, value in vector.input.items() if value is not None}
        written = properties.encode(given)
        for version in VERSIONS if None not in vector.input.values() else VERSIONS[1:]:
            expected = vector.output(version)
            if expected and not expected.endswith("\x02"):
                expected += "\x02"
            assert sorted(written.split("\x02")) == sorted(expected.split("\x02"))


@pytest.mark.parametrize("vector", GOLDEN.vectors("properties-decode"), ids=lambda vector: repr(vector.input))
def test_reading_agrees_with_java(vector: Vector) -> None:
    assert properties.decode(vector.input or "") == vector.output()


def test_both_forms_of_the_end_are_read_alike_and_joined_with_one_mark() -> None:
    """Never a value such as `AF\\x010` (MSG-01)."""
    for text in ("TAGS\x01A\x02", "TAGS\x01A"):
        assert properties.decode(text) == {"TAGS": "A"}
        assert properties.append(text, "F", "0") == "TAGS\x01A\x02F\x010\x02"
        assert properties.join(text, "WAIT\x01true") == "TAGS\x01A\x02WAIT\x01true"
        assert properties.join("", text) == properties.join(text, "") == text
    assert properties.append("", "F", "0") == "F\x010\x02"


legal = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(legal, legal))
def test_round_trip(given: dict[str, str]) -> None:
    assert properties.decode(properties.encode(given)) == given
    assert properties.decode_bytes(properties.encode_bytes(given)) == given


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    for name, value in properties.decode_bytes(data).items():
        assert name
        assert value


def test_a_lone_surrogate_is_written_as_java_writes_it() -> None:
    assert properties.encode_bytes({"a": "\ud800x"}) == b"a\x01?x\x02"
