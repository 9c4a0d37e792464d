"""Lock that is taken so that those who want it do not end up in a queue."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

#: So often the others are let run before a lock is waited for after all: whoever has it may have been put aside by the
#: system.
_TRIES: Final = 100


class YieldingLock:
    """Lock that is taken (`with`) by trying, and letting other threads run in between.

    A thread that waits for a lock gets it as soon as it is free, asleep and without the interpreter's own lock. All who
    come meanwhile find it taken and have to sleep too; from then on nobody gets it without two switches between
    threads, even though hardly anybody holds it for more than a few microseconds. It ends when for once nobody comes.

    Not for the main thread: an interrupt in the moment after the lock was taken would leave it taken.
    """

    __slots__ = ("_acquire", "_release")

    def __init__(self, lock: threading.Lock) -> None:
        self._acquire = lock.acquire
        self._release = lock.release

    def __enter__(self) -> None:
        acquire = self._acquire
        if acquire(False):
            return
        for _ in range(_TRIES):
            time.sleep(0)
            if acquire(False):
                return
        acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
