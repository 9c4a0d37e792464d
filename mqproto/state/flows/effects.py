"""Flows: operations in several steps (find a route, send, retry elsewhere), written as generators.

A flow yields one *effect* at a time and is resumed with the effect's outcome and the time:
`outcome, now = yield effect`.
The client node performs effects; a flow knows no link, no clock and no runtime. Closing the generator cancels the
operation.
Plain and async clients share every flow: they differ in how they wait for the ticket that `ClientNode.start` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from mqproto.codec import Command
from mqproto.errors import CallExpired, ConnectFailed, ConnectionLost, MQError, refusal
from mqproto.state.node.contract import Job, Ticket
from mqproto.wire.codes import ResponseCode

R = TypeVar("R")


class FastAnswer(Protocol):
    """Usual answer to a call of one kind, read from its frame without a `Command`."""

    opaque: int
    version: int


#: Reads the usual answer in a frame without its length word; None for all others, good or bad.
ReadAnswer: TypeAlias = Callable[[bytes], FastAnswer | None]


@dataclass(frozen=True, slots=True)
class Call:
    """Effect: send a request to `address` (None: a name server) and wait for its answer until `deadline`.

    Outcome: `Command` (any response code) or what `read_answer` gives, `Lost`, or `Expired`.
    """

    address: str | None
    code: int
    fields: Mapping[str, str]
    body: bytes = b""
    deadline: int = 0
    #: To the broker's first port also where requests of this kind go to the second (`vip`).
    first_port: bool = False
    #: How the usual answer is read where that is quicker than a `Command`, which other answers still are.
    read_answer: ReadAnswer | None = None


@dataclass(frozen=True, slots=True)
class Oneway:
    """Effect: send a request without an answer. Outcome: None once it is on a connected link, `Lost`, or `Expired`."""

    address: str | None
    code: int
    fields: Mapping[str, str]
    body: bytes = b""
    deadline: int = 0


@dataclass(frozen=True, slots=True)
class Sleep:
    """Effect: go on at `until`. Outcome: None."""

    until: int


@dataclass(frozen=True, slots=True)
class Later:
    """Effect: go on at once, but not before the driver has carried out what was decided so far. Outcome: None."""


LATER: Final = Later()


@dataclass(frozen=True, slots=True)
class Wait:
    """Effect: go on when a ticket of this node is settled (`spawn`, `wake`), or at `deadline` if that comes first.

    Outcome: None; `ticket.settled` says which it was.
    """

    ticket: Ticket[Any]
    deadline: int | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """Effect: bring the cached route of a topic up to date. Flows that ask at the same time share one request.

    Outcome: None when the name server's answer is in the route table, else the `MQError` that says why not:
    `NoNameServer`, `ConnectFailed`, `ConnectionLost`, `CallExpired`, or `BrokerError` (code 17: no such topic). A route
    that was known stays.
    """

    topic: str
    deadline: int


@dataclass(frozen=True, slots=True)
class Work:
    """Effect: run a job beside the loop. Outcome: None, or the exception that its `run` raised."""

    job: Job


@dataclass(frozen=True, slots=True)
class Lost:
    """Outcome: the link could not be made, or ended before the answer came. `connected` says which."""

    address: str
    reason: str
    connected: bool = False


@dataclass(frozen=True, slots=True)
class Expired:
    """Outcome: no answer until the deadline, `timeout_ms` after the effect was asked for."""

    address: str
    timeout_ms: int = 0


Effect: TypeAlias = Call | Oneway | Sleep | Later | Wait | Refresh | Work
Outcome: TypeAlias = Command | FastAnswer | Lost | Expired | Exception | None
Flow: TypeAlias = Generator[Effect, tuple[Any, int], R]


def failure(outcome: Lost | Expired) -> MQError:
    """The error that stands for a call without an answer."""
    if isinstance(outcome, Expired):
        return CallExpired(outcome.address, outcome.timeout_ms)
    if outcome.connected:
        return ConnectionLost(outcome.address, outcome.reason)
    return ConnectFailed(outcome.address, outcome.reason)


def answer(outcome: Command | Lost | Expired) -> Command:
    """The answer of a call, whatever its code.

    Raises `ConnectFailed`, `ConnectionLost` or `CallExpired` when there is none.
    """
    if isinstance(outcome, Command):
        return outcome
    raise failure(outcome)


def success(outcome: Command | Lost | Expired, address: str) -> Command:
    """The answer of a call that succeeded. Raises BrokerError for any other code, else as `answer`."""
    command = answer(outcome)
    if command.code != ResponseCode.SUCCESS:
        raise refusal(command.code, command.remark, address)
    return command


def wait_for_all(tickets: Iterable[Ticket[Any]], now: int, deadline: int | None = None) -> Flow[int]:
    """Wait until all are settled, or until the deadline; returns the time."""
    for ticket in tickets:
        _, now = yield Wait(ticket, deadline)
    return now


def current(now: int) -> Flow[int]:
    """The time, for a flow whose `now` is old: after a failure of another flow, which cannot say how long it took."""
    _, now = yield Sleep(now)
    return now
