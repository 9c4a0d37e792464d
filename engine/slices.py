"""Slices of work that is too long for one entry of a node, so that no request holds the loop for long.

Owns: whose slice is next, how much may wait, what is dropped when its owner leaves.
Leaves to others: when a slice runs (the node calls `step` from its timer while there is work), what the work is.

Work is a generator that yields whenever a slice of it is done: a millisecond or so, `SLICE_SIZE` characters of text.
Owners (links, mostly) take turns slice by slice, the work of one owner is done in order. What is short is done at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that yields between slices and returns its outcome."""

#: Characters of JSON that are made in one slice: about a millisecond.
SLICE_SIZE: Final = 16_384
#: Owners whose work goes on side by side; each may hold a partly built answer. The node's own work comes on top.
AT_A_TIME: Final = 8
#: Works that wait or go on, of all owners, and of one.
WORKS_MAX: Final = 10_000
OF_AN_OWNER_MAX: Final = 64


class SlicedWork:
    """Work in slices: a generator, and what to do with its outcome."""

    __slots__ = ("steps", "then")

    def __init__(self, steps: Steps[Any], then: Callable[[Any], None]) -> None:
        self.steps = steps
        self.then = then


class Slices:
    """All work in slices of one node. `may_begin` says whether an owner's next work may begin now."""

    def __init__(self, may_begin: Callable[[Hashable], bool] = lambda _: True) -> None:
        self._may_begin = may_begin
        #: What each owner has to do, in order; the first may be under way.
        self._works: dict[Hashable, deque[SlicedWork]] = {}
        #: Owners whose first work is under way, in the order of their turns; and those that wait for a place.
        self._under_way: deque[Hashable] = deque()
        self._waiting: deque[Hashable] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def stalled(self) -> bool:
        """Whether nothing goes on although something waits: no owner may begin just now."""
        return self._count > 0 and not self._under_way

    def begin(self, owner: Hashable, steps: Steps[T], then: Callable[[T], None], own: bool = False) -> bool:
        """Do some work for an owner, then call `then` with its outcome: at once if it is one slice. False if too much
        waits.

        For the node's `own` work there is always a place.
        """
        works = self._works.get(owner)
        if not own and (self._count >= WORKS_MAX or (works is not None and len(works) >= OF_AN_OWNER_MAX)):
            return False
        self._count += 1
        work = SlicedWork(steps, then)
        if works is not None:
            works.append(work)
            return True
        self._works[owner] = deque((work,))
        if not own and (len(self._under_way) >= AT_A_TIME or not self._may_begin(owner)):
            self._waiting.append(owner)
        elif self._advance(owner, work):
            self._under_way.append(owner)
        return True

    def step(self) -> None:
        """One slice of the work whose turn it is."""
        self._admit()
        if self._under_way:
            owner = self._under_way.popleft()
            if self._advance(owner, self._works[owner][0]):
                self._under_way.append(owner)
            self._admit()

    def _admit(self) -> None:
        """Let work begin where there is a place."""
        for _ in range(len(self._waiting)):
            if len(self._under_way) >= AT_A_TIME:
                return
            owner = self._waiting.popleft()
            (self._under_way if self._may_begin(owner) else self._waiting).append(owner)

    def _advance(self, owner: Hashable, work: SlicedWork) -> bool:
        """One slice; whether the same work goes on."""
        try:
            next(work.steps)
        except StopIteration as end:
            works = self._works[owner]
            works.popleft()
            self._count -= 1
            if works:
                self._waiting.append(owner)
            else:
                del self._works[owner]
            work.then(end.value)
            return False
        return True

    def drop(self, owner: Hashable) -> None:
        """The owner is gone: forget its work. Nothing is called."""
        works = self._works.pop(owner, None)
        if works is None:
            return
        self._count -= len(works)
        for owners in (self._under_way, self._waiting):
            if owner in owners:
                owners.remove(owner)
        for work in works:
            work.steps.close()


def joined(pieces: Iterator[str]) -> Steps[bytes]:
    """The text that pieces make, in UTF-8."""
    return (yield from joined_text(pieces)).encode("utf-8", "replace")


def joined_text(pieces: Iterator[str]) -> Steps[str]:
    """The text that pieces make."""
    slices: list[str] = []
    parts: list[str] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= SLICE_SIZE:
            slices.append("".join(parts))
            parts.clear()
            size = 0
            yield
    return "".join((*slices, *parts))
