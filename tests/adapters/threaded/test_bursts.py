"""Bursts: the driver's thread while a program starts much and does not wait for each."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from mqproto.adapters.io.node_access import Stream
from mqproto.adapters.io.pollers import READ
from mqproto.adapters.threaded.driver import Driver
from mqproto.state.node.contract import Link, Ticket
from tests.adapters.toys import Echo

MANY = 64


class Bursting:
    """A driver whose loop is turned by hand, with one connection; its pauses take no time."""

    def __init__(self) -> None:
        self.driver = Driver(Echo(), name="test")
        mine, self.peer = socket.socketpair()
        for sock in (mine, self.peer):
            sock.setblocking(False)
        self.link = Link("peer:1")
        self.link.driver_slot = stream = Stream(self.link, mine)
        self.driver._streams[stream.fd] = stream
        self.driver._poller.register(stream.fd, READ)
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.meanwhile()

    def turn(self, under_way: int, *, left: bool) -> float | None:
        """One turn: so many operations are under way, and callers have or have not left something to be written."""
        self.driver._pending.clear()
        self.driver._pending.update(Ticket() for _ in range(under_way))
        self.driver._written_soon = left
        return self.driver._turn([])

    def write(self) -> bytes:
        """A caller starts something that need not go out at once; what the peer has of it."""
        self.driver.enter(lambda now: self.driver.node.write(self.link, b"x"), together=True)  # type: ignore[attr-defined]
        return self.seen()

    def seen(self) -> bytes:
        try:
            return self.peer.recv(100)
        except BlockingIOError:
            return b""

    def wakes(self) -> bytes:
        """What was written to wake the loop."""
        try:
            return self.driver._waker.recv(100)
        except BlockingIOError:
            return b""


@pytest.fixture
def bursting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bursting]:
    made = Bursting()
    monkeypatch.setattr(time, "sleep", made.pause)
    yield made
    made.driver._pending.clear()
    made.driver.stop()
    made.peer.close()


def test_the_loop_pauses_only_where_many_are_under_way_and_more_comes(bursting: Bursting) -> None:
    idle = bursting.turn(0, left=False)
    assert bursting.turn(MANY - 1, left=True) == idle
    assert bursting.turn(MANY, left=False) == idle
    assert not bursting.pauses
    assert bursting.turn(MANY, left=True) == 0.0, "the next turn follows the pause"
    assert bursting.turn(100_000, left=True) == 0.0
    assert bursting.pauses == [pytest.approx(MANY * 2e-6), 1e-3]


def test_nobody_has_to_wake_a_loop_that_pauses(bursting: Bursting) -> None:
    bursting.meanwhile = bursting.driver.wake
    assert bursting.turn(MANY, left=True) == 0.0
    assert bursting.wakes() == b""
    bursting.driver.wake()
    assert bursting.wakes() == b"\0"


def test_a_loop_that_was_woken_does_not_pause(bursting: Bursting) -> None:
    bursting.driver.wake()
    bursting.turn(MANY, left=True)
    assert not bursting.pauses
    assert bursting.driver._woken


def test_a_loop_that_is_to_end_does_not_pause(bursting: Bursting) -> None:
    bursting.driver._quit = True
    timeout = bursting.turn(MANY, left=True)
    bursting.driver._quit = False
    assert timeout is not None
    assert timeout < 0
    assert not bursting.pauses


def test_in_a_burst_the_first_of_a_turn_waits_for_the_others(bursting: Bursting) -> None:
    assert bursting.write() == b"x", "the first never waits"
    assert bursting.write() == b"", "the second does"
    bursting.turn(MANY, left=True)
    assert bursting.seen() == b"x"
    bursting.turn(MANY, left=True)
    assert bursting.write() == b"", "although nothing was sent since the loop turned"
    bursting.turn(MANY, left=True)
    assert bursting.seen() == b"x"
    bursting.turn(MANY, left=False)
    assert bursting.write() == b"x", "the burst is over"
