"""Listening, dialling and sending without a driver."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.adapters.io import sockets
from mqproto.adapters.io.pollers import READ, WRITE, SelectorPoller
from mqproto.adapters.io.sockets import (
    ListenFailed,
    PortTaken,
    broker_listeners,
    close_listeners,
    connect_failure,
    listen,
    local_ip,
    peer_address,
    port_of,
    resolve,
    resolve_number,
    send_buffers,
)
from mqproto.errors import InvalidSetting
from mqproto.state.node.contract import Buffer


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.settimeout(10)
        yield left, right


def test_a_free_pair_of_ports() -> None:
    listeners = broker_listeners("127.0.0.1", 0)
    assert port_of(listeners["main"]) - port_of(listeners["fast"]) == 2
    again = broker_listeners("127.0.0.1", 0)
    close_listeners(again)
    close_listeners(listeners)


def test_given_ports_are_taken_or_not_at_all() -> None:
    listeners = broker_listeners("127.0.0.1", 0)
    main, fast = port_of(listeners["main"]), port_of(listeners["fast"])
    with pytest.raises(PortTaken, match=f":{main} "):
        broker_listeners("127.0.0.1", main)
    listeners["main"].close()
    with pytest.raises(PortTaken, match=f":{fast} "):
        broker_listeners("127.0.0.1", main)
    listen("127.0.0.1", main, "main").close()  # the refused one has given it back
    close_listeners(listeners)


@pytest.mark.parametrize("port", [1, 2, -1, 70_000])
def test_ports_that_cannot_be(port: int) -> None:
    with pytest.raises(InvalidSetting):
        broker_listeners("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no such host.invalid", "192.0.2.1", "x" * 64])
def test_hosts_that_cannot_be_listened_on(host: str) -> None:
    with pytest.raises(ListenFailed) as caught:
        listen(host, 0, "toy")
    assert (caught.value.host, caught.value.role) == (host, "toy")


def test_no_free_pair_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(host: str, port: int, role: str) -> socket.socket:
        if port:
            raise PortTaken(host, port, role)
        return listen(host, port, role)

    monkeypatch.setattr(sockets, "listen", taken)
    with pytest.raises(ListenFailed, match="no pair"):
        broker_listeners("127.0.0.1", 0)


def test_addresses() -> None:
    assert [info[4] for info in resolve_number("127.0.0.1:80") or ()] == [("127.0.0.1", 80)]
    assert [info[4][:2] for info in resolve_number("[::1]:80") or ()] == [("::1", 80)]
    assert resolve_number("localhost:80") is None
    assert ("127.0.0.1", 80) in [info[4] for info in resolve("localhost:80")]
    for text in ("", "80", ":80", "host:", "host:x", "host:70000"):
        with pytest.raises(ValueError, match="is no host"):
            resolve_number(text)
    with pytest.raises(ValueError, match="not a host name"):
        resolve("x" * 64 + ":80")
    assert local_ip().count(".") == 3


def test_what_a_peer_is_called() -> None:
    with listen("127.0.0.1", 0, "toy") as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, name = listener.accept()
        with accepted:
            assert peer_address(accepted, name) == (f"127.0.0.1:{port_of(client)}", f"127.0.0.1:{port_of(listener)}")
            assert peer_address(accepted, ("::ffff:127.0.0.1", 5, 0, 0))[0] == "127.0.0.1:5"
            assert peer_address(accepted, ("fe80::1", 5, 0, 0))[0] == "[fe80::1]:5"
            assert peer_address(accepted, "")[0] == ""


def test_a_socket_that_met_itself_is_not_connected() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        assert connect_failure(sock) == "connection refused"
    with socket.socket() as sock:
        assert connect_failure(sock) != ""


@pytest.mark.parametrize("has_sendmsg", [True, False])
@given(sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=40))
def test_everything_is_sent_or_left_in_order(has_sendmsg: bool, sizes: list[int]) -> None:
    buffers: list[Buffer] = [
        memoryview(bytes([index]) * size) if index % 2 else bytes([index]) * size for index, size in enumerate(sizes)
    ]
    expected = b"".join(buffers)
    left, right = socket.socketpair()
    with left, right, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sockets, "_HAS_SENDMSG", has_sendmsg)
        left.setblocking(False)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        received = b""
        rest = buffers
        while rest:
            rest = send_buffers(left, rest)
            received += right.recv(1 << 20)
        while len(received) < len(expected):
            received += right.recv(1 << 20)
    assert received == expected


def test_more_buffers_than_a_vector_takes(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = pair
    monkeypatch.setattr(sockets, "_VECTOR_MAX", 3)
    rest: list[Buffer] = [bytes([index]) * 5000 for index in range(10)]
    expected, received = b"".join(rest), b""
    while rest or len(received) < len(expected):
        rest = send_buffers(left, rest)
        received += right.recv(1 << 20)
    assert received == expected


def test_a_broken_connection_raises(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    right.close()
    with pytest.raises(OSError, match=r"[Bb]roken pipe|reset"):
        send_buffers(left, [b"x"])


@pytest.mark.parametrize("make", [selectors.DefaultSelector, selectors.SelectSelector])
def test_a_poller_over_selectors(
    make: Callable[[], selectors.BaseSelector], pair: tuple[socket.socket, socket.socket]
) -> None:
    left, right = pair
    poller = SelectorPoller(make())
    fd = left.fileno()
    poller.register(fd, READ)
    assert poller.poll(0) == []
    poller.modify(fd, READ | WRITE)
    assert poller.poll(1) == [(fd, WRITE)]
    right.send(b"x")
    assert poller.poll(1) == [(fd, READ | WRITE)]
    poller.modify(fd, 0)
    assert poller.poll(0) == []
    poller.modify(fd, READ)
    assert poller.poll(1) == [(fd, READ)]
    poller.unregister(fd)
    poller.unregister(fd)
    poller.register(fd, 0)
    assert poller.poll(0) == []
    assert poller.fileno() != fd
    poller.close()
