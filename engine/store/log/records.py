"""Records where they lie in the log: whether there is one, and what queues and index need of it
(docs/protocol/store.md 2, 8.3).

Versions 1 and 2 are read, with IPv4 and IPv6 hosts. Whole messages are read by `mqproto.wire.record`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from mqproto.engine.store.layout import MAGIC_FILLER
from mqproto.wire import properties
from mqproto.wire.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from mqproto.wire.ids import java_hash
from mqproto.wire.names import SCHEDULE_TOPIC
from mqproto.wire.record_layout import (
    HEADS,
    HOSTS_AT,
    LENGTH,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_FIXED,
    SIZE_MAGIC,
    STORE_TIME_AT,
    STORE_TIME_AT_V6,
)

#: What `next_record` needs to see of a record.
SEEN_MIN: Final = PHYSICAL_OFFSET_AT + 8
#: What `measure` says instead of a size.
FILLER: Final = -1
#: Four zero bytes, as in space that was never written.
NOTHING: Final = 0
BROKEN: Final = -2

_MAGIC_V1_BYTES: Final = MAGIC_V1.to_bytes(4, "big")
_MAGIC_V2_BYTES: Final = MAGIC_V2.to_bytes(4, "big")
_MAGIC_V2_LAST: Final = MAGIC_V2 & 0xFF
_TIME: Final = Struct(">q")


class Facts(NamedTuple):
    """Facts of a message that queues and index need."""

    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_time: int
    properties: dict[str, str]

    @property
    def has_entry(self) -> bool:
        """Prepared and rolled back messages have no place in a queue (docs/protocol/store.md 6)."""
        return self.sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT)

    @property
    def is_indexed(self) -> bool:
        return self.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK

    def tags_code(self, delays: tuple[int, ...]) -> int:
        """The code of the queue entry (docs/protocol/store.md 4.1): hash of the tag, or the deliver time of a message
        that waits.

        A damaged delay level is no level: the message counts as one without.
        """
        level_text = self.properties.get(properties.DELAY, "")
        if self.topic == SCHEDULE_TOPIC and level_text.isascii() and level_text.isdigit() and int(level_text) > 0:
            level = min(int(level_text), len(delays))
            return self.store_time + delays[level - 1]
        return java_hash(self.properties.get(properties.TAGS, ""))

    def has_key(self, key: str) -> bool:
        """Whether `key` is the message's unique id or one of its keys."""
        return self.properties.get(properties.UNIQ_KEY) == key or key in self.properties.get(properties.KEYS, "").split(
            " "
        )


def measure(view: memoryview, at: int, offset: int, check_crc: bool) -> int:
    """Size of the whole record at position `at` of a log file; FILLER, NOTHING or BROKEN if there is none.

    Everything must fit: magic, lengths, the record's own physical offset (`offset`), with `check_crc` the body's CRC.
    """
    rest = len(view) - at
    if rest < 8:
        return BROKEN if rest and any(view[at:]) else NOTHING
    size: int
    size, magic = SIZE_MAGIC.unpack_from(view, at)
    if magic == MAGIC_FILLER:
        return FILLER if size == rest else BROKEN
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return NOTHING if size == 0 and magic == 0 else BROKEN
    if not RECORD_FIXED <= size <= rest:
        return BROKEN
    head = HEADS[view[at + HOSTS_AT] >> 4 & 3]
    fixed = head.size
    if fixed > size:
        return BROKEN
    fields = head.unpack_from(view, at)
    body_size: int = fields[14]
    long_topic = magic == MAGIC_V2
    topic_at = fixed + body_size + 1 + long_topic
    if fields[6] != offset or body_size < 0 or topic_at > size:
        return BROKEN
    topic_size: int = LENGTH.unpack_from(view, at + topic_at - 2)[0] if long_topic else view[at + topic_at - 1]
    properties_at = topic_at + topic_size + 2
    if not topic_size or properties_at > size or not view[at + properties_at - 3]:
        return BROKEN  # a topic never ends with a zero, space that was not written does
    if properties_at + LENGTH.unpack_from(view, at + properties_at - 2)[0] != size:
        return BROKEN
    if check_crc and body_size:
        body_at = at + fixed
        if crc32(view[body_at : body_at + body_size]) & 0x7FFFFFFF != fields[2]:
            return BROKEN
    return size


def time_of(record: memoryview) -> int:
    """Store time of a good record, of which the first RECORD_FIXED bytes are enough."""
    found: int = _TIME.unpack_from(record, STORE_TIME_AT_V6 if record[HOSTS_AT] & 0x10 else STORE_TIME_AT)[0]
    return found


def store_time_of(record: memoryview) -> int:
    """Store time of what may be no good record: of broken bytes some number, -1 where they are too few."""
    return time_of(record) if len(record) >= HEADS[record[HOSTS_AT] >> 4 & 3].size else -1


def facts_of(record: memoryview) -> Facts:
    """The facts of a record that `measure` accepted."""
    head = HEADS[record[HOSTS_AT] >> 4 & 3]
    fields = head.unpack_from(record)
    topic_at, topic_end = topic_span(record, head.size + fields[14])
    topic = str(record[topic_at:topic_end], "utf-8", "replace")
    return Facts(topic, fields[3], fields[5], fields[7], fields[10], properties.decode_bytes(record[topic_end + 2 :]))


def properties_of(record: memoryview) -> dict[str, str]:
    """The properties of a record of which only size and magic are known; none where its lengths lead nowhere."""
    head_size = HEADS[record[HOSTS_AT] >> 4 & 3].size
    if head_size >= len(record):
        return {}
    at = head_size + int.from_bytes(record[head_size - 4 : head_size], "big")
    if at + 2 > len(record):
        return {}
    return properties.decode_bytes(record[topic_span(record, at)[1] + 2 :])


def has_gap(record: memoryview) -> bool:
    """Whether the properties of a record, which no checksum covers, hold a zero byte. Text hardly ever does, space that
    was not written does.
    """
    head = HEADS[record[HOSTS_AT] >> 4 & 3]
    return bytes(record[topic_span(record, head.size + head.unpack_from(record)[14])[1] + 2 :]).find(0) >= 0


def topic_span(record: memoryview, at: int) -> tuple[int, int]:
    """Where the topic begins and ends, whose length is at `at`."""
    if record[7] == _MAGIC_V2_LAST:
        return at + 2, at + 2 + int(LENGTH.unpack_from(record, at)[0])
    return at + 1, at + 1 + record[at]


def next_record(data: bytes, start: int, offset: int) -> int:
    """The first position from `start` on where a record seems to begin, by its magic and its own physical offset; -1 if
    there is none.

    `offset` is the physical offset of the first byte of `data`.
    """
    while True:
        found = [at for magic in (_MAGIC_V1_BYTES, _MAGIC_V2_BYTES) if (at := data.find(magic, start + 4)) >= 0]
        if not found:
            return -1
        at = min(found) - 4
        if data[at + PHYSICAL_OFFSET_AT : at + SEEN_MIN] == (offset + at).to_bytes(8, "big"):
            return at
        start = at + 1
