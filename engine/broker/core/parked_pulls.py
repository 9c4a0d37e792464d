"""Parked pulls: requests that wait at the end of a queue until something arrives or their time is up
(docs/protocol/broker.md 2.4).

Owns: which pulls wait on which queue, when each gives up, how many there may be.
Leaves to others: reading the queue and writing the answer (`pulls.pull`).

Reading the queue and parking happen in one entry of the node, so nothing slips in between; expiry is exact. A queue
that nobody waits on costs its writers one attribute test: the list of its pulls hangs on the queue itself
(`Waitable.parked`).
"""

from __future__ import annotations

from typing import Final, Protocol

from mqproto.state.node.contract import Link
from mqproto.state.node.deadlines import NO_LIMIT, Deadlines

#: One peer may hold this part of all places, so that it cannot shut the others out.
LINK_SHARE: Final = 4


class Waitable(Protocol):
    """Queue that pulls can wait on."""

    parked: object | None


class ParkedPull:
    """Pull that waits. A subclass has what is needed to answer it."""

    __slots__ = ("key", "link", "queue", "until", "weight")

    def __init__(self, link: Link, queue: Waitable, until: int) -> None:
        self.link = link
        self.queue = queue
        self.until = until
        #: Given by `ParkedPulls.park`; 0 while not parked.
        self.key = 0
        #: What it keeps beyond what every pull does, in the owner's measure.
        self.weight = 0


class ParkedPulls:
    """Table of parked pulls. Not more than `limit` of them, and of one link not more than a quarter of that."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._deadlines: Deadlines[int] = Deadlines()
        self._pulls: dict[int, ParkedPull] = {}
        self._by_link: dict[Link, dict[int, ParkedPull]] = {}
        self._next_key = 1
        #: The weights of all parked pulls together.
        self.weight = 0

    def __len__(self) -> int:
        return len(self._pulls)

    def park(self, pull: ParkedPull) -> bool:
        """Let the pull wait on its queue until `pull.until`.

        False when there is no place for it; nothing changed then.
        """
        of_link = self._by_link.get(pull.link)
        if len(self._pulls) >= self.limit or (of_link is not None and len(of_link) * LINK_SHARE >= self.limit):
            return False
        key = self._next_key
        self._next_key = key + 1
        pull.key = key
        self._pulls[key] = pull
        self.weight += pull.weight
        if of_link is None:
            of_link = self._by_link[pull.link] = {}
        of_link[key] = pull
        self._deadlines.set(key, pull.until)
        waiting = pull.queue.parked
        if waiting is None:
            pull.queue.parked = {key: pull}
        else:
            assert isinstance(waiting, dict)
            waiting[key] = pull
        return True

    def waiting(self, queue: Waitable) -> list[ParkedPull]:
        """The pulls that wait on a queue, the longest waiting first. They stay parked."""
        waiting = queue.parked
        if waiting is None:
            return []
        assert isinstance(waiting, dict)
        return list(waiting.values())

    def remove(self, pull: ParkedPull) -> None:
        """The pull waits no longer (answered, or its link is gone). Harmless when it did not."""
        key = pull.key
        if key == 0:
            return
        pull.key = 0
        del self._pulls[key]
        self.weight -= pull.weight
        self._deadlines.cancel(key)
        of_link = self._by_link[pull.link]
        del of_link[key]
        if not of_link:
            del self._by_link[pull.link]
        waiting = pull.queue.parked
        assert isinstance(waiting, dict)
        del waiting[key]
        if not waiting:
            pull.queue.parked = None

    def gone(self, link: Link) -> None:
        """The link is over: its pulls are forgotten."""
        for pull in list(self._by_link.get(link, {}).values()):
            self.remove(pull)

    def expired(self, now: int, limit: int = NO_LIMIT) -> list[ParkedPull]:
        """The pulls whose time is up, in the order of their deadlines, `limit` of them; they are parked no longer."""
        over = [self._pulls[key] for key in self._deadlines.due(now, limit)]
        for pull in over:
            self.remove(pull)
        return over

    def next_deadline(self) -> int | None:
        return self._deadlines.earliest()
