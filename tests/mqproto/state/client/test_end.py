"""End of a client node, and of one of its producers."""

from __future__ import annotations

import pytest

from mqproto.errors import (
    StateError,
)
from mqproto.message import Message, SendStatus
from mqproto.state.client.heartbeats import FAREWELL_WAIT_MS
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.recording_consumer import Consumer
from tests.mqproto.state.stage import NS, TOPIC, Stage, refused, stage_with, success

SEND = RequestCode.SEND_MESSAGE_V2
GONE = RequestCode.UNREGISTER_CLIENT


def test_a_farewell_that_is_refused_is_noted() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers[GONE] = lambda request: refused(request, 1, "stay")
    stage.run(stage.node.remove_producer(core, 0))
    assert any("stay" in notice for notice in stage.node.notices)


def test_a_broker_that_no_route_leads_to_any_more_hears_of_the_end_too() -> None:
    """Its link stays for other groups of the client, so it would keep ours for two minutes."""
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.node.routes.keep(())
    stage.run(stage.node.remove_producer(core, 0))
    assert len(stage.peers["a:1"].of(GONE)) == 1
    assert stage.peers[NS].of(GONE) == []


def test_a_heartbeat_under_way_is_over_before_a_broker_hears_of_the_end() -> None:
    """Apache's brokers do the two in different threads: behind the farewell the heartbeat would make the group known
    again.
    """
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    del peer.answers[RequestCode.HEART_BEAT]
    stage.node.heartbeats.send(0)
    stage.settle()
    ending = stage.start(stage.node.remove_producer(core, 0))
    assert peer.of(GONE) == []
    stage.receive("a:1", success(peer.of(RequestCode.HEART_BEAT)[-1]))
    assert ending.settled
    assert len(peer.of(GONE)) == 1


def test_a_heartbeat_that_nobody_answers_does_not_hold_up_the_end() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    del stage.peers["a:1"].answers[RequestCode.HEART_BEAT]
    stage.node.heartbeats.send(0)
    stage.settle()
    ending = stage.start(stage.node.remove_producer(core, 0))
    stage.advance(FAREWELL_WAIT_MS)
    assert ending.settled
    assert len(stage.peers["a:1"].of(GONE)) == 1


def test_close_says_goodbye() -> None:
    """docs/protocol/client.md 1.2: consumers first, then the producers' groups, then the links."""
    stage, core = stage_with("a=a:1")
    consumer = Consumer(stage.node)
    stage.node.consumers.add(consumer)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.node.close(5)
    stage.node.close(5)
    stage.settle().advance(0)
    assert stage.node.ended
    farewells = [request.fields for request in stage.peers["a:1"].of(GONE)]
    assert farewells == [
        {"clientID": "10.0.0.7@4711#1", "consumerGroup": "cg"},
        {"clientID": "10.0.0.7@4711#1", "producerGroup": "pg"},
    ]
    assert {address for address, _ in stage.hung_up} == {NS, "a:1"}
    assert stage.node.next_deadline() is None
    assert consumer.seen[-1] == ("shutdown", 5)
    refusal = stage.start(core.send(Message(TOPIC, b"x"), 5))
    assert isinstance(refusal.failure, StateError)
    assert isinstance(stage.node.spawn(core.send(Message(TOPIC, b"x"), 5), 5).failure, StateError)
    with pytest.raises(StateError):
        stage.node.add_producer(ProducerSettings(group="other"), 5)
    stage.node.timer(99_999)


def test_close_waits_for_operations_in_flight_but_not_for_ever() -> None:
    """CON-14."""
    stage, core = stage_with("a=a:1", close_timeout_ms=2000)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    answers, peer.answers = peer.answers, {}
    quick = stage.start(core.send(Message(TOPIC, b"quick"), 0))
    stuck = stage.start(core.send(Message(TOPIC, b"stuck"), 0, timeout_ms=60_000))
    consumer = Consumer(stage.node)
    consumer.shutdown_ms = 500
    stage.node.consumers.add(consumer)
    stage.node.close(0)
    stage.settle()
    peer.answers = answers
    stage.receive("a:1", success(peer.of(SEND)[1], {"msgId": "A", "queueId": "0", "queueOffset": "0"}))
    assert quick.result().status is SendStatus.SEND_OK
    stage.advance(1999)
    assert consumer.seen == [("shutdown", 500)]
    early = stage.node.ended
    stage.advance(1)
    assert (early, stage.node.ended) == (False, True)
    assert isinstance(stuck.failure, StateError)
    assert stage.node.next_deadline() is None
    assert stage.links == {}


def test_an_operation_that_is_due_when_the_end_comes_ends_once() -> None:
    stage, core = stage_with("a=a:1", close_timeout_ms=1000)
    stage.dark.add("a:1")
    late = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=1001))
    stage.node.close(0)
    stage.settle()
    stage.now = 2000
    stage.node.timer(2000)
    assert isinstance(late.failure, StateError)
    assert stage.node.ended


def test_close_with_a_silent_broker_is_bounded() -> None:
    stage, core = stage_with("a=a:1", close_timeout_ms=1000)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers.clear()
    stage.node.close(0)
    stage.settle().advance(1000)
    assert stage.node.ended
    assert stage.peers["a:1"].codes().count(GONE) == 1


def test_brokers_that_never_heard_of_us_are_not_told_that_we_leave() -> None:
    stage, core = stage_with("a=a:1", "b=b:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.node.close(5)
    stage.settle().advance(0)
    assert stage.node.ended
    assert stage.dials == [NS, "a:1"]


def test_close_before_anything_began() -> None:
    stage = Stage()
    stage.node.close(0)
    stage.settle().advance(0)
    assert stage.node.ended
    assert stage.dials == []


def test_one_producer_leaves_the_others() -> None:
    """PRO-08."""
    stage, core = stage_with("a=a:1")
    other = stage.node.add_producer(ProducerSettings(group="other"), 0)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.run(stage.node.remove_producer(core, 0))
    stage.run(stage.node.remove_producer(core, 0))
    assert [request.fields["producerGroup"] for request in stage.peers["a:1"].of(GONE)] == ["pg"]
    assert isinstance(stage.start(core.send(Message(TOPIC, b"x"), 0)).failure, StateError)
    assert stage.run(other.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK
    stage.node.add_producer(ProducerSettings(group="pg"), 0)
