"""Figures of the broker as a whole, and single counters: GET_BROKER_RUNTIME_INFO 28, VIEW_BROKER_STATS_DATA 315
(docs/protocol/broker.md 2.17, 9).

Owns: the keys of the runtime table and the text of their values.
Leaves to others: counting (`broker_stats`, `store_stats`).

Tools read many of these texts as numbers without asking whether they are any, so each key is always there.
"""

from __future__ import annotations

from typing import Final, Protocol

from mqproto.codec import Command
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.core.pending_acks import PendingAcks
from mqproto.engine.broker.core.waiting_reads import WaitingReads
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.statistics.store_stats import LABELS
from mqproto.engine.broker.tables.delay_progress import DelayProgress
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Store
from mqproto.wire.bodies import KVTable
from mqproto.wire.codes import VERSION, RequestCode, ResponseCode, version_name
from mqproto.wire.headers import ViewBrokerStatsDataRequest
from mqproto.wire.names import SCHEDULE_TOPIC
from mqproto.wire.record import RecordError, decode_record

_NO_POOL: Final = 0x7FFFFFFF
#: Apache's default: ends of transactions do not wait here.
_END_TRANSACTION_CAPACITY: Final = 100_000


class RuntimeFigures(Clock, Protocol):
    """Parts of a broker whose figures make the runtime table."""

    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def store(self) -> Store: ...
    @property
    def statistics(self) -> Statistics: ...
    @property
    def delay_progress(self) -> DelayProgress: ...
    @property
    def pending_acks(self) -> PendingAcks: ...
    @property
    def waiting_reads(self) -> WaitingReads: ...


class RuntimeInfoRequests:
    """Requests for figures."""

    def __init__(self, figures: RuntimeFigures) -> None:
        self.figures = figures

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.on_runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.on_counter,
        }

    def on_counter(self, link: Peer, request: Command) -> None:
        header = ViewBrokerStatsDataRequest.decode(request.fields)
        found = self.figures.statistics.find(header.stats_name, header.stats_key)
        if found is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        link.reply(request, ResponseCode.SUCCESS, body=found.to_json())

    def on_runtime_info(self, link: Peer, request: Command) -> None:
        figures = self.figures

        def then(record: memoryview | None) -> None:
            link.reply(
                request, ResponseCode.SUCCESS, body=KVTable(runtime_table(figures, store_time_of(record))).to_json()
            )

        figures.waiting_reads.answer(link, request, figures.store.reads.record(figures.store.min_physical), then)


def store_time_of(record: memoryview | None) -> int:
    """When a message was stored; -1 where there is none, or none that can be read."""
    if record is not None:
        try:
            return decode_record(record).store_time
        except RecordError:
            pass
    return -1


def runtime_table(figures: RuntimeFigures, earliest: int) -> dict[str, str]:
    """All keys of docs/protocol/broker.md 2.17. `earliest`: store time of the oldest message, -1 if there is none."""
    numbers = _times(figures) | _messages(figures) | _requests(figures) | _log(figures)
    numbers["earliestMessageTimeStamp"] = earliest
    return {name: str(value) for name, value in numbers.items()}


def _times(figures: RuntimeFigures) -> dict[str, str | int]:
    seconds = max(0, figures.wall - figures.statistics.store_stats.boot_time) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return {
        "bootTimestamp": figures.statistics.store_stats.boot_time,
        "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
        "brokerVersion": VERSION,
        "brokerVersionDesc": version_name(VERSION),
        "startAcceptSendRequestTimeStamp": figures.settings.start_accept_send_request_time_stamp,
    }


def _messages(figures: RuntimeFigures) -> dict[str, str | int]:
    """Puts and reads."""
    stats = figures.statistics.store_stats
    yesterday, today, now = stats.days()
    size, count = figures.store.writer.put_size, max(1, now.puts)
    spans = stats.per_second()
    return {
        "putMessageTimesTotal": count,
        "putMessageSizeTotal": size,
        "putMessageAverageSize": repr(size / count),
        "putMessageFailedTimes": stats.put_failures,
        "putMessageEntireTimeMax": stats.put_max_ms,
        "putMessageDistributeTime": "".join(
            [f"[{label}]:{count} " for label, count in zip(LABELS, stats.put_times(), strict=True)]
        ),
        "putLatency99": f"{stats.put_latency(0.99):.2f}",
        "putLatency999": f"{stats.put_latency(0.999):.2f}",
        "getMessageEntireTimeMax": stats.read_max_ms,
        "putTps": _numbers([puts for puts, _, _, _ in spans]),
        "getFoundTps": _numbers([found for _, found, _, _ in spans]),
        "getMissTps": _numbers([missed for _, _, missed, _ in spans]),
        "getTotalTps": _numbers([found + missed for _, found, missed, _ in spans]),
        "getTransferedTps": _numbers([given for _, _, _, given in spans]),
        "msgPutTotalYesterdayMorning": yesterday.puts,
        "msgPutTotalTodayMorning": today.puts,
        "msgPutTotalTodayNow": now.puts,
        "msgGetTotalYesterdayMorning": yesterday.given,
        "msgGetTotalTodayMorning": today.given,
        "msgGetTotalTodayNow": now.given,
    }


def _numbers(values: list[float]) -> str:
    return " ".join(map(repr, values))


def _requests(figures: RuntimeFigures) -> dict[str, str | int]:
    """What waits: acknowledgements for the disk, and reads for what lies on it. Parked pulls are no load."""
    settings = figures.settings
    return {
        "sendThreadPoolQueueSize": figures.pending_acks.count,
        "sendThreadPoolQueueHeadWaitTimeMills": figures.pending_acks.head_wait_ms,
        "sendThreadPoolQueueCapacity": settings.send_thread_pool_queue_capacity,
        "pullThreadPoolQueueSize": 0,
        "pullThreadPoolQueueHeadWaitTimeMills": 0,
        "pullThreadPoolQueueCapacity": settings.pull_thread_pool_queue_capacity,
        "queryThreadPoolQueueSize": len(figures.waiting_reads),
        "queryThreadPoolQueueHeadWaitTimeMills": figures.waiting_reads.head_wait_ms,
        "queryThreadPoolQueueCapacity": settings.query_thread_pool_queue_capacity,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": _END_TRANSACTION_CAPACITY,
        "pageCacheLockTimeMills": 0,
        "dispatchMaxBuffer": 0,
    }


def _log(figures: RuntimeFigures) -> dict[str, str | int]:
    """The log and its disk."""
    store = figures.store
    log, queues = store.disk_ratios()
    used, free = store.disk_usage() or (0, 0)
    facts: dict[str, str | int] = {
        "commitLogMinOffset": store.min_physical,
        "commitLogMaxOffset": store.end,
        "dispatchBehindBytes": store.dispatch_behind,
        "commitLogDiskRatio": repr(log),
        f"commitLogDiskRatio_{store.settings.commit_log_folder}": repr(log),
        "consumeQueueDiskRatio": repr(queues),
        "commitLogDirCapacity": f"Total : {readable(used + free)}, Free : {readable(free)}.",
        "remainHowManyDataToFlush": readable(max(0, store.end - store.flushed)),
        "remainTransientStoreBufferNumbs": _NO_POOL,
    }
    for level, offset in sorted(figures.delay_progress.table.items()):
        queue = store.find_queue(SCHEDULE_TOPIC, level - 1)
        facts[f"scheduleMessageOffset_{level}"] = f"{offset},{0 if queue is None else queue.max_offset}"
    return facts


def readable(size: int) -> str:
    """A number of bytes as people read it: `0 B`, `1.5 KiB`."""
    if size < 1024:
        return f"{size} B"
    power = (size.bit_length() - 1) // 10
    return f"{size / (1 << 10 * power):.1f} {'KMGTPE'[power - 1]}iB"
