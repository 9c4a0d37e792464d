"""Java's dialect of JSON (first simple form)."""

from __future__ import annotations

import json
from typing import Any

from mqproto.errors import RemoteProtocolError


class JsonError(RemoteProtocolError, ValueError):
    """Text that no peer may send as JSON."""


class JavaMap(list[tuple[Any, Any]]):
    """A map with objects as keys, as its pairs in order."""


class NumberText(str):
    """The text of a JSON number with fraction or exponent, kept as it was written."""

    __slots__ = ()


def constant(name: str) -> None:
    """For `parse_constant`: NaN is nothing; the infinities, which the standard library would also take, are no JSON at all."""
    if name != "NaN":
        raise ValueError(f"not JSON: {name}")


def truncate(value: Any) -> int | None:
    """A whole number out of what a peer wrote for one, or None."""
    if isinstance(value, NumberText):
        value = float(value)
    if isinstance(value, float):
        return int(value) if abs(value) < 1e19 else None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 30 else None
    return None


def to_text(value: Any) -> str:
    """A value as Java makes text of it: strings as they are, anything else as JSON."""
    return str(value) if isinstance(value, str) else dumps(value)


def loads(text: str | bytes) -> Any:
    try:
        return json.loads(text, strict=False)
    except ValueError as error:
        raise JsonError(str(error)) from None


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dumps_pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent="\t", separators=(",", ":"))


def dumps_standard(value: Any) -> str:
    return json.dumps(value)
