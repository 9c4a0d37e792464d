"""Frames and command headers, in both serialisations (docs/protocol/wire.md 1 to 6).

Owns: the length word, the header word, JSON and binary headers, what is refused and with which limits.
Leaves to others: meaning of codes and fields (`headers`), bodies, who answers whom (connections).

`decode` and `FrameSplitter.feed` raise `RemoteProtocolError` and nothing else, whatever the bytes are. The encoders
raise `LocalProtocolError` for what no frame can carry. This module is a hot path: plain typed code that mypyc compiles
as it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as quote
from json.scanner import make_scanner
from typing import Any, Final

from mqproto.errors import LocalProtocolError, RemoteProtocolError
from mqproto.wire.codes import VERSION, Language
from mqproto.wire.fastjson import JsonError, NumberText, constant, loads, to_text, truncate, whole_text

#: The largest frame that a peer accepts, length word included (docs/protocol/wire.md 1).
MAX_FRAME: Final = 16_777_216
#: The largest value of the length word.
MAX_TOTAL: Final = MAX_FRAME - 4
#: The smallest: a header word, no header, no body.
MIN_TOTAL: Final = 4
_HEADER_MASK: Final = 0xFFFFFF
#: A header that is not strict JSON is read by the tolerant reader only up to here: no peer sends such headers, and that
#: reader is slow.
MAX_TOLERANT_HEADER: Final = 1 << 16

#: Serialize types.
JSON: Final = 0
BINARY: Final = 1

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

#: What we say we are written in.
LANGUAGE: Final = int(Language.PYTHON)
LANGUAGE_NAME: Final = Language.PYTHON.name
#: A language that is unset, or one that we do not know.
NO_LANGUAGE: Final = -1
#: Stands for the opaque of a header without one. We never send it, so it can answer none of our calls.
NO_OPAQUE: Final = -1

_I32_MAX: Final = 0x7FFFFFFF
_I32_MIN: Final = -0x80000000

_LANGUAGE_NAMES: Final[list[str]] = [language.name for language in Language]
_LANGUAGES: Final[dict[str, int]] = {language.name: int(language) for language in Language}

_WORD: Final = struct.Struct(">i")
_UNSIGNED: Final = struct.Struct(">I")
_TWO_WORDS: Final = struct.Struct(">ii")
_HALF: Final = struct.Struct(">h")
_BINARY_HEAD: Final = struct.Struct(">hBhiii")

#: Of a binary header without remark and fields.
_BINARY_FIXED: Final = _BINARY_HEAD.size + 4
#: The most frequent answer, but for its numbers.
_BARE_RESPONSE: Final = (
    f'{{"code":%d,"flag":1,"language":"{LANGUAGE_NAME}","opaque":%d,"version":{VERSION}}}'
).encode()
_WHITE: Final = " \t\r\n"


#: Of a text and where to begin: the value there, and where it ends. Raises ValueError or StopIteration.
_scan: Final[Callable[[str, int], tuple[Any, int]]] = make_scanner(
    json.JSONDecoder(strict=False, parse_float=NumberText, parse_constant=constant)  # type: ignore[arg-type]  # it is asked for its settings only
)


class Command:
    """One request or response.

    `fields` are the extFields, all text, empty when there are none; `language` is an ordinal (`NO_LANGUAGE` when unset
    or unknown); `opaque` is `NO_OPAQUE` when the header had none. A decoded `body` is a slice of the frame: bytes of
    bytes, a view of a view.
    """

    __slots__ = ("body", "code", "fields", "flag", "language", "opaque", "remark", "serialize_type", "version")

    def __init__(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        language: int = LANGUAGE,
        version: int = VERSION,
        serialize_type: int = JSON,
    ) -> None:
        self.code = code
        self.fields: dict[str, str] = {} if fields is None else fields
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.language = language
        self.version = version
        self.serialize_type = serialize_type

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    def _facts(self) -> tuple[object, ...]:
        return (
            self.code,
            self.fields,
            self.body,
            self.opaque,
            self.flag,
            self.remark,
            self.language,
            self.version,
            self.serialize_type,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Command) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        remark = "" if self.remark is None else f" remark={self.remark!r}"
        return f"<{kind} {self.code} opaque={self.opaque}{remark} fields={self.fields} body of {len(self.body)}>"


# --- frames -----------------------------------------------------------------------------------------------------------


class FrameSplitter:
    """Cuts a byte stream into frames.

    The events do not depend on how the stream was split. A length word that no frame can have is refused as soon as its
    four bytes are there, without waiting for what it claims. Frames that came before it are given out first: then
    `fault` holds the error, and the next `feed` raises it. So the owner of a link asks `fault` once it has handled what
    `feed` gave.
    """

    __slots__ = ("_need", "_rest", "fault")

    def __init__(self) -> None:
        self._rest = bytearray()
        #: How many bytes `_rest` must hold before there is something to do.
        self._need = 4
        self.fault: RemoteProtocolError | None = None

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame that are kept."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, each without its length word.

        Raises `RemoteProtocolError` when the stream is broken and no frame is left to give out.
        """
        if self.fault is not None:
            raise self.fault
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._need:
                return []
            data = bytes(rest)
            rest.clear()
        frames: list[bytes] = []
        at = 0
        size = len(data)
        while size - at >= 4:
            total: int = _WORD.unpack_from(data, at)[0]
            if total < MIN_TOTAL or total > MAX_TOTAL:
                return self._refuse(total, data[at : at + 16], frames)
            end = at + 4 + total
            if end > size:
                self._need = 4 + total
                rest += data[at:]
                return frames
            frames.append(data[at + 4 : end])
            at = end
        self._need = 4
        if at < size:
            rest += data[at:]
        return frames

    def _refuse(self, total: int, head: bytes, frames: list[bytes]) -> list[bytes]:
        self.fault = RemoteProtocolError(
            f"not a remoting frame: length {total} is out of range, the bytes are {head!r}"
        )
        if frames:
            return frames
        raise self.fault


def decode(frame: bytes | memoryview) -> Command:
    """The command of one frame, given without its length word. Raises `RemoteProtocolError`."""
    if len(frame) < 4:
        raise RemoteProtocolError(f"frame of {len(frame)} bytes has no header word")
    word: int = _UNSIGNED.unpack_from(frame)[0]
    kind = word >> 24
    end = 4 + (word & _HEADER_MASK)
    if end > len(frame):
        raise RemoteProtocolError(f"header of {end - 4} bytes in a frame that has room for {len(frame) - 4}")
    if kind == JSON:
        return _decode_json(str(frame[4:end], "utf-8", "replace"), frame[end:])
    if kind == BINARY:
        return _decode_binary(frame[4:end], frame[end:])
    raise RemoteProtocolError(f"unknown serialize type {kind}")


def json_header_end(frame: bytes) -> int:
    """Where the JSON header of a frame ends that is given without its length word; 0 where it has none, or not the
    whole of it.
    """
    if len(frame) < 4:
        return 0
    word: int = _UNSIGNED.unpack_from(frame)[0]  # of a JSON header the top byte is 0
    return word + 4 if word <= _HEADER_MASK and word + 4 <= len(frame) else 0


# --- JSON headers -----------------------------------------------------------------------------------------------------


def _decode_json(text: str, body: bytes | memoryview) -> Command:
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
        language = _LANGUAGES[members["language"]]
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
        return _LANGUAGES.get(value.upper(), NO_LANGUAGE)
    if type(value) is int and 0 <= value < len(_LANGUAGE_NAMES):
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


def _json_header(
    code: int, fields: Mapping[str, str] | None, flag: int, language: int, opaque: int, remark: str | None, version: int
) -> bytes:
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
    name = f',"language":"{_LANGUAGE_NAMES[language]}"' if 0 <= language < len(_LANGUAGE_NAMES) else ""
    note = "" if remark is None else f',"remark":{quote(remark)}'
    text = f'{{"code":{code}{middle},"flag":{flag}{name},"opaque":{opaque}{note},"version":{version}}}'
    return text.encode("utf-8", "replace")


# --- binary headers ---------------------------------------------------------------------------------------------------


def _decode_binary(header: bytes | memoryview, body: bytes | memoryview) -> Command:
    size = len(header)
    if size < _BINARY_FIXED:
        raise RemoteProtocolError(f"binary header of {size} bytes is cut off")
    code, language, version, opaque, flag, length = _BINARY_HEAD.unpack_from(header)
    if length < 0 or length > size - _BINARY_FIXED:
        raise RemoteProtocolError(f"remark of {length} bytes in a binary header of {size}")
    at = _BINARY_HEAD.size
    remark = str(header[at : at + length], "utf-8", "replace") if length else None
    at += length
    length = _WORD.unpack_from(header, at)[0]
    at += 4
    if length > size - at:
        raise RemoteProtocolError(f"fields of {length} bytes in a binary header of {size}")
    fields = _binary_fields(header, at, at + length) if length > 0 else None
    if language >= len(_LANGUAGE_NAMES):
        language = NO_LANGUAGE
    return Command(code, fields, body, opaque, flag, remark, language, version, BINARY)


def _binary_fields(header: bytes | memoryview, at: int, end: int) -> dict[str, str]:
    """Entries until `end`.

    A later value replaces an earlier one; an empty name or value is none at all, as 4.9 has it.
    """
    fields: dict[str, str] = {}
    while at < end:
        if end - at < 6:
            raise RemoteProtocolError("binary header ends within a field")
        length = _HALF.unpack_from(header, at)[0]
        at += 2
        if length < 0 or length > end - at - 4:
            raise RemoteProtocolError(f"field name of {length} bytes does not fit its binary header")
        name = str(header[at : at + length], "utf-8", "replace")
        at += length
        length = _WORD.unpack_from(header, at)[0]
        at += 4
        if length < 0 or length > end - at:
            raise RemoteProtocolError(f"field value of {length} bytes does not fit its binary header")
        if length == 0:
            fields.pop(name, None)
        elif name:
            fields[name] = str(header[at : at + length], "utf-8", "replace")
        at += length
    return fields


def _binary_header(
    code: int, fields: Mapping[str, str] | None, flag: int, language: int, opaque: int, remark: str | None, version: int
) -> bytes:
    parts: list[bytes] = []
    try:
        for name, value in fields.items() if fields else ():
            key = name.encode("utf-8", "replace")
            data = value.encode("utf-8", "replace")
            parts += (_HALF.pack(len(key)), key, _WORD.pack(len(data)), data)
    except (AttributeError, TypeError):
        raise LocalProtocolError(f"fields are text only: {fields!r:.200}") from None
    except struct.error as error:
        raise LocalProtocolError(f"field name is too long: {error}") from None
    block = b"".join(parts)
    note = b"" if remark is None else remark.encode("utf-8", "replace")
    try:
        head = _BINARY_HEAD.pack(code, language & 0xFF, version, opaque, flag, len(note))
    except struct.error as error:
        # above all a code of more than 16 bits: Java cuts it, and it arrives as another one
        raise LocalProtocolError(
            f"code {code}, version {version} or opaque {opaque} does not fit a binary header: {error}"
        ) from None
    return b"".join((head, note, _WORD.pack(len(block)), block))


# --- encoding ---------------------------------------------------------------------------------------------------------


def _frame(
    kind: int,
    code: int,
    fields: Mapping[str, str] | None,
    flag: int,
    language: int,
    opaque: int,
    remark: str | None,
    version: int,
    body_length: int,
) -> bytes:
    """Length word, header word, header."""
    if kind == JSON:
        header = _json_header(code, fields, flag, language, opaque, remark, version)
    elif kind == BINARY:
        header = _binary_header(code, fields, flag, language, opaque, remark, version)
    else:
        raise LocalProtocolError(f"unknown serialize type {kind}")
    size = len(header)
    if 4 + size + body_length > MAX_TOTAL:
        raise LocalProtocolError(
            f"frame of {8 + size + body_length} bytes (header {size}) is above the limit of {MAX_FRAME}"
        )
    return _TWO_WORDS.pack(4 + size + body_length, kind << 24 | size) + header


def encode_head(command: Command, body_length: int) -> bytes:
    """Everything of a frame up to its body, for bodies that are sent behind it as views.

    `command.body` is not looked at.
    """
    return _frame(
        command.serialize_type,
        command.code,
        command.fields,
        command.flag,
        command.language,
        command.opaque,
        command.remark,
        command.version,
        body_length,
    )


def encode(command: Command) -> bytes:
    """The whole frame, length word included."""
    body = command.body
    head = encode_head(command, len(body))
    return b"".join((head, body)) if body else head


def encode_request(
    code: int,
    opaque: int,
    fields: Mapping[str, str] | None = None,
    body: bytes | memoryview = b"",
    *,
    oneway: bool = False,
    version: int = VERSION,
    serialize_type: int = JSON,
) -> bytes:
    """The frame of a request of ours."""
    head = _frame(
        serialize_type, code, fields, ONEWAY_FLAG if oneway else 0, LANGUAGE, opaque, None, version, len(body)
    )
    return b"".join((head, body)) if body else head


def encode_response(
    opaque: int,
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes | memoryview = b"",
    *,
    remark: str | None = None,
    serialize_type: int = JSON,
) -> bytes:
    """The frame of an answer of ours; `opaque` and `serialize_type` are those of the request."""
    head = _frame(serialize_type, code, fields, RESPONSE_FLAG, LANGUAGE, opaque, remark, VERSION, len(body))
    return b"".join((head, body)) if body else head
