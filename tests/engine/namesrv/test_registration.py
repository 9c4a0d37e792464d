"""What a registration changes, in all its forms."""

from __future__ import annotations

import pytest

from mqproto.engine.namesrv import registry
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicRoute, TopicTable
from mqproto.wire.codes import RequestCode
from mqproto.wire.ids import body_crc
from tests.engine.namesrv.harness import Rig
from tests.golden.golden import GOLDEN

REGISTER = RequestCode.REGISTER_BROKER


def perms(rig: Rig, link: Link, topic: str) -> dict[str, int] | None:
    """Permission of a topic by broker, None without a route."""
    answer = rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return (
        None
        if answer.code
        else {queues.broker_name: queues.perm for queues in TopicRoute.from_json(answer.body).queues}
    )


TABLE = TopicTable(DataVersion(1_700_000_000_000, 2), {"T1": TopicConfig("T1", 4, 4)})


@pytest.mark.parametrize(
    ("body", "fields", "version"),
    [
        (RegisterBrokerBody(TABLE).to_json(), {}, 293),
        (RegisterBrokerBody(TABLE).to_json(), {"compressed": "false"}, 37),
        (TABLE.to_json(), {}, 36),
        (RegisterBrokerBody(TABLE).to_compressed(), {"compressed": "true"}, 407),
        (RegisterBrokerBody(TABLE).to_compressed(479), {"compressed": "true"}, 479),
        (RegisterBrokerBody(TABLE).to_compressed(479), {"compressed": "false"}, 479),
    ],
    ids=["plain", "plain-37", "table-alone", "compressed", "compressed-5", "compressed-untold"],
)
def test_every_form_of_the_body_is_read(body: bytes, fields: dict[str, str], version: int) -> None:
    """Below version 37 the body is the topic table; 5.3 compresses without saying so."""
    rig = Rig()
    link = rig.connect()
    facts = {**rig.broker(), **fields, "bodyCrc32": str(body_crc(body))}
    answer = rig.ask(link, REGISTER, facts, body, version=version)
    assert (answer.code, answer.fields, answer.body) == (0, {}, b"")
    assert perms(rig, link, "T1") == {"broker-a": 6}


def test_registrations_that_java_compressed() -> None:
    """5.x appends attributes to each topic, which 4.x readers refuse."""
    (vector,) = GOLDEN.vectors("register-body-compressed")
    for version, number in (("4.4.0", 293), ("4.9.7", 407), ("5.3.3", 479)):
        rig = Rig()
        link = rig.connect()
        body = bytes.fromhex(vector.output(version)["compressed"])
        assert rig.ask(link, REGISTER, {**rig.broker(), "compressed": "true"}, body, version=number).code == 0
        assert perms(rig, link, "T1") == {"broker-a": 6}


def test_no_body_is_an_empty_table() -> None:
    rig = Rig()
    link = rig.connect()
    assert rig.ask(link, REGISTER, rig.broker()).code == 0
    answer = rig.ask(link, RequestCode.QUERY_DATA_VERSION, rig.broker(), b'{"counter":0,"timestamp":0}')
    assert (answer.fields, bytes(answer.body)) == ({"changed": "false"}, b'{"counter":0,"timestamp":0}')


@pytest.mark.parametrize(
    ("fields", "body", "remark"),
    [
        ({"bodyCrc32": "1"}, b"{}", "crc32 not match"),
        ({"compressed": "true"}, b"no zlib", "compressed registration"),
        ({}, b"[1]", "RegisterBrokerBody"),
        ({}, b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":"x"}}}', "whole number"),
        ({"brokerId": "x"}, b"", "header field brokerId"),
        ({"brokerId": "9223372036854775808"}, b"", "header field brokerId"),
    ],
)
def test_what_cannot_be_read_is_told_and_changes_nothing(fields: dict[str, str], body: bytes, remark: str) -> None:
    rig = Rig()
    link = rig.connect()
    answer = rig.ask(link, REGISTER, {**rig.broker(), **fields}, body)
    assert answer.code == 1
    assert remark in (answer.remark or "")
    assert not rig.node.state.registry.brokers
    assert not rig.node.state.registry.live
    assert rig.hung_up() == []


@pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId"])
def test_missing_fields_are_named(missing: str) -> None:
    rig = Rig()
    fields = rig.broker()
    del fields[missing]
    answer = rig.ask(rig.connect(), REGISTER, fields)
    assert (answer.code, answer.remark) == (1, f"header field {missing}: is missing")


def test_topics_are_replaced_when_the_version_changes_and_never_removed() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link, topics=("T", "U"), version=DataVersion(1, 1))
    rig.register(link, topics=[TopicConfig("T", 1, 1, 4), TopicConfig("V")], version=DataVersion(1, 1))
    assert perms(rig, link, "T") == {"broker-a": 6}, "the version is known"
    assert perms(rig, link, "V") is None
    rig.register(link, topics=[TopicConfig("T", 1, 1, 4), TopicConfig("V")], version=DataVersion(2, 1))
    assert perms(rig, link, "T") == {"broker-a": 4}
    assert perms(rig, link, "U") == {"broker-a": 6}
    assert perms(rig, link, "V") == {"broker-a": 6}


def test_a_broker_that_restarted_with_an_old_version_is_taken_anew() -> None:
    """Its name was gone, so it counts as new although the version is the one that was known."""
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    rig.node.closed(link, "reset", rig.now)
    again = rig.connect()
    assert perms(rig, again, "T") is None
    rig.register(again)
    assert perms(rig, again, "T") == {"broker-a": 6}


def test_a_slave_adds_an_address_and_learns_its_master() -> None:
    rig = Rig()
    master, slave = rig.connect(), rig.connect()
    answer = rig.register(slave, address="10.0.0.2:10911", broker_id=1, topics=("OnlySlave",))
    assert answer.fields == {}, "no master yet"
    assert perms(rig, slave, "OnlySlave") is None
    assert rig.register(master).fields == {}
    answer = rig.register(slave, address="10.0.0.2:10911", broker_id=1)
    assert answer.fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:11911"}
    route = TopicRoute.from_json(rig.ask(slave, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)
    assert route.brokers[0].addresses == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


def test_topics_of_a_lost_master_stay_while_a_slave_is_there() -> None:
    rig = Rig()
    master, slave = rig.connect(), rig.connect()
    rig.register(master)
    rig.register(slave, address="10.0.0.2:10911", broker_id=1)
    rig.node.closed(master, "reset", rig.now)
    route = TopicRoute.from_json(rig.ask(slave, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)
    assert route.brokers[0].addresses == {1: "10.0.0.2:10911"}
    rig.node.closed(slave, "reset", rig.now)
    assert rig.node.state.registry.topics == {}
    assert rig.node.state.registry.clusters == {}


def test_an_address_has_one_id_and_a_name_one_cluster() -> None:
    """A slave that becomes master keeps its address; a broker that moves leaves the old cluster."""
    rig = Rig()
    link = rig.connect()
    rig.register(link, broker_id=1)
    assert perms(rig, link, "T") is None
    rig.register(link, broker_id=0)
    assert perms(rig, link, "T") == {"broker-a": 6}, "with the version that was known, but not as a master's"
    info = rig.node.state.registry.cluster_info()
    assert info.brokers["broker-a"].addresses == {0: "10.0.0.1:10911"}
    rig.register(link, cluster="d", version=DataVersion(2, 2))
    info = rig.node.state.registry.cluster_info()
    assert info.clusters == {"d": ["broker-a"]}
    assert info.brokers["broker-a"].cluster == "d"


def test_unregistering_removes_a_broker_and_what_it_held() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    rig.register(link, name="broker-b", address="10.0.0.3:10911")
    assert rig.ask(link, RequestCode.UNREGISTER_BROKER, rig.broker()).code == 0
    assert perms(rig, link, "T") == {"broker-b": 6}
    assert rig.ask(link, RequestCode.UNREGISTER_BROKER, rig.broker()).code == 0, "unknown by now"
    assert rig.ask(link, RequestCode.UNREGISTER_BROKER, rig.broker("broker-b", "10.0.0.3:10911")).code == 0
    assert perms(rig, link, "T") is None
    assert rig.node.next_deadline() is not None, "the link still has its idle time"
    assert not rig.node.state.registry.deadlines


def test_an_old_process_does_not_unregister_its_successor() -> None:
    """The id belongs to the address that registered last."""
    rig = Rig()
    link = rig.connect()
    rig.register(link, address="10.0.0.1:10911")
    rig.register(link, address="10.0.0.1:20911", version=DataVersion(5, 5))
    rig.ask(link, RequestCode.UNREGISTER_BROKER, rig.broker(address="10.0.0.1:10911"))
    assert perms(rig, link, "T") == {"broker-a": 6}
    assert rig.node.state.registry.brokers["broker-a"].addresses == {0: "10.0.0.1:20911"}


def test_a_name_can_go_while_an_address_that_had_it_is_still_connected() -> None:
    rig = Rig()
    old, new = rig.connect(), rig.connect()
    rig.register(old, address="10.0.0.1:10911")
    rig.register(new, address="10.0.0.1:20911")
    rig.ask(new, RequestCode.UNREGISTER_BROKER, rig.broker(address="10.0.0.1:20911"))
    assert perms(rig, new, "T") is None
    rig.node.closed(old, "reset by peer", rig.now)
    assert rig.node.state.registry.live == {}
    rig.register(new)
    assert perms(rig, new, "T") == {"broker-a": 6}


def test_a_renamed_broker_leaves_nothing_under_its_former_name() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link, "former", topics=("Old",))
    rig.register(link, "latter", topics=("New",))
    assert rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Old"}).code == 17
    assert rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "New"}).code == 0
    rig.node.closed(link, "closed by the peer", rig.now)
    assert rig.node.state.registry.brokers == {}


def test_an_address_that_unregisters_goes_whatever_it_says_of_its_id() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    rig.ask(link, RequestCode.UNREGISTER_BROKER, rig.broker(broker_id=7))
    assert rig.node.state.registry.brokers == {}
    assert rig.node.state.registry.all_topics() == []


def test_ipv6_addresses_are_texts_like_others() -> None:
    """MSG-06."""
    rig = Rig()
    link = rig.connect("[::1]:5")
    for name, address in (("broker-a", "::1:10911"), ("broker-b", "[fe80::1%lo]:10911")):
        rig.register(link, name, address)
    route = TopicRoute.from_json(rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)
    assert [broker.addresses[0] for broker in route.brokers] == ["::1:10911", "[fe80::1%lo]:10911"]


# --- announcements of one topic ---


def test_announced_topics_after_one_another_keep_the_version_known() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link, topics=("T", "U"), version=DataVersion(1, 1))
    rig.register(link, topics=("V",), version=DataVersion(2, 2))
    rig.register(link, topics=("W",), version=DataVersion(3, 3))
    assert perms(rig, link, "V") == perms(rig, link, "W") == {"broker-a": 6}
    answer = rig.ask(link, RequestCode.QUERY_DATA_VERSION, rig.broker(), DataVersion(3, 3).to_json())
    assert answer.fields == {"changed": "false"}


def test_an_announcement_at_a_name_server_that_knows_nothing_does_not_hide_the_other_topics() -> None:
    """The next whole table has the same version; Apache's name server would skip it for ever (docs/protocol/broker.md
    1.6, Trap).
    """
    rig = Rig()
    link = rig.connect()
    rig.register(link, topics=("V",), version=DataVersion(2, 2))
    assert perms(rig, link, "V") == {"broker-a": 6}, "usable at once"
    answer = rig.ask(link, RequestCode.QUERY_DATA_VERSION, rig.broker(), DataVersion(2, 2).to_json())
    assert (answer.fields, answer.body) == ({"changed": "true"}, b"")
    rig.register(link, topics=("T", "U", "V"), version=DataVersion(2, 2))
    assert perms(rig, link, "T") == {"broker-a": 6}
    answer = rig.ask(link, RequestCode.QUERY_DATA_VERSION, rig.broker(), DataVersion(2, 2).to_json())
    assert answer.fields == {"changed": "false"}


def test_a_missed_announcement_is_made_up_for_by_the_next_table() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link, topics=("T", "U"), version=DataVersion(1, 1))
    rig.register(link, topics=("W",), version=DataVersion(3, 3))
    rig.register(link, topics=("T", "U", "V", "W"), version=DataVersion(3, 3))
    assert perms(rig, link, "V") == {"broker-a": 6}


# --- what is kept ---


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reaches the port cannot make the tables grow without bound; brokers that are in go on."""
    monkeypatch.setattr(registry, "ADDRESSES_MAX", 2)
    monkeypatch.setattr(registry, "ENTRIES_MAX", 5)
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    rig.register(link, name="broker-b", address="10.0.0.3:10911")
    answer = rig.ask(link, REGISTER, rig.broker("broker-c", "10.0.0.4:10911"))
    assert (answer.code, answer.remark) == (1, "this name server takes 2 broker addresses and not more")
    table = TopicTable(DataVersion(2, 2), {name: TopicConfig(name) for name in ("T", "V", "W")})
    answer = rig.ask(link, REGISTER, rig.broker(), RegisterBrokerBody(table).to_json())
    assert (answer.code, answer.remark) == (1, "this name server takes 5 queue entries and not more")
    assert "broker-c" not in rig.node.state.registry.brokers
    rig.register(link, topics=("T", "U", "V"), version=DataVersion(2, 2))
    assert perms(rig, link, "V") == {"broker-a": 6}


def test_filter_servers_travel_with_the_route() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link, filter_servers=("10.0.0.1:30000",))
    route = TopicRoute.from_json(rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)
    assert route.filter_servers == {"10.0.0.1:10911": ["10.0.0.1:30000"]}
    rig.register(link)
    route = TopicRoute.from_json(rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)
    assert route.filter_servers == {}
