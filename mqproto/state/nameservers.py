"""Which name server to ask (client.md 1.5).

Owns: the list, the one that was chosen, whose turn is next, and what an address server says of the list (1.4).
Leaves to others: links to them, and how often a request moves on (runner), HTTP (adapter).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from mqproto.errors import InvalidSetting
from mqproto.state.node import Job
from mqproto.state.settings import check_address, parse_addresses

#: An address server is asked at the start, then after this time, then with these pauses (client.md 1.3).
FIRST_SEARCH_MS: Final = 10_000
SEARCH_INTERVAL_MS: Final = 120_000
#: One that has failed is left alone for so long, however many calls want to know a name server.
SEARCH_PAUSE_MS: Final = 1_000


class NameServers:
    """A list of name servers. The chosen one is kept as long as there is a link to it; `seed` spreads clients over the list."""

    __slots__ = ("_chosen", "_turn", "addresses")

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        self.addresses: tuple[str, ...] = tuple(dict.fromkeys(addresses))
        self._turn = seed
        self._chosen: str | None = None

    def choose(self, linked: Callable[[str], bool], tried: Collection[str] = ()) -> str | None:
        """The chosen one if `linked` says that there is a link to it, else the next in turn; None when all were tried already."""
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


class Question(Job, Protocol):
    """A job that asks an address server; its `run` raises when there is no answer."""

    #: The answer, once the job has run.
    text: str


class Directory(Protocol):
    """An address server: an HTTP server from which clients learn the list of name servers."""

    @property
    def url(self) -> str: ...

    def ask(self) -> Question: ...


class Search:
    """What an address server has said so far."""

    __slots__ = ("_text", "directory", "failed_at")

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        #: When it failed last; None since it has answered.
        self.failed_at: int | None = None
        self._text = ""

    def take(self, text: str) -> tuple[str, ...] | None:
        """The list that an answer holds in its first line; None when it says nothing new (client.md 1.4). Raises InvalidSetting."""
        lines = text.strip().splitlines()
        line = lines[0].strip() if lines else ""
        if not line or line == self._text:
            return None
        addresses = parse_addresses(line)
        if not addresses:
            raise InvalidSetting("name_servers", line, "no address in it")
        for address in addresses:
            check_address("name_servers", address)
        self._text = line
        return addresses
