"""Groups that are too far behind are stopped (docs/protocol/broker.md 3.5)."""

from __future__ import annotations

import pytest

from mqproto.wire.bodies import GroupTable
from tests.engine.broker.harness import Peer, World


def watchful() -> World:
    return World(disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=1000)


def read_slowly(peer: Peer) -> None:
    """The group SLOW reads the first of many messages, the group QUICK all of them."""
    for _ in range(20):
        peer.send("T", bytes(100))
    peer.pull("T", "SLOW", maxMsgNums="1")
    for offset in (0, 19):
        peer.pull("T", "QUICK", offset=offset)


def enabled(world: World, group: str) -> bool:
    return world.broker.subscription_groups.table[group].consume_enable


def test_the_slow_group_is_stopped() -> None:
    world = watchful()
    peer = world.connect()
    read_slowly(peer)
    version = world.broker.subscription_groups.version.counter
    world.advance(180_000 - world.now)
    assert enabled(world, "SLOW")
    world.advance(1000)
    assert not enabled(world, "SLOW")
    assert enabled(world, "QUICK")
    assert world.broker.subscription_groups.version.counter == version + 1
    saved = GroupTable.from_json(world.files.read("/store/config/subscriptionGroup.json"))
    assert not saved.groups["SLOW"].consume_enable
    (notice,) = [notice for notice in world.broker.notices if "SLOW" in notice]
    assert "bytes behind" in notice
    peer = world.connect()
    answer = peer.pull("T", "SLOW")
    assert (answer.code, answer.remark) == (16, "subscription group no permission, SLOW")
    assert peer.pull("T", "QUICK").code == 0


@pytest.mark.parametrize(("distance", "goes_on"), [(0, True), (-1, False)])
def test_the_limit_itself_is_not_too_far(distance: int, goes_on: bool) -> None:
    world = watchful()
    read_slowly(world.connect())
    (behind,) = [reader.behind for group, reader in world.broker.statistics.readers_by_group() if group == "SLOW"]
    world.broker.settings.consumer_fallbehind_threshold = behind + distance
    world.advance(180_000)
    assert enabled(world, "SLOW") is goes_on


def test_who_is_let_go_on_is_judged_anew() -> None:
    world = watchful()
    read_slowly(world.connect())
    world.advance(180_000)
    assert not enabled(world, "SLOW")
    peer = world.connect()
    peer.ask(200, None, b'{"groupName":"SLOW"}')
    world.advance(180_000)
    assert enabled(world, "SLOW"), "it has read nothing since"
    world.connect().pull("T", "SLOW", maxMsgNums="1")
    world.advance(180_000)
    assert not enabled(world, "SLOW")


def test_many_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.engine.broker.pulls.slow_groups._READERS_OF_A_SLICE", 1)
    world = watchful()
    read_slowly(world.connect())
    world.advance(180_001)
    assert [enabled(world, group) for group in ("SLOW", "QUICK")] == [False, True]


def test_only_where_the_setting_says_so() -> None:
    world = World(consumer_fallbehind_threshold=1000)
    peer = world.connect()
    read_slowly(peer)
    peer.close()
    world.advance(10_000_000)
    assert enabled(world, "SLOW")
    assert world.broker.next_deadline() is None, "nobody looks"
    operator = world.connect()
    assert operator.ask(25, None, b"disableConsumeIfConsumerReadSlowly=true").code == 0
    world.advance(179_999)
    assert enabled(world, "SLOW")
    world.connect().ask(25, None, b"brokerPermission=6")
    world.advance(1)
    assert not enabled(world, "SLOW")


def test_a_group_that_was_deleted_meanwhile() -> None:
    world = watchful()
    read_slowly(world.connect())
    del world.broker.subscription_groups.table["SLOW"]
    world.advance(180_000)
    assert "SLOW" not in world.broker.subscription_groups.table
