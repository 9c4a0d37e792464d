"""Lifecycle of clients and servers, and constants that all drivers share."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from mqproto.errors import StateError

log: Final = logging.getLogger("mqproto.driver")
logging.getLogger("mqproto").addHandler(logging.NullHandler())  # silent unless the application wants to hear of it

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
#: How long closing a client or server may take unless the caller says otherwise.
CLOSE_TIMEOUT_MS: Final = 10_000


def attempt(work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
    """Do some work and pass on how it ended; what a failure means is for others to say."""
    try:
        work()
    except Exception as failure:
        then(failure)
    else:
        then(None)


def tell(name: str, notices: deque[str] | None) -> None:
    """Log what a node found worth a line."""
    while notices:
        log.warning("%s: %s", name, notices.popleft())


class Lifecycle:
    """Lifecycle of something that starts once and closes once.

    What runs belongs to the process that started it: in the child of a fork its threads are missing and its connections
    are the parent's, so there it can only be thrown away.
    """

    __slots__ = ("_beginnings", "_closed", "_ends", "_fork", "_kind", "_started")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._started = False
        self._closed = False
        self._fork = forks.count
        #: Whoever takes the one that is in there begins, or ends: of several threads only one does, and no lock can be
        #: held at a fork.
        self._beginnings = [None]
        self._ends = [None]

    @property
    def running(self) -> bool:
        return self._started and not self._closed

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def began_here(self) -> bool:
        """Whether it was started, and in this process."""
        return self._started and self._fork == forks.count

    def start(self) -> None:
        """Raises StateError the second time and after the end."""
        if self._closed:
            raise StateError(f"the {self._kind} is closed and does not start again: make a new one")
        try:
            self._beginnings.pop()
        except IndexError:
            raise StateError(f"the {self._kind} is started already") from None
        self._fork = forks.count
        self._started = True

    def close(self) -> bool:
        """Whether there is something to close: it was running here and nobody else has closed it."""
        running = self.running and self._fork == forks.count
        self._closed = True
        if not running:
            return False
        try:
            self._ends.pop()
        except IndexError:
            return False
        except BaseException:  # an interrupt in this very moment: whoever closes next has it to do
            self._ends.append(None)
            self._closed = False
            raise
        return True

    def check(self) -> None:
        """Raises StateError unless it runs."""
        if not self._started or self._closed:
            raise StateError(f"the {self._kind} is {'closed' if self._closed else 'not started'}")
        if self._fork != forks.count:
            raise StateError(
                f"the {self._kind} was started before this process was forked off and belongs to the parent:"
                " make a new one"
            )


class _Forks:
    """Count of how often this process is the child of a fork that happened while this module was loaded."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def noticed(self) -> None:
        self.count += 1


forks: Final = _Forks()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=forks.noticed)
