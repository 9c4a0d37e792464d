"""Steps that tests of several clients take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.peers.kit import wire
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Line, Outcome, Running

GET_CONSUMER_LIST_BY_GROUP = 38
#: Apache's brokers forget a member whose connection is gone without a word after two minutes, and look every ten seconds.
FORGOTTEN_S = 140


def pull(pair: Pair, topic: str, expect: int, seconds: float = 60, **options: Any) -> list[Line]:
    """What the queues of a topic hold, once they hold `expect` messages or the time is over."""
    until = time.monotonic() + seconds
    while True:
        messages = pair.run("pull", topic=topic, group=pair.name("puller"), **options).messages
        if len(messages) >= expect or time.monotonic() > until:
            return messages


def find(pair: Pair, command: str, **options: Any) -> list[Line]:
    """What `query` by a key or `view` by an id finds: brokers put into their index a moment later what they have taken."""
    until = time.monotonic() + 60
    while not (outcome := pair.run(command, status=None, **options)).messages:
        assert time.monotonic() < until, outcome
    return outcome.messages


def offsets(pair: Pair, topic: str, group: str, **options: Any) -> list[Line]:
    """Offsets of every queue, by queue id."""
    return sorted(pair.run("offsets", topic=topic, group=group, **options).queues, key=lambda line: int(line["queueId"]))


def open_group(pair: Pair, topic: str, group: str) -> None:
    """Commit the first offset of each queue, one after the other (with the Java client).

    Apache's broker makes a group's table with the first commit and loses those that come in the same moment; a consumer that ends right
    after its first messages commits once only.
    """
    pair.run("pull", topic=topic, group=group, max=0)
    empty(pair, group)


def empty(pair: Pair, group: str) -> None:
    """Wait until the broker knows no member of a group whose clients have ended.

    Java's client sends heartbeats from a thread of its own. One that is under way when the client ends is taken after its UNREGISTER and
    even after the end of its connection, and the broker then counts a member that is not there among those that share the queues.
    """
    until = time.monotonic() + FORGOTTEN_S
    while wire.ask(pair.server.broker, GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})[0]["code"] == 0:
        assert time.monotonic() < until, f"{group} still has members"


def committed(pair: Pair, topic: str, group: str, expect: list[int]) -> None:
    """The group's offset of every queue; a client that leaves does not wait for its last commits to be taken, and one that stays commits
    for the first time after ten seconds."""
    until = time.monotonic() + 60
    while (found := [line["committed"] for line in offsets(pair, topic, group)]) != expect:
        assert time.monotonic() < until, f"committed {found}, not {expect}"


def consume(pair: Pair, topic: str, group: str, expect: int, **options: Any) -> Outcome:
    """Consume until `expect` messages came; a little longer, to see that no more come."""
    return pair.run("consume", topic=topic, group=group, expect=expect, **{"settle": 100, "seconds": 120, **options})


def share_out(pair: Pair, topic: str, members: list[Running]) -> list[set[int]]:
    """Send to each of 4 queues until every member has taken from its share of them; returns the queues of each in the last round.

    A member that came or went is noticed by the others a moment later: until then messages may go to either, or to both.
    """
    until = time.monotonic() + 120
    while True:
        mark = pair.name("round")
        sent = pair.produce(topic=topic, count=8, body=mark)
        left = {message.body.decode() for message in sent}
        taken: list[set[int]] = [set() for _ in members]
        while left:
            assert time.monotonic() < until, f"{left} were not consumed"
            for queues, member in zip(taken, members, strict=True):
                line = next_within(member, 0.01)
                if line is not None and line.get("body", "").startswith(mark):
                    queues.add(line["queueId"])
                    left.discard(line["body"])
        if all(len(queues) == 4 // len(members) for queues in taken) and sum(len(queues) for queues in taken) == 4:
            return taken
        assert time.monotonic() < until, f"queues stayed with {taken}"


def gather(member: Running, bodies: set[str], seconds: float) -> list[Line]:
    """The messages with these bodies, as soon as the member has got all of them, or what it got of them in time."""
    until = time.monotonic() + seconds
    found: list[Line] = []
    while len({line["body"] for line in found}) < len(bodies) and (left := until - time.monotonic()) > 0:
        line = next_within(member, left)
        if line is not None and line.get("body") in bodies:
            found.append(line)
    return found


def move_back(pair: Pair, consumer: Running, bodies: set[str], mqadmin: Callable[..., str], group: str, topic: str, since: int) -> None:
    """An operator moves a group back to a time (milliseconds): its consumer gets these messages once more.

    Release 5 tells a queue's consumer with its next pull, and on a busy machine has answered "nothing new" instead: then it is told again.
    """
    left = set(bodies)
    for _ in range(3 if pair.server.kind.startswith("apache:5") else 1):
        said = mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(since))
        assert topic in said
        left -= {line["body"] for line in gather(consumer, left, 25)}
        if not left:
            return
    raise AssertionError(f"not once more: {left}")


def next_within(running: Running, seconds: float) -> Line | None:
    """The next line if there is one soon."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if running.waiting():
            return running.next_line(1)
        time.sleep(0.001)
    return None
