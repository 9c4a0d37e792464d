"""Dumps of consume queues, QUERY_CONSUME_QUEUE 321: entries as they are, and whether a group's subscription takes them
(docs/protocol/broker.md 2.18).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.filters.consumer_filters import FilterTable
from mqproto.engine.broker.filters.message_filters import TagFilters, is_tag_type
from mqproto.engine.broker.interfaces.answers import DiskReads, LongAnswers
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.store import Queue, Reader, Store, Unit
from mqproto.wire.bodies import QueueDump, QueueEntry, SubscriptionData
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.fastjson import dumps
from mqproto.wire.filters.tags import InvalidExpressionError
from mqproto.wire.headers import QueryConsumeQueueRequest

#: Entries that one answer has at most; Apache gives a whole file of the queue.
ENTRIES_MAX: Final = 1000
#: Text that fastjson makes of a null, which is what Apache shows for a group that filters by tags alone.
_NO_FILTER_DATA: Final = "null"


class QueueDumpRequests:
    """Requests for the entries of consume queues."""

    def __init__(
        self,
        store: Store,
        client_registry: ClientRegistry,
        filters: FilterTable,
        reads: DiskReads,
        answers: LongAnswers,
    ) -> None:
        self.store = store
        self.client_registry = client_registry
        self.filters = filters
        self.reads = reads
        self.answers = answers
        self._tags = TagFilters()

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.QUERY_CONSUME_QUEUE: self.on_query,
        }

    def on_query(self, link: Peer, request: Command) -> None:
        header = QueryConsumeQueueRequest.decode(request.fields)
        name = f"{header.queue_id}@{header.topic}"
        queue = self.store.find_queue(header.topic or "", header.queue_id)
        if queue is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{name} is not exist!")
        dump = QueueDump(min_index=queue.min_offset, max_index=queue.max_offset)
        takes = self._subscription(header, dump)
        if not queue.min_offset <= header.index < queue.max_offset:
            link.reply(
                request,
                ResponseCode.SUCCESS,
                body=dump.to_json(),
                remark=f"Index {header.index} of {name} is not exist!",
            )
            return
        end = min(header.index + min(max(header.count, 0), ENTRIES_MAX), queue.max_offset)

        def read(reader: Reader, queues: Sequence[Queue]) -> list[QueueEntry]:
            return [_entry(reader, each, offset, takes) for each in queues for offset in range(header.index, end)]

        def then(entries: list[QueueEntry]) -> None:
            dump.entries = entries
            self.answers.reply(link, request, dump)

        self.reads.answer(link, request, self.store.reads.across([queue], read), then)

    def _subscription(self, header: QueryConsumeQueueRequest, dump: QueueDump) -> Callable[[int], bool]:
        """Fill in what a group subscribes; gives whether it takes a message with a tags code."""
        if header.consumer_group is None:
            return lambda code: False
        group = self.client_registry.consumers.get(header.consumer_group)
        subscription = None if group is None else group.subscriptions.get(header.topic or "")
        if subscription is None:
            dump.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
            return lambda code: False
        dump.subscription = subscription
        data = self.filters.find(header.consumer_group, subscription.topic)
        dump.filter_data = _NO_FILTER_DATA if data is None else data.entry.to_pretty()
        codes = self._codes(subscription)
        return lambda code: codes is None or code in codes

    def _codes(self, subscription: SubscriptionData) -> frozenset[int] | None:
        """The codes of a subscription, None for all; by an expression of another kind nothing follows from a code."""
        if subscription.class_filter or not is_tag_type(subscription.type):
            return None
        try:
            return self._tags.find(subscription.expression).codes
        except InvalidExpressionError:
            return frozenset()


def _entry(reader: Reader, queue: Queue, offset: int, takes: Callable[[int], bool]) -> QueueEntry:
    entry = reader.entry(queue, offset)
    if entry is None:
        return QueueEntry(note=f"the entry {offset} cannot be read")
    physical, size, code = entry
    shown = QueueEntry(physical, size, code, takes(code))
    unit = reader.unit(queue, offset)
    if unit is not None:
        shown.extension = _extension(unit)
        shown.bit_map = _bits(unit.bits) if unit.bits else None
    return shown


def _extension(unit: Unit) -> str:
    """A unit of the extension as Apache shows it."""
    value: dict[str, object] = {"bitMapSize": len(unit.bits)}
    if unit.bits:
        value["filterBitMap"] = b64encode(unit.bits).decode()
    return dumps({**value, "msgStoreTime": unit.store_time, "tagsCode": unit.tags_code})


def _bits(data: bytes) -> str:
    """Bits as text, the highest first."""
    return "".join([f"{byte:08b}" for byte in reversed(data)])
