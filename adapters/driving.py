"""What the drivers of all runtimes have in common."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

from mqproto.state.node import Ticket

log: Final = logging.getLogger("mqproto.driver")

#: `Link.driver_slot` of a link that is over: what the node still writes there is dropped.
GONE: Final = object()
#: A deadline that never comes.
FOREVER: Final = 1 << 62
#: How long a link that the node has given up may take to send its last bytes.
HANG_UP_MS: Final = 1000
#: Out of file descriptors: how long to wait before accepting again; others may close some meanwhile.
ACCEPT_PAUSE_MS: Final = 1000
#: How many jobs run at a time: an fsync must not wait behind the creation of a file.
JOBS_AT_A_TIME: Final = 4

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def begin_ticket(wake: Callable[[], None], verb: Callable[[*Ts, int], Ticket[T]], arguments: tuple[*Ts], now: int) -> Ticket[T]:
    """Start an operation inside a node; `wake` is called when it has ended."""
    ticket = verb(*arguments, now)
    ticket.wake = wake
    return ticket


def wake_ticket(ticket: Ticket[object]) -> None:
    """Tell who waits for a ticket that it is settled."""
    if ticket.wake is not None:
        ticket.wake()


def attempt(work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
    """Do some work and pass on how it ended; what a failure means is for others to say."""
    try:
        work()
    except Exception as failure:
        then(failure)
    else:
        then(None)
