"""Sockets as every driver uses them: listening by the port rules, connecting, and sending lists of buffers.

Owns: how an address is written, which ports belong together, how much is joined before a send.
Leaves to others: when to read, write and wait (drivers), what the bytes mean (nodes).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from mqproto.errors import InvalidSetting, MQError
from mqproto.state.node.contract import Buffer
from mqproto.wire.hosts import VIP_DISTANCE, join_address, split_address

#: The most that one read brings. Up to here the allocator reuses its memory; a buffer of 256 KiB costs 8 microseconds a
#: read.
RECEIVE_SIZE: Final = 65_536


_BACKLOG: Final = 1024
_JOIN_BELOW: Final = 4096  # mean size of a buffer; copying small ones together is cheaper than a longer vector
_VECTOR_MAX: Final = 1024  # IOV_MAX of Linux and macOS
_HAS_SENDMSG: Final = hasattr(socket.socket, "sendmsg")
_FREE_PORT_TRIES: Final = 200
_ADDRESS_PROBE: Final = "192.0.2.1"  # TEST-NET-1: never sent to, only asked for the route


AddressInfo: TypeAlias = tuple[int, int, int, str, Any]
"""One result of getaddrinfo."""


class Wire(Protocol):
    """Connected, non-blocking socket as drivers use it; `mqproto.adapters.io.tls.TlsSocket` is another."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: Buffer, /) -> int: ...
    def sendmsg(self, buffers: Sequence[Buffer], /) -> int: ...
    def fileno(self) -> int: ...
    def detach(self) -> int: ...
    def close(self) -> None: ...


class PortTaken(MQError):  # noqa: N818  # named as mqproto.errors names its own
    """Failure to listen: another program listens there."""

    def __init__(self, host: str, port: int, role: str) -> None:
        super().__init__(
            f"{role}: {join_address(host, port)} is already in use; stop what listens there or choose another port"
        )
        self.host = host
        self.port = port
        self.role = role


class ListenFailed(MQError):  # noqa: N818
    """Failure to listen on an address: unknown host, not an address of this machine, no right to the port."""

    def __init__(self, host: str, port: int, role: str, reason: str) -> None:
        super().__init__(f"{role}: cannot listen on {join_address(host, port)}: {reason}")
        self.host = host
        self.port = port
        self.role = role
        self.reason = reason


def local_ip() -> str:
    """The address by which others most likely reach this machine: that of the default route, else loopback
    (docs/protocol/client.md CI-2).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ADDRESS_PROBE, 9))
            ip: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return ip


def listen(host: str, port: int, role: str) -> socket.socket:
    """A non-blocking listening socket; port 0 takes a free one.

    Raises `PortTaken` or `ListenFailed`, both naming `role`.
    """
    if not 0 <= port <= 65_535:
        raise InvalidSetting(role, str(port), "a port is between 0 and 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ListenFailed(host, port, role, str(error)) from error
    sock = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # a restart must not wait for old connections to time out
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(host, port, role) from error
        raise ListenFailed(host, port, role, error.strerror or str(error)) from error
    return sock


def port_of(sock: socket.socket) -> int:
    """The port that a socket is bound to."""
    port: int = sock.getsockname()[1]
    return port


def broker_listeners(host: str, port: int) -> dict[str, socket.socket]:
    """The broker's listeners: "main" on `port`, "fast" two below. Port 0 looks for a pair of free ports."""
    if port:
        if port <= VIP_DISTANCE:
            raise InvalidSetting("listenPort", str(port), f"the fast listener needs a port {VIP_DISTANCE} below it")
        main = listen(host, port, "broker")
        try:
            return {"main": main, "fast": listen(host, port - VIP_DISTANCE, "broker (fast listener, listenPort - 2)")}
        except MQError:
            main.close()
            raise
    for _ in range(_FREE_PORT_TRIES):
        main = listen(host, 0, "broker")
        try:
            return {"main": main, "fast": listen(host, port_of(main) - VIP_DISTANCE, "broker")}
        except (PortTaken, ListenFailed, InvalidSetting):
            main.close()
    raise ListenFailed(host, 0, "broker", "no pair of free ports two apart was found")


def close_listeners(listeners: Mapping[str, socket.socket]) -> None:
    """Give the ports back."""
    for sock in listeners.values():
        sock.close()


def tune(sock: socket.socket) -> None:
    """What every connection gets: no blocking, no waiting for more to send."""
    sock.setblocking(False)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:  # the peer is gone already (macOS says so here), or it is not TCP
        if error.errno not in (errno.EINVAL, errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            raise


def peer_address(sock: socket.socket, name: object) -> tuple[str, str]:
    """`host:port` of the peer and of our side of an accepted connection; raises OSError when the peer has gone."""
    if not isinstance(name, tuple):
        return str(name), str(sock.getsockname())
    local = sock.getsockname()
    return join_address(_plain(name[0]), name[1]), join_address(_plain(local[0]), local[1])


def _plain(host: str) -> str:
    """An IPv4 peer on a listener for both families is written as IPv4."""
    return host.removeprefix("::ffff:") if "." in host else host


def begin_connect(info: AddressInfo) -> tuple[socket.socket, int]:
    """Start to connect to one result of getaddrinfo: the socket and the error number (0 and EINPROGRESS mean: so far,
    so good).
    """
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        tune(sock)
        code = sock.connect_ex(address)
    except BaseException:
        sock.close()
        raise
    return sock, code


#: Errors of accept that say: this process or system has no room for another socket.
OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: What `begin_connect` may say of a connection that is on its way.
CONNECTING: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})


def connect_failure(sock: socket.socket) -> str:
    """Why a socket that became writable is not connected; empty when it is."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        return os.strerror(code)
    try:
        # A dial to a free port of this machine may meet itself: both ends are the same socket.
        return "connection refused" if sock.getsockname() == sock.getpeername() else ""
    except OSError as error:
        return describe(error)


def describe(error: Exception) -> str:
    """An error of the operating system in words, without its number."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def resolve(address: str) -> Iterator[AddressInfo]:
    """What `host:port` may mean, best first.

    May block on a name server of the operating system; raises OSError or ValueError.
    """
    host, port = split_address(address)
    try:
        return iter(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError as error:  # a label of more than 63 characters, for one
        raise ValueError(f"{address!r} is not a host name: {error}") from error


def resolve_number(address: str) -> Iterator[AddressInfo] | None:
    """As `resolve` for a host written as a number, which never blocks; None for a name."""
    host, port = split_address(address)
    try:
        return iter(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):
        return None


def send_buffers(sock: Wire, buffers: list[Buffer]) -> list[Buffer]:
    """Send as much as the socket takes without waiting; what is left, in order. Raises OSError when it is broken.

    Many small buffers are joined; large ones (views of a mapped file) are sent from where they lie.
    """
    while buffers:
        count = len(buffers)
        rest: list[Buffer] = []
        try:
            if count == 1:
                size = len(buffers[0])
                sent = sock.send(buffers[0])
            else:
                size = sum(map(len, buffers))
                if size < count * _JOIN_BELOW or not _HAS_SENDMSG:
                    buffers = [b"".join(buffers)]
                    sent = sock.send(buffers[0])
                else:
                    rest = buffers[_VECTOR_MAX:]
                    if rest:
                        del buffers[_VECTOR_MAX:]
                        size = sum(map(len, buffers))
                    sent = sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return buffers + rest
        if sent < size:
            return _behind(buffers, sent) + rest
        buffers = rest
    return buffers


def _behind(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """What follows the first `sent` bytes, without copying."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
