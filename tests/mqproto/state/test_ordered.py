"""Ordered consumption."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto import properties as names
from mqproto.errors import MQError, NoRoute
from mqproto.flags import COMPRESSED
from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.namespaces import NO_NAMESPACE
from mqproto.state.consumer_settings import ConsumerSettings
from mqproto.state.consumption import ConsumeTask
from mqproto.state.flows import Effect, Flow, Sleep
from mqproto.state.node import Ticket
from mqproto.state.offsets import RemoteOffsets
from mqproto.state.ordered import Ordered
from mqproto.state.pull import ProcessQueue

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER


def message(offset: int, **others: Any) -> MessageExt:
    return MessageExt("T", b"x", queue_offset=offset, physical_offset=1000 + offset, broker_name="b", **others)


def locate(queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
    raise AssertionError


class Bench:
    """Ordered consumption without a node: flows run by hand."""

    namespace = NO_NAMESPACE

    def __init__(self, **settings: Any) -> None:
        self.delivered: list[ConsumeTask] = []
        self.notices: list[str] = []
        self.flows: list[tuple[Generator[Effect, tuple[Any, int], None], Effect]] = []
        self.resent: list[Message] = []
        self.resend_failure: MQError | None = None
        self.unlocked: set[MessageQueue] = set()
        self.leavings: list[MessageQueue] = []
        self.idles = 0
        self.moves = 0
        self.ends: list[int] = []
        self.offsets = RemoteOffsets("g", locate)
        self.ordered = Ordered(ConsumerSettings(group="g", orderly=True, **settings), "listener", self.offsets, self)
        self.queues = {queue: self.make(queue) for queue in (Q0, Q1)}

    def make(self, queue: MessageQueue, start: int = 0) -> ProcessQueue:
        made = ProcessQueue(queue, 0)
        made.start(start)
        return made

    # --- its host

    def wall(self, now: int) -> int:
        return now

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def deliver(self, task: ConsumeTask, now: int) -> None:
        self.delivered.append(task)

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]:
        with suppress(StopIteration):
            self.flows.append((flow, next(flow)))
        return Ticket()

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        raise AssertionError

    def resend(self, message: Message, now: int) -> Flow[int]:
        yield from ()
        self.resent.append(message)
        if self.resend_failure is not None:
            raise self.resend_failure
        return now

    def moved(self, queue: ProcessQueue, now: int) -> None:
        self.moves += 1

    def ended(self, task: ConsumeTask, result: object, succeeded: int, now: int) -> None:
        self.ends.append(succeeded)

    def idle(self, now: int) -> None:
        self.idles += 1

    def may_consume(self, queue: MessageQueue, now: int) -> bool:
        return queue not in self.unlocked

    def left(self, queue: MessageQueue, now: int) -> None:
        self.leavings.append(queue)

    # --- the test

    def pulled(self, queue: MessageQueue, *messages: MessageExt, now: int = 0) -> None:
        at = self.queues[queue]
        self.ordered.submit(at, at.put(messages, 0), now)

    def answer(self, result: object = SUCCESS, index: int = -1, now: int = 1) -> None:
        self.ordered.consumed(self.delivered[index], result, now)

    def go_on(self, now: int) -> Effect | None:
        flow, _ = self.flows.pop(0)
        try:
            effect = flow.send((None, now))
        except StopIteration:
            return None
        self.flows.insert(0, (flow, effect))
        return effect

    def effect(self) -> Effect:
        return self.flows[0][1]

    def offsets_seen(self, queue: MessageQueue = Q0) -> list[int]:
        return [one.queue_offset for task in self.delivered if task.context.queue == queue for one in task.messages]


def test_one_delivery_of_a_queue_at_a_time_and_queues_side_by_side() -> None:
    bench = Bench()
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
    bench = Bench(consume_message_batch_max_size=2)
    bench.pulled(Q0, *[message(n) for n in range(5)])
    for _ in range(3):
        bench.answer()
    assert [[one.queue_offset for one in task.messages] for task in bench.delivered] == [[0, 1], [2, 3], [4]]


def test_places_are_shared_by_all_queues() -> None:
    bench = Bench(consume_thread_min=1)
    bench.pulled(Q0, message(0), message(1))
    bench.pulled(Q1, message(0))
    assert len(bench.delivered) == 1
    bench.answer()
    assert [task.context.queue for task in bench.delivered] == [Q0, Q1], "who waits longer comes first"


def test_a_queue_waits_for_its_turn_once() -> None:
    bench = Bench(consume_thread_min=1)
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
    bench = Bench()
    bench.pulled(Q0, message(0), message(1))
    if suspend_ms is not None:
        bench.delivered[0].context.suspend_current_queue_time_millis = suspend_ms
    bench.answer(LATER)
    assert bench.effect() == Sleep(1 + pause)
    bench.pulled(Q0, message(2))
    assert len(bench.delivered) == 1
    bench.go_on(1 + pause)
    assert bench.offsets_seen() == [0, 0]
    assert bench.delivered[1].messages[0].reconsume_times == 1
    for _ in range(3):
        bench.answer()
    assert bench.offsets_seen() == [0, 0, 1, 2]
    assert bench.offsets.known(Q0) == 3


@pytest.mark.parametrize("result", [None, True, ValueError("boom"), LATER])
def test_everything_but_success_is_a_failure(result: object) -> None:
    bench = Bench()
    bench.pulled(Q0, message(0))
    bench.answer(result)
    assert bench.effect() == Sleep(1_001)
    assert bool(bench.notices) == (result is None or result is True)


def test_a_long_suspension_ends_by_itself() -> None:
    """ORD-03: 150 s in steps of 1 s."""
    bench = Bench()
    bench.pulled(Q0, message(0), message(1))
    for second in range(150):
        bench.answer(LATER, now=second * 1_000)
        bench.go_on(second * 1_000 + 1_000)
    bench.answer()
    assert bench.offsets_seen() == [0] * 151 + [1]
    assert bench.resent == [], "CON-13: -1 has no limit"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_message_that_failed_too_often_becomes_a_dead_letter_and_the_queue_goes_on(limit: int) -> None:
    """CON-13."""
    bench = Bench(max_reconsume_times=limit)
    bench.pulled(Q0, message(0), message(1))
    for attempt in range(limit):
        bench.answer(LATER)
        bench.go_on(5_000)
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
    bench = Bench(max_reconsume_times=0)
    bench.resend_failure = NoRoute("%RETRY%g")
    bench.pulled(Q0, message(0))
    bench.answer(LATER)
    assert bench.effect() == Sleep(1)
    assert bench.go_on(2) == Sleep(1_002)
    bench.resend_failure = None
    bench.go_on(1_002)
    bench.answer(LATER)
    assert len(bench.resent) == 2
    assert bench.offsets.known(Q0) == 1
    assert len(bench.notices) == 1


def test_a_queue_that_goes_while_a_dead_letter_is_sent_commits_nothing() -> None:
    bench = Bench(max_reconsume_times=0)
    bench.pulled(Q0, message(0))

    def resend(message: Message, now: int) -> Flow[int]:
        _, now = yield Sleep(now)
        return now

    bench.resend = resend  # type: ignore[method-assign]
    bench.answer(LATER)
    bench.queues[Q0].drop()
    assert bench.go_on(5) is None
    assert bench.offsets.known(Q0) is None


def test_of_a_list_the_front_can_succeed() -> None:
    bench = Bench(consume_message_batch_max_size=3)
    bench.pulled(Q0, *[message(n) for n in range(3)])
    bench.delivered[0].context.ack_index = 0
    bench.answer()
    assert bench.offsets.known(Q0) == 1
    bench.go_on(2_000)
    assert [one.queue_offset for one in bench.delivered[1].messages] == [1, 2]


def test_without_the_lock_nothing_is_handed_out() -> None:
    bench = Bench()
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
    bench = Bench(consume_thread_min=1)
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
    bench = Bench()
    bench.pulled(Q0, message(0), message(1))
    bench.answer(index=0)
    bench.answer(LATER, index=0)
    assert bench.flows == []
    assert bench.ordered.is_busy(bench.queues[Q0])


def test_a_queue_that_went_and_came_back_waits_for_the_listener_of_its_former_life() -> None:
    bench = Bench()
    bench.pulled(Q0, message(0), message(1))
    bench.queues[Q0].drop()
    bench.queues[Q0] = bench.make(Q0)
    assert bench.ordered.is_busy(bench.queues[Q0])
    bench.pulled(Q0, message(0))
    assert len(bench.delivered) == 1
    bench.answer()
    assert bench.leavings == [Q0]
    assert bench.offsets.known(Q0) is None, "the late answer changes nothing"
    assert len(bench.delivered) == 2
    bench.answer()
    assert bench.offsets.known(Q0) == 1


def test_a_queue_that_went_for_good_is_left_when_its_listener_has_ended() -> None:
    bench = Bench()
    bench.pulled(Q0, message(0), message(1))
    bench.queues[Q0].drop()
    bench.answer(LATER)
    assert (bench.leavings, bench.flows, len(bench.delivered)) == ([Q0], [], 1)
    assert bench.ordered._lines == {}


def test_a_queue_that_goes_during_a_pause_is_forgotten_after_it() -> None:
    bench = Bench()
    bench.pulled(Q0, message(0))
    bench.answer(LATER)
    bench.queues[Q0].drop()
    assert bench.go_on(1_001) is None
    assert len(bench.delivered) == 1
    assert bench.ordered._lines == {}


def test_an_unreadable_message_stops_its_queue_and_is_told_of_once() -> None:
    bench = Bench()
    bench.pulled(Q0, message(0), message(1, sys_flag=COMPRESSED), message(2))
    bench.answer()
    for second in (1, 2, 3):
        assert isinstance(bench.effect(), Sleep)
        bench.pulled(Q0, message(2 + second))
        bench.go_on(second * 5_000)
    assert bench.offsets_seen() == [0]
    assert bench.notices == [f"the body of the message at offset 1 of {Q0} cannot be read: it waits"]
    assert bench.offsets.known(Q0) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["pull", "done", "later", "pause", "lock", "unlock", "swap"]), st.integers(0, 1), st.integers(1, 4)),
        max_size=60,
    )
)
def test_order_holds_whatever_happens(script: list[tuple[str, int, int]]) -> None:
    bench = Bench(consume_thread_min=2, consume_message_batch_max_size=2)
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
            bench.go_on(now)
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
