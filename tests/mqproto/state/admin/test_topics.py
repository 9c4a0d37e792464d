"""Operations on topics: which servers are told what, and what happens when one of them fails."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import (
    BrokerError,
    CallExpired,
    ClientError,
    ConnectFailed,
    InvalidName,
    InvalidSetting,
    NoCluster,
    NoNameServer,
    NoRoute,
    PartlyFailed,
)
from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    GroupList,
    QueueData,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicRoute,
    TopicStats,
    TopicTable,
)
from tests.mqproto.state.admin.servers import CLUSTER, NS1, NS2, SLAVE, A, B, Servers

CREATE = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "8",
    "writeQueueNums": "8",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


def test_every_master_of_the_cluster_gets_the_topic() -> None:
    servers = Servers()
    assert servers.run(servers.core.topics.create("T", cluster=CLUSTER)) == [A, B]
    assert servers.asked(A) == servers.asked(B) == [(17, CREATE)]
    assert servers.asked(SLAVE) == []


def test_where_it_failed_and_where_it_is_done() -> None:
    servers = Servers()
    servers.refuse(A, 17, 1, "disk full")
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.topics.create("T", cluster=CLUSTER))
    assert failed.value.done == (B,)
    assert [(one.place, str(one.failure)) for one in failed.value.failures] == [(A, f"{A} answered code 1: disk full")]
    assert failed.value.code == 1
    assert str(failed.value) == f"creating topic T failed at {A}: {A} answered code 1: disk full; it is done at {B}"


def test_one_broker_alone_raises_its_own_error() -> None:
    servers = Servers()
    servers.refuse(A, 17, 1)
    with pytest.raises(BrokerError):
        servers.run(servers.core.topics.create("T", broker=A))
    servers.silence(A, 17)
    with pytest.raises(CallExpired) as expired:
        servers.run(servers.core.topics.create("T", broker=A))
    assert expired.value.timeout_ms == 5_000
    servers.vanish(A)  # the link ended with the call that was not answered
    with pytest.raises(ConnectFailed):
        servers.run(servers.core.topics.create("T", broker=A))


def test_units_and_templates() -> None:
    servers = Servers()
    servers.run(
        servers.core.topics.create("T", broker=A, unit=True, has_unit_sub=True, perm=7, read_queues=1, write_queues=2)
    )
    assert servers.asked(A) == [
        (17, {**CREATE, "topicSysFlag": "3", "perm": "7", "readQueueNums": "1", "writeQueueNums": "2"})
    ]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"topic": "bad^name"}, InvalidName),
        ({"topic": "T", "perm": 8}, InvalidSetting),
        ({"topic": "T", "read_queues": -1}, InvalidSetting),
        ({"topic": "T", "write_queues": 65_537}, InvalidSetting),
    ],
)
def test_nothing_is_sent_of_what_no_topic_can_be(settings: dict[str, object], error: type[Exception]) -> None:
    servers = Servers()
    with pytest.raises(error):
        servers.run(servers.core.topics.create(**settings, broker=A))  # type: ignore[arg-type]
    assert servers.stage.dials == []


@pytest.mark.parametrize("order", [False, True])
def test_one_target_and_a_known_one(order: bool) -> None:
    servers = Servers()
    targets: list[dict[str, Any]] = [{}, {"broker": A, "cluster": CLUSTER}]
    for target in targets:
        with pytest.raises(ClientError, match="one of them"):
            servers.run(servers.core.topics.create("T", order=order, **target))
    with pytest.raises(NoCluster) as unknown:
        servers.run(servers.core.topics.create("T", order=order, cluster="other"))
    assert unknown.value.known == (CLUSTER,)
    assert servers.asked(A) == servers.asked(B) == []


def test_the_order_of_a_cluster() -> None:
    servers = Servers()
    servers.run(servers.core.topics.create("T", cluster=CLUSTER, order=True, write_queues=4))
    told = (100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "a:4;b:4"})
    assert servers.asked(NS1) == servers.asked(NS2) == [told]
    assert servers.asked(A)[0][1]["order"] == "true"


def test_the_order_of_one_broker_joins_that_of_others() -> None:
    servers = Servers()
    for name_server in (NS1, NS2):
        servers.answer(name_server, 101, {"value": "a:1;b:4"})
    servers.run(servers.core.topics.create("T", broker=A, order=True))
    assert [fields["value"] for code, fields in servers.asked(NS2) if code == 100] == ["a:8;b:4"]
    with pytest.raises(ClientError, match="no broker x:1 is registered"):
        servers.run(servers.core.topics.create("T", broker="x:1", order=True))


def test_permissions_leave_queues_as_they_are() -> None:
    servers = Servers()
    servers.routes["T"] = TopicRoute(
        [QueueData("a", 3, 2, 6, 1), QueueData("b", 5, 4, 6)], [servers.brokers["a"], servers.brokers["b"]]
    )
    assert servers.run(servers.core.topics.update_perm("T", 4, cluster=CLUSTER)) == [A, B]
    ((_, at_a),), ((_, at_b),) = servers.asked(A), servers.asked(B)
    assert at_a == {**CREATE, "perm": "4", "readQueueNums": "3", "writeQueueNums": "2", "topicSysFlag": "1"}
    assert at_b == {**CREATE, "perm": "4", "readQueueNums": "5", "writeQueueNums": "4"}


def test_permissions_at_one_broker() -> None:
    servers = Servers("T")
    assert servers.run(servers.core.topics.update_perm("T", 2, broker=B)) == [B]
    assert servers.asked(A) == []
    for stranger in (SLAVE, "x:1"):
        with pytest.raises(NoRoute):
            servers.run(servers.core.topics.update_perm("T", 2, broker=stranger))
    with pytest.raises(NoRoute):
        servers.run(servers.core.topics.update_perm("U", 2, broker=B))


def test_a_topic_goes_from_brokers_then_from_name_servers() -> None:
    servers = Servers("T")
    servers.run(servers.core.topics.delete("T", CLUSTER))
    assert servers.asked(A) == servers.asked(B) == [(215, {"topic": "T"})]
    assert servers.asked(NS1) == servers.asked(NS2) == [(216, {"topic": "T", "clusterName": CLUSTER})]


def test_a_name_that_is_not_allowed_can_be_looked_at_and_deleted() -> None:
    servers = Servers("bad^name")
    assert len(servers.run(servers.core.topics.route("bad^name")).queues) == 2
    servers.run(servers.core.topics.delete("bad^name", CLUSTER))
    assert servers.asked(NS2) == [(216, {"topic": "bad^name", "clusterName": CLUSTER})]
    for blank in ("", " "):
        with pytest.raises(InvalidName, match="blank"):
            servers.run(servers.core.topics.delete(blank, CLUSTER))


def test_a_topic_that_a_broker_keeps_stays_known() -> None:
    servers = Servers("T")
    servers.refuse(B, 215, 1)
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.topics.delete("T", CLUSTER))
    assert failed.value.done == (A,)
    assert servers.asked(NS1) == servers.asked(NS2) == []


def test_a_name_server_that_is_down_is_named() -> None:
    servers = Servers("T")
    servers.vanish(NS2)
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.topics.delete("T", CLUSTER))
    assert (failed.value.done, failed.value.failures[0].place) == ((NS1,), NS2)


def test_what_all_brokers_say_of_a_topic() -> None:
    servers = Servers("T")
    ends = {name: {MessageQueue("T", name, 0): TopicOffset(1, 2, 3)} for name in "ab"}
    servers.answer(A, 202, body=TopicStats(ends["a"]).to_json())
    servers.answer(B, 202, body=TopicStats(ends["b"]).to_json())
    assert servers.run(servers.core.topics.stats("T")) == {**ends["a"], **ends["b"]}
    servers.answer(A, 300, body=GroupList(["g", "h"]).to_json())
    servers.answer(B, 300, body=GroupList(["f", "g"]).to_json())
    assert servers.run(servers.core.topics.consumers("T")) == ["f", "g", "h"]
    servers.refuse(B, 202, 17, "topic[T] not exist")
    with pytest.raises(BrokerError):
        servers.run(servers.core.topics.stats("T"))


def test_a_slave_answers_where_there_is_no_master() -> None:
    servers = Servers()
    del servers.brokers["a"].addresses[0]
    servers.add("T", "a")
    servers.answer(SLAVE, 300, body=GroupList(["g"]).to_json())
    assert servers.run(servers.core.topics.consumers("T")) == ["g"]
    servers.routes["T"].brokers.clear()
    with pytest.raises(NoRoute):
        servers.run(servers.core.topics.consumers("T"))


def test_names() -> None:
    servers = Servers()
    for name_server in (NS1, NS2):
        servers.answer(name_server, 206, body=TopicList(["b", "a"]).to_json())
        servers.answer(name_server, 304, body=TopicList(["c"], A).to_json())
    servers.answer(A, 305, body=TopicList(["TBW102"]).to_json())
    assert servers.run(servers.core.topics.names()) == ["a", "b"]
    assert servers.run(servers.core.topics.system()) == ["TBW102", "c"]
    for name_server in (NS1, NS2):
        servers.answer(name_server, 304, body=TopicList(["c"]).to_json())
        servers.answer(name_server, 224, body=TopicList(["b", "a"]).to_json())
    assert servers.run(servers.core.topics.system()) == ["c"]
    assert servers.run(servers.core.topics.of_cluster(CLUSTER)) == ["a", "b"]
    assert [fields for address in (NS1, NS2) for code, fields in servers.asked(address) if code == 224] == [
        {"cluster": CLUSTER}
    ]


def test_how_a_topic_is_set_up() -> None:
    servers = Servers()
    config = TopicConfig("T", 1, 2)
    servers.answer(A, 21, body=TopicTable(topics={"T": config}).to_json())
    assert servers.run(servers.core.topics.config("T", A)) == config
    with pytest.raises(NoRoute):
        servers.run(servers.core.topics.config("U", A))


def test_sharing_queues_out() -> None:
    servers = Servers("T")
    shares = servers.run(servers.core.topics.allocate("T", ["y", "x", "y", "z"]))
    assert {client: [(one.broker_name, one.queue_id) for one in queues] for client, queues in shares.items()} == {
        "x": [("a", 0), ("a", 1)],
        "y": [("b", 0)],
        "z": [("b", 1)],
    }
    servers.routes["T"].queues.clear()
    assert servers.run(servers.core.topics.allocate("T", ["x"])) == {"x": []}
    assert servers.run(servers.core.topics.allocate("T", [])) == {}


def test_cleaning_up() -> None:
    servers = Servers()
    servers.brokers["b"].cluster = "d"
    assert servers.run(servers.core.topics.clean_unused()) == [A, B]
    assert servers.run(servers.core.topics.clean_unused(cluster="d")) == [B]
    assert servers.run(servers.core.topics.clean_unused(broker=A)) == [A]
    assert servers.asked(A) == servers.asked(B) == [(316, {}), (316, {})]


def test_the_order_of_a_topic() -> None:
    servers = Servers()
    for name_server in (NS1, NS2):
        servers.refuse(name_server, 101, 22)
    assert servers.run(servers.core.topics.order("T")) is None
    for bad in ("", "a", "a:0", "a:1;b", "a:x"):
        with pytest.raises(ClientError, match="expected"):
            servers.run(servers.core.topics.set_order("T", bad))
    servers.run(servers.core.topics.set_order("T", "a:1;b:2"))
    servers.run(servers.core.topics.delete_order("T"))
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    assert servers.asked(NS2)[-2:] == [(100, {**key, "value": "a:1;b:2"}), (102, key)]
    for name_server in (NS1, NS2):
        servers.refuse(name_server, 101, 1)
    with pytest.raises(BrokerError, match="name server"):
        servers.run(servers.core.topics.order("T"))


def test_a_name_server_that_cannot_say() -> None:
    servers = Servers("T")
    for name_server in (NS1, NS2):
        servers.refuse(name_server, 105, 1, "broken")
    with pytest.raises(BrokerError, match="broken"):
        servers.run(servers.core.topics.route("T"))


def test_no_name_server() -> None:
    servers = Servers()
    servers.vanish(NS1)
    servers.vanish(NS2)
    with pytest.raises(NoNameServer) as nobody:
        servers.run(servers.core.topics.names())
    assert nobody.value.tried == (NS1, NS2)
    servers.stage.node.name_servers.replace(())
    with pytest.raises(NoNameServer, match="no name server address is set"):
        servers.run(servers.core.topics.route("T"))


def test_the_vip_channel_leads_to_the_second_port() -> None:
    servers = Servers(vip_channel=True)
    servers.stage.peers["a:10909"] = servers.stage.peers[A]
    servers.run(servers.core.topics.create("T", broker=A))
    assert servers.stage.dials == ["a:10909"]
