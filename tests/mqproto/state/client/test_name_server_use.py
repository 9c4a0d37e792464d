"""Name servers of a client node: which is asked, and what becomes of sends while they come and go."""

from __future__ import annotations

import pytest

from mqproto.errors import BrokerError, CallExpired, NoNameServer
from mqproto.message import Message, SendStatus
from mqproto.state.node.contract import Dial
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode
from mqproto.wire.fastjson import JsonError
from tests.mqproto.state.stage import NS, TOPIC, Peer, Stage, name_server, refused, route, stage_with, success

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_no_name_server_at_all() -> None:
    stage = Stage(name_servers=())
    core = stage.begin().node.add_producer(ProducerSettings(group="pg"), 0)
    with pytest.raises(NoNameServer, match="no name server address is set"):
        stage.run(core.send(Message(TOPIC, b"x"), 0))


def test_unreachable_name_servers_are_all_tried_and_named() -> None:
    stage = Stage(name_servers=("x:1", "y:2", "z:3"))
    core = stage.begin().node.add_producer(ProducerSettings(group="pg"), 0)
    with pytest.raises(NoNameServer) as caught:
        stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert stage.dials == ["x:1", "y:2", "z:3"]
    assert caught.value.tried == ("x:1", "y:2", "z:3")
    assert "refused" in str(caught.value)
    assert caught.value.code == 10004


def test_a_dead_name_server_is_passed_over_and_the_next_one_kept() -> None:
    stage, core = stage_with("a=a:1", name_servers=("x:1", NS))
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert stage.dials == ["x:1", NS, "a:1"]
    stage.advance(90_000)
    assert stage.dials == ["x:1", NS, "a:1"]
    assert len(stage.peers[NS].of(ROUTE)) == 4


def test_a_name_server_that_goes_away_is_replaced_in_mid_request() -> None:
    stage, core = stage_with("a=a:1", name_servers=("x:1", NS))
    stage.peers["x:1"] = Peer()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    assert stage.peers["x:1"].codes() == [ROUTE]
    stage.cut("x:1")
    assert ticket.result().status is SendStatus.SEND_OK
    assert stage.peers[NS].codes() == [ROUTE]


def test_a_dark_name_server_does_not_use_up_the_time_of_the_others() -> None:
    stage, core = stage_with("a=a:1", name_servers=("x:1", NS))
    stage.dark.add("x:1")
    timeouts: list[int] = []
    stage.node.actions.clear()
    ticket = stage.node.start(core.send(Message(TOPIC, b"x"), 0), 0)
    timeouts += [action.timeout_ms for action in stage.node.actions if isinstance(action, Dial)]
    stage.settle()
    stage.now = timeouts[0]
    stage.cut("x:1", "connecting timed out")
    assert timeouts == [1500]
    assert ticket.result().status is SendStatus.SEND_OK


def test_a_silent_name_server_is_left_after_its_share_of_the_time() -> None:
    """The time-out ends the link (NS-4), and the request goes on to the next server, with what is left of its time."""
    stage, core = stage_with("a=a:1", name_servers=("x:1", "y:1", NS))
    for address in ("x:1", "y:1"):
        stage.peers[address] = Peer()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=3000))
    stage.advance(999)
    assert stage.dials == ["x:1"]
    stage.advance(1)
    assert stage.dials == ["x:1", "y:1"]
    assert stage.hung_up == [("x:1", "no answer in time")]
    stage.advance(1000)
    assert ticket.result().status is SendStatus.SEND_OK
    stage.advance(30_000)
    assert stage.dials == ["x:1", "y:1", NS, "a:1"], "the one that answered is kept"


def test_only_silent_name_servers() -> None:
    stage, core = stage_with("a=a:1", name_servers=("x:1", "y:1"))
    for address in ("x:1", "y:1"):
        stage.peers[address] = Peer()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=3000))
    stage.advance(2999)
    assert not ticket.settled
    stage.advance(1)
    with pytest.raises(CallExpired, match=r"no answer from name server \(.*:.*;.*:.*\) within"):
        ticket.result()
    assert stage.hung_up == [("x:1", "no answer in time"), ("y:1", "no answer in time")]


def test_a_name_server_that_answers_others_is_left_alone_but_asked_no_more() -> None:
    """It keeps its link, and the late answer reaches nobody."""
    stage, core = stage_with("a=a:1", name_servers=("x:1", NS))
    stage.peers["x:1"] = name_server({"other": route("a=a:1")})
    answer = stage.peers["x:1"].answers[ROUTE]
    stage.peers["x:1"].answers[ROUTE] = lambda request: None if request.fields["topic"] == TOPIC else answer(request)
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=3000))
    stage.run(core.send(Message("other", b"x"), 0))
    stage.advance(1500)
    assert ticket.result().status is SendStatus.SEND_OK
    assert stage.hung_up == []
    (request,) = (one for one in stage.peers["x:1"].got if one.fields["topic"] == TOPIC)
    stage.receive("x:1", success(request, body=route("b=b:1").to_json()))
    assert stage.node.routes.master("b") is None
    stage.run(core.send(Message(TOPIC, b"x"), stage.now))
    stage.advance(60_000)
    assert stage.hung_up == []


def test_another_list_of_name_servers() -> None:
    """NSV-01: the next look-up goes to the new ones, links to the old ones end, no route is lost, a look-up under way
    moves over.
    """
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers[NS].answers.clear()
    ticket = stage.start(core.send(Message("other", b"x"), 0))
    stage.peers["c:1"] = name_server({TOPIC: route("a=a:1"), "other": route("a=a:1")})
    stage.node.set_name_servers(("c:1", "d:1"), 0)
    stage.settle()
    stage.node.set_name_servers(("c:1", "d:1"), 0)
    assert stage.hung_up == [(NS, "no name server of ours any more")]
    assert ticket.result().status is SendStatus.SEND_OK
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK
    stage.node.set_name_servers(("e:1",), 0)
    assert stage.settle().hung_up[1:] == [("c:1", "no name server of ours any more")]


def test_another_list_is_all_before_a_request_that_is_under_way() -> None:
    """Also a server of it that the request has met dead."""
    stage, core = stage_with("a=a:1", name_servers=("x:1", "y:1"))
    stage.peers["y:1"] = Peer()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    assert stage.dials == ["x:1", "y:1"]
    stage.peers["x:1"] = stage.peers[NS]
    stage.node.set_name_servers(("x:1",), 0)
    stage.settle()
    assert ticket.result().status is SendStatus.SEND_OK


def test_sends_go_on_while_name_servers_know_nothing() -> None:
    """NSV-03: a restarted name server is empty until brokers report again."""
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers[NS] = name_server({})
    for _ in range(8):
        stage.advance(15_000)
        assert stage.run(core.send(Message(TOPIC, b"x"), stage.now)).status is SendStatus.SEND_OK
    del stage.peers[NS]
    stage.cut(NS)
    stage.advance(60_000)
    assert stage.run(core.send(Message(TOPIC, b"x"), stage.now)).status is SendStatus.SEND_OK
    assert any("routes could not be refreshed" in notice for notice in stage.node.notices)


def test_a_name_server_with_nonsense() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers[NS].answers[ROUTE] = lambda request: success(request, body=b"{nonsense")
    with pytest.raises(JsonError):
        stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers[NS].answers[ROUTE] = lambda request: refused(request, 1, "broken")
    with pytest.raises(BrokerError, match="broken"):
        stage.run(core.send(Message(TOPIC, b"x"), 0))
