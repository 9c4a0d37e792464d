"""Command of the remoting protocol: one request or response as a value, and the numbers of its header
(docs/protocol/wire.md 1, 2).
"""

from __future__ import annotations

from typing import Final

from mqproto.wire.codes import VERSION, Language

#: Serialize types.
JSON: Final = 0
BINARY: Final = 1

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

#: The language of our own commands.
LANGUAGE: Final = int(Language.PYTHON)
LANGUAGE_NAME: Final = Language.PYTHON.name
#: A language that is unset, or one that we do not know.
NO_LANGUAGE: Final = -1
#: Stands for the opaque of a header without one. We never send it, so it can answer none of our calls.
NO_OPAQUE: Final = -1

#: Names of the languages by their ordinals, and back.
LANGUAGE_NAMES: Final[list[str]] = [language.name for language in Language]
LANGUAGES: Final[dict[str, int]] = {language.name: int(language) for language in Language}


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
