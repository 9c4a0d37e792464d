"""Message records: the form of a stored message on disk and in the bodies of pull, query and view answers
(docs/protocol/wire.md 7).

Written is version 1 of the layout, read are versions 1 and 2 (5.1 and later, for long topics), with IPv4 and IPv6
hosts. A record that holds a whole batch of 5.x (flags NEED_UNWRAP and INNER_BATCH) is read as the one message it is, as
4.x clients do.
"""

from __future__ import annotations

from typing import Final

from mqproto.errors import LocalProtocolError, MQError, RemoteProtocolError
from mqproto.message import MessageExt
from mqproto.wire import properties
from mqproto.wire.compression import INFLATED_MAX, inflate, plain_flag
from mqproto.wire.flags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from mqproto.wire.ids import body_crc
from mqproto.wire.names import TOPIC_LENGTH_MAX
from mqproto.wire.record_layout import HEADS, HOSTS_AT, LENGTH, MAGIC_V1, MAGIC_V2

_BROKEN_OFF: Final = "it breaks off"


class RecordError(RemoteProtocolError):
    """A record cannot be read.

    `messages` are those that came before it in the body, all of them good; `position` is where it begins;
    `queue_offset` and `physical_offset` are its own, where at least its head could be read, else None. `cause` is what
    was wrong with its body (BodyError, CompressionMissing), or None when the record itself is damaged.
    """

    def __init__(
        self, position: int, why: str, offsets: tuple[int, int] | None = None, cause: MQError | None = None
    ) -> None:
        super().__init__(f"record at byte {position}: {why}")
        self.position = position
        self.why = why
        self.queue_offset = None if offsets is None else offsets[0]
        self.physical_offset = None if offsets is None else offsets[1]
        self.cause = cause
        self.messages: list[MessageExt] = []


def decode_records(
    body: bytes | memoryview, broker_name: str = "", inflated_max: int = INFLATED_MAX
) -> list[MessageExt]:
    """All messages of a body of records, with plain bodies; their sysFlags no longer say that they are compressed.

    A record that cannot be read ends the reading: raises RecordError, which carries the messages before it. So do
    bodies that would inflate to more than `inflated_max` bytes together.
    """
    data = bytes(body)
    messages: list[MessageExt] = []
    at = 0
    budget = inflated_max
    while at < len(data):
        try:
            message, end = _read(data, at, broker_name)
            if message.sys_flag & COMPRESSED:
                _unpack(message, at, budget)
                budget -= len(message.body)
        except RecordError as failure:
            failure.messages = messages
            raise
        messages.append(message)
        at = end
    return messages


def decode_record(record: bytes | memoryview, broker_name: str = "") -> MessageExt:
    """The message of one record, with its body as it was stored.

    What follows the record is not looked at. Raises RecordError.
    """
    return _read(bytes(record), 0, broker_name)[0]


def inflated(message: MessageExt, inflated_max: int = INFLATED_MAX) -> MessageExt:
    """The same message object, with its body made plain. Raises RecordError."""
    if message.sys_flag & COMPRESSED:
        _unpack(message, 0, inflated_max)
    return message


def _unpack(message: MessageExt, at: int, budget: int) -> None:
    try:
        message.body = inflate(message.body, message.sys_flag, budget)
    except MQError as failure:
        raise RecordError(at, str(failure), (message.queue_offset, message.physical_offset), failure) from failure
    message.sys_flag = plain_flag(message.sys_flag)


def _read(data: bytes, at: int, broker_name: str) -> tuple[MessageExt, int]:
    """The message at a position, body untouched, and where its record ends.

    The end follows from the fields and not from the size word, as in Java's reader; what is in between is damage, and
    reading on there finds it.
    """
    end = len(data)
    head = HEADS[data[at + HOSTS_AT] >> 4 & 3 if at + HOSTS_AT < end else 0]
    start = at + head.size
    if start > end:
        raise RecordError(at, _BROKEN_OFF)
    (
        store_size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_time,
        born_host,
        store_time,
        store_host,
        reconsume_times,
        prepared_offset,
        body_size,
    ) = head.unpack_from(data, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordError(at, f"magic number {magic:08x} is none of a message")
    length_size = 1 if magic == MAGIC_V1 else 2
    body_end = start + body_size
    topic_start = body_end + length_size
    if body_size < 0 or topic_start > end:
        raise RecordError(at, f"its body of {body_size} bytes does not fit", (queue_offset, physical_offset))
    topic_size = data[body_end] if length_size == 1 else LENGTH.unpack_from(data, body_end)[0]
    topic_end = topic_start + topic_size
    if topic_size > (TOPIC_LENGTH_MAX if length_size == 1 else 0x7FFF) or topic_end + 2 > end:
        raise RecordError(at, f"its topic of {topic_size} bytes does not fit", (queue_offset, physical_offset))
    properties_size: int = LENGTH.unpack_from(data, topic_end)[0]
    stop = topic_end + 2 + properties_size
    if properties_size > properties.ENCODED_MAX or stop > end:
        raise RecordError(at, f"its properties of {properties_size} bytes do not fit", (queue_offset, physical_offset))
    message = MessageExt(  # by position: one call with a keyword for each takes twice as long
        data[topic_start:topic_end].decode("utf-8", "replace"),
        data[start:body_end],
        properties.decode(data[topic_end + 2 : stop].decode("utf-8", "replace")),
        flag,
        sys_flag,
        queue_id,
        queue_offset,
        physical_offset,
        born_time,
        born_host,
        store_time,
        store_host,
        reconsume_times,
        prepared_offset,
        crc,
        store_size,
        broker_name,
    )
    return message, stop


def encode_record(message: MessageExt) -> bytes:
    """The record of a message, version 1. The body goes in as it is, whatever the sysFlag says, and its CRC and the
    size are computed.

    Raises LocalProtocolError for a topic of more than 127 bytes, properties of more than 32,767, or hosts that do not
    have the length that the sysFlag names.
    """
    topic = message.topic.encode("utf-8", "replace")
    encoded = properties.encode_bytes(message.properties)
    if len(topic) > TOPIC_LENGTH_MAX:
        raise LocalProtocolError(f"a topic of {len(topic)} bytes does not fit a record")
    if len(encoded) > properties.ENCODED_MAX:
        raise LocalProtocolError(f"properties of {len(encoded)} bytes do not fit a record")
    sys_flag = message.sys_flag
    for host, mark in ((message.born_host_bytes, BORN_HOST_V6), (message.store_host_bytes, STORE_HOST_V6)):
        if len(host) != (20 if sys_flag & mark else 8):
            raise LocalProtocolError(f"a host of {len(host)} bytes does not agree with sysFlag {sys_flag:#x}")
    head = HEADS[sys_flag >> 4 & 3]
    body = message.body
    fixed = head.pack(
        head.size + len(body) + 1 + len(topic) + 2 + len(encoded),
        MAGIC_V1,
        body_crc(body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        sys_flag,
        message.born_time,
        message.born_host_bytes,
        message.store_time,
        message.store_host_bytes,
        message.reconsume_times,
        message.prepared_offset,
        len(body),
    )
    return b"".join((fixed, body, bytes((len(topic),)), topic, LENGTH.pack(len(encoded)), encoded))
