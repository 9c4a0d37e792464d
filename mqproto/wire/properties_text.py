"""Java's properties text: the form of configuration files and of the bodies of configuration requests
(docs/protocol/broker.md 8.1, docs/protocol/wire.md 16).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mqproto.errors import MQError

_BLANKS: Final = " \t\f"
_RAW_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.|$)", re.DOTALL)
_HEX4: Final = re.compile(r"u[0-9a-fA-F]{4}")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(MQError):
    """A text that Java's reader refuses: a broken `\\uXXXX`.

    `line` is the number of the line where its entry begins, from 1.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


def parse_properties(text: str | bytes) -> dict[str, str]:
    """Keys and values of a properties text; of equal keys the last counts. Bytes are read as ISO-8859-1, as Java does.

    Blanks before the key and around the separator (`=`, `:` or blanks) are dropped, blanks behind the value are kept.
    Raises PropertiesError.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text if isinstance(text, str) else text.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None  # it matches the empty text as well
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescape(key[0], number)] = _unescape(line[separator.end() :], number)
    return found


def format_properties(pairs: Mapping[str, str], *, escaped: bool = False) -> str:
    """`key=value` lines.

    Without `escaped` as Apache answers configuration requests; with it as a file that reads back the same.
    """
    if escaped:
        return "".join([f"{_escape(key, True)}={_escape(value, False)}\n" for key, value in pairs.items()])
    return "".join([f"{key}={value}\n" for key, value in pairs.items()])


def read_plain(text: str) -> dict[str, str]:
    """The answer to a configuration request: `key=value` lines in which nothing is escaped, so a backslash is one;
    others do not count.
    """
    lines = (line.partition("=") for line in _LINE_END.split(text))
    return {key: value for key, mark, value in lines if mark and key}


def edit_properties(text: str, changes: Mapping[str, str]) -> str:
    """A properties text in which the keys of `changes` have those values; every other line, comments too, stays as it
    is.

    A key that the text has gets its value in the place of its first entry, further entries of it go; others follow at
    the end.
    """
    left = dict(changes)
    parts: list[str] = []
    unended = False
    for raw, key, goes_on in _entries(text):
        unended = goes_on and key not in changes
        if key not in changes:
            parts.append(raw)
        elif key in left:
            parts.append(format_properties({key: left.pop(key)}, escaped=True))
    if left and parts:
        if not parts[-1].endswith(("\n", "\r")):
            parts.append("\n")
        if unended:
            parts.append("\n")
    return "".join(parts) + format_properties(left, escaped=True)


def _entries(text: str) -> Iterator[tuple[str, str | None, bool]]:
    """The raw lines of a text, those of one entry together; the key of the entry, None where there is none to be read;
    and whether it would go on in a line after the last.
    """
    raws = iter(_RAW_LINE.findall(text))
    for raw in raws:
        line = raw.strip("\r\n").lstrip(_BLANKS)
        if not line or line[0] in "#!":
            yield raw, None, False
            continue
        whole, last = raw, line
        goes_on = _is_continued(last)
        while goes_on and (following := next(raws, None)) is not None:
            whole += following
            last = following.strip("\r\n")
            line = line[:-1] + last.lstrip(_BLANKS)
            goes_on = _is_continued(last)
        found = _KEY.match(line)
        try:
            yield whole, None if found is None else _unescape(found[0], 0), goes_on
        except PropertiesError:
            yield whole, None, goes_on


def _is_continued(line: str) -> bool:
    """A single backslash at the end: the next line goes on."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with a key, their continuations joined to them, and the numbers that they begin at."""
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, raw in lines:
        line = raw.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1]
            following = next(lines, None)
            if following is None:
                break
            line += following[1].lstrip(_BLANKS)
        yield number, line


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def plain(found: re.Match[str]) -> str:
        escape = found[1]
        if not escape.startswith("u"):
            return _LETTERS.get(escape, escape)
        if not _HEX4.fullmatch(escape):
            raise PropertiesError(line, f"\\{escape} is no \\uXXXX")
        return chr(int(escape[1:], 16))

    joined = _ESCAPE.sub(plain, text)
    # Two escapes may be the halves of one character beyond the basic plane.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, is_key: bool) -> str:
    parts: list[str] = []
    for index, char in enumerate(text):
        if char == " " and (is_key or index == 0):
            parts.append("\\ ")
        elif char in "\\=:#!" and (is_key or char == "\\"):
            parts.append("\\" + char)
        elif char in "\t\n\r\f":
            parts.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        elif " " <= char <= "~":
            parts.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)]
    return "".join(parts)
