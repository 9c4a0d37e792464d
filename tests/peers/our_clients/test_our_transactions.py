"""Our transaction producer, and our requests and replies, against Apache's servers, with Apache's Java client at the
other end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.peers.conftest import Servers, need
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import Clients, JavaClient, JavaStep, Line, ProcessStep, Running, finish, wait_for
from tests.peers.kit.steps import asked_about, pull, stored

SERVERS = ("apache:4.4.0", "apache:4.9.7", "apache:5.3.3")
RUNTIMES = ("threaded", "gevent", "asyncio", "trio")
#: Threads with each server and every runtime with one of them. The others: test_our_runtimes.
SOME = [
    *[f"ours-threaded @ {server}" for server in SERVERS],
    *[f"ours-{runtime} @ apache:4.9.7" for runtime in RUNTIMES[1:]],
]
#: Those of them that know requests.
WITH_REQUESTS = [name for name in SOME if not name.endswith("4.4.0")]
JAVA = "java-4.9.7"
#: Asks about transactions after a second, and each second again, for as long as it takes until somebody knows. Release
#: 5 writes down ends in lots, and asks until it has: soon here.
CURIOUS = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "500",
    "transactionCheckMax": "1000",
    "transactionOpBatchInterval": "10",
}

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def curious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that ask about transactions soon."""
    running = Servers(tmp_path_factory.mktemp("curious"), **CURIOUS)
    yield running
    running.close()


@pytest.fixture
def ours(request: pytest.FixtureRequest, curious: Servers, clients: Clients) -> Pair:
    kind, _, server = request.param.partition(" @ ")
    need(server)
    need(JAVA)
    return Pair(curious[server], clients[kind], clients, _numbers)


def with_checks(names: Sequence[str]) -> pytest.MarkDecorator:
    """Parametrises `ours`, with ids of which `spreading` knows that these servers are not those of other tests."""
    return pytest.mark.parametrize(
        "ours", names, ids=[name.replace(" @ apache:", "@curious:") for name in names], indirect=True
    )


def java(pair: Pair) -> Pair:
    """The same server with the Java client."""
    return pair.other(JAVA)


OPTIONS: dict[str, Any] = {"tag": "TagT", "keys": "bought"}


def begin(pair: Pair, topic: str, group: str, **options: Any) -> Running:
    """A producer that sends in transactions and stays, to be asked, until it is told to leave."""
    return pair.start("transact", topic=topic, group=group, checks=1000, **{**OPTIONS, "seconds": 200, **options})


# --- transactions -----------------------------------------------------------------------------------------------------


@pairs(*SOME)
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_decided_at_once(pair: Pair, outcome: str) -> None:
    """By servers that give it six seconds before they ask."""
    topic, group = pair.topic("Decided"), pair.name("decided")
    done = pair.run("transact", topic=topic, group=group, count=3, outcome=outcome, size=20_000, **OPTIONS)
    assert not [line for line in done.lines if "check" in line]
    messages = pull(java(pair), topic, 3 if outcome == "commit" else 0)
    assert sorted(line["msgId"] for line in messages) == (
        sorted(line["msgId"] for line in done.sent) if outcome == "commit" else []
    )
    assert {(line["tags"], line["size"]) for line in messages} <= {("TagT", 20_000)}


def ask(ours: Pair, outcome: str, check: str) -> None:
    """Three messages that nothing was decided about, and what came of them when the broker had asked.

    It asks until it has heard the answer, and a slow one makes it ask twice: then Apache's commits twice.
    """
    topic, group = ours.topic("Asked"), ours.name("asked")
    producer = begin(ours, topic, group, count=3, outcome=outcome, check=check)
    ids = {wait_for(producer, "queueOffset")["msgId"] for _ in range(3)}
    asked = asked_about(producer, {f"message-{index}" for index in range(3)})
    assert {(line["topic"], line["check"] in ids) for line in asked} == {(topic, True)}
    if check == "commit":
        stored(java(ours), topic, ids)
    producer.stop()
    finish(producer, status=1)
    if check != "commit":
        assert pull(java(ours), topic, 0) == []


@with_checks(SOME)
def test_decided_when_asked(ours: Pair) -> None:
    ask(ours, "unknown", "commit")


@with_checks(SOME)
@pytest.mark.parametrize(("outcome", "check"), [("unknown", "rollback"), ("fail", "commit")])
def test_refused_when_asked_and_decided_after_a_failure(ours: Pair, outcome: str, check: str) -> None:
    ask(ours, outcome, check)


def leave_open(pair: Pair, topic: str, group: str) -> tuple[list[Line], Running]:
    """Two messages whose transactions nobody has decided, and the producer that is still there."""
    running = begin(pair, topic, group, count=2, outcome="unknown", check="unknown", body="open")
    return [wait_for(running, "queueOffset") for _ in range(2)], running


def decide(pair: Pair, topic: str, group: str) -> list[Line]:
    """Another member of the group decides about them; what it was asked.

    It knows the broker by a message of its own, which nobody gets.
    """
    other = begin(pair, topic, group, count=1, outcome="rollback", check="commit")
    own = wait_for(other, "queueOffset")["msgId"]
    asked = [line for line in asked_about(other, {"open-0", "open-1"}) if line["transactionId"] != own]
    # release 5 writes down an end seconds later, and asks
    stored(java(pair), topic, {line["transactionId"] for line in asked}, {own})
    other.stop()
    finish(other, status=1)
    return asked


@with_checks(SOME)
def test_java_decides_for_one_of_ours_that_was_killed(ours: Pair) -> None:
    topic, group = ours.topic("Killed"), ours.name("killed")
    sent, running = leave_open(ours, topic, group)
    assert isinstance(running, ProcessStep)
    running.kill()
    finish(running, status=None)
    assert {line["transactionId"] for line in decide(java(ours), topic, group)} == {line["msgId"] for line in sent}


@with_checks(SOME)
def test_we_decide_for_one_of_javas_that_was_killed(ours: Pair) -> None:
    topic, group = ours.topic("Killed"), ours.name("killed")
    theirs = JavaClient(JAVA.removeprefix("java-"))
    try:
        sent, running = leave_open(Pair(ours.server, theirs, ours.clients, ours.number), topic, group)
        assert isinstance(running, JavaStep)
        theirs._process.kill()
    finally:
        theirs.close()
    assert {(line["body"], line["check"], line["topic"]) for line in decide(ours, topic, group)} == {
        (f"open-{index}", line["msgId"], topic) for index, line in enumerate(sent)
    }


@with_checks(SOME)
def test_members_of_a_group_decide_for_each_other(ours: Pair) -> None:
    """A Java producer and ours at the same time: the broker asks either, whoever has sent the message."""
    topic, group = ours.topic("Mixed"), ours.name("mixed")
    members = [begin(pair, topic, group, count=5, outcome="unknown", check="commit") for pair in (java(ours), ours)]
    sent = [wait_for(member, "queueOffset")["msgId"] for member in members for _ in range(5)]
    assert len(set(sent)) == 10
    stored(java(ours), topic, set(sent))
    for member in members:
        member.stop()
    outcomes = [finish(member, status=1) for member in members]
    assert {line["transactionId"] for outcome in outcomes for line in outcome.lines if "check" in line} == set(sent)


# --- requests and replies ---------------------------------------------------------------------------------------------

requests_known = pairs(*WITH_REQUESTS)


def request_and_reply(requester: Pair, replier: Pair, **options: Any) -> None:
    topic, group = requester.topic("Request"), requester.name("request")
    responder = replier.start("reply", topic=topic, group=group, expect=4, seconds=120)
    wait_for(responder, "started")
    outcome = requester.run("request", topic=topic, count=4, body="question", seconds=120, **options)
    replies = [line for line in outcome.lines if "reply" in line]
    assert [line["reply"] for line in replies] == [f"reply to question-{index}" for index in range(4)]
    assert len({line["correlation"] for line in replies}) == 4
    if not requester.client.kind.startswith("ours-"):
        # others leave with the last reply, at times before they confirm it: whoever gave it hears that it failed
        responder.stop()
    answered = [line for line in finish(responder, status=None).lines if "answered" in line]
    assert len(answered) == 4 or (len(answered) == 3 and not requester.client.kind.startswith("ours-"))


@requests_known
def test_java_answers_us(pair: Pair) -> None:
    request_and_reply(pair, java(pair))


@requests_known
def test_we_answer_java(pair: Pair) -> None:
    request_and_reply(java(pair), pair)


@pairs("ours-threaded @ apache:4.9.7", "ours-asyncio @ apache:5.3.3")
def test_java_of_the_newest_release_answers_us(pair: Pair) -> None:
    """It cannot ask: from 5.3.1 on its wait ends with the acknowledgement of the send (docs/protocol/client.md
    3.13).
    """
    need("java-5.3.3")
    request_and_reply(pair, pair.other("java-5.3.3"))


@pairs("ours-threaded @ apache:4.9.7", "ours-asyncio @ apache:5.3.3")
def test_go_and_we(pair: Pair) -> None:
    need("go")
    request_and_reply(pair, pair.other("go"))
    request_and_reply(pair.other("go"), pair)


@pairs("ours-threaded @ apache:4.9.7", "ours-asyncio @ apache:5.3.3")
def test_several_questions_at_once(pair: Pair) -> None:
    topic, group = pair.topic("Many"), pair.name("many")
    responder = java(pair).start("reply", topic=topic, group=group, expect=50, seconds=120)
    wait_for(responder, "started")
    outcome = pair.run("request", topic=topic, count=50, body="question", mode="async", seconds=120)
    assert {line["reply"] for line in outcome.lines if "reply" in line} == {
        f"reply to question-{index}" for index in range(50)
    }
    finish(responder)


@pairs("ours-threaded @ apache:4.9.7", "ours-asyncio @ apache:5.3.3")
def test_nobody_answers(pair: Pair) -> None:
    outcome = pair.run("request", topic=pair.topic("Silent"), seconds=1, status=2)
    assert outcome.lines[-1]["error"] == "RequestTimeout"
