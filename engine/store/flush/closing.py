"""Orderly end of a store, as a job: the last flush may take as long as the disk likes.

Owns: who gives the data directory back. Whoever takes the lock out of `DirectoryClaim` does, once: the job that closes,
or an owner that gives up.
"""

from __future__ import annotations

from collections.abc import Callable

from mqproto.engine.store.disk.files import Files, Lock
from mqproto.engine.store.errors import StoreUnwritable
from mqproto.engine.store.flush.flusher import Flusher


class DirectoryClaim:
    """Lock of a data directory, until somebody takes it to release it. May be asked from any thread."""

    __slots__ = ("_locks",)

    def __init__(self, lock: Lock) -> None:
        self._locks = [lock]

    def take(self) -> Lock | None:
        """The lock; None if it was taken before."""
        try:
            return self._locks.pop()
        except IndexError:
            return None


class CloseStore:
    """Job: make everything durable, mark the end as orderly, and give the directory back whatever comes of that.

    It does nothing if the directory was given back before it began. `flusher` None: the disk failed earlier, so the
    next opening has to recover. `run` raises StoreUnwritable.
    """

    __slots__ = ("_abort", "_claim", "_files", "_flusher", "_release", "_root", "_wall")

    def __init__(
        self,
        files: Files,
        root: str,
        abort: str,
        flusher: Flusher | None,
        claim: DirectoryClaim,
        release: Callable[[Lock], None],
        wall: int,
    ) -> None:
        self._files = files
        self._root = root
        self._abort = abort
        self._flusher = flusher
        self._claim = claim
        self._release = release
        self._wall = wall

    def run(self) -> None:
        lock = self._claim.take()
        if lock is None:
            return
        try:
            if self._flusher is not None:
                self._flusher.finish(self._wall)
                self._files.remove(self._abort)
                self._files.sync_folder(self._root)
        except OSError as failure:
            raise StoreUnwritable(str(failure.filename or self._root), failure.strerror or str(failure)) from failure
        finally:
            self._release(lock)
