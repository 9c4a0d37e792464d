"""Sends that wait for room, on a stage: who goes when, what gives room back, and that nothing is left behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.errors import ConnectionLost, InvalidMessage, SendFailed, StateError, TooManyRequests
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import UNSENT_WAIT_MAX, ProducerCore
from mqproto.state.producer.send_window import SendWindow, WindowPlace
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.stage import NS, Stage, broker, name_server, route, success

SEND = RequestCode.SEND_MESSAGE_V2
TOPIC = "orders"
AT = "a:1"


class Play:
    """A producer whose broker answers a send when the test says so."""

    def __init__(self, **settings: Any) -> None:
        self.stage = Stage()
        self.stage.peers[NS] = name_server({TOPIC: route(f"a={AT}", queues=1)})
        self.peer = self.stage.peers[AT] = broker()
        self.peer.answers[SEND] = self._hold
        self.held: list[Command] = []
        self.core: ProducerCore = self.stage.node.add_producer(ProducerSettings("pg", **settings), 0)
        self.stage.begin()
        self.warm_up()

    def warm_up(self) -> None:
        """Route, link and heartbeat are there before the first line of a test."""
        self.send(b"first")
        self.answer()
        self.peer.got.clear()

    def _hold(self, request: Command) -> None:
        if not request.is_oneway:
            self.held.append(request)

    def send(self, body: bytes, timeout_ms: int | None = None) -> Ticket[SendResult]:
        return self.stage.start(self.core.send(Message(TOPIC, body), self.stage.now, timeout_ms=timeout_ms))

    def answer(self, at: int = 0) -> None:
        """The broker takes one of the messages that it holds."""
        request = self.held.pop(at)
        self.stage.receive(AT, success(request, {"msgId": "AA", "queueId": "0", "queueOffset": "0"}))

    def bodies(self) -> list[bytes]:
        """What the broker got, in order."""
        return [bytes(command.body) for command in self.peer.of(SEND)]

    def nothing_left(self) -> None:
        window = self.core.window
        assert (window.messages, window.size, window.waiting, window.in_flight()) == (0, 0, 0, [])
        node = self.stage.node
        assert not node._tasks
        assert not node._waiting
        assert not node._woken
        assert not node.links[AT].calls


# --- room


def test_what_finds_no_room_waits_and_goes_first_come_first_served() -> None:
    play = Play(send_window_messages=2)
    tickets = [play.send(body) for body in (b"1", b"2", b"3", b"4")]
    assert play.bodies() == [b"1", b"2"]
    assert play.core.window.waiting == 2
    play.answer(1)
    assert play.bodies() == [b"1", b"2", b"3"]
    assert [ticket.settled for ticket in tickets] == [False, True, False, False]
    late = play.send(b"5")
    play.answer()
    assert play.bodies() == [b"1", b"2", b"3", b"4"]
    while play.held:
        play.answer()
    assert late.result().msg_id
    play.nothing_left()


def test_room_is_measured_in_bytes_too_and_nobody_is_overtaken() -> None:
    play = Play(send_window_bytes=100)
    for body in (b"a" * 60, b"b" * 60, b"c"):
        play.send(body)
    assert play.bodies() == [b"a" * 60], "the small one does not pass the large one"
    play.answer()
    assert play.bodies() == [b"a" * 60, b"b" * 60, b"c"]
    assert (play.core.window.messages, play.core.window.size) == (2, 61)


def test_what_is_larger_than_the_window_passes_alone() -> None:
    play = Play(send_window_bytes=100, send_window_messages=3)
    play.send(b"small")
    large = play.send(b"x" * 1000)
    after = play.send(b"after")
    batch = play.stage.start(play.core.send_batch([Message(TOPIC, b"%d" % n) for n in range(5)], 0))
    assert play.bodies() == [b"small"]
    play.answer()
    assert play.bodies()[1:] == [b"x" * 1000]
    play.answer()
    assert large.settled
    assert play.bodies()[2:] == [b"after"]
    play.answer()
    assert after.settled
    assert batch.settled, "five messages in a window of three: their broker answers at once"
    play.nothing_left()


def test_what_travels_counts_not_what_was_given() -> None:
    play = Play(send_window_bytes=1000)
    play.send(b"x" * 100_000)
    play.send(b"y" * 100_000)
    assert len(play.held) == 2
    assert play.core.window.size < 1000


def test_the_budget_of_a_send_includes_its_wait_for_room() -> None:
    """Then nothing was sent, and the error says what the room is taken by."""
    play = Play(send_window_messages=1)
    play.send(b"1", timeout_ms=5000)
    second, third = play.send(b"2", timeout_ms=300), play.send(b"3", timeout_ms=1000)
    play.stage.advance(299)
    assert not second.settled
    play.stage.advance(1)
    with pytest.raises(
        TooManyRequests, match=r"no room within 300 ms: 1 messages \(1 bytes\) of group pg are in flight"
    ):
        second.result()
    play.stage.advance(100)
    play.answer()
    assert play.bodies() == [b"1", b"3"]
    (request,) = play.held
    play.stage.advance(599)
    assert not third.settled
    play.stage.advance(1)
    with pytest.raises(SendFailed):
        third.result()
    assert request.code == SEND
    play.stage.advance(5000)
    assert not play.core.window.messages


def test_room_that_comes_with_the_end_of_the_budget_is_given_back() -> None:
    play = Play(send_window_messages=1)
    first = play.send(b"1", timeout_ms=300)
    second = play.send(b"2", timeout_ms=300)
    third = play.send(b"3", timeout_ms=400)
    play.stage.advance(300)
    for ticket in (first, second):
        with pytest.raises((SendFailed, TooManyRequests)):
            ticket.result()
    assert not third.settled
    play.stage.connect(play.stage.links[AT])
    assert play.bodies()[-1] == b"3"
    play.held = play.held[-1:]
    play.answer()
    assert third.result()


# --- what gives room back


@pytest.mark.parametrize("cancelled", [0, 1, 2])
def test_a_cancelled_send_leaves_no_trace(cancelled: int) -> None:
    """Whether it is in flight (its late answer reaches nobody), first in the line, or further behind."""
    play = Play(send_window_messages=1)
    tickets = [play.send(body) for body in (b"1", b"2", b"3")]
    play.stage.node.cancel(tickets[cancelled], 0)
    play.stage.settle()
    with pytest.raises(StateError, match="cancelled"):
        tickets[cancelled].result()
    while play.held:
        play.answer()
    expected = [b"1", b"2", b"3"]
    if cancelled:
        del expected[cancelled]
    assert play.bodies() == expected
    assert all(ticket.settled for ticket in tickets)
    play.nothing_left()


def test_failures_give_room_back() -> None:
    play = Play(send_window_messages=1, retry_times=0)
    tickets = [play.send(b"1"), play.send(b"2")]
    play.stage.cut(AT)
    with pytest.raises(SendFailed) as caught:
        tickets[0].result()
    assert isinstance(caught.value.cause, ConnectionLost)
    assert play.bodies() == [b"1", b"2"]
    play.stage.run(play.core.publish_queues(TOPIC, 0))
    bad = play.send(b"")
    with pytest.raises(InvalidMessage):
        bad.result()
    play.held = play.held[-1:]
    play.answer()
    play.nothing_left()


def test_refused_operations_take_no_room() -> None:
    play = Play()
    play.stage.node.limit = 1
    play.send(b"1")
    with pytest.raises(TooManyRequests, match="1 operations"):
        play.send(b"2").result()
    assert play.core.window.messages == 1


def test_a_world_that_stood_still_for_a_minute() -> None:
    """Everything that was due meanwhile ends once, and nothing is sent for it."""
    play = Play(send_window_messages=2)
    tickets = [play.send(b"%d" % number) for number in range(5)]
    patient = [play.send(b"patient", timeout_ms=120_000) for _ in range(3)]
    play.stage.now += 60_000
    play.stage.node.timer(play.stage.now)
    play.stage.settle()
    assert all(isinstance(ticket.failure, SendFailed | TooManyRequests) for ticket in tickets)
    assert play.bodies() == [b"0", b"1", b"patient", b"patient"]
    play.held = play.held[2:]
    while play.held:
        play.answer()
    assert all(ticket.result() for ticket in patient)
    play.nothing_left()


# --- one-way sends


def test_one_way_sends_wait_while_the_broker_reads_nothing() -> None:
    play = Play(send_window_bytes=1000)
    link = play.stage.node.links[AT]

    def oneway(timeout_ms: int = 3000) -> Ticket[None]:
        return play.stage.start(
            play.core.send_oneway(Message(TOPIC, b"x" * 400), play.stage.now, timeout_ms=timeout_ms)
        )

    assert oneway().settled
    link.unsent += 1001
    waiting, expiring = oneway(), oneway(100)
    play.stage.advance(95)
    assert len(play.bodies()) == 1
    play.stage.advance(5)
    with pytest.raises(TooManyRequests, match="a:1 has left 1001 bytes unread for 100 ms"):
        expiring.result()
    behind = [oneway(), oneway()]
    assert play.core.window.waiting == 1, "those that wait for the broker keep their room"
    link.unsent -= 1
    play.stage.advance(30)
    assert waiting.settled
    assert all(ticket.settled for ticket in behind)
    assert len(play.bodies()) == 4
    play.nothing_left()


def test_the_node_refuses_nothing_to_those_who_wait() -> None:
    play = Play(send_window_bytes=1 << 32)
    link = play.stage.node.links[AT]
    link.unsent += UNSENT_WAIT_MAX + 1
    ticket = play.stage.start(play.core.send_oneway(Message(TOPIC, b"x"), 0))
    assert not ticket.settled
    link.unsent -= 1
    play.stage.advance(10)
    assert ticket.result() is None


# --- flush


def test_a_flush_waits_for_what_has_begun_and_not_for_what_comes_later() -> None:
    play = Play(send_window_messages=2)
    early = [play.send(body) for body in (b"1", b"2", b"3")]
    flush = play.stage.start(play.core.flush(10_000))
    late = play.send(b"4")
    play.answer()
    play.answer()
    assert not flush.settled
    play.answer()
    assert all(ticket.settled for ticket in early)
    assert flush.result() is True
    assert not late.settled
    other = [play.stage.start(play.core.flush(10_000)), play.stage.start(play.core.flush(10_000))]
    play.answer()
    assert [one.result() for one in other] == [True, True]
    assert play.stage.run(play.core.flush(10_000)) is True
    play.nothing_left()


def test_a_second_flush_waits_for_what_the_first_waits_for() -> None:
    play = Play()
    play.send(b"1")
    first = play.stage.start(play.core.flush(10_000))
    play.send(b"2")
    second = play.stage.start(play.core.flush(10_000))
    play.answer(1)
    assert not second.settled, "what came second is over, what came first is not"
    play.answer()
    assert (first.result(), second.result()) == (True, True)


def test_a_flush_ends_with_its_time_and_with_failures() -> None:
    play = Play(retry_times=0)
    play.send(b"1")
    flush = play.stage.start(play.core.flush(100))
    patient = play.stage.start(play.core.flush(10_000))
    play.stage.advance(100)
    assert flush.result() is False
    play.stage.cut(AT)
    assert patient.result() is True, "a failed send is over"


def test_a_producer_leaves_when_its_sends_are_over() -> None:
    play = Play(send_window_messages=1)
    other = play.stage.node.add_producer(ProducerSettings("other"), 0)
    play.stage.settle()
    tickets = [play.send(b"1"), play.send(b"2")]
    gone = play.stage.start(play.stage.node.remove_producer(play.core, 0))
    with pytest.raises(StateError, match="pg is closed"):
        play.send(b"3").result()
    assert not play.peer.of(RequestCode.UNREGISTER_CLIENT)
    play.answer()
    play.answer()
    assert all(ticket.result() for ticket in tickets)
    assert gone.settled
    (farewell,) = play.peer.of(RequestCode.UNREGISTER_CLIENT)
    assert farewell.fields["producerGroup"] == "pg"
    assert play.stage.node.producers.by_group == {"other": other}


def test_a_producer_does_not_wait_for_its_sends_for_ever() -> None:
    play = Play()
    play.send(b"1", timeout_ms=60_000)
    gone = play.stage.start(play.stage.node.remove_producer(play.core, 0))
    play.stage.advance(2_999)
    assert not gone.settled
    play.stage.advance(1)
    assert gone.settled


# --- a caller that may not run ahead


def test_who_began_last_can_be_waited_for() -> None:
    """This is how `submit` holds its caller up: until the send has room, or is over without ever having it."""
    play = Play(send_window_messages=1)
    play.send(b"1", timeout_ms=60_000)
    assert play.core.window.last() is None
    outcomes: list[Callable[[Ticket[SendResult]], object]] = [
        lambda ticket: play.answer(),
        lambda ticket: play.stage.node.cancel(ticket, play.stage.now),
        lambda ticket: play.stage.advance(50),
    ]
    for end in outcomes:
        ticket = play.send(b"2", timeout_ms=50)
        room = play.core.window.last()
        assert room is not None
        caller = play.stage.start(play.core.room(room))
        assert not caller.settled
        end(ticket)
        play.stage.settle()
        assert caller.result() is None
        play.held = play.held[-1:]


# --- the window alone


def test_limits_hold_whatever_comes_in_whatever_order() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        limit, size_limit = chance.randint(1, 5), chance.randint(1, 50)
        window = SendWindow(limit, size_limit, lambda ticket: ticket.settle(None))
        inside: list[WindowPlace] = []
        line: list[WindowPlace] = []
        for _ in range(60):
            if chance.random() < 0.55:
                place = window.enter(chance.randint(1, 3), chance.randint(0, 60))
                (line if place.waits else inside).append(place)
            elif inside and chance.random() < 0.7:
                window.leave(inside.pop(chance.randrange(len(inside))))
            elif line:
                window.leave(line.pop(chance.randrange(len(line))))
            while line and not line[0].waits:
                inside.append(line.pop(0))
            assert all(place.waits for place in line), f"seed {seed}: somebody was overtaken"
            assert (window.messages, window.size) == (
                sum(one.messages for one in inside),
                sum(one.size for one in inside),
            )
            assert len(inside) <= 1 or (window.messages <= limit and window.size <= size_limit), f"seed {seed}"
            assert window.waiting == len(line)
            if line:
                head = line[0]
                assert inside
                assert window.messages + head.messages > limit or window.size + head.size > size_limit, (
                    f"seed {seed}: room is unused"
                )
        for place in line + inside:
            window.leave(place)
        assert (window.messages, window.size, window.waiting, window.in_flight()) == (0, 0, 0, [])


def test_a_queue_of_another_topic_takes_no_room() -> None:
    play = Play()
    ticket = play.stage.start(play.core.send(Message(TOPIC, b"x"), 0, queue=MessageQueue("other", "a", 0)))
    assert ticket.settled
    play.nothing_left()
