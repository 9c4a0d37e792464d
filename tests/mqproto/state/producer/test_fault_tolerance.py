"""Which brokers are avoided, and for how long (docs/protocol/client.md 3.4)."""

from __future__ import annotations

import pytest

from mqproto.message import MessageQueue
from mqproto.state.cluster.routes import PublishInfo, publish_info
from mqproto.state.producer.fault_tolerance import FaultTable
from mqproto.state.producer.settings import ProducerSettings
from tests.mqproto.state.stage import route

TOPIC = "orders"


def table() -> FaultTable:
    settings = ProducerSettings()
    return FaultTable(settings.latency_max_ms, settings.not_available_ms)


def picks(faults: FaultTable, info: PublishInfo, now: int, count: int = 6) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for _ in range(count) if (queue := faults.pick(info, now))]


@pytest.mark.parametrize(
    ("latency_ms", "off_ms"),
    [
        (0, 0),
        (549, 0),
        (550, 30_000),
        (999, 30_000),
        (1_000, 60_000),
        (2_000, 120_000),
        (3_000, 180_000),
        (15_000, 600_000),
    ],
)
def test_latency_decides_how_long(latency_ms: int, off_ms: int) -> None:
    faults = table()
    faults.update("a", latency_ms, 1_000)
    assert faults.available("a", 1_000 + off_ms)
    assert off_ms == 0 or not faults.available("a", 1_000 + off_ms - 1)


def test_a_failure_counts_as_the_longest() -> None:
    faults = table()
    faults.update("a", 1, 0, isolate=True)
    assert not faults.available("a", 599_999)
    assert faults.available("a", 600_000)
    faults.update("a", 1, 5)
    assert faults.available("a", 5), "a good answer makes good"


def test_available_brokers_in_turn() -> None:
    faults = table()
    info = publish_info(TOPIC, route("a=a:1", "b=b:1", "c=c:1", queues=1))
    assert picks(faults, info, 0) == ["a0", "b0", "c0", "a0", "b0", "c0"]
    faults.update("b", 0, 0, isolate=True)
    assert picks(faults, info, 0, 4) == ["a0", "c0", "a0", "c0"]
    assert faults.pick(PublishInfo(()), 0) is None


def test_when_all_are_avoided_the_better_half_is_taken_and_the_list_stays_whole() -> None:
    faults = table()
    info = publish_info(TOPIC, route("a=a:1", "b=b:1", "c=c:1", "d=d:1", queues=2))
    before = info.queues
    for latency_ms, name in ((900, "a"), (600, "b"), (700, "c"), (800, "d")):
        faults.update(name, latency_ms, 0)
    faults.update("elsewhere", 560, 0)
    assert {pick[0] for pick in picks(faults, info, 10, 12)} == {"b", "c"}
    assert {pick[1] for pick in picks(faults, info, 10, 12)} == {"0", "1"}
    assert info.queues is before
    assert before == tuple(MessageQueue(TOPIC, name, n) for name in "abcd" for n in range(2))


def test_the_only_broker_is_taken_all_the_same() -> None:
    faults = table()
    info = publish_info(TOPIC, route("a=a:1", queues=2))
    faults.update("a", 0, 0, isolate=True)
    assert set(picks(faults, info, 10)) == {"a0", "a1"}
