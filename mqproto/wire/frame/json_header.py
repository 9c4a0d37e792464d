"""JSON header of a frame: read and written (docs/protocol/wire.md 2).

Strict JSON goes through the scanner of the standard library, anything else member by member as Java takes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as quote
from json.scanner import make_scanner
from typing import Any, Final

from mqproto.errors import LocalProtocolError, RemoteProtocolError
from mqproto.wire.codes import VERSION, Language
from mqproto.wire.fastjson import JsonError, NumberText, constant, loads, to_text, truncate, whole_text
from mqproto.wire.frame.command import (
    JSON,
    LANGUAGE,
    LANGUAGE_NAME,
    LANGUAGE_NAMES,
    LANGUAGES,
    NO_LANGUAGE,
    NO_OPAQUE,
    RESPONSE_FLAG,
    Command,
)

#: A header that is not strict JSON is read by the tolerant reader only up to here: no peer sends such headers, and that
#: reader is slow.
MAX_TOLERANT_HEADER: Final = 1 << 16

_I32_MAX: Final = 0x7FFFFFFF
_I32_MIN: Final = -0x80000000
_WHITE: Final = " \t\r\n"
#: The most frequent answer, but for its numbers.
_BARE_RESPONSE: Final = (
    f'{{"code":%d,"flag":1,"language":"{LANGUAGE_NAME}","opaque":%d,"version":{VERSION}}}'
).encode()

#: Of a text and where to begin: the value there, and where it ends. Raises ValueError or StopIteration.
_scan: Final[Callable[[str, int], tuple[Any, int]]] = make_scanner(
    json.JSONDecoder(strict=False, parse_float=NumberText, parse_constant=constant)  # type: ignore[arg-type]  # it is asked for its settings only
)


def decode_json_header(text: str, body: bytes | memoryview) -> Command:
    """The command of a header's text. Raises `RemoteProtocolError`."""

    try:
        members, end = _scan(text, 0)
        if end != len(text) and text[end:].strip(_WHITE):
            raise RemoteProtocolError(f"text after the header: {text[end : end + 40]!r}")
    except (ValueError, RecursionError, StopIteration):
        members = _tolerant(text)
    try:
        code = members["code"]
        opaque = members["opaque"]
        flag = members["flag"]
        version = members["version"]
        language = LANGUAGES[members["language"]]
        fields = members.get("extFields")
        remark = members.get("remark")
    except (KeyError, TypeError):
        return _decode_odd(members, body)
    if (
        type(code) is not int
        or type(opaque) is not int
        or type(flag) is not int
        or type(version) is not int
        or not _I32_MIN <= code <= _I32_MAX
        or not _I32_MIN <= opaque <= _I32_MAX
        or not _I32_MIN <= flag <= _I32_MAX
        or not _I32_MIN <= version <= _I32_MAX
        or (remark is not None and type(remark) is not str)
    ):
        return _decode_odd(members, body)
    if fields is not None:
        try:
            # The cheapest way to see that every value is text, and that none can hold half a surrogate pair.
            plain = "".join(fields.values()).isascii() and "".join(fields).isascii()
        except (TypeError, AttributeError):
            plain = False
        if not plain:
            fields = _texts(fields)
    if remark is not None and not remark.isascii():
        remark = _text(remark)
    return Command(code, fields, body, opaque, flag, remark, language, version, JSON)


def _tolerant(text: str) -> Any:
    """Java reads headers with the library that reads bodies, so comments, single quotes and the like pass there too."""
    if len(text) > MAX_TOLERANT_HEADER:
        raise RemoteProtocolError(f"header of {len(text)} characters is not strict JSON")
    try:
        return loads(text)
    except JsonError as error:
        raise RemoteProtocolError(f"header is not JSON: {error}") from None


def _decode_odd(members: Any, body: bytes | memoryview) -> Command:
    """A header with something missing or of an unusual type, member by member as Java takes it (docs/protocol/wire.md
    1, 2).
    """
    if type(members) is not dict:
        raise RemoteProtocolError(f"header is no object but {type(members).__name__}")
    named = {name.lower(): value for name, value in members.items() if isinstance(name, str)}
    named.update((name, value) for name, value in members.items() if isinstance(name, str))
    fields = named.get("extFields", named.get("extfields"))
    remark = named.get("remark")
    return Command(
        _i32("code", named.get("code"), 0),
        None if fields is None else _texts(fields),
        body,
        _i32("opaque", named.get("opaque"), NO_OPAQUE),
        _i32("flag", named.get("flag"), 0),
        None if remark is None else _text(remark),
        _language(named["language"]) if "language" in named else int(Language.JAVA),
        _i32("version", named.get("version"), 0),
        JSON,
    )


def _i32(name: str, value: Any, default: int) -> int:
    number = default if value is None else truncate(value)
    if number is None or not _I32_MIN <= number <= _I32_MAX:
        raise RemoteProtocolError(f"header member {name} is no 32-bit number: {str(value)[:40]}")
    return number


def _language(value: Any) -> int:
    """Names in any case, unknown ones unset; numbers only where they are ordinals of the list."""
    if value is None:
        return NO_LANGUAGE
    if type(value) is str:
        return LANGUAGES.get(value.upper(), NO_LANGUAGE)
    if type(value) is int and 0 <= value < len(LANGUAGE_NAMES):
        return value
    raise RemoteProtocolError(f"header member language is out of range: {str(value)[:40]}")


def _text(value: Any) -> str:
    """Scalars as they were written, nested values as JSON, and `?` for half a surrogate pair, so that all that comes in
    can go out.
    """
    try:
        return whole_text(to_text(value))
    except JsonError as error:
        raise RemoteProtocolError(f"header: {error}") from None


def _texts(fields: Any) -> dict[str, str]:
    """extFields in any shape: nulls are left out."""
    if type(fields) is not dict:
        raise RemoteProtocolError(f"extFields are no object but {type(fields).__name__}")
    return {_text(name): _text(value) for name, value in fields.items() if value is not None}


def encode_json_header(
    code: int, fields: Mapping[str, str] | None, flag: int, language: int, opaque: int, remark: str | None, version: int
) -> bytes:
    """The header alone. Raises `LocalProtocolError` for what it cannot carry."""
    if not (_I32_MIN <= code <= _I32_MAX and _I32_MIN <= opaque <= _I32_MAX):
        raise LocalProtocolError(f"code {code} or opaque {opaque} is no 32-bit number")
    if not fields and remark is None and flag == RESPONSE_FLAG and language == LANGUAGE and version == VERSION:
        return _BARE_RESPONSE % (code, opaque)
    middle = ""
    if fields:
        try:
            middle = (
                ',"extFields":{' + ",".join([quote(name) + ":" + quote(value) for name, value in fields.items()]) + "}"
            )
        except TypeError:
            raise LocalProtocolError(f"fields are text only: {fields!r:.200}") from None
    name = f',"language":"{LANGUAGE_NAMES[language]}"' if 0 <= language < len(LANGUAGE_NAMES) else ""
    note = "" if remark is None else f',"remark":{quote(remark)}'
    text = f'{{"code":{code}{middle},"flag":{flag}{name},"opaque":{opaque}{note},"version":{version}}}'
    return text.encode("utf-8", "replace")
