"""Running information of a consumer: its answer to operators (docs/protocol/client.md 6, docs/protocol/wire.md 15).

Owns: rates over the last minute and hour, kept as sums of a few slots of time, and the text of the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from mqproto.message import MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.wire.bodies import ConsumerRunningInfo, ConsumeStatusData, ConsumeType, ProcessQueueInfo, SubscriptionData
from mqproto.wire.codes import VERSION, version_name

_MINUTE_S: Final = 60
_MIB_SHIFT: Final = 20


class Rate:
    """Count and amount of what happened within the last `slots` times `slot_ms`, to within a slot."""

    __slots__ = ("_counts", "_slot_ms", "_starts", "_sums")

    def __init__(self, slot_ms: int, slots: int) -> None:
        self._slot_ms = slot_ms
        self._starts = [-1] * slots
        self._counts = [0] * slots
        self._sums = [0] * slots

    def add(self, now: int, count: int, amount: int = 0) -> None:
        start = now // self._slot_ms
        index = start % len(self._starts)
        if self._starts[index] != start:
            self._starts[index] = start
            self._counts[index] = self._sums[index] = 0
        self._counts[index] += count
        self._sums[index] += amount

    def total(self, now: int) -> tuple[int, int]:
        oldest = now // self._slot_ms - len(self._starts)
        live = [index for index, start in enumerate(self._starts) if start > oldest]
        return sum(self._counts[index] for index in live), sum(self._sums[index] for index in live)


class TopicRates:
    """Pulls and deliveries of one topic."""

    __slots__ = ("_deliveries", "_failed", "_failed_hour", "_messages", "_pulls", "_succeeded")

    def __init__(self) -> None:
        self._pulls = Rate(10_000, 6)
        self._messages = Rate(10_000, 6)
        self._deliveries = Rate(10_000, 6)
        self._succeeded = Rate(10_000, 6)
        self._failed = Rate(10_000, 6)
        self._failed_hour = Rate(60_000, 60)

    def pulled(self, now: int, messages: int, took_ms: int) -> None:
        """A pull brought new messages."""
        self._pulls.add(now, 1, took_ms)
        self._messages.add(now, messages)

    def consumed(self, now: int, succeeded: int, failed: int, took_ms: int) -> None:
        """A delivery was answered."""
        self._deliveries.add(now, 1, took_ms)
        self._succeeded.add(now, succeeded)
        self._failed.add(now, failed)
        self._failed_hour.add(now, failed)

    def status(self, now: int) -> ConsumeStatusData:
        return ConsumeStatusData(
            pull_rt=_mean(self._pulls.total(now)),
            pull_tps=self._messages.total(now)[0] / _MINUTE_S,
            consume_rt=_mean(self._deliveries.total(now)),
            consume_ok_tps=self._succeeded.total(now)[0] / _MINUTE_S,
            consume_failed_tps=self._failed.total(now)[0] / _MINUTE_S,
            consume_failed_count=self._failed_hour.total(now)[0],
        )


class ConsumeRates:
    """Rates of one consumer, by topic."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicRates] = {}

    def of(self, topic: str) -> TopicRates:
        rates = self._by_topic.get(topic)
        if rates is None:
            rates = self._by_topic[topic] = TopicRates()
        return rates


def _mean(total: tuple[int, int]) -> float:
    count, amount = total
    return amount / count if count else 0.0


def running_info(
    settings: ConsumerSettings,
    facts: Mapping[str, str],
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueueInfo],
    statuses: Mapping[str, ConsumeStatusData],
) -> bytes:
    """The body.

    Every setting stands in it under its Java name, as operators' tools print them; `facts` as of `start_facts`.
    """
    properties = setting_properties(settings, ConsumeType.CONSUME_PASSIVELY) | {
        "PROP_CONSUMEORDERLY": _java_text(settings.orderly),
        "PROP_THREADPOOL_CORE_SIZE": str(settings.consume_thread_min),
    }
    return ConsumerRunningInfo({**properties, **facts}, list(subscriptions), dict(queues), dict(statuses)).to_json()


def setting_properties(settings: Any, consume_type: ConsumeType) -> dict[str, str]:
    """Every setting of a data class under its Java name, with the kind of consumer and our release."""
    properties = {_java_name(one.name): _java_text(getattr(settings, one.name)) for one in fields(settings)}
    return properties | {"PROP_CONSUME_TYPE": consume_type.value, "PROP_CLIENT_VERSION": version_name(VERSION)}


def start_facts(started_at: int, name_servers: Collection[str]) -> dict[str, str]:
    """The properties of the start: its wall time, and every name server with a semicolon behind it."""
    return {
        "PROP_CONSUMER_START_TIMESTAMP": str(started_at),
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in name_servers),
    }


def queue_info(
    queue: ProcessQueue, commit_offset: int | None, locked_at: int | None, wall_ahead: int
) -> ProcessQueueInfo:
    """One queue, with the offset that is known in memory, and since when it is locked for us."""
    return ProcessQueueInfo(
        commit_offset=commit_offset or 0,
        cached_min_offset=queue.first or 0,
        cached_max_offset=queue.last or 0,
        cached_count=len(queue),
        cached_size_mib=queue.size >> _MIB_SHIFT,
        locked=locked_at is not None,
        last_lock_time=0 if locked_at is None else locked_at + wall_ahead,
        dropped=queue.dropped,
        last_pull_time=queue.last_pull_at + wall_ahead,
        last_consume_time=queue.last_consume_at + wall_ahead,
    )


def _java_name(name: str) -> str:
    if name == "group":
        return "consumerGroup"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _java_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
