"""Pool of threads that grows as far as it is needed and leaves none behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from mqproto.adapters.io.lifecycle import log


class Workers:
    """Pool that runs what is submitted in up to `limit` threads, first come first served. Threads start as needed.

    They are daemons: a program that forgets to close them can still end.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, work: Callable[[], object]) -> bool:
        """Queue some work; False when the pool is closed and the work will not be done.

        Where no thread can start, the others do it, and the caller if there are none: an interpreter that exits may
        refuse (Python 3.12 does while it runs what `atexit` has), and so may a system that has too many.
        """
        with self._lock:
            if self._closed:
                return False
            # Who shall do it first, then the work: an interrupt in between leaves a thread that waits for more, and no
            # work that waits.
            if self._idle:
                self._idle -= 1
            elif len(self._threads) < self._limit:
                self._start_another()
            if self._threads:
                self._queue.put(work)
                return True
        self._do(work)
        return True

    def _start_another(self) -> None:
        """Under the lock."""
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)  # first: `close` has to know of it, whatever comes to this one here
        try:
            thread.start()
        except RuntimeError as error:
            self._threads.remove(thread)
            log.warning("%s: no further thread: %s", self._name, error)

    def grow(self, limit: int) -> None:
        """Let up to `limit` threads work, if that is more than now."""
        with self._lock:
            self._limit = max(self._limit, limit)

    def _run(self) -> None:
        work = self._queue.get()  # it was started for some: it does not count as idle
        while work is not None:
            self._do(work)
            work = None
            work = self._next()

    def _next(self) -> Callable[[], object] | None:
        """What a thread does next."""
        try:
            return self._queue.get_nowait()
        except Empty:
            pass
        with self._lock:
            try:
                # it came meanwhile, and for want of an idle thread another was started for it, if possible
                return self._queue.get_nowait()
            except Empty:
                self._idle += 1
        return self._queue.get()

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException:  # even SystemExit ends the work, never the worker (CON-01)
            log.exception("%s: a piece of work failed", self._name)

    def close(self, timeout: float) -> bool:
        """Let what is queued be done, then end the threads. Waits up to `timeout` seconds; whether all have ended.

        From inside the pool it does not wait for the calling thread, which ends when it returns. Twice is harmless.
        """
        with self._lock:
            threads = list(self._threads)
            if not self._closed:
                self._closed = True
                for _ in threads:
                    self._queue.put(None)
        deadline = time.monotonic() + timeout
        current = threading.current_thread()
        for thread in threads:
            if thread is not current:
                with suppress(RuntimeError):  # it never started: an interrupt came in that moment
                    thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads if thread is not current)
