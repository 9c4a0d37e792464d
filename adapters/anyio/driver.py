"""Driver for asyncio and trio, by way of anyio: one task turns the loop, another minds its timer, any task may
enter the node.

The event loop waits for the driver's poller as a whole (an epoll or kqueue can itself be waited for), so a turn costs
one registration however many connections there are. Where the system has no such thing, a thread waits.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from socket import socket
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from mqproto.adapters.anyio.resuming import Resuming
from mqproto.adapters.io.lifecycle import FOREVER, JOBS_AT_A_TIME, log
from mqproto.adapters.io.loop import LoopDriver
from mqproto.adapters.io.pollers import Poller, make_poller
from mqproto.errors import StateError
from mqproto.state.node.contract import Node, Ticket

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Driver(LoopDriver):
    """Driver of one node in tasks of its own, which `start` begins and `stop` ends; both may be called from any task,
    also from different ones. See `LoopDriver` for the arguments.

    Between them `enter` (ask the node something) and `wait` (start an operation and wait for its end), from any task of
    the event loop.
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
        # There is one thread, and it leaves the node before it waits: the lock costs little and is never waited for.
        lock = threading.Lock()
        super().__init__(
            node, listeners or {}, deliver, cancel, notices, name=name, lock=lock, poller=poller or make_poller()
        )
        #: Whether the task that turns the loop runs, or has run: it alone knows.
        self.begun = False
        self._home: object = None
        self._aim = FOREVER  # when the timer task wakes the loop
        self._loop: asyncio.AbstractEventLoop | None = None  # None under trio
        self._turning = False
        self._resuming: deque[Resuming] = deque()
        self._to_start: deque[Callable[[], Coroutine[Any, Any, object]]] = deque()
        self._starting: asyncio.Future[None]
        self._fresh: list[Coroutine[Any, Any, object]] = []  # of the tasks that were started last
        # protected from them at the start
        self._uninterrupted: Callable[..., Coroutine[Any, Any, object]] = _run_uninterrupted

    async def start(self) -> None:
        """Begin. The node's listeners take connections from now on."""
        self.enter(_nothing)  # not if it was stopped before
        self._home = home()
        self._rearmed, self._over, self._turned_off = anyio.Event(), anyio.Event(), anyio.Event()
        self._group = anyio.create_task_group()
        self._limiter = anyio.CapacityLimiter(JOBS_AT_A_TIME)
        begun = anyio.Event()
        # A task that belongs to nobody's group may be begun and ended from different tasks.
        if in_trio():
            import trio

            self._uninterrupted = trio.lowlevel.enable_ki_protection(_run_uninterrupted)
            trio.lowlevel.spawn_system_task(self._run, begun, context=copy_context())
        else:
            self._loop = asyncio.get_running_loop()
            # no function in between, in which an interrupt would lose the coroutine
            self._task = self._loop.create_task(self._run(begun))
            self._task.add_done_callback(_hear_of)
        await begun.wait()
        self.enter(self.node.begin)

    async def stop(self, timeout: float = 10.0, *, from_inside: bool = False) -> bool:
        """Close the node and wait up to `timeout` seconds for its clean end; whether it came.

        Twice, or before the start, is harmless. At the time-out everything is closed as it is. Cancelling the caller
        has the same effect. `from_inside`: the caller is one of the driver's own tasks (`soon`); it is cancelled with
        the others and not waited for.
        """
        if not self.begun:
            if not self._shut_down:
                self._shut()
            return True
        self._begin_end()
        try:
            with anyio.move_on_after(timeout):
                await self._turned_off.wait()
        finally:
            orderly = self._turned_off.is_set() and self.failure is None
            if not orderly and self.failure is None:
                log.warning("%s: not ended within %s s, closing what is left", self.name, timeout)
            self._group.cancel_scope.cancel()
            if not from_inside:
                with anyio.CancelScope(shield=True):
                    await self._over.wait()
        return orderly

    async def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T:
        """Start an operation of the node and wait until it has ended: its value, or raises its failure. Cancelling
        gives it up.

        Raises StateError outside of the event loop that the driver was started in.
        """
        loop = self._loop
        if loop is None:
            self.check_home()
            event = anyio.Event()
            ticket = self.launch(event.set, verb, arguments, True)
            try:
                await event.wait()
            except BaseException:
                self.give_up(ticket)
                raise
            return self.outcome(ticket)
        if asyncio.get_running_loop() is not loop:
            self.check_home()
        future: asyncio.Future[None] = loop.create_future()  # costs a third of an event
        ticket = self.launch(partial(_settle, future), verb, arguments, True)
        try:
            if future.done():
                # others may run and a cancelled task ends, whether there is something to wait for or not
                await anyio.lowlevel.checkpoint()
            await future
        except BaseException:
            self.give_up(ticket)
            raise
        return ticket.result() if ticket.settled else self.outcome(ticket)

    def signal(self) -> tuple[Awaitable[object], Callable[[], object]]:
        """What one task awaits, at once, and what lets it go on; the latter is harmless when the task is gone."""
        if self._loop is None:
            event = anyio.Event()
            return event.wait(), event.set
        future = Resuming(loop=self._loop)
        return future, partial(self._signalled, future)

    def _signalled(self, future: Resuming) -> None:
        if self._turning:
            self._resuming.append(future)
        else:
            _settle(future)

    def _resume(self) -> None:
        """Behind a turn: let those go on that it has woken."""
        resuming = self._resuming
        try:
            while resuming:
                resuming.popleft().resume()
        finally:  # an interrupt came to one of them: the others go on in the usual way
            while resuming:
                _settle(resuming.popleft())

    def write_soon(self) -> None:
        if self._loop is None:
            self.wake()
        else:
            self._loop.call_soon(self._write)  # behind the tasks that are ready now, whose entries join in

    def _write(self) -> None:
        self._written_soon = False
        self._turning = True
        try:
            with suppress(StateError):  # ended meanwhile
                self.enter(_nothing)
        finally:
            self._turning = False
        self._resume()

    def soon(self, work: Callable[[*Ts], Coroutine[Any, Any, object]], *arguments: *Ts) -> None:
        """Run a coroutine function in a task of the driver's, cancelled when the driver ends. It must not raise."""
        if self._loop is None:
            self._group.start_soon(partial(self._uninterrupted, work, *arguments))
            return
        if not self._turning:
            self._group.start_soon(work, *arguments)
            return
        self._to_start.append(partial(work, *arguments))  # tasks start from tasks alone, and a turn is none
        _settle(self._starting)

    def check_home(self) -> None:
        """Raises StateError outside of the event loop that the driver was started in."""
        if (home() if self._loop is None else asyncio.get_running_loop()) is not self._home:
            raise StateError(f"{self.name} was started in another event loop")

    def is_over(self) -> bool:
        """Whether it has ended. One whose event loop was closed under it gives its descriptors back here."""
        if self.begun and self._loop is not None and self._loop.is_closed() and not self._quit:
            self._pending.clear()  # whoever waited went with the loop
            self.abandon()
        return super().is_over()

    @property
    def ending(self) -> bool:
        """Whether its tasks are being cancelled."""
        return self._group.cancel_scope.cancel_called

    def run_beside(self, work: Callable[[], None]) -> None:
        self.soon(partial(anyio.to_thread.run_sync, work, abandon_on_cancel=True, limiter=self._limiter))

    async def _run(self, begun: anyio.Event) -> None:
        """All that the driver does, from begin to end."""
        if self._shut_down:  # stopped before it began
            return
        self.begun = True
        cancelled = anyio.get_cancelled_exc_class()
        interrupt: BaseException | None = None
        try:
            async with self._group:
                try:
                    await self._turn_to_the_end(begun)
                except cancelled:
                    raise
                except Exception as failure:  # nobody may wait for ever because of it
                    self._fail(failure)
                except BaseException as failure:
                    interrupt = failure
                    self._cut_short(failure)
                self._group.cancel_scope.cancel()
        except BaseExceptionGroup as failures:  # of the tasks of the group
            failed = failures.split(cancelled)[1]
            if isinstance(failed, ExceptionGroup):
                self._fail(failed)
            elif failed is not None:  # an interrupt, which has ended the event loop: that may run again all the same
                self._cut_short(failed)
        finally:
            for coroutine in self._fresh:
                coroutine.close()  # where its task was cancelled before it began, and else harmless
            self._shut()
            for event in (begun, self._turned_off, self._over):
                event.set()
        if interrupt is not None:
            raise interrupt

    async def _turn_to_the_end(self, begun: anyio.Event) -> None:
        self._open()
        self.soon(self._tick)
        begun.set()
        if self._loop is not None and self._poller.fileno() >= 0:
            await self._turn_by_events(self._loop)
        else:
            timeout: float | None = 0.0
            while timeout is None or timeout >= 0:
                timeout = self._turn(await self._poll(timeout))
        self._turned_off.set()
        if self.failure is None:  # else a task was interrupted inside: who waits in others must not wait for `stop`
            await anyio.sleep_forever()  # tasks of the application end by `stop`

    async def _turn_by_events(self, loop: asyncio.AbstractEventLoop) -> None:
        """Turn until it is over. The poller stays registered with the event loop: a task that waited for it anew in
        every turn would cost two system calls and a switch more, which is most of what a single send costs.
        """
        is_over = False
        failure: Exception | None = None

        def turn() -> None:
            nonlocal is_over, failure
            if is_over:
                return
            self._turning = True
            try:
                timeout = self._turn(self._poller.poll(0))
            except Exception as error:
                failure, timeout = error, -1.0
            except BaseException as interrupt:  # it ends the event loop, which may run again all the same
                self._cut_short(interrupt)
                is_over = True
                _settle(self._starting)
                raise
            finally:
                self._turning = False
            try:
                self._resume()
            finally:
                if timeout == 0:
                    loop.call_soon(turn)  # others may run, however busy this driver is
                elif timeout is not None and timeout < 0:
                    is_over = True
                    _settle(self._starting)
                elif self._until < self._aim:
                    self._rearmed.set()

        fd = self._poller.fileno()
        self._starting = loop.create_future()
        loop.add_reader(fd, turn)
        loop.call_soon(turn)
        try:
            while not is_over:
                await self._starting
                self._starting = loop.create_future()
                self._fresh.clear()  # those of before have begun since
                while self._to_start:
                    coroutine = self._to_start.popleft()()
                    self._fresh.append(coroutine)
                    self._group.start_soon(_given, coroutine)
        finally:
            is_over = True
            loop.remove_reader(fd)
        if failure is not None:
            raise failure

    async def _poll(self, timeout: float | None) -> list[tuple[int, int]]:
        if timeout == 0:
            await anyio.lowlevel.checkpoint()  # others may run, however busy this driver is
            return self._poller.poll(0)
        if self._until < self._aim:
            self._rearmed.set()
        fd = self._poller.fileno()
        if fd < 0:
            return await anyio.to_thread.run_sync(
                self._poller.poll, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        await anyio.wait_readable(fd)
        return self._poller.poll(0)

    async def _tick(self) -> None:
        """Wake the loop when it is time: a task of its own, because a time-out around each wait would cost more."""
        while True:
            self._rearmed = anyio.Event()
            self._aim = self._until or FOREVER
            if self._aim == FOREVER:
                await self._rearmed.wait()
                continue
            with anyio.move_on_after((self._aim - self._now()) / 1000):
                await self._rearmed.wait()
                continue
            self._aim = FOREVER
            self.wake()
            await self._rearmed.wait()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():  # it was cancelled
        future.set_result(None)


def _hear_of(task: asyncio.Task[None]) -> None:
    """Take note of how the loop's task has ended.

    An interrupt has ended the event loop too, and asyncio need not report it again.
    """
    failure = None if task.cancelled() else task.exception()
    if isinstance(failure, Exception):
        log.critical("a driver did not end cleanly", exc_info=failure)


def _given(coroutine: Coroutine[Any, Any, object]) -> Coroutine[Any, Any, object]:
    return coroutine


async def _run_uninterrupted(work: Callable[[*Ts], Coroutine[Any, Any, object]], *arguments: *Ts) -> None:
    """What a task of the driver's does under trio: interrupts go to the main task, at its next checkpoint.

    An exception of theirs is none: the tasks belong to one of trio's own, in which it is a fault of trio.
    """
    await work(*arguments)


def _nothing(now: int) -> None:
    """An entry for the sake of what waits to be written."""


def home() -> object:
    """The caller's event loop, as something that differs from all others."""
    if in_trio():
        import trio

        return trio.lowlevel.current_trio_token()
    return asyncio.get_running_loop()


def in_trio() -> bool:
    """Whether the caller is a task of trio's and not of asyncio's."""
    if "trio" in sys.modules:
        import trio

        return trio.lowlevel.in_trio_task()
    return False
