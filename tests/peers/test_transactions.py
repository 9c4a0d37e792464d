"""Transaction producers of other people's making, and the questions that our broker asks them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.conftest import need
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Clients, Outcome
from tests.peers.kit.servers import Server, serve
from tests.peers.kit.steps import pull

CLIENTS = ("java-4.4.0", "java-4.9.7", "java-5.3.3")

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("transactions")
    quick = {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "flushDiskType": request.param}
    with serve("ours:threaded", home, 0, **quick) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def pair(request: pytest.FixtureRequest, server: Server, clients: Clients, tmp_path: Path) -> Pair:
    need(request.param)
    return Pair(server, clients[request.param], clients, _numbers)


def transact(pair: Pair, topic: str, group: str, **options: Any) -> Outcome:
    return pair.run("transact", topic=topic, group=group, tag="TagT", keys="bought", **options)


def asked(outcome: Outcome) -> list[str]:
    return sorted(line["body"] for line in outcome.lines if "check" in line)


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_decided_at_once(pair: Pair, outcome: str) -> None:
    topic, group = pair.topic("Decided"), pair.name("decided")
    done = transact(pair, topic, group, count=3, outcome=outcome)
    assert asked(done) == []
    messages = pull(pair, topic, 3 if outcome == "commit" else 0)
    assert sorted(line["body"] for line in messages) == [f"message-{n}" for n in range(len(messages))]
    assert [line["msgId"] for line in sorted(messages, key=lambda line: str(line["body"]))] == [
        line["msgId"] for line in done.sent[: len(messages)]
    ]


@pytest.mark.parametrize("check", ["commit", "rollback"])
def test_decided_when_asked(pair: Pair, check: str) -> None:
    topic, group = pair.topic("Asked"), pair.name("asked")
    done = transact(pair, topic, group, count=3, outcome="unknown", check=check, checks=3)
    assert asked(done) == ["message-0", "message-1", "message-2"]
    messages = pull(pair, topic, 3 if check == "commit" else 0)
    assert sorted(line["msgId"] for line in messages) == (sorted(line["msgId"] for line in done.sent) if check == "commit" else [])
    assert {line["tags"] for line in messages} <= {"TagT"}


def test_a_compressed_message_is_asked_about_and_delivered(pair: Pair) -> None:
    topic, group = pair.topic("Packed"), pair.name("packed")
    done = transact(pair, topic, group, count=1, outcome="unknown", checks=1, size=20_000)
    assert len(asked(done)) == 1
    (message,) = pull(pair, topic, 1)
    assert message["size"] >= 1


def test_another_member_decides_for_one_that_has_left(pair: Pair) -> None:
    topic, group = pair.topic("Left"), pair.name("left")
    transact(pair, topic, group, count=2, outcome="unknown", checks=0, check="unknown")
    # A producer of 5.x that has sent nothing knows no broker, and so no broker knows it.
    done = transact(pair, topic, group, count=1, outcome="rollback", checks=2, check="commit")
    assert set(asked(done)) == {"message-0", "message-1"}
    assert sorted(line["body"] for line in pull(pair, topic, 2)) == ["message-0", "message-1"]
    again = transact(pair, topic, group, count=1, outcome="rollback", checks=1, seconds=3, status=1)  # it waits for a question in vain
    assert asked(again) == []
