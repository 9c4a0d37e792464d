"""Wait in the main thread of a program that no signal misses."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self


class Wakeup:
    """Wakeup of the main thread, which waits for it while it is open (`with`): by signals, which call `on_signal` too,
    or by anybody.

    Python runs a signal's handler when the main thread comes back to the interpreter. Where the signal comes just
    before that thread waits for a lock, as queues and events do, it comes back at the end of that wait, which may be
    never. So the system's half of the handler writes to a socket, and whoever waits for a socket finds earlier bytes.
    """

    def __init__(self, *numbers: int, on_signal: Callable[[], object] = lambda: None) -> None:
        self._numbers = numbers
        self._on_signal = on_signal

    def wake(self) -> None:
        """End the wait. From any thread, or a handler."""
        with suppress(OSError):  # full: it wakes already
            self._sender.send(b"\0")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is woken, or was, up to `timeout` seconds; whether it was."""
        until = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._receiver, selectors.EVENT_READ)
            while selector.select(None if until is None else max(0.0, until - time.monotonic())):
                if not {0, *self._numbers}.isdisjoint(self._receiver.recv(64)):
                    # other signals write there too, if they have handlers
                    return True
        return False

    def __enter__(self) -> Self:
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._fd_before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._handlers = [signal.signal(number, lambda *_: self._on_signal()) for number in self._numbers]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(self._numbers, self._handlers, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._fd_before)
        self._sender.close()
        self._receiver.close()
