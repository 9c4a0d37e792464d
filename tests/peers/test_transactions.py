"""Transaction producers of other people's making, and the questions that our broker asks them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.conftest import need
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Clients, Running, finish, wait_for
from tests.peers.kit.servers import Server, serve
from tests.peers.kit.steps import asked_about, pull, stored

CLIENTS = ("java-4.4.0", "java-4.9.7", "java-5.3.3")

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("transactions")
    quick = {
        "transactionCheckInterval": "1000",
        "transactionTimeOut": "500",
        "transactionCheckMax": "1000",
        "flushDiskType": request.param,
    }
    with serve("ours:threaded", home, 0, **quick) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def pair(request: pytest.FixtureRequest, server: Server, clients: Clients, tmp_path: Path) -> Pair:
    need(request.param)
    return Pair(server, clients[request.param], clients, _numbers)


OPTIONS: dict[str, Any] = {"tag": "TagT", "keys": "bought"}
#: For messages that nobody is to be asked about, however long their producer takes.
UNASKED: dict[str, Any] = {"props": "CHECK_IMMUNITY_TIME_IN_SECONDS:250"}


def begin(pair: Pair, topic: str, group: str, **options: Any) -> Running:
    """A producer that sends in transactions and stays, to be asked, until it is told to leave."""
    return pair.start("transact", topic=topic, group=group, checks=1000, **{**OPTIONS, "seconds": 200, **options})


def end(producer: Running) -> None:
    producer.stop()
    finish(producer, status=1)


def results(producer: Running, count: int) -> list[str]:
    """Ids of the messages that it has sent."""
    return [wait_for(producer, "queueOffset")["msgId"] for _ in range(count)]


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_decided_at_once(pair: Pair, outcome: str) -> None:
    topic, group = pair.topic("Decided"), pair.name("decided")
    done = pair.run("transact", topic=topic, group=group, count=3, outcome=outcome, **OPTIONS, **UNASKED)
    assert not [line for line in done.lines if "check" in line]
    messages = pull(pair, topic, 3 if outcome == "commit" else 0)
    assert sorted(line["body"] for line in messages) == [f"message-{n}" for n in range(len(messages))]
    assert [line["msgId"] for line in sorted(messages, key=lambda line: str(line["body"]))] == [
        line["msgId"] for line in done.sent[: len(messages)]
    ]


@pytest.mark.parametrize("check", ["commit", "rollback"])
def test_decided_when_asked(pair: Pair, check: str) -> None:
    """Who answers slowly is asked twice; that ends the transaction once."""
    topic, group = pair.topic("Asked"), pair.name("asked")
    producer = begin(pair, topic, group, count=3, outcome="unknown", check=check)
    sent = results(producer, 3)
    asked_about(producer, {f"message-{index}" for index in range(3)})
    messages = stored(pair, topic, set(sent)) if check == "commit" else []
    end(producer)
    if check != "commit":
        messages = pull(pair, topic, 0)
    assert sorted(line["msgId"] for line in messages) == (sorted(sent) if check == "commit" else [])
    assert {line["tags"] for line in messages} <= {"TagT"}


def test_a_compressed_message_is_asked_about_and_delivered(pair: Pair) -> None:
    topic, group = pair.topic("Packed"), pair.name("packed")
    producer = begin(pair, topic, group, count=1, outcome="unknown", size=20_000)
    sent = results(producer, 1)
    (message,) = stored(pair, topic, set(sent))
    end(producer)
    assert message["size"] == 20_000
    assert {line["transactionId"] for line in producer.outcome.lines if "check" in line} == set(sent)


def test_another_member_decides_for_one_that_has_left(pair: Pair) -> None:
    topic, group = pair.topic("Left"), pair.name("left")
    left = pair.run(
        "transact",
        topic=topic,
        group=group,
        count=2,
        outcome="unknown",
        checks=0,
        check="unknown",
        body="open",
        **OPTIONS,
    )
    # A producer of 5.x that has sent nothing knows no broker, and so no broker knows it.
    other = begin(pair, topic, group, count=1, outcome="rollback", check="commit", **UNASKED)
    asked_about(other, {"open-0", "open-1"})
    assert sorted(line["body"] for line in stored(pair, topic, {line["msgId"] for line in left.sent})) == [
        "open-0",
        "open-1",
    ]
    end(other)
    assert {line["body"] for line in other.outcome.lines if "check" in line} == {"open-0", "open-1"}
    again = pair.run(  # it waits for a question in vain
        "transact",
        topic=topic,
        group=group,
        count=1,
        outcome="rollback",
        checks=1,
        seconds=3,
        status=1,
        **OPTIONS,
        **UNASKED,
    )
    assert not [line for line in again.lines if "check" in line]
