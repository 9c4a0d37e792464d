"""Sends that go the usual way: known route, connected link, a broker that just takes the message.

Owns: the frames of such sends, made from a template for each queue, and what the one answer that ends them means.
Leaves to others: reading that answer (`fast_answers`) and everything else. As soon as anything but that answer happens
(a refusal, a lost link, a time-out), the flow of `ProducerCore` takes over at the point where it would be had it made
the call itself, so there is one place that knows what follows.

The frames are those that the flow would send, byte for byte; the templates are cut from frames of the general encoder.
"""

from __future__ import annotations

from json.encoder import encode_basestring as quote
from struct import Struct
from typing import Any, Final

from mqproto.codec import encode_request
from mqproto.errors import MQError
from mqproto.message import Message, MessageQueue, SendResult, SendStatus
from mqproto.state.cluster.routes import PublishInfo
from mqproto.state.flows.calls import FlowNode
from mqproto.state.flows.effects import Call, Flow
from mqproto.state.flows.tasks import DialledLink, FastCall
from mqproto.state.node.connection import SEPARATE_BODY
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore, ProducerHost
from mqproto.state.producer.send_window import Generation
from mqproto.validation import check_message
from mqproto.wire import properties
from mqproto.wire.codes import SEND_MESSAGE_V2
from mqproto.wire.names import RETRY_PREFIX

#: Topics that a producer keeps templates for; those of a program that sends to ever new ones must not fill the memory.
TOPIC_TEMPLATES_MAX: Final = 1_000

_HEAD: Final = Struct(">ii")
#: Stands in a header for a value that is filled in later. Quoted it is six characters that no sane name holds.
_PLACE: Final = "\x00"
_QUOTED_PLACE: Final = rb"\u0000"


class QueueTemplate:
    """Template of the frames to one queue of a topic."""

    __slots__ = ("broker_name", "general", "index", "link", "ordinary", "queue", "topic_template")

    def __init__(
        self,
        topic_template: TopicTemplate,
        index: int,
        queue: MessageQueue,
        ordinary: bytes | None,
        general: bytes | None,
    ) -> None:
        self.topic_template = topic_template
        self.index = index
        self.broker_name = topic_template.info.queues[index].broker_name
        #: As the application knows it.
        self.queue = queue
        #: The header of a message without properties of its own, with places for its id, time and opaque.
        self.ordinary = ordinary
        #: The header of any other, with places for properties, time and opaque. Both are None where a name in them
        #: looks like such a place.
        self.general = general
        #: Where its broker was the last time, as long as the routes have not changed.
        self.link: DialledLink | None = None


class TopicTemplate:
    """Templates of the frames of one producer to one topic, as long as the queues of the topic are these."""

    __slots__ = ("_ordinary", "changes", "extra", "info", "producer", "queue_templates", "shown", "topic", "window")

    def __init__(self, producer: ProducerCore, topic: str, info: PublishInfo, changes: int) -> None:
        self.producer = producer
        self.window = producer.window
        #: The topic on the wire, and the properties that every message gets.
        self.topic, self.extra = producer.request_builder.named(topic, {})
        self.info = info
        #: The state of the routes that it was last compared with.
        self.changes = changes
        # The quoted properties of a message that has none of its own, with a place for its id.
        ordinary = quote(properties.encode({properties.WAIT: "true", **self.extra, properties.UNIQ_KEY: _PLACE}))
        self._ordinary = ordinary.encode().replace(b"%", b"%%").replace(_QUOTED_PLACE, b"%b")
        #: The queues as the application knows them.
        self.shown = producer.namespace.unwrap_queues(info.queues)
        self.queue_templates: list[QueueTemplate | None] = [None] * len(info.queues)

    def queue_template(self, index: int) -> QueueTemplate:
        """The template of the queue with this index, made when it is first used."""
        found = self.queue_templates[index]
        if found is None:
            fields = self.producer.request_builder.send_request(self.topic, "", _PLACE, b"").addressed(
                self.info.queues[index], 0
            )
            fields["g"] = _PLACE
            header = encode_request(SEND_MESSAGE_V2, 0, fields)[8:].replace(b"%", b"%%")
            head, opaque, tail = header.rpartition(b'"opaque":0,')
            parts = head.split(b'"' + _QUOTED_PLACE + b'"')
            ordinary = general = None
            if len(parts) == 3 and opaque:
                rest = b"".join((parts[1], b'"%d"', parts[2], b'"opaque":%d,', tail))
                ordinary, general = parts[0] + self._ordinary + rest, parts[0] + b"%b" + rest
            found = self.queue_templates[index] = QueueTemplate(self, index, self.shown[index], ordinary, general)
        return found

    def routes_changed(self, changes: int) -> None:
        """The queues are the same, but their brokers may be elsewhere."""
        self.changes = changes
        for queue_template in self.queue_templates:
            if queue_template is not None:
                queue_template.link = None


class FastSend(FastCall[SendResult]):
    """Send that is under way and has no flow, because nothing but its answer is expected."""

    __slots__ = (
        "_chosen",
        "_deadline",
        "_encoded",
        "_for_callback",
        "_generation",
        "_msg_id",
        "_queue_template",
        "_wall",
        "body",
    )

    def __init__(
        self,
        queue_template: QueueTemplate,
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
        self.settled = False
        self.failure = None
        self.wake = None
        self.link = link
        self.opaque = opaque
        self.since = now
        self.reads = link.reads
        self.body = body
        self._queue_template = queue_template
        #: Whether the application has chosen the queue.
        self._chosen = chosen
        self._msg_id = msg_id
        #: The property string; None for a message without properties of its own.
        self._encoded = encoded
        self._for_callback = for_callback
        self._deadline = deadline
        self._wall = wall
        self._generation = generation

    @property
    def producer(self) -> ProducerCore:
        return self._queue_template.topic_template.producer

    def answered(self, answer: tuple[Any, ...]) -> None:
        """The usual answer came, with the fields of `SendAnswer`: this is the end."""
        queue_template = self._queue_template
        queue_template.topic_template.window.give(self._generation, len(self.body))
        _, queue_id, offset, offset_msg_id, region, trace_on, transaction_id = answer
        queue = queue_template.queue
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        self.settle(
            SendResult(SendStatus.SEND_OK, self._msg_id, queue, offset, offset_msg_id, transaction_id, region, trace_on)
        )

    def unfold(self) -> Flow[SendResult]:
        """The flow of this send; its first effect is the call that was made already."""
        topic_template = self._queue_template.topic_template
        producer = topic_template.producer
        encoded = self._encoded
        if encoded is None:
            encoded = properties.encode(
                {properties.WAIT: "true", **topic_template.extra, properties.UNIQ_KEY: self._msg_id}
            )
        send_request = producer.request_builder.send_request(topic_template.topic, self._msg_id, encoded, self.body)
        queue = topic_template.info.queues[self._queue_template.index]
        call = Call(
            self.link.address, send_request.code, send_request.addressed(queue, self._wall), self.body, self._deadline
        )
        place = producer.window.adopt(self._generation, len(self.body))
        return producer.go_on(
            send_request,
            place,
            call,
            queue,
            None if self._chosen else topic_template.info,
            self.since,
            self._for_callback,
        )


class FastSends:
    """Sends without a flow of one producer on one node."""

    __slots__ = (
        "_ids",
        "_node",
        "_producer",
        "_routes",
        "_size_max",
        "_timeout_ms",
        "_topic_templates",
        "_usual",
        "_window",
    )

    def __init__(self, node: FlowNode, host: ProducerHost, producer: ProducerCore) -> None:
        self._node = node
        self._routes = host.routes
        self._ids = host.ids
        self._producer = producer
        self._window = producer.window
        self._topic_templates: dict[str, TopicTemplate] = {}
        settings = producer.settings
        #: From here on a body is compressed, refused, or sent as a buffer of its own.
        self._size_max = min(settings.compress_body_over, settings.max_message_size + 1, SEPARATE_BODY)
        #: Whether calls go where the route says, as they are, and nobody wants to know how long they take.
        as_they_are = node.credentials is None and node.reroute is None and not node.common_fields
        unwatched = (
            not settings.latency_fault_tolerance and not settings.enable_msg_trace and settings.attempt_timeout_ms < 0
        )
        self._usual = as_they_are and unwatched
        self._timeout_ms = settings.send_timeout_ms

    def begin(
        self, message: Message, queue: MessageQueue | None, timeout_ms: int | None, for_callback: bool, now: int
    ) -> Ticket[SendResult] | None:
        """Send a message the usual way; None, and nothing has happened, where that is not possible for certain."""
        if type(message) is not Message or type(message.topic) is not str:
            return None
        topic_template = self._topic_templates.get(message.topic)
        if topic_template is None or topic_template.changes != self._routes.changes or self._producer.closed:
            topic_template = self._find_template(message.topic)
            if topic_template is None:
                return None
        body = message.body
        if type(body) is not bytes or not 0 < len(body) < self._size_max or message.flag:
            return None
        info = topic_template.info
        if queue is None:
            index = info.turn % len(info.queues)
        elif queue in topic_template.shown:
            index = topic_template.shown.index(queue)
        else:
            return None
        queue_template = topic_template.queue_templates[index] or topic_template.queue_template(index)
        link = queue_template.link
        if link is None or not link.usable:
            link = queue_template.link = self._find_link(queue_template.broker_name)
            if link is None or not link.usable:
                return None
        deadline = now + (self._timeout_ms if timeout_ms is None else timeout_ms)
        if (
            queue_template.ordinary is None
            or queue_template.general is None
            or deadline <= now
            or not self._node.may_call(link)
        ):
            return None
        is_ordinary = not (message.properties or message.keys or message.tags or message.delay_level) and message.wait
        if not is_ordinary and not self._is_sound(message):
            return None
        generation = self._window.take(len(body))
        if generation is None:
            return None
        if queue is None:
            info.next_turn()
        wall = now + self._node.wall_ahead
        msg_id = self._ids.next(wall)
        opaque = link.free_opaque()
        encoded: str | None = None
        if is_ordinary:
            header = queue_template.ordinary % (msg_id.encode(), wall, opaque)
        else:
            encoded = properties.encode(
                {**message.wire_properties(), **topic_template.extra, properties.UNIQ_KEY: msg_id}
            )
            header = queue_template.general % (quote(encoded).encode("utf-8", "replace"), wall, opaque)
        chosen = queue is not None
        send = FastSend(
            queue_template, chosen, body, msg_id, encoded, for_callback, deadline, wall, generation, link, opaque, now
        )
        size = len(header)
        self._node.launch(send, _HEAD.pack(4 + size + len(body), size) + header, body, deadline)
        return send

    def _find_template(self, topic: str) -> TopicTemplate | None:
        """The template of a topic; None where its sends need a flow, or where to send to is not known."""
        topic_template = self._topic_templates.get(topic)
        routes = self._routes
        if (
            topic_template is not None
            and topic_template.info is routes.publish(topic_template.topic)
            and not self._producer.closed
        ):
            topic_template.routes_changed(routes.changes)
            return topic_template
        self._topic_templates.pop(topic, None)
        if not self._usual or self._producer.closed or topic.startswith(RETRY_PREFIX):
            return None
        try:
            check_message(Message(topic, _PLACE.encode()))
            wire_topic, _ = self._producer.request_builder.named(topic, {})
        except MQError:
            return None
        info = routes.publish(wire_topic)
        if info is None or not info.queues:
            return None
        if len(self._topic_templates) >= TOPIC_TEMPLATES_MAX:
            self._topic_templates.clear()
        topic_template = self._topic_templates[topic] = TopicTemplate(self._producer, topic, info, routes.changes)
        return topic_template

    def _find_link(self, broker_name: str) -> DialledLink | None:
        address = self._routes.master(broker_name)
        return None if address is None else self._node.links.get(address)

    def _is_sound(self, message: Message) -> bool:
        """Whether nothing about its properties is wrong; the flow says what is."""
        try:
            check_message(message, self._producer.settings.max_message_size)
        except MQError:
            return False
        return True
