"""Messages to send and messages received, queues, and the results of sends, pulls and consumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from mqproto.wire import properties as names
from mqproto.wire.hosts import decode_host
from mqproto.wire.ids import offset_msg_id

_NOWHERE = bytes(8)


def join_keys(keys: str | Sequence[str]) -> str:
    """Keys as the property holds them, one blank between two.

    A key that contains a blank therefore counts as two keys.
    """
    return keys if isinstance(keys, str) else " ".join(keys)


@dataclass(slots=True)
class Message:
    """A message to send. Sending never changes it; `validation.check_message` says what is allowed."""

    topic: str
    body: bytes
    #: The one tag that consumers may filter by.
    tags: str | None = None
    #: Texts that the message can be found by later: one, several with blanks between, or a sequence.
    keys: str | Sequence[str] = ()
    #: The application's own properties, by names that the protocol does not use itself.
    properties: dict[str, str] = field(default_factory=dict)
    #: A number of 32 bits that travels along unread.
    flag: int = 0
    #: 0 at once, else the broker's delay level, counted from 1.
    delay_level: int = 0
    #: Whether the acknowledgement waits for flush and replication, where the broker does these synchronously.
    wait: bool = True

    def wire_properties(self) -> dict[str, str]:
        """All properties of the message as they travel: the application's own, then those that stand for attributes."""
        found = dict(self.properties)
        keys = join_keys(self.keys)
        if keys:
            found[names.KEYS] = keys
        if self.tags:
            found[names.TAGS] = self.tags
        if self.delay_level:
            found[names.DELAY] = str(self.delay_level)
        found[names.WAIT] = "true" if self.wait else "false"
        return found


@dataclass(slots=True)
class MessageExt:
    """A message as a broker stored it (docs/protocol/wire.md 7).

    Times are wall times in milliseconds, hosts are bytes of `hosts.encode_host`.
    """

    topic: str
    #: Plain, unless `sys_flag` still says that it is compressed.
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    born_time: int = 0
    born_host_bytes: bytes = _NOWHERE
    store_time: int = 0
    store_host_bytes: bytes = _NOWHERE
    reconsume_times: int = 0
    prepared_offset: int = 0
    #: CRC of the body as it was stored, compressed or not.
    body_crc: int = 0
    #: Size of the record that it came from.
    store_size: int = 0
    broker_name: str = ""

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(names.KEYS, "").split(" ") if key]

    @property
    def delay_level(self) -> int:
        """The delay level it was sent with; 0 for none, or for one that is no number."""
        text = self.properties.get(names.DELAY, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def born_host(self) -> str:
        """`ip:port` of the producer, as the broker saw it."""
        return decode_host(self.born_host_bytes)

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
        return decode_host(self.store_host_bytes)

    @property
    def msg_id(self) -> str:
        """The id that the producer gave, or the offset id where there is none."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id that the broker gave: where the record lies."""
        return offset_msg_id(self.store_host_bytes, self.physical_offset)


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic at one broker. Ordered by topic, broker name, queue id, as allocation needs it."""

    topic: str
    broker_name: str
    queue_id: int


class SendStatus(Enum):
    """Progress of a message that a broker stored: flushed, replicated, or not yet."""

    SEND_OK = "SEND_OK"
    #: Stored, but not on disk in time.
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    #: Stored, but not at a slave in time.
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    #: Stored, and there is no slave that keeps up.
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class ConsumeStatus(Enum):
    """Verdict of a listener on the messages that it was given."""

    SUCCESS = "CONSUME_SUCCESS"
    #: Once more later: by way of the broker's retry topic, or after a pause for ordered consumption.
    RECONSUME_LATER = "RECONSUME_LATER"
    #: Apache's name for that in ordered consumption.
    SUSPEND_CURRENT_QUEUE_A_MOMENT = RECONSUME_LATER
    #: Ordered consumption with `auto_commit` off: these succeeded, and with them everything since the last commit.
    COMMIT = "COMMIT"
    #: Ordered consumption with `auto_commit` off: everything since the last commit comes again after a pause.
    ROLLBACK = "ROLLBACK"


@dataclass(slots=True)
class ConsumeContext:
    """Context of a delivery that a listener may read and set besides its messages."""

    queue: MessageQueue
    #: With SUCCESS: messages of the list behind this index failed all the same. At first beyond every list.
    ack_index: int = 2**31 - 1
    #: Of failed messages: -1 straight to the dead letters, 0 the broker decides (longer each time), from 1 a level of
    #: its delay table.
    delay_level_when_next_consume: int = 0
    #: Of ordered consumption: the pause before failed messages come again, 10 to 30,000 ms.
    suspend_current_queue_time_millis: int = 1_000
    #: Of ordered consumption: whether SUCCESS moves the offset. False: it moves with the next COMMIT, or with a SUCCESS
    #: under True.
    auto_commit: bool = True


@dataclass(slots=True, unsafe_hash=True)  # frozen ones take three times as long to make
class SendResult:
    """Result of a send.

    For a batch both ids are lists joined by commas, and `queue_offset` is that of its first message.
    """

    status: SendStatus
    #: The producer's id (`UNIQ_KEY`).
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    #: The broker's id.
    offset_msg_id: str = ""
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True


class PullStatus(Enum):
    """Outcome of a pull."""

    FOUND = "FOUND"
    #: The end of the queue.
    NO_NEW_MSG = "NO_NEW_MSG"
    #: Messages, but none that passes the filter.
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    #: The queue does not have the offset: go on at `next_begin_offset`.
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(frozen=True, slots=True)
class PullResult:
    """Result of a pull.

    `messages` may be empty also when some were found: tags are compared once more here, by their text.
    """

    status: PullStatus
    #: Where to pull on.
    next_begin_offset: int
    #: The first offset that is still there, and the one that the next message will get.
    min_offset: int
    max_offset: int
    messages: tuple[MessageExt, ...] = ()
