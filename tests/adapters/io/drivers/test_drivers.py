"""Drivers with any node: sockets, timers, jobs, tickets, back-pressure, ends."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto.adapters.io import sockets
from mqproto.adapters.io.sockets import listen, port_of
from mqproto.state.node.contract import Link
from tests.adapters.harness import PATIENCE, Proxy, Runtime
from tests.adapters.io.drivers.peers import Start, connect, heard, receive, receive_all
from tests.adapters.toys import Echo


def test_bytes_come_in_and_go_out(start: Start) -> None:
    node = Echo()
    _, port = start(node)
    with connect(port) as one, connect(port) as two:
        one.sendall(b"first")
        two.sendall(b"second")
        assert receive(two, 6) == b"second"
        assert receive(one, 5) == b"first"
    heard(node, "closed closed by the peer", 2)
    assert node.log[0] == "begin"
    assert node.log.count("accept main") == 2


def test_an_answer_larger_than_every_buffer_arrives_whole(start: Start) -> None:
    node = Echo()
    _, port = start(node)
    data = bytes(range(256)) * 65_536  # 16 MiB
    with connect(port) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        assert receive_all(sock, len(data)) == data
        sender.join(PATIENCE)


def test_many_buffers_and_views_are_sent_in_order(runtime: Runtime, start: Start) -> None:
    node = Echo()
    driver, port = start(node)
    pieces = [bytes([index % 251]) * (index * 37 % 20_000) for index in range(3000)]

    def write_pieces(now: int) -> None:
        for link in node.links:
            for piece in pieces:
                node.write(link, memoryview(piece))

    with connect(port) as sock:
        heard(node, "accept")
        driver.enter(write_pieces)
        expected = b"".join(pieces)
        assert receive_all(sock, len(expected)) == expected


def test_entries_of_one_turn_are_written_together(
    runtime: Runtime, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first at once, so that a single one never waits; the others when the loop turns, or when they have become
    many bytes.
    """
    writes: list[int] = []
    send_buffers = sockets.send_buffers

    def counted(sock: Any, buffers: list[Any]) -> list[Any]:
        writes.append(sum(map(len, buffers)))
        return send_buffers(sock, buffers)

    monkeypatch.setattr("mqproto.adapters.io.node_access.send_buffers", counted)
    node = Echo()
    driver, port = start(node)
    held, holds = threading.Event(), threading.Event()

    def hold(now: int) -> None:
        holds.set()
        held.wait(PATIENCE)

    def enter_often(count: int, data: bytes) -> list[int]:
        for _ in range(count):
            driver._target.enter(node.write_all, data, together=True)
        return list(writes)

    with connect(port) as sock:
        heard(node, "accept")
        if runtime.name.startswith("threaded"):  # elsewhere the loop does not turn while this function runs
            driver._target.feed(hold)
            holds.wait(PATIENCE)
        assert runtime.call(enter_often, 100, b"abc") == [3]
        held.set()
        assert receive(sock, 300) == b"abc" * 100
        assert sum(writes) == 300
        large = bytes(30_000)
        written = runtime.call(enter_often, 20, large)
        if not runtime.name.startswith("threaded"):  # there the loop may be at it itself
            assert len(written) > 4, "the peer does not wait for megabytes to gather"
        assert receive_all(sock, 600_000) == large * 20


def test_a_server_stops_reading_from_a_peer_that_does_not_read(start: Start) -> None:
    limit = 1 << 20
    node = Echo(unsent_limit=limit)
    _, port = start(node)
    total = 64 << 20
    with connect(port) as slow, connect(port) as other:
        sender = threading.Thread(target=slow.sendall, args=(bytes(total),))
        sender.start()
        other.sendall(b"alive")
        assert receive(other, 5) == b"alive"
        assert len(receive_all(slow, total)) == total
        sender.join(PATIENCE)
    assert node.most_unsent < limit + 2 * 65_536


def test_hanging_up_sends_the_rest_first(start: Start) -> None:
    node = Echo()
    _, port = start(node)
    with connect(port) as sock:
        sock.sendall(b"bye")
        assert receive(sock, 7) == b"see you"
        assert sock.recv(1) == b""
    assert not any(line.startswith("closed") for line in node.log)


def test_hanging_up_waits_for_a_peer_that_still_reads(start: Start) -> None:
    node = Echo()
    driver, port = start(node)
    size = 16 << 20  # more than the kernel takes at once

    def write_and_hang_up(now: int) -> None:
        for link in list(node.links):
            node.write(link, bytes(size))
            node.forget(link, "done")

    with connect(port) as sock:
        heard(node, "accept")
        driver.enter(write_and_hang_up)
        assert len(receive_all(sock, size)) == size
        assert sock.recv(1) == b""


def test_hanging_up_does_not_wait_long_for_a_peer_that_does_not_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.adapters.io.loop.HANG_UP_MS", 20)
    node = Echo()
    driver, port = start(node)

    def write_and_close(now: int) -> None:
        for link in list(node.links):
            node.write(link, bytes(64 << 20))
        node.close(now)

    with connect(port):
        heard(node, "accept")
        driver.enter(write_and_close)
        assert driver.stop(PATIENCE)


def test_a_connection_that_breaks_is_told_once(start: Start) -> None:
    node = Echo()
    driver, port = start(node)
    with connect(port) as sock:
        heard(node, "accept")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the end of `with` resets it
    heard(node, "closed")
    driver.enter(node.write_all, b"nobody there")
    with connect(port) as sock:
        sock.sendall(b"still here")
        assert receive(sock, 10) == b"still here"
    heard(node, "closed", 2)
    assert sum(line.startswith("closed") for line in node.log) == 2


def test_without_descriptors_a_listener_waits_and_goes_on(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mqproto.adapters.io.loop.ACCEPT_PAUSE_MS", 1)

    class Exhausted(socket.socket):
        failures = [errno.EMFILE, errno.ECONNABORTED, errno.ENFILE]  # noqa: RUF012

        def accept(self) -> Any:
            if self.failures:
                raise OSError(self.failures.pop(), "not now")
            return super().accept()

    listener = Exhausted(fileno=listen("127.0.0.1", 0, "toy").detach())
    port = port_of(listener)
    driver = Proxy(runtime, runtime.call(runtime.module.Driver, Echo(), {"main": listener}))
    driver.start()
    try:
        with connect(port) as sock:
            sock.sendall(b"at last")
            assert receive(sock, 7) == b"at last"
    finally:
        driver.stop(PATIENCE)
    assert caplog.text.count("cannot accept a connection") == 2


def test_time_never_runs_back_for_a_node(runtime: Runtime) -> None:
    node = Echo()

    class Overtaken(socket.socket):
        def accept(self) -> Any:
            """Between the begin of the loop's turn and its entry, a caller enters two milliseconds later."""
            accepted = super().accept()
            later = time.monotonic_ns() + 2_000_000
            while time.monotonic_ns() < later:
                pass
            driver._target.enter(node.note_time)
            return accepted

    listener = Overtaken(fileno=listen("127.0.0.1", 0, "toy").detach())
    port = port_of(listener)
    driver = Proxy(runtime, runtime.call(runtime.module.Driver, node, {"main": listener}))
    driver.start()
    try:
        with connect(port):
            heard(node, "accept")
    finally:
        driver.stop(PATIENCE)
    assert len(node.times) == 2
    assert node.times == sorted(node.times)


def test_nothing_comes_before_it_was_sent(start: Start) -> None:
    """By the wall clock, with which messages are stamped on both sides."""

    class Dated(Echo):
        def received(self, link: Link, data: bytes, now: int) -> None:
            self.times.append(now + self.wall_ahead)
            super().received(link, data, now)

    node = Dated()
    _, port = start(node)
    with connect(port) as sock:
        for _ in range(500):
            sent = time.time_ns() // 1_000_000
            sock.sendall(b"ping")
            assert receive(sock, 4) == b"ping"
            assert node.times[-1] >= sent


@pytest.mark.pure
def test_peers_that_were_first_are_answered_while_there_is_more_to_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.adapters.io.loop._EXCHANGE_SIZE", 4)
    go_on = threading.Event()
    unsent: list[int] = []

    class Busy(Echo):
        def received(self, link: Link, data: bytes, now: int) -> None:
            if data == b"hold":
                assert go_on.wait(PATIENCE)
            unsent.append(sum(other.unsent for other in self.links))
            super().received(link, data, now)

    node = Busy()
    _, port = start(node)
    with connect(port) as first, connect(port) as second, connect(port) as third:
        heard(node, "accept", 3)
        first.sendall(b"hold")
        second.sendall(b"two.")
        third.sendall(b"three")
        go_on.set()
        assert (receive(first, 4), receive(second, 4), receive(third, 5)) == (b"hold", b"two.", b"three")
    assert unsent == [0, 0, 0]


def test_a_refused_stream_is_closed(start: Start) -> None:
    node = Echo()
    node.refusing = True
    _, port = start(node)
    with connect(port) as sock:
        assert sock.recv(1) == b""


def test_the_timer_comes_and_an_idle_driver_does_not_turn(start: Start) -> None:
    node = Echo()
    driver, port = start(node)
    driver.enter(node.set_deadline, 5)
    heard(node, "timer")
    with connect(port) as sock:
        sock.sendall(b"x")
        assert receive(sock, 1) == b"x"
    heard(node, "closed")
    driver.enter(node.set_deadline, 400)
    turns = driver.turns
    heard(node, "timer", 2)
    assert driver.turns - turns <= 4


def test_an_earlier_deadline_wakes_a_sleeping_driver(start: Start) -> None:
    node = Echo()
    driver, _ = start(node)
    driver.enter(node.set_deadline, 3_600_000)
    driver.enter(node.set_deadline, 1)
    heard(node, "timer")


def test_jobs_run_beside_and_their_failures_come_back(start: Start) -> None:
    node = Echo()
    driver, port = start(node)
    held = threading.Event()

    def fail() -> None:
        raise OSError("no space")

    driver.enter(node.run, lambda: held.wait(PATIENCE))
    driver.enter(node.run, fail)
    heard(node, "done no space")
    with connect(port) as sock:
        sock.sendall(b"meanwhile")
        assert receive(sock, 9) == b"meanwhile"
    held.set()
    heard(node, "done None")


def test_deliveries_are_handed_on(start: Start) -> None:
    queue: SimpleQueue[object] = SimpleQueue()
    node = Echo()
    driver, _ = start(node, deliver=queue.put)
    driver.enter(node.deliver, "task")
    assert queue.get(timeout=PATIENCE) == "task"


def test_what_is_handed_over_may_begin_before_the_loop_goes_on(start: Start) -> None:
    """... unless it has something to send first: bytes that come make the loop hand over, and answer or not."""

    class Delivering(Echo):
        answers = False

        def received(self, link: Link, data: bytes, now: int) -> None:
            if self.answers:
                super().received(link, data, now)
            self.deliver(data, now)

    node = Delivering()
    order: SimpleQueue[object] = SimpleQueue()
    driver, port = start(node, deliver=order.put)
    driver._target.let_begin = lambda: order.put("begin")
    with connect(port) as sock:
        sock.sendall(b"a")
        assert [order.get(timeout=PATIENCE) for _ in range(2)] == [b"a", "begin"]
        node.answers = True
        sock.sendall(b"b")
        assert receive(sock, 1) == b"b"
        assert order.get(timeout=PATIENCE) == b"b"
        node.answers = False
        sock.sendall(b"c")
        assert [order.get(timeout=PATIENCE) for _ in range(2)] == [b"c", "begin"]
