"""Requests about many topics are worked on in slices: others go on between them, and the outcome is that of one go."""

from __future__ import annotations

import pytest

from mqproto.codec import Command, encode
from mqproto.engine.namesrv import node, registry
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfig, TopicList, TopicRoute, TopicTable
from mqproto.wire.codes import RequestCode
from tests.engine.namesrv.harness import Rig

COUNT = 10_000
NAMES = [f"topic-{number:05}" for number in range(COUNT)]
ROUTE, REGISTER = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.REGISTER_BROKER


def body(version: DataVersion, *, compressed: bool = False, perm: int = 6) -> bytes:
    table = TopicTable(version, {name: TopicConfig(name, 4, 4, perm) for name in NAMES})
    return RegisterBrokerBody(table).to_compressed() if compressed else RegisterBrokerBody(table).to_json()


FIRST = body(DataVersion(1, 1))


def begin(rig: Rig, link: Link, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> int:
    """A request whose answer takes a while; its opaque."""
    request = rig.request(code, fields, body)
    assert rig.send(link, encode(request)) == []
    return request.opaque


def slices(rig: Rig, link: Link, limit: int = 1000) -> tuple[Command, int]:
    """The next answer, and after how many more slices it came."""
    for count in range(1, limit):
        assert rig.node.next_deadline() == rig.now, "the next slice is due at once"
        rig.node.timer(rig.now)
        answers = rig.taken(link)
        if answers:
            (answer,) = answers
            return answer, count
    raise AssertionError("no answer")


def registered(rig: Rig, name: str = "broker-a", address: str = "10.0.0.1:10911", data: bytes = FIRST) -> Link:
    link = rig.connect()
    opaque = begin(rig, link, REGISTER, rig.broker(name, address), data)
    answer, _ = slices(rig, link)
    assert (answer.opaque, answer.code) == (opaque, 0)
    return link


def perm(rig: Rig, link: Link, topic: str) -> int | None:
    answer = rig.ask(link, ROUTE, {"topic": topic})
    return None if answer.code else TopicRoute.from_json(answer.body).queues[0].perm


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_takes_many_slices_and_routes_are_answered_between(compressed: bool) -> None:
    rig = Rig()
    broker, client = rig.connect(), rig.connect()
    data = body(DataVersion(1, 1), compressed=compressed)
    opaque = begin(rig, broker, REGISTER, {**rig.broker(), "compressed": str(compressed).lower()}, data)
    between = 0
    while not (answers := rig.taken(broker)):
        perm(rig, client, NAMES[0])
        between += 1
        rig.node.timer(rig.now)
    assert [(answer.opaque, answer.code) for answer in answers] == [(opaque, 0)]
    assert between > 80
    assert perm(rig, client, NAMES[-1]) == 6
    assert perm(rig, broker, NAMES[0]) == 6
    due = rig.node.next_deadline()
    assert due is not None
    assert due > rig.now


@pytest.mark.parametrize("compressed", [False, True])
def test_one_under_a_known_version_takes_next_to_nothing(compressed: bool) -> None:
    rig = Rig()
    data = body(DataVersion(1, 1), compressed=compressed)
    fields = {**rig.broker(), "compressed": str(compressed).lower()}
    link = registered(rig, data=FIRST)
    count = 1
    request = rig.request(REGISTER, fields, data)
    while not (answers := rig.send(link, encode(request)) if count == 1 else rig.taken(link)):
        rig.node.timer(rig.now)
        count += 1
    assert answers[0].code == 0
    assert count < 12
    assert perm(rig, link, NAMES[0]) == 6


def test_a_new_version_is_taken() -> None:
    rig = Rig()
    link = registered(rig)
    begin(rig, link, REGISTER, rig.broker(), body(DataVersion(2, 2), perm=4))
    slices(rig, link)
    assert perm(rig, link, NAMES[-1]) == 4


def test_a_broker_that_is_forgotten_while_its_topics_are_passed_over_is_taken_anew() -> None:
    rig = Rig()
    old = registered(rig)
    new = rig.connect()
    data = body(DataVersion(1, 1), compressed=True)
    begin(rig, new, REGISTER, {**rig.broker(), "compressed": "true"}, data)
    for _ in range(3):  # inflated, and among the topics
        rig.node.timer(rig.now)
    assert rig.taken(new) == []
    rig.node.closed(old, "reset by peer", rig.now)
    assert perm(rig, new, NAMES[0]) is None
    answer, count = slices(rig, new)
    assert answer.code == 0
    assert count > 80
    assert perm(rig, new, NAMES[-1]) == 6


def test_a_link_that_is_lost_in_the_middle_leaves_nothing() -> None:
    rig = Rig()
    client, broker = rig.connect(), rig.connect()
    begin(rig, broker, REGISTER, rig.broker(), FIRST)
    while not rig.node.state.registry.topics:
        rig.node.timer(rig.now)
    rig.node.closed(broker, "reset by peer", rig.now)
    rig.advance(1)
    held = rig.node.state.registry
    assert (held.topics, held.brokers, held.live) == ({}, {}, {})
    assert perm(rig, client, NAMES[0]) is None
    registered(rig)
    assert len(held.topics) == COUNT


def test_a_broker_that_comes_anew_in_the_middle_overtakes_itself() -> None:
    """By another link; what the first one still brings does not count."""
    rig = Rig()
    old, new = rig.connect(), rig.connect()
    first = begin(rig, old, REGISTER, rig.broker(), FIRST)
    while not rig.node.state.registry.topics:
        rig.node.timer(rig.now)
    rig.register(new, topics=[TopicConfig(NAMES[-1], 4, 4, 4), TopicConfig("New")], version=DataVersion(2, 2))
    answer, _ = slices(rig, old)
    assert (answer.opaque, answer.code) == (first, 0)
    assert perm(rig, new, NAMES[-1]) == 4
    assert rig.ask(new, RequestCode.QUERY_DATA_VERSION, rig.broker(), DataVersion(2, 2).to_json()).fields == {
        "changed": "false"
    }


def test_a_name_that_is_taken_away_in_the_middle() -> None:
    """Its next holder goes meanwhile: no entry is left over that nobody would remove."""
    rig = Rig()
    old, new = rig.connect(), rig.connect()
    begin(rig, old, REGISTER, rig.broker(), FIRST)
    while not rig.node.state.registry.topics:
        rig.node.timer(rig.now)
    rig.register(new, address="10.0.0.1:20911", version=DataVersion(5, 5))
    rig.ask(new, RequestCode.UNREGISTER_BROKER, rig.broker(address="10.0.0.1:20911"))
    slices(rig, old)
    rig.advance(1)
    assert rig.node.state.registry.topics == {}


def test_a_broker_that_goes_is_out_of_routes_at_once_and_its_topics_soon() -> None:
    rig = Rig()
    link, client = registered(rig), rig.connect()
    rig.node.closed(link, "reset by peer", rig.now)
    assert perm(rig, client, NAMES[-1]) is None
    assert rig.node.state.registry.topics
    rig.advance(1)
    assert rig.node.state.registry.topics == {}


def test_a_broker_that_comes_back_before_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has other topics by now; the old ones go, those that are its own stay."""
    rig = Rig()
    link, client = registered(rig), rig.connect()
    rig.node.closed(link, "reset by peer", rig.now)
    new = rig.connect()
    rig.register(new, topics=(NAMES[0], NAMES[-1], NAMES[-3], "New"), version=DataVersion(9, 9))
    rig.ask(client, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": NAMES[-1]})
    rig.ask(client, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": NAMES[-2]})
    rig.advance(1)
    assert sorted(rig.node.state.registry.topics) == ["New", NAMES[0], NAMES[-3]]
    monkeypatch.setattr(registry, "ENTRIES_MAX", 4)
    rig.register(new, topics=(NAMES[0], "New", "Newer"), version=DataVersion(9, 10))
    answer = rig.ask(
        new,
        REGISTER,
        rig.broker(),
        RegisterBrokerBody(TopicTable(DataVersion(9, 11), {"X": TopicConfig("X")})).to_json(),
    )
    assert answer.code == 1, "the count of entries is right"


def test_changes_of_one_link_stay_in_order() -> None:
    rig = Rig()
    link = rig.connect()
    first = begin(rig, link, REGISTER, rig.broker(), FIRST)
    second = begin(rig, link, RequestCode.UNREGISTER_BROKER, rig.broker())
    assert [slices(rig, link)[0].opaque for _ in range(2)] == [first, second]
    rig.advance(1)
    assert rig.node.state.registry.topics == {}


def test_links_take_turns() -> None:
    rig = Rig()
    one, two = rig.connect(), rig.connect()
    begin(rig, one, REGISTER, rig.broker(), FIRST)
    small = rig.register(two, "broker-b", "10.0.0.2:10911")
    assert small.code == 0, "what is short is answered at once"


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}),
        (RequestCode.GET_UNIT_TOPIC_LIST, {}),
    ],
)
def test_long_lists(code: int, fields: dict[str, str]) -> None:
    rig = Rig()
    table = TopicTable(DataVersion(1, 1), {name: TopicConfig(name, sys_flag=1) for name in NAMES})
    registered(rig, data=RegisterBrokerBody(table).to_json())
    registered(rig, "broker-b", "10.0.0.2:10911")
    link = rig.connect()
    begin(rig, link, code, fields)
    answer, count = slices(rig, link)
    assert TopicList.from_json(answer.body).topics == NAMES
    assert count > 5


def test_a_long_namespace() -> None:
    rig = Rig()
    for name in NAMES:
        rig.node.state.kv.put("N", name, "broker-a:4;broker-b:4")
    link = rig.connect()
    begin(rig, link, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    answer, _ = slices(rig, link)
    assert KVTable.from_json(answer.body).table == dict.fromkeys(NAMES, "broker-a:4;broker-b:4")


def test_write_permission_of_many_topics() -> None:
    rig = Rig()
    link = registered(rig)
    begin(rig, link, RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    rig.ask(rig.connect(), RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": NAMES[0]})
    answer, count = slices(rig, link)
    assert int(answer.fields["wipeTopicCount"]) in (COUNT - 1, COUNT)
    assert count >= COUNT // registry.SLICE_TOPICS
    assert perm(rig, link, NAMES[1]) == 4


# --- limits ---


def test_a_peer_that_does_not_take_its_long_answers_waits() -> None:
    rig = Rig()
    registered(rig)
    link = rig.connect()
    link.unsent = node.LONG_UNSENT_MAX + 1
    rig.node.received(link, encode(rig.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)), rig.now)
    assert rig.node.next_deadline() == rig.now + node.PAUSE_MS
    rig.advance(node.PAUSE_MS)
    assert link.out == []
    link.unsent = 0
    rig.advance(node.PAUSE_MS)
    assert len(rig.taken(link)) == 1


@pytest.mark.pure
def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes of one peer, of all, and by number."""
    monkeypatch.setattr(node, "PEER_HELD_MAX", 3 * len(FIRST))
    monkeypatch.setattr(node, "HELD_MAX", 4 * len(FIRST))
    rig = Rig()
    one, two = rig.connect(), rig.connect()
    for _ in range(3):
        begin(rig, one, REGISTER, rig.broker(), FIRST)
    for link, code in ((one, 2), (one, 2)):
        assert rig.ask(link, REGISTER, rig.broker(), FIRST).code == code
    begin(rig, two, REGISTER, rig.broker("b", "10.0.0.2:10911"), FIRST)
    assert rig.ask(two, REGISTER, rig.broker("b", "10.0.0.2:10911"), FIRST).code == 2
    rig.node.closed(one, "reset by peer", rig.now)
    for _ in range(2):
        begin(rig, two, REGISTER, rig.broker("b", "10.0.0.2:10911"), FIRST)
    assert rig.ask(two, REGISTER, rig.broker("b", "10.0.0.2:10911"), FIRST).code == 2
    for _ in range(3):
        assert slices(rig, two)[0].code == 0
    begin(rig, two, REGISTER, rig.broker("b", "10.0.0.2:10911"), body(DataVersion(2, 2)))
    for _ in range(63):
        begin(rig, two, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert rig.ask(two, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == 2


def test_the_end_drops_what_is_under_way() -> None:
    rig = Rig()
    link = rig.connect()
    begin(rig, link, REGISTER, rig.broker(), FIRST)
    rig.node.close(rig.now)
    assert rig.node.ended
    assert rig.node.next_deadline() is None


def test_what_cannot_be_read_is_told_in_the_middle_of_it() -> None:
    rig = Rig()
    link = rig.connect()
    begin(
        rig, link, REGISTER, rig.broker(), FIRST.replace(f'"topicName":"{NAMES[-1]}"'.encode(), b'"readQueueNums":"x"')
    )
    answer, _ = slices(rig, link)
    assert answer.code == 1
    assert rig.node.state.registry.brokers == {}
    assert rig.ask(link, REGISTER, rig.broker()).code == 0
