"""Deliveries: how many run, what becomes of failed messages and of those that take long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.codec import Command
from mqproto.errors import NoRoute
from mqproto.message import ConsumeStatus
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask, Deliveries
from mqproto.state.flows.effects import Call, Sleep
from mqproto.wire import properties as names
from mqproto.wire.bodies import MessageModel
from mqproto.wire.flags import COMPRESSED
from tests.mqproto.state.by_hand import QUEUE, Bench, message, task

SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER


# --- places


def test_no_more_run_than_there_are_places_and_the_order_is_kept() -> None:
    deliveries = Deliveries(2)
    tasks = [task(1) for _ in range(4)]
    for one in tasks:
        deliveries.add(one)
    assert deliveries.take(5) == tasks[:2]
    assert [one.started_at for one in tasks] == [5, 5, 0, 0]
    assert deliveries.take(6) == []
    deliveries.finished(tasks[1])
    assert deliveries.take(7) == tasks[2:3]
    deliveries.stopped = True
    deliveries.finished(tasks[0])
    assert deliveries.take(8) == []
    assert len(deliveries) == 1


def test_deliveries_of_dropped_queues_are_left_out() -> None:
    deliveries = Deliveries(2)
    gone, there = task(1), task(1)
    gone.process_queue.drop()
    deliveries.add(gone)
    deliveries.add(there)
    assert deliveries.take(5) == [there]


TAKEN = Command(code=0, flag=1)
REFUSED = Command(code=1, flag=1, remark="no")


def test_the_offset_is_the_smallest_unfinished_one() -> None:
    bench = Bench()
    bench.pulled(message(0), message(1), message(2))
    assert [one.listener for one in bench.host.delivered] == ["listener"] * 3
    assert bench.host.delivered[0].messages[0].properties[names.CONSUME_START_TIME] == "1000000"
    bench.answer(1, SUCCESS)
    assert bench.committed() == 0
    bench.answer(0, SUCCESS)
    assert bench.committed() == 2
    bench.answer(2, SUCCESS)
    assert bench.committed() == 3
    assert (bench.host.ends, bench.host.idles, bench.queue.size) == ([1, 1, 1], 1, 0)


def test_an_answer_counts_once() -> None:
    bench = Bench()
    bench.pulled(message(0))
    bench.answer(0, SUCCESS)
    bench.answer(0, LATER)
    assert bench.host.flows == []
    assert bench.host.ends == [1]


def test_places_are_given_to_those_who_wait() -> None:
    bench = Bench(consume_thread_min=2)
    bench.pulled(*[message(n) for n in range(5)])
    assert len(bench.host.delivered) == 2
    bench.answer(1, SUCCESS)
    assert [one.messages[0].queue_offset for one in bench.host.delivered] == [0, 1, 2]
    assert bench.host.idles == 0


def test_a_failed_message_is_sent_back_and_done_with() -> None:
    bench = Bench()
    bench.pulled(message(0))
    bench.answer(0, LATER)
    effect = bench.host.effect()
    assert isinstance(effect, Call)
    assert (effect.address, effect.code, effect.fields["offset"], effect.fields["maxReconsumeTimes"]) == (
        "b:1",
        36,
        "1000",
        "16",
    )
    assert bench.committed() is None, "not before the broker has it"
    assert bench.host.go_on(TAKEN, 9) is None
    assert bench.committed() == 1
    assert bench.host.idles == 1


@pytest.mark.parametrize(("limit", "sent"), [(-1, "16"), (0, "0"), (1, "1"), (16, "16")])
def test_the_limit_of_repetitions_goes_with_the_request(limit: int, sent: str) -> None:
    """CON-13: -1 means 16, and the broker compares; nothing is dropped here."""
    for times in (0, 15, 16):
        bench = Bench(max_reconsume_times=limit)
        bench.pulled(message(0, reconsume_times=times))
        bench.answer(0, LATER)
        effect = bench.host.effect()
        assert isinstance(effect, Call)
        assert effect.fields["maxReconsumeTimes"] == sent


def test_of_a_list_only_what_failed_is_sent_back() -> None:
    bench = Bench(consume_message_batch_max_size=4)
    bench.pulled(*[message(n) for n in range(4)])
    bench.host.delivered[0].context.ack_index = 1
    bench.host.delivered[0].context.delay_level_when_next_consume = -1
    bench.answer(0, SUCCESS)
    assert bench.committed() == 2
    for offset in ("1002", "1003"):
        effect = bench.host.effect()
        assert isinstance(effect, Call)
        assert (effect.fields["offset"], effect.fields["delayLevel"]) == (offset, "-1")
        bench.host.go_on(TAKEN, 9)
    assert bench.committed() == 4
    assert bench.host.ends == [2]


def test_a_delivery_keeps_its_place_while_it_is_sent_back() -> None:
    bench = Bench(consume_thread_min=1)
    bench.pulled(message(0), message(1))
    bench.answer(0, LATER)
    assert len(bench.host.delivered) == 1
    bench.host.go_on(TAKEN, 9)
    assert len(bench.host.delivered) == 2


def fails_to_send_back(bench: Bench, now: int) -> None:
    """The broker refuses, the retry topic too; every failure makes the flow ask for the time."""
    assert isinstance(bench.host.go_on(REFUSED, now), Sleep)
    assert bench.host.go_on(None, now) == Sleep(now)
    bench.host.go_on(None, now)


def test_what_no_broker_takes_back_comes_again_here() -> None:
    """CON-09: the offset stays, the attempts count up, every 5 s."""
    bench = Bench(consume_thread_min=1)
    bench.pulled(message(0), message(1))
    bench.answer(0, LATER)
    for attempt, now in ((1, 10), (2, 5_010)):
        assert isinstance(bench.host.effect(), Call)
        fails_to_send_back(bench, now)
        assert len(bench.host.resent) == attempt
        assert bench.host.effect() == Sleep(now + 5_000)
        assert not bench.committed()
        assert bench.host.notices[-1] == (
            f"the message at offset 0 of {QUEUE} could not be sent back, it is tried again here: "
            "b:1 answered code 1: no; "
            f"as a new message: {NoRoute('%RETRY%g')}"
        )
        if attempt == 1:
            bench.answer(1, SUCCESS, now)
            assert bench.committed() == 0, "its place was free for the next one, the offset stays"
        assert bench.host.go_on(None, now + 5_000) is None
        again = bench.host.delivered[-1]
        assert again.messages[0].queue_offset == 0
        assert again.messages[0].reconsume_times == attempt
        bench.consumption.consumed(again, LATER, now + 5_000)
    bench.host.go_on(TAKEN, 10_020)
    assert bench.committed() == 2


def test_the_retry_topic_is_the_second_way_back() -> None:
    bench = Bench()
    bench.host.resend_failure = None
    bench.host.no_master = True
    bench.pulled(message(0))
    bench.answer(0, RuntimeError("boom"))
    assert bench.host.effect() == Sleep(1)
    assert bench.host.go_on(None, 1) is None
    assert [one.topic for one in bench.host.resent] == ["%RETRY%g"]
    assert bench.committed() == 1
    assert bench.host.notices == [], "it is the adapter that shows what a listener raised"


def test_a_wrong_result_is_told_once_for_each_delivery() -> None:
    """CON-01."""
    bench = Bench()
    bench.pulled(message(0))
    bench.answer(0, True)
    assert bench.host.notices == ["the listener of group g returned True instead of a ConsumeStatus"]


def test_results_for_a_dropped_queue_change_nothing() -> None:
    bench = Bench(consume_thread_min=1)
    bench.pulled(message(0), message(1))
    bench.queue.drop()
    bench.answer(0, LATER)
    assert (bench.host.flows, bench.committed(), len(bench.host.delivered), bench.host.idles) == ([], None, 1, 1)


def test_a_queue_dropped_while_its_messages_go_back_commits_nothing() -> None:
    bench = Bench(consume_message_batch_max_size=2)
    bench.pulled(message(0), message(1))
    bench.answer(0, LATER)
    bench.queue.drop()
    assert bench.host.go_on(TAKEN, 2) is None, "and the second message is not sent back: its new owner will see it"
    assert bench.committed() is None


def test_a_queue_dropped_while_its_messages_wait_here_does_not_see_them_again() -> None:
    bench = Bench()
    bench.pulled(message(0))
    bench.answer(0, LATER)
    fails_to_send_back(bench, 10)
    bench.queue.drop()
    assert bench.host.go_on(None, 5_010) is None
    assert len(bench.host.delivered) == 1


def test_broadcasting_drops_what_fails() -> None:
    """docs/protocol/client.md 4.14."""
    bench = Bench(message_model=MessageModel.BROADCASTING, consume_message_batch_max_size=2)
    bench.pulled(message(0), message(1), message(2, sys_flag=COMPRESSED), message(3))
    bench.answer(0, LATER)
    assert bench.host.flows == []
    assert bench.committed() == 3
    assert bench.host.notices == [
        f"the body of the message at offset 2 of {QUEUE} cannot be read",
        f"1 failed messages of {QUEUE} are dropped: broadcasting does not repeat",
        f"2 failed messages of {QUEUE} are dropped: broadcasting does not repeat",
    ]
    assert [one.messages[0].queue_offset for one in bench.host.delivered] == [0, 3]


def test_ten_thousand_unreadable_messages_are_no_deep_stack() -> None:
    """CON-06."""
    bench = Bench(message_model=MessageModel.BROADCASTING, consume_thread_min=1)
    bench.pulled(*[message(n, sys_flag=COMPRESSED) for n in range(10_000)])
    assert bench.committed() == 10_000
    assert bench.host.delivered == []


def test_an_unreadable_message_goes_the_way_of_failed_ones() -> None:
    bench = Bench()
    bench.pulled(message(0, sys_flag=COMPRESSED), message(1))
    assert [one.messages[0].queue_offset for one in bench.host.delivered] == [1]
    effect = bench.host.effect()
    assert isinstance(effect, Call)
    assert effect.fields["offset"] == "1000"
    bench.host.go_on(REFUSED, 5)
    assert bench.host.go_on(None, 5) == Sleep(5_005), "it has no body that could be sent as a new message"
    assert bench.host.resent == []
    bench.host.go_on(None, 5_005)
    bench.host.go_on(TAKEN, 5_006)
    bench.answer(0, SUCCESS)
    assert bench.committed() == 2


# --- deliveries that take too long

MINUTE = 60_000


def test_only_what_runs_can_be_overdue() -> None:
    """CON-08: one worker, 20 messages; the 19 that wait are consumed once."""
    bench = Bench(consume_thread_min=1, consume_timeout=1)
    bench.pulled(*[message(n) for n in range(20)])
    bench.consumption.sweep(MINUTE - 1)
    assert bench.host.flows == []
    bench.consumption.sweep(MINUTE)
    bench.consumption.sweep(MINUTE)
    (entry,) = bench.host.flows
    assert isinstance(entry[1], Call)
    assert (entry[1].fields["offset"], entry[1].fields["delayLevel"]) == ("1000", "3")
    bench.host.go_on(TAKEN, MINUTE + 5)
    assert bench.committed() == 1
    assert len(bench.host.delivered) == 1, "the worker is still busy with it"
    bench.answer(0, SUCCESS, 3 * MINUTE)
    for index in range(1, 20):
        assert bench.host.delivered[index].messages[0].queue_offset == index
        bench.answer(index, SUCCESS, 3 * MINUTE + index)
    assert bench.committed() == 20
    assert bench.host.flows == []


def test_the_late_answer_for_an_overdue_delivery_changes_nothing() -> None:
    bench = Bench(consume_timeout=1)
    bench.pulled(message(0))
    bench.consumption.sweep(MINUTE)
    bench.answer(0, LATER, MINUTE + 1)
    assert len(bench.host.flows) == 1, "it is on its way back already, once"
    assert bench.host.go_on(TAKEN, MINUTE + 5) is None
    assert bench.committed() == 1


def test_an_overdue_delivery_that_no_broker_takes_is_judged_by_its_answer_after_all() -> None:
    bench = Bench(consume_timeout=1, consume_message_batch_max_size=2)
    bench.pulled(message(0), message(1))
    bench.consumption.sweep(MINUTE)
    bench.host.go_on(TAKEN, MINUTE + 1)
    fails_to_send_back(bench, MINUTE + 2)
    assert bench.host.flows == []
    assert bench.committed() == 1
    bench.answer(0, SUCCESS, MINUTE + 9)
    assert bench.committed() == 2


def test_an_overdue_delivery_that_no_broker_takes_comes_again_when_its_worker_is_gone() -> None:
    bench = Bench(consume_timeout=1)
    bench.pulled(message(0))
    bench.consumption.sweep(MINUTE)
    bench.answer(0, SUCCESS, MINUTE + 1)
    fails_to_send_back(bench, MINUTE + 2)
    assert bench.host.effect() == Sleep(MINUTE + 5_002)
    bench.host.go_on(None, MINUTE + 5_002)
    bench.answer(1, SUCCESS, MINUTE + 5_003)
    assert bench.committed() == 1


def test_a_sweep_has_a_limit() -> None:
    bench = Bench(consume_timeout=1)
    bench.pulled(*[message(n) for n in range(20)])
    bench.consumption.sweep(MINUTE)
    assert len(bench.host.flows) == 16
    bench.consumption.sweep(MINUTE)
    assert len(bench.host.flows) == 20


def test_broadcasting_does_not_send_back_what_takes_long() -> None:
    bench = Bench(message_model=MessageModel.BROADCASTING, consume_timeout=1)
    bench.pulled(message(0))
    bench.consumption.sweep(5 * MINUTE)
    assert bench.host.flows == []


def test_a_queue_is_busy_while_the_application_has_messages_of_it() -> None:
    bench = Bench()
    assert not bench.consumption.is_busy(bench.queue)
    bench.pulled(message(0))
    assert bench.consumption.is_busy(bench.queue)
    assert not bench.consumption.is_busy(ProcessQueue(QUEUE, 0))
    bench.answer(0, SUCCESS)
    assert not bench.consumption.is_busy(bench.queue)


# --- anything at all


@given(
    st.lists(
        st.tuples(st.sampled_from(["pull", "done", "later", "taken", "refused", "sleep", "sweep"]), st.integers(0, 9)),
        max_size=60,
    )
)
def test_nothing_unfinished_is_committed_and_everything_is_settled_once(script: list[tuple[str, int]]) -> None:
    bench = Bench(consume_thread_min=3, consume_timeout=1)
    host, now, pulled = bench.host, 0, 0
    answered: set[ConsumeTask] = set()
    settled: list[int] = []

    def open_tasks() -> list[ConsumeTask]:
        return [one for one in host.delivered if one not in answered]

    for act, choice in script:
        now += 100
        before = {one.queue_offset for one in bench.queue._messages.values()}
        if act == "pull":
            bench.pulled(*[message(pulled + n) for n in range(choice)], now=now)
            before |= set(range(pulled, pulled + choice))
            pulled += choice
        elif act in ("done", "later") and open_tasks():
            one = open_tasks()[choice % len(open_tasks())]
            answered.add(one)
            bench.consumption.consumed(one, SUCCESS if act == "done" else LATER, now)
        elif act in ("taken", "refused", "sleep") and host.flows:
            index = choice % len(host.flows)
            call = isinstance(host.effect(index), Call)
            host.go_on((TAKEN if act == "taken" else REFUSED) if call else None, now, index)
        elif act == "sweep":
            now += MINUTE
            bench.consumption.sweep(now)
        after = {one.queue_offset for one in bench.queue._messages.values()}
        settled += sorted(before - after)
        assert len(open_tasks()) <= 3
        assert (bench.committed() or 0) <= min(after, default=pulled)
    assert len(settled) == len(set(settled))
    while host.flows or open_tasks():
        now += 5_000
        for one in open_tasks():
            answered.add(one)
            bench.consumption.consumed(one, SUCCESS, now)
        while host.flows:
            host.go_on(TAKEN if isinstance(host.effect(), Call) else None, now)
    assert (bench.committed() or 0) == pulled
    assert bench.queue.size == 0
