"""QUERY_CONSUME_QUEUE 321 (docs/protocol/broker.md 2.18)."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.wire.bodies import QueueDump, QueueEntry
from mqproto.wire.fastjson import loads
from mqproto.wire.ids import java_hash
from tests.engine.broker.harness import Peer, World, heartbeat


def ask(peer: Peer, index: int = 0, count: int = 10, **changes: str) -> Command:
    return peer.ask(321, {"topic": "T", "queueId": "0", "index": str(index), "count": str(count)} | changes)


def entries(answer: Command) -> list[QueueEntry]:
    assert (answer.code, answer.remark) == (0, None)
    return QueueDump.from_json(answer.body).entries


@pytest.fixture
def filled(peer: Peer) -> Peer:
    for tag in ("a", "b", ""):
        peer.send("T", properties=f"TAGS\x01{tag}\x02" if tag else "")
    return peer


def test_entries(filled: Peer) -> None:
    answer = ask(filled)
    dump = QueueDump.from_json(answer.body)
    assert (dump.min_index, dump.max_index, dump.subscription, dump.filter_data) == (0, 3, None, None)
    sizes = [message.store_size for message in filled.messages("T")]
    assert dump.entries == [
        QueueEntry(0, sizes[0], java_hash("a")),
        QueueEntry(sizes[0], sizes[1], java_hash("b")),
        QueueEntry(sizes[0] + sizes[1], sizes[2], 0),
    ]
    assert set(loads(bytes(answer.body))) == {"maxQueueIndex", "minQueueIndex", "queueData"}


@pytest.mark.parametrize(
    ("index", "count", "expected"),
    [(0, 2, 2), (1, 1, 1), (2, 10, 1), (0, 0, 0), (0, -1, 0), (0, 2**31 - 1, 3)],
)
def test_a_part(filled: Peer, index: int, count: int, expected: int) -> None:
    assert len(entries(ask(filled, index, count))) == expected


def test_an_answer_is_bounded(filled: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.engine.broker.operators.queue_dumps.ENTRIES_MAX", 2)
    assert len(entries(ask(filled))) == 2


@pytest.mark.parametrize("index", [-1, 3, 2**63 - 1])
def test_outside_of_the_queue(filled: Peer, index: int) -> None:
    answer = ask(filled, index)
    assert (answer.code, answer.remark) == (0, f"Index {index} of 0@T is not exist!")
    dump = QueueDump.from_json(answer.body)
    assert (dump.entries, dump.min_index, dump.max_index) == ([], 0, 3)


def test_what_a_group_takes(world: World, filled: Peer) -> None:
    subscription = {"topic": "T", "subString": "b || c", "subVersion": 1, "codeSet": [7]}
    world.connect().heartbeat(heartbeat("c1", ("G",), subscriptionDataSet=[subscription]))
    dump = QueueDump.from_json(ask(filled, consumerGroup="G").body)
    assert [entry.matches for entry in dump.entries] == [False, True, False]
    assert dump.subscription is not None
    assert dump.subscription.expression == "b || c"
    assert dump.filter_data == "null"
    world.connect().heartbeat(heartbeat("c1", ("ALL",)))
    assert [entry.matches for entry in entries(ask(filled, consumerGroup="ALL"))] == [True] * 3
    world.connect().heartbeat(heartbeat("c1", ("BAD",), subscriptionDataSet=[subscription | {"subString": "||"}]))
    assert [entry.matches for entry in entries(ask(filled, consumerGroup="BAD"))] == [False] * 3


@pytest.mark.parametrize("group", ["nobody", "G"])
def test_a_group_that_does_not_consume_it(world: World, filled: Peer, group: str) -> None:
    world.connect().heartbeat(heartbeat("c1", ("G",), subscriptionDataSet=[]))
    dump = QueueDump.from_json(ask(filled, consumerGroup=group).body)
    assert dump.filter_data == f"{group}@T is not online!"
    assert [entry.matches for entry in dump.entries] == [False] * 3


def test_a_queue_on_the_disk() -> None:
    world = World(store={"cold_read_distance": 1})
    peer = world.connect()
    for _ in range(3):
        peer.send("T")
    world.hold_jobs = True
    peer.tell(321, {"topic": "T", "queueId": "0", "index": "0", "count": "2"})
    assert peer.read() == []
    world.run_held()
    (answer,) = peer.read()
    assert len(entries(answer)) == 2


def test_the_extension() -> None:
    world = World(store={"enable_consume_queue_ext": True})
    peer = world.connect()
    queue = world.store.queue("T", 0)
    world.store.writer.append(
        queue, b"x", b"", 0, 0, 0, bytes(8), bytes(8), 0, 0, 77, None, None, world.wall, b"\x05\x80"
    )
    (entry,) = entries(ask(peer))
    assert (entry.tags_code, entry.bit_map) == (77, "1000000000000101")
    assert loads(entry.extension or "") == {
        "bitMapSize": 2,
        "filterBitMap": "BYA=",
        "msgStoreTime": world.wall,
        "tagsCode": 77,
    }


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"topic": "U"}, "0@U is not exist!"),
        ({"queueId": "3"}, "3@T is not exist!"),
        ({"queueId": "-1"}, "-1@T is not exist!"),
        ({"topic": "-"}, "0@None is not exist!"),
        ({"index": "x"}, "index"),
        ({"count": "99999999999"}, "count"),
    ],
)
def test_what_is_refused(filled: Peer, changes: dict[str, str], remark: str) -> None:
    fields = {"topic": "T", "queueId": "0", "index": "0", "count": "10"} | changes
    answer = filled.ask(321, {name: value for name, value in fields.items() if value != "-"})
    assert answer.code == 1
    assert remark in (answer.remark or "")
