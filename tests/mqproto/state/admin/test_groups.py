"""Operations on groups: what several brokers say becomes one answer, and who is not there is told apart from who
fails.
"""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.errors import AccessDenied, BrokerError, CallExpired, InvalidName, NoClients, PartlyFailed
from mqproto.message import MessageQueue
from mqproto.state.admin import QueueProgress
from mqproto.wire.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeType,
    GroupConfig,
    GroupTable,
    MessageModel,
    ProcessQueueInfo,
    ProducerConnection,
    SubscriptionData,
    TopicList,
)
from mqproto.wire.bodies.statistics import ConsumeOffsets
from mqproto.wire.codes import Language
from tests.mqproto.state.admin.servers import CLUSTER, NS1, NS2, A, B, Servers
from tests.mqproto.state.stage import refused, success

GROUP = "g"
RETRY = "%RETRY%g"
QUEUE = MessageQueue("T", "a", 0)


def client(name: str, version: int = 407) -> ClientConnection:
    return ClientConnection(name, "192.0.2.1:5", Language.JAVA, version)


def connection(*clients: ClientConnection, topic: str = "T", expression: str = "*") -> ConsumerConnection:
    subscriptions = {topic: SubscriptionData(topic, expression)}
    return ConsumerConnection(list(clients), subscriptions, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)


def stats(tps: float, **offsets: tuple[int, int, int]) -> bytes:
    """`T_0=(broker offset, consumer offset, time)` at broker a."""
    table = {MessageQueue(name[:-2], "a", int(name[-1])): ConsumeOffsets(*one) for name, one in offsets.items()}
    return ConsumeStats(table, tps).to_json()


# --- how they are set up


def test_the_configuration_goes_to_every_master() -> None:
    servers = Servers()
    config = GroupConfig(GROUP, retry_max_times=2)
    assert servers.run(servers.core.groups.create(config, cluster=CLUSTER)) == [A, B]
    assert servers.run(servers.core.groups.create("plain", broker=A)) == [A]
    for address in (A, B):
        assert GroupConfig.from_json(bytes(servers.stage.peers[address].of(200)[0].body)) == config
    with pytest.raises(InvalidName):
        servers.run(servers.core.groups.create(GroupConfig("bad^name"), broker=A))
    with pytest.raises(InvalidName, match="would be longer"):
        servers.run(servers.core.groups.create(GroupConfig("g" * 121), broker=A))


def test_where_a_group_is_set_up() -> None:
    servers = Servers()
    config = GroupConfig(GROUP)
    servers.answer(A, 201, body=GroupTable(groups={GROUP: config}).to_json())
    servers.answer(B, 201, body=GroupTable().to_json())
    assert servers.run(servers.core.groups.config(GROUP)) == {A: config}
    servers.refuse(B, 201, 1, "No subscription group in this broker")
    with pytest.raises(PartlyFailed):
        servers.run(servers.core.groups.config(GROUP))


def test_deleting_a_group() -> None:
    servers = Servers()
    servers.run(servers.core.groups.delete(GROUP, broker=A))
    assert servers.asked(A) == [(207, {"groupName": GROUP, "removeOffset": "false"})]
    assert servers.asked(NS1) == servers.asked(NS2) == []
    servers.run(servers.core.groups.delete(GROUP, cluster=CLUSTER, remove_offsets=True))
    assert servers.asked(B) == [
        (207, {"groupName": GROUP, "removeOffset": "true", "cleanOffset": "true"}),
        (215, {"topic": RETRY}),
        (215, {"topic": "%DLQ%g"}),
    ]
    assert [fields["topic"] for _, fields in servers.asked(NS2)] == [RETRY, "%DLQ%g"]


def test_names() -> None:
    servers = Servers()
    for name_server in (NS1, NS2):
        servers.answer(name_server, 206, body=TopicList(["T", "%RETRY%h", RETRY, "%DLQ%g"]).to_json())
    assert servers.run(servers.core.groups.names()) == ["g", "h"]


# --- who is there


def test_members_at_several_brokers_are_one_group() -> None:
    servers = Servers(RETRY)
    servers.answer(A, 203, body=connection(client("y"), client("x")).to_json())
    servers.answer(B, 203, body=connection(client("x"), topic="U").to_json())
    found = servers.run(servers.core.groups.connection(GROUP))
    assert [one.client_id for one in found.connections] == ["x", "y"]
    assert found.subscriptions.keys() == {"T", "U"}
    assert found.message_model is MessageModel.CLUSTERING
    assert [one.client_id for one in servers.run(servers.core.groups.connection(GROUP, broker=B)).connections] == ["x"]


def test_one_broker_where_it_is_online_is_enough() -> None:
    servers = Servers(RETRY)
    servers.refuse(A, 203, 206, "the consumer group[g] not online")
    servers.answer(B, 203, body=connection(client("x")).to_json())
    assert len(servers.run(servers.core.groups.connection(GROUP)).connections) == 1
    servers.refuse(B, 203, 206)
    with pytest.raises(NoClients, match="nobody is online") as nobody:
        servers.run(servers.core.groups.connection(GROUP))
    assert nobody.value.code == 206
    servers.answer(B, 203, body=connection().to_json())
    with pytest.raises(NoClients):
        servers.run(servers.core.groups.connection(GROUP))


def test_a_group_that_nobody_knows_and_one_that_we_may_not_see() -> None:
    servers = Servers(RETRY)
    with pytest.raises(NoClients, match="no broker has seen it"):
        servers.run(servers.core.groups.connection("other"))
    servers.refuse(A, 203, 1, "org.apache.rocketmq.acl.common.AclException: no")
    with pytest.raises(AccessDenied):
        servers.run(servers.core.groups.connection(GROUP))
    with pytest.raises(InvalidName):
        servers.run(servers.core.groups.connection(" "))


def test_producers_of_several_brokers() -> None:
    servers = Servers("T")
    servers.refuse(A, 204, 1, "the producer group[g] not exist")
    servers.answer(B, 204, body=ProducerConnection([client("y"), client("x")]).to_json())
    assert [one.client_id for one in servers.run(servers.core.groups.producers(GROUP, "T"))] == ["x", "y"]
    servers.refuse(B, 204, 1)
    with pytest.raises(NoClients):
        servers.run(servers.core.groups.producers(GROUP, "T"))
    for code, remark, error in ((2, "busy", BrokerError), (1, "AclException: no", AccessDenied)):
        servers.refuse(B, 204, code, remark)
        with pytest.raises(error):
            servers.run(servers.core.groups.producers(GROUP, "T"))


def test_a_member_is_reached_by_another_broker() -> None:
    servers = Servers(RETRY)
    info = ConsumerRunningInfo({"PROP_CONSUMEORDERLY": "false"})
    servers.refuse(A, 307, 1, "The Consumer <g> <x> not online")
    servers.answer(B, 307, body=info.to_json())
    assert servers.run(servers.core.groups.running_info(GROUP, "x", stack=True)) == info
    assert servers.asked(B) == [(307, {"consumerGroup": GROUP, "clientId": "x", "jstackEnable": "true"})]
    servers.refuse(B, 307, 207, "timeout")
    with pytest.raises(BrokerError) as late:
        servers.run(servers.core.groups.running_info(GROUP, "x"))
    assert (late.value.code, late.value.address) == (207, B)
    servers.silence(A, 307)
    with pytest.raises(CallExpired) as expired:
        servers.run(servers.core.groups.running_info(GROUP, "x"))
    assert expired.value.timeout_ms == 15_000


def member(tag: str, *queues: int, dropped: bool = False) -> ConsumerRunningInfo:
    held = {MessageQueue("T", "a", queue): ProcessQueueInfo(dropped=dropped) for queue in queues}
    return ConsumerRunningInfo(subscriptions=[SubscriptionData("T", tag)], queues=held)


def told(servers: Servers, **members: ConsumerRunningInfo | None) -> Any:
    """What a check finds when the members say this; None says nothing."""

    def answer(request: Command) -> bytes:
        info = members[request.fields["clientId"]]
        return refused(request, 207) if info is None else success(request, body=info.to_json())

    servers.answer(A, 203, body=connection(*(client(name) for name in members)).to_json())
    servers.refuse(B, 203, 206)
    for address in (A, B):
        servers.stage.peers[address].answers[307] = answer
    return servers.run(servers.core.groups.check(GROUP))


def test_a_check_of_all_members() -> None:
    servers = Servers(RETRY)
    found = told(servers, x=member("*", 0, 1), y=member("*", 2))
    assert (found.members.keys(), found.silent, found.same_subscriptions, found.held_twice) == (
        {"x", "y"},
        {},
        True,
        {},
    )
    found = told(servers, x=member("*", 0, 1), y=member("a", 1, 2), z=None)
    assert not found.same_subscriptions
    assert found.held_twice == {MessageQueue("T", "a", 1): ("x", "y")}
    assert isinstance(found.silent["z"], BrokerError)
    assert told(servers, x=member("*", 0), y=member("*", 0, dropped=True)).held_twice == {}


# --- how far they are


def test_progress_is_summed_over_brokers() -> None:
    servers = Servers(RETRY)
    servers.answer(A, 208, body=stats(1.5, T_0=(10, 4, 99), T_1=(5, 5, 98)))
    servers.answer(B, 208, body=stats(0.5, U_0=(3, 0, 0)))
    found = servers.run(servers.core.groups.progress(GROUP))
    assert found.queues[0] == QueueProgress(QUEUE, 10, 4, 99)
    assert ([one.lag for one in found.queues], found.lag, found.tps) == ([6, 0, 3], 9, 2.0)
    servers.run(servers.core.groups.progress(GROUP, "T"))
    assert servers.asked(A) == [(208, {"consumerGroup": GROUP}), (208, {"consumerGroup": GROUP, "topic": "T"})]


def test_a_group_that_has_consumed_nothing() -> None:
    servers = Servers(RETRY)
    for address in (A, B):
        servers.answer(address, 208, body=stats(0))
    with pytest.raises(NoClients, match="it has consumed nothing of topic T"):
        servers.run(servers.core.groups.progress(GROUP, "T"))
    servers.silence(B, 208)
    with pytest.raises(CallExpired) as expired:
        servers.run(servers.core.groups.progress(GROUP))
    assert expired.value.timeout_ms == 15_000


def test_an_overview() -> None:
    servers = Servers(RETRY, "%RETRY%h")
    for name_server in (NS1, NS2):
        servers.answer(name_server, 206, body=TopicList([RETRY, "%RETRY%h"]).to_json())

    def progress(request: Command) -> bytes:
        return success(request, body=stats(1.0, T_0=(4, 1, 9)) if request.fields["consumerGroup"] == "g" else stats(0))

    def members(request: Command) -> bytes:
        if request.fields["consumerGroup"] == "h":
            return refused(request, 206)
        return success(request, body=connection(client("x", 407), client("y", 293)).to_json())

    for address in (A, B):
        servers.stage.peers[address].answers |= {203: members, 208: progress}
    one, other = servers.run(servers.core.groups.overview())
    assert (one.group, one.members, one.version, one.message_model, one.tps, one.lag) == (
        "g",
        2,
        293,
        MessageModel.CLUSTERING,
        2.0,
        3,
    )
    assert (other.group, other.members, other.version, other.consume_type, other.lag) == ("h", 0, 0, None, 0)
    servers.refuse(A, 208, 1)
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.groups.overview())
    assert [one.place for one in failed.value.failures] == ["g", "h"]
