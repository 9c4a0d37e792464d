"""Check of half messages that nobody ended, 39 and RESUME_CHECK_HALF_MESSAGE 323 (docs/protocol/broker.md 2.10;
docs/protocol/store.md 12).

Owns: the rounds of checks, when a half message is given up, when progress is saved.
Leaves to others: who is asked (`check_questions`), which half messages are open (`half_messages`), ending them
(`end_transaction`).

A round looks at every open half message once, a few at a time, so that others get their turn; those that need no look
for a while are remembered. There are no rounds while nothing is open.

A half message that is asked about goes on as a copy, and an op message says so, as if it had been ended: a broker that
starts anew asks about the copy alone. Progress counts what is durable: a half message is done with only when no power
loss takes its copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.core.core import ClientLink, Handlers
from mqproto.engine.broker.core.pending_acks import PendingAcks
from mqproto.engine.broker.interfaces.answers import DiskReads
from mqproto.engine.broker.interfaces.clock import Notices, Timers
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.sends.message_writer import MessageWriter, NewMessage, Stored
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.broker.transactions.check_questions import CheckQuestions, number_of
from mqproto.engine.broker.transactions.end_transaction import DONE_TAG, PROGRESS_GROUP, Transactions
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import ColdRead, GetResult, PutRefused, PutStatus, Store
from mqproto.message import MessageExt
from mqproto.wire import properties as names
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.flags import PERM_READ_WRITE
from mqproto.wire.headers import ResumeCheckHalfMessageRequest
from mqproto.wire.ids import IdError, parse_offset_msg_id
from mqproto.wire.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from mqproto.wire.record import RecordError, decode_record
from mqproto.wire.record_layout import QUEUE_OFFSET_AT

#: Half messages that are handled before others get their turn. Each 32 KiB of a long one count as one more.
_AT_A_TIME: Final = 32
_PART_BITS: Final = 15
#: Half messages that need no look yet, and are passed by within one turn.
_PASS_AT_A_TIME: Final = 5000
#: Op messages of one read, and reads of one turn.
_OPS_OF_A_READ: Final = 32
_OP_READS: Final = 16
_OPS_AFTER_A_ROUND: Final = 10_000
#: Half messages of before the start that are compared with each other.
_OLD_MAX: Final = 100_000
#: Half messages whose time is remembered; others are read in each round.
_RESTS_MAX: Final = 20_000
#: Half messages that may lie behind one that is not due for long. It goes on as a copy then, so that progress does not
#: stand still.
_WINDOW_MAX: Final = 1 << 20
#: Pause when the store takes nothing (a full disk), and when the disk cannot be read.
_PAUSE_MS: Final = 1000
_DISK_PAUSE_MS: Final = 10_000
_HOUR_MS: Final = 3_600_000

_RESUME_FAILED: Final = f"Put message back to {HALF_TOPIC} failed."
_RESUME_IMPOSSIBLE: Final = f"Exception was thrown when putting message back to {HALF_TOPIC}."
_TEMPORARY: Final = (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED)


class TransactionCheck:
    """Check of half messages in rounds, and what an operator may do about those that were given up."""

    def __init__(
        self,
        timers: Timers,
        notices: Notices,
        settings: BrokerSettings,
        store: Store,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        client_registry: ClientRegistry,
        reads: DiskReads,
        acks: PendingAcks,
        message_writer: MessageWriter,
        transactions: Transactions,
    ) -> None:
        self.timers = timers
        self.notices = notices
        self.settings = settings
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.reads = reads
        self.acks = acks
        self.message_writer = message_writer
        self.transactions = transactions
        self.half_messages = transactions.half_messages
        self.queue = store.queue(HALF_TOPIC, 0)
        self._ops = store.queue(OP_HALF_TOPIC, 0)
        transactions.changed = self.changed
        #: Op messages that were there at the start are read up to here, of so many.
        self._op_next = self.half_messages.op_first
        self._op_end = self._ops.next_offset
        self._loaded = False
        #: Half messages before this one were there at the start. Of those that went on as copies since: unique id, how
        #: often they had been checked, and the copy.
        self._old_end = self.half_messages.end
        self._old: dict[str, tuple[int, int]] = {}
        #: The round that runs: how far it is, where it ends, when it began; and what it gave up or could not read.
        self._running = False
        self._at = 0
        self._end = 0
        self._begun = 0
        self._given_up = 0
        self._unreadable = 0
        #: What may still be handled in this turn.
        self._left = 0
        #: Open half messages that need no look before some time (monotonic).
        self._rests: dict[int, int] = {}
        self.questions = CheckQuestions(store, client_registry)
        #: The round goes on once all questions are asked.
        self._awaits_flush = False
        #: Progress in both queues that is saved; and where the log ended and progress then, to be saved once that is
        #: durable.
        self._saved = self._progress()
        self._mark: tuple[int, tuple[int, int]] | None = None

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.on_resume,
        }

    # --- the start: what was ended before it

    def begin(self) -> None:
        """Learn what was ended; rounds follow."""
        self.timers.alarms.set(self.load, self.timers.now)

    def load(self) -> None:
        """Alarm: read op messages, a few at a time."""
        for _ in range(_OP_READS):
            if self._op_next >= self._op_end:
                self._loaded = True
                self.half_messages.loaded()
                self.changed()
                return
            read = self.store.reads.get(
                self._ops, self._op_next, min(_OPS_OF_A_READ, self._op_end - self._op_next), None
            )
            if isinstance(read, ColdRead):
                self._wait(read, self._take_cold_ops, self.load)
                return
            self._take_ops(read)
        self.timers.alarms.set(self.load, self.timers.now)

    def _take_ops(self, result: GetResult) -> None:
        for op_offset, record in _records(result.views):
            self.half_messages.read(op_offset, _settled_by(record))
        self._op_next = result.next_offset if result.next_offset > self._op_next else self._op_end

    def _take_cold_ops(self, result: GetResult) -> None:
        self._take_ops(result)
        self.load()

    def _wait(self, job: ColdRead[GetResult], then: Callable[[GetResult], None], again: Callable[[], None]) -> None:
        """Have the disk read; `then` gets the result. If the disk cannot be read, `again` is called later."""
        try:
            self.reads.wait(self.reads.own, job, then, lambda refused: self.timers.after(_DISK_PAUSE_MS, again))
        except Refused:
            self.timers.after(_DISK_PAUSE_MS, again)

    # --- progress

    def changed(self) -> None:
        """Half messages were stored or ended: see to rounds while any is open, and to progress."""
        if self._loaded:
            self._take_mark()
            if self.half_messages.open and not self._running and self.begin_round not in self.timers.alarms:
                self.timers.alarms.set(self.begin_round, self.timers.now + self.settings.transaction_check_interval)

    def _progress(self) -> tuple[int, int]:
        return self.half_messages.first, self.half_messages.op_first

    def _take_mark(self) -> None:
        if self._mark is None:
            progress = self._progress()
            if progress != self._saved:
                self._mark = (self.store.end, progress)
                self.flushed()

    def flushed(self) -> None:
        """More of the log may be durable: ask what waited for it, save the progress that did."""
        self.questions.flushed()
        if self._awaits_flush and not self.questions.waiting:
            self._awaits_flush = False
            self.timers.after(0, self.run)
        mark = self._mark
        if mark is not None and mark[0] <= self.store.flushed:
            self._mark = None
            self._save(mark[1])
            self._take_mark()

    def _save(self, progress: tuple[int, int]) -> None:
        self._saved = progress
        for topic, offset in zip((HALF_TOPIC, OP_HALF_TOPIC), progress, strict=True):
            self.offsets.commit(PROGRESS_GROUP, topic, 0, offset)

    def end(self) -> None:
        """The broker ends, and the store flushes everything: all that was done is progress, unless its disk failed."""
        if self._loaded and self.store.writer.writable and self._progress() != self._saved:
            self._save(self._progress())

    # --- rounds

    def begin_round(self) -> None:
        """Alarm: look at everything that is open now."""
        self._running = True
        self._begun = self.timers.now
        self._at = self.half_messages.first
        self._end = self.queue.max_offset
        self.run()

    def run(self) -> None:
        """Alarm: go on with the round."""
        self._begin_turn()
        while self._left > 0 and (count := self._seek()):
            read = self.store.reads.get(self.queue, self._at, count, None)
            if isinstance(read, ColdRead):
                self._wait(read, self._take_cold, self.run)
                return
            if not self._take(read):
                self._end_turn(_PAUSE_MS)
                return
        self._end_turn(0)

    def _take_cold(self, result: GetResult) -> None:
        """What a job has read."""
        self._begin_turn()
        self._end_turn(0 if self._take(result) else _PAUSE_MS)

    def _begin_turn(self) -> None:
        self.questions.begin_turn()
        self._left = _AT_A_TIME

    def _end_turn(self, pause_ms: int) -> None:
        self._take_mark()
        if self._at >= self._end:
            self._end_round()
        elif self.questions.waiting:
            self._awaits_flush = True
        else:
            self.timers.after(pause_ms, self.run)

    def _end_round(self) -> None:
        half_messages = self.half_messages
        self._running = False
        self._rests = {offset: when for offset, when in self._rests.items() if half_messages.is_open(offset)}
        self.questions.end_round()
        half_messages.pass_ops(_OPS_AFTER_A_ROUND)
        self._old.clear()
        if self._given_up:
            self.notices.notice(f"transactions: {self._given_up} that nobody ended went to {CHECK_MAX_TIME_TOPIC}")
        if self._unreadable:
            self.notices.notice(f"transactions: {self._unreadable} half messages could not be read and are left out")
        self._given_up = self._unreadable = 0
        if half_messages.open:
            interval_ms = self.settings.transaction_check_interval
            # a round that was held up longer than that must not be followed by another at once
            due = self._begun + interval_ms
            self.timers.alarms.set(self.begin_round, due if due > self.timers.now else self.timers.now + interval_ms)
        self._take_mark()

    def _seek(self) -> int:
        """Go to the next half message that needs a look; gives how many may be read from there, 0 at the end of the
        round or the turn.
        """
        half_messages, rests, now = self.half_messages, self._rests, self.timers.now
        for _ in range(_PASS_AT_A_TIME):
            found = half_messages.next_open(self._at, self._end)
            if found is None:
                self._at = self._end
                return 0
            self._at = found
            if rests.get(found, now) <= now:
                count = 1
                most = half_messages.run_of_open(found, min(self._end, found + self._left))
                while count < most and rests.get(found + count, now) <= now:
                    count += 1
                return count
            self._at += 1
        return 0

    def _take(self, result: GetResult) -> bool:
        """Look at what was read from `_at` on, where it is still open.

        False: the store takes nothing now, so the rest has to wait.
        """
        self._left -= 1
        for offset, record in _records(result.views):
            if self._left < 0:
                return True
            self._leave_out(offset)
            if self.half_messages.is_open(offset):
                self._left -= 1 + (len(record) >> _PART_BITS)
                if not self._look(offset, record):
                    return False
            self._at = offset + 1
        self._leave_out(result.next_offset if result.next_offset > self._at or result.views else self._at + 1)
        return True

    def _leave_out(self, end: int) -> None:
        """Between here and `end` there is nothing that can be read."""
        end = min(end, self._end)
        if self._at < end:
            self._unreadable += self.half_messages.pass_over(self._at, end)
            self._at = end

    # --- one half message

    def _look(self, offset: int, record: memoryview) -> bool:
        """Decide about an open one (docs/protocol/store.md 12.4). False: the store takes nothing now."""
        try:
            message = decode_record(record)
        except RecordError as damage:
            self.notices.notice(f"half message {offset} cannot be read and is left out: {damage}")
            self.half_messages.give_up(offset)
            return True
        settings = self.settings
        # A clock of a producer that is ahead of ours must not make it look younger than it is.
        age_ms = self.timers.wall - min(message.born_time, message.store_time)
        count = number_of(message.properties.get(names.TRANSACTION_CHECK_TIMES)) or 0
        if offset < self._old_end and self._is_known(offset, message, count):
            return True
        if count >= settings.transaction_check_max or (
            count and age_ms > self.store.settings.file_reserved_time * _HOUR_MS
        ):
            return self._give_up(offset, message)
        immunity_s = number_of(message.properties.get(names.CHECK_IMMUNITY_TIME))
        rest_ms = (settings.transaction_time_out if immunity_s is None else immunity_s * 1000) - age_ms
        if age_ms >= 0 and rest_ms > 0:
            return self._rest(offset, message, rest_ms)
        return self._check(offset, message, count + 1)

    def _is_known(self, offset: int, message: MessageExt, count: int) -> bool:
        """Whether it is a later copy of one that went on already: an Apache broker that dies then leaves both."""
        known = self._old.get(message.properties.get(names.UNIQ_KEY, ""))
        if known is None or count <= known[0]:  # two of equal count are two: a producer that sent twice
            return False
        self._done(offset)
        self.half_messages.join(offset, known[1])
        return True

    def _rest(self, offset: int, message: MessageExt, rest_ms: int) -> bool:
        """It is too young. Nothing is done with it, unless so many lie behind it that progress has to go on."""
        if self.half_messages.end - offset > _WINDOW_MAX:
            first = message.properties.get(names.TRANSACTION_PREPARED_QUEUE_OFFSET) or str(offset)
            copy = self._put_back(offset, message, {names.TRANSACTION_PREPARED_QUEUE_OFFSET: first})
            return copy is not None or not self.half_messages.is_open(offset)
        if len(self._rests) < _RESTS_MAX:
            self._rests[offset] = self.timers.now + rest_ms
        return True

    def _check(self, offset: int, message: MessageExt, count: int) -> bool:
        """Let it go on as a copy that knows how often it was checked, and ask a producer about that one."""
        copy = self._put_back(offset, message, {names.TRANSACTION_CHECK_TIMES: str(count)})
        if copy is not None:
            unique = message.properties.get(names.UNIQ_KEY)
            if offset < self._old_end and unique and len(self._old) < _OLD_MAX:
                self._old[unique] = (count - 1, copy.queue_offset)
            self.questions.ask(message, copy)
        return copy is not None or not self.half_messages.is_open(offset)

    def _put_back(self, offset: int, message: MessageExt, more: dict[str, str]) -> Stored | None:
        """Append a copy with more properties, which `message` has then too. None: the store does not take it."""
        before = message.properties
        message.properties = before | more
        try:
            copy = self.transactions.keep(NewMessage.again(message, HALF_TOPIC))
        except PutRefused as refused:
            if refused.status not in _TEMPORARY:  # the copy would be too long
                message.properties = before
                self._give_up(offset, message)
            return None
        self._done(offset)
        self.half_messages.moved(offset, copy.queue_offset)
        return copy

    def _done(self, offset: int) -> None:
        """Let a broker that starts anew know that there is nothing to ask. Without the message it asks once more."""
        with suppress(PutRefused):
            self.transactions.mark_done(offset)

    def _give_up(self, offset: int, message: MessageExt) -> bool:
        """Move it to where an operator finds it. False: the store takes nothing now."""
        self.topics.create(CHECK_MAX_TIME_TOPIC, 1, PERM_READ_WRITE, 0, self.timers.wall)
        try:
            self.message_writer.append(NewMessage.again(message, CHECK_MAX_TIME_TOPIC))
        except PutRefused as refused:
            if refused.status in _TEMPORARY:
                return False
            self.notices.notice(f"half message {offset} can be put nowhere and is left out: {refused}")
        self._done(offset)
        self.half_messages.give_up(offset)
        self._given_up += 1
        return True

    # --- what was given up

    def on_resume(self, link: ClientLink, request: Command) -> None:
        """An operator wants a half message to be checked again, as often as a new one."""
        msg_id = ResumeCheckHalfMessageRequest.decode(request.fields).msg_id
        try:
            physical = parse_offset_msg_id(msg_id or "")[1]
        except IdError:
            raise Refused(ResponseCode.SYSTEM_ERROR, _RESUME_IMPOSSIBLE) from None

        def then(record: memoryview | None) -> None:
            self._resume(record)
            if not request.flag & ONEWAY_FLAG and not link.ended:
                answer = encode_response(request.opaque, ResponseCode.SUCCESS, serialize_type=request.serialize_type)
                self.acks.send(link, answer, True, HALF_TOPIC)

        self.reads.answer(link, request, self.store.reads.record(physical), then, needed=True)

    def _resume(self, record: memoryview | None) -> None:
        """Raises Refused."""
        try:
            message = None if record is None else decode_record(record)
        except RecordError:
            message = None
        if message is None or message.topic not in (CHECK_MAX_TIME_TOPIC, HALF_TOPIC):
            raise Refused(ResponseCode.SYSTEM_ERROR, _RESUME_IMPOSSIBLE)
        message.properties[names.TRANSACTION_CHECK_TIMES] = "0"
        is_open = message.topic == HALF_TOPIC and self.half_messages.is_open(message.queue_offset)
        try:
            copy = self.transactions.keep(NewMessage.again(message, HALF_TOPIC))
        except PutRefused:
            raise Refused(ResponseCode.SYSTEM_ERROR, _RESUME_FAILED) from None
        if is_open:
            self._done(message.queue_offset)
            self.half_messages.moved(message.queue_offset, copy.queue_offset)


def _records(views: list[memoryview]) -> Iterator[tuple[int, memoryview]]:
    """Each record with its queue offset."""
    for view in views:
        at = 0
        while at < len(view):
            size = int.from_bytes(view[at : at + 4], "big")
            yield int.from_bytes(view[at + QUEUE_OFFSET_AT : at + QUEUE_OFFSET_AT + 8], "big"), view[at : at + size]
            at += size


def _settled_by(record: memoryview) -> list[int]:
    """The half messages that an op message says are settled: one, or as 5.1 and later write it several, `12,13,`."""
    try:
        message = decode_record(record)
    except RecordError:
        return []
    if message.properties.get(names.TAGS) != DONE_TAG:
        return []
    words = message.body.decode("ascii", "replace").split(",")
    return [number for number in map(number_of, words) if number is not None]
