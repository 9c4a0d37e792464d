"""Routes and lists of topics."""

from __future__ import annotations

import json

import pytest

from mqproto.codec import Command, encode
from mqproto.engine.namesrv import KvConfig
from mqproto.engine.settings import NamesrvSettings
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import DataVersion, TopicConfig, TopicList, TopicRoute
from mqproto.wire.codes import RequestCode
from tests.engine.namesrv.harness import Rig

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def topics(rig: Rig, link: Link, code: int, fields: dict[str, str] | None = None) -> list[str]:
    answer = rig.ask(link, code, fields)
    assert answer.code == 0
    return TopicList.from_json(answer.body).topics


@pytest.fixture
def pair() -> tuple[Rig, Link]:
    """Two brokers of cluster c with T and U, one of cluster d with T and Z."""
    rig = Rig()
    link = rig.connect()
    rig.register(link, "broker-b", "10.0.0.2:10911")
    rig.register(link, "broker-a", "10.0.0.1:10911")
    rig.register(link, "broker-z", "10.0.0.9:10911", cluster="d", topics=("Z", "T"))
    return rig, link


def test_a_route_to_the_byte() -> None:
    """The whole answer, as an old client gets it: bare broker ids, both names of the topic flag."""
    rig = Rig()
    link = rig.connect()
    rig.register(link, topics=[TopicConfig("T", 4, 2), TopicConfig("U")])
    rig.register(link, address="10.0.0.2:10911", broker_id=1)
    rig.node.received(link, encode(Command(ROUTE, {"topic": "T"}, opaque=7, version=293)), rig.now)
    header = b'{"code":0,"flag":1,"language":"PYTHON","opaque":7,"version":407}'
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
        b'"cluster":"c"}],'
        b'"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSynFlag":0,"topicSysFlag":0,'
        b'"writeQueueNums":2}]}'
    )
    written = b"".join(map(bytes, rig.node.data_to_send(link)))
    assert written == (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


@pytest.mark.parametrize(
    ("fields", "version", "standard"),
    [
        ({}, 399, False),
        ({}, 400, False),
        ({}, 401, True),
        ({"acceptStandardJsonOnly": "true"}, 399, True),
        ({"acceptStandardJsonOnly": "false"}, 399, False),
    ],
)
def test_quoted_ids_for_new_clients_and_for_those_that_ask(
    fields: dict[str, str], version: int, standard: bool
) -> None:
    """COD-06."""
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    body = bytes(rig.ask(link, ROUTE, {"topic": "T", **fields}, version=version).body)
    assert (b'"brokerAddrs":{"0":' in body) is standard
    assert (b'"brokerAddrs":{0:' in body) is not standard
    if standard:
        assert json.loads(body)["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


def test_lists_are_ordered_by_broker_name(pair: tuple[Rig, Link]) -> None:
    """Whatever the order of registration was (PRO-09)."""
    rig, link = pair
    route = TopicRoute.from_json(rig.ask(link, ROUTE, {"topic": "T"}).body)
    assert [queues.broker_name for queues in route.queues] == ["broker-a", "broker-b", "broker-z"]
    assert [broker.broker_name for broker in route.brokers] == ["broker-a", "broker-b", "broker-z"]


def test_no_route() -> None:
    rig = Rig()
    answer = rig.ask(rig.connect(), ROUTE, {"topic": "T"})
    assert answer.code == 17
    assert answer.remark == (
        "No topic route info in name server for the topic: T\nSee http://rocketmq.apache.org/docs/faq/ for further "
        "details."
    )


@pytest.mark.parametrize("enabled", [False, True])
def test_order_configuration_is_added_when_it_is_switched_on(enabled: bool) -> None:
    kv = KvConfig()
    kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    rig = Rig(NamesrvSettings(order_message_enable=enabled), kv_config=kv)
    link = rig.connect()
    answer = rig.register(link)
    assert bytes(answer.body) == b'{"table":{"T":"broker-a:4"}}', "brokers get the whole namespace"
    route = TopicRoute.from_json(rig.ask(link, ROUTE, {"topic": "T"}).body)
    assert route.order_conf == ("broker-a:4" if enabled else None)
    assert TopicRoute.from_json(rig.ask(link, ROUTE, {"topic": "U"}).body).order_conf is None


def test_cluster_information(pair: tuple[Rig, Link]) -> None:
    rig, link = pair
    assert bytes(rig.ask(link, RequestCode.GET_BROKER_CLUSTER_INFO).body) == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"},'
        b'"broker-b":{"brokerAddrs":{0:"10.0.0.2:10911"},"brokerName":"broker-b","cluster":"c"},'
        b'"broker-z":{"brokerAddrs":{0:"10.0.0.9:10911"},"brokerName":"broker-z","cluster":"d"}},'
        b'"clusterAddrTable":{"c":["broker-a","broker-b"],"d":["broker-z"]}}'
    )


def test_topic_lists(pair: tuple[Rig, Link]) -> None:
    rig, link = pair
    assert topics(rig, link, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["T", "U", "Z"]
    assert topics(rig, link, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}) == ["T", "U"]
    assert topics(rig, link, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "d"}) == ["T", "Z"]
    assert topics(rig, link, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "nowhere"}) == []


def test_system_topics_are_the_names_of_clusters_and_brokers(pair: tuple[Rig, Link]) -> None:
    rig, link = pair
    answer = TopicList.from_json(rig.ask(link, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert answer.topics == ["c", "d", "broker-a", "broker-b", "broker-z"]
    assert answer.broker_address == "10.0.0.1:10911"
    bare = Rig()
    answer = TopicList.from_json(bare.ask(bare.connect(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert (answer.topics, answer.broker_address) == ([], None)


def test_unit_topics() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link, topics=[TopicConfig(f"flag-{flag}", sys_flag=flag) for flag in range(4)])
    assert topics(rig, link, RequestCode.GET_UNIT_TOPIC_LIST) == ["flag-1", "flag-3"]
    assert topics(rig, link, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["flag-2", "flag-3"]
    assert topics(rig, link, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["flag-2"]


def test_deleting_a_topic_lasts_until_the_next_change(pair: tuple[Rig, Link]) -> None:
    """Of one cluster, or of all; a broker that still has it brings it back."""
    rig, link = pair
    assert rig.ask(link, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "c"}).code == 0
    route = TopicRoute.from_json(rig.ask(link, ROUTE, {"topic": "T"}).body)
    assert [queues.broker_name for queues in route.queues] == ["broker-z"]
    assert rig.ask(link, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}).code == 0
    assert rig.ask(link, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}).code == 0, "gone already"
    assert rig.ask(link, ROUTE, {"topic": "T"}).code == 17
    rig.register(link)
    assert rig.ask(link, ROUTE, {"topic": "T"}).code == 17, "nothing changed"
    rig.register(link, version=DataVersion(2, 2))
    assert rig.ask(link, ROUTE, {"topic": "T"}).code == 0


def test_write_permission_is_taken_and_given(pair: tuple[Rig, Link]) -> None:
    """In memory, for every topic of a broker; giving makes a topic readable too."""
    rig, link = pair
    rig.register(link, "broker-r", "10.0.0.4:10911", topics=[TopicConfig("T", perm=7), TopicConfig("R", perm=4)])

    def perms() -> dict[str, int]:
        route = TopicRoute.from_json(rig.ask(link, ROUTE, {"topic": "T"}).body)
        return {queues.broker_name: queues.perm for queues in route.queues}

    answer = rig.ask(link, RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-r"})
    assert (answer.code, answer.fields) == (0, {"wipeTopicCount": "2"})
    assert perms() == {"broker-a": 6, "broker-b": 6, "broker-r": 5, "broker-z": 6}
    answer = rig.ask(link, RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-r"})
    assert (answer.code, answer.fields) == (0, {"addTopicCount": "2"})
    assert perms()["broker-r"] == 6
    answer = rig.ask(link, RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "nobody"})
    assert answer.fields == {"wipeTopicCount": "0"}
