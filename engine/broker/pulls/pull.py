"""Pulls, PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361: reading a queue, waiting at its end (docs/protocol/broker.md 2.4).

Owns: answers that are views of the log, when a parked pull is answered and with what.
Leaves to others: who may pull what (`pull_checks`), the read itself (`mqproto.engine.store`), the table of parked pulls
(`parked_pulls`).
"""

from __future__ import annotations

from copy import copy
from itertools import islice
from struct import Struct
from typing import Final

from mqproto.codec import JSON, ONEWAY_FLAG, RESPONSE_FLAG, Command, encode_head, encode_response
from mqproto.engine.broker.core.admission import FAIR
from mqproto.engine.broker.core.core import ClientLink, Core, Handlers
from mqproto.engine.broker.core.header_templates import HeaderCut, HeaderTemplate, cut_header, remember
from mqproto.engine.broker.core.parked_pulls import ParkedPull
from mqproto.engine.broker.filters.message_filters import Filter
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Refused
from mqproto.engine.broker.pulls.pull_checks import PullChecks
from mqproto.engine.counters import CounterReader
from mqproto.engine.store import ColdRead, GetResult, GetStatus, Queue
from mqproto.wire.bodies import GroupConfig
from mqproto.wire.codes import (
    LITE_PULL_MESSAGE,
    PULL_MESSAGE,
    PULL_NOT_FOUND,
    PULL_OFFSET_MOVED,
    PULL_RETRY_IMMEDIATELY,
    SUCCESS,
    SYSTEM_BUSY,
)
from mqproto.wire.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from mqproto.wire.headers import PullMessageRequest, PullMessageResponse

_CODES: Final = {
    GetStatus.FOUND: SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: PULL_OFFSET_MOVED,
}
#: Parked pulls that are looked at in one entry.
LOOKS_MAX: Final = 200
#: Views of fewer bytes on average are joined: one write of many small buffers costs more than the copy.
SMALL_VIEW: Final = 4096
#: Characters of the expressions that parked pulls keep.
HELD_LENGTH_MAX: Final = 4 << 20
_WORDS: Final = Struct(">ii")
_NOBODY: Final[dict[str, CounterReader]] = {}


class PullCall:
    """Pull as it is served: its header, and what the answer repeats."""

    __slots__ = ("flag", "header", "kind", "opaque", "wanted")

    def __init__(self, header: PullMessageRequest, opaque: int, flag: int, kind: int) -> None:
        self.header = header
        self.opaque = opaque
        self.flag = flag
        #: Serialize type.
        self.kind = kind
        #: The filter, where nothing but the header decides about it and it was found already.
        self.wanted: Filter | None = None

    def kept(self) -> PullCall:
        """A copy that nobody else fills anew, without the expression, which may be long and was read already."""
        header = copy(self.header)
        if header.sys_flag & PULL_SUBSCRIPTION:
            header.subscription = None
        return PullCall(header, self.opaque, self.flag, self.kind)


class HeldPull(ParkedPull):
    """Pull that waits: what to answer, and from where on nothing was looked at yet."""

    __slots__ = ("call", "client", "filter", "offset", "store_queue", "subscribed")

    def __init__(self, link: ClientLink, queue: Queue, until: int, call: PullCall, wanted: Filter) -> None:
        super().__init__(link, queue, until)
        self.client = link
        self.store_queue = queue
        self.call = call
        #: None: there is no room for it, or it is no longer what the group wants, so the peer looks itself whether what
        #: arrived is for it.
        self.filter: Filter | None = wanted
        #: What the group had subscribed when it was parked; None: the request itself says what it wants.
        self.subscribed: tuple[str, str] | None = None
        self.weight = wanted.length
        #: The requested offset, or further on: what a filter passed over is not read again.
        self.offset = call.header.queue_offset


class PullRequests:
    """Requests to pull, and the pulls that wait."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.checks = PullChecks(
            core, core.settings, core.topics, core.subscription_groups, core.filters, core.client_registry, core.host
        )
        self.fast = FastPullHandler(self)
        self._template = _answer_template()
        #: Parked pulls that are still to be looked at.
        self._crowd: dict[ParkedPull, None] = {}

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            PULL_MESSAGE: self.on_pull,
            LITE_PULL_MESSAGE: self.on_pull,
        }

    def on_pull(self, link: ClientLink, request: Command) -> None:
        header = PullMessageRequest.decode(request.fields)
        self.serve(link, PullCall(header, request.opaque, request.flag, request.serialize_type))
        fast = self.fast
        self.core.lesson = lambda link, text: fast.learn(link, text, request, header)

    def serve(self, link: ClientLink, call: PullCall) -> None:
        """Answer a pull, or park it. Raises Refused."""
        core = self.core
        header = call.header
        settings = self.checks.check(link, header)
        wanted = call.wanted or self.checks.filter_of(header, settings)
        if header.sys_flag & PULL_COMMIT_OFFSET:
            core.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        queue = core.store.queue(header.topic, header.queue_id)
        judge = wanted.judge() if wanted.judged else None
        result = core.store.reads.get(queue, header.queue_offset, max(1, header.max_msg_nums), wanted.codes, judge)
        if isinstance(result, GetResult):
            code = _code(result, header.queue_offset)
            if code != PULL_NOT_FOUND or not self._parked(link, queue, call, wanted):
                self._answer(link, call, settings, code, result, queue)
        elif not call.flag & ONEWAY_FLAG:
            self._wait(result, link, queue, call.kept(), wanted)

    def _wait(self, job: ColdRead[GetResult], link: ClientLink, queue: Queue, call: PullCall, wanted: Filter) -> None:
        """Go on when the disk has given what may not be in memory. Raises Refused."""
        offset = call.header.queue_offset
        since = self.core.now

        def then(result: GetResult) -> None:
            settings = self.checks.again(link, call.header)  # much may have changed meanwhile
            if result.status is not GetStatus.FOUND and offset < queue.min_offset:
                result = self.core.store.reader.get(queue, offset, 1, None)  # the messages were deleted: this says so
            code = _code(result, offset)
            if code != PULL_NOT_FOUND or not self._parked(link, queue, call, wanted):
                self._answer(link, call, settings, code, result, queue)
                if code == SUCCESS:
                    self.core.statistics.read_took(queue, call.header.consumer_group, self.core.now - since)

        patience_ms = self.core.admission.patience(PULL_MESSAGE)
        self.core.waiting_reads.wait(
            link, job, then, lambda refused: self.refuse(link, call, refused), patience_ms=patience_ms
        )

    def _parked(self, link: ClientLink, queue: Queue, call: PullCall, wanted: Filter) -> bool:
        """Nothing is there yet: park the pull if it may wait. Raises Refused."""
        if not call.header.sys_flag & PULL_SUSPEND or call.flag & ONEWAY_FLAG:
            return False
        hold_ms = self._hold_ms(call.header)
        if hold_ms <= 0:
            return False
        pull = HeldPull(link, queue, self.core.now + hold_ms, call.kept(), wanted)
        if not call.header.sys_flag & PULL_SUBSCRIPTION:
            pull.subscribed = self.checks.subscribed(call.header)
        if wanted.length and self.core.parked_pulls.weight + wanted.length > HELD_LENGTH_MAX:
            pull.filter = None
            pull.weight = 0
        self._park(pull)
        self.core.statistics.store_stats.missing()
        return True

    def _hold_ms(self, header: PullMessageRequest) -> int:
        """How long a pull may wait: what it asks for, within reason (CON-19)."""
        settings = self.core.settings
        wanted = min(header.suspend_timeout_millis, settings.broker_suspend_max_time_millis)
        return wanted if settings.long_polling_enable else min(wanted, settings.short_polling_time_mills)

    def _park(self, pull: HeldPull) -> None:
        if not self.core.parked_pulls.park(pull):
            raise Refused(SYSTEM_BUSY, OVERLOAD)

    # --- parked pulls ---

    def wake(self) -> None:
        """End of an entry: messages arrived in these queues, look whether they are for somebody who waits.

        Where a crowd waits, it is looked at in slices, those that were not looked at for longest first.
        """
        core = self.core
        left = LOOKS_MAX
        while core.arrived:
            queues = list(core.arrived)
            core.arrived.clear()
            for queue in queues:
                waiting = core.parked_pulls.waiting(queue)
                left -= len(waiting)
                if left < 0:
                    self._crowd |= {pull: None for pull in waiting if pull not in self._crowd}
                    continue
                for pull in waiting:
                    assert isinstance(pull, HeldPull)
                    self._look(pull)
        if self._crowd:
            core.after(0, self.wake_crowd)

    def wake_crowd(self) -> None:
        """Alarm, at once while there is a crowd: the next slice of it."""
        for pull in list(islice(self._crowd, LOOKS_MAX)):
            del self._crowd[pull]
            assert isinstance(pull, HeldPull)
            if pull.key:
                self._look(pull)
        if self._crowd:
            self.core.after(0, self.wake_crowd)

    def _look(self, pull: HeldPull) -> None:
        """Answer a parked pull if there is something for it now; else it stays, and what does not match is passed over.

        It waits at the end of its queue, so whatever it finds was written just now and is read at once.
        """
        link = pull.client
        if link.unsent > FAIR and self.core.admission.overloaded(link):
            self.core.parked_pulls.remove(pull)
            self.refuse(link, pull.call, Refused(SYSTEM_BUSY, OVERLOAD))
            return
        result = self._read(pull)
        while result.status is GetStatus.NO_MATCHED_MESSAGE and result.next_offset > pull.offset:
            pull.offset = result.next_offset
            if pull.filter is not None and pull.filter.judged and pull.offset < pull.store_queue.max_offset:
                break  # that was work enough for one entry: the peer asks for the rest
            result = self._read(pull)
        if _code(result, pull.offset) != PULL_NOT_FOUND:
            self.core.parked_pulls.remove(pull)
            self._settle(pull, result)

    def abandon(self, queue: Queue) -> None:
        """A queue was deleted: nothing will arrive there any more.

        One made under its name begins at 0: whoever waits goes there.
        """
        for pull in self.core.parked_pulls.waiting(queue):
            assert isinstance(pull, HeldPull)
            self.core.parked_pulls.remove(pull)
            self._settle(pull, GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [], 0, 0, False))

    def expire(self, pull: HeldPull) -> None:
        """The time of a parked pull is up."""
        self._settle(pull, self._read(pull))

    def _read(self, pull: HeldPull) -> GetResult:
        """What there is for a parked pull from its offset on. Without a filter: whether there is anything."""
        if (
            pull.subscribed is not None
            and pull.filter is not None
            and pull.subscribed != self.checks.subscribed(pull.call.header)
        ):
            pull.filter = None
        queue, wanted = pull.store_queue, pull.filter
        store = self.core.store
        if wanted is not None:
            judge = wanted.judge() if wanted.judged else None
            return store.reader.get(queue, pull.offset, max(1, pull.call.header.max_msg_nums), wanted.codes, judge)
        result = store.reader.get(queue, pull.offset, 1, None)
        if result.status is GetStatus.FOUND:
            result = GetResult(
                GetStatus.NO_MATCHED_MESSAGE, pull.offset, result.min_offset, result.max_offset, [], 0, 0, False
            )
        return result

    def _settle(self, pull: HeldPull, result: GetResult) -> None:
        """Answer a pull that waited. Topic and group may have changed meanwhile, so all is checked once more."""
        call = pull.call
        try:
            settings = self.checks.again(pull.client, call.header)
        except Refused as refused:
            self.refuse(pull.client, call, refused)
            return
        code = _code(result, pull.offset)
        if code == PULL_NOT_FOUND and pull.offset > call.header.queue_offset:
            code = PULL_RETRY_IMMEDIATELY  # nothing matched, but the consumer need not look there again
        self._answer(pull.client, call, settings, code, result, pull.store_queue)
        if pull.client.unsent > FAIR:
            self.core.admission.wrote(pull.client)

    def refuse(self, link: ClientLink, call: PullCall, refused: Refused) -> None:
        """Answer with an error."""
        if not link.ended and not call.flag & ONEWAY_FLAG:
            self.core.write(
                link, encode_response(call.opaque, refused.code, remark=refused.remark, serialize_type=call.kind)
            )

    # --- answers ---

    def _answer(
        self, link: ClientLink, call: PullCall, settings: GroupConfig, code: int, result: GetResult, queue: Queue
    ) -> None:
        if link.ended or call.flag & ONEWAY_FLAG:
            return
        core = self.core
        if result.damaged:
            core.notice(result.damaged)
        broker_id = 0
        if core.settings.slave_read_enable:
            broker_id = settings.which_broker_when_consume_slowly if result.suggest_slave else settings.broker_id
        found = code == SUCCESS
        size = result.size if found else 0
        status = result.status.value
        if call.kind == JSON:
            header = self._template % (
                code,
                broker_id,
                result.next_offset,
                result.min_offset,
                result.max_offset,
                call.opaque,
                status.encode(),
            )
            head = _WORDS.pack(4 + len(header) + size, len(header)) + header
        else:
            fields = PullMessageResponse(broker_id, result.next_offset, result.min_offset, result.max_offset).encode()
            head = encode_head(
                Command(code, fields, b"", call.opaque, RESPONSE_FLAG, status, serialize_type=call.kind), size
            )
        if not found:
            core.statistics.store_stats.missing()
            core.write(link, head)
            return
        core.messages_out += result.count
        core.reads_found += 1
        reader = (queue.readers or _NOBODY).get(call.header.consumer_group)
        if reader is None:
            reader = core.statistics.reader(queue, call.header.consumer_group)
        reader.times += 1
        reader.more += result.count - 1
        reader.size += size
        reader.behind = result.behind
        if not reader.changed:
            core.statistics.touch(reader)
        views = result.views
        if size < SMALL_VIEW * len(views):
            core.write(link, b"".join((head, *views)))
        else:
            core.write(link, head)
            link.out += views
            link.unsent += size


class PullTemplate(HeaderTemplate):
    """Template of a header of pulls, with queue id, both offsets and opaque left open."""

    __slots__ = ("call", "commit", "offset", "opaque", "queue")

    def __init__(self, fast: FastPullHandler, cut: HeaderCut, call: PullCall) -> None:
        super().__init__(fast, cut)
        # Numbers of the groups.
        self.queue = cut.order[b"queueId"]
        self.offset = cut.order[b"queueOffset"]
        self.commit = cut.order[b"commitOffset"]
        self.opaque = cut.order[b"opaque"]
        #: Filled anew for each frame; whoever keeps it longer makes a copy.
        self.call = call


class FastPullHandler:
    """Fast path of pulls: frames that fit a template are served like all others, but read faster."""

    def __init__(self, pull_requests: PullRequests) -> None:
        self.pull_requests = pull_requests

    def learn(self, link: ClientLink, text: bytes, request: Command, header: PullMessageRequest) -> None:
        """The general way has served a pull; `text` is its JSON header."""
        numbers = (
            (b"queueId", header.queue_id, 6),
            (b"queueOffset", header.queue_offset, 18),
            (b"commitOffset", header.commit_offset, 18),
            (b"opaque", request.opaque, 9),
        )
        cut = cut_header(text, numbers)
        if cut is not None:
            call = PullCall(copy(header), request.opaque, request.flag, JSON)
            call.wanted = self.pull_requests.checks.lasting_filter(header)
            remember(link, PullTemplate(self, cut, call))

    def take(self, link: ClientLink, template: HeaderTemplate, data: bytes, start: int, stop: int, end: int) -> bool:
        """Serve the pull of one frame."""
        assert isinstance(template, PullTemplate)
        match = template.match(data, start + template.head_size, stop)
        if match is None or (link.unsent > FAIR and self.pull_requests.core.admission.overloaded(link)):
            return False
        queue, offset, commit, opaque = match.group(template.queue, template.offset, template.commit, template.opaque)
        call = template.call
        header = call.header
        header.queue_id = int(queue)
        header.queue_offset = int(offset)
        header.commit_offset = int(commit)
        call.opaque = int(opaque)
        try:
            self.pull_requests.serve(link, call)
        except Refused as refused:
            self.pull_requests.refuse(link, call, refused)
        return True


def _code(result: GetResult, offset: int) -> int:
    """The response code of a read (docs/protocol/broker.md 2.4, result mapping)."""
    if result.status is GetStatus.NO_MESSAGE_IN_QUEUE:
        return PULL_OFFSET_MOVED if offset != 0 else PULL_NOT_FOUND
    return _CODES[result.status]


def _answer_template() -> bytes:
    """The answer as `encode_response` makes it, open for code, broker id, next, minimum and maximum offset, opaque,
    remark.
    """
    opaque, code = 2_077_777_777, 2_066_666_666
    fields = PullMessageResponse(0, 0, 0, 0).encode()
    header = encode_response(opaque, code, dict.fromkeys(fields, "\x01"), remark="\x02")[8:]
    return (
        header.replace(rb"\u0001", b"%d")
        .replace(rb"\u0002", b"%b")
        .replace(b"%d" % opaque, b"%d")
        .replace(b"%d" % code, b"%d")
    )
