"""Java's properties text against Java's own reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire.properties_text import (
    PropertiesError,
    edit_properties,
    format_properties,
    parse_properties,
    read_plain,
)
from tests.golden.golden import GOLDEN, Vector


@pytest.mark.parametrize("vector", GOLDEN.vectors("properties-text"), ids=lambda vector: repr(vector.input))
def test_texts_are_read_as_java_reads_them(vector: Vector) -> None:
    assert parse_properties(vector.input.encode()) == vector.output()


def test_texts_are_written_as_java_writes_them() -> None:
    for vector in GOLDEN.vectors("properties-text-encode"):
        assert sorted(format_properties(vector.input).splitlines()) == sorted(vector.output())


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("  # note\n\t! note\na=1", {"a": "1"}),
        ("a=1\\\n\\\n  2\nb=3", {"a": "12", "b": "3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c = d", {"a b=c": "d"}),
        ("a\\:b:c:d", {"a:b": "c:d"}),
        ("a\t=\t b", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a=\\t\\n\\r\\f\\q\\ x", {"a": "\t\n\r\fq x"}),
        ("a=\\u4e2D\\ud83d\\uDE00", {"a": "中😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\n\r\nc", {"a": "1", "b": "2", "c": ""}),
        ("#a\\\nb=1", {"b": "1"}),
    ],
)
def test_rules_of_the_form(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_a_broken_escape_is_told_with_its_line() -> None:
    for escape in ("\\u12", "\\uzzzz", "\\u"):
        with pytest.raises(PropertiesError, match="line 3") as caught:
            parse_properties(f"a=1\n\nb={escape}")
        assert caught.value.line == 3


texts = st.dictionaries(st.text(), st.text(st.characters(exclude_categories=["Cs"])), max_size=5)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])), max_size=5
    )
)
def test_escaped_texts_read_back_the_same(pairs: dict[str, str]) -> None:
    text = format_properties(pairs, escaped=True)
    assert text.isascii()
    assert parse_properties(text) == parse_properties(text.encode()) == pairs


@given(st.text() | st.binary())
def test_reading_raises_nothing_but_its_error(text: str | bytes) -> None:
    try:
        pairs = parse_properties(text)
    except PropertiesError as failure:
        assert failure.line >= 1  # noqa: PT017
    else:
        assert all(isinstance(value, str) for pair in pairs.items() for value in pair)


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("", "b=2\nc=x\n"),
        ("# why\nb = 1  \n\n! end", "# why\nb=2\n\n! end\nc=x\n"),
        ("a: 1\r\nb: 1\r\nb: 3\r\n", "a: 1\r\nb=2\nc=x\n"),
        ("b=1,\\\n  2\na=3", "b=2\na=3\nc=x\n"),
        ("\\u0062=1", "b=2\nc=x\n"),
        ("b1=1\n#b=1\nc", "b1=1\n#b=1\nc=x\nb=2\n"),
        ("a=1\\", "a=1\\\n\nb=2\nc=x\n"),
        ("\\u00=1\n", "\\u00=1\nb=2\nc=x\n"),
    ],
)
def test_keys_get_new_values_in_their_places(text: str, edited: str) -> None:
    assert edit_properties(text, {"b": "2", "c": "x"}) == edited


pieces = ["a=1", "b:2", " b 3", "#a=1", "", "a=\\", "\\", "b\\=1", "c=\\\\", "!\\", "\t"]
lines = st.lists(st.sampled_from(pieces)).map("\n".join) | st.text()
names = st.sampled_from(["a", "b", "b=1", ""]) | st.text(st.characters(exclude_categories=["Cs"]))


@given(lines, st.dictionaries(names, st.text("x\\ \n=é")))
def test_an_edited_text_reads_as_the_old_one_with_the_changes(text: str, changes: dict[str, str]) -> None:
    try:
        before = parse_properties(text)
    except PropertiesError:
        return
    assert parse_properties(edit_properties(text, changes)) == before | changes


def test_what_servers_answer_is_not_escaped() -> None:
    assert read_plain("a=b=c\r\npath=C:\\store\n blank = x \nempty=\n=no key\nno value\n") == {
        "a": "b=c",
        "path": "C:\\store",
        " blank ": " x ",
        "empty": "",
    }
    table = {"a": "b=c", "path": "C:\\store", "blank": " x "}
    assert read_plain(format_properties(table)) == table
