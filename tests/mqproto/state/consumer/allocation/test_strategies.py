"""Strategies against what Apache's own classes computed, and those of applications."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import InvalidSetting, LocalProtocolError
from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import text_order
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy
from mqproto.state.consumer.allocation.strategies import (
    Allocation,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    find_strategy,
    is_plain,
)
from tests.golden.golden import FOLLOWED, Golden


class Rooms:
    """What stands before the @."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("@")[0]

    def consumer_deploy_in(self, client_id: str) -> str:
        return client_id.partition("@")[0]


def queues(names: list[str], topic: str = "TopicA") -> list[MessageQueue]:
    split = [name.rpartition(":") for name in names]
    return [MessageQueue(topic, broker, int(number)) for broker, _, number in split]


def strategy_of(label: str) -> Strategy:
    """The strategy that a vector's label means."""
    kind, _, rest = label.partition(" ")
    if kind == "CONSISTENT_HASH" and rest:
        return ConsistentHash(int(rest.split()[0]))
    if kind == "MACHINE_ROOM_NEARBY":
        return MachineRoomNearby(find_strategy(rest), Rooms())
    if kind == "MACHINE_ROOM":
        return ByMachineRoom(rest.split(","))
    if kind == "CONFIG":
        return ByConfig(queues(rest.split()))
    return find_strategy(kind)


def test_shares_are_those_of_java(golden: Golden) -> None:
    """Of 4.9.7 where releases differ: before 4.8.0 MACHINE_ROOM allocated queues of other rooms."""
    vectors = golden.vectors("allocate")
    assert len(vectors) == 203
    for vector in vectors:
        strategy = strategy_of(vector.input["strategy"])
        given_queues = queues(vector.input["queues"])
        for own, share in vector.output(FOLLOWED).items():
            assert strategy.allocate("g", own, given_queues, vector.input["clients"]) == queues(share), vector.input


def test_refusals_are_those_of_java(golden: Golden) -> None:
    for vector in golden.vectors("allocate-edge"):
        strategy = strategy_of(vector.input["strategy"])
        given_queues = queues(vector.input["queues"] or [])
        own, ids = vector.input["client"] or "", vector.input["clients"] or []
        if vector.fails():
            with pytest.raises(LocalProtocolError, match="cannot share out queues in group g: no "):
                strategy.allocate("g", own, given_queues, ids)
        else:
            assert strategy.allocate("g", own, given_queues, ids) == queues(vector.output())


ROOMS = st.sampled_from(["r1", "r2", "r3"])
NAMES = st.builds(lambda room, number: f"{room}@b:{number}", ROOMS, st.integers(0, 30))
IDS = st.builds(lambda room, name: f"{room}@{name}", ROOMS, st.text(min_size=1, max_size=4))
QUEUES = st.lists(NAMES, min_size=1, max_size=40, unique=True)
MEMBERS = st.lists(IDS, min_size=1, max_size=9, unique=True)


@given(QUEUES, MEMBERS)
def test_every_queue_has_exactly_one_owner(names: list[str], ids: list[str]) -> None:
    ids.sort(key=text_order)
    of = sorted(queues(names))
    ways: list[Strategy] = [AveragelyByCircle(), ConsistentHash(), ConsistentHash(1), ByMachineRoom(["r1", "r2", "r3"])]
    ways += [MachineRoomNearby(inner, Rooms()) for inner in (Averagely(), AveragelyByCircle(), ConsistentHash())]
    for way in ways:
        owned = [queue for own in ids for queue in way.allocate("g", own, of, ids)]
        assert sorted(owned) == of, way.name


def test_names_that_heads_of_groups_show() -> None:
    assert [one.name for one in (AveragelyByCircle(), ByConfig([]), ByMachineRoom([]), ConsistentHash())] == [
        "AVG_BY_CIRCLE",
        "CONFIG",
        "MACHINE_ROOM",
        "CONSISTENT_HASH",
    ]
    assert MachineRoomNearby(AveragelyByCircle(), Rooms()).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"


def test_a_configured_list_is_taken_topic_by_topic() -> None:
    """Queues that the topic does not have (any more) are nobody's to pull from."""
    way = ByConfig([*queues(["b:0", "b:7"]), *queues(["b:1"], "other")])
    assert way.allocate("g", "me", queues(["b:0", "b:1"]), ["me"]) == queues(["b:0"])
    assert way.allocate("g", "me", queues(["b:0", "b:1"], "other"), ["me"]) == queues(["b:1"], "other")


@pytest.mark.parametrize("name", ["b", "r1@", "r1@b@c", "r9@b"])
def test_brokers_that_are_in_no_room(name: str) -> None:
    assert ByMachineRoom(["r1"]).allocate("g", "me", [MessageQueue("TopicA", name, 0)], ["me"]) == []


def test_a_room_that_cannot_be_told_is_an_error() -> None:
    class Blank(Rooms):
        def consumer_deploy_in(self, client_id: str) -> str:
            return ""

    with pytest.raises(LocalProtocolError, match="no machine room of me"):
        MachineRoomNearby(Averagely(), Blank()).allocate("g", "me", queues(["b:0"]), ["me"])


def test_a_ring_takes_a_hash_of_the_applications_own() -> None:
    way = ConsistentHash(1, len)
    assert not is_plain(way)
    assert way.allocate("g", "a", queues(["b:0", "b:10"]), ["a", "bb"]) == queues(["b:0", "b:10"]), (
        "beyond all points the smallest follows"
    )
    assert ConsistentHash().allocate("g", "\ud800", queues(["b:0"]), ["\ud800"]) == queues(["b:0"]), (
        "half a character does not fail"
    )


@pytest.mark.parametrize("count", [-1, 0, 10_001])
def test_a_ring_has_points(count: int) -> None:
    with pytest.raises(InvalidSetting, match="virtual_nodes"):
        ConsistentHash(count)


def test_rooms_are_a_collection() -> None:
    with pytest.raises(InvalidSetting, match="rooms"):
        ByMachineRoom("r1")


# --- what applications give


class Own:
    name = "OWN"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def allocate(self, group: str, own_id: str, queues: object, client_ids: object) -> object:
        return self.answer


@pytest.mark.parametrize("wanted", ["AVG_BY_CIRKLE", "", None, 7, Own, object()])
def test_what_is_no_strategy(wanted: object) -> None:
    with pytest.raises(InvalidSetting, match="allocate_message_queue_strategy"):
        find_strategy(wanted)


def test_strategies_are_found_by_name_or_taken_as_they_are() -> None:
    for name in ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"):
        found = find_strategy(name)
        assert (found.name, is_plain(found)) == (name, True)
    own: object = Own([])
    taken = find_strategy(own)
    assert taken is own
    assert not is_plain(taken)
    assert is_plain(ByConfig([]))
    assert not is_plain(MachineRoomNearby(Averagely(), Rooms())), "it asks the application where things are"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "instead of a list"),
        ("T", "instead of a list"),
        (["T"], "none of the queues"),
        (queues(["b:5"]), "none of the queues"),
        (queues(["b:0", "b:0"]), "twice"),
    ],
)
def test_wrong_answers_are_refused(answer: object, why: str) -> None:
    job = Allocation(find_strategy(Own(answer)), "g", "me", queues(["b:0", "b:1"]), ["me"])
    with pytest.raises(LocalProtocolError, match=f"strategy OWN .*{why}"):
        job.run()
    assert job.share == []


def test_right_answers_are_taken() -> None:
    for answer in (queues(["b:1"]), tuple(queues(["b:1"])), []):
        job = Allocation(find_strategy(Own(answer)), "g", "me", queues(["b:0", "b:1"]), ["me"])
        job.run()
        assert job.share == list(answer)
