"""Steps that tests of several clients take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from typing import Any

from tests.peers.kit import wire
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Line, Outcome, Running, describe, wait_for

#: Apache's brokers forget a member whose connection is gone without a word after two minutes, and look every ten
#: seconds.
FORGOTTEN_S = 140


def pull(pair: Pair, topic: str, expect: int, seconds: float = 60, **options: Any) -> list[Line]:
    """What the queues of a topic hold, once they hold `expect` messages or the time is over."""
    until = time.monotonic() + seconds
    while True:
        messages = pair.run("pull", topic=topic, group=pair.name("puller"), **options).messages
        if len(messages) >= expect or time.monotonic() > until:
            return messages


def stored(pair: Pair, topic: str, ids: set[str], besides: Collection[str] = ()) -> list[Line]:
    """What the queues of a topic hold once they hold the messages with these ids, and none but `besides`."""
    until = time.monotonic() + 60
    while True:
        lines = [line for line in pull(pair, topic, len(ids)) if line["msgId"] not in besides]
        found = {line["msgId"] for line in lines}
        assert found <= ids, f"not sent: {found - ids}"
        if found == ids:
            return lines
        assert time.monotonic() < until, f"never stored: {ids - found}"


def asked_about(producer: Running, bodies: set[str], seconds: float = 120) -> list[Line]:
    """All questions about transactions that a producer has got, once it has got those about messages with these
    bodies.
    """
    until = time.monotonic() + seconds
    while True:
        asked = [line for line in producer.outcome.lines if "check" in line]
        if bodies <= {line["body"] for line in asked}:
            return asked
        wait_for(producer, "check", until - time.monotonic())


def find(pair: Pair, command: str, **options: Any) -> list[Line]:
    """What `query` by a key or `view` by an id finds: brokers put into their index a moment later what they have
    taken.
    """
    until = time.monotonic() + 60
    while not (outcome := pair.run(command, status=None, **options)).messages:
        assert time.monotonic() < until, outcome
    return outcome.messages


def offsets(pair: Pair, topic: str, group: str, **options: Any) -> list[Line]:
    """Offsets of every queue, by queue id."""
    return sorted(
        pair.run("offsets", topic=topic, group=group, **options).queues, key=lambda line: int(line["queueId"])
    )


def open_group(pair: Pair, topic: str, group: str) -> None:
    """Commit the first offset of each queue, one after the other.

    Apache's broker makes a group's table with the first commit and loses those that come in the same moment; a consumer
    that ends right after its first messages commits once only. Nobody joins the group for this: its members would share
    the queues with those who come.
    """
    wire.make_group(pair.server.broker, group)
    for queue_id in wire.queues_of(pair.server.names, topic):
        wire.commit(pair.server.broker, group, topic, queue_id, 0)


def committed(pair: Pair, topic: str, group: str, expect: list[int]) -> None:
    """Return when these are the group's offsets of all queues: a client that leaves does not wait for its last commits
    to be taken, and one that stays commits for the first time after ten seconds.

    The broker is asked by hand. A client of the group that lives for a second is a member of it, and takes queues from
    the others.
    """
    queues, until = wire.queues_of(pair.server.names, topic), time.monotonic() + 60
    while (found := [wire.committed(pair.server.broker, group, topic, queue_id) for queue_id in queues]) != expect:
        assert time.monotonic() < until, f"committed {found}, not {expect}"


def consume(pair: Pair, topic: str, group: str, expect: int, **options: Any) -> Outcome:
    """Consume until `expect` messages came; a little longer, to see that no more come."""
    return pair.run("consume", topic=topic, group=group, expect=expect, **{"settle": 100, "seconds": 120, **options})


def share_out(pair: Pair, topic: str, members: list[Running]) -> list[set[int]]:
    """Send to each of 4 queues until every member has taken from its share of them; returns the queues of each in the
    last round.

    A member that came or went is noticed by the others a moment later: until then messages may go to either, or to
    both.
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


def gather(member: Running, bodies: set[str], seconds: float = 90) -> list[Line]:
    """The messages with these bodies, once the member has got all of them."""
    found = gather_some(member, bodies, seconds)
    missing = sorted(bodies - {line["body"] for line in found})
    assert not missing, f"{len(missing)} of {len(bodies)} never came: {missing[:20]}; {describe(member.outcome)}"
    return found


def gather_some(member: Running, bodies: set[str], seconds: float) -> list[Line]:
    """The same, or what the member got of them in time, or before it ended."""
    until = time.monotonic() + seconds
    found: list[Line] = []
    while len({line["body"] for line in found}) < len(bodies) and (left := until - time.monotonic()) > 0:
        line = next_within(member, left)
        if line is not None and line.get("body") in bodies:
            found.append(line)
        elif line is None and member.waiting():  # its end is all that is left
            break
    return found


def move_back(
    pair: Pair, consumer: Running, bodies: set[str], mqadmin: Callable[..., str], group: str, topic: str, since: int
) -> None:
    """An operator moves a group back to a time (milliseconds): its consumer gets these messages once more.

    Release 5 tells a queue's consumer with its next pull, and on a busy machine has answered "nothing new" instead:
    then it is told again.
    """
    left = set(bodies)
    times, seconds = (3, 25) if pair.server.kind.startswith("apache:5") else (1, 90)
    for _ in range(times):
        said = mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(since))
        assert topic in said
        left -= {line["body"] for line in gather_some(consumer, left, seconds)}
        if not left:
            return
    raise AssertionError(f"not once more: {left}; {describe(consumer.outcome)}")


def traced(mqadmin: Callable[..., str], msg_id: str, *rows: str) -> str:
    """What mqadmin shows of a message once it shows these rows: brokers put into their index a moment later what they
    have taken.
    """
    text, until = "", time.monotonic() + 60
    while not all(re.search(row, text, re.MULTILINE) for row in rows):
        assert time.monotonic() < until, f"not all of {rows} in\n{text}"
        text = mqadmin("queryMsgTraceById", "-i", msg_id)
    return text


def next_within(running: Running, seconds: float) -> Line | None:
    """The next line if there is one soon."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if running.waiting():
            return running.next_line(1)
        time.sleep(0.001)
    return None
