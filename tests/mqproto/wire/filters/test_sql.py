"""SQL92 expressions: what Apache's own parser made of hundreds of them, and what nobody may do to us."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire.filters.sql import DEPTH_MAX, LENGTH_MAX, compile_sql
from mqproto.wire.filters.tags import InvalidExpressionError
from tests.golden.golden import GOLDEN, Vector

PROPERTIES: dict[str, str] = GOLDEN.vectors("sql-properties")[0].outputs["5.3.3"]


def matches(expression: str, **properties: str) -> bool:
    return compile_sql(expression).matches(properties)


@pytest.mark.parametrize("vector", GOLDEN.vectors("sql"), ids=lambda vector: str(vector.input))
def test_apaches_vectors(vector: Vector) -> None:
    # it knows the tests of texts, and means the same by everything else
    expected: dict[str, Any] = vector.outputs["5.3.3"]
    if not expected["compiles"]:
        with pytest.raises(InvalidExpressionError):
            compile_sql(vector.input)
        return
    condition = compile_sql(vector.input)
    assert condition.matches(PROPERTIES) is expected["matches"]
    if "value" in expected:
        assert condition.value(PROPERTIES) is expected["value"]


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ("a > 2147483646", "2147483647", True),
        ("a > 2147483646", "2147483648", False),
        ("a > 2147483648", "3000000000", True),
        ("a > -2147483648", "3000000000", True),
        ("a > 1", "+5", True),
        ("a > 1", "٥", True),
        ("a > 1", "1_0", False),
        ("a > 1.5", "1_0", False),
        ("a > 1.5", "2d", True),
        ("a > 1.5", " 2.5e0F\n", True),
        ("a > 1.5", "Infinity", True),
        ("a > 1.5", "inf", False),
        ("a > 1.5", "", False),
        ("a <> 1", "x", False),
        ("a = TRUE", "TrUe", True),
        ("a <> TRUE", "yes", True),
    ],
)
def test_how_the_text_of_a_property_is_read(expression: str, text: str, expected: bool) -> None:
    assert matches(expression, a=text) is expected


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        ("a CONTAINS 'bc'", {"a": "abcd"}, True),
        ("a NOT CONTAINS 'bc'", {"a": "abcd"}, False),
        ("a NOT CONTAINS 'x'", {"a": "abcd"}, True),
        ("a STARTSWITH 'ab'", {"a": "abcd"}, True),
        ("a endswith 'cd'", {"a": "abcd"}, True),
        ("a CONTAINS 'bc'", {}, False),
        ("a NOT CONTAINS 'bc'", {}, False),
        ("a CONTAINS ''", {"a": "abcd"}, False),
        ("a NOT CONTAINS ''", {"a": "abcd"}, False),
    ],
)
def test_tests_of_texts(expression: str, properties: dict[str, str], expected: bool) -> None:
    assert matches(expression, **properties) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "  ",
        "a =",
        "(a = 1",
        "a IN ('x'",
        "a IS",
        "a IS 5",
        "a NOT 5",
        "a BETWEEN 1",
        "5 CONTAINS 'x'",
        "a = 'x",
        "a CONTAINS b",
    ],
)
def test_what_is_incomplete_is_refused(expression: str) -> None:
    with pytest.raises(InvalidExpressionError):
        compile_sql(expression)


def test_comments_and_what_follows_a_complete_expression() -> None:
    assert matches("/* a ** b */ a -- first\n = /**/ 1 b = 2", a="1")
    with pytest.raises(InvalidExpressionError):
        compile_sql("a = 1 #")
    assert matches("a = 1 b #", a="1"), "the word after the next is never looked at"


def test_long_chains_are_served_and_deep_nesting_is_refused() -> None:
    assert matches(" OR ".join(f"a = '{n}'" for n in range(4000)), a="3999")
    assert matches(" AND ".join(f"a <> '{n}'" for n in range(4000)), a="x")
    deepest = "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX
    assert matches(deepest, a="1")
    for expression in (
        f"({deepest})",
        "NOT " * 1000 + "(a = 1)",
        "-" * 5000 + "1 = a",
        "a" + " = b" * 1000,
        "a" + " IS NULL" * 1000,
    ):
        with pytest.raises(InvalidExpressionError, match="nested"):
            compile_sql(expression)
    with pytest.raises(InvalidExpressionError, match="longer"):
        compile_sql("a" * (LENGTH_MAX + 1))


SIGNS = ["(", ")", "=", "<>", "<", "<=", ">", ">=", "+", "-", ",", "--", "/*", "*/", ";"]
KEYWORDS = ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "IS", "NULL", "CONTAINS"]
WORDS = st.sampled_from(["a", "b", "1", "2147483648", "1.5", "'x'", "''", *SIGNS, *KEYWORDS])
TEXTS = st.dictionaries(st.sampled_from("abc"), st.text(max_size=5) | st.just("1"))


@given(st.lists(WORDS, max_size=20).map(" ".join) | st.text(max_size=30), TEXTS)
def test_nothing_but_the_one_error_comes_out(expression: str, properties: dict[str, str]) -> None:
    try:
        condition = compile_sql(expression)
    except InvalidExpressionError:
        return
    assert condition.matches(properties) is (condition.value(properties) is True)
