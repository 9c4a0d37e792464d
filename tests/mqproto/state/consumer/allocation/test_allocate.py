"""Sharing queues out, against what Apache's own classes computed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import LocalProtocolError
from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import queue_order, text_order
from mqproto.state.consumer.allocation.allocate import Averagely, changes
from mqproto.wire.bodies import ConsumerIds, HeartbeatData
from mqproto.wire.codes import RequestCode
from tests.golden.golden import VERSIONS, Golden


def queues(names: list[str], topic: str = "T") -> list[MessageQueue]:
    split = [name.rpartition(":") for name in names]
    return [MessageQueue(topic, broker, int(number)) for broker, _, number in split]


def allocate(own: str, of: list[MessageQueue], ids: list[str]) -> list[MessageQueue]:
    return Averagely().allocate("g", own, sorted(of, key=queue_order), sorted(ids, key=text_order))


def test_shares_are_those_of_java(golden: Golden) -> None:
    vectors = [vector for vector in golden.vectors("allocate") if vector.input["strategy"] == "AVG"]
    assert len(vectors) == 60
    for vector in vectors:
        given_queues = queues(vector.input["queues"])
        for own, share in vector.output().items():
            assert Averagely().allocate("g", own, given_queues, vector.input["clients"]) == queues(share), vector.input


@pytest.mark.parametrize("version", VERSIONS[1:])  # 4.4 asks on a connection that says nothing of who asks
def test_members_of_a_recorded_group_took_the_queues_that_we_would(golden: Golden, version: str) -> None:
    """Two Java members, of which the second comes and goes: what each newly asked offsets of, after each list of
    members.
    """
    clients: dict[int, str] = {}
    lists: dict[str, list[list[str]]] = {}
    asked: dict[str, list[set[int]]] = {}
    for entry in golden.capture(version, "rebalance"):
        if entry.link != "client-broker" or not entry.frame:
            continue
        if entry.is_request and entry.code == RequestCode.HEART_BEAT:
            clients[entry.connection] = HeartbeatData.from_json(entry.body).client_id
        me = clients.get(entry.connection, "")
        if not entry.is_request and b"consumerIdList" in entry.body:
            ids = ConsumerIds.from_json(entry.body).client_ids
            if lists.setdefault(me, []) and lists[me][-1] == ids:
                continue
            lists[me].append(ids)
            asked.setdefault(me, []).append(set())
        if entry.is_request and entry.code == RequestCode.QUERY_CONSUMER_OFFSET and entry.fields["topic"] == "Shared":
            asked[me][-1].add(int(entry.fields["queueId"]))
    assert len(lists) == 2
    eight = queues([f"broker-a:{number}" for number in range(8)], "Shared")
    for me, seen in lists.items():
        own: set[int] = set()
        for ids, fresh in zip(seen, asked[me], strict=True):
            share = {queue.queue_id for queue in allocate(me, eight, ids)}
            assert fresh == share - own, (me, ids)
            own = share


def test_refusals_are_those_of_java(golden: Golden) -> None:
    vectors = [vector for vector in golden.vectors("allocate-edge") if vector.input["strategy"] == "AVG"]
    assert len(vectors) == 7
    for vector in vectors:
        given_queues = queues(vector.input["queues"] or [])
        own, ids = vector.input["client"] or "", vector.input["clients"] or []
        if vector.fails():
            with pytest.raises(LocalProtocolError, match="cannot share out queues in group g: no "):
                Averagely().allocate("g", own, given_queues, ids)
        else:
            assert Averagely().allocate("g", own, given_queues, ids) == queues(vector.output())


def test_queue_order_is_that_of_java(golden: Golden) -> None:
    (vector,) = golden.vectors("queue-order")
    assert vector.input == "sort of b:1 a:10 a:2 b:0", "of which the last is of topic S, the others of topic T"
    found = sorted([*queues(["b:1", "a:10", "a:2"]), *queues(["b:0"], "S")], key=queue_order)
    assert [f"{queue.broker_name}:{queue.queue_id}" for queue in found] == vector.output()


def test_broker_names_are_compared_as_text_and_queues_as_numbers() -> None:
    """REB-01: b-10 before b-9, but queue 9 before queue 10."""
    given_queues = queues(["b-9:0", "b-10:10", "b-10:9", "b-9:1"])
    assert sorted(given_queues, key=queue_order) == queues(["b-10:9", "b-10:10", "b-9:0", "b-9:1"])


def test_ids_are_ordered_by_utf16_units() -> None:
    """REB-01: a supplementary character sorts before U+FF5E, because its first half is a surrogate."""
    assert sorted(["～", "😀", "é", "a", "B"], key=text_order) == ["B", "a", "é", "😀", "～"]
    assert text_order("\ud800") < text_order("～"), "half a character, as Java strings may hold, does not fail"


def test_runs_are_contiguous_and_the_first_members_get_the_rest() -> None:
    """REB-01: 7 queues over 3 members, 2 queues over 3."""
    seven = queues([f"b:{number}" for number in range(7)])
    assert [len(allocate(own, seven, ["x", "y", "z"])) for own in "xyz"] == [3, 2, 2]
    assert allocate("y", seven, ["z", "y", "x"]) == seven[3:5]
    assert [len(allocate(own, seven[:2], ["x", "y", "z"])) for own in "xyz"] == [1, 1, 0]


@given(st.integers(1, 40), st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=9, unique=True))
def test_every_queue_has_exactly_one_owner(count: int, ids: list[str]) -> None:
    all_queues = queues([f"b:{number}" for number in range(count)])
    shares = [allocate(own, all_queues, ids) for own in sorted(ids, key=text_order)]
    assert [queue for share in shares for queue in share] == all_queues
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_changes_concern_one_topic() -> None:
    mine = [*queues(["b:0", "b:1"]), *queues(["b:0"], "other")]
    found = changes("T", mine, queues(["b:1", "b:3", "b:2"]))
    assert found.lost == queues(["b:0"])
    assert found.gained == queues(["b:2", "b:3"])
    assert found
    assert changes("T", mine, queues(["b:0"]))
    assert changes("T", mine, queues(["b:0", "b:1", "b:2"]))
    assert not changes("T", mine, queues(["b:1", "b:0"]))
