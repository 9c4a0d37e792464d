"""Parts of a client node without the node: members, heartbeats, the refresh of routes; flows are run by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

from mqproto.codec import Command
from mqproto.errors import BrokerError, CallExpired, NoNameServer, StateError
from mqproto.namespaces import NO_NAMESPACE, Namespace
from mqproto.state.client.heartbeats import FAREWELL_WAIT_MS, Heartbeats
from mqproto.state.client.members import Consumers, Producers
from mqproto.state.client.route_refresh import RouteRefresh
from mqproto.state.client.settings import ClientSettings
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Call, Effect, Expired, Flow, Lost, Refresh, Wait
from mqproto.state.flows.name_servers import NameServerList
from mqproto.state.flows.tasks import DialledLink
from mqproto.state.node.connection import Calls
from mqproto.state.node.contract import Action, NodeBase, Ticket
from mqproto.state.producer.settings import ProducerSettings, TransactionSettings
from mqproto.state.producer.trace import Tracer
from mqproto.wire.bodies import HeartbeatData
from mqproto.wire.codes import RequestCode
from mqproto.wire.ids import UniqueIds
from tests.mqproto.state.recording_consumer import Consumer
from tests.mqproto.state.stage import NS, TOPIC, route

R = TypeVar("R")


class Host:
    """Client node as its parts see it."""

    def __init__(self) -> None:
        self.client_id = "me"
        self.refusal: str | None = None
        self.wall_ahead = 0
        self.seed = 0
        self.settings = ClientSettings()
        self.namespace: Namespace = NO_NAMESPACE
        self.ids = UniqueIds(bytes((10, 0, 0, 7)), 1, 0)
        self.routes = RouteTable()
        self.name_servers = NameServerList((NS,), 0)
        self.links: dict[str, DialledLink] = {}
        self.notices: deque[str] = deque()
        self.actions: list[Action] = []
        self.tracers: list[Tracer] = []
        self.changed: list[str] = []
        #: Flows that wait, the oldest first, each with its ticket and the effect that it waits for.
        self.flows: list[tuple[Generator[Effect, tuple[Any, int], Any], Ticket[Any], Effect]] = []

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]:
        ticket = Ticket[R]()
        self._step(flow, ticket, None)
        return ticket

    def go_on(self, outcome: object, now: int = 0, index: int = 0) -> None:
        """Resume a flow that waits."""
        flow, ticket, _ = self.flows.pop(index)
        self._step(flow, ticket, (outcome, now))

    def _step(self, flow: Flow[Any], ticket: Ticket[Any], given: Any) -> None:
        try:
            self.flows.append((flow, ticket, flow.send(given)))
        except StopIteration as stop:
            ticket.settle(stop.value)

    def effects(self) -> list[Effect]:
        return [effect for _, _, effect in self.flows]

    def calls(self) -> list[tuple[str | None, int]]:
        """Address and code of the calls that flows wait for."""
        return [(effect.address, effect.code) for effect in self.effects() if isinstance(effect, Call)]

    def wake_soon(self, ticket: Ticket[None]) -> None: ...

    def unsent(self, address: str) -> int:
        return 0

    def wanted_topics(self) -> set[str]:
        return {TOPIC, "another"}

    def route_changed(self, topic: str, now: int) -> None:
        self.changed.append(topic)

    def link(self, address: str, *, greeted: bool = False) -> DialledLink:
        link = self.links[address] = DialledLink(NodeBase(), Calls(), address, 0)
        link.connect()
        link.greeted = greeted
        return link


def consumer(group: str = "cg") -> Consumer:
    node: Any = None
    return Consumer(node, group)


def ok(body: bytes = b"", code: int = 0) -> Command:
    return Command(code=code, flag=1, body=body)


# --- members


def test_one_producer_of_a_group() -> None:
    host = Host()
    producers = Producers(host)
    first = producers.add(ProducerSettings("g"))
    with pytest.raises(StateError, match="client me has a producer of group 'g' already"):
        producers.add(ProducerSettings("g"))
    assert producers.discard(first)
    assert not producers.discard(first)
    second = producers.add(ProducerSettings("g"))
    assert not producers.discard(first), "it is another producer of that group"
    assert producers.by_group == {"g": second}
    host.refusal = "client me is closed"
    with pytest.raises(StateError, match="is closed"):
        producers.add(ProducerSettings("h"))


def test_transactions_leave_with_their_producer() -> None:
    producers = Producers(Host())
    settings = TransactionSettings(group="g")
    producer = producers.add(settings)
    assert producers.transactions == {"g": producers.add_transactions(producer, settings, "listener")}
    producers.discard(producer)
    assert producers.transactions == {}


def test_one_consumer_of_a_group() -> None:
    consumers = Consumers(Host())
    first = consumer()
    consumers.add(first)
    with pytest.raises(StateError, match="client me has a consumer of group 'cg' already"):
        consumers.add(consumer())
    consumers.add(consumer("other"))
    assert consumers.topics() == {TOPIC}
    consumers.queues_changed(TOPIC, (), 5)
    assert first.seen == [("queues", TOPIC, 0, 5)]
    assert consumers.discard(first)
    assert not consumers.discard(first)
    assert list(consumers.by_group) == ["other"]


# --- heartbeats


def heart(host: Host) -> tuple[Heartbeats, Producers, Consumers]:
    producers, consumers = Producers(host), Consumers(host)
    return Heartbeats(host, producers, consumers), producers, consumers


def test_heartbeats_go_to_masters_and_for_consumers_to_slaves_too() -> None:
    host = Host()
    host.routes.update(TOPIC, route("a=a:1", "b=b:1", slaves={"b": "b:2"}))
    heartbeats, producers, consumers = heart(host)
    assert heartbeats.send(0).settled, "nobody is there to be announced"
    producers.add(ProducerSettings("g"))
    heartbeats.send(0)
    assert host.calls() == [("a:1", RequestCode.HEART_BEAT), ("b:1", RequestCode.HEART_BEAT)]
    consumers.add(consumer())
    heartbeats.send(0)
    assert ("b:2", RequestCode.HEART_BEAT) in host.calls()


def test_a_heartbeat_under_way_is_followed_by_one_for_all_who_ask() -> None:
    host = Host()
    heartbeats, producers, consumers = heart(host)
    producers.add(ProducerSettings("g"))
    first = heartbeats.send_to("a:1", 0)
    consumers.add(consumer())
    second = heartbeats.send_to("a:1", 0)
    assert heartbeats.send_to("a:1", 0) is second
    assert heartbeats.open == 2
    assert host.effects()[1] == Wait(first)
    host.go_on(ok())
    host.go_on(None)
    (effect,) = host.effects()
    assert isinstance(effect, Call)
    assert [one.group for one in HeartbeatData.from_json(bytes(effect.body)).consumers] == ["cg"]
    host.go_on(ok(code=1))
    assert second.settled
    assert heartbeats.open == 0
    assert len(host.notices) == 1, "only the second was refused"


def test_brokers_that_know_the_client_are_told_of_an_end() -> None:
    host = Host()
    host.routes.update(TOPIC, route("a=a:1"))
    heartbeats, producers, _ = heart(host)
    producers.add(ProducerSettings("g"))
    for address, greeted in (("a:1", False), ("gone:1", True), ("never:1", False)):
        host.link(address, greeted=greeted)
    assert heartbeats.known_at("a:1")
    assert not heartbeats.known_at("nowhere:1")
    under_way = heartbeats.send_to("a:1", 7)
    assert not heartbeats.known_at("a:1")
    host.spawn(heartbeats.unregister("producerGroup", "g", 7), 7)
    beat, waits, farewell, _ = host.effects()
    assert waits == Wait(under_way, 7 + FAREWELL_WAIT_MS), "a heartbeat that came later would bring the group back"
    assert isinstance(beat, Call)
    assert isinstance(farewell, Call)
    assert (farewell.address, farewell.code) == ("gone:1", RequestCode.UNREGISTER_CLIENT)
    assert farewell.fields == {"clientID": "me", "producerGroup": "g"}


# --- routes


def test_who_asks_at_the_same_time_shares_a_request() -> None:
    host = Host()
    refresh = RouteRefresh(host)
    ticket = refresh.refresh(TOPIC, 0)
    assert refresh.refresh(TOPIC, 0) is ticket
    assert host.calls() == [(None, RequestCode.GET_ROUTEINFO_BY_TOPIC)]
    host.go_on(ok(route("a=a:1").to_json()))
    assert ticket.result() is None
    assert host.changed == [TOPIC]
    assert refresh.open == 0
    assert refresh.refresh(TOPIC, 0) is not ticket
    host.go_on(ok(route("a=a:1").to_json()))
    assert host.changed == [TOPIC], "it is the same route"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Lost(NS, "refused"), NoNameServer),
        (Expired(NS, 3_000), CallExpired),
        (ok(code=17), BrokerError),
    ],
)
def test_a_route_that_cannot_be_had(outcome: object, error: type[Exception]) -> None:
    host = Host()
    ticket = RouteRefresh(host).refresh(TOPIC, 0)
    host.go_on(outcome)
    assert type(ticket.result()) is error
    assert host.changed == []


def test_a_round_asks_for_one_route_after_the_other() -> None:
    host = Host()
    refresh = RouteRefresh(host)
    refresh.refresh_all(0)
    refresh.refresh_all(0)
    (effect,) = host.effects()
    assert effect == Refresh("another", host.settings.api_timeout_ms)
    host.go_on(None, 5)
    (effect,) = host.effects()
    assert effect == Refresh(TOPIC, 5 + host.settings.api_timeout_ms)
    host.go_on(NoNameServer((NS,)), 5)
    assert list(host.notices) == [f"routes could not be refreshed: {NoNameServer((NS,))}"]
