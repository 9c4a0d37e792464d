"""Offsets of consumers and queues: 14, 15, 29 to 32, dumps 43 and 45 (docs/protocol/broker.md 2.5, 2.6, 2.15)."""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.answers import DiskReads, LongAnswers
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.delay_progress import DelayProgress
from mqproto.engine.store import Read, Store
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import (
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)


class OffsetRequests:
    """Requests for offsets of consumers and queues, and commits."""

    def __init__(
        self,
        store: Store,
        offsets: ConsumerOffsets,
        delay_progress: DelayProgress,
        reads: DiskReads,
        answers: LongAnswers,
    ) -> None:
        self.store = store
        self.offsets = offsets
        self.delay_progress = delay_progress
        self.reads = reads
        self.answers = answers

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.on_query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.on_update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.on_search,
            RequestCode.GET_MAX_OFFSET: self.on_max,
            RequestCode.GET_MIN_OFFSET: self.on_min,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.on_earliest,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.on_dump,
            RequestCode.GET_ALL_DELAY_OFFSET: self.on_dump_delays,
        }

    def on_update(self, link: Peer, request: Command) -> None:
        header = UpdateConsumerOffsetRequest.decode(request.fields)
        if not self.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset):
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker keeps no more offsets")
        link.reply(request, ResponseCode.SUCCESS)

    def on_query(self, link: Peer, request: Command) -> None:
        header = QueryConsumerOffsetRequest.decode(request.fields)
        offset = self.offsets.find(header.consumer_group, header.topic, header.queue_id)
        # Clients of 5.x may say that they know better where to start.
        if offset is not None or request.fields.get("setZeroIfNotFound", "").lower() == "false":
            self._tell(link, request, offset)
        else:
            is_young = self._is_young(header.topic, header.queue_id)
            self.reads.answer(link, request, is_young, lambda young: self._tell(link, request, 0 if young else None))

    def _tell(self, link: Peer, request: Command, offset: int | None) -> None:
        if offset is None:
            link.reply(
                request,
                ResponseCode.QUERY_NOT_FOUND,
                remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        else:
            link.reply(request, ResponseCode.SUCCESS, {"offset": str(offset)})

    def _is_young(self, topic: str, queue_id: int) -> Read[bool]:
        """Whether the queue still has its first message, not far behind: then a new group starts with it."""
        queue = self.store.find_queue(topic, queue_id)
        if queue is None:
            return True
        return queue.min_offset == 0 and self.store.reads.begins_in_memory(queue)

    def on_max(self, link: Peer, request: Command) -> None:
        header = GetMaxOffsetRequest.decode(request.fields)
        queue = self.store.find_queue(header.topic, header.queue_id)
        link.reply(request, ResponseCode.SUCCESS, {"offset": str(0 if queue is None else queue.max_offset)})

    def on_min(self, link: Peer, request: Command) -> None:
        header = GetMinOffsetRequest.decode(request.fields)
        queue = self.store.find_queue(header.topic, header.queue_id)
        link.reply(request, ResponseCode.SUCCESS, {"offset": str(0 if queue is None else queue.min_offset)})

    def on_earliest(self, link: Peer, request: Command) -> None:
        header = GetEarliestMsgStoretimeRequest.decode(request.fields)
        store = self.store
        queue = store.find_queue(header.topic, header.queue_id)
        read = -1 if queue is None else store.reads.earliest_store_time(queue)
        self.reads.answer(
            link, request, read, lambda time: link.reply(request, ResponseCode.SUCCESS, {"timestamp": str(time)})
        )

    def on_search(self, link: Peer, request: Command) -> None:
        header = SearchOffsetRequest.decode(request.fields)
        store = self.store
        queue = store.find_queue(header.topic, header.queue_id)
        read = 0 if queue is None else store.reads.offset_by_time(queue, header.timestamp)
        self.reads.answer(
            link, request, read, lambda offset: link.reply(request, ResponseCode.SUCCESS, {"offset": str(offset)})
        )

    def on_dump(self, link: Peer, request: Command) -> None:
        self.answers.reply(link, request, self.offsets.as_body())

    def on_dump_delays(self, link: Peer, request: Command) -> None:
        link.reply(request, ResponseCode.SUCCESS, body=self.delay_progress.as_body().to_json())
