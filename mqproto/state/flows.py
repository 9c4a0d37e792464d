"""Flows: operations that are a sequence (find a route, send, retry elsewhere), written as generators.

A flow yields one *effect* at a time and is resumed with the effect's outcome and the time: `outcome, now = yield effect`.
The client node performs effects; a flow knows no link, no clock and no runtime. Closing the generator cancels the operation.
Sync and async faces share every flow: they differ only in how they wait for the ticket that `ClientNode.start` returns.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from mqproto.codec import Command

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request to `address` (None: the chosen name server) and wait for its answer until `deadline`.

    Outcome: `Command` (any response code), `Lost`, or `Expired`.
    """

    address: str | None
    code: int
    fields: Mapping[str, str]
    body: bytes = b""
    deadline: int = 0


@dataclass(frozen=True, slots=True)
class Oneway:
    """Send a request that has no answer. Outcome: None once written, or `Lost`."""

    address: str | None
    code: int
    fields: Mapping[str, str]
    body: bytes = b""
    deadline: int = 0


@dataclass(frozen=True, slots=True)
class Sleep:
    """Go on at `until`. Outcome: None."""

    until: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when another flow of this node has ended (a route refresh in flight, say). Outcome: None."""

    ticket: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """The link could not be made, or ended before the answer came. `connected` tells which."""

    address: str
    reason: str
    connected: bool = False


@dataclass(frozen=True, slots=True)
class Expired:
    """No answer until the deadline."""

    address: str
    deadline: int = field(default=0)


Effect: TypeAlias = Call | Oneway | Sleep | Wait
Outcome: TypeAlias = Command | Lost | Expired | None
Flow: TypeAlias = Generator[Effect, tuple[Any, int], R]
