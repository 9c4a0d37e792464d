"""Fast path of sends: from the received bytes to the stored record and the answer, without a command in between.

Owns: ordinary messages whose header fits a template.
Leaves to others: everything unusual. What is not taken here goes the general way (`send`), which means the same: a test
runs both over the same requests and compares records and answers byte for byte.

This is the hottest module of the broker: plain typed code that mypyc compiles as it is.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.engine.broker.core.core import ClientLink, Core
from mqproto.engine.broker.core.header_templates import HeaderCut, HeaderTemplate, cut_header, forget, remember
from mqproto.engine.broker.sends.message_writer import PropertyScanner, Scanned
from mqproto.engine.counters import Counter
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import PutRefused, Queue
from mqproto.wire.codes import SEND_MESSAGE, SEND_MESSAGE_V2, SUCCESS
from mqproto.wire.headers import SendMessageRequest

#: Queues that a template remembers.
TARGETS_MAX: Final = 4096
#: Templates of properties that one of a header tries: properties that always differ are not worth one.
TEMPLATES_MAX: Final = 16

_WORDS: Final = Struct(">ii")
#: The two length words of an answer without body, by the length of its header.
_FRAME_WORDS: Final = tuple(_WORDS.pack(4 + size, size) for size in range(1024))
#: Wire names of queue id, birth time and properties, by request code.
_NAMES: Final = {
    SEND_MESSAGE: (b"queueId", b"bornTimestamp", b"properties"),
    SEND_MESSAGE_V2: (b"e", b"g", b"i"),
}
_OPAQUE: Final = b"opaque"
_UNIQUE: Final = b"UNIQ_KEY"


class QueueTarget:
    """Queue that a template sends to."""

    __slots__ = ("answer", "counter", "queue")

    def __init__(self, queue: Queue, counter: Counter, answer: bytes) -> None:
        self.queue = queue
        #: Counts what is put there.
        self.counter = counter
        #: Template of the answer: physical offset, queue offset, opaque.
        self.answer = answer


class PropertiesTemplate:
    """Template of properties in which only the unique id changes, and what a scan made of them.

    A producer that sets neither keys nor properties of its own sends such ones. What surrounds the id is equal byte by
    byte and the id is made of letters and digits alone, so a scan would find the same again.
    """

    __slots__ = (
        "after",
        "before",
        "id_end",
        "id_start",
        "keys",
        "size",
        "stored_after",
        "stored_before",
        "tags_code",
        "waits",
    )

    def __init__(self, raw: bytes, scanned: Scanned, at: int, stored_at: int, length: int) -> None:
        text, self.waits, self.tags_code, _, self.keys = scanned
        self.size = len(raw)
        self.id_start = at
        self.id_end = at + length
        self.before = raw[:at]
        self.after = raw[at + length :]
        self.stored_before = text[:stored_at]
        self.stored_after = text[stored_at + length :]


def _properties_template(raw: bytes, scanned: Scanned) -> PropertiesTemplate | None:
    """The template of properties as they stand in a header; None where the unique id does not stand out."""
    unique = scanned[3]
    if unique is None or not unique.isascii() or not unique.isalnum():
        return None
    key = unique.encode()
    if raw.count(key) != 1 or scanned[0].count(key) != 1 or raw.count(_UNIQUE) != 1:
        return None
    return PropertiesTemplate(raw, scanned, raw.index(key), scanned[0].index(key), len(key))


class SendTemplate(HeaderTemplate):
    """Template of a header of sends to one topic, with queue id, birth time, properties and opaque left open."""

    __slots__ = (
        "birth",
        "change",
        "flag",
        "oneway",
        "opaque",
        "properties",
        "properties_template",
        "queue",
        "reconsume_times",
        "sys_flag",
        "targets",
        "templates_left",
        "topic",
    )

    def __init__(
        self,
        fast: FastSendHandler,
        cut: HeaderCut,
        request: Command,
        header: SendMessageRequest,
        sys_flag: int,
        change: int,
    ) -> None:
        super().__init__(fast, cut)
        queue, birth, properties = _NAMES[request.code]
        # Numbers of the groups.
        self.queue = cut.order[queue]
        self.birth = cut.order[birth]
        self.properties = cut.order[properties]
        self.opaque = cut.order[_OPAQUE]
        self.oneway = request.flag & ONEWAY_FLAG != 0
        self.topic = header.topic
        self.flag = header.flag
        self.sys_flag = sys_flag
        self.reconsume_times = header.reconsume_times or 0
        #: Queue id as it is written -> target.
        self.targets: dict[bytes, QueueTarget] = {}
        #: Number of the topic's last change when this was made: what is known of the topic holds while that is its
        #: last.
        self.change = change
        #: The properties that came last, and how often they may turn out to be others before that is left alone.
        self.properties_template: PropertiesTemplate | None = None
        self.templates_left = TEMPLATES_MAX


class FastSendHandler:
    """Fast path of sends."""

    def __init__(self, core: Core, scanner: PropertyScanner) -> None:
        self.core = core
        self.config_manager = core.config_manager
        self.pending_acks = core.pending_acks
        self.store = core.store
        self.writer = core.store.writer
        self.scanner = scanner
        self.sync = core.store.sync
        self.extended = core.store.settings.enable_consume_queue_ext
        self.answer = b""
        self.make_answer()

    def make_answer(self) -> None:
        """Make the template of answers, which has settings in it. Templates of headers keep what they were given."""
        self.answer = _answer_template(self.core)

    def learn(self, link: ClientLink, text: bytes, request: Command, header: SendMessageRequest, sys_flag: int) -> None:
        """The general way has stored an ordinary message; `text` is its JSON header."""
        names = _NAMES.get(request.code)
        if names is None:
            return
        numbers = ((names[0], header.queue_id, 6), (names[1], header.born_timestamp, 18), (_OPAQUE, request.opaque, 9))
        cut = cut_header(text, numbers, (names[2],))
        if cut is not None:
            remember(
                link, SendTemplate(self, cut, request, header, sys_flag, self.core.topics.changes.get(header.topic, 0))
            )

    def take(self, link: ClientLink, template: HeaderTemplate, data: bytes, start: int, stop: int, end: int) -> bool:
        """Store the message of one frame and answer it."""
        assert isinstance(template, SendTemplate)
        match = template.match(data, start + template.head_size, stop)
        if match is None:
            return False
        core = self.core
        if template.change != core.topics.changes.get(template.topic, 0):
            forget(link, template)  # what it says of its topic may be wrong by now
            return False
        queue_id, birth, raw, opaque = match.group(template.queue, template.birth, template.properties, template.opaque)
        target = template.targets.get(queue_id)
        if target is None:
            target = self._target(template, queue_id)
        if target is None or template.change > self.config_manager.saved or (self.sync and self.pending_acks.full):
            return False  # what waits for its topic to be saved is for the general way, too
        form = template.properties_template
        if form is not None and len(raw) == form.size and raw.startswith(form.before) and raw.endswith(form.after):
            key = raw[form.id_start : form.id_end]
        else:
            key = b""
        unique: str | None
        if form is not None and key.isalnum():
            text = b"%b%b%b" % (form.stored_before, key, form.stored_after)
            waits = form.waits
            tags_code = form.tags_code
            unique = key.decode()
            keys = form.keys
        else:
            scanned = self._scan(template, raw)
            if scanned is None:
                return False
            text, waits, tags_code, unique, keys = scanned
        queue = target.queue
        try:
            physical = self.writer.append(
                queue, data[stop:end], text, template.flag, template.sys_flag, int(birth), link.born_host,
                core.store_host, template.reconsume_times, 0, tags_code, unique, keys, core.wall,
                core.filters.bits(template.topic, text) if self.extended else b"",
            )  # fmt: skip
        except PutRefused:
            if queue.removed:
                forget(link, template)
            return False  # the general way gets the same refusal, or finds the new queue, and knows what to say
        core.messages_in += 1
        counter = target.counter
        counter.times += 1
        counter.size += self.store.end - physical
        if not counter.changed:
            core.statistics.touch(counter)
        if self.sync:
            core.flush_wanted = True
        elif queue.parked is not None:
            core.arrived[queue] = None
        if not template.oneway:
            header = target.answer % (physical, queue.next_offset - 1, opaque)
            answer = _FRAME_WORDS[len(header)] + header
            if waits and self.sync:
                self.pending_acks.hold(link, answer)
            else:
                link.out.append(answer)
                link.unsent += len(answer)
        return True

    def _scan(self, header_template: SendTemplate, raw: bytes) -> Scanned | None:
        """What properties say that fit no template; None for those of the general way."""
        properties = raw.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        if b"\\" in properties or not (properties.isascii() or _is_text(properties)):
            return None
        scanned = self.scanner.scan(properties)
        if scanned is not None and header_template.templates_left:
            header_template.templates_left -= 1
            header_template.properties_template = _properties_template(raw, scanned)
        return scanned

    def _target(self, header_template: SendTemplate, queue_id: bytes) -> QueueTarget | None:
        """Look the queue up as the general way does; None for whatever that would refuse or change."""
        config = self.core.topics.find(header_template.topic)
        number = int(queue_id)
        if (
            config is None
            or number >= max(config.write_queues, config.read_queues)
            or len(header_template.targets) >= TARGETS_MAX
        ):
            return None
        queue = self.store.queue(header_template.topic, number)
        target = QueueTarget(queue, self.core.statistics.puts(queue), self.answer.replace(b"%QUEUE%", b"%d" % number))
        header_template.targets[queue_id] = target
        return target


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def send_answer_fields(settings: BrokerSettings, msg_id: str, queue_id: int, queue_offset: int) -> dict[str, str]:
    """The fields of the answer to a message that was stored."""
    return {
        "msgId": msg_id,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "MSG_REGION": settings.region_id,
        "TRACE_ON": "true" if settings.trace_on else "false",
    }


def _answer_template(core: Core) -> bytes:
    """The answer as `encode_response` makes it, cut open for physical offset, queue offset and opaque, in this order.

    `%QUEUE%` stands for the queue id.
    """
    fields = send_answer_fields(core.settings, "\x01", 0, 0) | {"queueId": "\x02", "queueOffset": "\x03"}
    opaque = 2_077_777_777
    header = encode_response(opaque, SUCCESS, fields)[8:].replace(b"%", b"%%")
    return (
        header.replace(rb"\u0001", core.store_host.hex().upper().encode() + b"%016X")
        .replace(rb"\u0002", b"%QUEUE%")
        .replace(rb"\u0003", b"%d")
        .replace(b"%d" % opaque, b"%b")
    )
