"""Parked pulls: found by queue, expired exactly, bounded."""

from __future__ import annotations

from mqproto.engine.broker.core.parked_pulls import LINK_SHARE, ParkedPull, ParkedPulls
from mqproto.state.node.contract import Link


class Queue:
    def __init__(self) -> None:
        self.parked: object | None = None


def test_pulls_wait_on_their_queue_in_order() -> None:
    parked = ParkedPulls(100)
    queue, other = Queue(), Queue()
    first, second = ParkedPull(Link("a:1"), queue, 10), ParkedPull(Link("b:1"), queue, 5)
    assert parked.park(first)
    assert parked.park(second)
    assert parked.waiting(queue) == [first, second]
    assert parked.waiting(other) == []
    assert len(parked) == 2


def test_a_queue_that_nobody_waits_on_bears_no_trace() -> None:
    parked = ParkedPulls(100)
    queue = Queue()
    pull = ParkedPull(Link("a:1"), queue, 10)
    parked.park(pull)
    assert queue.parked is not None
    parked.remove(pull)
    parked.remove(pull)
    assert queue.parked is None
    assert (len(parked), parked.next_deadline()) == (0, None)


def test_expiry_is_exact_and_in_order() -> None:
    parked = ParkedPulls(100)
    queue = Queue()
    link = Link("a:1")
    late, early = ParkedPull(link, queue, 20), ParkedPull(link, queue, 10)
    parked.park(late)
    parked.park(early)
    assert parked.next_deadline() == 10
    assert parked.expired(9) == []
    assert parked.expired(10) == [early]
    assert parked.waiting(queue) == [late]
    assert parked.expired(100) == [late]
    assert queue.parked is None


def test_a_link_takes_its_pulls_along() -> None:
    parked = ParkedPulls(100)
    queue = Queue()
    gone, stays = Link("a:1"), Link("b:1")
    for n in range(3):
        parked.park(ParkedPull(gone, queue, n))
    kept = ParkedPull(stays, queue, 7)
    parked.park(kept)
    parked.gone(gone)
    parked.gone(gone)
    assert parked.waiting(queue) == [kept]
    assert parked.next_deadline() == 7


def test_places_are_bounded_and_no_peer_takes_them_all() -> None:
    parked = ParkedPulls(8)
    greedy = Link("a:1")
    taken = [parked.park(ParkedPull(greedy, Queue(), 1)) for _ in range(8)]
    assert taken.count(True) == 8 // LINK_SHARE
    others = [parked.park(ParkedPull(Link(f"b:{n}"), Queue(), 1)) for n in range(8)]
    assert others.count(True) == 8 - 8 // LINK_SHARE
    refused = ParkedPull(Link("c:1"), Queue(), 1)
    assert not parked.park(refused)
    assert refused.queue.parked is None
