"""Parts of SQL92 expressions, and how each part judges a message (docs/protocol/broker.md 4).

Owns: values, how they are compared, the three-valued logic.
Leaves to others: which parts an expression has, and which it may not have (`sql`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

I32_MAX: Final = (1 << 31) - 1
I64_MAX: Final = (1 << 63) - 1
_I32_MIN: Final = -(1 << 31)
_I64_MIN: Final = -(1 << 63)
#: Characters of a decimal number. Longer ones are read in a time that grows with their square.
_NUMBER_LENGTH_MAX: Final = 1000


class Long(int):
    """A number of 64 bits, where a plain `int` has 32: it decides how the text of a property is read."""


#: None is the unknown of three-valued logic, and the value of a property that a message does not have.
Value: TypeAlias = "bool | int | float | str | None"
Properties: TypeAlias = Mapping[str, str]


class UnfitError(Exception):
    """Values that cannot be compared: the message does not match."""


# --- values


_integer: Final = re.compile(r"[+-]?\d+").fullmatch
_decimal: Final = re.compile(
    r"[\0-\x20]*(?P<number>[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?[\0-\x20]*", re.ASCII
).fullmatch


def _to_int(text: str, low: int, high: int) -> int:
    if _integer(text) is None or len(text) > 64:
        raise UnfitError
    number = int(text)
    if not low <= number <= high:
        raise UnfitError
    return number


def _to_float(text: str) -> float:
    found = _decimal(text) if len(text) <= _NUMBER_LENGTH_MAX else None
    if found is None:
        raise UnfitError
    return float(found["number"])


def _like(text: str, model: int | float) -> int | float:
    """The text of a property as a number of the kind that it is compared with."""
    if isinstance(model, float):
        return _to_float(text)
    return _to_int(text, _I64_MIN, I64_MAX) if isinstance(model, Long) else _to_int(text, _I32_MIN, I32_MAX)


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
    """-1, 0 or 1 for two values that are there; for texts only 0 means something. Raises UnfitError."""
    if isinstance(left, str):
        if isinstance(right, str):
            return int(left != right)
        if isinstance(right, bool):
            return (left.lower() == "true") - right
        assert right is not None
        return _compare_numbers(_like(left, right), right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise UnfitError
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
    """How two values lie to each other; None if one is absent. Raises UnfitError."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return _compare_numbers(_to_float(left), _to_float(right))
    return _compare(left, right)


# --- parts


class Expression(Protocol):
    """A part of an expression.

    `boolean`: its value is a truth, so it may stand in AND, OR and NOT. `depth`: levels below and with it.
    """

    boolean: bool
    depth: int

    def value(self, properties: Properties) -> Value: ...


class Constant:
    """A literal; `text` is how it was written."""

    __slots__ = ("boolean", "constant", "depth", "text")

    def __init__(self, constant: Value, text: str) -> None:
        self.constant = constant
        self.text = text
        self.boolean = constant is None or isinstance(constant, bool)
        self.depth = 1

    def value(self, properties: Properties) -> Value:
        return self.constant


class Property:
    """A property of the message."""

    __slots__ = ("boolean", "depth", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.boolean = False
        self.depth = 1

    def value(self, properties: Properties) -> Value:
        return properties.get(self.name)


class Function:
    """An operator with one or two operands."""

    __slots__ = ("_apply", "_operands", "boolean", "depth")

    def __init__(self, apply: Callable[[list[Value]], Value], *operands: Expression, boolean: bool = True) -> None:
        self._apply = apply
        self._operands = operands
        self.boolean = boolean
        self.depth = 1 + max(operand.depth for operand in operands)

    def value(self, properties: Properties) -> Value:
        return self._apply([operand.value(properties) for operand in self._operands])


class Logic:
    """AND (`decisive` is False) or OR (True) over any number of operands, left to right."""

    __slots__ = ("_decisive", "_operands", "boolean", "depth")

    def __init__(self, decisive: bool, operands: list[Expression]) -> None:
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


def negate(values: list[Value]) -> Value:
    (value,) = values
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def negation(values: list[Value]) -> Value:
    (value,) = values
    return None if value is None else value is not True


def truth(values: list[Value]) -> Value:
    """A property that stands for itself: no text is a truth."""
    (value,) = values
    return None if value is None else value is True


def equals(values: list[Value]) -> Value:
    return _equal(values[0], values[1])


def differs(values: list[Value]) -> Value:
    equal = _equal(values[0], values[1])
    return None if equal is None else not equal


def is_null(values: list[Value]) -> Value:
    return values[0] is None


def is_not_null(values: list[Value]) -> Value:
    return values[0] is not None


def _ordering(fits: Callable[[int], bool]) -> Callable[[list[Value]], Value]:
    def apply(values: list[Value]) -> Value:
        order = _order(values[0], values[1])
        return None if order is None else fits(order)

    return apply


less = _ordering(lambda order: order < 0)
less_or_equal = _ordering(lambda order: order <= 0)
greater = _ordering(lambda order: order > 0)
greater_or_equal = _ordering(lambda order: order >= 0)
ORDERINGS: Final = {"<": less, "<=": less_or_equal, ">": greater, ">=": greater_or_equal}


def one_of(texts: frozenset[str], positive: bool) -> Callable[[list[Value]], Value]:
    return lambda values: None if values[0] is None else (values[0] in texts) is positive


def text_test(test: Callable[[str, str], bool], literal: str, positive: bool) -> Callable[[list[Value]], Value]:
    """What is absent, or compared with nothing, matches neither the test nor its opposite."""
    return lambda values: isinstance(values[0], str) and literal != "" and test(values[0], literal) is positive


TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
