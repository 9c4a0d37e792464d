"""Sends, the general way: SEND_MESSAGE 10, SEND_MESSAGE_V2 310, single and batches (docs/protocol/broker.md 2.1, 2.2).

Owns: the checks in Apache's order with its codes, automatic creation of topics, what becomes of messages to retry
topics, batches.
Leaves to others: headers that repeat (`fast_send`), the stored form (`message_writer`), half messages (`transactions`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.engine.broker.core.core import ClientLink, Core, Handlers
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Refused
from mqproto.engine.broker.sends.fast_send import FastSendHandler, send_answer_fields
from mqproto.engine.broker.sends.message_writer import (
    MessageWriter,
    NewMessage,
    Scanned,
    Stored,
    delay_level,
    is_true,
    queue_offset,
    refusal,
)
from mqproto.engine.broker.tables.topics import legal_topic
from mqproto.engine.remarks import FAQ
from mqproto.engine.store import BatchPart, PutRefused
from mqproto.errors import HeaderError
from mqproto.wire import properties as names
from mqproto.wire.batch import BatchError, decode_batch
from mqproto.wire.bodies import TopicConfig
from mqproto.wire.codes import (
    MESSAGE_ILLEGAL,
    NO_PERMISSION,
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SEND_REPLY_MESSAGE,
    SUBSCRIPTION_GROUP_NOT_EXIST,
    SUCCESS,
    SYSTEM_BUSY,
    SYSTEM_ERROR,
    TOPIC_NOT_EXIST,
)
from mqproto.wire.flags import (
    MULTI_TAGS,
    PERM_READ_WRITE,
    PERM_WRITE,
    TOPIC_UNIT,
    TOPIC_UNIT_SUB,
    TRANSACTION_MASK,
    permission_text,
)
from mqproto.wire.headers import SendMessageRequest, SendMessageRequestV2
from mqproto.wire.ids import offset_msg_id
from mqproto.wire.names import RETRY_PREFIX, SENDING_FORBIDDEN, TOPIC_LENGTH_MAX, dlq_topic

#: Requests whose header has long names; the others have one-letter names.
_LONG_NAMES: Final = (SEND_MESSAGE, SEND_REPLY_MESSAGE)
#: From this release on a client's own limit of attempts counts (3.4.9; docs/protocol/broker.md 0.1).
VERSION_OWN_LIMIT: Final = 121


def send_header(request: Command) -> SendMessageRequest:
    """The header of a request that carries a message. Raises HeaderError."""
    if request.code in _LONG_NAMES:
        return SendMessageRequest.decode(request.fields)
    return SendMessageRequestV2.decode(request.fields)


def own_limit(version: int, wanted: int | None, default: int) -> int:
    """How often a message may be consumed: the client's word, if it is new enough, else the group's setting.

    Negative ones mean "as set": only clients that forgot to resolve their default send them (CON-13).
    """
    return wanted if wanted is not None and wanted >= 0 and version >= VERSION_OWN_LIMIT else default


class Receipt:
    """Receipt for the messages of one request: topic as the sender knows it, ids, queue, offset of the first."""

    __slots__ = ("count", "msg_id", "queue_id", "queue_offset", "topic")

    def __init__(self, topic: str, msg_id: str, queue_id: int, queue_offset: int, count: int = 1) -> None:
        self.topic = topic
        self.msg_id = msg_id
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.count = count


class SendRequests:
    """Requests to send that `fast_send` does not take."""

    def __init__(
        self, core: Core, message_writer: MessageWriter, prepare: Callable[[NewMessage], Stored], fast: FastSendHandler
    ) -> None:
        self.core = core
        self.message_writer = message_writer
        #: Stores a half message where no consumer looks.
        self._prepare = prepare
        self.fast = fast
        self._cluster = core.settings.broker_cluster_name
        #: In every answer, refusals too.
        self._always: dict[str, str] = {}
        self._settings_changed()
        core.configuration.hooks.append(self._settings_changed)

    def _settings_changed(self, keys: frozenset[str] = frozenset()) -> None:
        settings = self.core.settings
        self._always = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if settings.trace_on else "false"}
        self.fast.make_answer()

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            SEND_MESSAGE: self.on_send,
            SEND_MESSAGE_V2: self.on_send,
            SEND_BATCH_MESSAGE: self.on_send,
        }

    def on_send(self, link: ClientLink, request: Command) -> None:
        try:
            header = send_header(request)
            config = self.accept(link, header)
            queue_id = self.choose_queue(link, header, config)
            if header.batch:
                self._batch(link, request, header, config, queue_id)
            else:
                self._single(link, request, header, config, queue_id)
        except HeaderError as error:
            self._refuse(link, request, Refused(SYSTEM_ERROR, str(error)))
        except PutRefused as error:
            self._refuse(link, request, refusal(error, self.core.store, self.core.statistics.store_stats))
        except Refused as error:
            self._refuse(link, request, error)

    def _refuse(self, link: ClientLink, request: Command, refused: Refused) -> None:
        link.reply(request, refused.code, self._always, remark=refused.remark)

    # --- checks (docs/protocol/broker.md 2.1, steps 2 to 7) ---

    def accept(self, link: ClientLink, header: SendMessageRequest) -> TopicConfig:
        """The topic that a message may go to, made if there is none. Raises Refused."""
        core = self.core
        settings = core.settings
        if core.pending_acks.full:
            raise Refused(SYSTEM_BUSY, OVERLOAD)
        begin = settings.start_accept_send_request_time_stamp
        if core.wall < begin:
            text = datetime.fromtimestamp(begin / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S,") + f"{begin % 1000:03d}"
            raise Refused(SYSTEM_ERROR, f"broker unable to service, until {text}")
        topic = header.topic
        config = core.topics.find(topic)
        if config is not None and config.order and not settings.broker_permission & PERM_WRITE:
            raise Refused(NO_PERMISSION, f"the broker[{core.host}] sending message is forbidden")
        check_topic_name(topic)
        if topic in SENDING_FORBIDDEN:
            raise Refused(NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        if config is None:
            config = self._create(header)
        if config is None:
            raise Refused(TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        return config

    def _create(self, header: SendMessageRequest) -> TopicConfig | None:
        core = self.core
        retry = header.topic.startswith(RETRY_PREFIX)
        flag = 0 if not header.unit_mode else TOPIC_UNIT_SUB if retry else TOPIC_UNIT
        config = core.topics.create_like(
            header.topic, header.default_topic, header.default_topic_queue_nums, flag, core.wall
        )
        if config is None and retry:
            config = core.topics.create(header.topic, 1, PERM_READ_WRITE, flag, core.wall)
        return config

    def choose_queue(self, link: ClientLink, header: SendMessageRequest, config: TopicConfig) -> int:
        """The queue that the message goes to: the one asked for, or any where the peer leaves it to us.

        Raises Refused.
        """
        queue_id = header.queue_id
        if queue_id >= max(config.write_queues, config.read_queues):
            raise Refused(
                SYSTEM_ERROR, f"request queueId[{queue_id}] is illegal, {_describe(config)} Producer: {link.address}"
            )
        if queue_id >= 0:
            return queue_id
        if config.write_queues <= 0:
            raise Refused(SYSTEM_ERROR, f"topic[{config.name}] has no queue to write to")
        return self.core.turn(config.write_queues)

    # --- one message ---

    def _single(
        self, link: ClientLink, request: Command, header: SendMessageRequest, config: TopicConfig, queue_id: int
    ) -> None:
        sys_flag = header.sys_flag | (MULTI_TAGS if config.filter_type == "MULTI_TAG" else 0)
        if not header.topic.startswith(RETRY_PREFIX) and not sys_flag & TRANSACTION_MASK:
            scanned = self.message_writer.scanner.scan((header.properties or "").encode("utf-8", "replace"))
            if scanned is not None:
                self._plain(link, request, header, queue_id, sys_flag, scanned)
                if self.core.settings.broker_permission & PERM_WRITE:  # else it depends on whether the topic is ordered
                    fast = self.fast
                    self.core.lesson = lambda link, text: fast.learn(link, text, request, header, sys_flag)
                return
        properties = names.decode(header.properties or "")
        properties[names.CLUSTER] = self._cluster
        waits = is_true(properties.get(names.WAIT, "true"))
        new_message = NewMessage(
            header.topic,
            queue_id,
            request.body,
            properties,
            born_time=header.born_timestamp,
            born_host=link.born_host,
            store_host=self.core.store_host,
            flag=header.flag,
            sys_flag=sys_flag,
            reconsume_times=header.reconsume_times or 0,
        )
        if header.topic.startswith(RETRY_PREFIX):
            self._place_retried(new_message, request.version, header)
        topic = new_message.topic
        level = delay_level(properties)
        # A consumer before 4.6.1 that sends a failed message itself sends TRAN_MSG along (docs/protocol/broker.md 2.9).
        if is_true(properties.get(names.TRANSACTION_PREPARED, "")) and not (
            new_message.reconsume_times > 0 and level > 0
        ):
            if self.core.settings.reject_transaction_message:
                raise Refused(NO_PERMISSION, f"the broker[{self.core.host}] sending transaction message is forbidden")
            stored = self._prepare(new_message)
        else:
            if level <= 0:
                properties.pop(names.WAIT, None)
            stored = self.message_writer.put(new_message)
        self.core.statistics.put(stored.queue, 1, stored.size)
        self._answer(link, request, Receipt(topic, stored.msg_id, queue_id, stored.queue_offset), waits)

    def _plain(
        self,
        link: ClientLink,
        request: Command,
        header: SendMessageRequest,
        queue_id: int,
        sys_flag: int,
        scanned: Scanned,
    ) -> None:
        """The ordinary message, as `fast_send` stores it."""
        core = self.core
        text, waits, tags_code, unique, keys = scanned
        queue = core.store.queue(header.topic, queue_id)
        physical = core.store.writer.append(
            queue,
            request.body,
            text,
            header.flag,
            sys_flag,
            header.born_timestamp,
            link.born_host,
            core.store_host,
            header.reconsume_times or 0,
            0,
            tags_code,
            unique,
            keys,
            core.wall,
            core.filters.bits(header.topic, text),
        )
        core.stored(queue)
        core.statistics.put(queue, 1, core.store.end - physical)
        msg_id = offset_msg_id(core.store_host, physical)
        self._answer(link, request, Receipt(header.topic, msg_id, queue_id, queue_offset(queue, sys_flag)), waits)

    def _answer(self, link: ClientLink, request: Command, receipt: Receipt, waits: bool) -> None:
        """Answer the sender where its message lies; `waits`: not before it is durable, under SYNC_FLUSH."""
        core = self.core
        core.messages_in += receipt.count
        if request.flag & ONEWAY_FLAG:
            return
        fields = send_answer_fields(core.settings, receipt.msg_id, receipt.queue_id, receipt.queue_offset)
        answer = encode_response(request.opaque, SUCCESS, fields, serialize_type=request.serialize_type)
        core.pending_acks.send(link, answer, waits, receipt.topic)

    def _place_retried(self, new_message: NewMessage, version: int, header: SendMessageRequest) -> None:
        """A message to a retry topic belongs to a group; one that was tried too often goes to the dead letters.

        Raises Refused.
        """
        core = self.core
        group = header.topic[len(RETRY_PREFIX) :]
        settings = core.subscription_groups.find(group, core.wall)
        if settings is None:
            raise Refused(SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}")
        limit = own_limit(version, header.max_reconsume_times, settings.retry_max_times)
        if new_message.reconsume_times < limit:
            return
        new_message.topic = dlq_topic(group)
        new_message.queue_id = 0
        new_message.properties.pop(names.DELAY, None)
        if core.topics.create(new_message.topic, 1, PERM_READ_WRITE, 0, core.wall) is None:
            raise Refused(SYSTEM_ERROR, f"topic[{new_message.topic}] not exist")

    # --- batches ---

    def _batch(
        self, link: ClientLink, request: Command, header: SendMessageRequest, config: TopicConfig, queue_id: int
    ) -> None:
        """Several messages in one request: all of them are stored, or none."""
        core = self.core
        if header.topic.startswith(RETRY_PREFIX):
            raise Refused(
                MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic[len(RETRY_PREFIX) :]}"
            )
        shared = names.decode(header.properties or "")
        waits = is_true(shared.pop(names.WAIT, "true"))
        # A batch-level id would become the id of every message (MSG-08).
        shared.pop(names.UNIQ_KEY, None)
        if header.sys_flag & TRANSACTION_MASK or delay_level(shared) > 0:
            raise Refused(MESSAGE_ILLEGAL, "a batch can be neither delayed nor part of a transaction")
        size_max = core.store.settings.max_message_size
        if len(request.body) > size_max:
            raise Refused(MESSAGE_ILLEGAL, f"the batch has {len(request.body)} bytes, more than {size_max}")
        shared[names.CLUSTER] = self._cluster
        entries = self._entries(header.topic, request.body, names.encode_bytes(shared))
        queue = core.store.queue(header.topic, queue_id)
        sys_flag = header.sys_flag | (MULTI_TAGS if config.filter_type == "MULTI_TAG" else 0)
        physicals = core.store.writer.append_batch(
            queue,
            entries,
            sys_flag,
            header.born_timestamp,
            link.born_host,
            core.store_host,
            header.reconsume_times or 0,
            core.wall,
        )
        core.stored(queue)
        core.statistics.put(queue, len(entries), core.store.end - physicals[0])
        ids = ",".join([offset_msg_id(core.store_host, physical) for physical in physicals])
        self._answer(
            link, request, Receipt(header.topic, ids, queue_id, queue.next_offset - len(entries), len(entries)), waits
        )

    def _entries(self, topic: str, body: bytes | memoryview, shared: bytes) -> list[BatchPart]:
        """The messages of a batch body, each with the shared properties behind its own. Raises Refused."""
        try:
            read = decode_batch(body)
        except BatchError as error:
            raise Refused(MESSAGE_ILLEGAL, str(error)) from None
        if not read:
            raise Refused(MESSAGE_ILLEGAL, "a batch without messages")
        entries = []
        for entry in read:
            own = entry.properties
            text = own + (b"\x02" if own and own[-1] != 2 else b"") + shared
            properties = names.decode_bytes(text)
            tags = properties.get(names.TAGS)
            code = 0 if tags is None else self.message_writer.scanner.code(tags.encode("utf-8", "replace"))
            keys = properties.get(names.KEYS)
            bits = self.core.filters.bits(topic, text)
            entries.append(BatchPart(entry.body, text, entry.flag, code, properties.get(names.UNIQ_KEY), keys, bits))
        return entries


def check_topic_name(topic: str) -> None:
    """Raises Refused for a name that no topic can have, in 4.9's words."""
    if not topic.strip():
        raise Refused(SYSTEM_ERROR, "The specified topic is blank.")
    if len(topic) > TOPIC_LENGTH_MAX:
        raise Refused(SYSTEM_ERROR, "The specified topic is longer than topic max length.")
    if not legal_topic(topic):
        raise Refused(SYSTEM_ERROR, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")


def _describe(config: TopicConfig) -> str:
    """A topic as Java prints it."""
    return (
        f"TopicConfig [topicName={config.name}, readQueueNums={config.read_queues}, "
        f"writeQueueNums={config.write_queues}, "
        f"perm={permission_text(config.perm)}, topicFilterType={config.filter_type}, topicSysFlag={config.sys_flag}, "
        f"order={'true' if config.order else 'false'}]"
    )
