"""The driver for threads: one thread turns the loop, any thread may enter the node, a few threads run jobs."""

from __future__ import annotations

import logging
import select
import selectors
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import socket
from typing import Final, TypeVar, TypeVarTuple

from adapters.polling import READ, WRITE, Poller, PollingDriver
from adapters.threaded.workers import Workers
from mqproto.errors import StateError
from mqproto.state.node import Node, Ticket

log = logging.getLogger("mqproto.driver")

_JOB_THREADS: Final = 4  # an fsync must not wait behind the creation of a file
_FORCED_END_S: Final = 5.0  # how long the loop may need to end once it is told to; it waits for nothing then

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SelectorPoller:
    """`select.epoll` as `selectors` can do it, for systems without it."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector = selector or selectors.DefaultSelector()

    def register(self, fd: int, mask: int, /) -> None:
        if mask:
            self._selector.register(fd, _selector_events(mask))

    def modify(self, fd: int, mask: int, /) -> None:
        if fd not in self._selector.get_map():
            self.register(fd, mask)
        elif mask:
            self._selector.modify(fd, _selector_events(mask))
        else:
            self._selector.unregister(fd)

    def unregister(self, fd: int, /) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        return [
            (key.fd, READ * bool(events & selectors.EVENT_READ) | WRITE * bool(events & selectors.EVENT_WRITE))
            for key, events in self._selector.select(timeout)
        ]

    def close(self) -> None:
        self._selector.close()


def _selector_events(mask: int) -> int:
    return selectors.EVENT_READ * bool(mask & READ) | selectors.EVENT_WRITE * bool(mask & WRITE)


def make_poller() -> Poller:
    """The best that this system has."""
    return select.epoll() if hasattr(select, "epoll") else SelectorPoller()


class Driver(PollingDriver):
    """Drives one node from a thread of its own. See `PollingDriver` for the arguments.

    `start`, then `enter` (ask the node something) and `wait` (start an operation and wait for its end) from any thread, then `stop`.
    """

    def __init__(
        self,
        node: Node,
        listeners: Mapping[str, socket] | None = None,
        deliver: Callable[[object], None] | None = None,
        *,
        name: str = "mqproto",
    ) -> None:
        super().__init__(node, listeners or {}, deliver, name=name, lock=threading.Lock(), poller=make_poller())
        self._jobs = Workers(f"{name}-jobs", _JOB_THREADS)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._local = threading.local()
        self._gates: set[threading.Lock] = set()
        self._started = False

    def start(self) -> None:
        """Begin. The node's listeners take connections from now on."""
        self._started = True
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> bool:
        """Close the node and wait up to `timeout` seconds for its orderly end; whether it came. Twice, or before start, is harmless.

        At the time-out everything is closed as it is. After the return no thread of the driver is left (but for a job that still blocks).
        """
        if not self._started:
            self._started = True
            self._shut()
            return True
        try:
            self.enter(self.node.close)
        except StateError:
            pass  # it has ended already
        else:
            self.feed(self._stop_listening)
        if threading.current_thread() is self._thread:
            return False  # from inside the loop: it ends when it gets there
        self._thread.join(timeout)
        orderly = not self._thread.is_alive() and self.failure is None
        if self._thread.is_alive():
            log.warning("%s: not ended within %s s, closing what is left", self.name, timeout)
            self._quit = True
            self._wakes.send(b"\0")
            self._thread.join(_FORCED_END_S)
        self._jobs.close(timeout if orderly else 0.0)
        return orderly

    def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T:
        """Start an operation of the node and wait until it has ended: its value, or raises its failure."""
        gate = self._gate()
        self._gates.add(gate)
        try:
            ticket = self.enter(_begin, gate, verb, arguments)
            gate.acquire()
        except BaseException:  # an interrupt: the driver may open this gate later, so nobody may wait at it again
            del self._local.gate
            raise
        finally:
            self._gates.discard(gate)
        if not ticket.settled:
            raise StateError(f"{self.name} ended before the operation did") from self.failure
        return ticket.result()

    def _gate(self) -> threading.Lock:
        """A lock that this thread waits at; it is held whenever nobody has just opened it."""
        try:
            gate: threading.Lock = self._local.gate
        except AttributeError:
            gate = self._local.gate = threading.Lock()
            gate.acquire()
        return gate

    def run_beside(self, work: Callable[[], object], then: Callable[[Exception | None], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception as failure:  # handed on: the node decides what it means
                then(failure)
            else:
                then(None)

        self._jobs.submit(run)

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as failure:  # a fault of the node or of this driver: nobody may wait for ever because of it
            self.failure = failure
            log.critical("%s: the driver has failed", self.name, exc_info=True)
        finally:
            self._shut()
            for gate in list(self._gates):
                with suppress(RuntimeError):  # opened already
                    gate.release()


def _begin(gate: threading.Lock, verb: Callable[[*Ts, int], Ticket[T]], arguments: tuple[*Ts], now: int) -> Ticket[T]:
    ticket = verb(*arguments, now)
    ticket.wake = gate.release
    return ticket
