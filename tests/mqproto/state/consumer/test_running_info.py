"""Figures that operators see."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.running_info import Rate, TopicRates, queue_info
from mqproto.wire.bodies import ConsumeStatusData


def test_figures_are_of_the_last_minute_and_failures_of_the_last_hour() -> None:
    rates = TopicRates()
    rates.pulled(1_000, 32, 10)
    rates.pulled(2_000, 28, 20)
    rates.consumed(3_000, 1, 0, 4)
    rates.consumed(4_000, 3, 2, 8)
    assert rates.status(5_000) == ConsumeStatusData(
        pull_rt=15.0,
        pull_tps=1.0,
        consume_rt=6.0,
        consume_ok_tps=4 / 60,
        consume_failed_tps=2 / 60,
        consume_failed_count=2,
    )
    assert rates.status(70_000) == ConsumeStatusData(consume_failed_count=2)
    assert rates.status(3_600_000) == ConsumeStatusData()


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 9))))
def test_a_rate_forgets_what_is_old_and_nothing_else(happenings: list[tuple[int, int]]) -> None:
    rate, now, kept = Rate(10_000, 6), 0, []
    for pause, count in happenings:
        now += pause
        rate.add(now, count, 2 * count)
        kept.append((now, count))
        count, amount = rate.total(now)
        young = sum(count for when, count in kept if when > now - 50_000)
        old = sum(count for when, count in kept if when > now - 60_000)
        assert young <= count <= old
        assert amount == 2 * count


def test_a_queue_is_shown_with_what_it_holds() -> None:
    queue = ProcessQueue(MessageQueue("T", "b", 0), 5)
    info = queue_info(queue, None, None, 100)
    assert (info.commit_offset, info.cached_count, info.cached_min_offset, info.last_pull_time, info.dropped) == (
        0,
        0,
        0,
        105,
        False,
    )
    queue.put([MessageExt("T", bytes(3 << 20), queue_offset=n) for n in (4, 9)], 10)
    info = queue_info(queue, 4, 7, 100)
    assert (info.locked, info.last_lock_time) == (True, 107)
    assert (
        info.commit_offset,
        info.cached_count,
        info.cached_size_mib,
        info.cached_min_offset,
        info.cached_max_offset,
    ) == (4, 2, 6, 4, 9)
    queue.drop()
    assert queue_info(queue, 4, None, 100).dropped
