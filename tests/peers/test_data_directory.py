"""A data directory outlives its broker: the next one over it, ours or Apache's, serves what the last one was given."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.peers.conftest import need
from tests.peers.kit.checks import Sent, assert_same
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Clients
from tests.peers.kit.servers import Server, free_port, serve
from tests.peers.kit.steps import committed, consume, find, offsets, open_group, pull

JAVA = "java-4.9.7"
#: The last level is long enough for a broker to end and another one to start meanwhile.
DELAYS = " ".join(["1s"] * 17 + ["12s"])


Talk = Callable[[Server], Pair]


@pytest.fixture
def talk(clients: Clients) -> Talk:
    """Puts the Java client beside a server."""
    need(JAVA)
    numbers = itertools.count(1)
    return lambda server: Pair(server, clients[JAVA], clients, numbers)


def fill(pair: Pair, topic: str, mark: str) -> list[Sent]:
    """Messages of every kind that the log can hold."""
    return [
        *pair.produce(
            topic=topic,
            count=8,
            shard=4,
            tag="TagA,TagB",
            keys=f"{mark}-key",
            body=f"{mark}-one",
            props="color:red,n:#",
        ),
        *pair.produce(topic=topic, count=5, mode="batch", tag="TagC", keys=f"{mark}-batch", body=f"{mark}-batch"),
        *pair.produce(topic=topic, count=2, size=20_000 + len(mark), tag="TagP", keys=f"{mark}-packed"),
        *pair.produce(topic=topic, count=1, tag="标签", keys=f"{mark}-键", body=f"{mark}-你\U0001f600", props="имя:ü"),
    ]


def check(pair: Pair, topic: str, sent: list[Sent], late: list[Sent]) -> None:
    """All of it is there, and found by key and id.

    What is `late` may be there already: a busy machine takes long to change brokers.
    """
    waiting = {message.body.decode() for message in late}
    assert_same(pair.server, sent, [line for line in pull(pair, topic, len(sent)) if line["body"] not in waiting])
    for message in (sent[3], sent[-1]):
        assert_same(pair.server, [message], find(pair, "query", topic=topic, key=message.keys))
        assert_same(pair.server, [message], find(pair, "view", topic=topic, id=message.msg_id))


@pytest.mark.parametrize("adapter", ["threaded", "gevent", "asyncio", "trio"])
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_our_broker_comes_back_with_everything(talk: Talk, tmp_path: Path, adapter: str, crash: bool) -> None:
    port = free_port()
    with serve(f"ours:{adapter}", tmp_path, port) as server:
        pair = talk(server)
        sent = fill(pair, "Kept", "first")
        assert_same(server, sent, consume(pair, "Kept", "kept", len(sent)).messages)
        before = [line["max"] for line in offsets(pair, "Kept", "kept")]
        committed(pair, "Kept", "kept", before)
        late = pair.produce(topic="Later", count=1, body="late", delay=18)
        if crash:
            server.crash()
    with serve(f"ours:{adapter}", tmp_path, port) as server:
        pair = talk(server)
        check(pair, "Kept", sent, [])
        if not crash:  # offsets are saved every few seconds: after a crash the group gets some messages again
            committed(pair, "Kept", "kept", before)
            more = pair.produce(topic="Kept", count=3, body="more")
            assert_same(server, more, consume(pair, "Kept", "kept", 3).messages)
        assert_same(server, late, consume(pair, "Later", "later", 1).messages)


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7"])
@pytest.mark.parametrize("first", ["ours", "apache"])
def test_brokers_take_over_each_others_directories(talk: Talk, tmp_path: Path, version: str, first: str) -> None:
    need(f"apache:{version}")
    kinds = ["ours:threaded", f"apache:{version}"]
    port = free_port()
    sent: list[Sent] = []
    late: list[Sent] = []
    before: list[int] = []
    for turn, kind in enumerate([*kinds, kinds[0]] if first == "ours" else [*reversed(kinds), kinds[1]]):
        with serve(kind, tmp_path, port, messageDelayLevel=DELAYS) as server:
            pair = talk(server)
            if turn:
                check(pair, "Moved", sent, late)
                committed(pair, "Moved", "movers", before)
            new = fill(pair, "Moved", f"turn{turn}")
            if not turn:
                open_group(pair, "Moved", "movers")
            # The group goes on behind what it has consumed, and gets what the last broker had in its delay queue.
            received = consume(pair, "Moved", "movers", len(new) + len(late), seconds=120).messages
            assert_same(server, [*new, *late], received)
            waited = [
                line["storeTimestamp"] - line["bornTimestamp"] for line in received if line["body"].startswith("late")
            ]
            assert len(waited) == len(late)
            assert all(each >= 12_000 for each in waited), "delivered before its time"
            sent += [*new, *late]
            before = [line["max"] for line in offsets(pair, "Moved", "movers")]
            committed(pair, "Moved", "movers", before)
            if version != "4.4.0":  # which forgets at its end what it has delivered of its delay queues
                late = pair.produce(topic="Moved", count=1, body=f"late{turn}", keys=f"late{turn}", delay=18)
                late[0].offset_msg_id = late[0].queue_id = late[0].queue_offset = None
