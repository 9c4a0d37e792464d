"""Sends that go the usual way: known route, connected link, a broker that just takes the message.

Owns: the frames of such sends, made from a template for each queue, and the reading of the one answer that ends them.
Leaves to others: everything else. As soon as anything but that answer happens (a refusal, a lost link, a time-out), the flow of
`ProducerCore` takes over at the point where it would be had it made the call itself, so there is one place that knows what follows.

The frames are those that the flow would send, byte for byte; the templates are cut from frames of the general encoder.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring as quote
from struct import Struct
from typing import Final

from mqproto import properties
from mqproto.codec import encode_request
from mqproto.codes import RequestCode
from mqproto.errors import MQError
from mqproto.message import Message, MessageQueue, SendResult, SendStatus
from mqproto.names import RETRY_PREFIX
from mqproto.state.connection import SEPARATE_BODY
from mqproto.state.flows import Call, Flow
from mqproto.state.node import Ticket
from mqproto.state.parcels import DEFAULT_REGION
from mqproto.state.producer import ProducerCore, ProducerHost
from mqproto.state.routes import PublishInfo
from mqproto.state.runner import FlowNode
from mqproto.state.send_window import Generation
from mqproto.state.tasks import DialledLink, Task
from mqproto.validation import check_message

#: Topics that a producer keeps templates for; those of a program that sends to ever new ones must not fill the memory.
LANES_MAX: Final = 1_000

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_HEAD: Final = Struct(">ii")
#: Stands for a value in a header that is about to be cut. Quoted it is six characters that no sane name holds.
_MARK: Final = "\x00"
_QUOTED_MARK: Final = rb"\u0000"

_TEXT: Final = r"[ !#-\[\]-~]*"
_ID: Final = rf'"msgId":"(?P<id>{_TEXT})"'
_QUEUE: Final = r'"queueId":"(?P<queue>\d{1,10})"'
_OFFSET: Final = r'"queueOffset":"(?P<offset>\d{1,18})"'
_REGION: Final = rf'"MSG_REGION":"(?P<region>{_TEXT})"'
_TRACE: Final = rf'"TRACE_ON":"(?P<trace>{_TEXT})"'
_TRANSACTION: Final = rf'(?:"transactionId":"(?P<transaction>{_TEXT})",)?'
#: Headers of the answer to a send, as brokers of 4.x, of 5.x and ours order its fields; any other goes the general way.
_ANSWERS: Final = tuple(
    re.compile(
        rf'{{"code":0,"extFields":{{{",".join(fields)}}},"flag":1,"language":"[A-Z]{{1,9}}","opaque":(?P<opaque>\d{{1,9}}),'
        rf'(?:"serializeTypeCurrentRPC":"JSON",)?"version":\d{{1,9}}}}'
    )
    for fields in (
        (_QUEUE, _TRACE, _REGION, _TRANSACTION + _ID, _OFFSET),
        (_QUEUE, _TRANSACTION + _ID, _TRACE, _REGION, _OFFSET),
        (_TRANSACTION + _ID, _QUEUE, _OFFSET, _REGION, _TRACE),
    )
)
#: The header word of a JSON header is below this: its top byte is 0.
_HEADER_MAX: Final = 1 << 24


def read_taken(frame: bytes) -> re.Match[str] | None:
    """The usual answer to a send, in a frame without its length word; None for all others, good or bad."""
    size = int.from_bytes(frame[:4], "big")
    if size >= _HEADER_MAX or size + 4 > len(frame):
        return None
    text = str(frame[4 : 4 + size], "latin-1")  # the patterns match ASCII alone
    for pattern in _ANSWERS:
        found = pattern.fullmatch(text)
        if found is not None:
            return found
    return None


class Lane:
    """How the sends of one producer to one topic look, as long as the queues of the topic are these."""

    __slots__ = ("_producer", "_templates", "extra", "info", "ordinary", "shown", "topic")

    def __init__(self, producer: ProducerCore, topic: str, info: PublishInfo) -> None:
        self._producer = producer
        #: As it travels, and the properties that every message gets.
        self.topic, self.extra = producer.packer.named(topic, {})
        self.info = info
        #: The quoted properties of a message that has none of its own, open for its id.
        ordinary = quote(properties.encode({properties.WAIT: "true", **self.extra, properties.UNIQ_KEY: _MARK}))
        self.ordinary = ordinary.encode().replace(b"%", b"%%").replace(_QUOTED_MARK, b"%b")
        #: The queues as the application knows them.
        self.shown = producer.namespace.unwrap_queues(info.queues)
        self._templates: list[bytes | None] = [None] * len(info.queues)

    def template(self, index: int) -> bytes | None:
        """The header for a queue, open for properties, time and opaque; None where a name in it would confuse the cutting."""
        found = self._templates[index]
        if found is None:
            fields = self._producer.packer.parcel(self.topic, "", _MARK, b"").addressed(self.info.queues[index], 0)
            fields["g"] = _MARK
            header = encode_request(_SEND, 0, fields)[8:].replace(b"%", b"%%")
            head, opaque, tail = header.rpartition(b'"opaque":0,')
            parts = head.split(b'"' + _QUOTED_MARK + b'"')
            if len(parts) == 3 and opaque:
                found = self._templates[index] = b"".join((parts[0], b"%b", parts[1], b'"%d"', parts[2], b'"opaque":%d,', tail))
        return found


class PlainSend(Task[SendResult]):
    """A send that is under way and has no flow, because nothing but its answer is expected."""

    __slots__ = (
        "_body",
        "_chosen",
        "_deadline",
        "_encoded",
        "_for_callback",
        "_generation",
        "_index",
        "_lane",
        "_msg_id",
        "_producer",
        "_wall",
    )

    def __init__(
        self,
        producer: ProducerCore,
        lane: Lane,
        index: int,
        chosen: bool,
        body: bytes,
        msg_id: str,
        encoded: str | None,
        for_callback: bool,
        deadline: int,
        wall: int,
        generation: Generation,
        link: DialledLink,
        opaque: int,
        now: int,
    ) -> None:
        self.flow = None
        self.ticket = Ticket()
        self.of_application = True
        self.effect = None
        self.link = link
        self.opaque = opaque
        self.awaited = None
        self.since = now
        self.reads = link.reads
        self.tried = None
        self.sent_away = False
        self.searched = False
        self._producer = producer
        self._lane = lane
        self._index = index
        #: Whether the application has chosen the queue.
        self._chosen = chosen
        self._body = body
        self._msg_id = msg_id
        #: The property string; None for a message without properties of its own.
        self._encoded = encoded
        self._for_callback = for_callback
        self._deadline = deadline
        self._wall = wall
        self._generation = generation

    def taken(self, answer: re.Match[str]) -> None:
        """The usual answer came: this is the end."""
        self._producer.window.give(self._generation, len(self._body))
        queue = self._lane.shown[self._index]
        queue_id, offset, offset_msg_id, region, trace, transaction = answer.group(
            "queue", "offset", "id", "region", "trace", "transaction"
        )
        if int(queue_id) != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, int(queue_id))
        self.ticket.settle(
            SendResult(
                SendStatus.SEND_OK, self._msg_id, queue, int(offset), offset_msg_id, transaction, region or DEFAULT_REGION, trace != "false"
            )
        )

    def unfold(self) -> Flow[SendResult]:
        """The flow of this send; its first effect is the call that was made already."""
        producer, lane = self._producer, self._lane
        encoded = self._encoded
        if encoded is None:
            encoded = properties.encode({properties.WAIT: "true", **lane.extra, properties.UNIQ_KEY: self._msg_id})
        parcel = producer.packer.parcel(lane.topic, self._msg_id, encoded, self._body)
        queue = lane.info.queues[self._index]
        assert self.link is not None
        call = Call(self.link.address, parcel.code, parcel.addressed(queue, self._wall), self._body, self._deadline)
        place = producer.window.adopt(self._generation, len(self._body))
        return producer.go_on(parcel, place, call, queue, None if self._chosen else lane.info, self.since, self._for_callback)

    def close(self) -> None:
        if self.flow is None:
            self._producer.window.give(self._generation, len(self._body))
        else:
            self.flow.close()


class PlainSends:
    """The plain sends of one producer on one node."""

    __slots__ = ("_host", "_lanes", "_node", "_producer", "_size_max", "_timeout_ms", "_usual")

    def __init__(self, node: FlowNode, host: ProducerHost, producer: ProducerCore) -> None:
        self._node = node
        self._host = host
        self._producer = producer
        self._lanes: dict[str, Lane] = {}
        settings = producer.settings
        #: From here on a body is compressed, refused, or sent as a buffer of its own.
        self._size_max = min(settings.compress_body_over, settings.max_message_size + 1, SEPARATE_BODY)
        #: Whether calls go where the route says, as they are, and nobody wants to know how long they take.
        as_they_are = node.credentials is None and node.reroute is None and not node.marks
        unwatched = not settings.latency_fault_tolerance and not settings.enable_msg_trace and settings.attempt_timeout_ms < 0
        self._usual = as_they_are and unwatched
        self._timeout_ms = settings.send_timeout_ms

    def begin(
        self, message: Message, queue: MessageQueue | None, timeout_ms: int | None, for_callback: bool, now: int
    ) -> Ticket[SendResult] | None:
        """Send a message the usual way; None, and nothing has happened, where that is not possible or not known to be."""
        lane = self._lane(message.topic) if type(message) is Message else None
        body = message.body
        if lane is None or type(body) is not bytes or not 0 < len(body) < self._size_max or message.flag:
            return None
        info = lane.info
        if queue is None:
            index = info.turn % len(info.queues)
        elif queue in lane.shown:
            index = lane.shown.index(queue)
        else:
            return None
        link = self._link(info.queues[index].broker_name)
        template = lane.template(index)
        deadline = now + (self._timeout_ms if timeout_ms is None else timeout_ms)
        if link is None or template is None or deadline <= now or not self._is_ordinary(message):
            return None
        generation = self._producer.window.take(len(body))
        if generation is None:
            return None
        if queue is None:
            info.next_turn()
        wall = now + self._host.wall_ahead
        msg_id = self._host.ids.next(wall)
        encoded: str | None = None
        if message.properties or message.keys or message.tags or message.delay_level or not message.wait:
            encoded = properties.encode({**message.wire_properties(), **lane.extra, properties.UNIQ_KEY: msg_id})
            quoted = quote(encoded).encode("utf-8", "replace")
        else:
            quoted = lane.ordinary % msg_id.encode()
        opaque = link.free_opaque()
        header = template % (quoted, wall, opaque)
        size = len(header)
        send = PlainSend(
            self._producer,
            lane,
            index,
            queue is not None,
            body,
            msg_id,
            encoded,
            for_callback,
            deadline,
            wall,
            generation,
            link,
            opaque,
            now,
        )
        self._node.launch(send, b"".join((_HEAD.pack(4 + size + len(body), size), header, body)), deadline)
        return send.ticket

    def _lane(self, topic: str) -> Lane | None:
        """The lane of a topic; None where its sends are of another kind, or where to send to is not known."""
        lane = self._lanes.get(topic) if type(topic) is str else None
        if lane is not None and lane.info is self._host.routes.publish(lane.topic) and not self._producer.closed:
            return lane
        self._lanes.pop(topic, None)
        if not self._usual or self._producer.closed or topic.startswith(RETRY_PREFIX):
            return None
        try:
            check_message(Message(topic, _MARK.encode()))
            wire_topic, _ = self._producer.packer.named(topic, {})
        except MQError:
            return None
        info = self._host.routes.publish(wire_topic)
        if info is None or not info.queues:
            return None
        if len(self._lanes) >= LANES_MAX:
            self._lanes.clear()
        lane = self._lanes[topic] = Lane(self._producer, topic, info)
        return lane

    def _link(self, broker_name: str) -> DialledLink | None:
        address = self._host.routes.master(broker_name)
        return None if address is None else self._node.ready_link(address)

    def _is_ordinary(self, message: Message) -> bool:
        """Whether nothing about its properties is wrong; the flow says what is."""
        if not (message.properties or message.keys or message.tags or message.delay_level):
            return True
        try:
            check_message(message, self._producer.settings.max_message_size)
        except MQError:
            return False
        return True
