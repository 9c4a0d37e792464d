"""Who is online, who subscribes what, and who holds which queue lock."""

from __future__ import annotations

import pytest

from mqproto.engine.broker.core import client_registry as module
from mqproto.engine.broker.core.client_registry import (
    LOCK_LIFE_MS,
    MEMBER_SILENCE_MS,
    ClientRegistry,
    QueueLocks,
    Registered,
)
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData


def consumer(group: str, *subscriptions: SubscriptionData) -> ConsumerData:
    return ConsumerData(
        group,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        list(subscriptions),
    )


def wants(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, expression, version=version)


@pytest.fixture
def groups() -> ClientRegistry:
    return ClientRegistry()


def seen(groups: ClientRegistry, link: Link, client_id: str, data: ConsumerData, now: int = 0) -> Registered:
    return groups.consumer_seen(data, link, client_id, 0, 407, now)


class TestConsumers:
    def test_a_new_member_is_a_change_and_its_next_heartbeat_is_none(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        assert seen(groups, link, "one", consumer("g", wants("T"))).changed
        assert not seen(groups, link, "one", consumer("g", wants("T"))).changed
        assert groups.consumers["g"].client_ids() == ["one"]

    def test_a_topic_more_or_less_is_a_change(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        seen(groups, link, "one", consumer("g", wants("T")))
        assert seen(groups, link, "one", consumer("g", wants("T"), wants("U"))).changed
        gone = seen(groups, link, "one", consumer("g", wants("U")))
        assert gone.changed
        assert gone.dropped == ("T",)

    def test_only_a_newer_version_replaces_a_subscription_and_tells_nobody(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        seen(groups, link, "one", consumer("g", wants("T", "a", 5)))
        assert seen(groups, link, "one", consumer("g", wants("T", "b", 5))).renewed == ()
        assert groups.consumers["g"].subscriptions["T"].expression == "a"
        newer = seen(groups, link, "one", consumer("g", wants("T", "b", 6)))
        assert not newer.changed
        assert [one.expression for one in newer.renewed] == ["b"]
        assert groups.consumers["g"].subscriptions["T"].expression == "b"

    def test_the_last_heartbeat_sets_the_attributes_of_the_group(self, groups: ClientRegistry) -> None:
        seen(groups, Link("a:1"), "one", consumer("g", wants("T")))
        other = consumer("g", wants("T"))
        other.message_model = MessageModel.BROADCASTING
        seen(groups, Link("b:1"), "two", other)
        assert groups.consumers["g"].message_model is MessageModel.BROADCASTING

    def test_a_link_that_comes_with_another_client_id_gets_it(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        seen(groups, link, "one", consumer("g", wants("T")))
        seen(groups, link, "uno", consumer("g", wants("T")))
        assert groups.consumers["g"].client_ids() == ["uno"]

    def test_different_subscriptions_of_one_group_are_told_once(self, groups: ClientRegistry) -> None:
        """REB-03: the later heartbeat wins, and the operator hears of it once for each change."""
        one, two = Link("a:1"), Link("b:1")
        seen(groups, one, "one", consumer("g", wants("T", "a", 1)))
        dispute = seen(groups, two, "two", consumer("g", wants("T", "*", 2))).dispute
        assert dispute is not None
        assert (dispute.former, dispute.latter, dispute.topics) == ("one", "two", ("T",))
        assert seen(groups, one, "one", consumer("g", wants("T", "a", 3))).dispute is None
        assert seen(groups, two, "two", consumer("g", wants("T", "*", 4))).dispute is None
        assert seen(groups, one, "one", consumer("g", wants("U", "a", 5))).dispute is not None

    def test_a_client_that_changes_its_own_mind_disputes_nothing(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        seen(groups, link, "one", consumer("g", wants("T", "a", 1)))
        assert seen(groups, link, "one", consumer("g", wants("T", "b", 2))).dispute is None

    def test_what_a_link_may_join_is_bounded(self, groups: ClientRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LINK_GROUPS_MAX", 2)
        link = Link("a:1")
        for name in "abc":
            seen(groups, link, "one", consumer(name, wants("T")))
        assert set(groups.consumers) == {"a", "b"}

    def test_subscriptions_of_a_group_are_bounded(
        self, groups: ClientRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "SUBSCRIPTIONS_MAX", 2)
        seen(groups, Link("a:1"), "one", consumer("g", *(wants(f"T{n}") for n in range(5))))
        assert set(groups.consumers["g"].subscriptions) == {"T0", "T1"}

    def test_subscriptions_of_all_groups_are_bounded(
        self, groups: ClientRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "ALL_SUBSCRIPTIONS_MAX", 4)
        one, two = Link("a:1"), Link("b:1")
        seen(groups, one, "one", consumer("g", *(wants(f"T{n}") for n in range(3))))
        seen(groups, two, "two", consumer("h", *(wants(f"T{n}") for n in range(3))))
        assert set(groups.consumers["h"].subscriptions) == {"T0"}
        seen(groups, one, "one", consumer("g", wants("T0")))
        seen(groups, two, "two", consumer("h", *(wants(f"T{n}") for n in range(3))))
        assert len(groups.consumers["h"].subscriptions) == 3
        groups.gone(two)
        seen(groups, one, "one", consumer("g", *(wants(f"T{n}") for n in range(9))))
        assert len(groups.consumers["g"].subscriptions) == 4


class TestLeaving:
    def test_unregistering_leaves_no_empty_group(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        seen(groups, link, "one", consumer("g", wants("T")))
        groups.producer_seen("p", link, "one", 0, 407, 0)
        assert groups.consumer_left("g", link)
        assert groups.producer_left("p", link)
        assert not groups.consumer_left("g", link)
        assert (groups.consumers, groups.producers, groups.next_deadline()) == ({}, {}, None)
        assert groups.find_producer("one") is None

    def test_a_closed_link_leaves_all_its_groups(self, groups: ClientRegistry) -> None:
        link, other = Link("a:1"), Link("b:1")
        seen(groups, link, "one", consumer("g", wants("T")))
        seen(groups, link, "one", consumer("h", wants("T")))
        seen(groups, other, "two", consumer("g", wants("T")))
        groups.producer_seen("p", link, "one", 0, 407, 0)
        assert groups.gone(link).consumer_groups == ["g", "h"]
        assert set(groups.members("g")) == {other}
        assert groups.members("h") == {}
        assert groups.gone(link).consumer_groups == []

    def test_silence_of_120_seconds_drops_a_member(self, groups: ClientRegistry) -> None:
        quiet, lively = Link("a:1"), Link("b:1")
        seen(groups, quiet, "one", consumer("g", wants("T")), now=0)
        seen(groups, lively, "two", consumer("g", wants("T")), now=10)
        seen(groups, lively, "two", consumer("g", wants("T")), now=60_000)
        assert groups.next_deadline() == MEMBER_SILENCE_MS
        assert groups.expired(MEMBER_SILENCE_MS - 1).members == []
        departed = groups.expired(MEMBER_SILENCE_MS)
        assert departed.links == [quiet]
        assert departed.consumer_groups == ["g"]
        assert groups.next_deadline() == 60_000 + MEMBER_SILENCE_MS

    def test_a_link_that_still_has_another_group_stays(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        seen(groups, link, "one", consumer("g", wants("T")), now=0)
        seen(groups, link, "one", consumer("h", wants("T")), now=50)
        assert groups.expired(MEMBER_SILENCE_MS).links == []
        assert groups.expired(50 + MEMBER_SILENCE_MS).links == [link]

    def test_a_producer_is_found_by_client_id_until_its_last_group_went(self, groups: ClientRegistry) -> None:
        link = Link("a:1")
        groups.producer_seen("p", link, "one", 0, 407, 0)
        groups.producer_seen("q", link, "one", 0, 407, 0)
        groups.producer_left("p", link)
        assert groups.find_producer("one") is link
        groups.producer_left("q", link)
        assert groups.find_producer("one") is None

    def test_a_client_that_came_again_on_another_link_keeps_its_place(self, groups: ClientRegistry) -> None:
        first, second = Link("a:1"), Link("a:2")
        groups.producer_seen("p", first, "one", 0, 407, 0)
        groups.producer_seen("p", second, "one", 0, 407, 1)
        groups.gone(first)
        assert groups.find_producer("one") is second


class TestLocks:
    def test_a_queue_belongs_to_one_client(self) -> None:
        locks: QueueLocks[int] = QueueLocks()
        assert locks.lock("g", "one", [1, 2], 0) == [1, 2]
        assert locks.lock("g", "two", [2, 3], 0) == [3]
        assert locks.lock("h", "two", [1, 2], 0) == [1, 2]

    def test_a_lock_lasts_60_seconds_after_its_last_renewal(self) -> None:
        locks: QueueLocks[int] = QueueLocks()
        locks.lock("g", "one", [1], 0)
        locks.lock("g", "one", [1], 20_000)
        assert locks.lock("g", "two", [1], 20_000 + LOCK_LIFE_MS) == []
        assert locks.lock("g", "two", [1], 20_000 + LOCK_LIFE_MS + 1) == [1]
        assert locks.lock("g", "one", [1], 20_000 + LOCK_LIFE_MS + 2) == []

    def test_only_the_holder_unlocks(self) -> None:
        locks: QueueLocks[int] = QueueLocks()
        locks.lock("g", "one", [1, 2], 0)
        locks.unlock("g", "two", [1])
        locks.unlock("x", "one", [1])
        assert locks.lock("g", "two", [1], 0) == []
        locks.unlock("g", "one", [1, 2, 3])
        assert len(locks) == 0
        assert locks.lock("g", "two", [1], 0) == [1]

    def test_locks_are_bounded_and_expired_ones_make_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LOCKS_MAX", 2)
        locks: QueueLocks[int] = QueueLocks()
        assert locks.lock("g", "one", [1, 2, 3], 0) == [1, 2]
        assert locks.lock("h", "one", [9], 10) == []
        assert locks.lock("h", "one", [9], LOCK_LIFE_MS + 1) == [9]
        assert len(locks) == 1
