"""Which requests go to a broker's second port (docs/protocol/client.md 1.8)."""

from __future__ import annotations

import pytest

from mqproto.errors import SendFailed
from mqproto.message import ConsumeStatus, Message
from mqproto.state.cluster.vip import vip_target
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Call, Flow
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.bodies import ConsumeFromWhere
from mqproto.wire.codes import RequestCode
from mqproto.wire.hosts import HostError
from mqproto.wire.names import TRACE_TOPIC
from tests.golden.golden import Golden
from tests.mqproto.state.scripted_broker import Cluster
from tests.mqproto.state.stage import NS, Peer, Stage, broker, name_server, route, success

BROKER = "b:10911"
SECOND = "b:10909"


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_MESSAGE,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
    ],
)
def test_what_uses_the_second_port(code: int) -> None:
    assert vip_target(code, BROKER) == SECOND


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.END_TRANSACTION,
        RequestCode.GET_BROKER_CONFIG,
    ],
)
def test_what_never_does(code: int) -> None:
    assert vip_target(code, BROKER) == BROKER


def test_an_unlock_that_nobody_answers_does_not() -> None:
    assert vip_target(RequestCode.UNLOCK_BATCH_MQ, BROKER, oneway=True) == BROKER
    assert vip_target(RequestCode.UPDATE_CONSUMER_OFFSET, BROKER, oneway=True) == SECOND
    with pytest.raises(HostError):
        vip_target(RequestCode.SEND_MESSAGE_V2, "b:1")


def test_apaches_client_of_4_4_chooses_the_same_ports(golden: Golden) -> None:
    """It uses the second port unless it is told not to, as for messages of its trace; every request of every
    capture.
    """
    seen: set[tuple[int, int]] = set()
    for name in golden.capture_names("4.4.0"):
        ports: dict[int, int] = {}
        for entry in golden.capture("4.4.0", name):
            if entry.event == "open":
                ports[entry.connection] = entry.port
            if (
                entry.link == "client-broker"
                and entry.direction == ">"
                and entry.is_request
                and entry.connection in ports
            ):
                oneway = entry.header["flag"] == 2
                port = ports[entry.connection]
                if entry.fields.get("b") != TRACE_TOPIC:
                    assert vip_target(entry.code, BROKER, oneway=oneway) == f"b:{port}", (name, entry.code)
                    seen.add((entry.code, port))
    assert len(seen) > 35


def producing(address: str = BROKER) -> Stage:
    stage = Stage(vip_channel=True)
    stage.peers[NS] = name_server({"T": route(f"a={address}")})
    return stage


def test_sends_of_every_kind() -> None:
    stage = producing()
    stage.peers[SECOND] = broker()
    core = stage.node.add_producer(ProducerSettings(group="pg"), 0)
    for flow in (
        core.send(Message("T", b"x"), 0),
        core.send_async(Message("T", b"x"), 0),
        core.send_oneway(Message("T", b"x"), 0),
    ):
        stage.run(flow)
    stage.run(core.send_batch([Message("T", b"x")], 0))
    assert stage.peers[SECOND].codes() == [RequestCode.SEND_MESSAGE_V2] * 3 + [RequestCode.SEND_BATCH_MESSAGE]


@pytest.mark.parametrize(("for_callback", "ports"), [(False, [SECOND] * 3), (True, [SECOND, BROKER, BROKER])])
def test_further_attempts(for_callback: bool, ports: list[str]) -> None:
    """Those of a send with a callback go to the first port; where nobody listens at the second they reach the
    broker.
    """
    stage = producing()
    core = stage.node.add_producer(ProducerSettings(group="pg"), 0)
    with pytest.raises(SendFailed):
        stage.run((core.send_async if for_callback else core.send)(Message("T", b"x"), 0))
    assert [address for address in stage.dials if address in (BROKER, SECOND)] == ports
    if for_callback:
        stage.peers[BROKER] = broker()
        stage.run(core.send_async(Message("T", b"x"), 0))
        assert stage.peers[BROKER].codes() == [RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2]


def test_an_address_without_a_second_port_fails_the_send() -> None:
    stage = producing("b:1")
    core = stage.node.add_producer(ProducerSettings(group="pg", retry_times=0), 0)
    with pytest.raises(SendFailed, match="no host"):
        stage.run(core.send(Message("T", b"x"), 0))


def test_name_servers_have_no_second_port() -> None:
    """Also when they are asked by their address."""
    stage = producing()
    stage.peers[NS].answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = success
    outcomes = []

    def flow(address: str | None) -> Flow[None]:
        outcome, _ = yield Call(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, b"", 100)
        outcomes.append(outcome.code)

    for address in (NS, None):
        stage.run(flow(address))
    assert (outcomes, stage.dials) == ([0, 0], [NS])


def test_a_consumer_pulls_and_beats_at_the_first_port_and_does_the_rest_at_the_second() -> None:
    cluster = Cluster("b", vip_channel=True)
    cluster.topic("T")
    second = cluster.stage.peers[SECOND] = Peer()
    second.answers = cluster.broker.peer.answers
    cluster.stage.begin()
    consumer = PushConsumerCore(
        cluster.stage.node,
        ConsumerSettings(group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, orderly=True),
        "l",
    )
    consumer.subscribe("T", now=0)
    cluster.start(consumer)
    cluster.put("T", b"x")
    cluster.answer_all(ConsumeStatus.SUCCESS)
    cluster.advance(20_000)
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    assert set(cluster.broker.peer.codes()) == {
        RequestCode.HEART_BEAT,
        RequestCode.PULL_MESSAGE,
        RequestCode.UNREGISTER_CLIENT,
    }
    assert set(second.codes()) == {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }
