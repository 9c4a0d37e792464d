"""Heartbeats of a client node: who gets one, when, and what stands in it."""

from __future__ import annotations

from mqproto.message import Message
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.bodies import HeartbeatData
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.recording_consumer import Consumer
from tests.mqproto.state.stage import NS, TOPIC, Stage, broker, name_server, refused, route, stage_with, success

BEAT = RequestCode.HEART_BEAT


def test_heartbeats_go_to_masters_and_with_a_consumer_to_slaves_too() -> None:
    stage = Stage()
    stage.peers[NS] = name_server({TOPIC: route("a=a:1", slaves={"a": "a:2"})})
    stage.peers |= {"a:1": broker(), "a:2": broker()}
    core = stage.node.add_producer(ProducerSettings(group="pg"), 0)
    stage.begin()
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.advance(1000)
    assert (len(stage.peers["a:1"].of(BEAT)), len(stage.peers["a:2"].of(BEAT))) == (2, 0)
    stage.node.consumers.add(Consumer(stage.node))
    stage.advance(30_000)
    assert (len(stage.peers["a:1"].of(BEAT)), len(stage.peers["a:2"].of(BEAT))) == (3, 1)
    beat = HeartbeatData.from_json(bytes(stage.peers["a:2"].of(BEAT)[0].body))
    assert [consumer.group for consumer in beat.consumers] == ["cg"]
    assert beat.consumers[0].subscriptions[0].topic == TOPIC


def test_nothing_is_sent_without_producers_and_consumers() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.run(stage.node.remove_producer(core, 0))
    count = len(stage.peers["a:1"].of(BEAT))
    stage.advance(90_000)
    assert len(stage.peers["a:1"].of(BEAT)) == count
    assert stage.node.heartbeats.send(stage.now).settled


def test_a_change_during_a_heartbeat_is_told_at_once() -> None:
    """A skipped heartbeat left Java's consumers out of step with their broker for 25 s."""
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.clear()
    first = stage.node.heartbeats.send(0)
    stage.settle()
    stage.node.consumers.add(Consumer(stage.node))
    others = [stage.node.heartbeats.send(0) for _ in range(3)]
    stage.settle()
    assert len(peer.of(BEAT)) == 2
    stage.receive("a:1", success(peer.of(BEAT)[1]))
    assert first.settled
    assert len(peer.of(BEAT)) == 3, "one for all who asked meanwhile"
    assert not any(ticket.settled for ticket in others)
    assert HeartbeatData.from_json(bytes(peer.of(BEAT)[2].body)).consumers
    later = stage.node.heartbeats.send(0)
    stage.settle()
    assert len(peer.of(BEAT)) == 3, "one at a time"
    stage.receive("a:1", success(peer.of(BEAT)[2]))
    assert all(ticket.settled for ticket in others)
    stage.receive("a:1", success(peer.of(BEAT)[3]))
    assert later.settled


def test_heartbeats_that_fail_are_noted_and_do_not_stop_the_others() -> None:
    stage, core = stage_with("a=a:1", "b=b:1", "c=c:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["b:1"].answers[BEAT] = lambda request: refused(request, 1, "not now")
    del stage.peers["c:1"]
    ticket = stage.node.heartbeats.send(0)
    stage.settle()
    assert ticket.settled
    assert [notice for notice in stage.node.notices if "not now" in notice]
    assert [notice for notice in stage.node.notices if "c:1" in notice]
    assert "b:1" not in stage.node.routes.versions


def test_brokers_that_no_route_names_are_forgotten() -> None:
    stage, core = stage_with("a=a:1", "b=b:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.advance(1000)
    stage.peers[NS] = name_server({TOPIC: route("a=a:1")})
    stage.advance(60_000)
    assert stage.node.routes.all_addresses() == ["a:1"]
    count = len(stage.peers["b:1"].of(BEAT))
    stage.advance(200_000)
    assert len(stage.peers["b:1"].of(BEAT)) == count
    assert ("b:1", "idle") in stage.hung_up
    assert "b:1" not in stage.node.links


def test_a_heartbeat_that_has_nothing_to_say_any_more_is_not_sent() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.pop(BEAT)
    stage.node.heartbeats.send(0)
    following = stage.node.heartbeats.send(0)
    stage.settle()
    ending = stage.start(stage.node.remove_producer(core, 0))
    stage.receive("a:1", success(peer.of(BEAT)[1]))
    assert following.settled
    assert ending.settled
    assert len(peer.of(BEAT)) == 2
