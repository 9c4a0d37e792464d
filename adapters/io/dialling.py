"""Dials to an address: by name or number, one result after the other, with or without TLS, within one time limit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from mqproto.adapters.io.lifecycle import attempt
from mqproto.adapters.io.pollers import WRITE
from mqproto.adapters.io.sockets import (
    CONNECTING,
    AddressInfo,
    Wire,
    begin_connect,
    connect_failure,
    describe,
    resolve,
    resolve_number,
)
from mqproto.state.node.contract import Dial, Link

if TYPE_CHECKING:
    from mqproto.adapters.io.tls import TlsClient, TlsSocket


class DialHost(Protocol):
    """Driver as a dial needs it. `connected` or `refused` is called once, unless the dial is given up before."""

    tls: TlsClient | None

    def watch(self, sock: socket, mask: int, on_event: Callable[[int], None]) -> None: ...
    def unwatch(self, sock: socket) -> None: ...
    def after(self, when: int, entry: Callable[[int], None]) -> None: ...
    def feed(self, entry: Callable[[int], None]) -> None: ...
    def run_beside(self, work: Callable[[], None]) -> None: ...
    def connected(self, link: Link, sock: Wire, now: int, early: bytes = b"") -> None: ...
    def refused(self, link: Link, reason: str) -> None: ...


class Dialling:
    """Dial in progress: the addresses still to try and the socket that tries one."""

    def __init__(self, host: DialHost, dial: Dial, now: int) -> None:
        self._host = host
        self._link = dial.link
        self._candidates: Iterator[AddressInfo] = iter(())
        self._sock: socket | None = None
        self._tls = host.tls if dial.tls else None
        self._secured: TlsSocket | None = None
        self._mask = WRITE
        self._over = False
        host.after(now + dial.timeout_ms, partial(_expire, ref(self), dial.timeout_ms))
        if dial.tls and self._tls is None:
            host.feed(lambda now: self._refuse("this driver was not told which TLS to use"))
            return
        try:
            found = resolve_number(dial.link.address)
        except ValueError as error:
            reason = str(error)
            host.feed(lambda now: self._refuse(reason))
            return
        if found is not None:
            self._candidates = found
            host.feed(partial(self._try_next, "no address"))
        else:
            host.run_beside(partial(attempt, self._look_up, self._looked_up))

    def give_up(self) -> None:
        """Nobody wants the connection any more."""
        self._over = True
        self._close()

    def abandon(self) -> None:
        """Close the descriptor alone (`LoopDriver.abandon`)."""
        if self._sock is not None:
            self._sock.close()

    def _look_up(self) -> None:
        self._candidates = resolve(self._link.address)

    def _looked_up(self, failure: Exception | None) -> None:
        self._host.feed(partial(self._try_next, describe(failure) if failure else "no address"))

    def _try_next(self, reason: str, now: int) -> None:
        """Begin to connect to the next address; refuse the link when there is none."""
        if self._over:
            return
        for candidate in self._candidates:
            try:
                sock, code = begin_connect(candidate)
            except OSError as error:
                reason = describe(error)
                continue
            if code in CONNECTING:
                self._sock = sock
                self._mask = WRITE
                self._host.watch(sock, WRITE, self._on_ready)
                return
            reason = os.strerror(code)
            sock.close()
        self._refuse(reason)

    def _on_ready(self, now: int) -> None:
        sock = self._sock
        assert sock is not None
        reason = connect_failure(sock)
        if reason:
            self._close()
            self._try_next(reason, now)
            return
        if self._tls is None:
            self._over = True
            self._host.unwatch(sock)
            self._host.connected(self._link, sock, now)
        else:
            self._secure(sock, self._tls, now)

    def _secure(self, sock: socket, tls: TlsClient, now: int) -> None:
        """Begin the handshake, or go on with it."""
        try:
            if self._secured is None:
                self._secured = tls.wrap(sock, self._link.address)
            mask = self._secured.handshake()
            early = b"" if mask else self._secured.early()
        except (OSError, ValueError) as error:
            from mqproto.adapters.io.tls import describe_tls

            self._close()
            self._try_next(describe_tls(error), now)
            return
        if not mask:
            self._over = True
            self._host.unwatch(sock)
            self._host.connected(self._link, self._secured, now, early)
        elif mask != self._mask:
            self._mask = mask
            self._host.unwatch(sock)
            self._host.watch(sock, mask, lambda now: self._secure(sock, tls, now))

    def _refuse(self, reason: str) -> None:
        if not self._over:
            self.give_up()
            self._host.refused(self._link, reason)

    def _close(self) -> None:
        if self._sock is not None:
            self._host.unwatch(self._sock)
            self._sock.close()
            self._sock = self._secured = None


def _expire(dialling: ref[Dialling], timeout_ms: int, now: int) -> None:
    """The time limit.

    It comes long after most dials have ended, which it must not keep: with each go the errors of whoever wanted it.
    """
    dial = dialling()
    if dial is not None:
        dial._refuse(f"not connected within {timeout_ms} ms")
