"""Heartbeats of a client node: how brokers hear of its producers and consumers, and of their end
(docs/protocol/client.md 1.2, 1.7).

Owns: the heartbeats under way, which brokers get them, requests to forget a group.
Leaves to others: when they are due (`node`), what a consumer's part of them says (`members.ConsumerPort`).
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol, TypeVar

from mqproto.codec import Command
from mqproto.errors import refusal
from mqproto.state.client.members import Consumers, Producers
from mqproto.state.client.settings import ClientSettings
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Call, Flow, Wait, failure, wait_for_all
from mqproto.state.flows.tasks import DialledLink
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import HeartbeatData
from mqproto.wire.codes import SUCCESS, RequestCode

R = TypeVar("R")

#: How long a farewell waits for the answer to a heartbeat.
FAREWELL_WAIT_MS: Final = 2_000


class HeartbeatHost(Protocol):
    """Members of the client node that heartbeats need."""

    client_id: str
    settings: ClientSettings
    routes: RouteTable
    links: dict[str, DialledLink]
    notices: deque[str]

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]: ...


class Heartbeats:
    """Heartbeats by the address of their broker."""

    def __init__(self, host: HeartbeatHost, producers: Producers, consumers: Consumers) -> None:
        self._host = host
        self._producers = producers
        self._consumers = consumers
        #: Those under way, and those that follow them because something changed meanwhile.
        self._under_way: dict[str, Ticket[None]] = {}
        self._following: dict[str, Ticket[None]] = {}

    @property
    def open(self) -> int:
        """How many are under way or follow."""
        return len(self._under_way) + len(self._following)

    def send(self, now: int) -> Ticket[None]:
        """Send heartbeats to the brokers now; settled when all of them have answered or failed.

        To masters, and to slaves too when there is a consumer. Nothing is sent without producer and consumer.
        """
        return self._host.spawn(self._sent(now), now)

    def _sent(self, now: int) -> Flow[None]:
        yield from wait_for_all([self.send_to(address, now) for address in self._addresses()], now)

    def send_to(self, address: str, now: int) -> Ticket[None]:
        """One heartbeat.

        One that is under way may say too little by now: then another follows it at once, for all who ask meanwhile.
        """
        running = self._under_way.get(address)
        if running is None:
            ticket = self._host.spawn(self._beat(address, None, now), now)
            if not ticket.settled:
                self._under_way[address] = ticket
            return ticket
        following = self._following.get(address)
        if following is None:
            following = self._following[address] = self._host.spawn(self._beat(address, running, now), now)
        return following

    def known_at(self, address: str) -> bool:
        """Whether a broker has had a heartbeat on the link that is open to it; without one it has forgotten us."""
        link = self._host.links.get(address)
        return link is not None and link.connected and address not in self._under_way

    def linked(self, link: DialledLink, now: int) -> None:
        """A link was connected: a broker forgets a client whose link ends, so a new one begins with a heartbeat."""
        if link.address in self._addresses() and link.address not in self._under_way:
            self.send_to(link.address, now)

    def _addresses(self) -> list[str]:
        """The addresses that heartbeats go to."""
        if not self._producers.by_group and not self._consumers.by_group:
            return []
        return self._host.routes.all_addresses(masters_only=not self._consumers.by_group)

    def _beat(self, address: str, before: Ticket[None] | None, now: int) -> Flow[None]:
        host = self._host
        if before is not None:
            _, now = yield Wait(before)
        try:
            consumers = [consumer.heartbeat_data() for consumer in self._consumers.by_group.values()]
            if not consumers and not self._producers.by_group:
                return
            body = HeartbeatData(host.client_id, list(self._producers.by_group), consumers).to_json()
            outcome, now = yield Call(address, RequestCode.HEART_BEAT, {}, body, now + host.settings.api_timeout_ms)
            if not isinstance(outcome, Command):
                host.notices.append(f"heartbeat: {failure(outcome)}")
            elif outcome.code != SUCCESS:
                host.notices.append(f"heartbeat: {refusal(outcome.code, outcome.remark, address)}")
            else:
                host.routes.versions[address] = outcome.version
                if address in host.links:
                    host.links[address].greeted = True
        finally:
            self._under_way.pop(address, None)
            if address in self._following:
                self._under_way[address] = self._following.pop(address)

    # --- farewells

    def unregister(self, kind: str, group: str, now: int) -> Flow[None]:
        """UNREGISTER_CLIENT to every broker that knows us, also where no route leads any more: without a link it has
        forgotten us. `kind` is the field that has the group.
        """
        host = self._host
        fields = {"clientID": host.client_id, kind: group}
        known = set(host.routes.all_addresses())
        calls = [
            host.spawn(self._unregistered(address, fields, now), now)
            for address, link in sorted(host.links.items())
            if link.connected and (link.greeted or address in known)
        ]
        yield from wait_for_all(calls, now)

    def _unregistered(self, address: str, fields: dict[str, str], now: int) -> Flow[None]:
        """Wait for a heartbeat under way: a broker that takes it in behind the farewell would know the group again."""
        host = self._host
        if address in self._under_way:
            _, now = yield Wait(self._under_way[address], now + FAREWELL_WAIT_MS)
        deadline = now + host.settings.api_timeout_ms
        outcome, _ = yield Call(address, RequestCode.UNREGISTER_CLIENT, fields, b"", deadline)
        if isinstance(outcome, Command) and outcome.code != SUCCESS:
            host.notices.append(f"unregister: {refusal(outcome.code, outcome.remark, address)}")
