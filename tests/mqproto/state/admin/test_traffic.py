"""Traffic of topics, summed over brokers."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.errors import PartlyFailed
from mqproto.message import MessageQueue
from mqproto.state.admin import GroupTraffic, TopicTraffic
from mqproto.wire.bodies import BrokerStats, ConsumeStats, GroupList, StatsItem, TopicList
from mqproto.wire.bodies.statistics import ConsumeOffsets
from tests.mqproto.state.admin.servers import NS1, NS2, A, B, Servers
from tests.mqproto.state.stage import refused, success


def counted(request: Command) -> bytes:
    """A topic that was written to for days at one broker and for a minute at the other; a group that was there an hour
    ago.
    """
    if request.fields["statsName"] == "TOPIC_PUT_NUMS":
        return success(
            request, body=BrokerStats(StatsItem(60, 1.0), StatsItem(600, 1.0), StatsItem(6_000, 1.0)).to_json()
        )
    return success(request, body=BrokerStats(StatsItem(30, 0.5), StatsItem(300, 0.5)).to_json())


def young(request: Command) -> bytes:
    if request.fields["statsName"] == "TOPIC_PUT_NUMS":
        return success(request, body=BrokerStats(StatsItem(5, 0.25)).to_json())
    return refused(request, 1, "The stats <GROUP_GET_NUMS> <T@g> not exist")


def served() -> Servers:
    servers = Servers("T", "%RETRY%g")
    servers.stage.peers[A].answers[315] = counted
    servers.stage.peers[B].answers[315] = young
    servers.answer(A, 300, body=GroupList(["g", "h"]).to_json())
    servers.answer(B, 300, body=GroupList(["g"]).to_json())
    servers.answer(A, 208, body=ConsumeStats({MessageQueue("T", "a", 0): ConsumeOffsets(9, 2)}).to_json())
    servers.answer(B, 208, body=ConsumeStats({MessageQueue("T", "b", 0): ConsumeOffsets(4, 1)}).to_json())
    return servers


def test_one_topic() -> None:
    servers = served()
    groups = (GroupTraffic("g", 0.5, 300, 10), GroupTraffic("h", 0.5, 300, 0))
    assert servers.run(servers.core.traffic.of_topic("T")) == TopicTraffic("T", 1.25, 6_005, groups)
    assert (315, {"statsName": "GROUP_GET_NUMS", "statsKey": "T@g"}) in servers.asked(B)


def test_all_topics() -> None:
    servers = served()
    for name_server in (NS1, NS2):
        servers.answer(name_server, 206, body=TopicList(["T", "%RETRY%g", "%DLQ%g"]).to_json())
    assert [one.topic for one in servers.run(servers.core.traffic.of_all())] == ["T"]
    for name_server in (NS1, NS2):
        servers.answer(name_server, 206, body=TopicList(["U", "T"]).to_json())
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.traffic.of_all())
    assert ([one.place for one in failed.value.failures], failed.value.done) == (["U"], ("T",))
