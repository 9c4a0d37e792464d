"""Answers that may come later: long ones, those that read from the disk first, those that wait for a save."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

from mqproto.codec import Command
from mqproto.engine.broker.interfaces.requests import Peer, Receiver, Refused
from mqproto.engine.slices import Steps
from mqproto.engine.store import ColdRead, Queue, Read, Reader
from mqproto.wire.bodies import Body

T = TypeVar("T")


class LongAnswers(Protocol):
    """Answers and other work that are made in slices between other requests (`SlicedAnswers`)."""

    def reply(self, link: Peer, request: Command, body: Body) -> None:
        """Answer with success and a body. Raises Refused when too much waits."""

    def answer(self, link: Peer, request: Command, steps: Steps[T], then: Callable[[T], None]) -> None:
        """Call `then` with the outcome of some work, unless the link is over. Either may raise Refused."""

    def run(self, owner: Hashable, steps: Steps[T], then: Callable[[T], None], own: bool = False) -> bool:
        """Do work that is no answer. False when too much waits, which is never so for the broker's `own` work."""


class DiskReads(Protocol):
    """Reads that may have to wait for the disk (`WaitingReads`)."""

    @property
    def own(self) -> Receiver:
        """The link that stands for the broker where it reads for itself."""

    def answer(
        self, link: Peer, request: Command, read: Read[T], then: Callable[[T], None], needed: bool = False
    ) -> None:
        """Call `then` with what is read, now or later. It may raise Refused, as may this."""

    def across(
        self,
        link: Peer,
        request: Command,
        queues: Sequence[Queue],
        read: Callable[[Reader, Sequence[Queue]], list[T]],
        then: Callable[[list[T]], None],
    ) -> None:
        """Call `then` with what `read` finds of each queue, now or later. It may raise Refused, as may this."""

    def wait(
        self,
        link: Receiver,
        job: ColdRead[T],
        then: Callable[[T], None],
        refuse: Callable[[Refused], None],
        needed: bool = False,
        patience_ms: int | None = None,
    ) -> None:
        """Run a job, then call `then` with its result or `refuse`. Raises Refused when too many wait."""


class Confirmations(Protocol):
    """Confirmations of changes in a table, which wait until it is saved (`PendingAcks`)."""

    def confirm(self, link: Peer, request: Command) -> None:
        """Answer with success once all changes so far are saved."""
