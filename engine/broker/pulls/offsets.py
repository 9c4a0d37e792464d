"""Offsets of consumers and of queues: 14, 15, 29 to 32, and the dumps 43 and 45 (docs/protocol/broker.md 2.5, 2.6,
2.15).
"""

from __future__ import annotations

from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.core import SUCCESS, SYSTEM_ERROR, ClientLink, Core, Handlers, Refused
from mqproto.engine.store import Read
from mqproto.wire.headers import (
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)

QUERY_NOT_FOUND: Final = 22


class OffsetRequests:
    """Answers where consumers and queues stand."""

    def __init__(self, core: Core) -> None:
        self.core = core

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            14: self.on_query,
            15: self.on_update,
            29: self.on_search,
            30: self.on_max,
            31: self.on_min,
            32: self.on_earliest,
            43: self.on_dump,
            45: self.on_dump_delays,
        }

    def on_update(self, link: ClientLink, request: Command) -> None:
        header = UpdateConsumerOffsetRequest.decode(request.fields)
        if not self.core.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset):
            raise Refused(SYSTEM_ERROR, "this broker keeps no more offsets")
        link.reply(request, SUCCESS)

    def on_query(self, link: ClientLink, request: Command) -> None:
        header = QueryConsumerOffsetRequest.decode(request.fields)
        offset = self.core.offsets.find(header.consumer_group, header.topic, header.queue_id)
        # Clients of 5.x may say that they know better where to start.
        if offset is not None or request.fields.get("setZeroIfNotFound", "").lower() == "false":
            self._tell(link, request, offset)
        else:
            is_young = self._is_young(header.topic, header.queue_id)
            self.core.waiting_reads.answer(
                link, request, is_young, lambda young: self._tell(link, request, 0 if young else None)
            )

    def _tell(self, link: ClientLink, request: Command, offset: int | None) -> None:
        if offset is None:
            link.reply(
                request, QUERY_NOT_FOUND, remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            )
        else:
            link.reply(request, SUCCESS, {"offset": str(offset)})

    def _is_young(self, topic: str, queue_id: int) -> Read[bool]:
        """Whether the queue still has its first message, not far behind: then a new group starts with it, whatever it
        asks for.
        """
        queue = self.core.store.find_queue(topic, queue_id)
        if queue is None:
            return True
        return queue.min_offset == 0 and self.core.store.reads.begins_in_memory(queue)

    def on_max(self, link: ClientLink, request: Command) -> None:
        header = GetMaxOffsetRequest.decode(request.fields)
        queue = self.core.store.find_queue(header.topic, header.queue_id)
        link.reply(request, SUCCESS, {"offset": str(0 if queue is None else queue.max_offset)})

    def on_min(self, link: ClientLink, request: Command) -> None:
        header = GetMinOffsetRequest.decode(request.fields)
        queue = self.core.store.find_queue(header.topic, header.queue_id)
        link.reply(request, SUCCESS, {"offset": str(0 if queue is None else queue.min_offset)})

    def on_earliest(self, link: ClientLink, request: Command) -> None:
        header = GetEarliestMsgStoretimeRequest.decode(request.fields)
        store = self.core.store
        queue = store.find_queue(header.topic, header.queue_id)
        read = -1 if queue is None else store.reads.earliest_store_time(queue)
        self.core.waiting_reads.answer(
            link, request, read, lambda time: link.reply(request, SUCCESS, {"timestamp": str(time)})
        )

    def on_search(self, link: ClientLink, request: Command) -> None:
        header = SearchOffsetRequest.decode(request.fields)
        store = self.core.store
        queue = store.find_queue(header.topic, header.queue_id)
        read = 0 if queue is None else store.reads.offset_by_time(queue, header.timestamp)
        self.core.waiting_reads.answer(
            link, request, read, lambda offset: link.reply(request, SUCCESS, {"offset": str(offset)})
        )

    def on_dump(self, link: ClientLink, request: Command) -> None:
        self.core.sliced_answers.reply(link, request, self.core.offsets.as_body())

    def on_dump_delays(self, link: ClientLink, request: Command) -> None:
        link.reply(request, SUCCESS, body=self.core.delay_progress.as_body().to_json())
