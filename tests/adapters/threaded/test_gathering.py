"""Gathering: the driver's thread when much comes that is for nobody, each a turn of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from mqproto.adapters.io.sockets import listen
from mqproto.adapters.threaded.driver import Driver
from mqproto.state.node.contract import Ticket
from tests.adapters.toys import Echo

ROW = 16


class Turned(Driver):
    """Turned by hand, at times that the test says; its pauses take no time."""

    def __init__(self, **settings: Any) -> None:
        self.time = 1_000
        self.toy = Echo()
        self.pauses: list[float] = []
        super().__init__(self.toy, deliver=lambda task: None, name="test", **settings)

    def _now(self) -> int:
        self._seen = self.time
        return self.time

    def turn(self, times: int = 1, apart_ms: int = 0) -> int:
        """So many turns; how many of them paused."""
        self.pauses.clear()
        for _ in range(times):
            self._turn([])
            self.time += apart_ms
        return self.pauses.count(0.001)


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turned]:
    driver = Turned()
    monkeypatch.setattr(time, "sleep", driver.pauses.append)
    yield driver
    driver.stop()


@pytest.mark.parametrize("apart_ms", [0, 3])
def test_it_gathers_what_comes_in_a_row(turned: Turned, apart_ms: int) -> None:
    assert turned.turn(ROW, apart_ms) == 0, "the first one is no part of a row"
    assert turned.turn(3, apart_ms) == 3


def test_turns_far_apart_are_no_row(turned: Turned) -> None:
    assert turned.turn(3 * ROW, apart_ms=4) == 0


def test_a_pause_ends_the_row(turned: Turned) -> None:
    turned.turn(2 * ROW)
    turned.time += 4
    assert turned.turn(ROW) == 0


@pytest.mark.parametrize("what", [Ticket(), "a delivery"])
def test_a_turn_for_somebody_ends_the_row(turned: Turned, what: object) -> None:
    turned.turn(2 * ROW)
    if isinstance(what, Ticket):
        turned._pending.add(what)
        what.wake = lambda: None
        turned.toy.actions.append(what)
    else:
        turned.toy.deliver(what, turned.time)
    assert turned.turn() == 0
    assert turned.turn(ROW - 1) == 0
    assert turned.turn() == 1


def test_what_is_to_be_done_at_once_is_not_put_off(turned: Turned) -> None:
    turned.turn(2 * ROW)
    turned.toy.deadline = turned.time
    turned.toy.timer = lambda now: None  # type: ignore[method-assign]  # it stays due
    assert turned.turn() == 0


def test_a_server_does_not_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is one that somebody waits for."""
    driver = Turned(listeners={"main": listen("127.0.0.1", 0, "toy")})
    monkeypatch.setattr(time, "sleep", driver.pauses.append)
    assert driver.turn(3 * ROW) == 0
    driver.stop()
