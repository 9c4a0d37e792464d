"""TLS on links that we dial: a socket that encrypts, for drivers that never wait (docs/protocol/client.md 7.1).

Owns: the handshake, records between the socket and the driver's plain bytes, Java's settings of TLS.
Leaves to others: when to read, write and give up (drivers, `dialling`), which links use TLS (the node says so).

OpenSSL works on memory here and never sees the socket, so nothing blocks and every runtime has the same code. A
connection is used by two threads at a time (one sends, one receives) and OpenSSL's objects are not made for that: each
call holds the socket's own lock.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from socket import SHUT_RD, socket
from typing import Final

from mqproto.adapters.io.pollers import READ, WRITE
from mqproto.adapters.io.sockets import RECEIVE_SIZE
from mqproto.state.node.contract import Buffer
from mqproto.wire.hosts import split_address

#: So much is encrypted before it is sent: what the socket does not take of it is counted as sent only later.
_CHUNK: Final = 65_536


class TlsClient:
    """TLS of a client, which wraps sockets that were dialled; made of the application's context or of one from
    `mqproto.adapters.base.settings.tls_settings`.
    """

    __slots__ = ("context",)

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def wrap(self, sock: socket, address: str) -> TlsSocket:
        """A connected socket to `host:port`, before its handshake. Raises OSError or ValueError."""
        return TlsSocket(sock, self.context, split_address(address)[0])


class TlsSocket:
    """Socket as drivers use it, over TLS. Everything raises as a non-blocking socket does: BlockingIOError where it
    would have to wait, OSError (`ssl.SSLError` is one) when the connection is broken.
    """

    __slots__ = ("_counted", "_ended", "_incoming", "_lock", "_outgoing", "_sock", "_tls", "_unsent")

    def __init__(self, sock: socket, context: ssl.SSLContext, host: str) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()
        #: Records that the socket did not take yet.
        self._unsent = memoryview(b"")
        #: Plain bytes in these records. The driver does not know yet that they are taken, and brings them again.
        self._counted = 0
        #: The peer has said that nothing more comes.
        self._ended = False

    def handshake(self) -> int:
        """Go on as far as possible: what the socket must be ready for before the next call, 0 when it is done.

        Raises OSError.
        """
        while True:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()  # the alert, so that the peer learns why
                raise
            if not self._flush():
                return WRITE
            if done:
                return 0
            try:
                data = self._sock.recv(RECEIVE_SIZE)
            except (BlockingIOError, InterruptedError):
                return READ
            if not data:
                raise ConnectionError("the peer closed the connection; it may not speak TLS")
            self._incoming.write(data)

    def early(self) -> bytes:
        """What the peer sent right behind its part of the handshake: no poller reports it, it has been read."""
        return self._decrypt()

    def recv(self, size: int, /) -> bytes:
        """Plain bytes, about as many as `size`; empty at the end of the stream."""
        with self._lock:
            if self._ended:
                return b""
            data = self._sock.recv(size)
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()
            try:
                plain = self._decrypt()
            except ssl.SSLError as error:  # a refusal of our certificate comes here too: the handshake was over for us
                raise ConnectionError(f"TLS: {_reason(error)}") from error
            self._flush()  # answers of TLS itself, to a change of keys for one
            if plain or self._ended:
                return plain
            raise BlockingIOError  # a part of a record, or nothing for us

    def send(self, data: Buffer, /) -> int:
        """As `sendmsg`, of one buffer."""
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Send as much as the socket takes; how many plain bytes are on their way.

        As with OpenSSL's own calls, what was not reported as sent must come first in the next call: its last part may
        be encrypted.
        """
        with self._lock:
            if not self._flush():
                raise BlockingIOError
            sent, self._counted = self._counted, 0
            skip = sent
            for buffer in buffers:
                view = memoryview(buffer)[skip:]
                skip = max(0, skip - len(buffer))
                for at in range(0, len(view), _CHUNK):
                    piece = view[at : at + _CHUNK]
                    self._encrypt(piece)
                    if not self._flush():
                        self._counted = len(piece)
                        if sent:
                            return sent
                        raise BlockingIOError
                    sent += len(piece)
            return sent

    def fileno(self) -> int:
        return self._sock.fileno()

    def detach(self) -> int:
        """The descriptor, which is the caller's to close; the peer is told nothing."""
        return self._sock.detach()

    def close(self) -> None:
        """Say goodbye, if that can be done without waiting, and close the socket."""
        with self._lock:
            if not self._unsent:
                with suppress(OSError, ValueError):  # it wants the peer's goodbye too, or the handshake was not over
                    self._tls.unwrap()
                with suppress(OSError):
                    self._flush()
            with suppress(OSError):
                # what stays unread (tickets, mostly) makes the system cut off what we have sent
                self._sock.recv(RECEIVE_SIZE)
            self._sock.close()

    def _encrypt(self, piece: memoryview) -> None:
        while piece:
            piece = piece[self._tls.write(piece) :]

    def _decrypt(self) -> bytes:
        """All that can be read of what has come."""
        parts: list[bytes] = []
        try:
            while part := self._tls.read(_CHUNK):
                parts.append(part)
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            # A stream cut off without a goodbye ends like any other: a frame says how long it is, so nothing can be
            # taken for whole.
            self._ended = True
        if self._ended and parts:
            with suppress(OSError):
                self._sock.shutdown(SHUT_RD)  # so that the poller asks for what follows, which is the end
        return b"".join(parts)

    def _flush(self) -> bool:
        """Send what is encrypted; whether the socket took all of it."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return False


def describe_tls(error: Exception) -> str:
    """Why a handshake failed, in words: the reason for a certificate that is not believed above all."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the server's certificate is not believed: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        reason = _reason(error)
        if error.reason in _NO_TLS:
            reason += " (it does not seem to speak TLS)"
    else:
        reason = str(error)
    return f"TLS handshake failed: {reason}"


def _reason(error: ssl.SSLError) -> str:
    return error.reason.lower().replace("_", " ") if error.reason else str(error)


#: What OpenSSL says of bytes that are no TLS at all.
_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
