"""Client node: its first send, who takes part in it, its names and settings."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import InvalidSetting, StateError
from mqproto.message import Message, MessageQueue, SendStatus
from mqproto.state.client.node import ClientNode, client_id
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.bodies import HeartbeatData
from mqproto.wire.codes import VERSION, RequestCode
from tests.mqproto.state.recording_consumer import Consumer
from tests.mqproto.state.stage import IDENTITY, NS, TOPIC, Stage, broker, name_server, route, stage_with

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BEAT = RequestCode.HEART_BEAT


def test_a_first_send_finds_its_way() -> None:
    stage, core = stage_with("a=a:1")
    result = stage.run(core.send(Message(TOPIC, b"paid"), 0))
    assert result.status is SendStatus.SEND_OK
    assert stage.dials == [NS, "a:1"]
    assert stage.peers[NS].codes() == [ROUTE]
    assert stage.peers["a:1"].codes() == [BEAT, SEND], "a new link begins with a heartbeat"
    sent = stage.peers["a:1"].got[1]
    assert (sent.version, bytes(sent.body)) == (VERSION, b"paid")
    stage.run(core.send(Message(TOPIC, b"again"), 0))
    assert stage.dials == [NS, "a:1"]
    assert stage.peers[NS].codes() == [ROUTE]


def test_a_topic_is_created_by_its_first_message() -> None:
    stage, core = stage_with("a=a:1")
    routes = {"TBW102": route("a=a:1", queues=8)}
    stage.peers[NS] = name_server(routes)
    assert stage.run(core.send(Message("new", b"x"), 0)).queue == MessageQueue("new", "a", 0)
    assert [request.fields["topic"] for request in stage.peers[NS].of(ROUTE)] == ["new", "TBW102"]
    routes["new"] = route("a=a:1", queues=1)
    stage.advance(30_000)
    assert {stage.run(core.send(Message("new", b"x"), stage.now)).queue.queue_id for _ in range(5)} == {0}


def test_announcements() -> None:
    """COD-10: what a producer says of itself is what every release reads."""
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    beat = HeartbeatData.from_json(bytes(stage.peers["a:1"].of(BEAT)[0].body))
    assert (beat.client_id, beat.producers, beat.consumers) == ("10.0.0.7@4711#1", ["pg"], [])
    assert stage.node.routes.versions == {"a:1": VERSION}


def test_one_producer_and_one_consumer_for_each_group() -> None:
    stage, core = stage_with("a=a:1")
    with pytest.raises(StateError, match="pg"):
        stage.node.add_producer(ProducerSettings(group="pg"), 0)
    consumer = Consumer(stage.node)
    stage.node.consumers.add(consumer)
    with pytest.raises(StateError, match="cg"):
        stage.node.consumers.add(Consumer(stage.node))
    stage.run(consumer.shutdown(0))
    stage.run(consumer.shutdown(0))
    stage.node.consumers.add(Consumer(stage.node))
    assert core.group == "pg"


def test_consumed_goes_to_its_consumer() -> None:
    stage = Stage().begin()
    consumer = Consumer(stage.node)
    stage.node.consumers.add(consumer)

    class Task:
        group = "cg"

    stage.node.consumed(Task(), "done", 1)
    Task.group = "gone"
    stage.node.consumed(Task(), "late", 1)
    assert consumer.seen == [("consumed", "done")]


def test_a_client_that_pulls_says_so_in_every_request() -> None:
    """docs/protocol/client.md 9, golden capture litepull: one-way requests and those to name servers too."""
    stage = Stage(stream=True)
    stage.peers[NS] = name_server({"T": route("b=b:1")})
    stage.peers["b:1"] = broker()
    stage.begin()
    producer = stage.node.add_producer(ProducerSettings("g"), 0)
    stage.run(producer.send_oneway(Message("T", b"x"), 0))
    stage.advance(2_000)
    got = stage.peers[NS].got + stage.peers["b:1"].got
    assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT} <= {
        one.code for one in got
    }
    assert {one.fields["ReqT"] for one in got} == {"0"}
    assert stage.node.client_id == "10.0.0.7@4711#1@STREAM"


def test_client_ids() -> None:
    assert client_id(IDENTITY) == "10.0.0.7@4711#1"
    assert client_id(IDENTITY, "unit") == "10.0.0.7@4711#1@unit"
    assert client_id(IDENTITY, " ") == "10.0.0.7@4711#1"
    assert client_id(IDENTITY, stream=True) == "10.0.0.7@4711#1@STREAM"
    assert client_id(IDENTITY, "unit", stream=True) == "10.0.0.7@4711#1@unit@STREAM"
    assert client_id(ClientIdentity("::1", 1, "i")) == "[::1]@i"
    assert client_id(ClientIdentity("[::1]", 1, "i")) == "[::1]@i"


@pytest.mark.parametrize(
    "settings",
    [
        {"name_servers": ("nonsense",)},
        {"name_servers": ("a:0",)},
        {"name_servers": ("a:65536",)},
        {"name_servers": (":1",)},
        {"api_timeout_ms": 0},
        {"in_flight_limit": 0},
        {"max_idle_ms": 1 << 40},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        ClientNode(ClientSettings(**settings), IDENTITY)


def test_a_client_accepts_nobody() -> None:
    assert Stage().node.accept("main", "x:1", "y:1", 0) is None
