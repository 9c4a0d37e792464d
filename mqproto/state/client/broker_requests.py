"""What brokers ask of a client on the client's own links (docs/protocol/client.md 6).

Owns: which of them there are, how they are read and answered.
Leaves to others: what a consumer does about them (`client.ConsumerPort`), transactions (`transactions`), replies
(`request_reply`).

A request that cannot be read is answered by code 1 with the reason, one that we do not know by code 3; nothing that a
broker sends here ends the link or reaches another consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from mqproto.codec import Command
from mqproto.errors import MQError
from mqproto.state.flows.tasks import DialledLink
from mqproto.wire import headers, properties
from mqproto.wire.bodies import ConsumerRunningInfo, ConsumerStatus, ResetOffsets
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.record import decode_record, inflated

if TYPE_CHECKING:
    from mqproto.state.client.node import ClientNode

#: Characters of the program's stacks that operators get.
STACKS_MAX: Final = 1 << 20

Handler: TypeAlias = "Callable[[ClientNode, DialledLink, Command, int], None]"


def answer(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    """Handle one request of a broker."""
    handler = HANDLERS.get(request.code)
    if handler is None:
        remark = f" request type {request.code} not supported"
        link.reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        return
    try:
        handler(node, link, request, now)
    except MQError as error:
        if request.is_oneway:
            node.notices.append(f"request {request.code} of {link.address} cannot be read: {error}")
        link.reply(request, ResponseCode.SYSTEM_ERROR, remark=str(error))


def _consumer_ids_changed(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    """Java rebalances all its groups; only the named one can have changed."""
    group = headers.NotifyConsumerIdsChangedRequest.decode(request.fields).consumer_group
    consumer = node.consumers.get(group)
    if consumer is not None:
        consumer.consumer_ids_changed(now)
    link.reply(request, ResponseCode.SUCCESS)


def _check_transaction_state(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    """The message names its group; any producer of that group may be asked, not only the one that sent it."""
    header = headers.CheckTransactionStateRequest.decode(request.fields)
    broker_name = request.fields.get("bname")
    message = inflated(decode_record(request.body, broker_name or ""))
    group = message.properties.get(properties.PRODUCER_GROUP, "")
    core = node.transactions.get(group)
    if core is None:
        node.notices.append(
            f"{link.address} asks for a transaction of group {group!r}, which has no transaction producer here"
        )
    else:
        core.check(header, message, link.address, broker_name)


def _take_reply(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    node.requests.replied(headers.ReplyMessageRequest.decode(request.fields), bytes(request.body), now)
    link.reply(request, ResponseCode.SUCCESS)


def _reset_offsets(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    header = headers.ResetOffsetRequest.decode(request.fields)
    offsets = ResetOffsets.from_json(bytes(request.body)).offsets
    consumer = node.consumers.get(header.group)
    if consumer is None:
        node.notices.append(f"{link.address} resets offsets of group {header.group!r}, which has no consumer here")
    else:
        consumer.reset_offsets(header.topic, offsets, now)
    link.reply(request, ResponseCode.SUCCESS)


def _consumer_status(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    header = headers.GetConsumerStatusRequest.decode(request.fields)
    consumer = node.consumers.get(header.group)
    known = {} if consumer is None else consumer.offsets()
    topic = header.topic.strip()
    status = ConsumerStatus({queue: offset for queue, offset in known.items() if not topic or queue.topic == topic})
    link.reply(request, ResponseCode.SUCCESS, body=status.to_json())


def _running_info(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    header = headers.GetConsumerRunningInfoRequest.decode(request.fields)
    consumer = node.consumers.get(header.consumer_group)
    if consumer is None:
        link.reply(
            request, ResponseCode.SYSTEM_ERROR, remark=f"no consumer of group {header.consumer_group} in this client"
        )
        return
    body = consumer.running_info(now)
    if header.jstack_enable and node.stacks is not None:
        info = ConsumerRunningInfo.from_json(body)
        info.stack = node.stacks()[:STACKS_MAX]
        body = info.to_json()
    link.reply(request, ResponseCode.SUCCESS, body=body)


def _consume_directly(node: ClientNode, link: DialledLink, request: Command, now: int) -> None:
    header = headers.ConsumeMessageDirectlyRequest.decode(request.fields)
    broker_name = header.broker_name or ""
    message = decode_record(request.body, broker_name)
    consumer = node.consumers.get(header.consumer_group)
    if consumer is None:
        link.reply(
            request, ResponseCode.SYSTEM_ERROR, remark=f"no consumer of group {header.consumer_group} in this client"
        )
    else:
        consumer.consume_directly(
            message, broker_name, lambda body, later: link.reply(request, ResponseCode.SUCCESS, body=body), now
        )


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _consumer_ids_changed,
    RequestCode.CHECK_TRANSACTION_STATE: _check_transaction_state,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset_offsets,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _consumer_status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _take_reply,
}
