"""Future whose task goes on within the call that settles it.

A task that is woken in the usual way goes on in the next round of the event loop, which looks for events in between:
that takes as long as most of what a delivery needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any


class Resuming(asyncio.Future[None]):
    """Future that one task awaits, once."""

    _waiting: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, function: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        super().add_done_callback(function, context=context)
        if context is not None:
            self._waiting = function, context

    def resume(self) -> None:
        """Settle it and let the task go on, here and now. Only where no task runs: in a callback of the event loop.

        By the way in which tasks of asyncio wait for futures that are not of its own class; for a task that waited in
        another way this is what settling always is.
        """
        if self.done():  # its task was cancelled
            return
        waiting = self._waiting
        if waiting is None:
            self.set_result(None)
            return
        function, context = waiting
        self.remove_done_callback(function)
        self.set_result(None)
        context.run(function, self)
