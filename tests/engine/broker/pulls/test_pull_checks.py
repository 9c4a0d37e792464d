"""Checks of pulls in Apache's order (docs/protocol/broker.md 2.4, steps 1 to 8), without a broker."""

from __future__ import annotations

import pytest

from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.filters.consumer_filters import FilterTable
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.pulls.pull_checks import PullChecks
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData, TopicConfig
from mqproto.wire.flags import PERM_READ_WRITE, PERM_WRITE
from mqproto.wire.headers import PullMessageRequest
from tests.engine.broker.harness import pull_fields
from tests.engine.broker.stubs import WALL, Saves, StubPeer


def header(**changes: str) -> PullMessageRequest:
    return PullMessageRequest.decode(pull_fields() | changes)


class Tried:
    """The checks with a topic `T` of four queues."""

    def __init__(self) -> None:
        saves = Saves()
        self.settings = BrokerSettings()
        store = Store.open(StoreSettings(store_path_root_dir="/store"), MemoryFiles(), wall=WALL)
        self.topics = TopicConfigs(self.settings, saves.manager, 18)
        self.groups = SubscriptionGroups(self.settings, saves.manager)
        self.registry = ClientRegistry()
        filters = FilterTable(saves.timers, saves.notices, self.settings, store, saves.manager)
        self.checks = PullChecks(
            saves.timers, self.settings, self.topics, self.groups, filters, self.registry, "192.0.2.2"
        )
        self.topics.put(TopicConfig("T", 4, 4, PERM_READ_WRITE), WALL)

    def refused(self, **changes: str) -> int:
        """The code that a pull is refused with."""
        with pytest.raises(Refused) as caught:
            self.checks.check(StubPeer(), header(**changes))
        return caught.value.code

    def wanted(self, **changes: str) -> frozenset[int] | None:
        """The tag codes that a pull wants."""
        pulled = header(**changes)
        return self.checks.filter_of(pulled, self.checks.check(StubPeer(), pulled)).codes

    def subscribe(self, expression: str, version: int = 1) -> None:
        subscription = SubscriptionData("T", expression, version=version)
        consumer = ConsumerData(
            "G",
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            [subscription],
        )
        self.registry.consumer_seen(consumer, Link("192.0.2.3:40000"), "c", 0, 0, 1000)


def test_what_may_be_pulled() -> None:
    tried = Tried()
    assert tried.checks.check(StubPeer(), header()).name == "G"
    assert tried.refused(topic="U") == 17
    assert tried.refused(queueId="4") == 1
    assert tried.refused(consumerGroup="a b") == 26
    tried.groups.table["G"].consume_enable = False
    assert tried.refused() == 16
    tried.groups.table["G"].consume_enable = True
    tried.topics.table["T"].perm = PERM_WRITE
    assert tried.refused() == 16
    tried.settings.broker_permission = PERM_WRITE
    assert tried.refused(topic="U") == 16, "the broker's permission is asked first"


def test_a_filter_that_the_pull_brings() -> None:
    tried = Tried()
    assert tried.wanted() is None
    assert tried.wanted(subscription="a || b") == frozenset(b"ab")
    with pytest.raises(Refused) as caught:
        tried.wanted(subscription="n > 1", expressionType="SQL92")
    assert caught.value.code == 1, "filters by properties are off"
    tried.settings.enable_property_filter = True
    with pytest.raises(Refused) as caught:
        tried.wanted(subscription="n >", expressionType="SQL92")
    assert caught.value.code == 23


def test_a_filter_that_the_group_subscribed() -> None:
    tried = Tried()
    with pytest.raises(Refused) as caught:
        tried.wanted(sysFlag="0")
    assert caught.value.code == 24
    tried.subscribe("a", version=5)
    assert tried.wanted(sysFlag="0", subVersion="5") == frozenset(b"a")
    with pytest.raises(Refused) as caught:
        tried.wanted(sysFlag="0", subVersion="6")
    assert caught.value.code == 25
