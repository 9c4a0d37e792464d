"""Name servers of a client, and which of them is asked (docs/protocol/client.md 1.5).

Owns: the list, the one that was chosen, and whose turn is next.
Leaves to others: links to them, and how often a request moves on (`calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence


class NameServerList:
    """List of name servers.

    The chosen one is kept as long as there is a link to it; `seed` spreads clients over the list.
    """

    __slots__ = ("_chosen", "_turn", "addresses")

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        self.addresses: tuple[str, ...] = tuple(dict.fromkeys(addresses))
        self._turn = seed
        self._chosen: str | None = None

    def choose(self, linked: Callable[[str], bool], tried: Collection[str] = ()) -> str | None:
        """The chosen one if there is a link to it (`linked`), else the next in turn; None when all were tried."""
        if self._chosen is not None and self._chosen not in tried and linked(self._chosen):
            return self._chosen
        for _ in self.addresses:
            address = self.addresses[self._turn % len(self.addresses)]
            self._turn += 1
            if address not in tried:
                self._chosen = address
                return address
        return None

    def replace(self, addresses: Sequence[str]) -> set[str]:
        """Take another list; returns the addresses that are in it no more, whose links should end (NSV-01)."""
        gone = set(self.addresses) - set(addresses)
        self.addresses = tuple(dict.fromkeys(addresses))
        if self._chosen in gone:
            self._chosen = None
        return gone

    def __str__(self) -> str:
        return ";".join(self.addresses)
