"""Subscription groups by request: 200, 201, 207, 225, 352 (docs/protocol/broker.md 2.15)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqproto.wire.bodies import GroupConfig, GroupTable
from tests.engine.broker.harness import Peer, World


def test_a_group_is_made_changed_and_deleted(peer: Peer) -> None:
    body = {"groupName": "G", "retryMaxTimes": 3, "retryQueueNums": 2, "consumeTimeoutMinute": 15}
    assert peer.ask(200, None, json.dumps(body).encode()).code == 0
    table = GroupTable.from_json(peer.ask(201).body)
    group = table.groups["G"]
    assert (group.retry_max_times, group.retry_queues, group.consume_enable) == (3, 2, True)
    assert group.unknown == {"consumeTimeoutMinute": 15}, "what newer releases say is kept"
    assert peer.ask(207, {"groupName": "G"}).code == 0
    assert "G" not in GroupTable.from_json(peer.ask(201).body).groups


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"{}", "groupName = [] value invalid"),
        (b'{"groupName":"a b"}', "groupName = [a b] value invalid"),
        (b'{"groupName":"' + b"g" * 256 + b'"}', "groupName = [" + "g" * 255 + "] value invalid"),
        (b'{"groupName":"G","retryQueueNums":-1}', "retryQueueNums = [-1] value invalid"),
        (b'{"groupName":"G","retryQueueNums":65537}', "retryQueueNums = [65537] value invalid"),
        (b'{"groupName":"G","retryQueueNums":4294967296}', "32 bits"),
        (b'{"groupName":"G","retryMaxTimes":"x"}', "32 bits"),
        (b"[]", "GroupConfig"),
        (b"", ""),
    ],
)
def test_what_is_no_group(world: World, peer: Peer, body: bytes, remark: str) -> None:
    before = world.broker.subscription_groups.version.counter
    answer = peer.ask(200, None, body)
    assert answer.code == 1
    assert remark in (answer.remark or "")
    assert world.broker.subscription_groups.version.counter == before


def test_several_groups(world: World, peer: Peer) -> None:
    groups = [{"groupName": "A", "retryMaxTimes": 3}, {"groupName": "B"}]
    assert peer.ask(225, None, json.dumps({"groupConfigList": groups}).encode()).code == 0
    table = world.broker.subscription_groups.table
    assert (table["A"].retry_max_times, table["B"]) == (3, GroupConfig("B"))


@pytest.mark.parametrize(
    "bad", [{}, {"groupName": "a b"}, {"groupName": "B", "retryQueueNums": -1}, {"groupName": "B", "brokerId": "x"}, 7]
)
def test_of_several_groups_all_or_none_are_made(world: World, peer: Peer, bad: Any) -> None:
    before = world.broker.subscription_groups.version.counter
    assert peer.ask(225, None, json.dumps({"groupConfigList": [{"groupName": "A"}, bad]}).encode()).code == 1
    assert world.broker.subscription_groups.version.counter == before


def test_one_group(peer: Peer) -> None:
    peer.ask(200, None, b'{"groupName":"G","retryMaxTimes":3}')
    assert GroupConfig.from_json(peer.ask(352, {"group": "G"}).body) == GroupConfig("G", retry_max_times=3)
    answer = peer.ask(352, {"group": "None"})
    assert (answer.code, answer.remark) == (26, "No group in this broker. group: None")
    assert peer.ask(352, {}).code == 1


def test_groups_that_are_there_from_the_start(peer: Peer) -> None:
    assert {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONSAPI_OWNER"} <= set(
        GroupTable.from_json(peer.ask(201).body).groups
    )


def test_groups_are_bounded(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.engine.broker.tables.subscription_groups.GROUPS_MAX", 9)
    peer.send()
    codes = [peer.pull(group=f"G{n}").code for n in range(3)]
    assert codes == [0, 26, 26]
    assert peer.ask(200, None, b'{"groupName":"More"}').remark == "this broker keeps no more groups"
    assert peer.ask(200, None, b'{"groupName":"G0"}').code == 0


@pytest.mark.parametrize(("fields", "left"), [({}, 1), ({"removeOffset": "true"}, 0), ({"cleanOffset": "true"}, 0)])
def test_offsets_of_a_deleted_group_go_when_asked(world: World, peer: Peer, fields: dict[str, str], left: int) -> None:
    """REB-09: those of exactly that group, by the name of either release."""
    for group in ("g", "gg"):
        for topic in ("t", "t_g"):
            peer.ask(15, {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "1"})
    assert peer.ask(207, {"groupName": "g"} | fields).code == 0
    assert len(world.broker.offsets.topics_of("g")) == 2 * left
    assert world.broker.offsets.topics_of("gg") == ["t", "t_g"]
