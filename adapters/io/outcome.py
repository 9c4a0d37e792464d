"""Outcome of futures, for all runtimes in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mqproto.errors import StateError
from mqproto.state.node.contract import Ticket

T = TypeVar("T")
F = TypeVar("F")


class Callback(Generic[F]):
    """Callback that calls a function with its future once, however often it is called itself: an interrupt may leave it
    doubtful whether it was.
    """

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[F], object]) -> None:
        self._function = [function]

    def __call__(self, future: F) -> None:
        try:
            function = self._function.pop()
        except IndexError:
            return
        function(future)


class Outcome(Generic[T]):
    """Future as the driver sees it: it is settled by the end of one operation.

    `read` is the driver's `outcome`. Whoever starts the operation sets `ticket` before the node is left; it is there
    until the end, since each of the two leads to the other.
    """

    ticket: Ticket[T]
    #: What whoever submits has to wait for, so that sends do not pile up: settled when this one has room, or is over.
    room: Ticket[None] | None = None

    def __init__(self, read: Callable[[Ticket[T]], T]) -> None:
        self._read = read

    def ended(self) -> None:
        """For the driver, from any thread: the operation has ended, or can end no more. Once; and once more where an
        interrupt came to the thread that said so.
        """
        try:
            ticket = self.ticket
        except AttributeError:
            return
        if not ticket.settled:
            try:
                self._read(ticket)
            except StateError as failure:
                self.set_exception(failure)
        elif ticket.failure is None:
            self.set_result(ticket.result())
        else:
            self.set_exception(ticket.failure)
        del self.ticket

    def set_result(self, result: T) -> None:
        raise NotImplementedError

    def set_exception(self, exception: BaseException | None) -> None:
        raise NotImplementedError
