"""The file that moves topics from one data directory to another: a head, blocks of messages, a trailer
(docs/export-format.md).

Owns: how it is laid out, that a cut or changed file is noticed. It only makes and takes bytes, so a file may be a pipe.
Leaves to others: what goes in (`exporting`), what becomes of it (`importing`).

The checksum of each block covers the one before, so blocks cannot change, move or go missing; the trailer has the
number of messages and a digest of everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from mqproto.engine.store.errors import StoreError
from mqproto.engine.store.layout import RECORD_FIXED
from mqproto.engine.store.log.records import facts_of, measure
from mqproto.wire.bodies import GroupConfig, TopicConfig
from mqproto.wire.fastjson import JsonError, dumps, loads

MAGIC: Final = b"MQEXPORT"
VERSION: Final = 1
#: Magic, version, nothing.
_BEGINNING: Final = Struct(">8sII")
#: Kind, bytes of the content, checksum.
_BLOCK: Final = Struct(">4sII")
#: Number of the queue in the head, queue offset; the record follows.
_ITEM: Final = Struct(">IQ")
_HEAD: Final = b"HEAD"
_MESSAGES: Final = b"MSGS"
_TRAILER: Final = b"DONE"

#: A block is closed when it has so many bytes.
_BLOCK_SIZE: Final = 1 << 20
#: What a reader takes for a block: more than the largest record that fits a file of the log beside others of a block.
_BLOCK_MAX: Final = 1 << 30
#: Of a head: a million queues with their offsets.
_HEAD_MAX: Final = 256 << 20
_QUEUE_ID_MAX: Final = 0x7FFFFFFF
#: So many records do not fit the 63 bits of physical offsets.
_OFFSET_MAX: Final = (1 << 62) // RECORD_FIXED
_TIME_MAX: Final = (1 << 63) - 1


class ExportDamaged(StoreError):  # noqa: N818 - a name that says what happened needs no suffix
    """A file is no export, breaks off or was changed. `position` is the byte where that shows."""

    def __init__(self, position: int, why: str) -> None:
        self.position = position
        self.why = why
        super().__init__(f"the export cannot be used: at byte {position}: {why}")


@dataclass(slots=True)
class ExportedQueue:
    """One queue of an export: it covers the offsets from `begin` up to `end`, of which some may have no message."""

    topic: str
    queue_id: int
    begin: int
    end: int


@dataclass(slots=True)
class ExportHead:
    """What an export says before its messages. Times are wall times in milliseconds, None for no limit."""

    created: int
    writer: str = ""
    from_time: int | None = None
    to_time: int | None = None
    queues: list[ExportedQueue] = field(default_factory=list)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    #: Committed offsets by topic, group and queue id.
    offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        value = {
            "created": self.created,
            "writer": self.writer,
            "fromTime": self.from_time,
            "toTime": self.to_time,
            "queues": [[each.topic, each.queue_id, each.begin, each.end] for each in self.queues],
            "topics": [each.to_value() for each in self.topics.values()],
            "groups": [each.to_value() for each in self.groups.values()],
            "offsets": [
                [topic, group, queue_id, offset]
                for (topic, group), by_queue in self.offsets.items()
                for queue_id, offset in by_queue.items()
            ],
        }
        return dumps(value).encode("utf-8", "replace")

    @classmethod
    def from_json(cls, data: bytes) -> ExportHead:
        """Raises ValueError or JsonError for anything but a head."""
        value = loads(data, _HEAD_MAX)
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        head = cls(
            _whole(value.get("created"), _TIME_MAX),
            str(value.get("writer") or ""),
            _time(value.get("fromTime")),
            _time(value.get("toTime")),
        )
        for topic, queue_id, begin, end in value.get("queues") or ():
            queue = ExportedQueue(
                _text(topic), _whole(queue_id, _QUEUE_ID_MAX), _whole(begin, _OFFSET_MAX), _whole(end, _OFFSET_MAX)
            )
            if queue.begin > queue.end:
                raise ValueError(f"queue {queue.queue_id} of {queue.topic} ends before it begins")
            head.queues.append(queue)
        topics = [TopicConfig.from_value(each) for each in value.get("topics") or ()]
        groups = [GroupConfig.from_value(each) for each in value.get("groups") or ()]
        head.topics = {each.name: each for each in topics}
        head.groups = {each.name: each for each in groups}
        for topic, group, queue_id, offset in value.get("offsets") or ():
            by_queue = head.offsets.setdefault((_text(topic), _text(group)), {})
            by_queue[_whole(queue_id, _QUEUE_ID_MAX)] = _whole(offset, _OFFSET_MAX)
        return head


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"no name: {value!r}")
    return value


def _whole(value: Any, high: int) -> int:
    if type(value) is not int or not 0 <= value <= high:
        raise ValueError(f"no number from 0 to {high}: {str(value)[:40]}")
    return value


def _time(value: Any) -> int | None:
    return None if value is None else _whole(value, _TIME_MAX)


class ExportWriter:
    """Makes the bytes of an export, piece by piece, to be written in their order."""

    __slots__ = ("_chain", "_counts", "_digest", "_items", "_size", "bytes", "messages")

    def __init__(self) -> None:
        self._digest = sha256()
        self._chain = 0
        self._items: list[bytes | memoryview] = []
        self._size = 0
        self._counts: list[int] = []
        #: Messages so far, and bytes of their records.
        self.messages = 0
        self.bytes = 0

    def begin(self, head: ExportHead) -> bytes:
        """The first bytes."""
        self._counts = [0] * len(head.queues)
        beginning = _BEGINNING.pack(MAGIC, VERSION, 0)
        self._chain = crc32(beginning)
        self._digest.update(beginning)
        return beginning + self._block(_HEAD, head.to_json())

    def message(self, number: int, offset: int, record: bytes | memoryview) -> bytes:
        """Add a message of a queue, by its number in the head; gives a block when one is full, else
        nothing. Within a queue offsets rise."""
        self._items.append(_ITEM.pack(number, offset))
        self._items.append(bytes(record))
        self._counts[number] += 1
        self.messages += 1
        self.bytes += len(record)
        self._size += _ITEM.size + len(record)
        return self._messages() if self._size >= _BLOCK_SIZE else b""

    def end(self) -> bytes:
        """The last bytes."""
        rest = self._messages() if self._items else b""
        trailer = {
            "messages": self.messages,
            "bytes": self.bytes,
            "counts": self._counts,
            "sha256": self._digest.hexdigest(),
        }
        return rest + self._block(_TRAILER, json.dumps(trailer).encode())

    def _messages(self) -> bytes:
        content = b"".join(self._items)
        self._items = []
        self._size = 0
        return self._block(_MESSAGES, content)

    def _block(self, kind: bytes, content: bytes) -> bytes:
        self._chain = _checksum(self._chain, kind, content)
        block = _BLOCK.pack(kind, len(content), self._chain) + content
        self._digest.update(block)
        return block


def _checksum(before: int, kind: bytes, content: bytes) -> int:
    """Of a block, by that of the block before."""
    return crc32(content, crc32(_BLOCK.pack(kind, len(content), before)))


class ExportedMessage(NamedTuple):
    """A message of an export: which queue of the head, its offset there, its record (docs/protocol/store.md 2)."""

    number: int
    offset: int
    record: memoryview


class ExportReader:
    """Reads an export from its first byte to its last. `read(size)` gives at most so many bytes, nothing at the end.

    Everything is checked on the way: what was given is as it was written, but only when `messages` has ended without an
    error is it known that nothing is missing. Raises ExportDamaged.
    """

    __slots__ = ("_block_at", "_chain", "_counts", "_digest", "_read", "head", "messages_read", "position")

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._digest = sha256()
        #: Bytes read so far.
        self.position = 0
        self._block_at = 0
        self.messages_read = 0
        beginning = self._take(_BEGINNING.size, 0)
        magic, version, _ = _BEGINNING.unpack(beginning)
        if magic != MAGIC:
            raise ExportDamaged(0, "this is no file that `store export` wrote")
        if version != VERSION:
            raise ExportDamaged(8, f"version {version} of the format is not known here, only {VERSION}")
        self._chain = crc32(beginning)
        kind, content = self._block()
        try:
            if kind != _HEAD:
                raise ValueError(f"a block {kind!r} in its place")
            self.head = ExportHead.from_json(content)
        except (ValueError, TypeError, JsonError) as failure:
            raise ExportDamaged(self._block_at, f"the head cannot be read: {failure}") from None
        self._counts = [0] * len(self.head.queues)

    def messages(self) -> Iterator[ExportedMessage]:
        """All messages, in the order of the log that they come from. To be used once."""
        nexts = [each.begin for each in self.head.queues]
        ends = [each.end for each in self.head.queues]
        while True:
            digest = self._digest.hexdigest()
            kind, content = self._block()
            if kind == _TRAILER:
                self._finish(content, digest)
                return
            if kind != _MESSAGES:
                raise ExportDamaged(self._block_at, f"a block of an unknown kind {kind!r}")
            for message in self._items(memoryview(content)):
                number = message.number
                if number >= len(ends) or not nexts[number] <= message.offset < ends[number]:
                    raise ExportDamaged(
                        self._block_at,
                        f"a message at offset {message.offset} of queue number {number}, which has no such place",
                    )
                nexts[number] = message.offset + 1
                self._counts[number] += 1
                self.messages_read += 1
                yield message

    def _items(self, content: memoryview) -> Iterator[ExportedMessage]:
        at = 0
        while at < len(content):
            size = -1
            if len(content) - at >= _ITEM.size + 36:
                record_at = at + _ITEM.size
                physical = int.from_bytes(content[record_at + 28 : record_at + 36], "big", signed=True)
                size = measure(content, record_at, physical, True)
            if size <= 0:
                raise ExportDamaged(self._block_at, f"what lies {at} bytes into the block is no record of a message")
            number, offset = _ITEM.unpack_from(content, at)
            at = record_at + size
            record = content[record_at:at]
            if not facts_of(record).has_entry:
                raise ExportDamaged(self._block_at, f"the message at offset {offset} is one that queues do not hold")
            yield ExportedMessage(number, offset, record)

    def _finish(self, content: bytes, digest: str) -> None:
        try:
            trailer = json.loads(content)
            counts, told = trailer["counts"], trailer["sha256"]
        except (ValueError, TypeError, LookupError) as failure:
            raise ExportDamaged(self._block_at, f"the trailer cannot be read: {failure!r}") from None
        if counts != self._counts or told != digest:
            raise ExportDamaged(self._block_at, "the trailer speaks of other messages than those in the file")
        if self._read(1):
            raise ExportDamaged(self.position, "something follows the trailer")

    def _block(self) -> tuple[bytes, bytes]:
        """The next block: its kind and its content."""
        self._block_at = self.position
        kind, size, checksum = _BLOCK.unpack(self._take(_BLOCK.size, self._block_at))
        if size > _BLOCK_MAX:
            raise ExportDamaged(self._block_at, f"a block of {size} bytes")
        content = self._take(size, self._block_at)
        self._chain = _checksum(self._chain, kind, content)
        if self._chain != checksum:
            raise ExportDamaged(self._block_at, "the checksum of a block does not fit: the file was changed")
        return kind, content

    def _take(self, size: int, block_at: int) -> bytes:
        """So many bytes. Pieces are bounded, so that a wild size costs no more memory than there are bytes."""
        pieces = []
        missing = size
        while missing:
            piece = self._read(min(missing, _BLOCK_SIZE))
            if not piece:
                raise ExportDamaged(block_at, "the file breaks off")
            self._digest.update(piece)
            self.position += len(piece)
            missing -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)
