"""Groups of Java's members and ours on Apache's servers: members come, go and die while messages are sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mqproto.adapters.threaded import Admin, Producer
from tests.peers.conftest import need
from tests.peers.kit.mixing import Mixed
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import finish, wait_for
from tests.peers.kit.steps import open_group, share_out

#: Two of Java's and two of ours for each server; of ours the first one is killed.
MEMBERS = {
    "apache:4.4.0": ("java-4.4.0", "java-4.9.7", "ours-threaded", "ours-trio"),
    "apache:4.9.7": ("java-4.9.7", "java-4.9.7", "ours-asyncio", "ours-threaded"),
    "apache:5.3.3": ("java-5.3.3", "java-4.9.7", "ours-gevent", "ours-asyncio"),
}


@contextmanager
def mixed(pair: Pair, **options: Any) -> Iterator[Mixed]:
    with (
        Producer(pair.name("sender"), pair.server.names, send_msg_timeout=60_000) as producer,
        Admin(pair.server.names) as admin,
    ):
        yield Mixed(pair, producer, admin, **options)


@pairs(*[f"java-4.9.7 @ {server}" for server in MEMBERS])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.timeout(800)
def test_members_come_and_go(pair: Pair, orderly: bool) -> None:
    """Each queue has one owner, no message is lost, none comes twice while members stay.

    Orderly members keep each queue's order, whoever owns it, and none begins before another has ended. They are slow,
    so that queues move while messages are in work; more than that would cost time: Java keeps the lock of a queue with
    messages for 20 s.
    """
    one, two, three, four = MEMBERS[pair.server.kind]
    for kind in (one, two):
        need(kind)
    options = {"work": 200, "pace": 0.4} if orderly else {}
    with mixed(pair, orderly=orderly, **options) as group:
        java, ours = group.join(b=one, d=three)
        group.settle()
        group.calm()
        group.join(a=four, e=two)  # which take queues from members of the other language
        group.settle()
        group.calm()
        group.leave(java)
        group.settle()
        group.calm()
        if not orderly or pair.server.kind == "apache:4.9.7":  # the locks of a dead member end after a minute
            group.kill(ours)
        else:
            group.leave(ours)
        group.join(c=one)
        group.settle()
        group.calm()
        group.end()
        if orderly:
            group.assert_order()


@pairs("ours-threaded @ apache:4.9.7")
def test_members_of_all_languages_share_the_queues(pair: Pair) -> None:
    """The C++ wrapper, Node, Go and ours: all of them compute the same shares, and each takes over from the others.

    C++, Node and Go cannot be told to look at their group more often than every 10 to 20 seconds.
    """
    others = ("cpp", "node", "go")
    for kind in (*others, "java-4.9.7"):
        need(kind)
    java = pair.other("java-4.9.7")
    topic, group = pair.topic("Languages"), pair.name("languages")
    open_group(pair, topic, group)  # the C++ client would begin a new group at the end of each queue
    options = {"topic": topic, "group": group, "expect": 10_000, "seconds": 280}
    cpp, node, go, ours = (
        one.start("consume", instance=pair.name("member"), **options)
        for one in (*(pair.other(kind) for kind in others), pair)
    )
    for member in (cpp, node, go, ours):
        wait_for(member, "started")
    shares = share_out(java, topic, [cpp, node, go, ours])
    assert sorted(number for share in shares for number in share) == [0, 1, 2, 3]
    node.stop()
    go.stop()
    shares = share_out(java, topic, [cpp, ours])
    assert sorted(number for share in shares for number in share) == [0, 1, 2, 3]
    cpp.stop()
    assert share_out(java, topic, [ours]) == [{0, 1, 2, 3}]
    ours.stop()
    for member in (cpp, node, go, ours):
        finish(member, status=None)


@pairs("ours-asyncio @ apache:4.9.7")
@pytest.mark.parametrize("kind", ["cpp", "go"])
def test_orderly_members_of_other_languages(pair: Pair, kind: str) -> None:
    """The locks that we give back are theirs at once.

    They leave without a word, and theirs would end after a minute. Node has no locks.
    """
    for program in (kind, "java-4.9.7"):
        need(program)
    java = pair.other("java-4.9.7")
    topic, group = pair.topic("Turns"), pair.name("turns")
    open_group(pair, topic, group)
    options = {"topic": topic, "group": group, "orderly": True, "expect": 10_000, "seconds": 280}
    ours = pair.start("consume", instance=pair.name("member"), **options)
    wait_for(ours, "started")
    assert share_out(java, topic, [ours]) == [{0, 1, 2, 3}]
    other = pair.other(kind).start("consume", instance=pair.name("member"), **options)
    wait_for(other, "started")
    shares = share_out(java, topic, [other, ours])
    assert sorted(number for share in shares for number in share) == [0, 1, 2, 3]
    ours.stop()
    assert share_out(java, topic, [other]) == [{0, 1, 2, 3}]
    other.stop()
    for member in (other, ours):
        finish(member, status=None)
