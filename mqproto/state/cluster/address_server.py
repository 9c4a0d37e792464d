"""Address server: an HTTP server whose answer is the list of name servers (docs/protocol/client.md 1.4).

Owns: when it is asked, what its answers mean, what is done about failures.
Leaves to others: HTTP (adapter), which of the name servers is asked (`name_servers`), calls that wait for the first
answer (`calls`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from mqproto.errors import InvalidSetting
from mqproto.state.cluster.addresses import check_address, parse_addresses
from mqproto.state.flows.effects import Flow, Work
from mqproto.state.node.contract import Job, Ticket

#: It is asked at the start, then after this time, then with these pauses (docs/protocol/client.md 1.3).
FIRST_SEARCH_MS: Final = 10_000
SEARCH_INTERVAL_MS: Final = 120_000
#: One that has failed is left alone for so long, however many calls want to know a name server.
SEARCH_PAUSE_MS: Final = 1_000


class Question(Job, Protocol):
    """Job that asks an address server; its `run` raises when there is no answer."""

    #: The answer, once the job has run.
    text: str


class AddressDirectory(Protocol):
    """Address server, as the adapter reaches it."""

    @property
    def url(self) -> str: ...

    def ask(self) -> Question: ...


class SearchHost(Protocol):
    """Members of the client node that a search needs."""

    notices: deque[str]

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...

    def replace_name_servers(self, addresses: Sequence[str], now: int) -> None:
        """Use another list."""


class Search:
    """Requests of one node to one address server."""

    __slots__ = ("_asking", "_directory", "_failed_at", "_host", "_text", "over")

    def __init__(self, directory: AddressDirectory, host: SearchHost) -> None:
        self._directory = directory
        self._host = host
        self._asking: Ticket[None] | None = None
        #: When it failed last; None since it has answered.
        self._failed_at: int | None = None
        self._text = ""
        #: The application has named servers itself: answers do not count any more.
        self.over = False

    def ask(self, now: int) -> Ticket[None]:
        """Ask, unless that is under way already."""
        if self._asking is None or self._asking.settled:
            self._asking = self._host.spawn(self._asked(now), now)
        return self._asking

    def ask_for_call(self, now: int) -> Ticket[None] | None:
        """Ask because a call has nowhere to go; None right after a failure."""
        if self._failed_at is not None and now - self._failed_at < SEARCH_PAUSE_MS:
            return None
        return self.ask(now)

    def _asked(self, now: int) -> Flow[None]:
        question = self._directory.ask()
        failure, now = yield Work(question)
        if self.over:
            return
        addresses: tuple[str, ...] | None = None
        if failure is None:
            try:
                addresses = self.take(question.text)
            except InvalidSetting as error:
                failure = error
        self._failed_at = None if failure is None else now
        if failure is not None:
            self._host.notices.append(f"{self._directory.url} tells no name servers: {failure}")
        elif addresses is not None:
            self._host.replace_name_servers(addresses, now)

    def take(self, text: str) -> tuple[str, ...] | None:
        """The list that an answer holds in its first line; None when it says nothing new. Raises InvalidSetting."""
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
