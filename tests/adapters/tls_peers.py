"""Servers that speak TLS, for clients: they hand what they decrypt to a plain server, and its answers back."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.adapters.harness import PATIENCE

#: What one side may have waiting until the other is read no more.
_WAITING_MAX = 1 << 18
CERTIFICATES = Path(__file__).parent / "certificates"


def certificate(name: str) -> str:
    return str(CERTIFICATES / f"{name}.pem")


def server_context(name: str = "server", *, clients: str = "", version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """What a server shows, whose certificates it demands of clients, and the only version that it speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(name))
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate(clients))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class MemoryPeer:
    """The server's end. What it writes leaves by `push`, in one send."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def pull(self) -> bool:
        """Take what the client has sent; whether there was something."""
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return False
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return True

    def push(self) -> bytes:
        data = self._outgoing.read()
        self.sock.sendall(data)
        return data

    def handshake(self) -> bool:
        self.pull()
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_all(self) -> bytes:
        data = b""
        while True:
            try:
                part = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return data
            if not part:
                return data
            data += part


def _sent(sock: Any, data: bytes) -> bytes:
    """What a socket does not take at the moment."""
    try:
        while data:
            data = data[sock.send(data) :]
    except (BlockingIOError, ssl.SSLWantWriteError):
        pass
    return data


class Relay:
    """Takes connections and carries bytes between them and another server, each in a thread; `wrap` changes what was
    accepted.
    """

    def __init__(
        self,
        target: str,
        wrap: Callable[[socket.socket], Any],
        address: tuple[str, int] = ("127.0.0.1", 0),
        size: int = 65_536,
    ):
        self._target = target
        self._wrap = wrap
        self._size = size
        self._listener = socket.create_server(address)
        self._socks: list[Any] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.accepted = 0
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        self._socks.append(sock)
        sock.settimeout(PATIENCE)
        try:
            wrapped = self._wrap(sock)
        except OSError:
            sock.close()
            return
        host, _, port = self._target.rpartition(":")
        other = socket.create_connection((host, int(port)), PATIENCE)
        self._socks += (wrapped, other)
        with suppress(OSError, ValueError):  # closed, by the test perhaps
            self._carry(wrapped, other)
        for end in (wrapped, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _carry(self, one: Any, two: Any) -> None:
        """Both ways, in one thread: a TLS socket is not for two at a time."""
        others, waiting = {one: two, two: one}, {one: b"", two: b""}
        one.setblocking(False)
        two.setblocking(False)
        ended = False
        while not ended or any(waiting.values()):
            hungry = [sock for sock in others if not ended and len(waiting[others[sock]]) < _WAITING_MAX]
            readable, writable, _ = select.select(hungry, [sock for sock in others if waiting[sock]], [], PATIENCE)
            if not readable and not writable:
                return
            for sock in readable:
                more = True
                while more:
                    try:
                        data = sock.recv(self._size)
                    except (BlockingIOError, ssl.SSLWantReadError):
                        break
                    ended = not data
                    waiting[others[sock]] = _sent(others[sock], waiting[others[sock]] + data)
                    # which select() does not see
                    more = bool(data) and isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
            for sock in writable:
                waiting[sock] = _sent(sock, waiting[sock])

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for sock in self._socks:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        for sock in self._socks:
            sock.close()


def tls_relay(target: str, context: ssl.SSLContext, address: tuple[str, int] = ("127.0.0.1", 0)) -> Relay:
    """A server that speaks TLS in front of a plain one."""
    return Relay(target, lambda sock: context.wrap_socket(sock, server_side=True), address)


def plain_relay(target: str, size: int) -> Relay:
    """Carries everything in pieces of so many bytes."""

    def prompt(sock: socket.socket) -> socket.socket:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    return Relay(target, prompt, size=size)
