"""Java's dialect of JSON (docs/protocol/wire.md 14): read whatever the peers' libraries read, write what all of them
accept.

Reading: strict text goes through the standard library's scanner; text with bare or object keys, single quotes,
comments, stray commas and the like goes through `_Reader`. What comes out is plain: dict, list, str, int, float, bool,
None, and `JavaMap` for maps whose keys are objects. Bare whole numbers as keys stay numbers, so that writing gives the
same text again.

Every str that is read can be encoded: half a surrogate pair, which no UTF-8 has, becomes `?` as in Java.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any, Final

from mqproto.errors import RemoteProtocolError

#: Nesting that is read or written; the deepest body of Java's has eight levels.
MAX_DEPTH: Final = 64
#: Digits of a whole number. Java's numbers have 19.
MAX_DIGITS: Final = 400
#: References are followed only in texts that are small and have few of them, so that they cannot multiply without
#: bound.
MAX_REFERENCES: Final = 32
MAX_REFERRING_TEXT: Final = 1 << 16
#: Text that is no strict JSON is read at some 4 MB a second, so a node takes only this much of it from a peer.
MAX_TOLERANT: Final = 1 << 20


class JsonError(RemoteProtocolError, ValueError):
    """Text that is no JSON in anybody's dialect, or JSON of another shape than the one asked for."""


class JavaMap(list[tuple[Any, Any]]):
    """A map with objects among its keys: its pairs in order, keys and values as read.

    A key may occur twice, the last one counts.
    """


class NumberText(str):
    """The text of a JSON number with fraction or exponent, kept as it was written (it is written bare again)."""

    __slots__ = ()


def constant(name: str) -> None:
    """For `parse_constant`: NaN is nothing; the infinities, which the standard library would also take, are no JSON at
    all.
    """
    if name != "NaN":
        raise ValueError(f"not JSON: {name}")


_strict: Final = json.JSONDecoder(strict=False, parse_constant=constant)


# --- values -----------------------------------------------------------------------------------------------------------


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


def to_text(value: Any) -> str:
    """A value as Java makes text of it: strings as they are, anything else as JSON.

    Raises `JsonError` when it is nested too deep.
    """
    return str(value) if isinstance(value, str) else dumps(value)


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """The text with `?` for every half of a surrogate pair."""
    return text if text.isascii() else _LONE_SURROGATE.sub("?", text)


def _has_surrogates(source: str) -> bool:
    """Whether the source text of JSON may hold escaped surrogates."""
    return "\\ud" in source or "\\uD" in source


def _scrub(value: Any) -> Any:
    """The value with whole texts only; its depth has been checked."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, JavaMap):
        return JavaMap((_scrub(key), _scrub(one)) for key, one in value)
    if isinstance(value, list):
        return [_scrub(one) for one in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(one) for key, one in value.items()}
    return value


def _inner(value: Any) -> Iterator[Any]:
    """The containers directly within a container."""
    if isinstance(value, JavaMap):
        return (one for pair in value for one in pair if isinstance(one, (dict, list)))
    values = value.values() if isinstance(value, dict) else value
    return (one for one in values if isinstance(one, (dict, list)))


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [inner for one in level for inner in _inner(one)]
        if not level:
            return
    raise JsonError(f"nested deeper than {MAX_DEPTH} levels")


# --- reading ----------------------------------------------------------------------------------------------------------


def loads(text: str | bytes, limit: int = MAX_TOLERANT) -> Any:
    """The value of a whole text; bytes are UTF-8, and what is no UTF-8 is replaced. Raises `JsonError`.

    Text of more than `limit` characters must be strict JSON.
    """
    if isinstance(text, bytes):
        text = str(text, "utf-8", "replace")
    if text.startswith("\ufeff"):
        text = text[1:]
    try:
        value = _strict.decode(text)
        if text.count("{") + text.count("[") > MAX_DEPTH:
            _check_depth(value)
    except RecursionError:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    except JsonError:
        raise
    except ValueError:
        if len(text) > limit:
            raise JsonError(
                f"text of {len(text)} characters is no strict JSON, the limit of other is {limit}"
            ) from None
        value = _Reader(text).document()
    if _has_surrogates(text):
        value = _scrub(value)
    if "$ref" in text:
        value = _follow(value, text)
    return value


_BLANK: Final = re.compile(r"(?:[ \t\r\n\f\b]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMAS: Final = re.compile(r"(?:[ \t\r\n\f\b,]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"([-+]?\d+)(\.\d*)?([eE][-+]?\d+)?[LSBFD]?", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z_$][\w$]*")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX: Final = {"u": re.compile(r"[0-9A-Fa-f]{4}"), "x": re.compile(r"[0-9A-Fa-f]{2}")}
_ESCAPES: Final = {
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "F": "\f",
    "r": "\r",
    '"': '"',
    "'": "'",
    "/": "/",
    "\\": "\\",
    **{str(digit): chr(digit) for digit in range(8)},
}
_WORDS: Final[dict[str, Any]] = {"null": None, "NaN": None, "undefined": None, "true": True, "false": False}


class _Reader:
    """The tolerant reader: one pass, one method for each form, depth bounded."""

    __slots__ = ("_depth", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0

    def document(self) -> Any:
        value, at = self._value(self._skip(0))
        at = self._skip(at)
        if at != len(self._text):
            raise self._error(at, "text after the value")
        return value

    def _error(self, at: int, what: str) -> JsonError:
        return JsonError(f"not JSON, {what} at {at}: {self._text[at : at + 40]!r}")

    def _skip(self, at: int) -> int:
        match = _BLANK.match(self._text, at)
        return match.end() if match else at

    def _value(self, at: int) -> tuple[Any, int]:
        head = self._text[at : at + 1]
        if head == '"' or head == "'":
            return self._string(at)
        if head == "{":
            return self._nested(self._object, at)
        if head == "[":
            return self._nested(self._array, at)
        match = _NUMBER.match(self._text, at)
        if match:
            return self._number(match), match.end()
        match = _WORD.match(self._text, at)
        if match and match.group() in _WORDS:
            return _WORDS[match.group()], match.end()
        raise self._error(at, "no value" if head else "it ends early")

    def _nested(self, read: Callable[[int], tuple[Any, int]], at: int) -> tuple[Any, int]:
        if self._depth == MAX_DEPTH:
            raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        result = read(at + 1)
        self._depth -= 1
        return result

    def _number(self, match: re.Match[str]) -> int | float:
        """Java marks the width of some numbers by a letter behind them."""
        whole, fraction, exponent = match.groups()
        if fraction is not None or exponent is not None:
            return float(whole + (fraction or "") + (exponent or ""))
        if len(whole) > MAX_DIGITS:
            raise self._error(match.start(), "too long a number")
        return int(whole)

    def _string(self, at: int) -> tuple[str, int]:
        quote = self._text[at]
        plain = _PLAIN[quote]
        parts: list[str] = []
        at += 1
        while True:
            match = plain.match(self._text, at)
            assert match is not None  # it matches nothing, too
            parts.append(match.group())
            at = match.end()
            if self._text[at : at + 1] == quote:
                return _paired("".join(parts)), at + 1
            part, at = self._escape(at)
            parts.append(part)

    def _escape(self, at: int) -> tuple[str, int]:
        letter = self._text[at + 1 : at + 2]
        if letter in _HEX:
            match = _HEX[letter].match(self._text, at + 2)
            if match:
                return chr(int(match.group(), 16)), match.end()
        elif letter in _ESCAPES:
            return _ESCAPES[letter], at + 2
        raise self._error(at, "a bad escape" if letter else "a string that is not closed")

    def _array(self, at: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        while True:
            at = self._commas(at)
            if self._text[at : at + 1] == "]":
                return result, at + 1
            value, at = self._value(at)
            result.append(value)
            at = self._end_of_item(at, "]")

    def _object(self, at: int) -> tuple[Any, int]:
        pairs: list[tuple[Any, Any]] = []
        plain = True
        while True:
            at = self._commas(at)
            if self._text[at : at + 1] == "}":
                return (dict(pairs) if plain else JavaMap(pairs)), at + 1
            key, at = self._key(at)
            if isinstance(key, (dict, list)):
                plain = False
            at = self._skip(at)
            if self._text[at : at + 1] != ":":
                raise self._error(at, "no colon after a name")
            value, at = self._value(self._skip(at + 1))
            pairs.append((key, value))
            at = self._end_of_item(at, "}")

    def _commas(self, at: int) -> int:
        match = _COMMAS.match(self._text, at)
        return match.end() if match else at

    def _end_of_item(self, at: int, close: str) -> int:
        at = self._skip(at)
        if self._text[at : at + 1] not in (",", close):
            raise self._error(at, "no comma after a value" if at < len(self._text) else "it ends early")
        return at

    def _key(self, at: int) -> tuple[Any, int]:
        """A name in quotes or without, a number (whole ones stay numbers), or an object."""
        head = self._text[at : at + 1]
        if head in ('"', "'", "{", "["):
            return self._value(at)
        match = _NUMBER.match(self._text, at)
        if match:
            number = self._number(match)
            return (number if isinstance(number, int) else match.group()), match.end()
        match = _WORD.match(self._text, at)
        if match:
            return match.group(), match.end()
        raise self._error(at, "no name" if head else "it ends early")


def _paired(text: str) -> str:
    """Escaped surrogates that follow each other are one character."""
    if _LONE_SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


# --- references -------------------------------------------------------------------------------------------------------

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]", re.ASCII)


def _follow(root: Any, text: str) -> Any:
    """Put what they mean in the place of `{"$ref": path}` objects.

    No peer was seen to send any; a path to nowhere is None.
    """
    if len(text) > MAX_REFERRING_TEXT or text.count("$ref") > MAX_REFERENCES:
        raise JsonError("too many references")
    places: list[tuple[Any, Any, str, Any]] = []
    stack: list[tuple[Any, Any]] = [(root, None)]
    while stack:
        holder, above = stack.pop()
        if isinstance(holder, JavaMap):
            stack.extend((one, holder) for one in _inner(holder))
            continue
        for key, value in list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder)):
            if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str):
                places.append((holder, key, value["$ref"], above))
            elif isinstance(value, (dict, list)):
                stack.append((value, holder))
    for holder, key, path, above in places:
        holder[key] = holder if path == "@" else above if path == ".." else _at(root, path)
    return root


def _at(root: Any, path: str) -> Any:
    if not path.startswith("$"):
        return None
    value = root
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return None
        name, index = match.groups()
        if name is not None and isinstance(value, dict):
            value = value.get(name)
        elif index is not None and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
        at = match.end()
    return value


# --- writing ----------------------------------------------------------------------------------------------------------

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
