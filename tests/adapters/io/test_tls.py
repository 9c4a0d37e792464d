"""TLS sockets by themselves, against OpenSSL's other end in memory: no driver, no threads."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing

import pytest

from mqproto.adapters.io.pollers import READ
from mqproto.adapters.io.sockets import send_buffers
from mqproto.adapters.io.tls import TlsClient, TlsSocket, describe_tls
from tests.adapters.tls_peers import MemoryPeer, certificate, server_context

BOTH = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate("authority"))
    return context


def pair(version: ssl.TLSVersion) -> tuple[TlsSocket, MemoryPeer]:
    """Two ends before the handshake."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
    return TlsClient(client_context()).wrap(ours, "localhost:1"), MemoryPeer(theirs, server_context(version=version))


@pytest.fixture(params=BOTH, ids=["1.2", "1.3"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[TlsSocket, MemoryPeer]]:
    """Two ends after the handshake."""
    client, other = pair(request.param)
    with closing(other.sock), closing(client):
        shake(client, other)
        with pytest.raises(BlockingIOError):
            client.recv(1 << 16)  # nothing, or tickets for later sessions
        yield client, other


def shake(client: TlsSocket, other: MemoryPeer) -> None:
    done = False
    while client.handshake() or not done:
        done = other.handshake()
        other.push()


def test_bytes_both_ways(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    client, other = ends
    assert client.send(b"question") == 8
    other.pull()
    assert other.read_all() == b"question"
    other.tls.write(b"answer")
    other.push()
    assert client.recv(100) == b"answer"
    with pytest.raises(BlockingIOError):
        client.recv(100)


def test_half_a_record_is_nothing_yet(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    client, other = ends
    other.tls.write(b"whole")
    data = other._outgoing.read()
    for at in range(len(data) - 1):
        other.sock.sendall(data[at : at + 1])
        with pytest.raises(BlockingIOError):
            client.recv(100)
    other.sock.sendall(data[-1:])
    assert client.recv(100) == b"whole"


def test_all_that_one_read_brings_comes_out_of_it(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    """No poller would tell of records that stay inside."""
    client, other = ends
    for _ in range(50):
        other.tls.write(b"x" * 1000)
    other.push()
    assert client.recv(65_536) == b"x" * 50_000


@pytest.mark.parametrize("seed", range(20))
def test_what_a_full_socket_does_not_take_is_sent_once(seed: int) -> None:
    """The order and number of bytes hold whatever the socket takes at a time and however the buffers are cut."""
    dice = random.Random(seed)
    client, other = pair(dice.choice(BOTH))
    with closing(other.sock), closing(client):
        shake(client, other)
        client._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        data = dice.randbytes(600_000)
        left: list[bytes | memoryview] = []
        at = 0
        while at < len(data):
            size = dice.choice((1, 100, 5_000, 70_000, 200_000))
            left.append(data[at : at + size])
            at += size
        arrived = b""
        blocked = 0
        while left:
            left = send_buffers(client, left)
            if left and dice.random() < 0.5:
                left.append(b"more")
                data += b"more"
            blocked += bool(left)
            while other.pull():
                arrived += other.read_all()
        assert arrived == data
        assert blocked


def test_early_bytes_are_not_lost() -> None:
    """The server's last part of the handshake and its first bytes in one packet."""
    client, other = pair(ssl.TLSVersion.TLSv1_2)
    with closing(other.sock), closing(client):
        assert client.handshake() == READ
        assert not other.handshake()
        other.push()
        assert client.handshake() == READ
        assert other.handshake()
        other.tls.write(b"first words")
        other.push()
        assert client.handshake() == 0
        assert client.early() == b"first words"
        assert client.early() == b""


def test_a_goodbye_ends_the_stream_behind_what_came_before(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    client, other = ends
    other.tls.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        other.tls.unwrap()
    other.push()
    assert client.recv(100) == b"last words"
    assert client.recv(100) == b""
    assert client.recv(100) == b""


def test_a_stream_that_is_cut_off_ends(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    client, other = ends
    other.tls.write(b"last words")
    other.push()
    other.sock.shutdown(socket.SHUT_WR)
    assert client.recv(100) == b"last words"
    assert client.recv(100) == b""


def test_a_damaged_record_is_an_error(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    client, other = ends
    other.tls.write(b"something")
    data = bytearray(other._outgoing.read())
    data[-1] ^= 1
    other.sock.sendall(data)
    with pytest.raises(OSError, match=r"TLS: .*(bad record mac|decryption failed)"):
        client.recv(100)


def test_closing_says_goodbye(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    client, other = ends
    client.close()
    other.pull()
    assert other.tls.read(10) == b""  # a cut would be an error
    assert client.fileno() == -1


def test_a_descriptor_that_is_given_away_says_nothing(ends: tuple[TlsSocket, MemoryPeer]) -> None:
    """The child of a fork closes its copy, and the parent's connection lives."""
    client, other = ends
    while other.pull():
        pass
    socket.socket(fileno=client.detach()).close()
    other.pull()
    with pytest.raises(ssl.SSLEOFError):
        other.tls.read(10)


@pytest.mark.parametrize(("name", "says"), [("elsewhere", "mismatch"), ("expired", "expired")])
def test_why_a_certificate_is_not_believed(name: str, says: str) -> None:
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
    client = TlsClient(client_context()).wrap(ours, "localhost:1")
    other = MemoryPeer(theirs, server_context(name))
    with closing(theirs), closing(client):
        client.handshake()
        other.handshake()
        other.push()
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            client.handshake()
        assert says in describe_tls(caught.value)
        assert describe_tls(caught.value).startswith("TLS handshake failed: the server's certificate is not believed: ")
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):  # the server was told
            other.handshake()
