"""Held messages of a simple consumer, without a node."""

from __future__ import annotations

import pytest

from mqproto.message import ConsumeContext, MessageExt
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.held_messages import HeldClaim, HeldMessages
from mqproto.state.flows.effects import Wait
from mqproto.state.node.contract import Ticket
from tests.mqproto.state.by_hand import Q0, Q1


class Host:
    """Node and consumer in one."""

    def __init__(self) -> None:
        self.taken: list[ConsumeTask] = []
        self.withdrawn: list[ConsumeTask] = []

    def wall(self, now: int) -> int:
        return now + 1_000

    def wake(self, ticket: Ticket[None], now: int) -> None:
        ticket.settle(None)

    def begun(self, task: ConsumeTask, now: int) -> None:
        self.taken.append(task)

    def withdraw(self, task: ConsumeTask, now: int) -> None:
        self.withdrawn.append(task)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def held(host: Host) -> HeldMessages:
    return HeldMessages(host, host)


def deliver(held: HeldMessages, queue: ProcessQueue, offset: int, now: int = 0) -> ConsumeTask:
    message = MessageExt("T", b"%d" % offset, queue_offset=offset)
    task = ConsumeTask("g", "listener", [message], ConsumeContext(queue.queue), queue)
    held.add(task, now)
    return task


def test_messages_are_taken_as_they_came_and_settled_once(host: Host, held: HeldMessages) -> None:
    queue, claim = ProcessQueue(Q0, 0), HeldClaim()
    tasks = [deliver(held, queue, offset) for offset in (5, 6)]
    first = held.take(claim, 7)
    assert (first, claim.message, claim.queue, claim.taken_at) == (tasks[0].messages[0], first, Q0, 7)
    assert first is not None
    assert first.properties["CONSUME_START_TIME"] == "1007"
    assert (host.taken, tasks[0].started_at, held.find(first)) == ([tasks[0]], 7, tasks[0])
    assert [held.settle(first), held.settle(first), held.find(first)] == [tasks[0], None, None]
    assert held.take(HeldClaim(), 8) is tasks[1].messages[0]
    assert held.take(HeldClaim(), 9) is None


def test_a_message_of_a_dropped_queue_is_withdrawn(host: Host, held: HeldMessages) -> None:
    dropped, kept = ProcessQueue(Q0, 0), ProcessQueue(Q1, 0)
    tasks = [deliver(held, queue, 0) for queue in (dropped, kept, dropped)]
    dropped.drop()
    assert held.take(HeldClaim(), 1) is tasks[1].messages[0]
    assert host.withdrawn == [tasks[0]]
    held.withdraw_dropped(2)
    assert (host.withdrawn, list(held.waiting)) == ([tasks[0], tasks[2]], [])
    assert (held.is_taken_from(kept), held.is_taken_from(dropped)) == (True, False)


def test_who_waits_longest_is_served_first(held: HeldMessages) -> None:
    receives = [held.receive(HeldClaim(), None, 0) for _ in range(2)]
    waits = [next(receive) for receive in receives]
    task = deliver(held, ProcessQueue(Q0, 0), 0, now=3)
    assert [isinstance(wait, Wait) and wait.ticket.settled for wait in waits] == [True, False]
    with pytest.raises(StopIteration) as stop:
        receives[0].send((None, 3))
    assert stop.value.value is task.messages[0]


def test_a_receive_ends_without_a_message_at_its_time_or_at_the_close(held: HeldMessages) -> None:
    late, closed = held.receive(HeldClaim(), 5, 0), held.receive(HeldClaim(), None, 0)
    for receive in (late, closed):
        next(receive)
    with pytest.raises(StopIteration) as stop:
        late.send((None, 5))
    assert (stop.value.value, len(held.receivers)) == (None, 1)
    held.close(6)
    with pytest.raises(StopIteration) as stop:
        closed.send((None, 6))
    assert (stop.value.value, len(held.receivers)) == (None, 0)


def test_an_interrupted_receive_leaves_no_trace(held: HeldMessages) -> None:
    receive = held.receive(HeldClaim(), None, 0)
    next(receive)
    receive.close()
    assert not held.receivers


def test_what_an_interrupted_receive_got_is_for_the_next(held: HeldMessages) -> None:
    queue, claim = ProcessQueue(Q0, 0), HeldClaim()
    first, _ = deliver(held, queue, 0), deliver(held, queue, 1)
    held.take(claim, 1)
    held.give_back(claim, 2)
    held.give_back(claim, 3)
    assert (claim.message, held.taken, len(held.waiting)) == (None, {}, 2)
    assert held.take(HeldClaim(), 4) is first.messages[0]


def test_the_close_withdraws_what_nobody_has_taken(host: Host, held: HeldMessages) -> None:
    queue = ProcessQueue(Q0, 0)
    taken, waiting = deliver(held, queue, 0), deliver(held, queue, 1)
    held.take(HeldClaim(), 1)
    held.close(2)
    assert (host.withdrawn, held.find(taken.messages[0])) == ([waiting], taken)
