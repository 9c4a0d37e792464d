"""The quick way of a send: from the received bytes to the stored record and the answer, without a command in between.

Owns: recognising headers that a peer repeats, and the straight line from there.
Leaves to others: everything unusual. What is not recognised here goes the general way (`send`), which means the same: a test runs
both over the same requests and compares records and answers byte for byte.

The headers that one client sends differ in four places: queue id, birth time, properties and opaque. After a send went the general
way, its header is cut at these places into a *shape*; a later header that fits the shape needs neither a JSON reader nor a dict of
fields, and all that was found out about its topic is one dict look-up away. A match is a proof, not a guess: what lies between the
four places is equal byte by byte, and what lies in them is a plain number, or text without quotes and escapes.

This is the hottest module of the broker: plain typed code that mypyc compiles as it is (DESIGN 4 and 8).
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from engine.broker.core import ClientLink, Core
from engine.broker.stored import PropertyScanner
from engine.store import PutRefused, Queue
from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.headers import SendMessageRequest

#: Shapes that a link keeps: one for each topic that its peer sends to in turn.
SHAPES_MAX: Final = 16
#: Sends of other headers after which a full set of shapes is dropped.
UNSHAPED_MAX: Final = 1024
#: Queues that a shape remembers.
TARGETS_MAX: Final = 4096
#: Longer headers are not worth a shape.
HEADER_MAX: Final = 4096

_WORDS: Final = Struct(">ii")
#: The two length words of an answer without body, by the length of its header.
_FRAME_WORDS: Final = tuple(_WORDS.pack(4 + size, size) for size in range(1024))
#: Wire names of queue id, birth time and properties, by request code.
_NAMES: Final = {10: (b"queueId", b"bornTimestamp", b"properties"), 310: (b"e", b"g", b"i")}

_QUOTED: Final = rb'"%b"\s*:\s*"([0-9]+)"'
_BARE: Final = rb'"%b"\s*:\s*(0|[1-9][0-9]*)\b(?![.eE"])'
_TEXT: Final = rb'"%b"\s*:\s*"((?:[^"\\]|\\u000[12])*)"'


class Target:
    """One queue that a shape sends to."""

    __slots__ = ("answer", "queue")

    def __init__(self, queue: Queue, answer: bytes) -> None:
        self.queue = queue
        #: Template of the answer: physical offset, queue offset, opaque.
        self.answer = answer


class Shape:
    """A header with its four changing places left open, and what the rest of it says."""

    __slots__ = (
        "birth",
        "flag",
        "generation",
        "head",
        "head_size",
        "match",
        "oneway",
        "opaque",
        "properties",
        "queue",
        "reconsume_times",
        "sys_flag",
        "targets",
        "topic",
    )

    def __init__(
        self, head: bytes, rest: bytes, order: dict[str, int], request: Command, header: SendMessageRequest, sys_flag: int
    ) -> None:
        self.head = head
        self.head_size = len(head)
        self.match = re.compile(rest).fullmatch
        # Numbers of the groups.
        self.queue = order["queue"]
        self.birth = order["birth"]
        self.properties = order["properties"]
        self.opaque = order["opaque"]
        self.oneway = request.flag & ONEWAY_FLAG != 0
        self.topic = header.topic
        self.flag = header.flag
        self.sys_flag = sys_flag
        self.reconsume_times = header.reconsume_times or 0
        #: Queue id as it is written -> target.
        self.targets: dict[bytes, Target] = {}
        #: Of the topic table, when this was made: what is known of the topic holds while the table has it.
        self.generation = 0


def cut(text: bytes, request: Command, header: SendMessageRequest, sys_flag: int) -> Shape | None:
    """The shape of a header that was accepted, or None for one that is better read in full each time."""
    wanted = _NAMES.get(request.code)
    if wanted is None or len(text) > HEADER_MAX or header.properties is None:
        return None
    numbers = (
        ("queue", wanted[0], header.queue_id, 6),
        ("birth", wanted[1], header.born_timestamp, 18),
        ("opaque", b"opaque", request.opaque, 9),
    )
    places: list[tuple[int, int, str, bytes]] = []
    for place, name, value, digits in numbers:
        found = list(re.finditer(_QUOTED % name, text)) or list(re.finditer(_BARE % name, text))
        if len(found) != 1 or len(re.findall(rb'"%b"\s*:' % name, text)) != 1 or int(found[0][1]) != value:
            return None
        start, end = found[0].span(1)
        quoted = text[end : end + 1] == b'"'
        places.append((start, end, place, rb"([0-9]{1,%d})" % digits if quoted else rb"(0|[1-9][0-9]{0,%d})" % (digits - 1)))
    found = list(re.finditer(_TEXT % wanted[2], text))
    if len(found) != 1 or len(re.findall(rb'"%b"\s*:' % wanted[2], text)) != 1:
        return None
    places.append((*found[0].span(1), "properties", rb'([^"]*)'))
    places.sort()
    rest = b""
    for (_, end, _, pattern), after in zip(places, [*(place[0] for place in places[1:]), len(text)], strict=True):
        rest += pattern + re.escape(text[end:after])
    order = {place: number for number, (_, _, place, _) in enumerate(places, 1)}
    return Shape(text[: places[0][0]], rest, order, request, header, sys_flag)


class QuickSends:
    """Takes frames that fit a shape of their link."""

    def __init__(self, core: Core, scanner: PropertyScanner) -> None:
        self.core = core
        self.store = core.store
        self.scanner = scanner
        self.sync = core.store.sync
        self.answer = _answer_template(core)
        self._accepted: tuple[ClientLink, Command, SendMessageRequest, int] | None = None

    def remember(self, link: ClientLink, request: Command, header: SendMessageRequest, sys_flag: int) -> None:
        """The general way has stored an ordinary message: its header may be cut into a shape once the frame is at hand (`learn`)."""
        self._accepted = (link, request, header, sys_flag)

    def learn(self, link: ClientLink, text: bytes) -> None:
        """`text` is the JSON header of the request that was handled last: cut it into a shape, if it was accepted and can be."""
        accepted, self._accepted = self._accepted, None
        if accepted is None or accepted[0] is not link:
            return
        if len(link.shapes) >= SHAPES_MAX:
            # More topics than places, or old topics in them: begin anew now and then.
            link.unshaped += 1
            if link.unshaped < UNSHAPED_MAX:
                return
            link.unshaped = 0
            link.shapes.clear()
        shape = cut(text, *accepted[1:])
        if shape is not None:
            shape.generation = self.core.topics.generation
            link.shapes.append(shape)
            link.shape = shape

    def shape_for(self, link: ClientLink, data: bytes, start: int) -> Shape | None:
        """The shape of the link that the header at `start` may fit, judged by how it begins; it becomes the link's current one."""
        for shape in link.shapes:
            if data.startswith(shape.head, start):
                link.shape = shape
                return shape
        return None

    def take(self, link: ClientLink, shape: Shape, data: bytes, start: int, stop: int, end: int) -> bool:
        """Store the message of one frame (header from `start`, body from `stop` to `end`) and answer it.

        False: nothing was done, the frame goes the general way.
        """
        match = shape.match(data, start + shape.head_size, stop)
        if match is None:
            return False
        queue_id, birth, raw, opaque = match.group(shape.queue, shape.birth, shape.properties, shape.opaque)
        core = self.core
        if shape.generation != core.topics.generation:
            link.shapes.remove(shape)  # what it says of its topic may be wrong by now
            link.shape = None
            return False
        target = shape.targets.get(queue_id)
        if target is None:
            target = self._target(shape, queue_id)
            if target is None:
                return False
        properties = raw.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        if b"\\" in properties or not (properties.isascii() or _is_text(properties)):
            return False
        scanned = self.scanner.scan(properties)
        if scanned is None:
            return False
        text, waits, tags_code, unique, keys = scanned
        queue = target.queue
        try:
            physical = self.store.append(
                queue,
                data[stop:end],
                text,
                shape.flag,
                shape.sys_flag,
                int(birth),
                link.born_host,
                core.store_host,
                shape.reconsume_times,
                0,
                tags_code,
                unique,
                keys,
                core.wall,
            )
        except PutRefused:
            return False  # the general way gets the same refusal, and knows what to say
        core.messages_in += 1
        if queue.parked is not None:
            core.stored(queue)
        if not shape.oneway:
            header = target.answer % (physical, queue.next_offset - 1, opaque)
            answer = _FRAME_WORDS[len(header)] + header
            if self.sync and waits:
                core.hold(link, answer)
            else:
                link.out.append(answer)
                link.unsent += len(answer)
        if self.sync:
            core.flush_wanted = True
        return True

    def _target(self, shape: Shape, queue_id: bytes) -> Target | None:
        """Look the queue up as the general way does; None for whatever that would refuse or change."""
        config = self.core.topics.find(shape.topic)
        number = int(queue_id)
        if config is None or number >= max(config.write_queues, config.read_queues) or len(shape.targets) >= TARGETS_MAX:
            return None
        target = Target(self.store.queue(shape.topic, number), self.answer.replace(b"%QUEUE%", b"%d" % number))
        shape.targets[queue_id] = target
        return target


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def send_answer_fields(core: Core, msg_id: str, queue_id: int, queue_offset: int) -> dict[str, str]:
    """The fields of the answer to a message that was stored."""
    return {
        "msgId": msg_id,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "MSG_REGION": core.settings.region_id,
        "TRACE_ON": "true" if core.settings.trace_on else "false",
    }


def _answer_template(core: Core) -> bytes:
    """The answer as `encode_response` makes it, cut open for physical offset, queue offset and opaque, in this order.

    `%QUEUE%` stands for the queue id.
    """
    fields = send_answer_fields(core, "\x01", 0, 0) | {"queueId": "\x02", "queueOffset": "\x03"}
    opaque = 2_077_777_777
    header = encode_response(opaque, 0, fields)[8:].replace(b"%", b"%%")
    return (
        header.replace(rb"\u0001", core.store_host.hex().upper().encode() + b"%016X")
        .replace(rb"\u0002", b"%QUEUE%")
        .replace(rb"\u0003", b"%d")
        .replace(b"%d" % opaque, b"%b")
    )
