"""Routes of a client node: when they are asked for, who shares the answer, who hears of changes."""

from __future__ import annotations

import pytest

from mqproto.errors import (
    CallExpired,
    ConnectionLost,
    NoNameServer,
    NoRoute,
)
from mqproto.message import Message, SendStatus
from mqproto.state.flows.effects import Flow, Refresh
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.recording_consumer import Consumer
from tests.mqproto.state.stage import NS, TOPIC, Peer, Stage, name_server, route, stage_with, success

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_routes_are_polled() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert len(stage.peers[NS].got) == 1
    stage.advance(10)
    assert len(stage.peers[NS].got) == 2, "first after 10 ms"
    stage.advance(29_999)
    assert len(stage.peers[NS].got) == 2
    stage.advance(1)
    assert len(stage.peers[NS].got) == 3
    stage.peers[NS] = name_server({TOPIC: route("a=a:1", queues=9)})
    stage.advance(30_000)
    info = stage.node.routes.publish(TOPIC)
    assert info is not None
    assert len(info.queues) == 9


def test_flows_that_need_the_same_route_share_one_request() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers[NS].answers.clear()
    tickets = [stage.start(core.send(Message(TOPIC, b"x"), 0)) for _ in range(5)]
    short = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=100))
    assert stage.peers[NS].codes() == [ROUTE]
    stage.advance(100)
    with pytest.raises(CallExpired):
        short.result()
    request = stage.peers[NS].got[0]
    stage.receive(NS, success(request, body=route("a=a:1").to_json()))
    assert all(ticket.result().status is SendStatus.SEND_OK for ticket in tickets)


def test_consumers_hear_of_changed_routes() -> None:
    """PRO-08: a topic that is used both ways is fresh on both sides within one refresh."""
    stage, core = stage_with("a=a:1")
    consumer = Consumer(stage.node)
    stage.node.consumers.add(consumer)
    stage.advance(10)
    assert consumer.seen == [("queues", TOPIC, 2, 10)]
    stage.advance(60_000)
    assert len(consumer.seen) == 1
    stage.peers[NS] = name_server({TOPIC: route("a=a:1", queues=4)})
    stage.advance(30_000)
    assert consumer.seen[1:] == [("queues", TOPIC, 4, 90_010)]
    assert len(stage.run(core.publish_queues(TOPIC, stage.now))) == 4


def test_a_topic_without_route() -> None:
    stage, core = stage_with("a=a:1")
    with pytest.raises(NoRoute):
        stage.run(core.send(Message("unknown", b"x"), 0))


def test_a_slow_round_of_polling_is_not_overtaken_by_the_next() -> None:
    stage, core = stage_with("a=a:1", poll_name_server_interval_ms=1000)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers[NS].answers.clear()
    stage.advance(500)
    tasks = len(stage.node._tasks)
    stage.advance(2_000)
    assert len(stage.peers[NS].of(ROUTE)) == 2
    assert len(stage.node._tasks) == tasks


def test_routes_may_be_asked_for_from_outside() -> None:
    stage = Stage(name_servers=()).begin()
    for _ in range(2):
        ticket = stage.node.refresh(TOPIC, 0)
        assert isinstance(ticket.result(), NoNameServer)


def test_refresh_reports_a_link_that_was_lost() -> None:
    stage, _ = stage_with("a=a:1")
    stage.peers[NS] = Peer()

    def refreshing() -> Flow[object]:
        error, _ = yield Refresh(TOPIC, 3000)
        return error

    ticket = stage.start(refreshing())
    stage.cut(NS)
    assert isinstance(ticket.result(), ConnectionLost)
