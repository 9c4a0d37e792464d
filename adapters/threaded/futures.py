"""Futures for threads that cost little as long as nobody waits for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from threading import Condition, RLock
from typing import Final, TypeVar

from mqproto.adapters.io.outcome import Callback, Outcome
from mqproto.adapters.sync.runtime import Pool
from mqproto.state.node.contract import Ticket

T = TypeVar("T")

_deciding: Final = RLock()  # a signal handler may come to it where the thread that it interrupts has it
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_deciding._at_fork_reinit)  # type: ignore[attr-defined]  # as the standard library does with its own


class SendFuture(Future[T], Outcome[T]):
    """Future that runs its callbacks in a pool: they may wait for the producer, which the driver's thread must not.

    Of a fast loop of sends hardly any future is ever waited for: its outcome is there when it is asked for. So the
    condition of the standard library's future, which is most of its cost, is made when somebody waits, or wants to be
    called, before the end. One lock for all futures decides which of both comes first, held for no longer than that;
    from then on everything is the standard library's own.
    """

    _state = RUNNING  # it is under way: there is no cancelling
    _result = None
    _exception = None
    _made: Condition | None = None

    def __init__(self, pool: Pool, read: Callable[[Ticket[T]], T]) -> None:
        self._read = read
        self._pool = pool

    def _condition_made(self) -> Condition:
        with _deciding:
            if self._made is None:
                self._waiters = []
                self._done_callbacks: list[Callable[[Future[T]], object]] = []
                self._made = Condition()
            return self._made

    #: What the standard library's waiting, its callbacks, `wait` and `as_completed` take before they touch the lists
    #: that it comes with.
    _condition: Condition = property(_condition_made)  # type: ignore[assignment]

    def done(self) -> bool:
        return self._state == FINISHED

    def result(self, timeout: float | None = None) -> T:
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]  # of a result that is None it is the type
        return super().result(timeout)

    def ended(self) -> None:
        with _deciding:
            if self._made is None:
                if self._state == FINISHED:
                    return
                if self.ticket.settled:
                    self._exception = self.ticket.failure
                    if self._exception is None:
                        self._result = self.ticket.result()
                    del self.ticket
                    self._state = FINISHED  # last: whoever sees it takes no lock
                    return
        if self._state == FINISHED:
            self._tell_again()
        else:
            super().ended()

    def _tell_again(self) -> None:
        """An interrupt came to the thread that set the outcome, when perhaps not all who wait had been told."""
        with self._condition:
            for waiter in self._waiters:
                if self in waiter.finished_futures:
                    waiter.event.set()
                elif self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]  # what `set_result` does
        self.__dict__.pop("ticket", None)

    def add_done_callback(self, function: Callable[[Future[T]], object], /) -> None:
        call = Callback(function)
        super().add_done_callback(lambda future: self._pool.submit(lambda: call(future)))
