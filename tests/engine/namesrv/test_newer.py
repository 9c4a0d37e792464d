"""What brokers of 5.x ask beyond 4.9 (docs/protocol/broker.md 6.6)."""

from __future__ import annotations

import json

import pytest

from mqproto.codec import encode
from mqproto.engine.namesrv import registry
from mqproto.engine.settings import NamesrvSettings
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import DataVersion, QueueData, RegisterBrokerBody, TopicConfig, TopicRoute, TopicTable
from mqproto.wire.codes import RequestCode
from tests.engine.namesrv.harness import Rig

REGISTER, HEARTBEAT, MEMBERS = (
    RequestCode.REGISTER_BROKER,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.GET_BROKER_MEMBER_GROUP,
)
TOPIC = RequestCode.REGISTER_TOPIC_IN_NAMESRV


def patient() -> Rig:
    return Rig(NamesrvSettings(server_channel_max_idle_time_seconds=100_000))


def register(rig: Rig, link: Link, address: str = "10.0.0.1:10911", state: int | None = None, **fields: str) -> int:
    body = RegisterBrokerBody(
        TopicTable(DataVersion(1, 1, state), {"T": TopicConfig("T"), "U": TopicConfig("U")})
    ).to_json()
    return rig.ask(link, REGISTER, {**rig.broker(address=address), **fields}, body).code


@pytest.mark.parametrize(
    ("asked", "given"),
    [("10000", 10_000), ("1", 1_000), ("0", 120_000), ("-5", 120_000), ("9223372036854775807", 3_600_000)],
)
def test_a_broker_says_how_long_its_silence_may_be(asked: str, given: int) -> None:
    rig = patient()
    link = rig.connect()
    assert register(rig, link, heartbeatTimeoutMillis=asked) == 0
    rig.advance(given - 1)
    assert rig.hung_up() == []
    assert rig.send(link, encode(rig.request(HEARTBEAT, rig.broker(), flag=2))) == []
    rig.advance(given - 1)
    assert rig.hung_up() == []
    rig.advance(1)
    assert rig.hung_up() == [link]


@pytest.mark.parametrize("asked", ["x", "9223372036854775808"])
def test_a_time_that_is_none_is_refused(asked: str) -> None:
    rig = patient()
    assert register(rig, rig.connect(), heartbeatTimeoutMillis=asked) == 1
    assert rig.node.state.registry.live == {}


def test_heartbeats_with_an_answer() -> None:
    """One of a broker that nobody knows changes nothing."""
    rig = patient()
    link = rig.connect()
    assert rig.ask(link, HEARTBEAT, rig.broker()).code == 0
    assert rig.node.state.registry.live == {}
    assert not rig.node.state.registry.deadlines
    register(rig, link)
    assert rig.ask(link, HEARTBEAT, rig.broker()).code == 0
    answer = rig.ask(link, HEARTBEAT, {"brokerName": "broker-a"})
    assert (answer.code, answer.remark) == (1, "header field clusterName: is missing")


def test_members_of_a_broker_set() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    rig.register(link, address="10.0.0.2:10911", broker_id=1)
    answer = rig.ask(link, MEMBERS, {"clusterName": "c", "brokerName": "broker-a"})
    assert bytes(answer.body) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"c"}}'
    )
    answer = rig.ask(link, MEMBERS, {"clusterName": "c", "brokerName": "nobody"})
    assert json.loads(bytes(answer.body)) == {
        "brokerMemberGroup": {"brokerAddrs": {}, "brokerName": "nobody", "cluster": "c"}
    }
    answer = rig.ask(link, MEMBERS, {"clusterName": "c"})
    assert (answer.code, answer.remark) == (1, "header field brokerName: is missing")


def queues(rig: Rig, link: Link, topic: str) -> dict[str, tuple[int, int, int]]:
    answer = rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    route = TopicRoute.from_json(answer.body) if answer.code == 0 else TopicRoute()
    return {one.broker_name: (one.read_queues, one.write_queues, one.perm) for one in route.queues}


def test_a_topic_is_registered_alone() -> None:
    """At the brokers that are known; its version stays what it was."""
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    body = TopicRoute([QueueData("broker-a", 3, 2, 6), QueueData("nobody", 1, 1, 6)]).to_json()
    assert rig.ask(link, TOPIC, {"topic": "New"}, body).code == 0
    assert queues(rig, link, "New") == {"broker-a": (3, 2, 6)}
    body = TopicRoute([QueueData("broker-a", 3, 2, 4)]).to_json()
    assert rig.ask(link, TOPIC, {"topic": "New"}, body).code == 0
    assert queues(rig, link, "New") == {"broker-a": (3, 2, 4)}
    assert rig.ask(link, RequestCode.QUERY_DATA_VERSION, rig.broker(), DataVersion(1, 1).to_json()).fields == {
        "changed": "false"
    }
    rig.ask(link, RequestCode.UNREGISTER_BROKER, rig.broker())
    assert rig.node.state.registry.topics == {}


@pytest.mark.parametrize(
    ("fields", "body", "remark"),
    [
        ({}, b"{}", "header field topic: is missing"),
        ({"topic": "T"}, b"", "JSON"),
        ({"topic": "T"}, b"[]", "TopicRoute is no object"),
        ({"topic": "T"}, b'{"queueDatas":[{"perm":"x"}]}', "whole number"),
    ],
)
def test_what_is_no_topic_is_told(fields: dict[str, str], body: bytes, remark: str) -> None:
    rig = Rig()
    answer = rig.ask(rig.connect(), TOPIC, fields, body)
    assert answer.code == 1
    assert remark in (answer.remark or "")


def test_topics_alone_have_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    monkeypatch.setattr(registry, "ENTRIES_MAX", 2)
    answer = rig.ask(link, TOPIC, {"topic": "New"}, TopicRoute([QueueData("broker-a", 1, 1, 6)]).to_json())
    assert (answer.code, answer.remark) == (1, "this name server takes 2 queue entries and not more")


@pytest.mark.parametrize(
    ("before", "after", "code"), [(2, 1, 1), (2, None, 1), (2, 2, 0), (2, 3, 0), (None, None, 0), (None, 1, 0)]
)
def test_an_id_does_not_go_back_to_an_older_state(before: int | None, after: int | None, code: int) -> None:
    rig = Rig()
    old, new = rig.connect(), rig.connect()
    assert register(rig, old, state=before) == 0
    assert register(rig, new, "10.0.0.1:20911", state=after) == code
    holder = rig.node.state.registry.brokers["broker-a"].addresses[0]
    assert holder == ("10.0.0.1:10911" if code else "10.0.0.1:20911")
    assert ("10.0.0.1:20911" in rig.node.state.registry.live) is (code == 0)
