"""Tables of members, which body classes become and which drive reading and writing.

A body class names each member once: its Java name, its kind, what stands for it when it is absent. Reading is as
lenient as the Java peers are (docs/protocol/wire.md 14): absent and null members are the default, unknown ones are
skipped, names match in any case where the exact one is missing, numbers may be texts, enums may be ordinals. Writing
leaves None out and sorts members by name, as Java does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, dataclass_transform, overload

from mqproto.message import MessageQueue
from mqproto.wire.fastjson import MAX_TOLERANT, JavaMap, JsonError, dumps, dumps_pretty, loads, to_text, truncate

T = TypeVar("T")
K = TypeVar("K")
E = TypeVar("E", bound=Enum)
B = TypeVar("B", bound="Body")

LARGE: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Table:
    """A map or a list as the JSON writer takes it, one entry at a time: pairs of key and value if `paired`, else values
    alone.
    """

    entries: Iterator[Any]
    paired: bool


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """Kind of value: read from what the JSON reader gives (never None), turned into what the writer takes.

    What may be long has `table`: it gives the entries that there are now, each to be written when it is asked for.
    """

    read: Callable[[Any], T]
    write: Callable[[T], Any]
    table: Callable[[T], Table] | None = None


def _same(value: Any) -> Any:
    return value


def _whole(bits: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = truncate(value)
        if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise JsonError(f"no whole number of {bits} bits: {str(value)[:40]}")
        return number

    return read


def _float(value: Any) -> float:
    if isinstance(value, str) and not value.isascii():
        raise JsonError(f"no number: {value[:40]}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise JsonError(f"no number: {str(value)[:40]}") from None


def _bool(value: Any) -> bool:
    """True only for what Java takes for true: a misspelt false (one client sends `flase`) is false."""
    if isinstance(value, str):
        return value.lower() in ("true", "1", "y", "t")
    return value is True or value == 1


def optional(kind: Kind[T]) -> Kind[T | None]:
    """The same, with None for what is not there."""
    return Kind(kind.read, lambda value: None if value is None else kind.write(value))


TEXT: Final[Kind[str]] = Kind(to_text, _same)
OPTIONAL_TEXT: Final = optional(TEXT)
I32: Final = Kind(_whole(32), _same)
I64: Final = Kind(_whole(64), _same)
F64: Final = Kind(_float, _same)
BOOL: Final = Kind(_bool, _same)
#: For the attribute that keeps the members that a class does not know, to write them back as they were.
UNKNOWN: Final[Kind[dict[str, Any]]] = Kind(_same, _same)


def enum_of(enum: type[E]) -> Kind[E | None]:
    """Enums: by name or by ordinal; an unknown name is unset (None), an ordinal out of range an error."""
    names = {str(one.value): one for one in enum}
    ordinals = list(enum)

    def read(value: Any) -> E | None:
        if isinstance(value, str):
            return names.get(value)
        number = truncate(value)
        if number is None or not 0 <= number < len(ordinals):
            raise JsonError(f"no {enum.__name__}: {str(value)[:40]}")
        return ordinals[number]

    return Kind(read, lambda one: None if one is None else one.value)


def list_of(kind: Kind[T]) -> Kind[list[T]]:
    """Arrays, and Java's sets. Nulls within are left out."""

    def read(value: Any) -> list[T]:
        if not isinstance(value, list) or isinstance(value, JavaMap):
            raise JsonError(f"no array: {type(value).__name__}")
        return [kind.read(one) for one in value if one is not None]

    def table(values: list[T]) -> Table:
        return Table(map(kind.write, list(values)), paired=False)

    return Kind(read, lambda values: [kind.write(one) for one in values], table)


def map_of(key: Kind[K], kind: Kind[T]) -> Kind[dict[K, T]]:
    """Maps with names or numbers as keys (bare or quoted). Entries whose value is null are left out."""

    def read(value: Any) -> dict[K, T]:
        if not isinstance(value, dict):
            raise JsonError(f"no object: {type(value).__name__}")
        return {key.read(one): kind.read(entry) for one, entry in value.items() if entry is not None}

    def table(entries: dict[K, T]) -> Table:
        return Table(((key.write(one), kind.write(entry)) for one, entry in list(entries.items())), paired=True)

    return Kind(read, lambda entries: {key.write(one): kind.write(entry) for one, entry in entries.items()}, table)


def read_queue(value: Any) -> MessageQueue:
    """A message queue (docs/protocol/wire.md 15, MQ)."""
    if not isinstance(value, dict):
        raise JsonError(f"no message queue: {type(value).__name__}")
    return MessageQueue(
        to_text(value.get("topic") or ""), to_text(value.get("brokerName") or ""), I32.read(value.get("queueId") or 0)
    )


def write_queue(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


QUEUE: Final = Kind(read_queue, write_queue)


def queue_map(kind: Kind[T]) -> Kind[dict[MessageQueue, T]]:
    """Maps with message queues as keys: objects, or objects within quotes as newer Java reads them too."""

    def read(value: Any) -> dict[MessageQueue, T]:
        if isinstance(value, JavaMap):
            pairs = list(value)
        elif isinstance(value, dict):
            pairs = list(value.items())
        else:
            raise JsonError(f"no map of queues: {type(value).__name__}")
        result: dict[MessageQueue, T] = {}
        for queue, entry in pairs:
            if entry is not None:
                result[read_queue(loads(queue) if isinstance(queue, str) else queue)] = kind.read(entry)
        return result

    def table(entries: dict[MessageQueue, T]) -> Table:
        return Table(((write_queue(queue), kind.write(entry)) for queue, entry in list(entries.items())), paired=True)

    return Kind(
        read,
        lambda entries: JavaMap((write_queue(queue), kind.write(entry)) for queue, entry in entries.items()),
        table,
    )


@dataclass(frozen=True, slots=True)
class BodyMember:
    """One member: attribute, Java name, kind, a second name that is read and written too, and the value when absent."""

    attribute: str
    name: str
    kind: Kind[Any]
    also: str
    default: Any
    factory: Callable[[], Any] | None

    def value_in(self, members: Mapping[Any, Any]) -> Any:
        """What a JSON object says of this member, or what stands for it."""
        value = members.get(self.name)
        if value is None and self.also:
            value = members.get(self.also)
        if value is not None:
            value = self.kind.read(value)
        if value is None:
            return self.factory() if self.factory is not None else self.default
        return value


@overload
def member(name: str, kind: Kind[T], *, default: T, also: str = "") -> T: ...
@overload
def member(name: str, kind: Kind[T], *, default_factory: Callable[[], T], also: str = "") -> T: ...
def member(name: str, kind: Kind[T], *, default: Any = MISSING, default_factory: Any = MISSING, also: str = "") -> Any:
    """Declare a member.

    `also` is a second Java name of the same value: read where the first is absent, written beside it.
    """
    facts = {"name": name, "kind": kind, "also": also}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=facts)
    return field(default=default, metadata=facts)


class Body:
    """Base of the body classes."""

    __slots__ = ()

    members: ClassVar[tuple[BodyMember, ...]] = ()
    _written: ClassVar[tuple[tuple[str, str, Kind[Any]], ...]] = ()
    _names: ClassVar[dict[str, str]] = {}
    #: The attribute that keeps unknown members, or "".
    _keeps: ClassVar[str] = ""
    #: How much text that is no strict JSON is read. `LARGE` where Java never writes strict JSON and a large table is in
    #: order.
    limit: ClassVar[int] = MAX_TOLERANT

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Out of what the JSON reader gave. Raises `JsonError`."""
        if not isinstance(value, dict):
            raise JsonError(f"{cls.__name__} is no object but {type(value).__name__}")
        strangers = [name for name in value if name not in cls._names]
        if strangers:
            value = cls._by_other_case(value, strangers)
        result = cast("Callable[..., Self]", cls)(**{one.attribute: one.value_in(value) for one in cls.members})
        if cls._keeps:
            setattr(
                result, cls._keeps, {name: value[name] for name in strangers if name in value and isinstance(name, str)}
            )
        return result

    @classmethod
    def _by_other_case(cls, value: dict[Any, Any], strangers: list[Any]) -> dict[Any, Any]:
        """Give members whose name has another case their own name, unless that is there."""
        own = {name.lower(): name for name in cls._names}
        result = dict(value)
        for name in strangers:
            exact = own.get(name.lower()) if isinstance(name, str) else None
            if exact is not None and exact not in result:
                result[exact] = result.pop(name)
        return result

    @classmethod
    def from_json(cls, text: bytes | str | memoryview) -> Self:
        """Out of text as a Java, C++, Go or Node peer wrote it. Raises `JsonError`."""
        return cls.from_value(loads(bytes(text) if isinstance(text, memoryview) else text, cls.limit))

    def to_value(self) -> dict[str, Any]:
        """As the JSON writer takes it: members sorted by name, None left out."""
        result: dict[str, Any] = {}
        for name, attribute, kind in self._written:
            value = getattr(self, attribute)
            written = None if value is None else kind.write(value)
            if written is not None:
                result[name] = written
        if self._keeps:
            unknown = getattr(self, self._keeps)
            if unknown:
                return dict(sorted({**unknown, **result}.items()))
        return result

    def to_members(self) -> list[tuple[str, Any]]:
        """The members of `to_value`, with those that may be long as `Table`."""
        result: dict[str, Any] = {}
        if self._keeps:
            result |= getattr(self, self._keeps)
        for name, attribute, kind in self._written:
            value = getattr(self, attribute)
            written = None if value is None else kind.write(value) if kind.table is None else kind.table(value)
            if written is not None:
                result[name] = written
        return sorted(result.items())

    def to_json(self) -> bytes:
        """As every peer takes it (docs/protocol/wire.md 14): compact UTF-8."""
        return dumps(self.to_value()).encode("utf-8", "replace")

    def to_pretty(self) -> str:
        """As Apache's configuration files are laid out (docs/protocol/store.md 10)."""
        return dumps_pretty(self.to_value())


@dataclass_transform(field_specifiers=(member,))
def body(plain: type[B]) -> type[B]:
    """Make a slotted dataclass with a table of members of a class."""
    made = dataclass(slots=True)(plain)
    table: list[BodyMember] = []
    for one in fields(cast(Any, made)):
        if one.metadata["kind"] is UNKNOWN:
            made._keeps = one.name
            continue
        factory = None if one.default_factory is MISSING else one.default_factory
        default = None if one.default is MISSING else one.default
        table.append(
            BodyMember(one.name, one.metadata["name"], one.metadata["kind"], one.metadata["also"], default, factory)
        )
    names = [(name, row.attribute, row.kind) for row in table for name in (row.name, row.also) if name]
    made.members = tuple(table)
    made._written = tuple(sorted(names, key=lambda row: row[0]))
    made._names = {name: attribute for name, attribute, _ in names}
    return made


def nested(inner: type[B]) -> Kind[B]:
    """A body within a body."""
    return Kind(inner.from_value, lambda one: one.to_value())
