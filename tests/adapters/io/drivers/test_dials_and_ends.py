"""Drivers: dials, tickets, and how a driver ends."""

from __future__ import annotations

import socket
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto.adapters.io.sockets import listen, port_of
from mqproto.errors import StateError
from tests.adapters.harness import PATIENCE, Proxy, Runtime
from tests.adapters.io.drivers.peers import Start, connect, heard
from tests.adapters.toys import Caller, Echo


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
