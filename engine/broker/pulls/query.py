"""QUERY_MESSAGE 12 and VIEW_MESSAGE_BY_ID 33: finding messages by key and by place (docs/protocol/broker.md 2.11)."""

from __future__ import annotations

from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.core import SUCCESS, SYSTEM_ERROR, ClientLink, Core, Handlers, Refused
from mqproto.engine.broker.sends.message_writer import is_true
from mqproto.engine.store import QueryResult
from mqproto.wire.headers import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest

QUERY_NOT_FOUND: Final = 22


class QueryRequests:
    """Looks messages up."""

    def __init__(self, core: Core) -> None:
        self.core = core

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            12: self.on_query,
            33: self.on_view,
        }

    def on_query(self, link: ClientLink, request: Command) -> None:
        header = QueryMessageRequest.decode(request.fields)
        core = self.core
        settings = core.store.settings
        wanted = settings.default_query_max_num if is_true(header.unique_key_query or "") else header.max_num
        count = max(0, min(wanted, settings.max_msgs_num_batch))

        def then(found: QueryResult) -> None:
            fields = QueryMessageResponse(found.index_last_time, found.index_last_offset).encode()
            if found.views:
                link.reply(request, SUCCESS, fields, b"".join(found.views))
            else:
                link.reply(
                    request, QUERY_NOT_FOUND, fields, remark="can not find message, maybe time range not correct"
                )

        read = core.store.reads.query(header.topic, header.key, count, header.begin_timestamp, header.end_timestamp)
        core.waiting_reads.answer(link, request, read, then)

    def on_view(self, link: ClientLink, request: Command) -> None:
        offset = ViewMessageRequest.decode(request.fields).offset

        def then(record: memoryview | None) -> None:
            if record is None:
                raise Refused(SYSTEM_ERROR, f"can not find message by the offset, {offset}")
            link.reply(request, SUCCESS, body=record)

        self.core.waiting_reads.answer(link, request, self.core.store.reads.record(offset), then)
