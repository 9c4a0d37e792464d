"""Groups of Java's members and ours on Apache's servers: members come, go and die while messages are sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from adapters.threaded import Admin, Producer
from tests.peers.conftest import need
from tests.peers.kit.mixing import Mixed
from tests.peers.kit.pairs import Pair, pairs

#: Two of Java's and two of ours for each server; of ours the first one is killed.
MEMBERS = {
    "apache:4.4.0": ("java-4.4.0", "java-4.9.7", "ours-threaded", "ours-trio"),
    "apache:4.9.7": ("java-4.9.7", "java-4.9.7", "ours-asyncio", "ours-threaded"),
    "apache:5.3.3": ("java-5.3.3", "java-4.9.7", "ours-gevent", "ours-asyncio"),
}


@contextmanager
def mixed(pair: Pair, **options: Any) -> Iterator[Mixed]:
    with Producer(pair.name("sender"), pair.server.names, send_msg_timeout=20_000) as producer, Admin(pair.server.names) as admin:
        yield Mixed(pair, producer, admin, **options)


@pairs(*[f"java-4.9.7 @ {server}" for server in MEMBERS])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.timeout(400)
def test_members_come_and_go(pair: Pair, orderly: bool) -> None:
    """Each queue has one owner, no message is lost, none comes twice while members stay.

    Orderly members keep each queue's order, whoever owns it, and none begins before another has ended. They are slow, so that queues move
    while messages are in work; more than that would cost time: Java keeps the lock of a queue with messages for 20 s.
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
