"""SQL92 expressions over the properties of a message, as Apache's brokers understand them (docs/protocol/broker.md 4).

`compile_sql` gives a `Condition`, whose `matches` judges one message. The meaning is Apache's to the letter, odd as it
is in places: `NOT` binds tighter than comparisons, integers do not match decimal text, what follows a complete
expression is ignored. `CONTAINS`, `STARTSWITH` and `ENDSWITH` are those of 5.x.

Owns: tokens, grammar, what is refused.
Leaves to others: values and the three-valued logic (`sql_parts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mqproto.wire.filters import sql_parts
from mqproto.wire.filters.sql_parts import (
    Constant,
    Expression,
    Function,
    Logic,
    Long,
    Properties,
    Property,
    UnfitError,
    Value,
)
from mqproto.wire.filters.tags import InvalidExpressionError

#: Characters of an expression, and how deep it may be nested: evaluation recurses.
LENGTH_MAX: Final = 65_536
DEPTH_MAX: Final = 64

#: The least number that is not zero.
_SMALLEST: Final = 5e-324

# --- tokens


_KEYWORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "IS", "NULL", *sql_parts.TEXT_TESTS}
)
_blank: Final = re.compile(r"(?:[ \t\r\n\f]+|--[^\r\n]*(?:\r\n?|\n)|/\*[^*]*\*+(?:[^*/][^*]*\*+)*/)*").match
_token: Final = re.compile(
    r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>(?:[1-9][0-9]*|0)[lL]?)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|<=|>=|[=<>(),+\-])"
).match
_END: Final = ("end", "")


class _Tokens:
    """The tokens of an expression, read as they are needed: what nobody looks at may be anything."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._at = 0
        self._ahead: list[tuple[str, str]] = []
        #: Tokens that were read.
        self.count = 0

    def peek(self, distance: int = 0) -> tuple[str, str]:
        """Kind and text of a token ahead. Kinds: float, integer, text, name, or the sign or keyword itself."""
        while len(self._ahead) <= distance:
            self._ahead.append(self._read())
        return self._ahead[distance]

    def kind(self, distance: int = 0) -> str:
        return self.peek(distance)[0]

    def take(self, *kinds: str) -> str:
        """The next token's text, which must be of one of these kinds."""
        kind, text = self.peek()
        if kinds and kind not in kinds:
            found = "the end" if kind == "end" else repr(text)
            raise self.refuse(f"{' or '.join(kinds)} expected instead of {found}")
        del self._ahead[0]
        return text

    def refuse(self, why: str) -> InvalidExpressionError:
        return InvalidExpressionError(self._expression, why)

    def _read(self) -> tuple[str, str]:
        self.count += 1
        blank = _blank(self._expression, self._at)
        assert blank is not None
        self._at = blank.end()
        if self._at == len(self._expression):
            return _END
        found = _token(self._expression, self._at)
        if found is None:
            raise self.refuse(f"{self._expression[self._at]!r} at character {self._at + 1} begins no word")
        self._at = found.end()
        text = found[0]
        kind = str(found.lastgroup)
        if kind == "sign":
            return text, text
        if kind == "name" and text.upper() in _KEYWORDS:
            return text.upper(), text
        return kind, text


# --- grammar


class _Parser:
    """Recursive descent over the levels of docs/protocol/broker.md 4.2."""

    def __init__(self, expression: str) -> None:
        self._tokens = _Tokens(expression)
        self._depth = 0

    def whole(self) -> Expression:
        part = self._as_truth(self._or())
        self._tokens.peek()  # the word behind it is read, whatever it is
        return part

    @property
    def words(self) -> int:
        """How many tokens were read."""
        return self._tokens.count

    def _refuse(self, why: str) -> InvalidExpressionError:
        return self._tokens.refuse(why)

    def _checked(self, part: Expression) -> Expression:
        if part.depth > DEPTH_MAX:
            raise self._refuse(f"it is nested more than {DEPTH_MAX} levels deep")
        return part

    def _as_truth(self, part: Expression) -> Expression:
        if part.boolean:
            return part
        if isinstance(part, Property):
            return Function(sql_parts.truth, part)
        raise self._refuse("a number or text stands where a condition is needed")

    def _or(self) -> Expression:
        return self._chain("OR", True, self._and)

    def _and(self) -> Expression:
        return self._chain("AND", False, self._equality)

    def _chain(self, word: str, decisive: bool, operand: Callable[[], Expression]) -> Expression:
        first = operand()
        if self._tokens.kind() != word:
            return first
        operands = [self._as_truth(first)]
        while self._tokens.kind() == word:
            self._tokens.take()
            operands.append(self._as_truth(operand()))
        return self._checked(Logic(decisive, operands))

    def _equality(self) -> Expression:
        tokens = self._tokens
        left = self._comparison()
        while (kind := tokens.kind()) in ("=", "<>", "IS"):
            tokens.take()
            if kind == "IS":
                negated = tokens.kind() == "NOT"
                if negated:
                    tokens.take()
                tokens.take("NULL")
                left = Function(sql_parts.is_not_null if negated else sql_parts.is_null, left)
            else:
                right = self._comparison()
                self._check_equality(left, right)
                left = Function(sql_parts.equals if kind == "=" else sql_parts.differs, left, right)
            self._checked(left)
        return left

    def _check_equality(self, left: Expression, right: Expression) -> None:
        for part in (left, right):
            if isinstance(part, Constant) and part.constant is None:
                raise self._refuse("NULL is not compared: write IS NULL")
        if isinstance(left, Constant) and isinstance(right, Constant) and left.boolean and not right.boolean:
            raise self._refuse(f"{left.text} cannot be compared with {right.text}")

    def _comparison(self) -> Expression:
        tokens = self._tokens
        left = self._unary()
        while True:
            kind = tokens.kind()
            if kind in sql_parts.ORDERINGS:
                tokens.take()
                left = self._ordered(sql_parts.ORDERINGS[kind], left, self._unary())
            elif kind in ("NOT", "BETWEEN", "IN") or kind in sql_parts.TEXT_TESTS:
                left = self._worded(left)
            else:
                return left
            self._checked(left)

    def _worded(self, left: Expression) -> Expression:
        """`[NOT] BETWEEN`, `[NOT] IN` and the tests of texts."""
        tokens = self._tokens
        positive = tokens.kind() != "NOT"
        if not positive:
            tokens.take()
        word = tokens.kind()
        tokens.take("BETWEEN", "IN", *sql_parts.TEXT_TESTS)
        if word == "BETWEEN":
            low = self._unary()
            tokens.take("AND")
            return self._between(left, low, self._unary(), positive)
        if not isinstance(left, Property):
            raise self._refuse(f"{word} needs a property on its left")
        if word == "IN":
            return Function(sql_parts.one_of(self._list(), positive), left)
        return Function(sql_parts.text_test(sql_parts.TEXT_TESTS[word], _unquote(tokens.take("text")), positive), left)

    def _list(self) -> frozenset[str]:
        tokens = self._tokens
        tokens.take("(")
        texts = [_unquote(tokens.take("text"))]
        while tokens.kind() == ",":
            tokens.take()
            texts.append(_unquote(tokens.take("text")))
        tokens.take(")")
        return frozenset(texts)

    def _between(self, left: Expression, low: Expression, high: Expression, positive: bool) -> Expression:
        if isinstance(low, Constant) and isinstance(high, Constant):
            if low.constant is None or high.constant is None:
                raise self._refuse("NULL is no bound of BETWEEN")
            if (
                isinstance(low.constant, int | float)
                and isinstance(high.constant, int | float)
                and low.constant > high.constant
            ):
                raise self._refuse(f"BETWEEN {low.text} AND {high.text} holds nothing")
        if positive:
            return Logic(
                False,
                [
                    self._ordered(sql_parts.greater_or_equal, left, low),
                    self._ordered(sql_parts.less_or_equal, left, high),
                ],
            )
        return Logic(True, [self._ordered(sql_parts.less, left, low), self._ordered(sql_parts.greater, left, high)])

    def _ordered(self, apply: Callable[[list[Value]], Value], left: Expression, right: Expression) -> Expression:
        for part in (left, right):
            if isinstance(part, Constant):
                if part.boolean or isinstance(part.constant, str):
                    raise self._refuse(f"{part.text} has no order: only numbers have")
            elif part.boolean:
                raise self._refuse("a condition has no order: only numbers have")
        return Function(apply, left, right)

    def _unary(self) -> Expression:
        tokens = self._tokens
        operators = []
        while tokens.kind() in ("+", "-", "NOT"):
            operators.append(tokens.kind())
            tokens.take()
            if len(operators) > DEPTH_MAX:
                raise self._refuse(f"it is nested more than {DEPTH_MAX} levels deep")
        part = self._primary()
        for operator in reversed(operators):
            if operator == "-":
                part = Function(sql_parts.negate, part, boolean=False)
            elif operator == "NOT":
                part = Function(sql_parts.negation, self._as_truth(part))
        return self._checked(part)

    def _primary(self) -> Expression:
        tokens = self._tokens
        kind, text = tokens.peek()
        tokens.take("name", "text", "integer", "float", "TRUE", "FALSE", "NULL", "(")
        if kind == "name":
            return Property(text)
        if kind == "(":
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise self._refuse(f"it is nested more than {DEPTH_MAX} levels deep")
            part = self._or()
            tokens.take(")")
            self._depth -= 1
            return part
        return Constant(self._constant(kind, text), text)

    def _constant(self, kind: str, text: str) -> Value:
        if kind == "text":
            return _unquote(text)
        if kind == "integer":
            digits = text.rstrip("lL")
            if len(digits) > 19 or int(digits) > sql_parts.I64_MAX:
                raise self._refuse(f"{digits} does not fit 64 bits")
            return int(digits) if int(digits) <= sql_parts.I32_MAX else Long(digits)
        if kind == "float":
            number = float(text)
            if number == float("inf") or number < _SMALLEST:
                raise self._refuse(f"{text} is out of the range of numbers; write 0 for zero")
            return number
        return {"TRUE": True, "FALSE": False}.get(kind)


def _unquote(text: str) -> str:
    return text[1:-1].replace("''", "'")


class Condition:
    """A compiled expression."""

    __slots__ = ("_root", "expression", "words")

    def __init__(self, expression: str, part: Expression, words: int) -> None:
        self.expression = expression
        #: Tokens that it is made of: what judging one message costs grows with it.
        self.words = words
        self._root = part

    def value(self, properties: Properties) -> bool | None:
        """True, False, or None for unknown; values that cannot be compared make everything unknown."""
        try:
            found = self._root.value(properties)
        except UnfitError:
            return None
        return found if isinstance(found, bool) else None

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        return self.value(properties) is True


def compile_sql(expression: str) -> Condition:
    """Read an expression. Raises InvalidExpressionError for one that is incomplete, compares what cannot be compared,
    or is longer than 65,536 characters or nested more than 64 levels deep.
    """
    if len(expression) > LENGTH_MAX:
        raise InvalidExpressionError(f"{expression[:40]}...", f"it is longer than {LENGTH_MAX} characters")
    parser = _Parser(expression)
    return Condition(expression, parser.whole(), parser.words)
