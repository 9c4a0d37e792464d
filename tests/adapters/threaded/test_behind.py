"""Delay that a busy driver reports to its node: how long ago it saw that the bytes which it brings were there."""

from __future__ import annotations

import socket
import time
from itertools import count

import pytest

from mqproto.adapters.io.node_access import Stream
from mqproto.adapters.io.pollers import READ
from mqproto.adapters.threaded import driver as threaded
from mqproto.state.node.contract import Link
from tests.adapters.toys import Echo

#: What one read brings, and how many of them a turn takes until it sends what there is.
READ_SIZE, READS = 65_536, 8


class Listening(Echo):
    """Notes how far the driver was behind at each read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def received(self, link: Link, data: bytes, now: int) -> None:
        self.seen.append(self.behind)


def test_a_turn_with_much_to_read_makes_the_last_of_it_old(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Listening()
    driver = threaded.Driver(node, name="test")
    clock = count(1000, 100)
    monkeypatch.setattr(driver, "_now", lambda: next(clock))
    ours: list[socket.socket] = []
    theirs: list[socket.socket] = []
    try:
        for number in range(READS * 2 + 2):
            mine, other = socket.socketpair()
            mine.setblocking(False)
            for sock, option in ((mine, socket.SO_RCVBUF), (other, socket.SO_SNDBUF)):
                sock.setsockopt(socket.SOL_SOCKET, option, 4 * READ_SIZE)
            link = Link(f"peer:{number}")
            stream = Stream(link, mine)
            link.driver_slot = stream
            driver._streams[stream.fd] = stream
            driver._poller.register(stream.fd, READ)
            other.sendall(bytes(READ_SIZE))
            ours.append(mine)
            theirs.append(other)
        events = [(sock.fileno(), READ) for sock in ours]
        driver._receive(events, driver._now())
        assert node.seen == [100 * number for number in range(1, READS * 2 + 3)]
        theirs[0].sendall(b"more")
        driver._receive(events[:1], driver._now())
        assert node.seen[-1] == 100
    finally:
        driver.stop()
        for sock in theirs:
            sock.close()


def test_the_wall_clock_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Echo()
    driver = threaded.Driver(node, name="test")
    for monotonic, wall, ahead in (
        (5_000_000, 905_000_000, 900),
        (5_999_999, 405_000_000, 400),
        (6_000_000, 406_000_000, 400),
    ):
        monkeypatch.setattr(time, "monotonic_ns", lambda ns=monotonic: ns)
        monkeypatch.setattr(time, "time_ns", lambda ns=wall: ns)
        assert driver._now() == monotonic // 1_000_000
        assert node.wall_ahead == ahead
    monkeypatch.undo()
    driver.stop()
