"""Consume queue in memory."""

from __future__ import annotations

from typing import Final

from mqproto.engine.counters import CounterReader
from mqproto.engine.store.layout import ENTRY_SIZE
from mqproto.engine.store.queues.extension import Units
from mqproto.wire.ids import java_hash
from mqproto.wire.names import TOPIC_LENGTH_MAX
from mqproto.wire.record_layout import RECORD_FIXED

_MASK: Final = 0xFFFFFFFF
#: 31**32: what the hash of a text is multiplied by when 32 characters follow it.
_POWER_32: Final = pow(31, 32, 1 << 32)


#: A mark before everything.
_NOWHERE: Final = (0, -(1 << 62))
#: No record of this size fits anywhere.
NO_SIZE: Final = 1 << 62


class Queue:
    """Queue of a topic: what the store knows of it.

    `max_offset` is the next offset that a reader may ask for: everything below it is visible. `next_offset` is the one
    that the next message gets; it runs ahead of `max_offset` only under SYNC_FLUSH, while messages are not durable yet.
    `parked` and `readers` are the broker's own.

    Entries from `written` on are in `tail`, 20 bytes each; those below are in files, the first of which begins with
    entry `first` (equal to `written` when there are no files).
    """

    __slots__ = (
        "first",
        "fixed_size",
        "folder",
        "key_hash",
        "max_offset",
        "min_offset",
        "new_mark",
        "next_offset",
        "old_mark",
        "parked",
        "prefix_hash",
        "queue_id",
        "readers",
        "removed",
        "tail",
        "topic",
        "topic_field",
        "unflushed",
        "units",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, folder: str) -> None:
        encoded = topic.encode()
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.parked: object = None
        #: What groups read, by their names.
        self.readers: dict[str, CounterReader] | None = None
        self.first = 0
        self.written = 0
        self.tail = bytearray()
        #: Where the consume queue has an extension: its units in memory.
        self.units: Units | None = None
        #: Two of the entries that this process has written to files, each as queue offset and physical offset: from
        #: there on all entries in files are as new at least (see `mark`).
        self.old_mark = self.new_mark = _NOWHERE
        #: Its queue was deleted: whoever still holds it must not append.
        self.removed = False
        #: SYNC_FLUSH: it has messages that no flush has begun to make durable.
        self.unflushed = False
        #: Length and text of the topic as every record of the queue holds them, and the record's size without body and
        #: properties.
        #: Longer topics, which only 5.x has, are read and not written.
        self.topic_field = bytes((len(encoded),)) + encoded
        self.fixed_size = RECORD_FIXED + len(encoded) if len(encoded) <= TOPIC_LENGTH_MAX else NO_SIZE
        #: Hash of `topic#`, alone and as the part that it has in the hash of `topic#` and a key of 32 characters.
        self.prefix_hash = java_hash(topic + "#") & _MASK
        self.key_hash = self.prefix_hash * _POWER_32 & _MASK

    def mark(self, offset: int, physical: int, spacing: int) -> None:
        """Entries from `offset` on were just written to files. Marks are `spacing` bytes of the log apart, so that the
        old one is never much further back than twice that, nor, while the queue grows, much nearer than once.
        """
        if physical - self.new_mark[1] >= spacing:
            mark = (offset, physical)
            self.old_mark = mark if self.new_mark is _NOWHERE else self.new_mark
            self.new_mark = mark

    def is_new(self, offset: int, edge: int) -> bool:
        """Whether an entry in a file, and all behind it, are of this process and lead to the log from `edge` on."""
        mark = self.old_mark if self.old_mark[1] >= edge else self.new_mark
        return mark[1] >= edge and offset >= mark[0]

    def picture(self) -> Queue:
        """The queue as readers see it now, for one that reads beside the loop."""
        twin = Queue(self.topic, self.queue_id, self.folder)
        twin.min_offset = self.min_offset
        twin.max_offset = twin.next_offset = self.max_offset
        twin.first = self.first
        twin.written = self.written
        twin.tail = self.tail[: (self.max_offset - self.written) * ENTRY_SIZE]
        if self.units is not None:
            twin.units = self.units.picture()
        return twin

    def __repr__(self) -> str:
        return f"Queue({self.topic!r}, {self.queue_id}, {self.min_offset}..{self.max_offset})"
