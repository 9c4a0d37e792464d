"""Send requests: messages and batches as they travel, and the results that answers to them mean
(docs/protocol/client.md 3.6, 3.7).

Owns: the fields of the send header, ids, compression, what a namespace adds.
Leaves to others: queues and attempts (`core`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mqproto.codec import Command
from mqproto.errors import HeaderError, InvalidMessage, MQError, RemoteProtocolError, refusal
from mqproto.message import Message, MessageQueue, SendResult, SendStatus
from mqproto.namespaces import Namespace
from mqproto.replies import ReplyMessage
from mqproto.state.producer.settings import NodeSettings, ProducerSettings
from mqproto.validation import check_batch, check_message, check_topic
from mqproto.wire import properties
from mqproto.wire.batch import BatchEntry, encode_batch
from mqproto.wire.codes import SEND_BATCH_MESSAGE, SEND_MESSAGE_V2, SEND_REPLY_MESSAGE_V2, ResponseCode
from mqproto.wire.compression import deflate
from mqproto.wire.flags import TRANSACTION_PREPARED
from mqproto.wire.headers import SendMessageResponse
from mqproto.wire.ids import UniqueIds
from mqproto.wire.names import RETRY_PREFIX
from mqproto.wire.tracing import Traced, TracedKind

#: What a message without a region property in its answer belongs to (docs/protocol/client.md 3.7).
DEFAULT_REGION: Final = "DefaultRegion"

_STATUS: Final[dict[int, SendStatus]] = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


@dataclass(slots=True)
class SendRequest:
    """Message or batch as it travels, apart from what each attempt fills in: queue, broker and time."""

    topic: str
    msg_id: str
    code: int
    fields: dict[str, str]
    body: bytes
    messages: int = 1
    #: Its messages as the trace reports them.
    traced: Sequence[Traced] = ()

    def addressed(self, queue: MessageQueue, wall: int) -> dict[str, str]:
        return {**self.fields, "e": str(queue.queue_id), "g": str(wall), "n": queue.broker_name}


class RequestBuilder:
    """Builder of the send requests of one producer."""

    def __init__(
        self, settings: ProducerSettings, group: str, namespace: Namespace, node: NodeSettings, ids: UniqueIds
    ) -> None:
        """`group` as it travels."""
        self._settings = settings
        self._group = group
        self._namespace = namespace
        self._node = node
        self._ids = ids

    def build(self, message: Message, wall: int, checked: bool, with_trace: bool) -> SendRequest:
        """A message at wall time `wall`. Raises InvalidMessage or InvalidName, unless it has been `checked`."""
        if not checked:
            check_message(message, self._settings.max_message_size)
        is_reply = isinstance(message, ReplyMessage)
        topic, values = message.topic, message.wire_properties()
        if not is_reply:  # the topic of replies is the cluster's, in every namespace
            topic, values = self.named(topic, values)
        msg_id = values.get(properties.UNIQ_KEY) or self._new_id(values, wall)
        body = message.body
        sys_flag = 0
        if len(body) >= self._settings.compress_body_over:
            body, sys_flag = deflate(body, self._settings.compress_type, self._settings.compress_level)
        if values.get(properties.TRANSACTION_PREPARED) == "true":
            sys_flag |= TRANSACTION_PREPARED
        code = SEND_REPLY_MESSAGE_V2 if is_reply else SEND_MESSAGE_V2
        send_request = SendRequest(
            topic, msg_id, code, self._fields(topic, values, message.flag, sys_flag, False), body
        )
        if with_trace:
            send_request.traced = (traced(msg_id, values, body),)
        return send_request

    def build_batch(self, messages: Sequence[Message], wall: int, with_trace: bool) -> SendRequest:
        """Messages of one topic as one request (docs/protocol/client.md 3.10), never compressed.

        Raises InvalidMessage or InvalidName.
        """
        check_batch(messages, self._settings.max_message_size)
        entries: list[BatchEntry] = []
        ids: list[str] = []
        told: list[Traced] = []
        for message in messages:
            values = message.wire_properties()
            ids.append(values.get(properties.UNIQ_KEY) or self._new_id(values, wall))
            entries.append(BatchEntry(message.body, properties.encode_bytes(values), message.flag))
            if with_trace:
                told.append(traced(ids[-1], values, message.body))
        body = encode_batch(entries)
        if len(body) > self._settings.max_message_size:
            raise InvalidMessage(
                f"the batch takes {len(body)} bytes, more than {self._settings.max_message_size}: split it"
            )
        topic, values = self.named(messages[0].topic, {properties.WAIT: "true" if messages[0].wait else "false"})
        return SendRequest(
            topic, ",".join(ids), SEND_BATCH_MESSAGE, self._fields(topic, values, 0, 0, True), body, len(messages), told
        )

    def named(self, topic: str, values: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Topic and properties as they travel, with what the namespace adds (docs/protocol/client.md 1.8)."""
        if not self._namespace:
            return topic, values
        topic = self._namespace.wrap(topic)
        check_topic(topic)
        return topic, {**values, properties.INSTANCE_ID: self._namespace.name}

    def _new_id(self, values: dict[str, str], wall: int) -> str:
        msg_id = self._ids.next(wall)
        values[properties.UNIQ_KEY] = msg_id
        return msg_id

    def _fields(self, topic: str, values: dict[str, str], flag: int, sys_flag: int, batch: bool) -> dict[str, str]:
        """The send header under its one-letter names (docs/protocol/client.md 3.6.1), without queue (e), time (g) and
        broker name (n).
        """
        settings = self._settings
        fields = {
            "a": self._group,
            "b": topic,
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queues),
            "f": str(sys_flag),
            "h": str(flag),
            "i": properties.encode(values),
            "j": "0",
            "k": "true" if self._node.unit_mode else "false",
            "m": "true" if batch else "false",
        }
        if topic.startswith(RETRY_PREFIX):
            fields["j"] = values.get(properties.RECONSUME_TIME, "0")
            if properties.MAX_RECONSUME_TIMES in values:
                fields["l"] = values[properties.MAX_RECONSUME_TIMES]
        return fields

    def send_request(self, topic: str, msg_id: str, encoded: str, body: bytes) -> SendRequest:
        """An ordinary message for a topic as it travels, with its property string."""
        fields = self._fields(topic, {}, 0, 0, False)
        fields["i"] = encoded
        return SendRequest(topic, msg_id, SEND_MESSAGE_V2, fields, body)


def traced(msg_id: str, values: Mapping[str, str], body: bytes) -> Traced:
    """What the trace says of a message with these properties, and this body as it travels."""
    kind = TracedKind.NORMAL
    if values.get(properties.TRANSACTION_PREPARED) == "true":
        kind = TracedKind.HALF
    elif properties.DELAY in values:
        kind = TracedKind.DELAYED
    return Traced(msg_id, values.get(properties.TAGS), values.get(properties.KEYS), len(body), kind)


def send_result(answer: Command, queue: MessageQueue, msg_id: str, address: str) -> SendResult | MQError:
    """What an answer to a send says (docs/protocol/client.md 3.7); BrokerError for other codes, RemoteProtocolError for
    a success without its fields.
    """
    status = _STATUS.get(answer.code)
    if status is None:
        return refusal(answer.code, answer.remark, address)
    fields = answer.fields
    try:
        header = SendMessageResponse.decode(fields if "msgId" in fields else {**fields, "msgId": ""})
    except HeaderError as error:
        return RemoteProtocolError(f"{address} took the message, but its answer cannot be read: {error}")
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    return SendResult(
        status,
        msg_id,
        queue,
        header.queue_offset,
        header.msg_id,
        header.transaction_id,
        header.msg_region or DEFAULT_REGION,
        header.trace_on != "false",
    )
