"""Tolerant reader of JSON: takes what Java's library takes and strict JSON has not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from mqproto.wire.fastjson.values import LONE_SURROGATE, MAX_DEPTH, MAX_DIGITS, JavaMap, JsonError

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


class TolerantReader:
    """Reader of one text: one pass, one method for each form, depth bounded."""

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
    if LONE_SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
