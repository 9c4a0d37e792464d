"""Ordered consumption."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import NoRoute
from mqproto.message import ConsumeStatus, Message, MessageQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.flows.effects import Flow, Sleep
from mqproto.wire import properties as names
from mqproto.wire.flags import COMPRESSED
from tests.mqproto.state.by_hand import Q0, Q1, OrderedBench, message

SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER


def test_one_delivery_of_a_queue_at_a_time_and_queues_side_by_side() -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0), message(1))
    bench.pulled(Q1, message(0))
    assert [task.context.queue for task in bench.delivered] == [Q0, Q1]
    bench.answer(index=0)
    assert bench.offsets_seen() == [0, 1]
    assert bench.offsets.known(Q0) == 1
    bench.answer(index=2)
    bench.answer(index=1)
    assert (bench.offsets.known(Q0), bench.offsets.known(Q1), bench.idles) == (2, 1, 1)
    assert (bench.moves, bench.ends) == (3, [1, 1, 1])


def test_lists_are_as_long_as_they_may_be() -> None:
    bench = OrderedBench(consume_message_batch_max_size=2)
    bench.pulled(Q0, *[message(n) for n in range(5)])
    for _ in range(3):
        bench.answer()
    assert [[one.queue_offset for one in task.messages] for task in bench.delivered] == [[0, 1], [2, 3], [4]]


def test_places_are_shared_by_all_queues() -> None:
    bench = OrderedBench(consume_thread_min=1)
    bench.pulled(Q0, message(0), message(1))
    bench.pulled(Q1, message(0))
    assert len(bench.delivered) == 1
    bench.answer()
    assert [task.context.queue for task in bench.delivered] == [Q0, Q1], "who waits longer comes first"


def test_a_queue_waits_for_its_turn_once() -> None:
    bench = OrderedBench(consume_thread_min=1)
    bench.pulled(Q1, message(0))
    bench.pulled(Q0, message(0))
    bench.pulled(Q0, message(1))
    bench.ordered.resumed(Q0, 0)
    assert len(bench.ordered.deliveries) == 1
    bench.answer()
    assert bench.offsets_seen() == [0]
    bench.answer()
    assert bench.offsets_seen() == [0, 1]


@pytest.mark.parametrize(("suspend_ms", "pause"), [(None, 1_000), (5, 10), (700, 700), (99_999, 30_000)])
def test_what_fails_comes_again_before_anything_else(suspend_ms: int | None, pause: int) -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0), message(1))
    if suspend_ms is not None:
        bench.delivered[0].context.suspend_current_queue_time_millis = suspend_ms
    bench.answer(LATER)
    assert bench.effect() == Sleep(1 + pause)
    bench.pulled(Q0, message(2))
    assert len(bench.delivered) == 1
    bench.go_on(None, 1 + pause)
    assert bench.offsets_seen() == [0, 0]
    assert bench.delivered[1].messages[0].reconsume_times == 1
    for _ in range(3):
        bench.answer()
    assert bench.offsets_seen() == [0, 0, 1, 2]
    assert bench.offsets.known(Q0) == 3


@pytest.mark.parametrize("result", [None, True, ValueError("boom"), LATER])
def test_everything_but_success_is_a_failure(result: object) -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0))
    bench.answer(result)
    assert bench.effect() == Sleep(1_001)
    assert bool(bench.notices) == (result is None or result is True)


def test_a_long_suspension_ends_by_itself() -> None:
    """ORD-03: 150 s in steps of 1 s."""
    bench = OrderedBench()
    bench.pulled(Q0, message(0), message(1))
    for second in range(150):
        bench.answer(LATER, now=second * 1_000)
        bench.go_on(None, second * 1_000 + 1_000)
    bench.answer()
    assert bench.offsets_seen() == [0] * 151 + [1]
    assert bench.resent == [], "CON-13: -1 has no limit"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_message_that_failed_too_often_becomes_a_dead_letter_and_the_queue_goes_on(limit: int) -> None:
    """CON-13."""
    bench = OrderedBench(max_reconsume_times=limit)
    bench.pulled(Q0, message(0), message(1))
    for attempt in range(limit):
        bench.answer(LATER)
        bench.go_on(None, 5_000)
        assert bench.delivered[-1].messages[0].reconsume_times == attempt + 1
    bench.answer(LATER)
    assert bench.flows == []
    (dead,) = bench.resent
    assert (dead.topic, dead.properties[names.RECONSUME_TIME], dead.properties[names.MAX_RECONSUME_TIMES]) == (
        "%RETRY%g",
        str(limit + 1),
        str(limit),
    )
    assert bench.offsets_seen() == [0] * (limit + 1) + [1]
    assert bench.offsets.known(Q0) == 1


def test_a_dead_letter_that_cannot_be_stored_keeps_its_place() -> None:
    bench = OrderedBench(max_reconsume_times=0)
    bench.resend_failure = NoRoute("%RETRY%g")
    bench.pulled(Q0, message(0))
    bench.answer(LATER)
    assert bench.effect() == Sleep(1)
    assert bench.go_on(None, 2) == Sleep(1_002)
    bench.resend_failure = None
    bench.go_on(None, 1_002)
    bench.answer(LATER)
    assert len(bench.resent) == 2
    assert bench.offsets.known(Q0) == 1
    assert len(bench.notices) == 1


def test_a_queue_that_goes_while_a_dead_letter_is_sent_commits_nothing() -> None:
    bench = OrderedBench(max_reconsume_times=0)
    bench.pulled(Q0, message(0))

    def resend(message: Message, now: int) -> Flow[int]:
        _, now = yield Sleep(now)
        return now

    bench.resend = resend  # type: ignore[method-assign]
    bench.answer(LATER)
    bench.queues[Q0].drop()
    assert bench.go_on(None, 5) is None
    assert bench.offsets.known(Q0) is None


def test_of_a_list_the_front_can_succeed() -> None:
    bench = OrderedBench(consume_message_batch_max_size=3)
    bench.pulled(Q0, *[message(n) for n in range(3)])
    bench.delivered[0].context.ack_index = 0
    bench.answer()
    assert bench.offsets.known(Q0) == 1
    bench.go_on(None, 2_000)
    assert [one.queue_offset for one in bench.delivered[1].messages] == [1, 2]


def test_without_the_lock_nothing_is_handed_out() -> None:
    bench = OrderedBench()
    bench.unlocked.add(Q0)
    bench.pulled(Q0, message(0))
    assert bench.delivered == []
    bench.unlocked.clear()
    bench.ordered.resumed(Q0, 5)
    bench.ordered.resumed(MessageQueue("T", "b", 9), 5)
    assert bench.offsets_seen() == [0]
    bench.unlocked.add(Q0)
    bench.pulled(Q0, message(1))
    bench.answer()
    assert bench.offsets_seen() == [0], "the lock is asked for before each delivery"
    assert bench.offsets.known(Q0) == 1, "what was under way still counts"


def test_a_lock_that_runs_out_while_a_delivery_waits_its_turn_stops_it() -> None:
    bench = OrderedBench(consume_thread_min=1)
    bench.pulled(Q1, message(0))
    bench.pulled(Q0, message(0), message(1))
    bench.unlocked.add(Q0)
    bench.answer()
    assert len(bench.delivered) == 1
    bench.unlocked.clear()
    bench.ordered.resumed(Q0, 5)
    bench.answer()
    bench.answer()
    assert bench.offsets_seen() == [0, 1]


def test_an_answer_counts_once() -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0), message(1))
    bench.answer(index=0)
    bench.answer(LATER, index=0)
    assert bench.flows == []
    assert bench.ordered.is_busy(bench.queues[Q0])


def test_a_queue_that_went_and_came_back_waits_for_the_listener_of_its_former_life() -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0), message(1))
    former = bench.queues[Q0]
    former.drop()
    bench.queues[Q0] = bench.make(Q0)
    assert bench.ordered.is_busy(bench.queues[Q0])
    bench.pulled(Q0, message(0))
    assert len(bench.delivered) == 1
    bench.answer()
    assert bench.leavings == [former]
    assert bench.offsets.known(Q0) is None, "the late answer changes nothing"
    assert len(bench.delivered) == 2
    bench.answer()
    assert bench.offsets.known(Q0) == 1


def test_a_queue_that_went_for_good_is_left_when_its_listener_has_ended() -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0), message(1))
    bench.queues[Q0].drop()
    bench.answer(LATER)
    assert (bench.leavings, bench.flows, len(bench.delivered)) == ([bench.queues[Q0]], [], 1)
    assert bench.ordered._lines == {}


def test_a_queue_that_goes_during_a_pause_is_forgotten_after_it() -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0))
    bench.answer(LATER)
    bench.queues[Q0].drop()
    assert bench.go_on(None, 1_001) is None
    assert len(bench.delivered) == 1
    assert bench.ordered._lines == {}


def test_an_unreadable_message_stops_its_queue_and_is_told_of_once() -> None:
    bench = OrderedBench()
    bench.pulled(Q0, message(0), message(1, sys_flag=COMPRESSED), message(2))
    bench.answer()
    for second in (1, 2, 3):
        assert isinstance(bench.effect(), Sleep)
        bench.pulled(Q0, message(2 + second))
        bench.go_on(None, second * 5_000)
    assert bench.offsets_seen() == [0]
    assert bench.notices == [f"the body of the message at offset 1 of {Q0} cannot be read: it waits"]
    assert bench.offsets.known(Q0) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["pull", "done", "later", "pause", "lock", "unlock", "swap"]),
            st.integers(0, 1),
            st.integers(1, 4),
        ),
        max_size=60,
    )
)
def test_order_holds_whatever_happens(script: list[tuple[str, int, int]]) -> None:
    bench = OrderedBench(consume_thread_min=2, consume_message_batch_max_size=2)
    now = 0
    answered: set[ConsumeTask] = set()
    finished: dict[MessageQueue, int] = {Q0: 0, Q1: 0}
    for act, which, count in script:
        queue = (Q0, Q1)[which]
        at = bench.queues[queue]
        now += 1
        running = [task for task in bench.delivered if task not in answered]
        if act == "pull":
            start = at.next_offset
            bench.pulled(queue, *[message(start + n) for n in range(count)], now=now)
        elif act in ("done", "later") and running:
            task = running[count % len(running)]
            answered.add(task)
            offsets = [one.queue_offset for one in task.messages]
            counts = not task.process_queue.dropped
            bench.ordered.consumed(task, SUCCESS if act == "done" else LATER, now)
            if act == "done" and counts:
                assert offsets[0] == finished[task.context.queue], "nothing is passed"
                finished[task.context.queue] = offsets[-1] + 1
        elif act == "pause" and bench.flows:
            now += 1_000
            bench.go_on(None, now)
        elif act == "lock":
            bench.unlocked.discard(queue)
            bench.ordered.resumed(queue, now)
        elif act == "unlock":
            bench.unlocked.add(queue)
        elif act == "swap":
            at.drop()
            bench.offsets.forget(queue)
            bench.queues[queue] = bench.make(queue, finished[queue])
        open_queues = [task.context.queue for task in bench.delivered if task not in answered]
        assert len(open_queues) == len(set(open_queues)) <= 2
        for one in (Q0, Q1):
            assert (bench.offsets.known(one) or 0) <= finished[one]
