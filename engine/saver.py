"""Saver of a state, which saves while requests go on.

Owns: at most one save at a time, and the answers that wait for it. Changes during a save share the next one.
Leaves to others: what is saved and where (functions given at construction), running the job (the driver).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from mqproto.state.node.contract import Job

T = TypeVar("T")

#: Answers that may wait for a slow disk; further changes are refused as busy.
WAITING_MAX: Final = 1024


class Saver(Generic[T]):
    """Saver of what `render` gives by jobs that `make_job` makes; without the latter there is nothing to wait for.

    `ended` is told of the end of each job, before those who wait for it.
    """

    __slots__ = ("_ended", "_held", "_make_job", "_render", "_waiting", "job")

    def __init__(
        self,
        render: Callable[[], T],
        make_job: Callable[[T], Job] | None,
        ended: Callable[[Exception | None], None] | None = None,
    ) -> None:
        self._ended = ended
        self._render = render
        self._make_job = make_job
        #: The save that runs.
        self.job: Job | None = None
        self._held: list[Callable[[Exception | None], Any]] = []
        self._waiting: list[Callable[[Exception | None], Any]] = []

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= WAITING_MAX

    def wait(self, settle: Callable[[Exception | None], Any]) -> None:
        """Have `settle` called once the present state is saved, with None or with why it could not be."""
        if self._make_job is None:
            settle(None)
        else:
            self._waiting.append(settle)

    def next_job(self) -> Job | None:
        """The job to run now, if there is something to save and none runs."""
        if self.job is not None or not self._waiting or self._make_job is None:
            return None
        self._held, self._waiting = self._waiting, []
        self.job = self._make_job(self._render())
        return self.job

    def done(self, failure: Exception | None) -> None:
        """The job that runs has ended."""
        held, self._held = self._held, []
        self.job = None
        if self._ended is not None:
            self._ended(failure)
        for settle in held:
            settle(failure)
