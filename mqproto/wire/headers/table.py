"""Tables of fields, which header classes become and which drive decoding, checking and encoding.

A header class lists its fields once: name, kind (`str`, `I32`, `I64`, `bool`), required (no default) or not. The name
on the wire is the camel-case form of the Python name unless `header` is given another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, TypeVar, cast, dataclass_transform

from mqproto.errors import HeaderError

#: Whole numbers of 32 and 64 bits with sign: Java's int and long.
I32: TypeAlias = Annotated[int, 32]
I64: TypeAlias = Annotated[int, 64]

#: Longer texts are no numbers of ours; leading zeros are allowed up to here.
_DIGITS_MAX: Final = 64
#: Digits of the largest numbers by kind: whatever has fewer of them, and nothing else, is one that fits, and needs no
#: reader.
_DIGITS: Final = {"I32": 10, "I64": 19}


def _number(name: str, text: str, bits: int) -> int:
    """Strictly decimal with an optional sign, as Java parses it: no blanks, no underscores, no fraction (COD-05)."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise HeaderError(name, text, "is no whole number")
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise HeaderError(name, text, f"does not fit {bits} bits")
    return number


def _i32(name: str, text: str) -> int:
    return _number(name, text, 32)


def _i64(name: str, text: str) -> int:
    return _number(name, text, 64)


def _bool(name: str, text: str) -> bool:
    """Java's rule: the word true in any case, and everything else is false, "1" too."""
    return text == "true" or text.lower() == "true"


_Reader: TypeAlias = Callable[[str, str], Any]
_READERS: Final[dict[str, _Reader | None]] = {"str": None, "I32": _i32, "I64": _i64, "bool": _bool}


@dataclass(frozen=True, slots=True)
class Field:
    """One extField: Python name, wire name, kind, whether the receiver needs it, and what stands for it when it is
    absent.
    """

    attribute: str
    name: str
    kind: str
    required: bool
    default: Any


class Header:
    """Base of the header classes: typed extFields of one kind of request or answer."""

    __slots__ = ()

    #: The table, one row for each attribute in order.
    table: ClassVar[tuple[Field, ...]] = ()
    _plan: ClassVar[tuple[tuple[str, int, _Reader | None, bool, Any], ...]] = ()

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self:
        """Out of extFields. Unknown names are ignored.

        Raises `HeaderError` when a required field is missing or a number is malformed or out of range.
        """
        values: list[Any] = []
        for name, digits, read, required, default in cls._plan:
            text = fields.get(name)
            if text is None:
                if required:
                    raise HeaderError(name, None, "is missing")
                values.append(default)
            elif read is None:
                values.append(text)
            elif len(text) < digits and text.isascii() and text.isdigit():
                values.append(int(text))
            else:
                values.append(read(name, text))
        return cast("Callable[..., Self]", cls)(*values)

    def encode(self) -> dict[str, str]:
        """As extFields: unset ones left out, booleans as `true` and `false`."""
        result: dict[str, str] = {}
        for field in self.table:
            value = getattr(self, field.attribute)
            if value is None:
                continue
            if value is True or value is False:
                value = "true" if value else "false"
            result[field.name] = str(value)
        return result


H = TypeVar("H", bound=Header)


def _camel(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass_transform()
def header(**names: str) -> Callable[[type[H]], type[H]]:
    """Make a slotted dataclass with a table of a class; `names` gives wire names that are not the camel-case form."""

    def make(plain: type[H]) -> type[H]:
        made = dataclass(slots=True)(plain)
        made.table = tuple(
            Field(
                one.name,
                names.get(one.name) or _camel(one.name),
                str(one.type).partition(" ")[0],
                one.default is MISSING,
                None if one.default is MISSING else one.default,
            )
            for one in fields(cast(Any, made))
        )
        made._plan = tuple(
            (row.name, _DIGITS.get(row.kind, 0), _READERS[row.kind], row.required, row.default) for row in made.table
        )
        return made

    return make
