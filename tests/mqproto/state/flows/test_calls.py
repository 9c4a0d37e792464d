"""Flows on a node: calls, sleeps, waits, jobs, cancelling and limits."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.errors import StateError, TooManyRequests
from mqproto.message import Message, SendStatus
from mqproto.state.flows import calls
from mqproto.state.flows.effects import Call, Expired, Flow, Sleep, Wait, Work
from mqproto.state.node.contract import Ticket
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.stage import NS, TOPIC, Peer, Stage, stage_with, success

SEND = RequestCode.SEND_MESSAGE_V2
BEAT = RequestCode.HEART_BEAT


def calling(address: str, deadline: int) -> Flow[object]:
    outcome, _ = yield Call(address, SEND, {"e": "0"}, b"x", deadline)
    return outcome


def test_a_call_whose_time_is_up_is_not_made() -> None:
    stage, _ = stage_with("a=a:1")
    stage.now = 5
    assert stage.run(calling("a:1", 5)) == Expired("a:1", 0)
    assert stage.dials == []


def test_a_link_with_a_call_in_flight_is_not_idle() -> None:
    stage = Stage().begin()
    stage.peers["x:1"] = Peer()
    ticket = stage.start(calling("x:1", 400_000))
    stage.advance(300_000)
    assert stage.hung_up == []
    stage.receive("x:1", success(stage.peers["x:1"].got[0]))
    assert isinstance(ticket.result(), Command)
    stage.advance(150_000)
    assert stage.hung_up == [("x:1", "idle")]


def test_flows_that_start_flows_do_not_nest() -> None:
    stage = Stage().begin()
    ended: list[int] = []

    def chain(left: int) -> Flow[None]:
        if left:
            stage.node.spawn(chain(left - 1), 0)
        ended.append(left)
        yield Sleep(0)

    stage.run(chain(3_000))
    assert len(ended) == 3_001


def test_cancelled_operations() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers.clear()
    sending = stage.start(core.send(Message(TOPIC, b"x"), 0))
    stage.peers[NS].answers.clear()
    looking = stage.start(core.send(Message("other", b"x"), 0))

    def sleeping() -> Flow[None]:
        yield Sleep(10)

    asleep = stage.start(sleeping())
    for ticket in (sending, looking, asleep):
        stage.node.cancel(ticket, 0)
        stage.node.cancel(ticket, 0)
        assert isinstance(ticket.failure, StateError)
    stage.settle()
    assert len(stage.node.calls) == 2, "look-up and heartbeat are the node's own"
    request = stage.peers["a:1"].of(SEND)[0]
    stage.receive("a:1", success(request, {"msgId": "A", "queueId": "0", "queueOffset": "0"}))
    stage.advance(4000)
    assert stage.node.application_tickets() == []
    stage.node.cancel(Ticket(), 0)


def test_waiting_for_tickets() -> None:
    stage = Stage().begin()
    wakeup: Ticket[None] = Ticket()

    def waiting(deadline: int | None) -> Flow[tuple[bool, int]]:
        _, now = yield Wait(wakeup, deadline)
        return wakeup.settled, now

    patient = stage.start(waiting(None))
    impatient = stage.start(waiting(5))
    stage.advance(5)
    assert impatient.result() == (False, 5)
    assert not patient.settled
    stage.node.wake(wakeup, 7)
    stage.node.wake(wakeup, 8)
    assert patient.result() == (True, 7)
    assert stage.run(waiting(None)) == (True, 5)


def test_a_flow_that_fails_tells_whoever_waits() -> None:
    stage = Stage().begin()

    def failing() -> Flow[None]:
        yield Sleep(1)
        raise ValueError("broken")

    ticket = stage.start(failing())
    stage.node.spawn(failing(), 0)
    stage.advance(1)
    with pytest.raises(ValueError, match="broken"):
        ticket.result()
    assert any("broken" in notice for notice in stage.node.notices)


def test_an_operation_that_no_frame_can_carry_fails_alone() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    core.settings.max_message_size = 1 << 24
    core.settings.compress_body_over = 1 << 25
    ticket = stage.start(core.send(Message(TOPIC, b"x" * (1 << 24)), 0))
    assert ticket.failure is not None
    assert "16777216" in str(ticket.failure) or "frame" in str(ticket.failure)
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK


@pytest.mark.pure
def test_one_way_sends_to_a_peer_that_reads_nothing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "UNSENT_MAX", 100_000)
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    outcomes: list[BaseException | None] = []
    for _ in range(40):
        ticket = stage.node.start(core.send_oneway(Message(TOPIC, b"x" * 4000), 0), 0)
        outcomes.append(ticket.failure)
    refusals = [failure for failure in outcomes if isinstance(failure, TooManyRequests)]
    assert 10 <= len(refusals) <= 20
    assert outcomes[:20] == [None] * 20
    stage.node.heartbeats.send(0)
    stage.settle()
    assert len(stage.peers["a:1"].of(BEAT)) == 2, "the node's own requests still go"
    stage.run(core.send_oneway(Message(TOPIC, b"x"), 0))


def test_an_interrupt_inside_a_flow_leaves_no_ticket_open() -> None:
    stage = Stage().begin()

    def interrupted() -> Flow[None]:
        yield Sleep(1)
        raise KeyboardInterrupt

    ticket = stage.start(interrupted())
    with pytest.raises(KeyboardInterrupt):
        stage.advance(1)
    assert isinstance(ticket.failure, KeyboardInterrupt)
    assert stage.node.application_tickets() == []
    assert stage.start(iter_once()).result() == 1


def iter_once() -> Flow[int]:
    yield Sleep(0)
    return 1


def test_life_cycle_operations_are_not_limited() -> None:
    stage, core = stage_with("a=a:1", in_flight_limit=1)
    stage.peers[NS].answers.clear()
    stage.start(core.send(Message(TOPIC, b"x"), 0))
    assert isinstance(stage.start(iter_once()).failure, TooManyRequests)
    assert stage.node.start(iter_once(), 0, limited=False).result() == 1


class Job:
    """A job that somebody else runs."""

    def run(self) -> None: ...


def test_jobs_of_flows() -> None:
    stage = Stage().begin()
    stage.runs_jobs = False

    def working() -> Flow[Exception | None]:
        failure, _ = yield Work(Job())
        return failure  # type: ignore[no-any-return]

    first, second, third = (stage.start(working()) for _ in range(3))
    jobs: list[Any] = [action.job for action in stage.delivered]  # type: ignore[attr-defined]
    stage.node.done(jobs[0], None, 1)
    stage.node.done(jobs[1], OSError("disk"), 2)
    stage.node.cancel(third, 3)
    stage.node.done(jobs[2], None, 4)
    stage.node.done(Job(), None, 5)
    assert first.result() is None
    assert isinstance(second.result(), OSError)
