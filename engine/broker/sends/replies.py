"""Replies to requests between clients, SEND_REPLY_MESSAGE 324 and 325, pushed to the client that asked by 326
(docs/protocol/broker.md 2.13).
"""

from __future__ import annotations

from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.core.core import ClientLink, Handlers
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.sends.fast_send import send_answer_fields
from mqproto.engine.broker.sends.message_writer import MessageWriter, NewMessage
from mqproto.engine.broker.sends.send import SendRequests, send_header
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.statistics.store_stats import TrafficCounters
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import PutRefused
from mqproto.errors import TooManyRequests
from mqproto.wire import properties as names
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import ReplyMessageRequest, SendMessageRequest

#: How long the client that asked may take to confirm.
_PUSH_MS: Final = 10_000


class ReplyRequests:
    """Requests that bring replies."""

    def __init__(
        self,
        clock: Clock,
        traffic: TrafficCounters,
        settings: BrokerSettings,
        client_registry: ClientRegistry,
        statistics: Statistics,
        address: str,
        store_host: bytes,
        message_writer: MessageWriter,
        send_requests: SendRequests,
    ) -> None:
        self.clock = clock
        self.traffic = traffic
        self.settings = settings
        self.client_registry = client_registry
        self.statistics = statistics
        self.address = address
        self.store_host = store_host
        self.message_writer = message_writer
        self.send_requests = send_requests

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.on_reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.on_reply,
        }

    def on_reply(self, link: ClientLink, request: Command) -> None:
        header = send_header(request)
        config = self.send_requests.accept(link, header)
        queue_id = self.send_requests.choose_queue(link, header, config)
        properties = names.decode(header.properties or "")
        properties[names.PUSH_REPLY_TIME] = str(self.clock.wall)
        client_id = properties.get(names.REPLY_TO_CLIENT)
        pushed = _Pushed(self, link, request, header, queue_id, properties)
        if client_id is None:
            pushed.failed(f"reply message properties[{names.REPLY_TO_CLIENT}] is null")
            return
        target = self.client_registry.find_producer(client_id)
        if not isinstance(target, ClientLink) or target.ended:
            pushed.failed(f"push reply message fail, channel of <{client_id}> not found.")
            return
        push = ReplyMessageRequest(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            link.address,
            self.address,
            names.encode(properties),
            header.reconsume_times or 0,
            header.unit_mode,
            self.clock.wall,
        )
        pushed.client_id = client_id
        try:
            target.call(
                pushed.answered,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                push.encode(),
                request.body,
                deadline=self.clock.now + _PUSH_MS,
            )
        except TooManyRequests:
            pushed.answered(None)


class _Pushed:
    """Reply on its way to the client that asked: ended by `answered` or `failed`, whichever comes."""

    def __init__(
        self,
        replies: ReplyRequests,
        link: ClientLink,
        request: Command,
        header: SendMessageRequest,
        queue_id: int,
        properties: dict[str, str],
    ) -> None:
        self.replies = replies
        self.link = link
        self.request = request
        self.header = header
        self.queue_id = queue_id
        self.properties = properties
        self.client_id = ""

    def answered(self, answer: Command | None) -> None:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            self.failed(f"push reply message to {self.client_id}fail.")
        else:
            self._end(ResponseCode.SUCCESS, None)

    def failed(self, remark: str) -> None:
        self._end(ResponseCode.SYSTEM_ERROR, remark)

    def _end(self, code: int, remark: str | None) -> None:
        """Answer the sender.

        The reply is stored whatever became of the push; only the ids in the answer depend on that.
        """
        replies = self.replies
        fields = send_answer_fields(replies.settings, "0", self.queue_id, 0)
        if replies.settings.store_reply_message_enable:
            new_message = NewMessage(
                self.header.topic,
                self.queue_id,
                self.request.body,
                self.properties | {names.CLUSTER: replies.settings.broker_cluster_name},
                born_time=self.header.born_timestamp,
                born_host=self.link.born_host,
                store_host=replies.store_host,
                flag=self.header.flag,
                sys_flag=self.header.sys_flag,
                reconsume_times=self.header.reconsume_times or 0,
            )
            try:
                stored = replies.message_writer.put(new_message)
            except (PutRefused, Refused):
                pass  # the push is what counts
            else:
                replies.traffic.messages_in += 1
                replies.statistics.put(stored.queue, 1, stored.size)
                fields = send_answer_fields(replies.settings, stored.msg_id, self.queue_id, stored.queue_offset)
        self.link.reply(self.request, code, fields, remark=remark)
