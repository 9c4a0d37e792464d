"""Values of Java's dialect of JSON that the standard library has no type for, their limits, and what counts as a whole
number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from mqproto.errors import RemoteProtocolError

#: Nesting that is read or written; the deepest body of Java's has eight levels.
MAX_DEPTH: Final = 64
#: Digits of a whole number. Java's numbers have 19.
MAX_DIGITS: Final = 400


class JsonError(RemoteProtocolError, ValueError):
    """Text that is no JSON in anybody's dialect, or JSON of another shape than the one asked for."""


class JavaMap(list[tuple[Any, Any]]):
    """A map with objects among its keys: its pairs in order, keys and values as read.

    A key may occur twice, the last one counts.
    """


class NumberText(str):
    """The text of a JSON number with fraction or exponent, kept as it was written (it is written bare again)."""

    __slots__ = ()


def truncate(value: Any) -> int | None:
    """A whole number out of what a peer wrote for one (fractions are cut, texts and booleans count), or None if it is
    none.
    """
    if isinstance(value, NumberText):
        value = float(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if abs(value) < 1e19 else None
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS else None
    return None


#: Half of a surrogate pair.
LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """The text with `?` for every half of a surrogate pair."""
    return text if text.isascii() else LONE_SURROGATE.sub("?", text)


def inner(value: Any) -> Iterator[Any]:
    """The containers directly within a container."""
    if isinstance(value, JavaMap):
        return (one for pair in value for one in pair if isinstance(one, (dict, list)))
    values = value.values() if isinstance(value, dict) else value
    return (one for one in values if isinstance(one, (dict, list)))
