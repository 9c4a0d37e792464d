"""Requests about subscription groups, without a broker: what they ask of the tables."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.operators.groups import GroupRequests
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.wire.bodies import GroupConfig, GroupTable
from tests.engine.broker.stubs import WALL, Saves, StubAnswers, StubConfirmations, StubPeer


class NoTraffic:
    messages_in = messages_out = reads_found = reads_missed = 0


class Tried:
    """The family of requests, the tables that it works on, and a peer."""

    def __init__(self) -> None:
        saves, settings = Saves(), BrokerSettings()
        store = Store.open(StoreSettings(store_path_root_dir="/store"), MemoryFiles(), wall=WALL)
        self.groups = SubscriptionGroups(settings, saves.manager)
        self.offsets = ConsumerOffsets(settings, saves.manager)
        statistics = Statistics(saves.timers, NoTraffic(), settings, store, 0)
        self.requests = GroupRequests(
            saves.timers, self.groups, self.offsets, statistics, StubConfirmations(), StubAnswers()
        )
        self.peer = StubPeer()


def test_a_group_is_made_listed_and_deleted() -> None:
    tried = Tried()
    tried.requests.on_update(tried.peer, Command(200, body=b'{"groupName":"G","retryMaxTimes":3}'))
    assert tried.groups.table["G"].retry_max_times == 3
    tried.requests.on_all(tried.peer, Command(201))
    assert "G" in GroupTable.from_json(tried.peer.replies[-1].body).groups
    tried.offsets.commit("G", "T", 0, 7)
    tried.requests.on_delete(tried.peer, Command(207, {"groupName": "G"}))
    assert ("G" in tried.groups.table, tried.offsets.find("G", "T", 0)) == (False, 7)
    tried.requests.on_delete(tried.peer, Command(207, {"groupName": "G", "removeOffset": "true"}))
    assert tried.offsets.find("G", "T", 0) is None
    assert [reply.code for reply in tried.peer.replies] == [0, 0, 0, 0]


def test_of_several_groups_all_are_made_or_none() -> None:
    tried = Tried()
    before = dict(tried.groups.table)
    body = b'{"groupConfigList":[{"groupName":"G"},{"groupName":"a b"}]}'
    with pytest.raises(Refused) as caught:
        tried.requests.on_update_list(tried.peer, Command(225, body=body))
    assert (caught.value.code, caught.value.remark) == (1, "groupName = [a b] value invalid")
    assert tried.groups.table == before
    assert tried.peer.replies == []


def test_one_group() -> None:
    tried = Tried()
    tried.groups.put(GroupConfig("G"), WALL)
    tried.requests.on_one(tried.peer, Command(352, {"group": "G"}))
    assert GroupConfig.from_json(tried.peer.replies[-1].body).name == "G"
    with pytest.raises(Refused) as caught:
        tried.requests.on_one(tried.peer, Command(352, {"group": "H"}))
    assert caught.value.code == 26
