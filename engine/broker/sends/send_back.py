"""Send-back, CONSUMER_SEND_MSG_BACK 36: a consumer gives a message back for later (docs/protocol/broker.md 2.3).

Owns: retry and dead-letter topics of groups, how often a message comes back and after which delay.
Leaves to others: waiting for the delay (`delayed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.engine.broker.core.core import ClientLink, Handlers
from mqproto.engine.broker.core.pending_acks import PendingAcks
from mqproto.engine.broker.interfaces.answers import DiskReads
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.sends.message_writer import MessageWriter, NewMessage
from mqproto.engine.broker.sends.send import own_limit
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.remarks import FAQ
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import PutRefused, Store
from mqproto.message import MessageExt
from mqproto.wire import properties as names
from mqproto.wire.bodies import GroupConfig, TopicConfig
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.flags import PERM_READ_WRITE, PERM_WRITE, TOPIC_UNIT_SUB
from mqproto.wire.headers import ConsumerSendMsgBackRequest
from mqproto.wire.names import dlq_topic, retry_topic
from mqproto.wire.record import RecordError, decode_record

#: A message that comes back for the first time waits for this level (10 s by default), each further time for the next.
_FIRST_LEVEL: Final = 3


class SendBackRequests:
    """Requests that give messages back."""

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings,
        store: Store,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        statistics: Statistics,
        reads: DiskReads,
        acks: PendingAcks,
        host: str,
        store_host: bytes,
        turn: Callable[[int], int],
        message_writer: MessageWriter,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.store = store
        self.topics = topics
        self.groups = groups
        self.statistics = statistics
        self.reads = reads
        self.acks = acks
        self.host = host
        self.store_host = store_host
        self.turn = turn
        self.message_writer = message_writer

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.CONSUMER_SEND_MSG_BACK: self.on_send_back,
        }

    def on_send_back(self, link: ClientLink, request: Command) -> None:
        header = ConsumerSendMsgBackRequest.decode(request.fields)
        settings = self.groups.find(header.group, self.clock.wall)
        if settings is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group} {FAQ}"
            )
        if not self.settings.broker_permission & PERM_WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{self.host}] sending message is forbidden")
        if settings.retry_queues <= 0:
            link.reply(request, ResponseCode.SUCCESS)  # the group wants no retries: the message is dropped
            return
        topic = retry_topic(header.group)
        config = self.topics.create(
            topic, settings.retry_queues, PERM_READ_WRITE, TOPIC_UNIT_SUB if header.unit_mode else 0, self.clock.wall
        )
        if config is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        if not config.perm & PERM_WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")

        def then(record: memoryview | None) -> None:
            new_message = self._taken_back(request, header, settings, record, config)
            try:
                self.message_writer.put(new_message)
            except PutRefused as failure:
                self.statistics.store_stats.put_failures += 1
                raise Refused(ResponseCode.SYSTEM_ERROR, failure.status.value) from None
            self.statistics.given_back(new_message.properties[names.RETRY_TOPIC], header.group)
            if not request.flag & ONEWAY_FLAG and not link.ended:
                answer = encode_response(request.opaque, ResponseCode.SUCCESS, serialize_type=request.serialize_type)
                self.acks.send(link, answer, True, new_message.topic)

        self.reads.answer(link, request, self.store.reads.record(header.offset), then, needed=True)

    def _taken_back(
        self,
        request: Command,
        header: ConsumerSendMsgBackRequest,
        settings: GroupConfig,
        record: memoryview | None,
        config: TopicConfig,
    ) -> NewMessage:
        """What a message becomes that is given back, for the topic of `config` or for the dead letters.

        Raises Refused.
        """
        message = _message(record, header.offset)
        limit = own_limit(request.version, header.max_reconsume_times, settings.retry_max_times)
        if message.reconsume_times >= limit or header.delay_level < 0:
            return self._dead_letter(header.group, message)
        level = header.delay_level or _FIRST_LEVEL + message.reconsume_times
        # Where a group was given more queues than its topic has, nobody would look into the others.
        queue_id = self.turn(max(1, min(settings.retry_queues, config.read_queues)))
        return self._again(config.name, queue_id, message, {names.DELAY: str(level)})

    def _dead_letter(self, group: str, message: MessageExt) -> NewMessage:
        """For the topic of those that were tried too often. It can be read like any other (ADM-06)."""
        topic = dlq_topic(group)
        if self.topics.create(topic, 1, PERM_READ_WRITE, 0, self.clock.wall) is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        message.properties.pop(names.DELAY, None)
        return self._again(topic, 0, message, {})

    def _again(self, topic: str, queue_id: int, message: MessageExt, more: dict[str, str]) -> NewMessage:
        """The same message for another topic: body and birth as they were, one attempt more, and where it came from."""
        properties = message.properties | more
        properties.setdefault(names.RETRY_TOPIC, message.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties[names.WAIT] = "false"
        return NewMessage(
            topic,
            queue_id,
            message.body,
            properties,
            born_time=message.born_time,
            born_host=message.born_host_bytes,
            store_host=self.store_host,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times + 1,
        )


def _message(record: memoryview | None, offset: int) -> MessageExt:
    """The message of a record. Raises Refused."""
    if record is not None:
        try:
            return decode_record(record)
        except RecordError:
            pass
    raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
