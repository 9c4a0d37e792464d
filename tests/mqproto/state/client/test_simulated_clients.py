"""Clients in a bad network, by seed: whatever happens, every operation ends once and in time, and nothing is left
behind.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from mqproto.adapters.simulated import Host, SimulatedConditions, Simulator
from mqproto.codec import encode_response
from mqproto.errors import BrokerError, MQError, TooManyRequests
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.state.flows.effects import Call
from mqproto.state.flows.tasks import Task
from mqproto.state.node.connection import Calls, Connection
from mqproto.state.node.contract import Job, Link, NodeBase, Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.fast_send import FastSend
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode, ResponseCode
from tests.mqproto.state.stage import route

TOPIC = "orders"
NAME_SERVERS = ("ns1:9876", "ns2:9876")
BROKERS = ("a=a:10911", "b=b:10911")
ROUTES = {TOPIC: route(*BROKERS), "TBW102": route(*BROKERS, queues=8)}


class Server(NodeBase):
    """A name server or broker without memory: it answers what it can, and sometimes nothing."""

    ended = False

    def __init__(self, random: Random, silence: float) -> None:
        super().__init__()
        self.random = random
        self.silence = silence
        self.calls: Calls[None] = Calls()
        self.bodies: list[bytes] = []

    def begin(self, now: int) -> None: ...

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        return Connection(self, self.calls, address, listener)

    def opened(self, link: Link, now: int) -> None: ...

    def received(self, link: Link, data: bytes, now: int) -> None:
        assert isinstance(link, Connection)
        for request in link.receive(data):
            if request.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                self.bodies.append(bytes(request.body))
            if request.is_oneway or self.random.random() < self.silence:
                continue
            fields = None
            body = b""
            code = ResponseCode.SUCCESS
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                found = ROUTES.get(request.fields["topic"])
                code = code if found else ResponseCode.TOPIC_NOT_EXIST
                body = found.to_json(standard=True) if found else b""
            elif "e" in request.fields:
                code = self.random.choice(
                    [code, code, code, ResponseCode.SYSTEM_ERROR, ResponseCode.FLUSH_DISK_TIMEOUT]
                )
                fields = {"msgId": "AA", "queueId": request.fields["e"], "queueOffset": "1"}
            answer = encode_response(request.opaque, code, fields, body)
            self.write(link, answer if self.random.random() < 0.97 else answer * 2)
        assert link.broken is None

    def closed(self, link: Link, reason: str, now: int) -> None: ...

    def timer(self, now: int) -> None: ...

    def done(self, job: Job, failure: Exception | None, now: int) -> None: ...

    def next_deadline(self) -> int | None:
        return None

    def close(self, now: int) -> None: ...


class Application:
    """Sends in all ways, and keeps book."""

    def __init__(self, world: Simulator, host: Host, core: ProducerCore) -> None:
        self.world = world
        self.host = host
        self.core = core
        self.started: dict[Ticket[Any], tuple[int, int]] = {}
        self.woken: dict[Ticket[Any], int] = {}

    def send(self) -> None:
        random = self.world.random
        core = self.core
        topic = random.choice([TOPIC, TOPIC, TOPIC, f"new{random.randint(0, 3)}"])
        message = Message(topic, b"x" * random.choice([1, 100, 20_000]))
        timeout_ms = random.choice([50, 300, 3000])
        queue = random.choice([None, None, MessageQueue(topic, "a", 0)])

        def start(now: int) -> None:
            flow: Any
            match random.randrange(4):
                case 0:
                    flow = core.send(message, now, queue=queue, timeout_ms=timeout_ms)
                case 1:
                    flow = core.send_async(message, now, queue=queue, timeout_ms=timeout_ms)
                case 2:
                    flow = core.send_oneway(message, now, queue=queue, timeout_ms=timeout_ms)
                case _:
                    flow = core.send_batch([message, message], now, queue=queue, timeout_ms=timeout_ms)
            ticket: Ticket[Any] = self.host.node.start(flow, now)  # type: ignore[attr-defined]
            ticket.wake = lambda: self._wake(ticket)
            self.started[ticket] = (now, timeout_ms)
            if random.random() < 0.05:
                self.host.node.cancel(ticket, now)  # type: ignore[attr-defined]

        self.host.enter(start)

    def _wake(self, ticket: Ticket[Any]) -> None:
        assert ticket not in self.woken, "settled twice"
        self.woken[ticket] = self.world.now


def play(
    seed: int, look: Callable[[ClientNode], None] = lambda node: None, **settings: Any
) -> tuple[Simulator, ClientNode, Application]:
    world = Simulator(seed, conditions=SimulatedConditions(delay_max=5, split=0.3, cut=0.02))
    random = world.random
    silence = random.choice([0.0, 0.05])
    servers = {address: world.add(address, Server(random, silence), {"main": address}) for address in NAME_SERVERS}
    servers |= {
        one.split("=")[1]: world.add(one, Server(random, silence), {"main": one.split("=")[1]}) for one in BROKERS
    }
    identity = ClientIdentity("10.0.0.7", 1, "1#1", seed)
    node = ClientNode(ClientSettings(name_servers=NAME_SERVERS), identity)
    host = world.add("client", node)
    core = node.add_producer(ProducerSettings(group="pg", latency_fault_tolerance=random.random() < 0.5, **settings), 0)
    application = Application(world, host, core)
    for _ in range(300):
        for _ in range(random.choice([0, 1, 1, 5])):
            application.send()
            look(node)
        address = random.choice(list(servers))
        if random.random() < 0.03:
            world.crash(servers[address])
        elif not servers[address].alive:
            servers[address] = world.add(f"{address} again", Server(random, silence), {"main": address})
        elif random.random() < 0.02:
            world.part("client", servers[address].name)
        elif random.random() < 0.1:
            world.heal()
        world.run_for(random.choice([1, 10, 200, 2000]))
    return world, node, application


@pytest.mark.parametrize("seed", range(40))
def test_every_operation_ends_once_and_in_time(seed: int) -> None:
    world, node, application = play(seed)
    world.run_for(3_000)
    results = 0
    for ticket, (begun, timeout_ms) in application.started.items():
        assert ticket in application.woken, f"seed {seed}: never settled"
        took = application.woken[ticket] - begun
        assert took <= timeout_ms, f"seed {seed}: {took} ms of {timeout_ms}"
        if ticket.failure is None:
            results += isinstance(ticket.result(), SendResult)
        else:
            assert isinstance(ticket.failure, MQError), f"seed {seed}: {ticket.failure!r}"
    assert results > 20
    assert node.application_tickets() == []
    assert not any("Error(" in notice and "flow" in notice for notice in node.notices)


@pytest.mark.parametrize("seed", range(200, 215))
def test_windows_are_never_exceeded(seed: int) -> None:
    """Counted at the links: whatever fails, expires or is cancelled gives its room back once, and no more."""
    messages_max, size_max = 1 + seed % 4, 30_000
    most = 0

    def look(node: ClientNode) -> None:
        nonlocal most
        callers = [caller for link in node.all_links() for caller in link.calls.values()]
        plain = [caller.body for caller in callers if isinstance(caller, FastSend)]
        calls = [
            task.effect
            for task in callers
            if isinstance(task, Task) and task.of_application and isinstance(task.effect, Call)
        ]
        bodies = plain + [call.body for call in calls if "e" in call.fields]
        count = len(plain) + sum(2 if call.fields["m"] == "true" else 1 for call in calls if "m" in call.fields)
        assert len(bodies) <= 1 or (count <= messages_max and sum(map(len, bodies)) <= size_max), f"seed {seed}"
        most = max(most, count)

    world, node, application = play(
        seed, look, send_window_messages=messages_max, send_window_bytes=size_max, compress_body_over=1 << 20
    )
    assert most >= messages_max
    world.run_for(3_000)
    assert len(application.woken) == len(application.started)
    for ticket, (begun, timeout_ms) in application.started.items():
        assert application.woken[ticket] - begun <= timeout_ms, f"seed {seed}"
    window = application.core.window
    assert (window.messages, window.size, window.waiting) == (0, 0, 0)
    assert node.application_tickets() == []
    refused = [ticket for ticket in application.started if isinstance(ticket.failure, TooManyRequests)]
    assert refused, f"seed {seed}: nobody had to wait in vain"


@pytest.mark.parametrize("seed", range(100, 110))
def test_closing_leaves_nothing(seed: int) -> None:
    world, node, application = play(seed)
    for _ in range(5):
        application.send()
    begun = world.now
    application.host.enter(node.close)
    world.run_until(lambda: node.ended)
    assert world.now - begun <= 3_000
    assert len(application.woken) == len(application.started)
    assert (node.links, len(node.calls), len(node.timers), node.all_links()) == ({}, 0, 0, [])
    assert not node._tasks
    assert not node._waiting
    assert not node._route_refresh.open
    assert not node.heartbeats.open


def test_an_outage_of_everything_ends_with_the_outage() -> None:
    """PRO-05: name servers and brokers are away for 15 s and come back at the same addresses."""
    world = Simulator(1)
    addresses = ["ns1:9876", "ns2:9876", "a:10911", "b:10911"]
    servers = [world.add(address, Server(world.random, 0), {"main": address}) for address in addresses]
    node = ClientNode(ClientSettings(name_servers=NAME_SERVERS), ClientIdentity("10.0.0.7", 1, "1#1", 3))
    host = world.add("client", node)
    core = node.add_producer(ProducerSettings(group="pg", retry_codes=frozenset()), 0)
    outcomes: list[tuple[int, BaseException | None]] = []

    def send_to(topic: str, now: int) -> None:
        ticket = node.start(core.send(Message(topic, b"x"), now), now)
        ticket.wake = lambda: outcomes.append((world.now, ticket.failure))

    def send(now: int) -> None:
        send_to(TOPIC, now)
        send_to(f"new{now % 4}", now)

    for step in range(1200):
        if step == 200:
            for server in servers:
                world.crash(server)
        if step == 500:
            for address in addresses:
                world.add(f"{address} again", Server(world.random, 0), {"main": address})
        host.enter(send)
        world.run_for(50)
    away = [failure for when, failure in outcomes if failure is not None and not isinstance(failure, BrokerError)]
    late = [
        failure
        for when, failure in outcomes
        if when > 25_100 and failure is not None and not isinstance(failure, BrokerError)
    ]
    assert 290 <= len(away) <= 610
    assert late == []


def test_two_runs_of_one_seed_are_equal() -> None:
    def story(seed: int) -> list[tuple[int, str]]:
        _, _, application = play(seed)
        return [(when, repr(ticket.failure)) for ticket, when in application.woken.items()]

    assert story(7) == story(7)
