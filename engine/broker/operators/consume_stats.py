"""Progress of queues and groups: GET_TOPIC_STATS_INFO 202, GET_CONSUME_STATS 208, GET_BROKER_CONSUME_STATS 317
(docs/protocol/broker.md 2.18).

Owns: which queues belong into an answer, the offsets and times in it.
Leaves to others: slices (`sliced_answers`), reads that wait for the disk (`waiting_reads`), what groups committed
(`consumer_offsets`).

All of it may concern any number of queues. Offsets are collected in slices; times of messages that are not in memory
are read by jobs, some hundred at a time; then the text is made in slices, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mqproto.codec import MAX_TOTAL, ONEWAY_FLAG, Command
from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.answers import DiskReads, LongAnswers
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import Steps, joined
from mqproto.engine.store import Queue, Store
from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    ConsumeOffsets,
    ConsumeStats,
    ConsumeStatsList,
    TopicConfig,
    TopicOffset,
    TopicStats,
    json_pieces,
)
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.fastjson import dumps
from mqproto.wire.headers import GetConsumeStatsInBrokerRequest, GetConsumeStatsRequest, GetTopicStatsInfoRequest

#: Queues that one slice looks at, keys of committed offsets, and times that one job reads.
_QUEUES_AT_A_TIME: Final = 200
_KEYS_AT_A_TIME: Final = 2000
_TIMES_AT_A_TIME: Final = 500
#: Longest body of an answer: a header fits beside it.
_BODY_MAX: Final = MAX_TOTAL - 65_536


class WantedStats:
    """Times that are not in memory: where each message is, and what to do with its store time, -1 if unreadable."""

    __slots__ = ("places", "seen", "takers")

    def __init__(self) -> None:
        self.places: list[tuple[Queue, int]] = []
        self.takers: list[Callable[[int], None]] = []
        #: Queues looked at.
        self.seen = 0

    def pause(self) -> Iterator[None]:
        """A queue was looked at: yields when that makes a slice."""
        self.seen += 1
        if self.seen % _QUEUES_AT_A_TIME == 0:
            yield


class ConsumeStatsRequests:
    """Requests for the progress of queues and groups."""

    def __init__(
        self,
        address: str,
        settings: BrokerSettings,
        store: Store,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        client_registry: ClientRegistry,
        statistics: Statistics,
        reads: DiskReads,
        answers: LongAnswers,
    ) -> None:
        self.address = address
        self.settings = settings
        self.store = store
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.client_registry = client_registry
        self.statistics = statistics
        self.reads = reads
        self.answers = answers

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.on_topic,
            RequestCode.GET_CONSUME_STATS: self.on_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.on_all_groups,
        }

    # --- a topic ---

    def on_topic(self, link: Peer, request: Command) -> None:
        topic = GetTopicStatsInfoRequest.decode(request.fields).topic
        config = self.topics.find(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        body, wanted = TopicStats(), WantedStats()
        steps = self._ends(config, body, wanted)
        self._answer(link, request, steps, wanted, lambda: joined(json_pieces(body)))

    def _ends(self, config: TopicConfig, body: TopicStats, wanted: WantedStats) -> Steps[None]:
        """The ends of the queues that can be written to."""
        for queue_id in range(config.write_queues):
            row = body.offsets[self._name(config, queue_id)] = TopicOffset()
            queue = self.store.find_queue(config.name, queue_id)
            if queue is not None and queue.max_offset > 0:
                row.min_offset = queue.min_offset
                row.max_offset = queue.max_offset
                self._time(wanted, queue, queue.max_offset - 1, _Ends(row))
            yield from wanted.pause()

    # --- groups ---

    def on_group(self, link: Peer, request: Command) -> None:
        header = GetConsumeStatsRequest.decode(request.fields)
        group = header.consumer_group
        topics = [header.topic] if header.topic and header.topic.strip() else self.offsets.topics_of(group)
        body, wanted = ConsumeStats(), WantedStats()
        steps = self._progress_of(group, topics, body, wanted)
        self._answer(link, request, steps, wanted, lambda: joined(json_pieces(body)))

    def _progress_of(self, group: str, topics: list[str], body: ConsumeStats, wanted: WantedStats) -> Steps[None]:
        for topic in topics:
            config = self._consumed(group, topic)
            if config is not None:
                yield from self._progress(group, config, config.read_queues, body, wanted)

    def on_all_groups(self, link: Peer, request: Command) -> None:
        ordered_only = GetConsumeStatsInBrokerRequest.decode(request.fields).is_order
        found: dict[str, list[ConsumeStats]] = {}
        wanted = WantedStats()
        steps = self._all_progress(ordered_only, found, wanted)
        self._answer(link, request, steps, wanted, lambda: joined(_list_pieces(found, self.address)))

    def _all_progress(
        self, ordered_only: bool, found: dict[str, list[ConsumeStats]], wanted: WantedStats
    ) -> Steps[None]:
        topics_of: dict[str, list[str]] = {}
        for count, key in enumerate(list(self.offsets.table), 1):
            topic, _, group = key.partition("@")
            topics_of.setdefault(group, []).append(topic)
            if count % _KEYS_AT_A_TIME == 0:
                yield
        for group in list(self.groups.table):
            rows = found[group] = []
            for topic in topics_of.get(group, ()):
                config = self._consumed(group, topic)
                if config is not None and (config.order or not ordered_only):
                    stats = ConsumeStats()
                    rows.append(stats)
                    yield from self._progress(group, config, config.write_queues, stats, wanted)
            yield from wanted.pause()

    def _consumed(self, group: str, topic: str) -> TopicConfig | None:
        """The topic, unless the group is online and has subscribed to others only."""
        online = self.client_registry.consumers.get(group)
        if online is not None and online.subscriptions and topic not in online.subscriptions:
            return None
        return self.topics.find(topic)

    def _progress(
        self, group: str, config: TopicConfig, queues: int, body: ConsumeStats, wanted: WantedStats
    ) -> Steps[None]:
        """How far a group is on the queues of one topic, and how fast on the topic."""
        body.tps += self.statistics.read_tps(config.name, group)
        for queue_id in range(queues):
            row = body.offsets[self._name(config, queue_id)] = ConsumeOffsets()
            queue = self.store.find_queue(config.name, queue_id)
            row.consumer_offset = self.offsets.find(group, config.name, queue_id) or 0
            if queue is not None:
                row.broker_offset = queue.max_offset
                if row.consumer_offset > 0:
                    self._time(wanted, queue, row.consumer_offset - 1, _Progress(row))
            yield from wanted.pause()

    def _name(self, config: TopicConfig, queue_id: int) -> MessageQueue:
        return MessageQueue(config.name, self.settings.broker_name, queue_id)

    # --- times ---

    def _time(self, wanted: WantedStats, queue: Queue, offset: int, take: Callable[[int], None]) -> None:
        """The store time of a message, now or later."""
        time = self.store.reads.near_store_time(queue, offset)
        if time is not None:
            take(time)
        else:
            wanted.places.append((queue, offset))
            wanted.takers.append(take)

    def _answer(
        self,
        link: Peer,
        request: Command,
        steps: Steps[None],
        wanted: WantedStats,
        text: Callable[[], Steps[bytes]],
    ) -> None:
        """Collect, read what has to be read, write."""
        if request.flag & ONEWAY_FLAG:
            return

        def give(data: bytes) -> None:
            if len(data) > _BODY_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the answer has {len(data)} bytes, more than a frame takes: ask for single topics",
                )
            link.reply(request, ResponseCode.SUCCESS, body=data)

        def read(done: int) -> None:
            places = wanted.places[done : done + _TIMES_AT_A_TIME]
            if not places:
                self.answers.answer(link, request, text(), give)
                return

            def then(times: list[int]) -> None:
                for take, time in zip(wanted.takers[done:], times, strict=False):
                    take(time)
                read(done + len(places))

            self.reads.answer(link, request, self.store.reads.store_times(places), then)

        def collect() -> Steps[bytes]:
            yield from steps
            return (yield from text()) if not wanted.places else b""

        self.answers.answer(link, request, collect(), lambda data: read(0) if wanted.places else give(data))


class _Ends:
    """Taker of the time of a queue's last message."""

    __slots__ = ("row",)

    def __init__(self, row: TopicOffset) -> None:
        self.row = row

    def __call__(self, time: int) -> None:
        self.row.last_update_timestamp = time


class _Progress:
    """Taker of the time of the last message that a group consumed; one that cannot be read leaves none."""

    __slots__ = ("row",)

    def __init__(self, row: ConsumeOffsets) -> None:
        self.row = row

    def __call__(self, time: int) -> None:
        self.row.last_timestamp = max(0, time)


def _list_pieces(found: dict[str, list[ConsumeStats]], address: str) -> Iterator[str]:
    """The text of a `ConsumeStatsList`, in pieces no longer than one row."""
    total = 0
    head = ConsumeStatsList(broker_address=address).to_json().decode()
    before, after = head.split("[]")
    yield before + "["
    for number, (group, rows) in enumerate(found.items()):
        yield f"{',' if number else ''}{{{dumps(group)}:["
        for index, stats in enumerate(rows):
            total += sum([row.broker_offset - row.consumer_offset for row in stats.offsets.values()])
            if index:
                yield ","
            yield from json_pieces(stats)
        yield "]}"
    yield "]" + after.replace('"totalDiff":0', f'"totalDiff":{total}')
