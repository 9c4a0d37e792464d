"""SQL92 expressions over the properties of a message, as Apache's brokers understand them (broker.md 4).

`compile_sql` gives a `Condition`, whose `matches` judges one message. The meaning is Apache's to the letter, odd as it is in places:
`NOT` binds tighter than comparisons, integers do not match decimal text, what follows a complete expression is ignored.
`CONTAINS`, `STARTSWITH` and `ENDSWITH` are those of 5.x.

Owns: tokens, grammar, what is refused, the three-valued logic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from mqproto.filters.tags import InvalidExpressionError

SQL92: Final = "SQL92"
#: Characters of an expression, and how deep it may be nested: evaluation recurses.
LENGTH_MAX: Final = 65_536
DEPTH_MAX: Final = 64

_I32_MIN: Final = -(1 << 31)
_I32_MAX: Final = (1 << 31) - 1
_I64_MIN: Final = -(1 << 63)
_I64_MAX: Final = (1 << 63) - 1
_SMALLEST: Final = 5e-324
#: Characters of a decimal number. Longer ones are read in a time that grows with their square.
_NUMBER_LENGTH_MAX: Final = 1000


class Long(int):
    """A number of 64 bits, where a plain `int` has 32: it decides how the text of a property is read."""


#: None is the unknown of three-valued logic, and the value of a property that a message does not have.
Value: TypeAlias = "bool | int | float | str | None"
Properties: TypeAlias = Mapping[str, str]


class _UnfitError(Exception):
    """Values that cannot be compared: the message does not match."""


# --- values


_integer: Final = re.compile(r"[+-]?\d+").fullmatch
_decimal: Final = re.compile(
    r"[\0-\x20]*(?P<number>[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?[\0-\x20]*", re.ASCII
).fullmatch


def _to_int(text: str, low: int, high: int) -> int:
    if _integer(text) is None or len(text) > 64:
        raise _UnfitError
    number = int(text)
    if not low <= number <= high:
        raise _UnfitError
    return number


def _to_float(text: str) -> float:
    found = _decimal(text) if len(text) <= _NUMBER_LENGTH_MAX else None
    if found is None:
        raise _UnfitError
    return float(found["number"])


def _like(text: str, model: int | float) -> int | float:
    """The text of a property as a number of the kind that it is compared with."""
    if isinstance(model, float):
        return _to_float(text)
    return _to_int(text, _I64_MIN, _I64_MAX) if isinstance(model, Long) else _to_int(text, _I32_MIN, _I32_MAX)


def _compare_numbers(left: int | float, right: int | float) -> int:
    """-1, 0 or 1. NaN is greater than all other numbers and equal to itself, and 0.0 greater than -0.0."""
    if isinstance(left, float) or isinstance(right, float):
        one, other = float(left), float(right)
        if one != one or other != other:
            return (one != one) - (other != other)
        if one == other == 0.0 and isinstance(left, float) and isinstance(right, float):
            return (str(one)[0] != "-") - (str(other)[0] != "-")
        return (one > other) - (one < other)
    return (left > right) - (left < right)


def _compare(left: Value, right: Value) -> int:
    """-1, 0 or 1 for two values that are there; for texts only 0 means something. Raises _UnfitError."""
    if isinstance(left, str):
        if isinstance(right, str):
            return int(left != right)
        if isinstance(right, bool):
            return (left.lower() == "true") - right
        assert right is not None
        return _compare_numbers(_like(left, right), right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise _UnfitError
        return left - right if isinstance(right, bool) else -1
    assert left is not None
    if isinstance(right, bool):
        return -1
    assert right is not None
    return _compare_numbers(left, _like(right, left) if isinstance(right, str) else right)


def _equal(left: Value, right: Value) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return _compare(left, right) == 0


def _order(left: Value, right: Value) -> int | None:
    """How two values lie to each other; None if one is absent. Raises _UnfitError."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return _compare_numbers(_to_float(left), _to_float(right))
    return _compare(left, right)


# --- nodes


class _Node(Protocol):
    """A part of an expression. `boolean`: its value is a truth, so it may stand in AND, OR and NOT. `depth`: levels below and with it."""

    boolean: bool
    depth: int

    def value(self, properties: Properties) -> Value: ...


class _Constant:
    __slots__ = ("boolean", "constant", "depth", "text")

    def __init__(self, constant: Value, text: str) -> None:
        self.constant = constant
        self.text = text
        self.boolean = constant is None or isinstance(constant, bool)
        self.depth = 1

    def value(self, properties: Properties) -> Value:
        return self.constant


class _Property:
    __slots__ = ("boolean", "depth", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.boolean = False
        self.depth = 1

    def value(self, properties: Properties) -> Value:
        return properties.get(self.name)


class _Function:
    """An operator with one or two operands."""

    __slots__ = ("_apply", "_operands", "boolean", "depth")

    def __init__(self, apply: Callable[[list[Value]], Value], *operands: _Node, boolean: bool = True) -> None:
        self._apply = apply
        self._operands = operands
        self.boolean = boolean
        self.depth = 1 + max(operand.depth for operand in operands)

    def value(self, properties: Properties) -> Value:
        return self._apply([operand.value(properties) for operand in self._operands])


class _Logic:
    """AND (`decisive` is False) or OR (True) over any number of operands, left to right."""

    __slots__ = ("_decisive", "_operands", "boolean", "depth")

    def __init__(self, decisive: bool, operands: list[_Node]) -> None:
        self._decisive = decisive
        self._operands = operands
        self.boolean = True
        self.depth = 1 + max(operand.depth for operand in operands)

    def value(self, properties: Properties) -> Value:
        result: Value = not self._decisive
        for operand in self._operands:
            value = operand.value(properties)
            if value is self._decisive:
                return value
            if value is None:
                result = None
        return result


def _negate(values: list[Value]) -> Value:
    (value,) = values
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def _not(values: list[Value]) -> Value:
    (value,) = values
    return None if value is None else value is not True


def _truth(values: list[Value]) -> Value:
    """A property that stands for itself: no text is a truth."""
    (value,) = values
    return None if value is None else value is True


def _equals(values: list[Value]) -> Value:
    return _equal(values[0], values[1])


def _differs(values: list[Value]) -> Value:
    equal = _equal(values[0], values[1])
    return None if equal is None else not equal


def _is_null(values: list[Value]) -> Value:
    return values[0] is None


def _is_not_null(values: list[Value]) -> Value:
    return values[0] is not None


def _ordering(fits: Callable[[int], bool]) -> Callable[[list[Value]], Value]:
    def apply(values: list[Value]) -> Value:
        order = _order(values[0], values[1])
        return None if order is None else fits(order)

    return apply


_less = _ordering(lambda order: order < 0)
_less_or_equal = _ordering(lambda order: order <= 0)
_greater = _ordering(lambda order: order > 0)
_greater_or_equal = _ordering(lambda order: order >= 0)
_ORDERINGS: Final = {"<": _less, "<=": _less_or_equal, ">": _greater, ">=": _greater_or_equal}


def _one_of(texts: frozenset[str], positive: bool) -> Callable[[list[Value]], Value]:
    return lambda values: None if values[0] is None else (values[0] in texts) is positive


def _text_test(test: Callable[[str, str], bool], literal: str, positive: bool) -> Callable[[list[Value]], Value]:
    """What is absent, or compared with nothing, matches neither the test nor its opposite."""
    return lambda values: isinstance(values[0], str) and literal != "" and test(values[0], literal) is positive


_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}

# --- tokens


_KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "IS", "NULL", *_TEXT_TESTS})
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
    """Recursive descent over the levels of broker.md 4.2."""

    def __init__(self, expression: str) -> None:
        self._tokens = _Tokens(expression)
        self._depth = 0

    def whole(self) -> _Node:
        node = self._as_truth(self._or())
        self._tokens.peek()  # the word behind it is read, whatever it is
        return node

    @property
    def words(self) -> int:
        """How many tokens were read."""
        return self._tokens.count

    def _refuse(self, why: str) -> InvalidExpressionError:
        return self._tokens.refuse(why)

    def _checked(self, node: _Node) -> _Node:
        if node.depth > DEPTH_MAX:
            raise self._refuse(f"it is nested more than {DEPTH_MAX} levels deep")
        return node

    def _as_truth(self, node: _Node) -> _Node:
        if node.boolean:
            return node
        if isinstance(node, _Property):
            return _Function(_truth, node)
        raise self._refuse("a number or text stands where a condition is needed")

    def _or(self) -> _Node:
        return self._chain("OR", True, self._and)

    def _and(self) -> _Node:
        return self._chain("AND", False, self._equality)

    def _chain(self, word: str, decisive: bool, operand: Callable[[], _Node]) -> _Node:
        first = operand()
        if self._tokens.kind() != word:
            return first
        operands = [self._as_truth(first)]
        while self._tokens.kind() == word:
            self._tokens.take()
            operands.append(self._as_truth(operand()))
        return self._checked(_Logic(decisive, operands))

    def _equality(self) -> _Node:
        tokens = self._tokens
        left = self._comparison()
        while (kind := tokens.kind()) in ("=", "<>", "IS"):
            tokens.take()
            if kind == "IS":
                negated = tokens.kind() == "NOT"
                if negated:
                    tokens.take()
                tokens.take("NULL")
                left = _Function(_is_not_null if negated else _is_null, left)
            else:
                right = self._comparison()
                self._check_equality(left, right)
                left = _Function(_equals if kind == "=" else _differs, left, right)
            self._checked(left)
        return left

    def _check_equality(self, left: _Node, right: _Node) -> None:
        for node in (left, right):
            if isinstance(node, _Constant) and node.constant is None:
                raise self._refuse("NULL is not compared: write IS NULL")
        if isinstance(left, _Constant) and isinstance(right, _Constant) and left.boolean and not right.boolean:
            raise self._refuse(f"{left.text} cannot be compared with {right.text}")

    def _comparison(self) -> _Node:
        tokens = self._tokens
        left = self._unary()
        while True:
            kind = tokens.kind()
            if kind in _ORDERINGS:
                tokens.take()
                left = self._ordered(_ORDERINGS[kind], left, self._unary())
            elif kind in ("NOT", "BETWEEN", "IN") or kind in _TEXT_TESTS:
                left = self._worded(left)
            else:
                return left
            self._checked(left)

    def _worded(self, left: _Node) -> _Node:
        """`[NOT] BETWEEN`, `[NOT] IN` and the tests of texts."""
        tokens = self._tokens
        positive = tokens.kind() != "NOT"
        if not positive:
            tokens.take()
        word = tokens.kind()
        tokens.take("BETWEEN", "IN", *_TEXT_TESTS)
        if word == "BETWEEN":
            low = self._unary()
            tokens.take("AND")
            return self._between(left, low, self._unary(), positive)
        if not isinstance(left, _Property):
            raise self._refuse(f"{word} needs a property on its left")
        if word == "IN":
            return _Function(_one_of(self._list(), positive), left)
        return _Function(_text_test(_TEXT_TESTS[word], _unquote(tokens.take("text")), positive), left)

    def _list(self) -> frozenset[str]:
        tokens = self._tokens
        tokens.take("(")
        texts = [_unquote(tokens.take("text"))]
        while tokens.kind() == ",":
            tokens.take()
            texts.append(_unquote(tokens.take("text")))
        tokens.take(")")
        return frozenset(texts)

    def _between(self, left: _Node, low: _Node, high: _Node, positive: bool) -> _Node:
        if isinstance(low, _Constant) and isinstance(high, _Constant):
            if low.constant is None or high.constant is None:
                raise self._refuse("NULL is no bound of BETWEEN")
            if isinstance(low.constant, int | float) and isinstance(high.constant, int | float) and low.constant > high.constant:
                raise self._refuse(f"BETWEEN {low.text} AND {high.text} holds nothing")
        if positive:
            return _Logic(False, [self._ordered(_greater_or_equal, left, low), self._ordered(_less_or_equal, left, high)])
        return _Logic(True, [self._ordered(_less, left, low), self._ordered(_greater, left, high)])

    def _ordered(self, apply: Callable[[list[Value]], Value], left: _Node, right: _Node) -> _Node:
        for node in (left, right):
            if isinstance(node, _Constant):
                if node.boolean or isinstance(node.constant, str):
                    raise self._refuse(f"{node.text} has no order: only numbers have")
            elif node.boolean:
                raise self._refuse("a condition has no order: only numbers have")
        return _Function(apply, left, right)

    def _unary(self) -> _Node:
        tokens = self._tokens
        operators = []
        while tokens.kind() in ("+", "-", "NOT"):
            operators.append(tokens.kind())
            tokens.take()
            if len(operators) > DEPTH_MAX:
                raise self._refuse(f"it is nested more than {DEPTH_MAX} levels deep")
        node = self._primary()
        for operator in reversed(operators):
            if operator == "-":
                node = _Function(_negate, node, boolean=False)
            elif operator == "NOT":
                node = _Function(_not, self._as_truth(node))
        return self._checked(node)

    def _primary(self) -> _Node:
        tokens = self._tokens
        kind, text = tokens.peek()
        tokens.take("name", "text", "integer", "float", "TRUE", "FALSE", "NULL", "(")
        if kind == "name":
            return _Property(text)
        if kind == "(":
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise self._refuse(f"it is nested more than {DEPTH_MAX} levels deep")
            node = self._or()
            tokens.take(")")
            self._depth -= 1
            return node
        return _Constant(self._constant(kind, text), text)

    def _constant(self, kind: str, text: str) -> Value:
        if kind == "text":
            return _unquote(text)
        if kind == "integer":
            digits = text.rstrip("lL")
            if len(digits) > 19 or int(digits) > _I64_MAX:
                raise self._refuse(f"{digits} does not fit 64 bits")
            return int(digits) if int(digits) <= _I32_MAX else Long(digits)
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

    __slots__ = ("_node", "expression", "words")

    def __init__(self, expression: str, node: _Node, words: int) -> None:
        self.expression = expression
        #: Tokens that it is made of: what judging one message costs grows with it.
        self.words = words
        self._node = node

    def value(self, properties: Properties) -> bool | None:
        """True, False, or None for unknown; values that cannot be compared make everything unknown."""
        try:
            found = self._node.value(properties)
        except _UnfitError:
            return None
        return found if isinstance(found, bool) else None

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        return self.value(properties) is True


def compile_sql(expression: str) -> Condition:
    """Read an expression. Raises InvalidExpressionError for one that is incomplete, compares what cannot be compared, or is longer than
    65,536 characters or nested more than 64 levels deep."""
    if len(expression) > LENGTH_MAX:
        raise InvalidExpressionError(f"{expression[:40]}...", f"it is longer than {LENGTH_MAX} characters")
    parser = _Parser(expression)
    return Condition(expression, parser.whole(), parser.words)
