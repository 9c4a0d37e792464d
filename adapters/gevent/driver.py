"""Driver for gevent: one greenlet turns the loop, any greenlet of the same hub may enter the node.

Sockets are those of the operating system, not gevent's, so nothing has to be patched; the hub waits for the poller as a
whole (an epoll can itself be waited for), which costs one watcher however many connections there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import socket
from typing import Any, Final, TypeVar, TypeVarTuple

import gevent
import gevent.event
import gevent.lock
import gevent.monkey
import gevent.selectors
import gevent.socket

from mqproto.adapters.io.lifecycle import log
from mqproto.adapters.io.loop import LoopDriver
from mqproto.adapters.io.pollers import Poller, SelectorPoller
from mqproto.state.node.contract import Node, Ticket

_FORCED_END_S: Final = 5.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class HubPoller:
    """Poller that is an epoll, for which the hub waits."""

    def __init__(self, make_epoll: Callable[[], Any]) -> None:
        self._epoll = make_epoll()
        self._ready = gevent.get_hub().loop.io(self._epoll.fileno(), 1)
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.fileno = self._epoll.fileno

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        if timeout == 0:
            gevent.sleep(0)  # others may run, however busy this driver is
        else:
            with suppress(TimeoutError):
                gevent.socket.wait(self._ready, timeout)
        found: list[tuple[int, int]] = self._epoll.poll(0)
        return found

    def close(self) -> None:
        self._ready.close()
        self._epoll.close()


def make_poller() -> Poller:
    """The best that this system has."""
    try:
        make_epoll = gevent.monkey.get_original("select", "epoll")
    except AttributeError:
        return SelectorPoller(gevent.selectors.DefaultSelector())
    return HubPoller(make_epoll)


class Driver(LoopDriver):
    """Driver of one node in a greenlet of its own. See `LoopDriver` for the arguments.

    `start`, then `enter` (ask the node something) and `wait` (start an operation and wait for its end) from any
    greenlet of the hub that it was made in, then `stop`.
    """

    def __init__(
        self,
        node: Node,
        listeners: Mapping[str, socket] | None = None,
        deliver: Callable[[object], None] | None = None,
        cancel: Callable[[Ticket[Any], int], None] | None = None,
        notices: deque[str] | None = None,
        *,
        name: str = "mqproto",
        poller: Poller | None = None,
    ) -> None:
        lock = gevent.lock.BoundedSemaphore(1)
        super().__init__(
            node, listeners or {}, deliver, cancel, notices, name=name, lock=lock, poller=poller or make_poller()
        )
        self._greenlet = gevent.Greenlet(self._run)
        self._started = False

    def start(self) -> None:
        """Begin. The node's listeners take connections from now on."""
        self.enter(self.node.begin)
        self._started = True
        self._greenlet.start()

    def _run(self) -> None:
        self.run()
        if self.failure is not None and not isinstance(self.failure, Exception):
            raise self.failure  # an interrupt that came to this greenlet by chance: the hub brings it to the main one

    def stop(self, timeout: float = 10.0) -> bool:
        """Close the node and wait up to `timeout` seconds for its clean end; whether it came.

        Twice, or before the start, is harmless. At the time-out everything is closed as it is.
        """
        if not self._started:
            if not self._shut_down:
                self._shut()
            return True
        self._begin_end()
        self._greenlet.join(timeout)
        if not self._greenlet.dead:
            log.warning("%s: not ended within %s s, closing what is left", self.name, timeout)
            self.wake()
            self._quit = True
            self._greenlet.join(_FORCED_END_S)
            return False
        return self.failure is None

    def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T:
        """Start an operation of the node and wait until it has ended: its value, or raises its failure."""
        ended = gevent.event.Event()
        ticket: Ticket[T] | None = None
        try:
            ticket = self.launch(ended.set, verb, arguments)
            ended.wait()
        except BaseException:  # an interrupt, the greenlet is killed, or a gevent.Timeout of the caller's
            if ticket is not None:
                self.give_up(ticket)
            raise
        return self.outcome(ticket)

    def run_beside(self, work: Callable[[], None]) -> None:
        gevent.get_hub().threadpool.spawn(work)
