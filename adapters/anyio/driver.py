"""The driver for asyncio and trio, by way of anyio: a task for each connection, one for the timer, and the node is entered from any task.

Owns: sockets, what a socket did not take yet, when the node's timer is due.
Leaves to others: what the bytes mean.

All of it runs in one thread, so there is no lock. A caller writes out at once what its entry produced; a task waits for a socket
only when it did not take everything.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, assert_never

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from adapters.driving import ACCEPT_PAUSE_MS, FOREVER, GONE, HANG_UP_MS, JOBS_AT_A_TIME, log, tell
from adapters.sockets import (
    CONNECTING,
    OUT_OF_FILES,
    RECEIVE_SIZE,
    begin_connect,
    close_listeners,
    connect_failure,
    describe,
    peer_address,
    resolve,
    resolve_number,
    send_buffers,
    tune,
)
from mqproto.errors import StateError
from mqproto.state.node import Action, Buffer, Deliver, Dial, Finished, HangUp, Job, Link, Node, Run, Ticket

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Stream:
    """The driver's side of a link: its socket once there is one, its tasks, and what the socket did not take yet."""

    __slots__ = ("backlog", "closing", "drained", "link", "opened", "reason", "sock", "tasks")

    def __init__(self, link: Link, sock: socket.socket | None = None) -> None:
        self.link = link
        self.sock = sock
        #: The node knows that the link is open; until then what it writes waits in the link.
        self.opened = sock is not None
        self.tasks: anyio.abc.TaskGroup | None = None
        self.backlog: list[Buffer] = []
        #: Set after each progress of the backlog, for a reader that waits until the peer has taken enough.
        self.drained: anyio.Event | None = None
        #: The node has hung up: over when all is sent.
        self.closing = False
        self.reason = ""

    def end(self) -> None:
        """End the tasks of the link, by which the socket is closed."""
        self.closing = True
        if self.tasks is not None:
            self.tasks.cancel_scope.cancel()


class Driver:
    """Drives one node in tasks of its own, which `start` begins and `stop` ends; both may be called from any task.

    `listeners` are bound, listening, non-blocking sockets by the names that the node knows; the driver closes them.
    `deliver` gets the task of each `Deliver` action, outside the node. `cancel` is the node's way to give an operation up that nobody
    waits for any more. `remarks` are the node's: they are logged, and removed.
    """

    def __init__(
        self,
        node: Node,
        listeners: Mapping[str, socket.socket] | None = None,
        deliver: Callable[[object], None] | None = None,
        cancel: Callable[[Ticket[Any], int], None] | None = None,
        remarks: deque[str] | None = None,
        *,
        name: str = "mqproto",
    ) -> None:
        self.node = node
        self.name = name
        #: How often something was brought to the node. An idle driver brings nothing.
        self.turns = 0
        #: What ended the driver out of turn: a fault of the node or of the driver itself.
        self.failure: BaseException | None = None
        self._listeners = dict(listeners or {})
        self._deliver = deliver
        self._cancel = cancel
        self._remarks = remarks
        self._streams: set[Stream] = set()
        self._pending: set[Ticket[Any]] = set()  # operations whose end somebody waits for
        self._until = 0  # when the timer task turns at the latest
        self._started = False
        self._closing = False
        self._quit = False
        self._accepting: list[anyio.CancelScope] = []

    # For callers, from any task.

    async def start(self) -> None:
        """Begin. The node's listeners take connections from now on."""
        self._started = True
        self._rearmed = anyio.Event()
        self._node_ended = anyio.Event()
        self._over = anyio.Event()
        self._limiter = anyio.CapacityLimiter(JOBS_AT_A_TIME)
        begun = anyio.Event()
        self._task = spawn(partial(self._run, begun))
        await begun.wait()

    async def stop(self, timeout: float = 10.0, *, from_inside: bool = False) -> bool:
        """Close the node and wait up to `timeout` seconds for its orderly end; whether it came. Twice, or before start, is harmless.

        At the time-out everything is closed as it is. Cancelling the caller has the same effect. `from_inside`: the caller is one of the
        driver's own tasks; it is cancelled with the others and not waited for.
        """
        if not self._started:
            self._started = self._quit = True
            self._stop_listening()
            return True
        self._closing = True
        with suppress(StateError):  # it has ended already
            self.enter(self.node.close)
            self._stop_listening()
        orderly = False
        try:
            with anyio.move_on_after(timeout):
                await self._node_ended.wait()
                orderly = self.failure is None
        finally:
            if not orderly:
                log.warning("%s: not ended within %s s, closing what is left", self.name, timeout)
            self._group.cancel_scope.cancel()
            if not from_inside:
                with anyio.CancelScope(shield=True):
                    await self._over.wait()
        return orderly

    def enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T:
        """Call a method of the node with the time as last argument, write out what it produced, return what it returned."""
        if self._quit:
            raise StateError(f"{self.name} is closed") from self.failure
        try:
            return verb(*arguments, self._now())
        finally:
            self._carry_out()

    async def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T:
        """Start an operation of the node and wait until it has ended: its value, or raises its failure. Cancelling gives it up."""
        ended = anyio.Event()
        ticket = self.enter(self._begin, ended, verb, arguments)
        try:
            await ended.wait()
        except BaseException:
            if self._cancel is not None and not ticket.settled and not self._quit:
                self.enter(self._cancel, ticket)
            raise
        if not ticket.settled:
            raise StateError(f"{self.name} ended before the operation did") from self.failure
        return ticket.result()

    def _begin(self, ended: anyio.Event, verb: Callable[[*Ts, int], Ticket[T]], arguments: tuple[*Ts], now: int) -> Ticket[T]:
        ticket = verb(*arguments, now)
        ticket.wake = ended.set
        self._pending.add(ticket)
        return ticket

    def _finish(self, ticket: Ticket[Any]) -> None:
        self._pending.discard(ticket)
        if ticket.wake is not None:
            ticket.wake()

    @property
    def ending(self) -> bool:
        """Whether its tasks are being cancelled."""
        return self._group.cancel_scope.cancel_called

    def soon(self, work: Callable[[*Ts], Coroutine[Any, Any, object]], *arguments: *Ts) -> None:
        """Run a coroutine function in a task of the driver's, cancelled when the driver ends. It must not raise."""
        self._group.start_soon(work, *arguments)

    # The tasks.

    async def _run(self, begun: anyio.Event) -> None:
        """All that the driver does, from begin to end."""
        try:
            async with anyio.create_task_group() as self._group:
                for name, sock in self._listeners.items():
                    self.soon(self._accept, name, sock)
                self.enter(self.node.begin)
                begun.set()
                await self._tick()
        except Exception as failure:  # a fault of the node or of this driver: nobody may wait for ever because of it
            self.failure = failure
            log.critical("%s: the driver has failed", self.name, exc_info=True)
        finally:
            self._quit = True
            self._stop_listening()
            while self._pending:
                self._finish(self._pending.pop())
            for event in (begun, self._node_ended, self._over):
                event.set()

    async def _tick(self) -> None:
        """Call the node's timer when it is due.

        An earlier time that was aimed at before is kept: most calls are answered long before they expire, and a caller whose
        deadline lies behind this task's need not wake it. The price is one idle turn after the last call.
        """
        while True:
            now = self._now()
            deadline = self.node.next_deadline()
            if deadline is not None and deadline <= now:
                self.node.timer(now)
                self._carry_out()
                continue
            self._rearmed = anyio.Event()
            self._until = FOREVER if deadline is None else deadline
            self.turns += 1
            if deadline is None:
                await self._rearmed.wait()
            else:
                with anyio.move_on_after((deadline - now) / 1000):
                    await self._rearmed.wait()

    async def _accept(self, name: str, listener: socket.socket) -> None:
        with anyio.CancelScope() as scope, listener:
            self._accepting.append(scope)
            while True:
                await anyio.wait_readable(listener)
                try:
                    sock, peer = listener.accept()
                except OSError as error:  # most often: another process was faster, or the peer is gone already
                    if error.errno in OUT_OF_FILES:
                        log.warning("%s: cannot accept a connection, trying again in a second: %s", self.name, describe(error))
                        await anyio.sleep(ACCEPT_PAUSE_MS / 1000)
                    continue
                try:
                    tune(sock)
                    address, local_address = peer_address(sock, peer)
                except OSError:
                    sock.close()
                    continue
                self.turns += 1
                link = self.node.accept(name, address, local_address, self._now())
                if link is None:
                    sock.close()
                else:
                    self._adopt(Stream(link, sock), None)
                self._carry_out()

    def _adopt(self, stream: Stream, dial: Dial | None) -> None:
        stream.link.driver_slot = stream
        self._streams.add(stream)
        self.soon(self._attend, stream, dial)

    async def _attend(self, stream: Stream, dial: Dial | None) -> None:
        """A link from its first to its last moment."""
        link = stream.link
        try:
            async with anyio.create_task_group() as stream.tasks:
                if dial is not None:
                    stream.sock = await self._connect(stream, dial)
                if stream.sock is not None and not stream.closing:
                    if not stream.opened:
                        stream.opened = True
                        self.enter(self.node.opened, link)
                        self._send(stream)
                    elif stream.backlog:
                        stream.tasks.start_soon(self._drain, stream, stream.sock)
                    await self._read(stream, stream.sock)
                stream.end()
        finally:
            if stream.sock is not None:
                stream.sock.close()
            self._streams.discard(stream)
            link.driver_slot = GONE
            if not link.ended:
                self.node.closed(link, stream.reason, self._now())
            self._carry_out()

    async def _connect(self, stream: Stream, dial: Dial) -> socket.socket | None:
        """A connected socket, or None and the reason in the stream."""
        stream.reason = f"not connected within {dial.timeout_ms} ms"
        if dial.tls:
            stream.reason = "this driver has no TLS"
            return None
        with anyio.move_on_after(dial.timeout_ms / 1000):
            try:
                found = resolve_number(dial.link.address)
                if found is None:
                    found = await anyio.to_thread.run_sync(resolve, dial.link.address, abandon_on_cancel=True, limiter=self._limiter)
            except (OSError, ValueError) as error:
                stream.reason = describe(error)
                return None
            for candidate in found:
                try:
                    sock, code = begin_connect(candidate)
                except OSError as error:
                    stream.reason = describe(error)
                    continue
                try:
                    if code in CONNECTING:
                        await anyio.wait_writable(sock)
                    failure = connect_failure(sock)
                    if not failure:
                        stream.reason = ""
                        return sock
                    stream.reason = failure
                finally:
                    if stream.reason:
                        sock.close()
        return None

    async def _read(self, stream: Stream, sock: socket.socket) -> None:
        """Bring what a connection sends to the node until it ends."""
        link = stream.link
        while not stream.closing:
            if not link.wants_read:
                stream.drained = anyio.Event()
                await stream.drained.wait()
                continue
            await anyio.wait_readable(sock)
            try:
                data = sock.recv(RECEIVE_SIZE)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                stream.reason = describe(error)
                return
            if not data:
                stream.reason = "closed by the peer"
                return
            if not link.ended:
                self.turns += 1
                self.node.received(link, data, self._now())
                self._carry_out()

    async def _drain(self, stream: Stream, sock: socket.socket) -> None:
        """Send what the socket did not take at once."""
        while stream.backlog:
            await anyio.wait_writable(sock)
            self._offer(stream, sock, stream.backlog)
            if stream.drained is not None:
                stream.drained.set()
        if stream.closing:
            stream.end()

    # Between entries.

    def _now(self) -> int:
        now = time.monotonic_ns() // 1_000_000
        self.node.wall_ahead = time.time_ns() // 1_000_000 - now
        return now

    def _carry_out(self) -> None:
        """After each entry: write out, perform, and see to the timer."""
        node = self.node
        if node.touched:
            touched, node.touched = node.touched, set()
            for link in touched:
                stream = link.driver_slot
                if isinstance(stream, Stream):
                    if stream.opened:
                        self._send(stream)
                elif stream is GONE:
                    node.data_to_send(link)
        while node.actions:
            actions, node.actions = node.actions, []
            for action in actions:
                self._perform(action)
        if self._remarks:
            tell(self.name, self._remarks)
        deadline = node.next_deadline()
        if deadline is not None and deadline < self._until:
            self._until = 0  # once is enough
            self._rearmed.set()
        if self._closing and node.ended and not self._streams:
            self._node_ended.set()

    def _send(self, stream: Stream) -> None:
        """Send what a link has, without waiting; what is left is the drain task's."""
        buffers = self.node.data_to_send(stream.link)
        if stream.backlog:
            stream.backlog += buffers
        elif buffers and stream.sock is not None:
            self._offer(stream, stream.sock, buffers)
            if stream.backlog and stream.tasks is not None:
                stream.tasks.start_soon(self._drain, stream, stream.sock)

    def _offer(self, stream: Stream, sock: socket.socket, buffers: list[Buffer]) -> None:
        try:
            stream.backlog = send_buffers(sock, buffers)
        except OSError as error:
            stream.backlog = []
            stream.reason = describe(error)
            stream.end()
        stream.link.unsent = sum(map(len, stream.backlog)) + sum(map(len, stream.link.out))

    def _perform(self, action: Action) -> None:
        match action:
            case Finished(ticket):
                self._finish(ticket)
            case Deliver(task):
                assert self._deliver is not None, "a node that delivers needs somebody to deliver to"
                self._deliver(task)
            case Run(job):
                self.soon(self._run_job, job)
            case HangUp(link, reason):
                self._hang_up(link, reason)
            case Dial(link):
                if not link.ended:
                    self._adopt(Stream(link), action)
            case _:
                assert_never(action)

    def _hang_up(self, link: Link, reason: str) -> None:
        log.info("%s: hung up on %s: %s", self.name, link.address, reason)
        stream = link.driver_slot
        if not isinstance(stream, Stream):
            link.driver_slot = GONE
        elif stream.backlog and stream.tasks is not None:
            stream.closing = True
            stream.tasks.cancel_scope.deadline = anyio.current_time() + HANG_UP_MS / 1000
        else:
            stream.end()

    async def _run_job(self, job: Job) -> None:
        failure: Exception | None = None
        try:
            await anyio.to_thread.run_sync(job.run, limiter=self._limiter)
        except Exception as error:  # handed on: the node decides what it means
            failure = error
        self.turns += 1
        self.node.done(job, failure, self._now())
        self._carry_out()

    def _stop_listening(self) -> None:
        if not self._started or self._quit:
            close_listeners(self._listeners)
        for scope in self._accepting:
            scope.cancel()


def spawn(main: Callable[[], Coroutine[Any, Any, None]]) -> object:
    """Run a task that belongs to nobody's task group, so that it may be begun and ended from different tasks."""
    if "trio" in sys.modules:
        import trio

        if trio.lowlevel.in_trio_task():
            return trio.lowlevel.spawn_system_task(main, context=copy_context())
    return asyncio.get_running_loop().create_task(main())
