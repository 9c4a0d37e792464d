"""Messages that wait for a reply (docs/protocol/client.md 3.13).

Owns: the requests of one client that wait, by correlation id; how brokers learn of the client before they are to pass a
reply on. Leaves to others: the send (`core`), reading what brokers push (`broker_requests`).

A request has one outcome: its reply, the failure of its send, or `RequestTimeout`. (Apache's releases from 4.9.4 on
also report the acknowledgement of the send as a reply.) Late, doubled and unknown replies are dropped. A request is an
operation of the application, so the node's `in_flight_limit` bounds how many wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Protocol

from mqproto.errors import InvalidMessage, MQError, RequestTimeout
from mqproto.message import Message, MessageExt, MessageQueue
from mqproto.namespaces import Namespace
from mqproto.replies import ReplyMessage, reply_topic
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Flow, Refresh, Wait, current
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import NodeSettings
from mqproto.validation import check_message
from mqproto.wire import properties
from mqproto.wire.compression import inflate, plain_flag
from mqproto.wire.flags import BORN_HOST_V6, STORE_HOST_V6
from mqproto.wire.headers import ReplyMessageRequest
from mqproto.wire.hosts import HostError, encode_host
from mqproto.wire.ids import UniqueIds

#: How long a request waits for brokers that do not know this client, and at most half of its budget: one that is down
#: must not cost more.
INTRODUCTION_MS: Final = 1_000
#: How many clusters' reply topics are kept fresh; a client meets one or two.
REPLY_TOPICS_MAX: Final = 100


class Introductions(Protocol):
    """Heartbeats of the client node, for brokers that do not know it yet."""

    def send_to(self, address: str, now: int) -> Ticket[None]: ...
    def known_at(self, address: str) -> bool: ...


class RequestHost(Protocol):
    """Members of the client node that requests need."""

    wall_ahead: int
    client_id: str
    namespace: Namespace
    routes: RouteTable
    ids: UniqueIds
    notices: deque[str]

    @property
    def settings(self) -> NodeSettings: ...
    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...
    def wake(self, ticket: Ticket[Any], now: int) -> None: ...
    def cancel(self, ticket: Ticket[Any], now: int) -> None: ...


class _Waiting:
    """Request on its way; `over` is woken when there is an outcome."""

    __slots__ = ("failure", "over", "reply")

    def __init__(self) -> None:
        self.over: Ticket[None] = Ticket()
        self.reply: MessageExt | None = None
        self.failure: MQError | None = None


class RequestReply:
    """Requests of one client node."""

    def __init__(self, host: RequestHost, heartbeats: Introductions) -> None:
        self._host = host
        self._heartbeats = heartbeats
        self._waiting: dict[str, _Waiting] = {}
        #: When heartbeats were last sent to brokers that did not know this client.
        self._introduced: dict[str, int] = {}
        self._reply_topics: set[str] = set()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def topics(self) -> Iterable[str]:
        """The topics that replies come by: their brokers need heartbeats, so the node keeps the routes fresh."""
        return self._reply_topics

    # --- asking

    def ask(
        self,
        producer: ProducerCore,
        message: Message,
        now: int,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> Flow[MessageExt]:
        """Send `message` and wait for the reply to it, both within `timeout_ms` (the producer's `send_timeout_ms`
        unless given).

        Raises RequestTimeout when it was sent and nothing came; what `ProducerCore.send_async` raises when it could not
        be sent; BodyError or CompressionMissing for a reply whose body cannot be inflated.
        """
        timeout_ms = producer.settings.send_timeout_ms if timeout_ms is None else timeout_ms
        deadline = now + timeout_ms
        check_message(message, producer.settings.max_message_size)
        if isinstance(message, ReplyMessage):
            raise InvalidMessage("a reply cannot ask for another one")
        now = yield from self._introduce(producer, message.topic, now, deadline)
        correlation_id = self._host.ids.next(now + self._host.wall_ahead)
        added = {
            properties.CORRELATION_ID: correlation_id,
            properties.REPLY_TO_CLIENT: self._host.client_id,
            properties.TTL: str(timeout_ms),
        }
        asked = replace(message, properties={**message.properties, **added})
        waiting = self._waiting[correlation_id] = _Waiting()
        sending = self._host.spawn(self._sent(waiting, producer, asked, queue, deadline, now), now)
        try:
            yield Wait(waiting.over, deadline)
        finally:
            del self._waiting[correlation_id]
            self._host.cancel(sending, now)  # the reply may be here before the broker's answer, or the caller gone
        if waiting.reply is not None:
            return waiting.reply
        raise waiting.failure or RequestTimeout(message.topic, correlation_id, timeout_ms)

    def _sent(
        self,
        waiting: _Waiting,
        producer: ProducerCore,
        message: Message,
        queue: MessageQueue | None,
        deadline: int,
        now: int,
    ) -> Flow[None]:
        try:
            yield from producer.send_async(message, now, queue=queue, timeout_ms=deadline - now, checked=True)
        except MQError as error:
            waiting.failure = error
            now = yield from current(now)
            self._host.wake(waiting.over, now)

    def _introduce(self, producer: ProducerCore, topic: str, now: int, deadline: int) -> Flow[int]:
        """See that every broker which may have to pass the reply on knows this client; returns the time.

        That is any broker of the cluster: whoever replies sends to the cluster's reply topic. Apache's client tells the
        brokers of known topics only, and only when the request's own topic is new to it.
        """
        host = self._host
        yield from producer.publish_queues(topic, now, timeout_ms=deadline - now)
        now = yield from current(now)
        route = host.routes.route(host.namespace.wrap(topic)) or host.routes.route(producer.settings.create_topic_key)
        for name in sorted({reply_topic(broker.cluster) for broker in (route.brokers if route is not None else ())}):
            if host.routes.route(name) is None:
                _, now = yield Refresh(name, self._patience(now, deadline))
            if host.routes.route(name) is not None and len(self._reply_topics) < REPLY_TOPICS_MAX:
                self._reply_topics.add(name)
        addresses = host.routes.all_addresses(masters_only=True)
        again = now - host.settings.heartbeat_broker_interval_ms
        strangers = [
            one for one in addresses if not self._heartbeats.known_at(one) and self._introduced.get(one, again) <= again
        ]
        self._introduced = {one: when for one, when in self._introduced.items() if when > again}
        until = self._patience(now, deadline)
        beats = [self._heartbeats.send_to(address, now) for address in strangers]
        self._introduced.update(dict.fromkeys(strangers, now))
        for beat in beats:
            _, now = yield Wait(beat, until)
        return now

    def _patience(self, now: int, deadline: int) -> int:
        return now + min(INTRODUCTION_MS, max(0, deadline - now) // 2)

    # --- replies

    def replied(self, header: ReplyMessageRequest, body: bytes, now: int) -> None:
        """A broker pushes a reply (326). One that nobody waits for is dropped, with a notice."""
        message = _message(header, now + self._host.wall_ahead)
        correlation_id = message.properties.get(properties.CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            self._host.notices.append(f"a reply to request {correlation_id[:100]!r} came, for which nobody waits")
            return
        try:
            message.body = inflate(body, header.sys_flag)
        except MQError as error:
            waiting.failure = error
        else:
            waiting.reply = message
        self._host.wake(waiting.over, now)


def _message(header: ReplyMessageRequest, wall: int) -> MessageExt:
    """The reply as a message, its body still to come."""
    message = MessageExt(header.topic, b"", properties.decode(header.properties or ""))
    message.properties[properties.ARRIVE_TIME] = str(wall)
    message.flag = header.flag
    message.sys_flag = plain_flag(header.sys_flag) & ~(BORN_HOST_V6 | STORE_HOST_V6)
    message.queue_id = header.queue_id
    message.born_time = header.born_timestamp
    message.store_time = header.store_timestamp
    message.reconsume_times = header.reconsume_times or 0
    message.born_host_bytes, born_v6 = _host(header.born_host)
    message.store_host_bytes, store_v6 = _host(header.store_host)
    message.sys_flag |= BORN_HOST_V6 * born_v6 | STORE_HOST_V6 * store_v6
    return message


def _host(text: str) -> tuple[bytes, bool]:
    """The bytes of `ip:port`, and whether they are IPv6; zeros for anything else: that is no reason to lose a reply."""
    try:
        data = encode_host(text.lstrip("/"))
    except HostError:
        return bytes(8), False
    return data, len(data) > 8
