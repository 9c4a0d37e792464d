"""Node of one client id: everything that its producers and consumers share (docs/protocol/client.md 1).

Owns: the parts (members, heartbeats, the refresh of routes, requests of brokers), when each of them is due, and the
order of the end.
Leaves to others: how flows run and links come about (`calls`), what routes mean (`routes`), sends, transactions,
requests that wait for a reply and traces (`mqproto.state.producer`), consumption (`mqproto.state.consumer`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

from mqproto.codec import Command
from mqproto.errors import MQError
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.namespaces import Namespace
from mqproto.state.client.broker_requests import BrokerRequests
from mqproto.state.client.heartbeats import Heartbeats
from mqproto.state.client.members import ConsumerPort, Consumers, Producers
from mqproto.state.client.route_refresh import RouteRefresh
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.state.cluster import vip
from mqproto.state.cluster.address_server import FIRST_SEARCH_MS, SEARCH_INTERVAL_MS, AddressDirectory, Search
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.calls import FlowNode
from mqproto.state.flows.effects import Flow, wait_for_all
from mqproto.state.flows.name_servers import NameServerList
from mqproto.state.flows.tasks import DialledLink
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.fast_answers import read_send_answer
from mqproto.state.producer.fast_send import FastSend, FastSends
from mqproto.state.producer.request_reply import RequestReply
from mqproto.state.producer.settings import ProducerSettings, TransactionSettings
from mqproto.state.producer.trace import Tracer
from mqproto.state.producer.transactions import TransactionCore
from mqproto.wire.hosts import encode_ip
from mqproto.wire.ids import UniqueIds

#: When the periodic tasks run for the first time after `begin` (docs/protocol/client.md 1.3).
FIRST_POLL_MS: Final = 10
FIRST_HEARTBEAT_MS: Final = 1_000
#: The field by which every request says that its client pulls (docs/protocol/client.md 9, "Stream type").
STREAM_FIELDS: Final = {"ReqT": "0"}


class Due(Enum):
    """Timers of the node's own."""

    POLL = "poll routes"
    SEARCH = "ask the address server"
    HEARTBEAT = "heartbeat"
    CLOSED = "closed at the latest"


class ClientNode(FlowNode):
    """Client of one id. Settings and identity are fixed when it is made."""

    def __init__(
        self, settings: ClientSettings, identity: ClientIdentity, directory: AddressDirectory | None = None
    ) -> None:
        """`directory` is asked for name servers where the settings have none.

        Raises InvalidSetting, and InvalidName for the namespace.
        """
        settings.check()
        super().__init__(
            limit=settings.in_flight_limit,
            name_servers=NameServerList(settings.name_servers, identity.seed),
            connect_timeout_ms=settings.connect_timeout_ms,
            tls=settings.tls,
            credentials=settings.credentials,
        )
        self.settings = settings
        if settings.stream:
            self.common_fields = STREAM_FIELDS
        if settings.namespace_v2:
            self.common_fields = {**self.common_fields, "nsd": "true", "ns": settings.namespace_v2}
        if settings.vip_channel:
            self.reroute = partial(vip.rerouted, name_servers=self.name_servers)
        #: Where names of the application are wrapped and unwrapped.
        self.namespace = Namespace(settings.namespace)
        self.seed = identity.seed
        self.client_id = client_id(identity, settings.unit_name, stream=settings.stream)
        self.ids = UniqueIds(encode_ip(identity.ip), identity.process_id, identity.seed, identity.utc_offset_ms)
        self.routes = RouteTable(identity.seed, self.notices.append)
        self._route_refresh = RouteRefresh(self)
        self._search = Search(directory, self) if directory is not None and not settings.name_servers else None
        #: The message traces of producers and consumers.
        self.tracers: list[Tracer] = []
        self.producers = Producers(self)
        self._fast_sends: dict[ProducerCore, FastSends] = {}
        self.consumers = Consumers(self)
        self.heartbeats = Heartbeats(self, self.producers, self.consumers)
        #: Messages that wait for a reply.
        self.requests = RequestReply(self, self.heartbeats)
        self.broker_requests = BrokerRequests(self.producers, self.consumers, self.requests, self.notices)

    # --- producers

    def add_producer(self, settings: ProducerSettings, now: int) -> ProducerCore:
        """A producer of this node, announced to the brokers known so far.

        Raises InvalidName, InvalidSetting, or StateError when the node has a producer of this group or is closed.
        """
        producer = self.producers.add(settings)
        self._fast_sends[producer] = FastSends(self, self, producer)
        self.heartbeats.send(now)
        return producer

    def add_transaction_producer(self, settings: TransactionSettings, listener: object, now: int) -> TransactionCore:
        """The same for messages in transactions: what brokers ask of the group goes to `listener`. Errors as above."""
        return self.producers.add_transactions(self.add_producer(settings, now), settings, listener)

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
        if self.producers.discard(producer):
            del self._fast_sends[producer]
            yield from self.heartbeats.unregister("producerGroup", producer.group, now)

    # --- consumers

    def remove_consumer(self, consumer: ConsumerPort, now: int) -> Flow[None]:
        """Take the consumer out and unregister its group at the brokers (docs/protocol/client.md 1.2)."""
        if self.consumers.discard(consumer):
            yield from self.heartbeats.unregister("consumerGroup", consumer.group, now)

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """The application is done with a task of a `Deliver` action; `task.group` names the consumer.

        Late answers are dropped.
        """
        consumer = self.consumers.by_group.get(task.group)
        if consumer is not None:
            consumer.consumed(task, result, now)
            self._drain(now)

    # --- name servers and routes

    def set_name_servers(self, addresses: Sequence[str], now: int) -> None:
        """Use another list (`replace_name_servers`). From now on no address server is asked (docs/protocol/client.md
        1.4).
        """
        if self._search is not None:
            self._search.over = True
            self._search = None
        self.timers.cancel(Due.SEARCH)
        self.replace_name_servers(addresses, now)
        self._drain(now)

    def search(self, now: int) -> Ticket[None] | None:
        return None if self._search is None or self.name_servers.addresses else self._search.ask_for_call(now)

    def refresh(self, topic: str, now: int) -> Ticket[MQError | None]:
        return self._route_refresh.refresh(topic, now)

    def wanted_topics(self) -> set[str]:
        """The topics whose routes are kept fresh."""
        wanted = {*self.requests.topics(), *self.producers.topics(), *self.consumers.topics()}
        return wanted.union(*(tracer.topics() for tracer in self.tracers))

    def route_changed(self, topic: str, now: int) -> None:
        """The route table has another route of the topic."""
        self.producers.route_changed(topic)
        self.consumers.queues_changed(topic, self.routes.readable(topic) or (), now)

    # --- links

    def linked(self, link: DialledLink, now: int) -> None:
        self.heartbeats.linked(link, now)

    def requested(self, link: DialledLink, request: Command, now: int) -> None:
        self.broker_requests.answer(link, request, now)

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
            self._route_refresh.refresh_all(now)
        elif key is Due.SEARCH:
            self.timers.set(Due.SEARCH, now + SEARCH_INTERVAL_MS)
            if self._search is not None:
                self._search.ask(now)
        elif key is Due.HEARTBEAT:
            self.timers.set(Due.HEARTBEAT, now + self.settings.heartbeat_broker_interval_ms)
            self._clean(now)
            self.heartbeats.send(now)
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

    # --- the end

    def close(self, now: int) -> None:
        """End consumers first, then the application's operations that are in flight, then the producers' groups, then
        the links.

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
        consumers = [self.spawn(one.shutdown(now), now) for one in list(self.consumers.by_group.values())]
        now = yield from wait_for_all([*consumers, *in_flight], now, deadline)
        removals = [self.spawn(self.remove_producer(one, now), now) for one in list(self.producers.by_group.values())]
        now = yield from wait_for_all(removals, now, deadline)
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
