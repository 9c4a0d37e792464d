"""Message trace of one producer or consumer of a node (docs/protocol/client.md 3.14).

Owns: records that wait to be sent, when they go and in which messages, how many were lost.
Leaves to others: the text of records (`tracing`), when something is worth one (producers, consumers, `transactions`),
the send itself.

A trace never holds up what it reports: what finds the queue full is dropped and counted, and trace messages are sent
by a producer of their own that nothing waits for but the end of the client, within its time. That producer is traced by
nobody, and is no member of the node: brokers need not hear of it, because they never ask it anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from mqproto.errors import MQError
from mqproto.message import Message, MessageExt, SendResult, SendStatus
from mqproto.namespaces import Namespace
from mqproto.state.flows.effects import Flow, Wait
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore, ProducerHost
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire import properties, tracing
from mqproto.wire.names import GROUP_LENGTH_MAX, TRACE_PRODUCER, TRACE_TOPIC
from mqproto.wire.tracing import ConsumeCode, Traced

#: Records that wait (Java: contexts), and what they may take together.
RECORDS_MAX: Final = 1_024
WAITING_BYTES_MAX: Final = 4 << 20
#: A message is sent when its first record has waited so long, or when one of these is reached (TRC-04).
FLUSH_MS: Final = 500
MESSAGE_RECORDS_MAX: Final = 100
MESSAGE_BYTES_MAX: Final = 118_000
#: Keys of one message; the property string as a whole has 32,767 bytes (TRC-01).
KEYS_BYTES_MAX: Final = 30_000
SEND_TIMEOUT_MS: Final = 5_000
SENDS_AT_A_TIME: Final = 4
#: How long a consumer's end may wait for its trace.
TRACE_CLOSE_MS: Final = 3_000


class TraceHost(ProducerHost, Protocol):
    """Members of the client node that a trace needs."""

    notices: deque[str]
    #: Those that are not closed: their topics' routes are kept fresh.
    tracers: list[Tracer]

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...


class TracedDelivery(Protocol):
    """Messages that went to the application together: those of a listener's call, of a poll, or one that was taken."""

    messages: list[MessageExt]
    #: When they went.
    started_at: int
    #: What the trace knows them by.
    trace_id: str


class Record:
    """Record of a trace, and the keys by which its message is found."""

    __slots__ = ("data", "keys")

    def __init__(self, text: str, msg_id: str, keys: str | None) -> None:
        self.data = text.encode("utf-8", "replace")
        self.keys = [msg_id, *(keys or "").split()]


class Tracer:
    """Trace of one group: it takes records and sends them."""

    def __init__(self, host: TraceHost, group: str, purpose: str, topic: str) -> None:
        """`group` is the application's, `purpose` PRODUCE or CONSUME, `topic` empty for the usual one."""
        self.topic = topic or TRACE_TOPIC
        self._group = group
        self._host = host
        name = f"{TRACE_PRODUCER}-{group}"[: GROUP_LENGTH_MAX - len(purpose) - 1] + f"-{purpose}"
        self._producer = ProducerCore(ProducerSettings(group=name, send_timeout_ms=SEND_TIMEOUT_MS), host)
        self._waiting: deque[Record] = deque()
        self._size = 0
        self._wake: Ticket[None] = Ticket()
        self._worker: Ticket[None] | None = None
        self._closed = False
        self._failing = False
        #: Records that found no room, and records whose message no broker took.
        self.dropped = 0
        self.lost = 0
        host.tracers.append(self)

    @property
    def namespace(self) -> Namespace:
        return self._host.namespace

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""
        return self._producer.routes.topics()

    # --- records

    def published(
        self, messages: Sequence[Traced], topic: str, result: SendResult, address: str, started: int, now: int
    ) -> None:
        """A broker has answered a send; each message of a batch has a record, so that each can be found."""
        if not result.trace_on or topic.startswith(self.topic):
            return
        offset_ids = result.offset_msg_id.split(",")
        for index, message in enumerate(messages):
            text = tracing.published(
                message,
                started + self._host.wall_ahead,
                result.region_id,
                self._group,
                self.namespace.unwrap(topic),
                address,
                now - started,
                offset_ids[index] if len(offset_ids) == len(messages) else result.offset_msg_id,
                result.status is SendStatus.SEND_OK,
            )
            self.add(Record(text, message.msg_id, message.keys), now)

    def ending(
        self, message: Traced, topic: str, address: str, transaction_id: str | None, state: str, checked: bool, now: int
    ) -> None:
        """A broker is about to hear what came of a local transaction."""
        wall, region = now + self._host.wall_ahead, "DefaultRegion"
        text = tracing.transaction_ended(
            message, wall, region, self._group, topic, address, transaction_id, state, checked
        )
        self.add(Record(text, message.msg_id, message.keys), now)

    def consuming(self, delivery: TracedDelivery, now: int) -> None:
        """A delivery goes to the application."""
        wall = now + self._host.wall_ahead
        delivery.trace_id = self._host.ids.next(wall)
        for message in delivery.messages:
            if _traced(message):
                region, keys = message.properties.get(properties.MSG_REGION), message.properties.get(properties.KEYS)
                text = tracing.consuming(
                    wall, region, self._group, delivery.trace_id, message.msg_id, message.reconsume_times, keys
                )
                self.add(Record(text, message.msg_id, keys), now)

    def consumed(self, delivery: TracedDelivery, code: ConsumeCode, succeeded: int, now: int) -> None:
        """The application has answered: so many messages from the front succeeded."""
        wall = now + self._host.wall_ahead
        cost_ms = (now - delivery.started_at) // max(1, len(delivery.messages))
        for index, message in enumerate(delivery.messages):
            if _traced(message):
                keys, success = message.properties.get(properties.KEYS), index < succeeded
                text = tracing.consumed(
                    delivery.trace_id, message.msg_id, cost_ms, success, keys, code, wall, self._group
                )
                self.add(Record(text, message.msg_id, keys), now)

    # --- sending

    def add(self, record: Record, now: int) -> None:
        """Let a record go with the next trace message, unless there is no room."""
        if self._closed or len(self._waiting) >= RECORDS_MAX or self._size + len(record.data) > WAITING_BYTES_MAX:
            self.dropped += 1
            return
        self._waiting.append(record)
        self._size += len(record.data)
        if self._worker is None or self._worker.settled:
            self._worker = self._host.spawn(self._work(now), now)
        elif self._is_full():
            self._host.wake_soon(self._wake)

    def close(self, now: int, deadline: int) -> Flow[None]:
        """Send what is left, until the deadline, and take nothing more."""
        self._closed = True
        if self._worker is not None and not self._worker.settled:
            self._host.wake_soon(self._wake)
            yield Wait(self._worker, deadline)
        if self in self._host.tracers:
            self._host.tracers.remove(self)
        unsent = self.dropped + self.lost + len(self._waiting)
        if unsent:
            self._host.notices.append(f"group {self._group}: {unsent} records of the message trace were not sent")

    def _is_full(self) -> bool:
        return len(self._waiting) >= MESSAGE_RECORDS_MAX or self._size >= MESSAGE_BYTES_MAX

    def _work(self, now: int) -> Flow[None]:
        """Send until nothing is left."""
        sends: deque[Ticket[None]] = deque()
        while self._waiting or sends:
            if not self._waiting or len(sends) >= SENDS_AT_A_TIME:
                _, now = yield Wait(sends.popleft())
                continue
            deadline = now + FLUSH_MS
            while now < deadline and not self._is_full() and not self._closed:
                self._wake = Ticket()
                _, now = yield Wait(self._wake, deadline)
            message, count = self._take()
            sends.append(self._host.spawn(self._send(message, count, now), now))

    def _take(self) -> tuple[Message, int]:
        """The next message, and how many records it has."""
        parts: list[bytes] = []
        keys: dict[str, None] = {}
        size = keys_size = 0
        while self._waiting and len(parts) < MESSAGE_RECORDS_MAX:
            record = self._waiting[0]
            added = [key for key in dict.fromkeys(record.keys) if key not in keys]
            added_size = sum(len(key.encode("utf-8", "replace")) + 1 for key in added)
            if parts and (size + len(record.data) > MESSAGE_BYTES_MAX or keys_size + added_size > KEYS_BYTES_MAX):
                break
            self._waiting.popleft()
            parts.append(record.data)
            size += len(record.data)
            if added_size > KEYS_BYTES_MAX:
                added = record.keys[:1]  # the text has all of them
                added_size = len(added[0]) + 1
            keys.update(dict.fromkeys(added))
            keys_size += added_size
        self._size -= size
        return Message(self.topic, b"".join(parts), keys=list(keys)), len(parts)

    def _send(self, message: Message, count: int, now: int) -> Flow[None]:
        try:
            yield from self._producer.send_async(message, now, checked=True)
            self._failing = False
        except MQError as error:
            self.lost += count
            if not self._failing:  # one notice for each time of trouble
                self._failing = True
                self._host.notices.append(f"group {self._group}: the message trace cannot be sent: {error}")


def _traced(message: MessageExt) -> bool:
    return message.properties.get(properties.TRACE_ON) != "false"


def outcome_code(result: object, succeeded: int, expected: int, *, overdue: bool) -> ConsumeCode:
    """What a record says of a listener's answer (docs/protocol/client.md 3.14)."""
    if overdue:
        return ConsumeCode.TIME_OUT
    if isinstance(result, BaseException):
        return ConsumeCode.EXCEPTION
    if result is None:
        return ConsumeCode.RETURN_NULL
    return ConsumeCode.SUCCESS if succeeded == expected else ConsumeCode.FAILED
