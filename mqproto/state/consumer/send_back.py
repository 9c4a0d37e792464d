"""Messages that come again (docs/protocol/client.md 4.12): the request that sends one back to its broker, and the new
message where that fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from mqproto.errors import MQError
from mqproto.message import Message, MessageExt, MessageQueue
from mqproto.namespaces import NO_NAMESPACE, Namespace
from mqproto.state.flows.effects import Call, Flow, current, success
from mqproto.validation import check_consumer_group
from mqproto.wire import properties as names
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import ConsumerSendMsgBackRequest
from mqproto.wire.names import retry_topic

#: Limit of the send-back request (docs/protocol/client.md 4.12).
SEND_BACK_TIMEOUT_MS: Final = 5_000
#: The first level that the broker's own rule gives; later ones count up from it (docs/protocol/client.md 4.12).
FIRST_RETRY_LEVEL: Final = 3


def restore_topic(message: MessageExt, group: str, namespace: Namespace = NO_NAMESPACE) -> None:
    """A message of the group's retry topic shows the topic that it was first sent to (docs/protocol/client.md 4.2), as
    the application knows it.
    """
    first_topic = message.properties.get(names.RETRY_TOPIC)
    if first_topic and message.topic == retry_topic(group):
        message.topic = first_topic
    if namespace.name:
        message.topic = namespace.unwrap(message.topic)


def send_back(
    message: MessageExt,
    group: str,
    delay_level: int,
    limit: int,
    address: str,
    now: int,
    namespace: Namespace = NO_NAMESPACE,
) -> Flow[int]:
    """CONSUMER_SEND_MSG_BACK: let the broker that stored a message bring it again later (docs/protocol/client.md 4.12).

    The message's topic is the application's, the group is as it travels.
    `address` is where the route says that broker is; the store host in the message may be out of reach (CON-21).
    `limit` is how often the message may come again before it becomes a dead letter. Answers the time. Raises MQError
    when the broker did not take it.
    """
    header = ConsumerSendMsgBackRequest(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=namespace.wrap(message.topic),
        max_reconsume_times=limit,
    )
    fields = {**header.encode(), "bname": message.broker_name}
    outcome, now = yield Call(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, deadline=now + SEND_BACK_TIMEOUT_MS)
    success(outcome, address)
    return now


def retry_message(message: MessageExt, group: str, limit: int, namespace: Namespace = NO_NAMESPACE) -> Message:
    """A failed message as a new one for the group's retry topic, where its own broker does not take it back."""
    kept = {name: value for name, value in message.properties.items() if name not in _NOT_RESENT}
    kept |= {
        names.ORIGIN_MESSAGE_ID: message.properties.get(names.ORIGIN_MESSAGE_ID) or message.msg_id,
        names.RETRY_TOPIC: namespace.wrap(message.topic),
        names.RECONSUME_TIME: str(message.reconsume_times + 1),
        names.MAX_RECONSUME_TIMES: str(limit),
    }
    level = FIRST_RETRY_LEVEL + message.reconsume_times
    return Message(retry_topic(group), message.body, properties=kept, flag=message.flag, delay_level=level)


#: Says something about one stored copy or one delivery, or would make a half message of the new one.
_NOT_RESENT: Final = frozenset(
    {names.TRANSACTION_PREPARED, names.MIN_OFFSET, names.MAX_OFFSET, names.CONSUME_START_TIME, names.DELAY}
)


class SendBackNode(Protocol):
    """Members of the node that sending a message back needs. Flows answer the time as well."""

    @property
    def namespace(self) -> Namespace: ...

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]: ...

    def resend(self, message: Message, now: int) -> Flow[int]: ...


def send_message_back(
    message: MessageExt,
    delay_level: int,
    broker_name: str | None,
    group: str,
    limit: int,
    node: SendBackNode,
    now: int,
) -> Flow[None]:
    """Let a message come again later, as the application asks (docs/protocol/client.md 4.12): by the broker that stored
    it, or as a new message.

    `group` is the one that gets it, as it travels. `delay_level` -1 makes it a dead letter, 0 lets the broker choose,
    else it is a level of the broker's table; after `limit` times it is a dead letter. Raises InvalidName, and MQError
    when both ways failed.
    """
    check_consumer_group(group)
    message = replace(message, topic=node.namespace.wrap(message.topic), broker_name=broker_name or message.broker_name)
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
    try:
        address, now = yield from node.master(queue, now)
        yield from send_back(message, group, delay_level, limit, address, now)
    except MQError:
        now = yield from current(now)
        if delay_level < 0:
            raise  # a new message would come again first
        yield from node.resend(retry_message(message, group, limit), now)
