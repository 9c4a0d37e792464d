"""Peers of a driver under test: plain sockets, and what its node has heard."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from tests.adapters.harness import PATIENCE, wait_until
from tests.adapters.toys import Echo

Start = Callable[..., tuple[Any, int]]


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


def receive_all(sock: socket.socket, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(1 << 20)
        assert chunk
        data += chunk
    return data
