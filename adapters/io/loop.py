"""Loop that drives one node over non-blocking sockets and a poller. It knows no protocol.

Owns: sockets, which of them are waited for, what a socket did not take yet, when the node's timer is due.
Leaves to others: where the loop waits (`mqproto.adapters.threaded`, `mqproto.adapters.gevent`,
`mqproto.adapters.anyio`), how callers enter the node (`node_access`), how a connection is made (`dialling`) and
everything the bytes mean.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, assert_never
from weakref import WeakSet

from mqproto.adapters.io.dialling import Dialling
from mqproto.adapters.io.lifecycle import ACCEPT_PAUSE_MS, FOREVER, GONE, HANG_UP_MS, attempt, log, tell
from mqproto.adapters.io.node_access import Batch, NodeAccess, Stream, send_batch
from mqproto.adapters.io.pollers import READ, WRITE, Poller
from mqproto.adapters.io.sockets import OUT_OF_FILES, RECEIVE_SIZE, Wire, close_listeners, describe, peer_address, tune
from mqproto.compiling import mypyc_attr
from mqproto.errors import StateError
from mqproto.state.node.contract import Action, Deliver, Dial, HangUp, Link, Node, Run, Ticket

if TYPE_CHECKING:
    from mqproto.adapters.io.tls import TlsClient

_POLL_MAX_MS: Final = 86_400_000  # what every system call takes; waking once a day is not polling
_EXCHANGE_SIZE: Final = 1 << 19  # so many bytes are received before anything is sent: some milliseconds of work
_ACCEPTS_IN_A_TURN: Final = 64  # a flood of connections must not starve those that exist

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@mypyc_attr(allow_interpreted_subclasses=True)
class LoopDriver(NodeAccess):
    """Driver of one node. Runtimes add where the loop runs, where jobs run and how a caller waits.

    `listeners` are bound, listening, non-blocking sockets by the names that the node knows; the driver closes them.
    `deliver` gets the task of each `Deliver` action, outside the node, and must not block. `cancel` is the node's way
    to give an operation up that nobody waits for any more. `notices` are the node's: they are logged, and removed.
    """

    __slots__ = (
        "_dials",
        "_handed",
        "_listeners",
        "_notices",
        "_others",
        "_poller",
        "_streams",
        "_timer_numbers",
        "_timers",
        "tls",
    )

    def __init__(
        self,
        node: Node,
        listeners: Mapping[str, socket.socket],
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        notices: deque[str] | None,
        *,
        name: str,
        lock: AbstractContextManager[object],
        poller: Poller,
    ) -> None:
        super().__init__(node, deliver, cancel, name, lock)
        #: What secures the dials that ask for TLS; set before the start.
        self.tls: TlsClient | None = None
        self._poller = poller
        self._listeners = dict(listeners)
        self._notices = notices
        self._streams: dict[int, Stream] = {}
        self._dials: dict[Link, Dialling] = {}
        self._others: dict[int, Callable[[int], None]] = {}  # listeners, dials and the waker, by descriptor
        self._timers: list[tuple[int, int, Callable[[int], None]]] = []  # the driver's own
        self._timer_numbers = count()
        self._handed = 0  # for how many ended operations and deliveries the loop has called somebody
        _drivers.add(self)

    # What runtimes add.

    def run_beside(self, work: Callable[[], None]) -> None:
        """Call `work`, which may block and does not raise, beside the loop."""
        raise NotImplementedError

    def let_begin(self) -> None:
        """What the loop has handed over may begin before the loop goes on, which has nothing to send at the moment."""

    def is_over(self) -> bool:
        """Whether it has ended, cleanly or not: nobody can enter any more."""
        return self._quit or self.failure is not None

    def abandon(self) -> None:
        """In the child of a fork: close this process's copies of the descriptors. The connections are the parent's.

        Nobody is inside: other threads did not come along, whatever they held.
        """
        self._quit = self._shut_down = True
        self._lock = nullcontext()
        self._poller.close()
        for stream in self._streams.values():
            os.close(stream.sock.detach())  # without a word to the peer, which TLS would have
        for sock in (*self._listeners.values(), self._waker, self._wakes):
            sock.close()
        for dialling in self._dials.values():
            dialling.abandon()
        # A greenlet does come along, and finds its poller closed: nothing is left for the end of its loop.
        self._streams, self._dials, self._listeners, self._others = {}, {}, {}, {}

    # The loop: `_open`, then `_turn` with what the poller found until it answers a negative time, then `_shut`. Where
    # it waits is the runtime's.

    def run(self) -> None:
        """All that the driver does, from begin to end, where waiting is a plain call; in a thread or greenlet."""
        try:
            self._open()
            timeout: float | None = 0.0
            while timeout is None or timeout >= 0:
                timeout = self._turn(self._poller.poll(timeout))
        except BaseException as failure:  # nobody may wait for ever because of it
            self._fail(failure)
        finally:
            self._shut()

    def _open(self) -> None:
        self.watch(self._waker, READ, self._on_wake)
        self._listen(0)

    def _turn(self, events: list[tuple[int, int]]) -> float | None:
        """Bring everything to the node that is there, carry out what it wants; how long to wait then, in seconds.

        Negative: it is over.
        """
        self.turns += 1
        writable, now = self._receive(events, self._now())
        self._exchange(now, writable)
        while self._unmasked:
            self._remask(self._unmasked.pop(), now)
        if self._notices:
            tell(self.name, self._notices)
        with self._lock:
            return self._timeout(now)

    def _exchange(self, now: int, writable: list[Stream]) -> None:
        """Bring what came from elsewhere (ended jobs, timers), write out and carry out what the node produced."""
        node, inputs, timers = self.node, self._inputs, self._timers
        while inputs:
            inputs.popleft()(now)
        while timers and timers[0][0] <= now:
            heappop(timers)[2](now)
        others: list[Action] = []
        batch: Batch = []
        delivered = False
        try:
            with self._lock:
                if self._quit:
                    return
                if now >= self._until:
                    node.timer(self._entry_time(now))
                self._written_soon = False
                batch, actions = self._take()
                for stream in writable:
                    if stream.backlog and not stream.sending:
                        stream.sending = True
                        batch.append((stream, stream.backlog))
                        stream.backlog = []
                if self._todo:
                    actions, self._todo = self._todo + actions, []
            for action in actions:  # who waits for something gets it while the system sends
                if isinstance(action, Ticket):
                    self._handed += 1
                    self._finish(action)
                elif type(action) is Deliver:
                    self._handed += 1
                    delivered = True
                    self._hand_over(action.task)
                else:
                    others.append(action)
            if batch:
                send_batch(batch)
        finally:
            if batch:
                try:
                    self._settle(batch)
                except BaseException:
                    # an interrupt, which ends the loop: sockets that are being sent to are not closed
                    self._quit = True
                    self._settle(batch)
                    raise
        if delivered and not batch:
            self.let_begin()
        for action in others:
            self._perform(action, now)

    def _receive(self, events: list[tuple[int, int]], now: int) -> tuple[list[Stream], int]:
        """Bring what has come to the node; the streams that take more to send, and the time.

        When much has come, peers that were first get their answers, and jobs that have ended are heard of, before the
        rest is read: else one side would always wait while the other works.
        """
        streams, lock, received = self._streams, self._lock, self.node.received
        writable: list[Stream] = []
        size = 0
        seen = now
        for fd, flags in events:
            stream = streams.get(fd)
            if stream is None:
                other = self._others.get(fd)
                if other is not None:
                    other(now)
                continue
            if flags & WRITE:
                writable.append(stream)
            if flags & ~WRITE and not stream.closing:
                try:
                    data = stream.sock.recv(RECEIVE_SIZE)
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError as error:
                    self._lost(stream, describe(error), now)
                    continue
                if not data:
                    self._lost(stream, "closed by the peer", now)
                    continue
                now = self._now()  # what was sent while this turn went on is not stored earlier than it was born
                self.node.behind = now - seen
                with lock:
                    if not stream.link.ended and not self._quit:
                        received(stream.link, data, now if now > self._latest else self._latest)
                size += len(data)
                if size >= _EXCHANGE_SIZE:
                    size = 0
                    self._exchange(now, [])
        return writable, now

    def _timeout(self, now: int) -> float | None:
        """How long the next poll may wait, in seconds; negative to end the loop. Under the lock.

        An earlier time that was aimed at before is kept: most calls are answered long before they expire, and a caller
        whose deadline lies behind the loop's need not wake it. The price is one idle turn after the last call.
        """
        node = self.node
        if self._quit:
            return -1.0
        if self._inputs or self._todo or self._unmasked or node.actions or node.touched:
            self._until = 0
            return 0.0
        if node.ended and not self._streams:
            return -1.0
        until = node.next_deadline()
        if until is None:
            until = FOREVER
        if self._timers and self._timers[0][0] < until:
            until = self._timers[0][0]
        if not now < self._until < until:
            self._until = until
        return None if self._until == FOREVER else min(max(0, self._until - now), _POLL_MAX_MS) / 1000

    # Actions, and what becomes of streams. All in the loop.

    def _perform(self, action: Action, now: int) -> None:
        match action:
            case Ticket():
                self._finish(action)
            case Deliver(task):
                self._hand_over(task)
            case Run(job):
                self.run_beside(
                    partial(attempt, job.run, lambda failure: self._enter_later(self.node.done, job, failure))
                )
            case HangUp(link, reason):
                self._hang_up(link, reason, now)
            case Dial(link):
                if not link.ended:
                    link.driver_slot = self._dials[link] = Dialling(self, action, now)
            case _:
                assert_never(action)

    def _enter_later(self, verb: Callable[[*Ts, int], object], *arguments: *Ts) -> None:
        """Have the loop enter the node at its next turn. From any thread."""

        def entry(now: int) -> None:
            with self._lock:
                if not self._quit:
                    verb(*arguments, self._entry_time(now))

        self.feed(entry)

    def after(self, when: int, entry: Callable[[int], None]) -> None:
        """Call `entry(now)` in the loop when it is time."""
        heappush(self._timers, (when, next(self._timer_numbers), entry))

    def watch(self, sock: socket.socket, mask: int, on_event: Callable[[int], None]) -> None:
        """Call `on_event(now)` in the loop whenever the socket is ready."""
        self._others[sock.fileno()] = on_event
        self._poller.register(sock.fileno(), mask)

    def unwatch(self, sock: socket.socket) -> None:
        """Watch it no longer; nothing happens where it was not."""
        if self._others.pop(sock.fileno(), None) is not None:
            self._poller.unregister(sock.fileno())

    def _on_wake(self, now: int) -> None:
        with suppress(BlockingIOError, InterruptedError):
            self._waker.recv(64)
        self._woken = False  # before the inputs are read: what is fed from now on wakes again

    def _listen(self, now: int) -> None:
        for name, sock in self._listeners.items():
            if sock.fileno() not in self._others:
                self.watch(sock, READ, partial(self._on_accept, name, sock))

    def _on_accept(self, name: str, listener: socket.socket, now: int) -> None:
        for _ in range(_ACCEPTS_IN_A_TURN):
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in OUT_OF_FILES:
                    log.warning(
                        "%s: cannot accept a connection, trying again in a second: %s", self.name, describe(error)
                    )
                    for other in self._listeners.values():
                        self.unwatch(other)
                    self.after(now + ACCEPT_PAUSE_MS, self._listen)
                    return
                continue  # that one was gone before it was accepted
            try:
                tune(sock)
                address, local_address = peer_address(sock, peer)
            except OSError:
                sock.close()
                continue
            with self._lock:
                link = None if self._quit else self.node.accept(name, address, local_address, self._entry_time(now))
                if link is not None:
                    self._adopt(link, sock)
            if link is None:
                sock.close()

    def _adopt(self, link: Link, sock: Wire) -> None:
        stream = Stream(link, sock)
        link.driver_slot = stream
        self._streams[stream.fd] = stream
        self._poller.register(stream.fd, READ)

    def _remask(self, stream: Stream, now: int) -> None:
        """Bring what the poller waits for in line with the state of a stream."""
        if stream.gone:
            return
        if stream.failure:
            self._lost(stream, stream.failure, now)
            return
        waits = bool(stream.backlog)
        if stream.closing and not waits and not stream.sending:
            self._drop(stream)
            return
        mask = WRITE * waits | READ * (stream.link.wants_read and not stream.closing)
        if mask != stream.mask:
            stream.mask = mask
            self._poller.modify(stream.fd, mask)

    def _lost(self, stream: Stream, reason: str, now: int) -> None:
        """A connection ended from the other side."""
        with self._lock:
            if not stream.link.ended and not self._quit:
                self.node.closed(stream.link, reason, self._entry_time(now))
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        if stream.gone:
            return
        self._poller.unregister(stream.fd)
        self._let_go(stream)
        del self._streams[stream.fd]

    def _let_go(self, stream: Stream) -> None:
        with self._lock:
            stream.gone = True
            stream.link.driver_slot = GONE
            stream.link.unsent = 0
            stream.backlog = []
            if not stream.sending:
                stream.sock.close()

    def _hang_up(self, link: Link, reason: str, now: int) -> None:
        log.info("%s: hung up on %s: %s", self.name, link.address, reason)
        slot = link.driver_slot
        if isinstance(slot, Stream):
            slot.closing = True
            self._remask(slot, now)
            if not slot.gone:
                self.after(now + HANG_UP_MS, lambda now: self._drop(slot))
        else:
            dial = self._dials.pop(link, None)
            if dial is not None:
                dial.give_up()
            link.driver_slot = GONE

    def connected(self, link: Link, sock: Wire, now: int, early: bytes = b"") -> None:
        """A dial has ended well. `early` are bytes that have come already."""
        del self._dials[link]
        with self._lock:
            self._adopt(link, sock)
            if self._quit:
                return
            self.node.opened(link, self._entry_time(now))
            if early and not link.ended:
                self.node.received(link, early, self._entry_time(now))
            if link.out:
                self.node.touched.add(link)

    def refused(self, link: Link, reason: str) -> None:
        """A dial has failed."""
        del self._dials[link]
        link.driver_slot = GONE
        self._enter_later(self.node.closed, link, reason)

    # The end.

    def _begin_end(self) -> None:
        """Have the node close, unless the driver has ended already."""
        try:
            self.enter(self.node.close)
            self.feed(self._stop_listening)
        except StateError:
            pass
        except Exception:
            raise
        except BaseException as interrupt:  # perhaps the node was not told, and nobody comes back to do it
            self._cut_short(interrupt)
            raise

    def _stop_listening(self, now: int) -> None:
        for sock in self._listeners.values():
            self.unwatch(sock)
        close_listeners(self._listeners)
        self._listeners = {}

    def _fail(self, failure: BaseException) -> None:
        """A fault of the node or of this driver, or an interrupt, has ended the loop."""
        if self.failure is not None:
            return  # somebody inside was interrupted: that says it all
        self.failure = failure
        self._refusal = f"{self.name} has failed ({type(failure).__name__}): close it and make a new one"
        self._quit = True  # whatever is logged, and however long that takes
        log.critical("%s: the driver has failed", self.name, exc_info=failure)

    def _shut(self) -> None:
        """After the loop: close everything that is left, and let nobody wait any more."""
        try:
            self._shut_all()
        except BaseException:  # an interrupt, which must not leave anybody waiting
            self._shut_all()
            raise

    def _shut_all(self) -> None:
        """Twice is harmless, however far the first one came."""
        with self._lock:
            self._quit = True
        self._rouse()  # a thread that polls on behalf of the loop
        self._stop_listening(0)
        for stream in self._streams.values():
            self._let_go(stream)
        self._streams.clear()
        for dial in self._dials.values():
            dial.give_up()
        for sock in (self._waker, self._wakes):
            sock.close()
        self._poller.close()
        self._shut_down = True  # who takes something out of `_pending` and cannot tell it tells all of them from now on
        self._tell_all()


_drivers: Final[WeakSet[LoopDriver]] = WeakSet()


def _abandon_all() -> None:
    for driver in list(_drivers):
        driver.abandon()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_abandon_all)
