"""Numbers of the broker for a collector of metrics, under the names of Apache's exporter (docs/protocol/admin.md 7).

Owns: which numbers a page has, their labels, the slices in which they are collected.
Leaves to others: counting (`broker_stats`, `store_stats`), the texts of the runtime table (`runtime_info`), the page
(`mqproto.engine.metrics`).

Left out are numbers that only the clients themselves know, and those of slaves.
"""

from __future__ import annotations

from typing import Final, Protocol

from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.operators.runtime_info import RuntimeFigures, runtime_table, store_time_of
from mqproto.engine.broker.statistics.store_stats import LABELS, SPANS
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.metrics import Collected, MetricFamily
from mqproto.engine.slices import Steps
from mqproto.engine.store import ColdRead
from mqproto.wire.bodies import MessageModel
from mqproto.wire.names import DLQ_PREFIX, RETRY_PREFIX

#: Queues and counters that one slice looks at.
_AT_A_TIME: Final = 200

_TOPIC: Final = ("cluster", "broker", "topic")
_OF_GROUP: Final = ("cluster", "broker", "group")
_BOTH: Final = ("cluster", "broker", "topic", "group")
_LAG: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_BROKER: Final = ("cluster", "brokerIP", "broker")
_RUNTIME: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

#: Names of the put times, in the order of the labels that the runtime table has for them.
_PUT_TIMES: Final = (
    *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
    *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
)
_TPS: Final = {
    "put_tps": "putTps",
    "getfound_tps": "getFoundTps",
    "getmiss_tps": "getMissTps",
    "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferedTps",
}
#: Suffixes of names, and the keys of the runtime table that they show.
_NUMBERS: Final = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "putmessage_times_total": "putMessageTimesTotal",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "commitlog_minoffset": "commitLogMinOffset",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
}


class MetricFigures(RuntimeFigures, Protocol):
    """Parts of a broker whose figures make the page of metrics."""

    @property
    def address(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def topics(self) -> TopicConfigs: ...
    @property
    def offsets(self) -> ConsumerOffsets: ...
    @property
    def client_registry(self) -> ClientRegistry: ...


def collect(figures: MetricFigures) -> Steps[Collected]:
    """All numbers."""
    page = _Page(figures)
    page.runtime()
    page.broker()
    yield
    yield from page.topics()
    yield from page.counters()
    yield from page.groups()
    return Collected(list(page.families.values()), page.later)


class _Page:
    """Page under way: its numbers, as they are found."""

    def __init__(self, figures: MetricFigures) -> None:
        self.figures = figures
        settings = figures.settings
        self.cluster = settings.broker_cluster_name
        self.name = settings.broker_name
        self.families: dict[str, MetricFamily] = {}
        self.later = [self._earliest]

    def _family(self, name: str, about: str, labels: tuple[str, ...]) -> MetricFamily:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = MetricFamily(name, about, labels)
        return family

    # --- the broker as a whole ---

    def runtime(self) -> None:
        figures = self.figures
        table = runtime_table(figures, -1)
        boot = table["bootTimestamp"]
        self._where = (
            self.cluster,
            figures.address,
            figures.host,
            table["brokerVersionDesc"],
            boot,
            table["brokerVersion"],
        )
        for suffix, key in _NUMBERS.items():
            self._runtime(suffix, key, float(table[key]))
        for suffix, key in _TPS.items():
            for seconds, text in zip(SPANS, table[key].split(), strict=True):
                self._runtime(f"{suffix}{seconds}", f"{key} over {seconds} s", float(text))
        for suffix, label, count in zip(_PUT_TIMES, LABELS, figures.statistics.store_stats.put_times(), strict=True):
            self._runtime(f"pmdt_{suffix}", f"putMessageDistributeTime [{label}]", count)
        used, free = figures.store.disk_usage() or (0, 0)
        self._runtime("commitlogdir_capacity_total", "commitLogDirCapacity, total bytes", used + free)
        self._runtime("commitlogdir_capacity_free", "commitLogDirCapacity, free bytes", free)
        self._runtime(
            "remain_howmanydata_toflush",
            "remainHowManyDataToFlush, bytes",
            max(0, figures.store.end - figures.store.flushed),
        )
        self._oldest = self._family(
            "rocketmq_brokeruntime_earliest_message_timestamp", "earliestMessageTimeStamp", _RUNTIME
        )
        self._first = figures.store.reads.record(figures.store.min_physical)

    def _runtime(self, suffix: str, about: str, value: float) -> None:
        self._family(f"rocketmq_brokeruntime_{suffix}", about, _RUNTIME).add(value, *self._where)

    def _earliest(self) -> None:
        """For the job: the oldest message may have to be read from the disk."""
        first = self._first
        if isinstance(first, ColdRead):
            first.run()
            first = first.result
        self._oldest.add(store_time_of(first), *self._where)

    def broker(self) -> None:
        for name, about, key in (
            ("rocketmq_broker_tps", "messages put a second in the last minute", "BROKER_PUT_NUMS"),
            ("rocketmq_broker_qps", "messages given a second in the last minute", "BROKER_GET_NUMS"),
        ):
            found = self.figures.statistics.find(key, self.cluster)
            rate = 0.0 if found is None else found.minute.tps
            self._family(name, about, _BROKER).add(rate, self.cluster, self.figures.address, self.name)
        producers = self._family("rocketmq_producer_count", "producers online", _OF_GROUP)
        for group, members in self.figures.client_registry.producers.items():
            producers.add(len(members), self.cluster, self.name, group)
        consumers = self._family("rocketmq_group_count", "consumers online", ("caddr", "localaddr", "group"))
        for name, online in self.figures.client_registry.consumers.items():
            addresses = ",".join(sorted([link.address for link in online.members]))
            consumers.add(len(online.members), addresses, self.figures.address, name)

    # --- topics ---

    def topics(self) -> Steps[None]:
        """How many messages each topic ever had."""
        seen = 0
        for config in list(self.figures.topics.table.values()):
            end = 0
            for queue_id in range(config.write_queues):
                queue = self.figures.store.find_queue(config.name, queue_id)
                end += 0 if queue is None else queue.max_offset
                seen += 1
                if seen % _AT_A_TIME == 0:
                    yield
            if config.name.startswith(RETRY_PREFIX):
                self._family("rocketmq_topic_retry_offset", "end of a retry topic", _TOPIC).add(
                    end, self.cluster, self.name, config.name
                )
            elif config.name.startswith(DLQ_PREFIX):
                group = config.name[len(DLQ_PREFIX) :]
                self._family("rocketmq_topic_dlq_offset", "end of a topic of dead letters", _OF_GROUP).add(
                    end, self.cluster, self.name, group
                )
            else:
                self._family("rocketmq_producer_offset", "end of a topic", _TOPIC).add(
                    end, self.cluster, self.name, config.name
                )

    def counters(self) -> Steps[None]:
        """What the last minute brought."""
        statistics = self.figures.statistics
        shown = {
            "TOPIC_PUT_NUMS": ("rocketmq_producer_tps", "messages put a second in the last minute", _TOPIC),
            "TOPIC_PUT_SIZE": ("rocketmq_producer_message_size", "bytes put a second in the last minute", _TOPIC),
            "GROUP_GET_NUMS": ("rocketmq_consumer_tps", "messages given a second in the last minute", _BOTH),
            "GROUP_GET_SIZE": ("rocketmq_consumer_message_size", "bytes given a second in the last minute", _BOTH),
            "SNDBCK_PUT_NUMS": ("rocketmq_send_back_nums", "messages given back in the last minute", _BOTH),
        }
        pairs = {"TOPIC_PUT_NUMS": "TOPIC_PUT_SIZE", "GROUP_GET_NUMS": "GROUP_GET_SIZE"}
        for seen, (first, key) in enumerate(list(statistics.keys()), 1):
            for name in (first, pairs[first]) if first in pairs else (first,):
                found = statistics.find(name, key)
                if found is not None:
                    value = found.minute.total if name == "SNDBCK_PUT_NUMS" else found.minute.tps
                    labels = key.split("@", 1) if "GET" in name or "SNDBCK" in name else [key]
                    self._family(*shown[name]).add(value, self.cluster, self.name, *labels)
            if seen % (_AT_A_TIME // 10) == 0:
                yield

    # --- groups ---

    def groups(self) -> Steps[None]:
        """Where groups are, and how far behind."""
        figures = self.figures
        for seen, (key, committed) in enumerate(list(figures.offsets.table.items()), 1):
            topic, _, group = key.partition("@")
            config = figures.topics.find(topic)
            if config is not None:
                self._progress(topic, group, dict(committed))
            if seen % (_AT_A_TIME // 10) == 0:
                yield

    def _progress(self, topic: str, group: str, committed: dict[int, int]) -> None:
        figures = self.figures
        position = behind = latency = 0
        for queue_id, offset in committed.items():
            position += max(0, offset)
            queue = figures.store.find_queue(topic, queue_id)
            if queue is not None and offset < queue.max_offset:
                behind += queue.max_offset - max(0, offset)
                time = figures.store.reads.near_store_time(queue, max(offset, queue.min_offset))
                if time is not None and time >= 0:
                    latency = max(latency, figures.wall - time)
        where = (self.cluster, self.name, topic, group)
        self._family("rocketmq_consumer_offset", "messages that a group has consumed", _BOTH).add(position, *where)
        about = "ms that the message which a group has to consume next has waited, where that is in memory"
        self._family("rocketmq_group_get_latency_by_storetime", about, _BOTH).add(latency, *where)
        online = figures.client_registry.consumers.get(group)
        if online is not None and online.message_model is MessageModel.BROADCASTING:
            return
        kind = "retrydiff" if topic.startswith(RETRY_PREFIX) else "dlqdiff" if topic.startswith(DLQ_PREFIX) else "diff"
        count = 0 if online is None else len(online.members)
        self._family(f"rocketmq_group_{kind}", "messages that a group has still to consume", _LAG).add(
            behind, group, topic, str(count), "1"
        )
