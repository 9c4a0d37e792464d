"""Writer of Java's dialect of JSON: compact, as the configuration files have it, and the standard form.

Whole numbers and objects stand as keys without quotes, as Java writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final

from mqproto.wire.fastjson.values import MAX_DEPTH, JavaMap, JsonError, NumberText

_EXTRA: Final = re.compile("[\x7f-\x9f\u2028\u2029]")
_LOWER_HEX: Final = re.compile(r"(\\\\)|\\u([0-9a-f]{4})")


def _upper_hex(match: re.Match[str]) -> str:
    return match.group(1) or f"\\u{match.group(2).upper()}"


def quote(text: str) -> str:
    """A string as Java writes it: UTF-8 raw, control characters and the two separators of lines escaped with upper-case
    digits.
    """
    result = encode_basestring(text)
    if _EXTRA.search(result) is not None:
        result = _EXTRA.sub(lambda match: f"\\u{ord(match.group()):04X}", result)
    return _LOWER_HEX.sub(_upper_hex, result) if "\\u" in result else result


def _scalar(value: Any) -> str | None:
    """The text of anything that is no container, None for containers."""
    if isinstance(value, str):
        return str(value) if isinstance(value, NumberText) else quote(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _double(value)
    return None


def _double(value: float) -> str:
    """Always with a fraction, as Java has it: `0.0`, `1.0E20`; what is no number is null."""
    if not abs(value) < float("inf"):
        return "null"
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}" if exponent else mantissa


def dumps(value: Any) -> str:
    """Compact text: members in the order of the dict, whole numbers and objects as keys bare, NaN as null.

    Takes dict, list, tuple, `JavaMap`, str, int, float, bool, None. Raises `JsonError` when it is nested too deep.
    """
    parts: list[str] = []
    _write(value, parts.append, MAX_DEPTH)
    return "".join(parts)


def _write(value: Any, put: Callable[[str], None], depth: int) -> None:
    text = _scalar(value)
    if text is not None:
        put(text)
        return
    if depth == 0:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
    comma = ""
    if isinstance(value, (dict, JavaMap)):
        put("{")
        for key, one in value.items() if isinstance(value, dict) else value:
            put(comma)
            _write(key, put, depth - 1)
            put(":")
            _write(one, put, depth - 1)
            comma = ","
        put("}")
        return
    put("[")
    for one in value:
        put(comma)
        _write(one, put, depth - 1)
        comma = ","
    put("]")


def dumps_pretty(value: Any) -> str:
    """The form of Apache's configuration files (docs/protocol/store.md 10): tabs, no blank after colons, no newline at
    the end.

    Java breaks lines between named members only: entries under a number or an object share a line, and so do those of
    arrays.
    """
    parts: list[str] = []
    _write_pretty(value, parts.append, "\n", MAX_DEPTH)
    return "".join(parts)


def _write_pretty(value: Any, put: Callable[[str], None], line: str, depth: int) -> None:
    text = _scalar(value)
    if text is not None:
        put(text)
        return
    if depth == 0:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, (dict, JavaMap)):
        put("[")
        for index, one in enumerate(value):
            put("," if index else "")
            _write_pretty(one, put, line, depth - 1)
        put("]")
        return
    inner = line + "\t"
    comma = ""
    put("{")
    for key, one in value.items() if isinstance(value, dict) else value:
        put(comma)
        if isinstance(key, str):
            put(inner)
        _write_pretty(key, put, inner, depth - 1)
        put(":")
        _write_pretty(one, put, inner, depth - 1)
        comma = ","
    put(line + "}" if value else "}")


def dumps_standard(value: Any) -> str:
    """Standard JSON as newer name servers write routes on demand: keys quoted and sorted, ASCII only, `/` escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).replace("/", "\\/").replace("\x7f", "\\u007F")
    return _LOWER_HEX.sub(_upper_hex, text)


def to_text(value: Any) -> str:
    """A value as Java makes text of it: strings as they are, anything else as JSON.

    Raises `JsonError` when it is nested too deep.
    """
    return str(value) if isinstance(value, str) else dumps(value)
