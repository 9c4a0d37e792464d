"""The client node: everything that the producers and consumers of one client id share (docs/protocol/client.md 1).

Owns: producers and consumers by group, the choice of name servers, route polling, heartbeats, links that nobody needs
any more, and the order of the end.
Leaves to others: how flows run and links come about (`calls`), what routes mean (`routes`), sends (`producer`),
transactions (`transactions`), requests that wait for a reply (`request_reply`), consumption (`consumer`), requests of
brokers (`broker_requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol

from mqproto.codec import Command
from mqproto.errors import BrokerError, MQError, NoNameServer, RemoteProtocolError, StateError, refusal
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.namespaces import Namespace
from mqproto.state.client import broker_requests
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.state.cluster.address_server import FIRST_SEARCH_MS, SEARCH_INTERVAL_MS, AddressDirectory, Search
from mqproto.state.cluster.name_servers import NameServerList
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.cluster.vip import vip_target
from mqproto.state.flows.calls import FlowNode
from mqproto.state.flows.effects import Call, Flow, Lost, Oneway, Refresh, Wait, failure
from mqproto.state.flows.tasks import DialledLink, Task
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.fast_answers import read_send_answer
from mqproto.state.producer.fast_send import FastSend, FastSends
from mqproto.state.producer.request_reply import RequestReply
from mqproto.state.producer.settings import ProducerSettings, TransactionSettings
from mqproto.state.producer.trace import Tracer
from mqproto.state.producer.transactions import CheckTask, TransactionCore
from mqproto.wire.bodies import ConsumerData, HeartbeatData, TopicRoute
from mqproto.wire.codes import SUCCESS, RequestCode
from mqproto.wire.hosts import encode_ip
from mqproto.wire.ids import UniqueIds

#: When the periodic tasks run for the first time after `begin` (docs/protocol/client.md 1.3).
FIRST_POLL_MS: Final = 10
FIRST_HEARTBEAT_MS: Final = 1_000
#: How long a farewell waits for the answer to a heartbeat.
FAREWELL_WAIT_MS: Final = 2_000
#: The field by which every request says that its client pulls (docs/protocol/client.md 9, "Stream type").
STREAM_MARK: Final = {"ReqT": "0"}


class ConsumerPort(Protocol):
    """What the node asks of the consumer of one group.

    Everything is called inside the node; nothing may block or raise.
    """

    @property
    def group(self) -> str: ...

    def heartbeat_data(self) -> ConsumerData:
        """What the group's part of a heartbeat says (docs/protocol/client.md 1.7)."""

    def topics(self) -> Iterable[str]:
        """The topics whose routes the node keeps fresh for this consumer."""

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        """The readable queues of a topic are now these, in queue order.

        Called for every topic; others than its own are ignored.
        """

    def consumer_ids_changed(self, now: int) -> None:
        """Members came or went (request 40): rebalance soon."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        """An operator moved the group (request 220, docs/protocol/client.md 6)."""

    def offsets(self) -> Mapping[MessageQueue, int]:
        """The offsets in memory, of all topics (request 221)."""

    def running_info(self, now: int) -> bytes:
        """The JSON body that answers request 307."""

    def consume_directly(
        self, message: MessageExt, broker_name: str, answer: Callable[[bytes, int], None], now: int
    ) -> None:
        """Consume one message for an operator (request 309); `answer` takes the JSON body and the time, at once or
        later.
        """

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """The application is done with a task that went out by a `Deliver` action."""

    def shutdown(self, now: int) -> Flow[None]:
        """The whole end of the consumer: deliveries waited for, offsets stored, `ClientNode.remove_consumer`.

        Twice is harmless.
        """


class Due(Enum):
    """The node's own timers."""

    POLL = "poll routes"
    SEARCH = "ask the address server"
    HEARTBEAT = "heartbeat"
    CLOSED = "closed at the latest"


class ClientNode(FlowNode):
    """One client id. Settings and identity are fixed when it is made."""

    def __init__(
        self, settings: ClientSettings, identity: ClientIdentity, directory: AddressDirectory | None = None
    ) -> None:
        """`directory` tells name servers where the settings have none.

        Raises InvalidSetting, and InvalidName for the namespace.
        """
        settings.check()
        super().__init__(limit=settings.in_flight_limit, tls=settings.tls, credentials=settings.credentials)
        self.settings = settings
        if settings.stream:
            self.marks = STREAM_MARK
        if settings.namespace_v2:
            self.marks = {**self.marks, "nsd": "true", "ns": settings.namespace_v2}
        #: Where names of the application are wrapped and unwrapped.
        self.namespace = Namespace(settings.namespace)
        self.seed = identity.seed
        self.client_id = client_id(identity, settings.unit_name, stream=settings.stream)
        self.ids = UniqueIds(encode_ip(identity.ip), identity.process_id, identity.seed, identity.utc_offset_ms)
        self.routes = RouteTable(identity.seed, self.notices.append)
        self.name_servers = NameServerList(settings.name_servers, identity.seed)
        self._search = Search(directory, self) if directory is not None and not settings.name_servers else None
        if settings.vip_channel:
            self.reroute = self._fast
        self.producers: dict[str, ProducerCore] = {}
        self._fast_sends: dict[ProducerCore, FastSends] = {}
        self.consumers: dict[str, ConsumerPort] = {}
        #: Tells where everything in the program is at the moment, for operators (request 307). Set by the adapter,
        #: which knows how.
        self.stacks: Callable[[], str] | None = None
        #: Producers that brokers may ask about transactions, by group.
        self.transactions: dict[str, TransactionCore] = {}
        #: The message traces of producers and consumers.
        self.tracers: list[Tracer] = []
        #: Messages that wait for a reply.
        self.requests = RequestReply(self)
        self._refreshing: dict[str, Ticket[MQError | None]] = {}
        self._polling: Ticket[None] | None = None
        #: Heartbeats under way by address, and those that follow them because something changed meanwhile.
        self._beats: dict[str, Ticket[None]] = {}
        self._next_beats: dict[str, Ticket[None]] = {}

    # --- producers and consumers

    def add_producer(self, settings: ProducerSettings, now: int) -> ProducerCore:
        """A producer of this node, announced to the brokers known so far.

        Raises InvalidName, InvalidSetting, or StateError when the node has a producer of this group or is closed.
        """
        producer = ProducerCore(settings, self)
        self._check_new("producer", producer.group, self.producers)
        if settings.enable_msg_trace:
            producer.trace = Tracer(self, settings.group, "PRODUCE", settings.customized_trace_topic)
        self.producers[producer.group] = producer
        self._fast_sends[producer] = FastSends(self, self, producer)
        self.heartbeat(now)
        return producer

    def add_transaction_producer(self, settings: TransactionSettings, listener: object, now: int) -> TransactionCore:
        """The same for messages in transactions: what brokers ask of the group goes to `listener`. Errors as above."""
        core = TransactionCore(self.add_producer(settings, now), listener, self, settings.check_request_hold_max)
        self.transactions[core.group] = core
        return core

    def send(
        self,
        producer: ProducerCore,
        message: Message,
        now: int,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        for_callback: bool = False,
    ) -> Ticket[SendResult]:
        """Start a send of the application's: `ProducerCore.send`, or `send_async` where `for_callback`. Errors are in
        the ticket.
        """
        fast = self._fast_sends.get(producer)
        ticket = None if fast is None else fast.begin(message, queue, timeout_ms, for_callback, now)
        if ticket is not None:
            return ticket
        begin = producer.send_async if for_callback else producer.send
        return self.start(begin(message, now, queue=queue, timeout_ms=timeout_ms), now)

    def fast_answered(self, link: DialledLink, frame: bytes, now: int) -> bool:
        found = read_send_answer(frame)
        if found is None:
            return False
        opaque: int = found[0]
        send = link.calls.get(opaque)
        if type(send) is not FastSend:
            return False
        link.take(opaque)
        send.answered(found)
        self.end_fast(send, now)
        return True

    def remove_producer(self, producer: ProducerCore, now: int) -> Flow[None]:
        """Take the producer out: it begins no more sends, those in flight end, and brokers forget its group. The others
        go on (PRO-08).

        At most `close_timeout_ms` go by until then.
        """
        producer.closed = True
        deadline = now + self.settings.close_timeout_ms
        yield from producer.flush(deadline)
        if producer.trace is not None:
            yield from producer.trace.close(now, deadline)
        if self.producers.get(producer.group) is producer:
            del self.producers[producer.group]
            self.transactions.pop(producer.group, None)
            del self._fast_sends[producer]
            yield from self._unregister("producerGroup", producer.group, now)

    def add_consumer(self, consumer: ConsumerPort) -> None:
        """Register the consumer of a group. Raises StateError when the node has one of this group, or is closed."""
        self._check_new("consumer", consumer.group, self.consumers)
        self.consumers[consumer.group] = consumer

    def remove_consumer(self, consumer: ConsumerPort, now: int) -> Flow[None]:
        """Take the consumer out and unregister its group at the brokers (docs/protocol/client.md 1.2)."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            yield from self._unregister("consumerGroup", consumer.group, now)

    def unsent(self, address: str) -> int:
        """How many bytes the peer at an address has left unread."""
        link = self.links.get(address)
        return 0 if link is None else link.unsent

    def _check_new(self, kind: str, group: str, taken: Mapping[str, object]) -> None:
        if self.refusal is not None:
            raise StateError(self.refusal)
        if group in taken:
            raise StateError(f"client {self.client_id} has a {kind} of group {group!r} already")

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """The application is done with a task of a `Deliver` action; `task.group` names the consumer.

        Late answers are dropped.
        """
        consumer = self.consumers.get(task.group)
        if consumer is not None:
            consumer.consumed(task, result, now)
            self._drain(now)

    def checked(self, task: CheckTask, result: object, now: int) -> None:
        """The application has answered a question about a transaction, which came by a `Deliver` action.

        Late answers are dropped.
        """
        core = self.transactions.get(task.group)
        if core is not None:
            core.checked(task, result, now)

    # --- name servers and routes

    def set_name_servers(self, addresses: Sequence[str], now: int) -> None:
        """Use another list. Links to servers that are not in it end, and what they were asked is asked of the new ones
        (NSV-01).

        From now on no address server is asked (docs/protocol/client.md 1.4).
        """
        if self._search is not None:
            self._search.over = True
            self._search = None
        self.timers.cancel(Due.SEARCH)
        self.replace_name_servers(addresses, now)
        self._drain(now)

    def replace_name_servers(self, addresses: Sequence[str], now: int) -> None:
        """What `set_name_servers` does, for an address server."""
        for address in self.name_servers.replace(addresses):
            link = self.links.get(address)
            if link is not None:
                for task in (*link.calls.values(), *link.waiting):
                    if isinstance(task, Task):
                        task.tried = None  # the new list is all before them
                self.drop(link, "no name server of ours any more", now)

    def name_server(self, tried: Collection[str]) -> str | None:
        return self.name_servers.choose(self.links.__contains__, tried)

    def share_ms(self, tried: Collection[str], left_ms: int) -> int:
        """With several name servers one that says nothing must not use up the time of the others."""
        others = sum(address not in tried for address in self.name_servers.addresses)
        return max(1, left_ms // (1 + others))

    def any_name_server(self) -> str:
        return f"name server ({self.name_servers})"

    def search(self, now: int) -> Ticket[None] | None:
        return None if self._search is None or self.name_servers.addresses else self._search.ask_for_call(now)

    def dial_timeout_ms(self, address: str) -> int:
        """With several name servers a dead one must not use up the time of the request that finds it dead."""
        if address in self.name_servers.addresses:
            return max(1, self.settings.connect_timeout_ms // len(self.name_servers.addresses))
        return self.settings.connect_timeout_ms

    def _fast(self, effect: Call | Oneway) -> str:
        """Where a call goes with the VIP channel: to the broker's second port, unless it is one of those that never
        do.
        """
        address = effect.address
        assert address is not None
        if isinstance(effect, Oneway):
            return vip_target(effect.code, address, oneway=True)
        return (
            address if effect.first_port or address in self.name_servers.addresses else vip_target(effect.code, address)
        )

    def refresh(self, topic: str, now: int) -> Ticket[MQError | None]:
        """Ask a name server for the route of a topic, unless that is under way already."""
        ticket = self._refreshing.get(topic)
        if ticket is None:
            ticket = self.spawn(self._refreshed(topic, now), now)
            if not ticket.settled:
                self._refreshing[topic] = ticket
        return ticket

    def _refreshed(self, topic: str, now: int) -> Flow[MQError | None]:
        try:
            deadline = now + self.settings.api_timeout_ms
            outcome, now = yield Call(None, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, b"", deadline)
            return self._take_route(topic, outcome, now)
        finally:
            self._refreshing.pop(topic, None)

    def _take_route(self, topic: str, outcome: Any, now: int) -> MQError | None:
        if not isinstance(outcome, Command):
            if isinstance(outcome, Lost) and not outcome.connected:
                return NoNameServer(self.name_servers.addresses, outcome.reason if self.name_servers.addresses else "")
            return failure(outcome)
        if outcome.code != SUCCESS:
            return refusal(outcome.code, outcome.remark, f"name server ({self.name_servers})")
        try:
            route = TopicRoute.from_json(bytes(outcome.body))
        except RemoteProtocolError as error:
            return error
        if self.routes.update(topic, route):
            for producer in self.producers.values():
                producer.routes.changed(topic)
            for consumer in list(self.consumers.values()):
                consumer.queues_changed(topic, self.routes.readable(topic) or (), now)
        return None

    def wanted_topics(self) -> set[str]:
        """The topics whose routes are kept fresh."""
        wanted = set(self.requests.topics())
        for tracer in self.tracers:
            wanted |= tracer.topics()
        for producer in self.producers.values():
            wanted |= producer.routes.topics()
        for consumer in self.consumers.values():
            wanted.update(consumer.topics())
        return wanted

    def _poll(self, now: int) -> Flow[None]:
        """Refresh every wanted route, one after the other; the round ends early when no name server answers."""
        for topic in sorted(self.wanted_topics()):
            error, now = yield Refresh(topic, now + self.settings.api_timeout_ms)
            if error is not None and not isinstance(error, BrokerError | RemoteProtocolError):
                self.notices.append(f"routes could not be refreshed: {error}")
                return

    # --- heartbeats

    def heartbeat(self, now: int) -> Ticket[None]:
        """Send heartbeats to the brokers now; settled when all of them have answered or failed.

        To masters, and to slaves too when there is a consumer (docs/protocol/client.md 1.7). Nothing is sent without
        producer and consumer.
        """
        return self.spawn(self._all_beaten(now), now)

    def _all_beaten(self, now: int) -> Flow[None]:
        yield from self._all_of([self.beat(address, now) for address in self._listeners()], now)

    def beat(self, address: str, now: int) -> Ticket[None]:
        """One heartbeat.

        One that is under way may say too little by now: then another follows it at once, for all who ask meanwhile.
        """
        running = self._beats.get(address)
        if running is None:
            ticket = self.spawn(self._beaten(address, None, now), now)
            if not ticket.settled:
                self._beats[address] = ticket
            return ticket
        following = self._next_beats.get(address)
        if following is None:
            following = self._next_beats[address] = self.spawn(self._beaten(address, running, now), now)
        return following

    def known_at(self, address: str) -> bool:
        """Whether a broker has had a heartbeat on the link that is open to it; without one it has forgotten us."""
        link = self.links.get(address)
        return link is not None and link.connected and address not in self._beats

    def _listeners(self) -> list[str]:
        """The addresses that heartbeats go to."""
        if not self.producers and not self.consumers:
            return []
        return self.routes.all_addresses(masters_only=not self.consumers)

    def _beaten(self, address: str, before: Ticket[None] | None, now: int) -> Flow[None]:
        if before is not None:
            _, now = yield Wait(before)
        try:
            consumers = [consumer.heartbeat_data() for consumer in self.consumers.values()]
            if not consumers and not self.producers:
                return
            body = HeartbeatData(self.client_id, list(self.producers), consumers).to_json()
            outcome, now = yield Call(address, RequestCode.HEART_BEAT, {}, body, now + self.settings.api_timeout_ms)
            if not isinstance(outcome, Command):
                self.notices.append(f"heartbeat: {failure(outcome)}")
            elif outcome.code != SUCCESS:
                self.notices.append(f"heartbeat: {refusal(outcome.code, outcome.remark, address)}")
            else:
                self.routes.versions[address] = outcome.version
                if address in self.links:
                    self.links[address].greeted = True
        finally:
            self._beats.pop(address, None)
            if address in self._next_beats:
                self._beats[address] = self._next_beats.pop(address)

    def linked(self, link: DialledLink, now: int) -> None:
        """A broker forgets a client whose link ends, so a new link begins with a heartbeat."""
        if link.address in self._listeners() and link.address not in self._beats:
            self.beat(link.address, now)

    def _unregister(self, kind: str, group: str, now: int) -> Flow[None]:
        """UNREGISTER_CLIENT to every broker that knows us, also where no route leads any more: without a link it has
        forgotten us.
        """
        fields = {"clientID": self.client_id, kind: group}
        known = set(self.routes.all_addresses())
        calls = [
            self.spawn(self._told(address, fields, now), now)
            for address, link in sorted(self.links.items())
            if link.connected and (link.greeted or address in known)
        ]
        yield from self._all_of(calls, now)

    def _told(self, address: str, fields: dict[str, str], now: int) -> Flow[None]:
        """A heartbeat under way is waited for: a broker that takes it in behind the farewell would know the group
        again.
        """
        if address in self._beats:
            _, now = yield Wait(self._beats[address], now + FAREWELL_WAIT_MS)
        outcome, _ = yield Call(address, RequestCode.UNREGISTER_CLIENT, fields, b"", now + self.settings.api_timeout_ms)
        if isinstance(outcome, Command) and outcome.code != SUCCESS:
            self.notices.append(f"unregister: {refusal(outcome.code, outcome.remark, address)}")

    def _all_of(self, tickets: Iterable[Ticket[Any]], now: int, deadline: int | None = None) -> Flow[int]:
        """Wait for all of them, or until the deadline; returns the time."""
        for ticket in tickets:
            _, now = yield Wait(ticket, deadline)
        return now

    # --- what is due

    def begin(self, now: int) -> None:
        self.timers.set(Due.POLL, now + FIRST_POLL_MS)
        if self._search is not None:
            self._search.ask(now)
            self.timers.set(Due.SEARCH, now + FIRST_SEARCH_MS)
        self.timers.set(Due.HEARTBEAT, now + FIRST_HEARTBEAT_MS)

    def tick(self, key: Hashable, now: int) -> None:
        if key is Due.POLL:
            self.timers.set(Due.POLL, now + self.settings.poll_name_server_interval_ms)
            if self._polling is None or self._polling.settled:
                self._polling = self.spawn(self._poll(now), now)
        elif key is Due.SEARCH:
            self.timers.set(Due.SEARCH, now + SEARCH_INTERVAL_MS)
            if self._search is not None:
                self._search.ask(now)
        elif key is Due.HEARTBEAT:
            self.timers.set(Due.HEARTBEAT, now + self.settings.heartbeat_broker_interval_ms)
            self._clean(now)
            self.heartbeat(now)
        else:
            self.finish(f"client {self.client_id} is closed", now)

    def _clean(self, now: int) -> None:
        """Forget brokers that no route names any more, and end links that were not used for long
        (docs/protocol/client.md 1.6, 7.2).
        """
        self.routes.keep(self.wanted_topics())
        for link in self.all_links():
            if link.connected and not link.calls and now - link.used >= self.settings.max_idle_ms:
                self.drop(link, "idle", now)

    def requested(self, link: DialledLink, request: Command, now: int) -> None:
        broker_requests.answer(self, link, request, now)

    # --- the end

    def close(self, now: int) -> None:
        """End in order: consumers, then the application's operations that are in flight, then the producers' groups,
        then the links.

        All of it takes at most `close_timeout_ms`; operations that are not done by then fail with StateError.
        """
        if self.refusal is not None:
            return
        self.refusal = f"client {self.client_id} is closed"
        deadline = now + self.settings.close_timeout_ms
        self.timers.cancel(Due.POLL)
        self.timers.cancel(Due.SEARCH)
        self.timers.cancel(Due.HEARTBEAT)
        self.timers.set(Due.CLOSED, deadline)
        self.spawn(self._closing(now, deadline), now)

    def _closing(self, now: int, deadline: int) -> Flow[None]:
        in_flight = self.application_tickets()
        consumers = [self.spawn(consumer.shutdown(now), now) for consumer in list(self.consumers.values())]
        now = yield from self._all_of([*consumers, *in_flight], now, deadline)
        removals = [self.spawn(self.remove_producer(producer, now), now) for producer in list(self.producers.values())]
        now = yield from self._all_of(removals, now, deadline)
        self.timers.set(Due.CLOSED, now)

    @property
    def ended(self) -> bool:
        return self.over


def client_id(identity: ClientIdentity, unit_name: str = "", *, stream: bool = False) -> str:
    """The id that brokers know a client by (docs/protocol/client.md CI-1): `ip@instance`, `@unit` where there is one,
    `@STREAM` for one that pulls.
    """
    ip = f"[{identity.ip}]" if ":" in identity.ip and not identity.ip.startswith("[") else identity.ip
    unit = f"@{unit_name}" if unit_name and not unit_name.isspace() else ""
    return f"{ip}@{identity.instance_name}{unit}{'@STREAM' if stream else ''}"
