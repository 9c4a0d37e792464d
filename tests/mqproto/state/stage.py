"""Client node on a stage: the test plays its driver and its peers, byte by byte, and moves time by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mqproto.codec import Command, FrameSplitter, decode, encode, encode_response
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Action, Dial, HangUp, Link, Run, Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.bodies import BrokerData, QueueData, TopicRoute
from mqproto.wire.codes import RequestCode, ResponseCode

R = TypeVar("R")

NS = "ns1:9876"
IDENTITY = ClientIdentity("10.0.0.7", 4711, "4711#1", 0)
WALL = 1_700_000_000_000

#: Answers one request: a whole frame, or None to stay silent.
Answer = Callable[[Command], bytes | None]


def route(
    *brokers: str, queues: int = 2, perm: int = 6, order: str | None = None, slaves: Mapping[str, str] | None = None
) -> TopicRoute:
    """A route over brokers written `name=address`."""
    pairs = [broker.split("=") for broker in brokers]
    return TopicRoute(
        [QueueData(name, queues, queues, perm) for name, _ in pairs],
        [
            BrokerData("c", name, {0: address} | ({1: slaves[name]} if slaves and name in slaves else {}))
            for name, address in pairs
        ],
        order,
    )


def success(request: Command, fields: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    return encode_response(request.opaque, ResponseCode.SUCCESS, dict(fields or {}), body)


def refused(request: Command, code: int, remark: str = "no") -> bytes:
    return encode_response(request.opaque, code, None, remark=remark)


class Peer:
    """Whoever listens at an address. What it gets is kept; what it answers is up to `answers`, by request code."""

    def __init__(self) -> None:
        self.got: list[Command] = []
        self.answers: dict[int, Answer] = {}

    def codes(self) -> list[int]:
        return [command.code for command in self.got]

    def of(self, code: int) -> list[Command]:
        return [command for command in self.got if command.code == code]


def name_server(routes: Mapping[str, TopicRoute]) -> Peer:
    """A peer that knows routes, and code 17 for all other topics."""
    peer = Peer()

    def answer(request: Command) -> bytes:
        found = routes.get(request.fields["topic"])
        if found is None:
            return refused(request, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        return success(request, body=found.to_json(standard=True))

    peer.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = answer
    return peer


def broker() -> Peer:
    """A peer that takes messages, heartbeats and farewells. Offsets count up from 0."""
    peer = Peer()
    offsets = iter(range(1_000_000))

    def sent(request: Command) -> bytes | None:
        if request.is_oneway:
            return None
        return success(request, {"msgId": "0A" * 16, "queueId": request.fields["e"], "queueOffset": str(next(offsets))})

    peer.answers[RequestCode.SEND_MESSAGE_V2] = sent
    peer.answers[RequestCode.SEND_BATCH_MESSAGE] = sent
    peer.answers[RequestCode.HEART_BEAT] = success
    peer.answers[RequestCode.UNREGISTER_CLIENT] = success
    return peer


class Stage:
    """One node and the peers that it can reach.

    Links open at once when somebody listens, and are refused at once otherwise.
    """

    def __init__(self, node: ClientNode | None = None, name_servers: tuple[str, ...] = (NS,), **settings: Any) -> None:
        self.node = node or ClientNode(ClientSettings(name_servers=name_servers, **settings), IDENTITY)
        self.node.wall_ahead = WALL
        self.now = 0
        self.peers: dict[str, Peer] = {}
        #: Addresses that neither accept nor refuse.
        self.dark: set[str] = set()
        self.links: dict[str, Link] = {}
        self.dials: list[str] = []
        self.hung_up: list[tuple[str, str]] = []
        self.delivered: list[object] = []
        #: Whether jobs are done at once; otherwise they are among what is delivered.
        self.runs_jobs = True
        self._splitters: dict[Link, FrameSplitter] = {}

    def begin(self) -> Stage:
        self.node.begin(self.now)
        return self.settle()

    def settle(self) -> Stage:
        """Do what a driver does after an entry, until the node wants nothing more."""
        node = self.node
        while node.touched or node.actions or ((due := node.next_deadline()) is not None and due <= self.now):
            if not node.touched and not node.actions:
                node.timer(self.now)
            for link in sorted(node.touched, key=lambda link: link.address):
                node.touched.discard(link)
                self._deliver(link, b"".join(node.data_to_send(link)))
            actions: list[Action] = list(node.actions)
            node.actions.clear()
            for action in actions:
                self._act(action)
        return self

    def _act(self, action: Action) -> None:
        match action:
            case Dial(link=link):
                self.dials.append(link.address)
                if link.address in self.dark:
                    self.links[link.address] = link
                elif link.address in self.peers:
                    self.connect(link)
                else:
                    self.node.closed(link, "connection refused", self.now)
            case HangUp(link=link, reason=reason):
                self.hung_up.append((link.address, reason))
                self._splitters.pop(link, None)
                if self.links.get(link.address) is link:
                    del self.links[link.address]
            case Ticket():
                if action.wake is not None:
                    action.wake()
            case Run(job=job) if self.runs_jobs:
                failure: Exception | None = None
                try:
                    job.run()
                except Exception as error:
                    failure = error
                self.node.done(job, failure, self.now)
            case _:
                self.delivered.append(action)

    def connect(self, link: Link) -> None:
        self.links[link.address] = link
        self._splitters[link] = FrameSplitter()
        self.node.opened(link, self.now)

    def _deliver(self, link: Link, data: bytes) -> None:
        link.unsent -= len(data)
        peer = self.peers.get(link.address)
        if link not in self._splitters or peer is None:
            return
        for frame in self._splitters[link].feed(data):
            request = decode(frame)
            peer.got.append(request)
            answer = peer.answers.get(request.code)
            reply = answer(request) if answer is not None else None
            if reply is not None and not link.ended:
                self.node.received(link, reply, self.now)

    # --- what tests do

    def start(self, flow: Flow[R]) -> Ticket[R]:
        ticket = self.node.start(flow, self.now)
        self.settle()
        return ticket

    def run(self, flow: Flow[R]) -> R:
        """Run a flow that nothing has to wait for."""
        ticket = self.start(flow)
        assert ticket.settled, "it still waits"
        return ticket.result()

    def receive(self, address: str, data: bytes) -> Stage:
        self.node.received(self.links[address], data, self.now)
        return self.settle()

    def request(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes = b"", *, oneway: bool = False
    ) -> Stage:
        """The peer asks something of the node."""
        return self.receive(address, encode(Command(code, dict(fields), body, 900, 2 if oneway else 0)))

    def cut(self, address: str, reason: str = "reset by peer") -> Stage:
        """The peer's end of the link goes away."""
        link = self.links.pop(address)
        self._splitters.pop(link, None)
        self.node.closed(link, reason, self.now)
        return self.settle()

    def advance(self, ms: int) -> Stage:
        """Let time pass, with every timer on its way."""
        end = self.now + ms
        while (due := self.node.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.node.timer(self.now)
            self.settle()
        self.now = end
        return self


#: The topic of `stage_with`.
TOPIC = "orders"


def stage_with(*brokers: str, **settings: Any) -> tuple[Stage, ProducerCore]:
    """A node with a producer, a name server that knows `TOPIC`, and the brokers, written `name=address`."""
    stage = Stage(**settings)
    stage.peers[NS] = name_server({TOPIC: route(*brokers)})
    for one in brokers:
        stage.peers[one.split("=")[1]] = broker()
    core = stage.node.add_producer(ProducerSettings(group="pg"), 0)
    return stage.begin(), core
