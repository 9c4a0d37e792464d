"""Tag expressions."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire.filters.tags import EVERYTHING, InvalidExpressionError, TagFilter, parse_tags
from mqproto.wire.ids import java_hash
from tests.golden.golden import GOLDEN, Vector


@pytest.mark.parametrize("vector", GOLDEN.vectors("subscription"), ids=lambda vector: repr(vector.input))
def test_expressions_are_read_as_java_reads_them(vector: Vector) -> None:
    if vector.fails():
        with pytest.raises(InvalidExpressionError):
            parse_tags(vector.input)
        return
    expected = vector.output()
    parsed = parse_tags(vector.input)
    assert parsed.expression == expected["subString"]
    assert set(parsed.tags) == set(expected["tagsSet"])
    assert parsed.codes == set(expected["codeSet"])


@pytest.mark.parametrize("expression", ["", None, "*"])
def test_empty_missing_and_star_mean_everything(expression: str | None) -> None:
    """FLT-03."""
    assert parse_tags(expression) is EVERYTHING
    assert EVERYTHING.matches("TagA")
    assert EVERYTHING.matches(None)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA||TagB", ("TagA", "TagB")),
        (" TagA || TagB ", ("TagA", "TagB")),
        ("TagA||", ("TagA",)),
        (" * ", ("*",)),
        ("TagA|TagB", ("TagA|TagB",)),
        ("||".join(map(str, range(200))), tuple(map(str, range(200)))),
    ],
)
def test_parts_are_trimmed_and_nothing_else_is_special(expression: str, tags: tuple[str, ...]) -> None:
    """FLT-03."""
    parsed = parse_tags(expression)
    assert parsed == TagFilter(expression, tags, frozenset(map(java_hash, tags)))


@pytest.mark.parametrize("expression", ["||", " ", "\t", " || "])
def test_an_expression_without_a_tag_is_refused_rather_than_matching_nothing(expression: str) -> None:
    """FLT-03."""
    with pytest.raises(InvalidExpressionError, match="names no tag"):
        parse_tags(expression)


def test_a_tag_matches_whole_and_not_by_its_hash() -> None:
    """`Aa` and `BB` share a hash (FLT-01); a blank at the end is part of a message's tag (FLT-03)."""
    wanted = parse_tags("Aa")
    assert wanted.codes == {java_hash("BB")}
    assert wanted.matches("Aa")
    for tag in ("BB", "Aa ", "", None):
        assert not wanted.matches(tag)


@given(st.text())
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with suppress(InvalidExpressionError):
        parsed = parse_tags(text)
        assert parsed is EVERYTHING or (parsed.tags and all(map(parsed.matches, parsed.tags)))
