"""Reads that wait for the disk, without a broker: turns, limits and patience."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mqproto.engine.broker.core import waiting_reads
from mqproto.engine.broker.core.waiting_reads import WaitingReads
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Refused
from mqproto.engine.broker.statistics.store_stats import StoreStats
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import ColdRead, Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.state.node.contract import Job
from tests.engine.broker.stubs import WALL, StubNotices, StubPeer, StubTimers


class OneRead:
    """A read that gives its name."""

    def __init__(self, name: str) -> None:
        self.result = name

    def run(self) -> None:
        """There is nothing to do."""


class NoTraffic:
    messages_in = messages_out = reads_found = reads_missed = 0


class Tried:
    """Waiting reads, their jobs, and what came of them."""

    def __init__(self, **settings: Any) -> None:
        self.timers, self.notices = StubTimers(), StubNotices()
        store = Store.open(StoreSettings(store_path_root_dir="/store"), MemoryFiles(), wall=WALL)
        stats = StoreStats(self.timers, NoTraffic(), store, 0, lambda: False)
        self.jobs: list[Job] = []
        self.reads = WaitingReads(self.timers, self.notices, BrokerSettings(**settings), store, stats, self.jobs.extend)
        self.seen: list[str] = []

    def wait(self, peer: StubPeer, name: str, **options: Any) -> None:
        read = cast(ColdRead[str], OneRead(name))
        self.reads.wait(peer, read, self.seen.append, lambda refused: self.seen.append(refused.remark), **options)

    def end(self, failure: Exception | None = None) -> None:
        """The oldest job ends."""
        assert self.reads.done(self.jobs.pop(0), failure)


def test_links_take_turns_and_one_link_has_one_job() -> None:
    tried, one, other = Tried(), StubPeer(), StubPeer()
    for name in ("one 1", "one 2", "one 3"):
        tried.wait(one, name)
    tried.wait(other, "other 1")
    assert len(tried.jobs) == 2
    while tried.jobs:
        tried.end()
    assert tried.seen == ["one 1", "other 1", "one 2", "one 3"]
    assert not tried.reads.busy


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, peer = Tried(query_thread_pool_queue_capacity=2), StubPeer()
    for _ in range(3):  # one runs, two wait
        tried.wait(peer, "read")
    with pytest.raises(Refused) as caught:
        tried.wait(peer, "read")
    assert (caught.value.code, caught.value.remark) == (2, OVERLOAD)
    assert len(tried.reads) == 3


def test_a_peer_that_takes_nothing_waits() -> None:
    tried, peer = Tried(), StubPeer()
    peer.unsent = waiting_reads.LINK_UNSENT_MAX + 1
    tried.wait(peer, "read")
    tried.timers.advance(1000)
    assert tried.jobs == []
    peer.unsent = 0
    tried.timers.advance(50)
    assert len(tried.jobs) == 1


def test_what_waits_for_too_long_is_refused() -> None:
    tried, peer = Tried(), StubPeer()
    tried.wait(peer, "first")
    tried.wait(peer, "second", patience_ms=100)
    tried.timers.advance(101)
    text = "broker busy, start flow control for a while, period in queue: 101ms, size of queue: 1"
    assert tried.seen == [f"[TIMEOUT_CLEAN_QUEUE]{text}"]
    tried.end()
    assert tried.seen[1:] == ["first"]
    assert tried.jobs == []


def test_a_link_that_is_over_gets_nothing_but_what_is_needed_is_done() -> None:
    tried, peer = Tried(), StubPeer()
    tried.wait(peer, "first")
    tried.wait(peer, "second")
    tried.wait(peer, "needed", needed=True)
    peer.ended = True
    tried.reads.link_over(peer)
    tried.end()
    tried.end()
    assert tried.seen == ["needed"]
    assert not tried.reads.busy


def test_a_disk_that_fails_is_told() -> None:
    tried, peer = Tried(), StubPeer()
    tried.wait(peer, "read")
    tried.end(OSError("bad block"))
    assert tried.seen == ["the message store could not be read: bad block"]
    assert tried.notices == ["192.0.2.3:40000: a read failed: bad block"]
