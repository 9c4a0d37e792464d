"""Requests that brokers make of a client on the client's own links (docs/protocol/client.md 6).

Owns: which of them there are, how they are read and answered.
Leaves to others: what a consumer does about them (`members.ConsumerPort`), transactions (`transactions`), replies
(`request_reply`).

A request that cannot be read is answered by code 1 with the reason, one that we do not know by code 3; nothing that a
broker sends here ends the link or reaches another consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from mqproto.codec import Command
from mqproto.errors import MQError
from mqproto.state.client.members import Consumers, Producers
from mqproto.state.flows.tasks import DialledLink
from mqproto.state.producer.request_reply import RequestReply
from mqproto.wire import headers, properties
from mqproto.wire.bodies import ConsumerRunningInfo, ConsumerStatus, ResetOffsets
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.record import decode_record, inflated

#: Characters of the program's stacks that operators get.
STACKS_MAX: Final = 1 << 20


class BrokerRequests:
    """Handler of the requests that come in on the links of one client node."""

    def __init__(self, producers: Producers, consumers: Consumers, requests: RequestReply, notices: deque[str]) -> None:
        self._producers = producers
        self._consumers = consumers
        self._requests = requests
        self._notices = notices
        #: Gives the stacks of everything in the program, for operators (request 307). Set by the adapter, which knows
        #: how.
        self.stacks: Callable[[], str] | None = None

    def answer(self, link: DialledLink, request: Command, now: int) -> None:
        """Handle one request of a broker."""
        handler = HANDLERS.get(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            link.reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            return
        try:
            handler(self, link, request, now)
        except MQError as error:
            if request.is_oneway:
                self._notices.append(f"request {request.code} of {link.address} cannot be read: {error}")
            link.reply(request, ResponseCode.SYSTEM_ERROR, remark=str(error))

    def _consumer_ids_changed(self, link: DialledLink, request: Command, now: int) -> None:
        """Java rebalances all its groups; only the named one can have changed."""
        group = headers.NotifyConsumerIdsChangedRequest.decode(request.fields).consumer_group
        consumer = self._consumers.by_group.get(group)
        if consumer is not None:
            consumer.consumer_ids_changed(now)
        link.reply(request, ResponseCode.SUCCESS)

    def _check_transaction_state(self, link: DialledLink, request: Command, now: int) -> None:
        """The message names its group; any producer of that group may be asked, not only the one that sent it."""
        header = headers.CheckTransactionStateRequest.decode(request.fields)
        broker_name = request.fields.get("bname")
        message = inflated(decode_record(request.body, broker_name or ""))
        group = message.properties.get(properties.PRODUCER_GROUP, "")
        core = self._producers.transactions.get(group)
        if core is None:
            self._notices.append(
                f"{link.address} asks for a transaction of group {group!r}, which has no transaction producer here"
            )
        else:
            core.check(header, message, link.address, broker_name)

    def _take_reply(self, link: DialledLink, request: Command, now: int) -> None:
        self._requests.replied(headers.ReplyMessageRequest.decode(request.fields), bytes(request.body), now)
        link.reply(request, ResponseCode.SUCCESS)

    def _reset_offsets(self, link: DialledLink, request: Command, now: int) -> None:
        header = headers.ResetOffsetRequest.decode(request.fields)
        offsets = ResetOffsets.from_json(bytes(request.body)).offsets
        consumer = self._consumers.by_group.get(header.group)
        if consumer is None:
            self._notices.append(f"{link.address} resets offsets of group {header.group!r}, which has no consumer here")
        else:
            consumer.reset_offsets(header.topic, offsets, now)
        link.reply(request, ResponseCode.SUCCESS)

    def _consumer_status(self, link: DialledLink, request: Command, now: int) -> None:
        header = headers.GetConsumerStatusRequest.decode(request.fields)
        consumer = self._consumers.by_group.get(header.group)
        known = {} if consumer is None else consumer.offsets()
        topic = header.topic.strip()
        status = ConsumerStatus({queue: offset for queue, offset in known.items() if not topic or queue.topic == topic})
        link.reply(request, ResponseCode.SUCCESS, body=status.to_json())

    def _running_info(self, link: DialledLink, request: Command, now: int) -> None:
        header = headers.GetConsumerRunningInfoRequest.decode(request.fields)
        consumer = self._consumers.by_group.get(header.consumer_group)
        if consumer is None:
            link.reply(
                request,
                ResponseCode.SYSTEM_ERROR,
                remark=f"no consumer of group {header.consumer_group} in this client",
            )
            return
        body = consumer.running_info(now)
        if header.jstack_enable and self.stacks is not None:
            info = ConsumerRunningInfo.from_json(body)
            info.stack = self.stacks()[:STACKS_MAX]
            body = info.to_json()
        link.reply(request, ResponseCode.SUCCESS, body=body)

    def _consume_directly(self, link: DialledLink, request: Command, now: int) -> None:
        header = headers.ConsumeMessageDirectlyRequest.decode(request.fields)
        broker_name = header.broker_name or ""
        message = decode_record(request.body, broker_name)
        consumer = self._consumers.by_group.get(header.consumer_group)
        if consumer is None:
            link.reply(
                request,
                ResponseCode.SYSTEM_ERROR,
                remark=f"no consumer of group {header.consumer_group} in this client",
            )
        else:
            consumer.consume_directly(
                message, broker_name, lambda body, later: link.reply(request, ResponseCode.SUCCESS, body=body), now
            )


Handler: TypeAlias = Callable[[BrokerRequests, DialledLink, Command, int], None]

HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: BrokerRequests._consumer_ids_changed,
    RequestCode.CHECK_TRANSACTION_STATE: BrokerRequests._check_transaction_state,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: BrokerRequests._reset_offsets,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: BrokerRequests._consumer_status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: BrokerRequests._running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: BrokerRequests._consume_directly,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: BrokerRequests._take_reply,
}
