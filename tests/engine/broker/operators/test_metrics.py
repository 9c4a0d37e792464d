"""The broker's numbers under the names of Apache's exporter (docs/protocol/admin.md 7)."""

from __future__ import annotations

import re
from typing import Final

import pytest

from mqproto.engine.broker.operators import metrics
from mqproto.engine.broker.operators.metrics import collect
from mqproto.engine.metrics import Collected, MetricFamily
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.wire.bodies import TopicConfig
from tests.engine.broker.harness import ADDRESS, HOST, WALL, Peer, World, heartbeat

#: docs/protocol/admin.md 7: all that a broker alone can know.
TOPICS: Final = "producer_offset topic_retry_offset topic_dlq_offset producer_count producer_tps producer_message_size"
GROUPS: Final = (
    "group_diff group_retrydiff group_dlqdiff group_count consumer_tps consumer_offset consumer_message_size "
    "send_back_nums group_get_latency_by_storetime"
)
RUNTIME: Final = (
    "pmdt_0ms pmdt_0to10ms pmdt_10to50ms pmdt_50to100ms pmdt_100to200ms pmdt_200to500ms pmdt_500to1s pmdt_1to2s "
    "pmdt_2to3s pmdt_3to4s pmdt_4to5s pmdt_5to10s pmdt_10stomore msg_put_total_today_now msg_puttotal_todaymorning "
    "msg_puttotal_yesterdaymorning msg_gettotal_today_now msg_gettotal_todaymorning msg_gettotal_yesterdaymorning "
    "put_tps10 put_tps60 put_tps600 getfound_tps10 getfound_tps60 getfound_tps600 getmiss_tps10 getmiss_tps60 "
    "getmiss_tps600 gettotal_tps10 gettotal_tps60 gettotal_tps600 gettransfered_tps10 gettransfered_tps60 "
    "gettransfered_tps600 putmessage_times_total put_message_size_total put_message_average_size "
    "putmessage_entire_time_max getmessage_entire_time_max put_latency_99 put_latency_999 dispatch_maxbuffer "
    "dispatch_behind_bytes commitlog_minoffset commitlog_maxoffset commitlog_disk_ratio consumequeue_disk_ratio "
    "commitlogdir_capacity_total commitlogdir_capacity_free remain_transientstore_buffer_numbs "
    "remain_howmanydata_toflush earliest_message_timestamp start_accept_sendrequest_time pagecache_lock_time_mills "
    "send_threadpool_queue_size send_threadpoolqueue_capacity send_threadpoolqueue_headwait_timemills "
    "pull_threadpoolqueue_size pull_threadpoolqueue_capacity pull_threadpoolqueue_headwait_timemills "
    "query_threadpoolqueue_size query_threadpool_queue_capacity query_threadpoolqueue_headwait_timemills"
)
NAMES: Final = {
    *(f"rocketmq_{name}" for name in f"{TOPICS} {GROUPS} broker_tps broker_qps".split()),
    *(f"rocketmq_brokeruntime_{name}" for name in RUNTIME.split()),
}
HERE: Final = ("DefaultCluster", "broker-a")


def families(world: World) -> dict[str, MetricFamily]:
    world.broker.timer(world.now)
    steps = collect(world.broker)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Collected = end.value
            break
    for work in found.later:
        work()
    return {family.name: family for family in found.families}


def values(world: World, name: str) -> dict[tuple[str, ...], float]:
    family = families(world)[f"rocketmq_{name}"]
    assert all(len(labels) == len(family.labels) for labels, _ in family.samples)
    assert len(dict(family.samples)) == len(family.samples), "each once"
    return dict(family.samples)


@pytest.fixture
def busy(world: World, peer: Peer) -> World:
    """Messages, a group that has consumed some of them and given one back twice, its members, a producer."""
    for n in range(4):
        peer.send(body=b"x" * 50, e=str(n % 2))
        world.advance(100)
    (message, _) = peer.messages()
    peer.pull()
    for level in ("1", "-1"):
        assert peer.ask(36, {"offset": str(message.physical_offset), "group": "G", "delayLevel": level}).code == 0
    peer.heartbeat(heartbeat(producers=("PG",)))
    peer.read()
    for topic in ("T", "%RETRY%G", "%DLQ%G"):
        assert peer.ask(15, {"consumerGroup": "G", "topic": topic, "queueId": "0", "commitOffset": "0"}).code == 0
    assert peer.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "1"}).code == 0
    world.advance(10_000)
    return world


def test_all_names(busy: World) -> None:
    found = families(busy)
    assert set(found) == NAMES
    assert all(re.fullmatch(r"[a-z_0-9]+", name) and family.help for name, family in found.items())


def test_topics(busy: World) -> None:
    offsets = values(busy, "producer_offset")
    assert offsets[(*HERE, "T")] == 4
    assert offsets[(*HERE, "SCHEDULE_TOPIC_XXXX")] == 1
    assert not any(topic.startswith("%") for _, _, topic in offsets)
    assert values(busy, "topic_retry_offset") == {(*HERE, "%RETRY%G"): 1}
    assert values(busy, "topic_dlq_offset") == {(*HERE, "G"): 1}
    assert values(busy, "producer_tps")[(*HERE, "T")] == 0.4
    assert values(busy, "producer_message_size")[(*HERE, "T")] > 20
    assert values(busy, "producer_count") == {(*HERE, "PG"): 1}


def test_groups(busy: World) -> None:
    assert values(busy, "consumer_tps") == {
        (*HERE, "T", "G"): 0.2,
        (*HERE, "T", "READER"): 0.2,
        (*HERE, "SCHEDULE_TOPIC_XXXX", "SCHEDULE_CONSUMER"): 0.1,
    }
    assert values(busy, "consumer_message_size")[(*HERE, "T", "G")] > 10
    assert values(busy, "send_back_nums") == {(*HERE, "T", "G"): 2}
    assert values(busy, "consumer_offset")[(*HERE, "T", "G")] == 1
    assert values(busy, "group_diff") == {("G", "T", "1", "1"): 3}
    assert values(busy, "group_retrydiff") == {("G", "%RETRY%G", "1", "1"): 1}
    assert values(busy, "group_dlqdiff") == {("G", "%DLQ%G", "1", "1"): 1}
    assert values(busy, "group_count") == {("192.0.2.3:40000", ADDRESS, "G"): 1}
    assert values(busy, "group_get_latency_by_storetime")[(*HERE, "T", "G")] == busy.wall - (WALL + 1000)


def test_groups_that_broadcast_have_no_lag(world: World, peer: Peer) -> None:
    peer.send()
    peer.heartbeat(heartbeat(messageModel="BROADCASTING"))
    peer.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "0"})
    assert "rocketmq_group_diff" not in families(world)
    assert values(world, "consumer_offset") == {(*HERE, "T", "G"): 0}


def test_the_broker(busy: World) -> None:
    where = ("DefaultCluster", ADDRESS, "broker-a")
    assert values(busy, "broker_tps") == {where: 0.5}
    assert values(busy, "broker_qps") == {where: 0.4}
    runtime = ("DefaultCluster", ADDRESS, HOST, "V4_9_7", str(WALL + 1000), "407")
    assert values(busy, "brokeruntime_putmessage_times_total") == {runtime: 7}
    assert values(busy, "brokeruntime_pmdt_0ms") == {runtime: 7}
    assert values(busy, "brokeruntime_put_tps10")[runtime] > 0
    assert values(busy, "brokeruntime_earliest_message_timestamp") == {runtime: WALL + 1000}
    assert values(busy, "brokeruntime_commitlog_maxoffset") == {runtime: busy.store.end}


def test_the_oldest_message_may_have_to_be_read_by_the_job() -> None:
    files = MemoryFiles()
    world = World(files=files)
    world.connect().send()
    world.close()
    again = World(files=files, now=50_000)
    assert list(values(again, "brokeruntime_earliest_message_timestamp").values()) == [WALL + 1000]


def test_many_topics_are_looked_at_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(100):
        world.broker.topics.table[f"T{n}"] = TopicConfig(f"T{n}", 8, 8, 6)
        world.broker.offsets.table[f"T{n}@G"] = {0: 0}
    few = len(list(collect(world.broker)))
    assert few >= 800 // 200 + 100 // 20
    monkeypatch.setattr(metrics, "_AT_A_TIME", 20)
    assert len(list(collect(world.broker))) > 5 * few
