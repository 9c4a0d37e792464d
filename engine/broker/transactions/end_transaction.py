"""Ends of transactions, END_TRANSACTION 37, and how half messages are stored (docs/protocol/broker.md 2.9;
docs/protocol/store.md 12).

Owns: how a half message is put aside, what a commit or a rollback makes of it.
Leaves to others: which half messages are open (`half_messages`), asking producers about those that nobody ended
(`transaction_check`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.engine.broker.core.core import ClientLink, Handlers
from mqproto.engine.broker.core.pending_acks import PendingAcks
from mqproto.engine.broker.interfaces.answers import DiskReads
from mqproto.engine.broker.interfaces.clock import Clock, Notices
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.sends.message_writer import MessageWriter, NewMessage, Stored, refusal
from mqproto.engine.broker.statistics.store_stats import StoreStats
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.topics import legal_topic
from mqproto.engine.broker.transactions.half_messages import HalfMessages
from mqproto.engine.store import PutRefused, Store
from mqproto.message import MessageExt
from mqproto.wire import properties as names
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from mqproto.wire.headers import EndTransactionRequest
from mqproto.wire.names import HALF_TOPIC, OP_HALF_TOPIC
from mqproto.wire.record import RecordError, decode_record

#: Tag of the message that says that a half message is done with.
DONE_TAG: Final = "d"
#: The group under which progress in both queues is kept, as offsets like any consumer's.
PROGRESS_GROUP: Final = "CID_RMQ_SYS_TRANS"


class Transactions:
    """Half messages of the broker, and requests that end them."""

    def __init__(
        self,
        clock: Clock,
        notices: Notices,
        store: Store,
        offsets: ConsumerOffsets,
        reads: DiskReads,
        acks: PendingAcks,
        stats: StoreStats,
        store_host: bytes,
        message_writer: MessageWriter,
    ) -> None:
        self.clock = clock
        self.notices = notices
        self.store = store
        self.offsets = offsets
        self.reads = reads
        self.acks = acks
        self.stats = stats
        self.store_host = store_host
        self.message_writer = message_writer
        self.half_messages = _known_half_messages(notices, store, offsets)
        #: Called after each half message that was stored or ended. Set by whoever asks producers.
        self.changed: Callable[[], None] = lambda: None

    def prepare(self, new_message: NewMessage) -> Stored:
        """Store a half message where no consumer looks. Raises PutRefused.

        It loses a delay level: it would wait in the schedule topic instead, and come out of it as a half of nothing
        (docs/protocol/store.md 12.2).
        """
        properties = new_message.properties | {
            names.REAL_TOPIC: new_message.topic,
            names.REAL_QUEUE_ID: str(new_message.queue_id),
        }
        properties.pop(names.DELAY, None)
        new_message.properties = properties
        new_message.topic = HALF_TOPIC
        new_message.queue_id = 0
        new_message.sys_flag &= ~TRANSACTION_MASK
        return self.keep(new_message)

    def keep(self, new_message: NewMessage) -> Stored:
        """Append to the half queue; the message is open then. Raises PutRefused."""
        stored = self.message_writer.append(new_message)
        self.half_messages.reach(stored.queue_offset + 1)
        self.changed()
        return stored

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.END_TRANSACTION: self.on_end,
        }

    def on_end(self, link: ClientLink, request: Command) -> None:
        header = EndTransactionRequest.decode(request.fields)
        if header.commit_or_rollback == TRANSACTION_NONE:
            return  # the producer does not know either: neither an effect nor an answer
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"commitOrRollback field wrong: {header.commit_or_rollback}")
        read = self.store.reads.record(header.commit_log_offset)
        self.reads.answer(link, request, read, lambda record: self._end(link, request, header, record), needed=True)

    def _end(
        self, link: ClientLink, request: Command, header: EndTransactionRequest, record: memoryview | None
    ) -> None:
        """Commit or roll back. Raises Refused."""
        half = _half(header, record)
        if not self.half_messages.is_settled(half.queue_offset):
            # the first end counts, and what was delivered is not delivered again
            try:
                self._settle(half, header.commit_or_rollback == TRANSACTION_COMMIT)
            except PutRefused as failure:
                raise refusal(failure, self.store, self.stats) from None
        if not request.flag & ONEWAY_FLAG and not link.ended:
            answer = encode_response(request.opaque, ResponseCode.SUCCESS, serialize_type=request.serialize_type)
            self.acks.send(link, answer, True, half.properties.get(names.REAL_TOPIC, ""))

    def _settle(self, half: MessageExt, commit: bool) -> None:
        """Raises Refused, and PutRefused by the store. Nothing is settled then."""
        if commit:
            self._commit(half)
        try:
            for offset in self.half_messages.copies(half.queue_offset):
                self.mark_done(offset)
        except PutRefused as failure:
            if not commit:
                raise
            self.notices.notice(
                f"a message was committed, but not that this is so; after a crash it may come again: {failure}"
            )
        self.half_messages.settle(half.queue_offset)
        self.changed()

    def _commit(self, half: MessageExt) -> None:
        """Store the message where it was meant to go; its properties stay as they are (docs/protocol/store.md 2.6)."""
        topic = half.properties.get(names.REAL_TOPIC, "")
        queue_text = half.properties.get(names.REAL_QUEUE_ID, "")
        if not legal_topic(topic) or not (queue_text.isascii() and queue_text.isdigit() and len(queue_text) < 10):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the prepared message does not say where it belongs")
        self.message_writer.put(
            NewMessage.again(half, topic, int(queue_text), TRANSACTION_COMMIT, half.physical_offset)
        )

    def mark_done(self, offset: int) -> None:
        """Store the op message: the half at this queue offset needs no more attention. Raises PutRefused."""
        stored = self.message_writer.append(
            NewMessage(
                OP_HALF_TOPIC,
                0,
                b"%d" % offset,
                {names.TAGS: DONE_TAG, names.WAIT: "true"},
                born_time=self.clock.wall,
                born_host=self.store_host,
                store_host=self.store_host,
            )
        )
        self.half_messages.note(stored.queue_offset, offset)


def _known_half_messages(notices: Notices, store: Store, offsets: ConsumerOffsets) -> HalfMessages:
    """Where the last run stopped.

    What cannot be, or is not known, lets both queues be looked through from their beginnings.
    """
    half, op = store.queue(HALF_TOPIC, 0), store.queue(OP_HALF_TOPIC, 0)
    first = offsets.find(PROGRESS_GROUP, HALF_TOPIC, 0)
    op_first = offsets.find(PROGRESS_GROUP, OP_HALF_TOPIC, 0) or 0
    if (first or 0) > half.next_offset or op_first > op.next_offset:
        notices.notice(
            f"transactions: progress {first} and {op_first} is beyond the ends of its queues, "
            f"{half.next_offset} and {op.next_offset}"
        )
        first = None
    if first is None:
        first = op_first = 0
    return HalfMessages(max(first, half.min_offset), max(op_first, op.min_offset), half.next_offset)


def _half(header: EndTransactionRequest, record: memoryview | None) -> MessageExt:
    """The half message that a request names. Raises Refused unless all that it says agrees."""
    half = None
    if record is not None:
        try:
            half = decode_record(record)
        except RecordError:
            half = None
    if half is None or half.topic != HALF_TOPIC or half.queue_id != 0:
        raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    if half.properties.get(names.PRODUCER_GROUP) != header.producer_group:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if half.physical_offset != header.commit_log_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
    return half
