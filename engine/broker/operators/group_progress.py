"""Progress of groups, for operators: 300, 303, 308, 314, 343, 345 (docs/protocol/broker.md 2.18, 2.19).

Owns: which groups consume a topic and which topics a group consumes, store times, offsets that are copied or compared.
Leaves to others: the tables of offsets and members, moving online groups (`offset_resets`), figures (`statistics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.answers import DiskReads, LongAnswers
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import Steps, joined
from mqproto.engine.store import Queue, Reader, Store
from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupList,
    GroupSubscription,
    QueueTimeSpan,
    TopicList,
    json_pieces,
)
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import (
    CloneGroupOffsetRequest,
    QueryConsumeTimeSpanRequest,
    QueryCorrectionOffsetRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicConsumeByWhoRequest,
    QueryTopicsByConsumerRequest,
)

#: Groups whose offsets are compared, and topics whose offsets are copied in one slice.
_GROUPS_OF_A_SLICE: Final = 100
_TOPICS_OF_A_SLICE: Final = 500
#: Offset of a queue that nothing has to be corrected in.
_NO_CORRECTION: Final = (1 << 63) - 1


class GroupProgressRequests:
    """Requests for what groups have consumed, and to copy it."""

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings,
        store: Store,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        client_registry: ClientRegistry,
        reads: DiskReads,
        answers: LongAnswers,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.client_registry = client_registry
        self.reads = reads
        self.answers = answers

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.on_groups_of_topic,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.on_time_spans,
            RequestCode.QUERY_CORRECTION_OFFSET: self.on_correction,
            RequestCode.CLONE_GROUP_OFFSET: self.on_clone,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.on_topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.on_subscription,
        }

    # --- who consumes what ---

    def on_groups_of_topic(self, link: Peer, request: Command) -> None:
        """Groups that are online with a topic, and groups that have committed offsets of it."""
        topic = QueryTopicConsumeByWhoRequest.decode(request.fields).topic
        online = [group.name for group in self.client_registry.consumers.values() if topic in group.subscriptions]
        groups = dict.fromkeys((*online, *self.offsets.groups_of(topic)))
        self.answers.reply(link, request, GroupList(list(groups)))

    def on_topics_of_group(self, link: Peer, request: Command) -> None:
        """Topics that a group has committed offsets of; for tools of 5.x."""
        group = QueryTopicsByConsumerRequest.decode(request.fields).group
        self.answers.reply(link, request, TopicList(self.offsets.topics_of(group)))

    def on_subscription(self, link: Peer, request: Command) -> None:
        """What an online group has subscribed of a topic; for tools of 5.x."""
        header = QuerySubscriptionByConsumerRequest.decode(request.fields)
        group = self.client_registry.consumers.get(header.group)
        subscription = None if group is None else group.subscriptions.get(header.topic)
        link.reply(
            request, ResponseCode.SUCCESS, body=GroupSubscription(header.group, header.topic, subscription).to_json()
        )

    # --- times ---

    def on_time_spans(self, link: Peer, request: Command) -> None:
        """Store times of the ends of a topic's queues and of a group's offsets, and how long the next message has
        waited.
        """
        header = QueryConsumeTimeSpanRequest.decode(request.fields)
        config = self.topics.find(header.topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        committed = dict(self.offsets.of(header.group, header.topic))
        places = [
            MessageQueue(header.topic, self.settings.broker_name, queue_id) for queue_id in range(config.write_queues)
        ]
        queues = [
            queue for place in places if (queue := self.store.find_queue(place.topic, place.queue_id)) is not None
        ]
        wall = self.clock.wall

        def read(reader: Reader, part: Sequence[Queue]) -> list[QueueTimeSpan]:
            return [
                _time_span(reader, queue, places[queue.queue_id], committed.get(queue.queue_id, 0), wall)
                for queue in part
            ]

        def then(found: list[QueueTimeSpan]) -> None:
            by_queue = {span.queue: span for span in found}
            spans = [by_queue.get(place) or QueueTimeSpan(place, -1, -1, -1) for place in places]
            self.answers.reply(link, request, ConsumeTimeSpans(spans))

        self.reads.across(link, request, queues, read, then)

    # --- offsets ---

    def on_correction(self, link: Peer, request: Command) -> None:
        """The lowest offsets that groups have committed of a topic, where those of the group to compare with are not
        lower.

        Apache deletes the offsets of the groups in `filterGroups`; here they only do not count.
        """
        header = QueryCorrectionOffsetRequest.decode(request.fields)
        self.answers.answer(
            link, request, self._correction(header), lambda body: link.reply(request, ResponseCode.SUCCESS, body=body)
        )

    def _correction(self, header: QueryCorrectionOffsetRequest) -> Steps[bytes]:
        passed_over = set((header.filter_groups or "").split(","))
        lowest: dict[int, int] = {}
        for count, group in enumerate(self.offsets.groups_of(header.topic), 1):
            for queue_id, offset in () if group in passed_over else self.offsets.of(group, header.topic).items():
                queue = self.store.find_queue(header.topic, queue_id)
                if offset >= (0 if queue is None else queue.min_offset):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
            if count % _GROUPS_OF_A_SLICE == 0:
                yield
        for queue_id, offset in self.offsets.of(header.compare_group, header.topic).items():
            if lowest.get(queue_id, _NO_CORRECTION) > offset:
                lowest[queue_id] = _NO_CORRECTION
        return (yield from joined(json_pieces(CorrectionOffsets(lowest))))

    def on_clone(self, link: Peer, request: Command) -> None:
        """Let a group stand where another one stands, on one topic or on all that the other has."""
        header = CloneGroupOffsetRequest.decode(request.fields)
        if not header.dest_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "destGroup is empty")
        topics = [header.topic] if header.topic else self.offsets.topics_of(header.src_group)
        self.answers.answer(
            link, request, self._clone(header, topics), lambda _: link.reply(request, ResponseCode.SUCCESS)
        )

    def _clone(self, header: CloneGroupOffsetRequest, topics: Sequence[str]) -> Steps[None]:
        for count, topic in enumerate(topics, 1):
            group = self.client_registry.consumers.get(header.src_group)
            unused = not header.offline and group is not None and topic not in group.subscriptions
            if self.topics.find(topic) is None or unused:
                continue
            if not self.offsets.copy(topic, header.src_group, header.dest_group):
                raise Refused(ResponseCode.SYSTEM_ERROR, "this broker keeps no more offsets")
            if count % _TOPICS_OF_A_SLICE == 0:
                yield


def _time_span(reader: Reader, queue: Queue, place: MessageQueue, committed: int, wall: int) -> QueueTimeSpan:
    first = reader.earliest_store_time(queue)
    span = QueueTimeSpan(place, first, -1, first)
    if queue.max_offset > queue.min_offset:
        span.max_time = reader.store_time(queue, queue.max_offset - 1)
    if committed > queue.min_offset:
        span.consume_time = reader.store_time(queue, min(committed, queue.max_offset) - 1)
    if committed < queue.max_offset:
        next_time = reader.store_time(queue, max(committed, queue.min_offset))
        span.delay_time = 0 if next_time < 0 else wall - next_time
    return span
