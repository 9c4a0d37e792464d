"""Look-ups of messages, QUERY_MESSAGE 12 by key and VIEW_MESSAGE_BY_ID 33 by offset (docs/protocol/broker.md 2.11)."""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.answers import DiskReads
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.sends.message_writer import is_true
from mqproto.engine.store import QueryResult, Store
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest


class QueryRequests:
    """Requests for messages by key or offset."""

    def __init__(self, store: Store, reads: DiskReads) -> None:
        self.store = store
        self.reads = reads

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.QUERY_MESSAGE: self.on_query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.on_view,
        }

    def on_query(self, link: Peer, request: Command) -> None:
        header = QueryMessageRequest.decode(request.fields)
        settings = self.store.settings
        wanted = settings.default_query_max_num if is_true(header.unique_key_query or "") else header.max_num
        count = max(0, min(wanted, settings.max_msgs_num_batch))

        def then(found: QueryResult) -> None:
            fields = QueryMessageResponse(found.index_last_time, found.index_last_offset).encode()
            if found.views:
                link.reply(request, ResponseCode.SUCCESS, fields, b"".join(found.views))
            else:
                link.reply(
                    request,
                    ResponseCode.QUERY_NOT_FOUND,
                    fields,
                    remark="can not find message, maybe time range not correct",
                )

        read = self.store.reads.query(header.topic, header.key, count, header.begin_timestamp, header.end_timestamp)
        self.reads.answer(link, request, read, then)

    def on_view(self, link: Peer, request: Command) -> None:
        offset = ViewMessageRequest.decode(request.fields).offset

        def then(record: memoryview | None) -> None:
            if record is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
            link.reply(request, ResponseCode.SUCCESS, body=record)

        self.reads.answer(link, request, self.store.reads.record(offset), then)
