"""Registration of a broker at a name server: the body of REGISTER_BROKER 103 (docs/protocol/wire.md 15;
docs/protocol/broker.md 1.6).

Such a body may hold ten thousand topics, and reading or writing it in one go would take 100 ms. So both can be done in
slices: `json_pieces` and `compressed_pieces` give the text piece by piece, `read_registration` yields between slices of
its work.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, TypeVar

from mqproto.errors import RemoteProtocolError
from mqproto.wire.bodies.config import DataVersion, TopicConfig, TopicFilterType, TopicTable
from mqproto.wire.bodies.members import TEXT, Body, body, list_of, member, nested
from mqproto.wire.bodies.pieces import json_pieces
from mqproto.wire.codes import VERSION, VERSION_5
from mqproto.wire.fastjson import JsonError, constant, dumps, loads

T = TypeVar("T")
Steps = Generator[None, None, T]

#: Release 3.0.11: from here on a registration names filter servers.
_VERSION_WITH_FILTER_SERVERS: Final = 37
#: What a compressed registration may grow to: a table of some 200,000 topics.
MAX_INFLATED: Final = 64 << 20
#: Topics that are read in one slice: about a millisecond.
SLICE_TOPICS: Final = 128
#: The same for topics that are only passed over, and for bytes that are inflated.
_SLICE_SKIPPED: Final = 2048
_SLICE_INFLATED: Final = 1 << 18

_WORD: Final = struct.Struct(">i")
_ZLIB: Final = 0x78
_TABLE: Final = "topicConfigTable"
_WRAPPER: Final = "topicConfigSerializeWrapper"
_VERSION: Final = "dataVersion"
_SERVERS: Final = "filterServerList"
_BLANKS: Final = frozenset(" \t\n\r")
_scan: Final = json.JSONDecoder(strict=False, parse_constant=constant).raw_decode


@body
class RegisterBrokerBody(Body):
    """The topics of a broker, all or some, under the version of all, and its filter servers (4.4)."""

    topic_table: TopicTable = member(_WRAPPER, nested(TopicTable), default_factory=TopicTable)
    filter_servers: list[str] = member(_SERVERS, list_of(TEXT), default_factory=list)

    def json_pieces(self) -> Iterator[str]:
        """The text of `to_json`, a topic at a time."""
        yield f'{{"{_SERVERS}":{dumps(self.filter_servers)},"{_WRAPPER}":'
        yield from json_pieces(self.topic_table)
        yield "}"

    def compressed_pieces(self, version: int = VERSION) -> Iterator[bytes]:
        """The compressed form that a name server reads in a request of `version`: what there is of it after each topic,
        often nothing.
        """
        zipper = zlib.compressobj(9)
        topics = self.topic_table.topics
        yield zipper.compress(_piece(dumps(self.topic_table.data_version.to_value())) + _WORD.pack(len(topics)))
        for topic in topics.values():
            yield zipper.compress(_piece(topic_to_text(topic, version)))
        yield zipper.compress(_piece(dumps(self.filter_servers)))
        if version >= VERSION_5:
            yield zipper.compress(_WORD.pack(0))
        yield zipper.flush()

    def to_compressed(self, version: int = VERSION) -> bytes:
        return b"".join(self.compressed_pieces(version))

    @classmethod
    def decode(cls, data: bytes | memoryview, *, compressed: bool, version: int) -> RegisterBrokerBody:
        """The body of a request of `version` in any of its forms. Raises `RemoteProtocolError`."""
        reading = read_registration(data, compressed=compressed, version=version)
        while True:
            try:
                next(reading)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]


def read_registration(
    data: bytes | memoryview, *, compressed: bool, version: int, known: Callable[[DataVersion], bool] = lambda _: False
) -> Steps[RegisterBrokerBody]:
    """The body of a request of `version` in any of its forms, in slices. Raises `RemoteProtocolError`.

    No body is an empty table; below version 37 the body is the topic table alone; and a 5.3 broker that compresses does
    not say so, so the first byte of a zlib stream counts too. Topics under a version that is `known` are left out where
    that saves the reading of them.
    """
    if not data:
        return RegisterBrokerBody()
    if compressed or data[0] == _ZLIB:
        return (yield from _read_compressed(data, version, known))
    text = str(data, "utf-8", "replace")
    bare = version < _VERSION_WITH_FILTER_SERVERS
    try:
        return (yield from _JsonReader(text, known).read(bare))
    except JsonError:
        raise
    except (ValueError, RecursionError):
        # Not as Java writes it. The tolerant reader reads in one go, so it has a limit of its own.
        return RegisterBrokerBody(TopicTable.from_json(text)) if bare else RegisterBrokerBody.from_json(text)


# --- JSON -------------------------------------------------------------------------------------------------------------


class _Cursor:
    """A place in strict JSON text. Raises ValueError for everything else."""

    __slots__ = ("_first", "at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        #: No member of the object that was entered last has been read.
        self._first = False

    def _skip(self, at: int) -> int:
        text = self.text
        while text[at : at + 1] in _BLANKS:
            at += 1
        return at

    @property
    def at_object(self) -> bool:
        return self.text.startswith("{", self.at)

    def enter(self) -> None:
        """Into the object that stands here."""
        self.at = self._skip(self.at)
        if not self.at_object:
            raise ValueError("no object")
        self.at += 1
        self._first = True

    def name(self) -> str | None:
        """The name of the next member, whose value stands here then; None behind the end of the object."""
        at = self._skip(self.at)
        head = self.text[at : at + 1]
        if head == "}":
            self.at = at + 1
            self._first = False
            return None
        if not self._first:
            if head != ",":
                raise ValueError("no comma")
            at = self._skip(at + 1)
        self._first = False
        if not self.text.startswith('"', at):
            raise ValueError("no name")
        name: str
        name, at = _scan(self.text, at)
        at = self._skip(at)
        if not self.text.startswith(":", at):
            raise ValueError("no colon")
        self.at = self._skip(at + 1)
        return name

    def value(self) -> Any:
        value, self.at = _scan(self.text, self.at)
        return value

    def finish(self) -> None:
        if self._skip(self.at) != len(self.text):
            raise ValueError("text behind the value")


class _JsonReader:
    """Reader of a registration, a topic at a time.

    Raises ValueError for what is no strict JSON, JsonError for what is no registration.
    """

    def __init__(self, text: str, known: Callable[[DataVersion], bool]) -> None:
        if "\\ud" in text or "\\uD" in text or "$ref" in text:
            raise ValueError("text that needs a second look")
        self._cursor = _Cursor(text)
        self._known = known
        self._topics: dict[str, TopicConfig] | None = None
        #: The version is known: neither the topics nor what follows them is needed.
        self._enough = False

    def read(self, bare: bool) -> Steps[RegisterBrokerBody]:
        members: dict[str, Any] = {}
        cursor = self._cursor
        cursor.enter()
        if bare:
            yield from self._read_table(members, True)
        else:
            while not self._enough and (name := cursor.name()) is not None:
                if name == _WRAPPER:
                    self._topics = None
                if name == _WRAPPER and cursor.at_object:
                    table = members[name] = {}
                    cursor.enter()
                    yield from self._read_table(table, _SERVERS in members)
                else:
                    members[name] = cursor.value()
        if not self._enough:
            cursor.finish()
        result = RegisterBrokerBody(TopicTable.from_value(members)) if bare else RegisterBrokerBody.from_value(members)
        if self._topics is not None:
            result.topic_table.topics = self._topics
        return result

    def _read_table(self, members: dict[str, Any], last: bool) -> Steps[None]:
        """The members of the topic table, its topics apart. `last`: nothing of worth follows it."""
        cursor = self._cursor
        while (name := cursor.name()) is not None:
            if name == _TABLE:
                self._topics = None
            if name == _TABLE and cursor.at_object:
                version = members.get(_VERSION)
                if last and version is not None and self._known(DataVersion.from_value(version)):
                    self._enough = True
                    return
                cursor.enter()
                yield from self._read_topics()
            else:
                members[name] = cursor.value()

    def _read_topics(self) -> Steps[None]:
        cursor = self._cursor
        topics = self._topics = {}
        count = 0
        while (name := cursor.name()) is not None:
            value = cursor.value()
            if value is not None:
                topics[name] = TopicConfig.from_value(value)
            count += 1
            if count % SLICE_TOPICS == 0:
                yield


# --- compressed
# ---------------------------------------------------------------------------------------------------------


def topic_to_text(topic: TopicConfig, version: int = VERSION) -> str:
    """A topic as compressed registrations have it; 5.x appends its attributes. Order and system flag are not in it."""
    text = f"{topic.name} {topic.read_queues} {topic.write_queues} {topic.perm} {topic.filter_type}"
    return text if version < VERSION_5 else f"{text} {dumps(topic.attributes or {})}"


def topic_from_text(text: str) -> TopicConfig:
    """The other way: five words, and perhaps attributes. Raises `RemoteProtocolError`."""
    words = text.split(" ", 5)
    if len(words) < 5:
        raise RemoteProtocolError(f"no topic configuration: {text[:200]!r}")
    name, read, write, perm, filter_type = words[:5]
    facts: dict[str, Any] = {"topicName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm}
    if filter_type not in TopicFilterType.__members__:
        raise RemoteProtocolError(f"no topic filter type: {filter_type[:40]!r}")
    return TopicConfig.from_value(
        {**facts, "topicFilterType": filter_type, "attributes": loads(words[5]) if len(words) > 5 else None}
    )


class _Pieces:
    """Length-prefixed pieces of a compressed registration."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def number(self) -> int:
        if len(self._data) - self._at < 4:
            raise RemoteProtocolError("compressed registration is cut off")
        number: int = _WORD.unpack_from(self._data, self._at)[0]
        self._at += 4
        return number

    def skip(self) -> int:
        """Pass over a piece; its size."""
        size = self.number()
        if not 0 <= size <= len(self._data) - self._at:
            raise RemoteProtocolError(f"compressed registration has a piece of {size} bytes")
        self._at += size
        return size

    def text(self) -> str:
        size = self.skip()
        return str(self._data[self._at - size : self._at], "utf-8", "replace")


def _piece(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return _WORD.pack(len(data)) + data


def _inflated(data: bytes | memoryview) -> Steps[bytes]:
    inflater = zlib.decompressobj()
    plain = bytearray()
    try:
        while not inflater.eof and len(plain) <= MAX_INFLATED:
            piece = inflater.decompress(data, _SLICE_INFLATED)
            data = inflater.unconsumed_tail
            plain += piece
            if not piece and not data:
                break
            if not inflater.eof:
                yield
    except zlib.error as error:
        raise RemoteProtocolError(f"compressed registration: {error}") from None
    if not inflater.eof or len(plain) > MAX_INFLATED:
        raise RemoteProtocolError("compressed registration is cut off, or too large")
    return bytes(plain)


def _read_compressed(
    data: bytes | memoryview, version: int, known: Callable[[DataVersion], bool]
) -> Steps[RegisterBrokerBody]:
    plain = yield from _inflated(data)
    pieces = _Pieces(plain)
    table = TopicTable(DataVersion.from_json(pieces.text()))
    skip = known(table.data_version)
    slice_size = _SLICE_SKIPPED if skip else SLICE_TOPICS
    for number in range(1, pieces.number() + 1):
        if skip:
            pieces.skip()
        else:
            topic = topic_from_text(pieces.text())
            table.topics[topic.name] = topic
        if number % slice_size == 0:
            yield
    servers = loads(pieces.text())
    result = RegisterBrokerBody(table, [] if servers is None else list_of(TEXT).read(servers))
    if version >= VERSION_5 and not pieces.at_end:
        for _ in range(pieces.number()):
            pieces.skip()  # static topics of 5.x: nothing of ours asks for them
    return result
