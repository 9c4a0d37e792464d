"""Drivers with any node: sockets, timers, jobs, tickets, back-pressure, ends."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto.adapters.io import sockets
from mqproto.adapters.io.sockets import listen, port_of
from mqproto.errors import StateError
from mqproto.state.node.contract import Link
from tests.adapters.conftest import runtime_without_threads_left
from tests.adapters.harness import NAMES, PATIENCE, PORTABLE, Proxy, Runtime, wait_until
from tests.adapters.toys import Caller, Echo


@pytest.fixture(params=[*NAMES, *PORTABLE])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """Drivers are tested with every poller that they can have."""
    with runtime_without_threads_left(request.param) as opened:
        yield opened


Start = Callable[..., tuple[Any, int]]


@pytest.fixture
def start(runtime: Runtime) -> Iterator[Start]:
    """Start a driver for a node with one listener "main"; gives the driver and the port."""
    drivers: list[Proxy] = []

    def start_driver(node: Echo, **settings: Any) -> tuple[Any, int]:
        listener = listen("127.0.0.1", 0, "toy")
        port = port_of(listener)
        driver = Proxy(runtime, runtime.call(runtime.module.Driver, node, {"main": listener}, **settings))
        drivers.append(driver)
        driver.start()
        return driver, port

    yield start_driver
    for driver in drivers:
        driver.stop(PATIENCE)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        assert chunk, f"the connection ended after {len(data)} bytes"
        data += chunk
    return data


def heard(node: Echo, what: str, times: int = 1) -> None:
    wait_until(lambda: sum(line.startswith(what) for line in node.log) >= times, node.changed)


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


def receive_all(sock: socket.socket, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(1 << 20)
        assert chunk
        data += chunk
    return data


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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_dialling_by_number_and_by_name(start: Start, host: str) -> None:
    server = Echo()
    _, port = start(server)
    node = Caller()
    driver, _ = start(node)
    link = driver.enter(node.dial, f"{host}:{port}", 60_000)
    assert driver.wait(node.ask, link, b"12345678") == b"12345678"  # written before it was connected
    assert driver.wait(node.ask, link, b"abcdefgh") == b"abcdefgh"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "refused"),
        ("no port", ""),
        ("name.invalid:80", ""),
        ("x" * 300 + ".invalid:80", ""),
        ("[::1]:x", ""),
    ],
)
def test_a_dial_that_fails_says_why(start: Start, address: str, reason: str) -> None:
    node = Caller()
    driver, _ = start(node)
    driver.enter(node.dial, address, 60_000)
    heard(node, "closed")
    assert reason in node.log[-1].lower()


def test_a_dial_that_is_not_answered_times_out(start: Start) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(8)]
        try:
            for sock in waiting:  # a full backlog: the kernel answers no more
                sock.setblocking(False)
                sock.connect_ex(silent.getsockname())
            node = Caller()
            driver, _ = start(node)
            driver.enter(node.dial, address, 50)
            heard(node, "closed not connected within 50 ms")
        finally:
            for sock in waiting:
                sock.close()


def test_hanging_up_while_dialling(start: Start) -> None:
    node = Caller()
    driver, _ = start(node)
    # In one entry: a resolver that answers at once must not come between.
    driver.enter(lambda now: node.forget(node.dial("name.invalid:80", 60_000, now), "changed its mind"))
    assert driver.stop(PATIENCE)
    assert not any(line.startswith("closed") for line in node.log)


def test_a_ticket_that_is_settled_at_once(start: Start) -> None:
    node = Caller()
    driver, _ = start(node)
    with pytest.raises(KeyError, match="wrong"):
        driver.wait(node.answer_at_once, KeyError("wrong"))


def test_an_entry_that_fails_late_gives_its_operation_up(start: Start) -> None:
    """An interrupt may come at any place: here it comes when the operation has begun and the caller has no ticket
    yet.
    """
    server = Echo()
    _, port = start(server)
    node = Caller()
    driver, _ = start(node, cancel=node.cancel)
    link = driver.enter(node.dial, f"127.0.0.1:{port}", 60_000)
    assert driver.wait(node.ask, link, b"12345678") == b"12345678"
    take = node.data_to_send

    def interrupted(link: Any) -> Any:
        node.data_to_send = take  # type: ignore[method-assign]
        raise InterruptedError("now")

    node.data_to_send = interrupted  # type: ignore[method-assign]
    with pytest.raises(InterruptedError):
        driver.wait(node.ask, link, b"never sent")
    assert len(node.cancelled) == 1
    assert driver.wait(node.ask, link, b"abcdefgh")  # nobody is confused by what was left behind


def test_an_operation_that_cannot_end_any_more_raises(start: Start) -> None:
    server = Caller()  # never answers by itself
    _, port = start(server)
    node = Caller()
    driver, _ = start(node)
    link = driver.enter(node.dial, f"127.0.0.1:{port}", 60_000)
    failures: SimpleQueue[BaseException] = SimpleQueue()

    def ask() -> None:
        try:
            driver.wait(node.ask, link, b"anybody?")
        except BaseException as failure:
            failures.put(failure)

    asking = threading.Thread(target=ask)
    asking.start()
    heard(server, "accept")
    driver.stop(PATIENCE)
    assert isinstance(failures.get(timeout=PATIENCE), StateError)
    asking.join(PATIENCE)
    with pytest.raises(StateError):
        driver.enter(node.set_deadline, 1)


def test_stopping_is_orderly_and_harmless_twice(runtime: Runtime, start: Start) -> None:
    node = Echo()
    driver, port = start(node)
    with connect(port) as sock:
        heard(node, "accept")
        assert driver.stop(PATIENCE)
        assert sock.recv(1) == b""
    assert driver.stop(PATIENCE)
    with pytest.raises(ConnectionError):
        connect(port)


def test_stopping_before_the_start_gives_the_port_back(runtime: Runtime) -> None:
    listener = listen("127.0.0.1", 0, "toy")
    port = port_of(listener)
    driver = Proxy(runtime, runtime.call(runtime.module.Driver, Echo(), {"main": listener}))
    assert driver.stop(0.0)
    listen("127.0.0.1", port, "toy").close()


def test_a_node_that_does_not_end_is_cut_off(start: Start) -> None:
    class Stubborn(Echo):
        @property
        def ended(self) -> bool:
            return False

    node = Stubborn()
    driver, port = start(node)
    with connect(port) as sock:
        heard(node, "accept")
        assert not driver.stop(0.01)
        assert sock.recv(1) == b""


def test_a_fault_of_the_node_ends_the_driver_and_everybody_who_waits(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = Caller()  # never answers by itself
    _, port = start(server)

    class Faulty(Caller):
        def timer(self, now: int) -> None:
            if self.deadline is not None and now >= self.deadline:
                raise RuntimeError("a fault of the node")

    node = Faulty()
    driver, _ = start(node)
    link = driver.enter(node.dial, f"127.0.0.1:{port}", 60_000)

    def ask_and_fail(now: int) -> Any:
        node.deadline = now + 1
        return node.ask(link, b"question", now)

    with pytest.raises(StateError) as caught:
        driver.wait(ask_and_fail)
    assert caught.value.__cause__ is driver.failure
    assert not driver.stop(PATIENCE)
    assert "a fault of the node" in caplog.text


def test_twenty_threads_ask_through_one_driver(runtime: Runtime, start: Start) -> None:
    server = Echo()
    _, port = start(server)
    node = Caller()
    driver, _ = start(node)
    links = [driver.enter(node.dial, f"127.0.0.1:{port}", 60_000)]
    wrong: list[object] = []

    def ask(number: int) -> None:
        for _ in range(50):
            answer = driver.wait(node.ask, links[0], b"question")
            if answer != b"question":
                wrong.append(answer)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not wrong
    assert server.received_bytes == 20 * 50 * 8
