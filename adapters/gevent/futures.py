"""Futures for greenlets that cost little as long as nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

import gevent.event

from mqproto.adapters.io.outcome import Callback, Outcome
from mqproto.adapters.sync.runtime import Pool
from mqproto.state.node.contract import Ticket

T = TypeVar("T")


class SendFuture(Outcome[T]):
    """Future like `concurrent.futures.Future` for threads: waiting lets other greenlets run. Callbacks run in greenlets
    of a pool.

    For the greenlets of one hub, so nothing needs a lock.
    """

    def __init__(self, pool: Pool, read: Callable[[Ticket[T]], T]) -> None:
        super().__init__(read)
        self._pool = pool
        self._done = False
        self._result: T | None = None
        self._exception: BaseException | None = None
        self._event: gevent.event.Event | None = None  # made when somebody waits before the end
        self._functions: list[Callback[SendFuture[T]]] = []

    def result(self, timeout: float | None = None) -> T:
        """The value, or raises the failure; TimeoutError after `timeout` seconds."""
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        return cast(T, self._result)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The failure, None when there was none; TimeoutError after `timeout` seconds."""
        if not self._done:
            if self._event is None:
                self._event = gevent.event.Event()
            if not self._event.wait(timeout):
                raise TimeoutError
        return self._exception

    def done(self) -> bool:
        return self._done

    def add_done_callback(self, function: Callable[[SendFuture[T]], object], /) -> None:
        self._functions.append(Callback(function))
        if self._done:
            self._call_all()

    def set_result(self, result: T) -> None:
        self._result = result
        self._finish()

    def set_exception(self, exception: BaseException | None) -> None:
        self._exception = exception
        self._finish()

    def _finish(self) -> None:
        self._done = True
        if self._event is not None:
            self._event.set()
        self._call_all()

    def _call_all(self) -> None:
        while self._functions:
            self._pool.submit(partial(self._functions[0], self))
            del self._functions[0]
