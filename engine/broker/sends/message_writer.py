"""Writer of messages: their properties, their delay and their place on the way into the store.

Owns: the stored form of properties (`CLUSTER` in, `WAIT` out), tag codes, delay levels, the one call that appends.
Leaves to others: whether a message is accepted at all (`send`, `send_back`), when delayed ones come due (`delayed`).

Two forms of properties: bytes, scanned for the few names that matter (ordinary messages, by far the most), and a dict,
for all that have a name with consequences (`DELAY`, `TRAN_MSG` ...) or look odd. Which form a message gets depends on
its properties alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from mqproto.engine.broker.core.core import Core
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.statistics.store_stats import StoreStats
from mqproto.engine.store import PutRefused, PutStatus, Queue, Store
from mqproto.message import MessageExt
from mqproto.wire import properties as names
from mqproto.wire.codes import MESSAGE_ILLEGAL, SERVICE_NOT_AVAILABLE, SYSTEM_ERROR
from mqproto.wire.flags import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from mqproto.wire.ids import java_hash, offset_msg_id
from mqproto.wire.names import SCHEDULE_TOPIC

#: Stored text; whether the acknowledgement waits for the disk; code of the tag; unique key; keys.
Scanned: TypeAlias = tuple[bytes, bool, int, str | None, str | None]

#: Entries by the names that matter, wherever they stand. An entry begins at the start or behind 0x02, and has a value.
_entries: Final = re.compile(rb"(?:\A|\x02)(TAGS|KEYS|UNIQ_KEY|WAIT|CLUSTER|DELAY|TRAN_MSG)\x01([^\x02]+)").findall
_WAIT: Final = b"WAIT\x01"
#: Tag codes that are remembered. An application has a few tags; one that has many pays for the hash.
_TAGS_MAX: Final = 4096
_TAG_LENGTH_MAX: Final = 128


class PropertyScanner:
    """Scanner of properties, which makes the stored form of an ordinary message's."""

    __slots__ = ("_cluster", "_codes")

    def __init__(self, cluster_name: str) -> None:
        self._cluster = f"{names.CLUSTER}\x01{cluster_name}\x02".encode()
        self._codes: dict[bytes, int] = {}

    def scan(self, data: bytes) -> Scanned | None:
        """The properties as they are stored, and what they say; None for those that want the dict.

        `data` is the property string in valid UTF-8, with or without the mark at its end; the stored one has it.
        """
        if data and data[-1] != 2:
            data += b"\x02"
        found = dict(_entries(data))
        if b"CLUSTER" in found or b"DELAY" in found or b"TRAN_MSG" in found:
            return None
        wait = found.get(b"WAIT")
        if wait is None:
            text = data + self._cluster
            waits = True
        else:
            at = data.find(_WAIT)
            if at and data[at - 1] != 2:
                return None
            text = data[:at] + self._cluster + data[data.index(b"\x02", at) + 1 :]
            waits = wait == b"true" or wait.lower() == b"true"
        tags = found.get(b"TAGS")
        unique = found.get(b"UNIQ_KEY")
        keys = found.get(b"KEYS")
        return (
            text,
            waits,
            0 if tags is None else self.code(tags),
            None if unique is None else unique.decode(),
            None if keys is None else keys.decode(),
        )

    def code(self, tags: bytes) -> int:
        """The hash of a tag, as consume queues hold it."""
        code = self._codes.get(tags)
        if code is None:
            code = java_hash(tags.decode("utf-8", "replace"))
            if len(tags) <= _TAG_LENGTH_MAX:
                if len(self._codes) >= _TAGS_MAX:
                    self._codes.clear()
                self._codes[tags] = code
        return code


def is_true(text: str) -> bool:
    """Java's reading of a boolean: `true` in any case, and nothing else."""
    return text.lower() == "true"


def delay_level(properties: dict[str, str]) -> int:
    """The delay level that a message asks for, 0 for none. Raises Refused for one that is no number (MSG-11)."""
    text = properties.get(names.DELAY)
    if text is None:
        return 0
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) < 1 << 31):
        raise Refused(MESSAGE_ILLEGAL, f"the property DELAY is no delay level: {text[:100]!r}")
    return int(text)


class NewMessage:
    """Message that is to be stored."""

    __slots__ = (
        "body",
        "born_host",
        "born_time",
        "flag",
        "prepared_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "store_host",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: dict[str, str],
        *,
        born_time: int,
        born_host: bytes,
        store_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.born_time = born_time
        self.born_host = born_host
        self.store_host = store_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset

    @classmethod
    def again(
        cls, message: MessageExt, topic: str, queue_id: int = 0, transaction: int = 0, prepared_offset: int = 0
    ) -> NewMessage:
        """A stored message for another place: body and properties as they are, compressed or not; `transaction`
        replaces what its flags say of one.
        """
        return cls(
            topic,
            queue_id,
            message.body,
            message.properties,
            born_time=message.born_time,
            born_host=message.born_host_bytes,
            store_host=message.store_host_bytes,
            flag=message.flag,
            sys_flag=message.sys_flag & ~TRANSACTION_MASK | transaction,
            reconsume_times=message.reconsume_times,
            prepared_offset=prepared_offset,
        )


class Stored:
    """Place of a message that was stored."""

    __slots__ = ("msg_id", "physical_offset", "queue", "queue_offset", "size")

    def __init__(self, queue: Queue, physical_offset: int, size: int, queue_offset: int, msg_id: str) -> None:
        self.queue = queue
        self.physical_offset = physical_offset
        #: Bytes of its record.
        self.size = size
        self.queue_offset = queue_offset
        self.msg_id = msg_id


class MessageWriter:
    """Writer of new messages: the delayed ones to the schedule topic, the others where they belong."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.delays = core.delays
        self.scanner = PropertyScanner(core.settings.broker_cluster_name)
        #: Called with the level of each delayed message. Set by whoever delivers them.
        self.delayed: Callable[[int], None] = lambda level: None

    def put(self, new_message: NewMessage) -> Stored:
        """Store a message; one with a delay level goes to the schedule topic, under the highest level at most.

        Raises Refused for a malformed level and PutRefused by the store.
        """
        properties = new_message.properties
        level = delay_level(properties)
        if level <= 0 or new_message.sys_flag & TRANSACTION_MASK not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
            return self.append(new_message)
        level = min(level, len(self.delays))
        due = self.core.wall + self.delays[level - 1]
        properties = properties | {
            names.DELAY: str(level),
            names.REAL_TOPIC: new_message.topic,
            names.REAL_QUEUE_ID: str(new_message.queue_id),
        }
        stored = self._append(new_message, SCHEDULE_TOPIC, level - 1, properties, due)
        self.delayed(level)
        return stored

    def append(self, new_message: NewMessage) -> Stored:
        """Store a message where it says, whatever its delay. Raises PutRefused."""
        tags = new_message.properties.get(names.TAGS)
        code = 0 if tags is None else self.scanner.code(tags.encode("utf-8", "replace"))
        return self._append(new_message, new_message.topic, new_message.queue_id, new_message.properties, code)

    def _append(
        self, new_message: NewMessage, topic: str, queue_id: int, properties: dict[str, str], code: int
    ) -> Stored:
        core = self.core
        queue = core.store.queue(topic, queue_id)
        text = names.encode_bytes(properties)
        physical = core.store.writer.append(
            queue,
            new_message.body,
            text,
            new_message.flag,
            new_message.sys_flag,
            new_message.born_time,
            new_message.born_host,
            new_message.store_host,
            new_message.reconsume_times,
            new_message.prepared_offset,
            code,
            properties.get(names.UNIQ_KEY),
            properties.get(names.KEYS),
            core.wall,
            core.filters.bits(topic, text),
        )
        core.stored(queue)
        place = queue_offset(queue, new_message.sys_flag)
        return Stored(
            queue, physical, core.store.end - physical, place, offset_msg_id(new_message.store_host, physical)
        )


def queue_offset(queue: Queue, sys_flag: int) -> int:
    """The queue offset of the message that was just appended; prepared and rolled-back ones have none, 0 is shown
    (docs/protocol/store.md 2.4).
    """
    hidden = sys_flag & TRANSACTION_MASK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
    return 0 if hidden else queue.next_offset - 1


def refusal(failure: PutRefused, store: Store, stats: StoreStats) -> Refused:
    """The answer to a message that the store refused (docs/protocol/broker.md 2.1, put status)."""
    stats.put_failures += 1
    status = failure.status
    if status is PutStatus.CREATE_MAPPED_FILE_FAILED:
        return Refused(SYSTEM_ERROR, "create mapped file failed, server is busy or broken.")
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        log, queues = store.disk_ratios()
        return Refused(
            SERVICE_NOT_AVAILABLE, f"service not available now: {failure.why}. CL: {log:5.2f} CQ: {queues:5.2f}"
        )
    return Refused(
        MESSAGE_ILLEGAL,
        f"the message is illegal, maybe msg body or properties length not matched. msg body length limit "
        f"{store.settings.max_message_size}B, msg properties length limit 32KB. ({failure.why})",
    )
