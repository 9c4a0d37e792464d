"""Refresh of routes: requests to name servers for one client node (docs/protocol/client.md 1.3, 2.1).

Owns: which routes are asked for at the moment, and the rounds in which all wanted ones are.
Leaves to others: what routes mean (`routes`), which name server a request goes to (`calls`), when a round is due
(`node`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol, TypeVar

from mqproto.codec import Command
from mqproto.errors import BrokerError, MQError, NoNameServer, RemoteProtocolError, refusal
from mqproto.state.client.settings import ClientSettings
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Call, Flow, Lost, Refresh, failure
from mqproto.state.flows.name_servers import NameServerList
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import TopicRoute
from mqproto.wire.codes import SUCCESS, RequestCode

R = TypeVar("R")


class RefreshHost(Protocol):
    """Members of the client node that the refresh of routes needs."""

    settings: ClientSettings
    name_servers: NameServerList
    routes: RouteTable
    notices: deque[str]

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]: ...

    def wanted_topics(self) -> set[str]:
        """The topics whose routes are kept fresh."""

    def route_changed(self, topic: str, now: int) -> None:
        """The route table has another route of the topic."""


class RouteRefresh:
    """Requests for routes under way, one for each topic at a time."""

    def __init__(self, host: RefreshHost) -> None:
        self._host = host
        self._under_way: dict[str, Ticket[MQError | None]] = {}
        self._round: Ticket[None] | None = None

    @property
    def open(self) -> int:
        """How many requests are under way."""
        return len(self._under_way)

    def refresh(self, topic: str, now: int) -> Ticket[MQError | None]:
        """Ask a name server for the route of a topic, unless that is under way already."""
        ticket = self._under_way.get(topic)
        if ticket is None:
            ticket = self._host.spawn(self._refreshed(topic, now), now)
            if not ticket.settled:
                self._under_way[topic] = ticket
        return ticket

    def refresh_all(self, now: int) -> None:
        """Begin a round, unless the last one is not over."""
        if self._round is None or self._round.settled:
            self._round = self._host.spawn(self._all_refreshed(now), now)

    def _all_refreshed(self, now: int) -> Flow[None]:
        """Refresh every wanted route, one after the other; the round ends early when no name server answers."""
        host = self._host
        for topic in sorted(host.wanted_topics()):
            error, now = yield Refresh(topic, now + host.settings.api_timeout_ms)
            if error is not None and not isinstance(error, BrokerError | RemoteProtocolError):
                host.notices.append(f"routes could not be refreshed: {error}")
                return

    def _refreshed(self, topic: str, now: int) -> Flow[MQError | None]:
        try:
            deadline = now + self._host.settings.api_timeout_ms
            outcome, now = yield Call(None, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, b"", deadline)
            return self._take(topic, outcome, now)
        finally:
            self._under_way.pop(topic, None)

    def _take(self, topic: str, outcome: Any, now: int) -> MQError | None:
        """Put the route of an answer into the table; the error where there is none in it."""
        name_servers = self._host.name_servers
        if not isinstance(outcome, Command):
            if isinstance(outcome, Lost) and not outcome.connected:
                return NoNameServer(name_servers.addresses, outcome.reason if name_servers.addresses else "")
            return failure(outcome)
        if outcome.code != SUCCESS:
            return refusal(outcome.code, outcome.remark, f"name server ({name_servers})")
        try:
            route = TopicRoute.from_json(bytes(outcome.body))
        except RemoteProtocolError as error:
            return error
        if self._host.routes.update(topic, route):
            self._host.route_changed(topic, now)
        return None
