"""Links of a client node: time-outs, lost and broken links, answers that are late, doubled or nonsense."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import pytest

from mqproto.codec import encode_response
from mqproto.errors import (
    BrokerError,
    SendFailed,
    TooManyRequests,
)
from mqproto.message import Message, MessageQueue, SendStatus
from mqproto.state.flows.tasks import DialledLink
from mqproto.state.node.contract import Ticket
from mqproto.wire.codes import RequestCode, ResponseCode
from tests.mqproto.state.stage import NS, TOPIC, broker, refused, stage_with, success

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_a_broker_that_never_answers() -> None:
    """PRO-03."""
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers.clear()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    stage.advance(299)
    assert not ticket.settled
    stage.advance(1)
    with pytest.raises(SendFailed) as caught:
        ticket.result()
    assert [attempt.address for attempt in caught.value.attempts] == ["a:1"]
    assert caught.value.attempts[0].cost_ms == 300
    stage.advance(10_000)
    assert len(stage.peers["a:1"].of(SEND)) == 1, "nothing starts after the deadline"


def test_a_silent_link_ends_with_its_call_and_the_next_call_dials_anew() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers.clear()
    short = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    stage.advance(100)
    other = stage.start(core.send(Message(TOPIC, b"y"), stage.now, timeout_ms=1000))
    stage.peers["a:1"].answers = broker().answers
    stage.advance(200)
    assert short.failure is not None
    assert ("a:1", "no answer in time") in stage.hung_up
    assert other.result().status is SendStatus.SEND_OK, (
        "its first attempt was lost with the link, its second went by the new one"
    )
    assert stage.dials.count("a:1") == 2


def test_a_link_that_brings_other_answers_stays() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers.clear()
    slow = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    stage.advance(100)
    stage.peers["a:1"].answers = broker().answers
    stage.run(core.send(Message(TOPIC, b"y"), stage.now))
    stage.advance(200)
    assert isinstance(slow.failure, SendFailed)
    assert stage.hung_up == []


def test_late_and_doubled_answers_reach_nobody() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    first = peer.of(SEND)[0]
    peer.answers.clear()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    second = peer.of(SEND)[1]
    answer = success(second, {"msgId": "AA", "queueId": "1", "queueOffset": "9"})
    stage.receive("a:1", success(first, {"msgId": "AA", "queueId": "1", "queueOffset": "5"}))
    assert not ticket.settled
    stage.receive("a:1", answer + answer)
    assert ticket.result().queue_offset == 9
    stage.receive("a:1", answer)


def test_a_broker_that_dies_in_mid_send() -> None:
    stage, core = stage_with("a=a:1", "b=b:1")
    stage.peers["a:1"].answers.clear()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    stage.peers.pop("a:1")
    stage.cut("a:1")
    assert ticket.result().queue.broker_name == "b"


def test_every_call_of_a_reset_link_ends_once() -> None:
    """COD-11: a server that accepts, then resets; 1,000 async sends, at most 100 in flight."""
    stage, core = stage_with("a=a:1", in_flight_limit=100)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers.clear()
    woken: list[int] = []
    tickets: list[Ticket[Any]] = []
    for number in range(1000):
        ticket: Ticket[Any] = stage.node.start(core.send_async(Message(TOPIC, b"x"), 0), 0)
        ticket.wake = partial(woken.append, number)
        tickets.append(ticket)
        stage.settle()
    assert sum(isinstance(ticket.failure, TooManyRequests) for ticket in tickets) == 900
    stage.peers.pop("a:1")
    stage.cut("a:1")
    assert sorted(woken) == list(range(1000))
    assert all(isinstance(ticket.failure, SendFailed | TooManyRequests) for ticket in tickets)
    assert len(stage.node.calls) == 0
    assert stage.node.application_tickets() == []
    stage.peers["a:1"] = broker()
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK


def test_nothing_is_sent_for_a_call_that_expired_while_its_link_was_dialled() -> None:
    stage, core = stage_with("a=a:1")
    stage.dark.add("a:1")
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    other = stage.start(core.send_oneway(Message(TOPIC, b"one"), 0, timeout_ms=5000))
    lost = stage.start(core.send_oneway(Message(TOPIC, b"two"), 0, timeout_ms=200))
    stage.advance(300)
    assert isinstance(ticket.failure, SendFailed)
    assert isinstance(lost.failure, SendFailed)
    assert not other.settled
    stage.dark.clear()
    stage.connect(stage.links["a:1"])
    stage.settle()
    assert other.result() is None
    assert [bytes(request.body) for request in stage.peers["a:1"].of(SEND)] == [b"one"]


def test_sends_leave_nothing_behind() -> None:
    """PRO-07: sends of all kinds and ends, and the number of objects stays as it was."""
    stage, core = stage_with("a=a:1")
    peer = stage.peers["a:1"]

    def play(count: int) -> None:
        for number in range(count):
            message = Message(TOPIC, b"x")
            peer.answers[SEND] = answers if number % 3 else lambda request: refused(request, 13)
            stage.start(core.send(message, stage.now))
            stage.start(core.send_async(message, stage.now))
            stage.run(core.send_oneway(message, stage.now))
            peer.answers.pop(SEND)
            stage.start(core.send(message, stage.now, timeout_ms=5))
            stage.node.cancel(stage.start(core.send(message, stage.now)), stage.now)
            stage.advance(5)
            peer.got.clear()
            for trace in (stage.dials, stage.hung_up, stage.node.notices):
                trace.clear()

    answers = peer.answers[SEND]
    play(100)
    gc.collect()
    before = len(gc.get_objects())
    play(500)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_refused_connections_are_tried_within_the_attempts() -> None:
    stage, core = stage_with("a=a:1")
    del stage.peers["a:1"]
    with pytest.raises(SendFailed) as caught:
        stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert caught.value.code == 10001
    assert stage.dials == [NS, "a:1", "a:1", "a:1"]


def headed(text: bytes) -> bytes:
    """A frame with this JSON header."""
    return (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes.fromhex("15030100020246"),
        bytes.fromhex("00fffffd"),
        bytes.fromhex("00000002aabb"),
        bytes.fromhex("00000006020000027b7d"),
        bytes.fromhex("0000000400000000"),
        *map(headed, (b"[]", b"null", b"7", b'{"code":"x"}')),
    ],
)
def test_bytes_that_are_no_frames_end_the_link_and_no_other(garbage: bytes) -> None:
    """COD-01, COD-03: from a peer that is a web server, expects TLS, or has gone mad; one notice, and the call is made
    elsewhere.
    """
    stage, core = stage_with("a=a:1", "b=b:1")
    for name in ("a:1", "b:1"):
        stage.peers[name].answers.pop(SEND)
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    other = stage.start(core.send(Message(TOPIC, b"y"), 0, queue=MessageQueue(TOPIC, "b", 0)))
    stage.peers["b:1"].answers = broker().answers
    notices = len(stage.node.notices)
    stage.receive("a:1", garbage)
    assert [address for address, _ in stage.hung_up] == ["a:1"]
    assert ticket.result().queue.broker_name == "b"
    (notice,) = list(stage.node.notices)[notices:]
    assert "a:1" in notice
    assert not other.settled
    stage.receive("b:1", success(stage.peers["b:1"].of(SEND)[0], {"msgId": "A", "queueId": "0", "queueOffset": "3"}))
    assert other.result().queue_offset == 3


def test_a_broker_that_asks_to_go_away_gets_the_call_again_by_a_new_link() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.clear()
    pending = stage.start(core.send(Message(TOPIC, b"pending"), 0))
    leaving = stage.links["a:1"]
    moved = stage.start(core.send(Message(TOPIC, b"moved"), 0))
    peer.answers = broker().answers
    stage.receive("a:1", refused(peer.of(SEND)[2], ResponseCode.GO_AWAY))
    assert moved.result().status is SendStatus.SEND_OK
    assert stage.dials.count("a:1") == 2
    assert stage.hung_up == [], "the other call may still be answered"
    stage.node.received(leaving, success(peer.of(SEND)[1], {"msgId": "A", "queueId": "0", "queueOffset": "3"}), 0)
    stage.settle()
    assert pending.result().queue_offset == 3
    assert stage.hung_up == [("a:1", "the peer asked us to go away")]


def test_the_only_name_server_may_ask_to_go_away_too() -> None:
    """It is dialled anew, as a broker is."""
    stage, core = stage_with("a=a:1")
    answer = stage.peers[NS].answers[ROUTE]
    stage.peers[NS].answers[ROUTE] = lambda request: (
        refused(request, ResponseCode.GO_AWAY) if stage.dials == [NS] else answer(request)
    )
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK
    assert stage.dials == [NS, NS, "a:1"]


def test_a_broker_that_keeps_sending_calls_away_is_not_asked_for_ever() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers[SEND] = lambda request: refused(request, ResponseCode.GO_AWAY)
    with pytest.raises(BrokerError) as caught:
        stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert caught.value.code == 1500
    assert len(stage.peers["a:1"].of(SEND)) == 2


def test_inputs_for_links_that_are_over_are_harmless() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    link = stage.links["a:1"]
    assert isinstance(link, DialledLink)
    stage.node.drop(link, "test", 0)
    stage.settle()
    stage.node.received(link, encode_response(1, 0, None), 0)
    stage.node.closed(link, "late", 0)
    stage.node.opened(link, 0)
    stage.node.timer(0)
    stage.settle()
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK


def test_answers_to_requests_may_come_in_one_read_with_them() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.clear()
    tickets = [stage.start(core.send(Message(TOPIC, b"x"), 0)) for _ in range(3)]
    sends = peer.of(SEND)[1:]
    data = b"".join(
        success(request, {"msgId": "A", "queueId": "0", "queueOffset": str(n)}) for n, request in enumerate(sends)
    )
    stage.receive("a:1", data)
    assert [ticket.result().queue_offset for ticket in tickets] == [0, 1, 2]
