"""Messages that brokers hold, and what became of them (docs/protocol/admin.md 2.4, 4; docs/protocol/client.md 1.10)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from mqproto.errors import AccessDenied, ClientError, MQError, NoClients, NoMessage, NoRoute
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.admin.calls import AdminCalls, BrokerAddress, queue_fields
from mqproto.state.admin.groups import GroupFlows
from mqproto.state.admin.topics import TopicFlows
from mqproto.state.cluster.routes import QUEUES_MAX
from mqproto.state.consumer.pull_loop import Pulled, read_answer
from mqproto.state.flows.effects import Flow
from mqproto.validation import check_given, check_range
from mqproto.wire.bodies import ConsumeDirectlyResult, ConsumeType, MessageModel, QueueDump
from mqproto.wire.bodies.routes import MASTER_ID
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.filters.tags import parse_tags
from mqproto.wire.flags import pull_flag
from mqproto.wire.headers import (
    ConsumeMessageDirectlyRequest,
    GetMaxOffsetResponse,
    GetMinOffsetResponse,
    PullMessageRequest,
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    ResumeCheckHalfMessageRequest,
    SearchOffsetResponse,
    ViewMessageRequest,
)
from mqproto.wire.ids import IdError, parse_offset_msg_id
from mqproto.wire.record import RecordError, decode_record, decode_records, inflated

#: The group in whose name operators read queues, as Apache's tools do.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
#: Hits of one search by key at each broker, and of one by unique id; brokers of Apache give no more than 64.
KEY_HITS: Final = 64
UNIQUE_HITS: Final = 32
#: Messages that one scan returns at most, and that one request fetches.
SCAN_LIMIT: Final = 1_000
SCAN_LIMIT_MAX: Final = 100_000
BATCH: Final = 32
#: What a search may take: indexes of many files are read (docs/protocol/client.md 1.10).
QUERY_TIMEOUT_MS: Final = 18_000
_FOREVER: Final = (1 << 63) - 1
_PULL_SUSPEND_MS: Final = 20_000


class TrackType(Enum):
    """Kinds of what a group has done with a message (docs/protocol/admin.md 3)."""

    CONSUMED = "CONSUMED"
    #: The group passed by, and its tags do not take the message.
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    #: The group's members fetch for themselves: their broker does not know what they have done.
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """Track of a message in one group; `reason` says why it is unknown or who is not there, else it is empty."""

    group: str
    type: TrackType
    reason: str = ""


class MessageFlows:
    """Operations on messages. All of them raise NoNameServer, BrokerError, ConnectFailed, ConnectionLost, CallExpired
    where servers fail.

    Bodies of found messages are not compressed. Raised besides are InvalidName, NoRoute for topics that name servers
    do not know, RecordError for a body that cannot be inflated.
    """

    __slots__ = ("_calls", "_groups", "_topics")

    def __init__(self, calls: AdminCalls, topics: TopicFlows, groups: GroupFlows) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups

    # --- by id and key

    def by_id(self, topic: str, message_id: str) -> Flow[MessageExt]:
        """A message by the id of its broker or by that of its producer, whichever it is.

        Raises NoMessage, or why the broker cannot say.
        """
        try:
            return (yield from self.by_offset_id(message_id))
        except MQError as error:  # it may be the id of a producer, whose digits name no broker
            failure = error
        try:
            return (yield from self.by_unique_id(topic, message_id))
        except NoMessage:
            raise failure from None

    def by_offset_id(self, offset_id: str) -> Flow[MessageExt]:
        """A message by the id that its broker gave: the broker inside the id is asked.

        Raises NoMessage, also for what is no such id.
        """
        address, offset = _parse(offset_id)
        command = yield from self._calls.ask(
            address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset).encode()
        )
        if command.code != ResponseCode.SUCCESS:
            refusal = self._calls.refusal(command, address)
            if command.code != ResponseCode.SYSTEM_ERROR or isinstance(refusal, AccessDenied):
                raise refusal
            raise NoMessage(offset_id, command.remark or "the broker finds nothing there") from refusal
        try:
            message = decode_record(command.body)
        except RecordError as error:
            raise NoMessage(offset_id, "no message begins there") from error
        if message.physical_offset != offset:
            raise NoMessage(offset_id, "no message begins there")
        return inflated(message)

    def by_unique_id(self, topic: str, unique_id: str) -> Flow[MessageExt]:
        """A message by the id that its producer gave; of several (it was retried, or sent twice) the one stored first.

        Raises NoMessage.
        """
        return (yield from self.all_by_unique_id(topic, unique_id))[0]

    def all_by_unique_id(self, topic: str, unique_id: str) -> Flow[list[MessageExt]]:
        """All messages with the id that a producer gave, by store time; at most 32 of each broker. Raises NoMessage."""
        found = yield from self._query(topic, unique_id, UNIQUE_HITS, 0, _FOREVER, unique=True)
        kept = [message for message in found if message.msg_id == unique_id]
        if not kept:
            raise NoMessage(unique_id, f"topic {topic} has none with this id that can still be found")
        return kept

    def by_key(
        self, topic: str, key: str, *, limit: int = KEY_HITS, begin_ms: int = 0, end_ms: int | None = None
    ) -> Flow[list[MessageExt]]:
        """The messages with a key that were stored between two wall times (ms), by store time; at most `limit` of each
        broker.

        Apache's brokers give 64 at most. A key has no blanks: they separate two keys of a message, each of which can be
        found. Raises ClientError for one that has.
        """
        if not key or " " in key:
            raise ClientError(f"key {key!r}: a key is not empty and has no blanks")
        check_range("limit", limit, 1, SCAN_LIMIT_MAX)
        until = _FOREVER if end_ms is None else end_ms
        found = yield from self._query(topic, key, limit, begin_ms, until, unique=False)
        # Brokers go by hashes and by whole seconds, so there may be more than was asked for.
        return [message for message in found if key in message.keys and begin_ms <= message.store_time <= until]

    def _query(
        self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> Flow[list[MessageExt]]:
        """What every broker of the topic finds by the hash of a key, by store time: others that share it are among
        it.
        """
        header = QueryMessageRequest(topic, key, limit, begin_ms, end_ms, "true" if unique else "false")
        found: list[MessageExt] = []
        for place in (yield from self._calls.places(topic)):
            command = yield from self._calls.ask(
                place.address,
                RequestCode.QUERY_MESSAGE,
                header.encode(),
                timeout_ms=max(QUERY_TIMEOUT_MS, self._calls.timeout_ms),
            )
            if command.code == ResponseCode.SUCCESS:
                found += decode_records(command.body, place.broker_name)
            elif command.code != ResponseCode.QUERY_NOT_FOUND:
                raise self._calls.refusal(command, place.address)
        kept = [message for message in found if message.topic == topic]
        return sorted(kept, key=lambda message: (message.store_time, message.broker_name, message.physical_offset))

    # --- by queue and time

    def at(self, queue: MessageQueue, offset: int) -> Flow[MessageExt]:
        """The message at an offset of a queue. Raises NoMessage when there is none (any more)."""
        place = yield from self._place(queue)
        pulled = yield from self._pull(place, queue, offset, 1, "*")
        if not pulled.messages or pulled.messages[0].queue_offset != offset:
            raise NoMessage(f"{offset} of {queue}", f"the queue goes on at {pulled.next_offset}")
        return pulled.messages[0]

    def between(
        self,
        topic: str,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        *,
        tags: str = "*",
        limit: int = SCAN_LIMIT,
    ) -> Flow[list[MessageExt]]:
        """The messages of a topic that were stored between two wall times (ms, the second one not included), queue by
        queue in order.

        None stands for the beginning and the end of what is there now. `tags` is an expression like `TagA || TagB`. At
        most `limit` messages are fetched. Raises InvalidExpressionError, InvalidSetting, BrokerError (16) where they
        may not be read.
        """
        check_range("limit", limit, 1, SCAN_LIMIT_MAX)
        route = yield from self._calls.route(topic)
        found: list[MessageExt] = []
        # a queue that may not be read is an error
        counts = {one.broker_name: min(one.read_queues, QUEUES_MAX) for one in route.queues}
        for queue in (MessageQueue(topic, name, number) for name in sorted(counts) for number in range(counts[name])):
            if len(found) < limit:
                found += yield from self.in_queue(queue, begin_ms, end_ms, tags=tags, limit=limit - len(found))
        return found

    def in_queue(
        self,
        queue: MessageQueue,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        *,
        tags: str = "*",
        limit: int = SCAN_LIMIT,
    ) -> Flow[list[MessageExt]]:
        """The same for one queue."""
        check_range("limit", limit, 1, SCAN_LIMIT_MAX)
        wanted = parse_tags(tags)
        place = yield from self._place(queue)
        at = yield from self._begin(place, queue, begin_ms)
        command = yield from self._calls.done(place.address, RequestCode.GET_MAX_OFFSET, queue_fields(queue))
        end = GetMaxOffsetResponse.decode(command.fields).offset
        found: list[MessageExt] = []
        while at < end and len(found) < limit:
            batch = min(BATCH, limit - len(found))
            pulled = yield from self._pull(place, queue, at, batch, wanted.expression, frozenset(wanted.tags))
            messages = [message for message in pulled.messages or () if message.queue_offset < end]
            early = [message for message in messages if end_ms is None or message.store_time < end_ms]
            found += [message for message in early if begin_ms is None or message.store_time >= begin_ms]
            if len(early) < len(messages) or pulled.next_offset <= at:
                break  # past the time, or a broker that does not move on
            at = pulled.next_offset
        return found[:limit]

    def _begin(self, place: BrokerAddress, queue: MessageQueue, time_ms: int | None) -> Flow[int]:
        """Where the messages of a time begin.

        It may be too early: of a time past the end Apache's brokers say the last message.
        """
        fields = queue_fields(queue)
        if time_ms is None:
            command = yield from self._calls.done(place.address, RequestCode.GET_MIN_OFFSET, fields)
            return GetMinOffsetResponse.decode(command.fields).offset
        fields["timestamp"] = str(time_ms)
        command = yield from self._calls.done(place.address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return SearchOffsetResponse.decode(command.fields).offset

    def _place(self, queue: MessageQueue) -> Flow[BrokerAddress]:
        for place in (yield from self._calls.places(queue.topic)):
            if place.broker_name == queue.broker_name:
                return place
        raise NoRoute(queue.topic)

    def _pull(
        self,
        place: BrokerAddress,
        queue: MessageQueue,
        offset: int,
        count: int,
        expression: str,
        tags: frozenset[str] = frozenset(),
    ) -> Flow[Pulled]:
        """PULL_MESSAGE that does not wait for messages and commits nothing."""
        header = PullMessageRequest(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=pull_flag(commit_offset=False, suspend=False, subscription=True),
            commit_offset=0,
            suspend_timeout_millis=_PULL_SUSPEND_MS,
            subscription=expression,
            sub_version=0,
            expression_type="TAG",
        )
        fields = {**header.encode(), "bname": queue.broker_name}
        command = yield from self._calls.ask(place.address, RequestCode.PULL_MESSAGE, fields)
        return read_answer(command, queue, tags, place.address)

    def entries(
        self, broker: str, queue: MessageQueue, index: int, count: int = 10, *, group: str | None = None
    ) -> Flow[QueueDump]:
        """Entries of a queue's index from an offset on, as the broker of an address keeps them; with `group` whether
        its filter takes them.

        4.4 brokers answer without entries.
        """
        check_given("topic", queue.topic)
        check_range("count", count, 1, SCAN_LIMIT)
        fields = QueryConsumeQueueRequest(queue.topic, queue.queue_id, index, count, group).encode()
        command = yield from self._calls.done(broker, RequestCode.QUERY_CONSUME_QUEUE, fields)
        return QueueDump.from_json(bytes(command.body))

    # --- what became of them

    def tracks(self, message: MessageExt) -> Flow[list[MessageTrack]]:
        """What each group that consumes the topic of a found message has done with it, by group; empty when there is no
        group.
        """
        groups = yield from self._topics.consumers(message.topic)
        if not groups:
            return []
        broker_name = message.broker_name or (yield from self._broker_of(message))
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        found: list[MessageTrack] = []
        for group in groups:
            try:
                found.append((yield from self._track(group, message, queue)))
            except NoClients as offline:
                found.append(MessageTrack(group, TrackType.NOT_ONLINE, offline.why))
            except MQError as failure:
                found.append(MessageTrack(group, TrackType.UNKNOWN, str(failure)))
        return found

    def _track(self, group: str, message: MessageExt, queue: MessageQueue) -> Flow[MessageTrack]:
        connection = yield from self._groups.connection(group)
        if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackType.PULL)
        if connection.message_model is MessageModel.BROADCASTING:
            return MessageTrack(group, TrackType.UNKNOWN, "its members keep their offsets themselves")
        try:
            progress = yield from self._groups.progress(group)
        except NoClients:
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
        if not any(one.queue == queue and one.consumer_offset > message.queue_offset for one in progress.queues):
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
        subscription = connection.subscriptions.get(message.topic)
        tags = subscription.tags if subscription is not None else []
        if tags and "*" not in tags and message.tags not in tags:
            return MessageTrack(group, TrackType.CONSUMED_BUT_FILTERED)
        return MessageTrack(group, TrackType.CONSUMED)

    def _broker_of(self, message: MessageExt) -> Flow[str]:
        """The name of the broker that stored a message."""
        info = yield from self._calls.cluster()
        for broker in info.brokers.values():
            if broker.addresses.get(MASTER_ID) == message.store_host:
                return broker.broker_name
        return ""

    def push(self, group: str, client_id: str, message: MessageExt) -> Flow[ConsumeDirectlyResult]:
        """Let one member of a group consume a found message now, and say what its listener made of it; nothing is
        committed.

        The broker waits 10 s for it. Raises InvalidName, BrokerError (1: the member is not there, 207: it does not
        answer).
        """
        check_given("group", group)
        fields = ConsumeMessageDirectlyRequest(group, client_id, message.offset_msg_id).encode()
        timeout_ms = self._calls.long_timeout_ms
        command = yield from self._calls.done(
            message.store_host, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, timeout_ms=timeout_ms
        )
        return ConsumeDirectlyResult.from_json(bytes(command.body))

    def resume_check(self, offset_id: str) -> Flow[None]:
        """Have a broker ask producers again about a half message that it gave up, by its offset id (since 4.5.2).
        Raises NoMessage.

        Such messages lie in the topic TRANS_CHECK_MAX_TIME_TOPIC.
        """
        address, _ = _parse(offset_id)
        yield from self._calls.done(
            address, RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequest(offset_id).encode()
        )


def _parse(offset_id: str) -> tuple[str, int]:
    try:
        return parse_offset_msg_id(offset_id)
    except IdError as error:
        raise NoMessage(offset_id, error.why) from error
