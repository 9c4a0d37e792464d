"""Pollers, in which drivers wait: `select.epoll` where there is one, `selectors` elsewhere."""

from __future__ import annotations

import select
import selectors
from typing import Final, Protocol

#: Values of select.epoll and select.poll; `SelectorPoller` translates.
READ: Final = 1
WRITE: Final = 4


class Poller(Protocol):
    """Poller like `select.epoll`: level-triggered, masks of READ and WRITE; errors and ends come with any mask."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def modify(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class SelectorPoller:
    """Poller by `selectors`, for systems without it."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector = selector or selectors.DefaultSelector()

    def register(self, fd: int, mask: int, /) -> None:
        if mask:
            self._selector.register(fd, _selector_events(mask))

    def modify(self, fd: int, mask: int, /) -> None:
        if fd not in self._selector.get_map():
            self.register(fd, mask)
        elif mask:
            self._selector.modify(fd, _selector_events(mask))
        else:
            self._selector.unregister(fd)

    def unregister(self, fd: int, /) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        return [
            (key.fd, READ * bool(events & selectors.EVENT_READ) | WRITE * bool(events & selectors.EVENT_WRITE))
            for key, events in self._selector.select(timeout)
        ]

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` would find something, where the system has that; -1 elsewhere."""
        fileno = getattr(self._selector, "fileno", None)
        return -1 if fileno is None else int(fileno())

    def close(self) -> None:
        self._selector.close()


def _selector_events(mask: int) -> int:
    return selectors.EVENT_READ * bool(mask & READ) | selectors.EVENT_WRITE * bool(mask & WRITE)


def make_poller() -> Poller:
    """The best that this system has."""
    return select.epoll() if hasattr(select, "epoll") else SelectorPoller()
