"""Producer of one group: what it sends, how often it tries, and what came of it (docs/protocol/client.md 3).

Owns: the sequence of one send (build the request, wait for room, find queues, attempts within one budget, result).
Leaves to others: what travels (`send_request`), how much may be in flight (`send_window`), queues and brokers to send
to (`publish_routes`), sends that need no flow (`fast_send`), links and calls (the client node performs the effects),
selectors of the application (an adapter calls them outside the node, between `publish_queues` and a send to the queue).

The budget is one deadline for everything: finding the route, connecting, every attempt. Nothing starts after it
(PRO-03).
A request is built once, before the first attempt, so an attempt never compresses what is compressed already, and the
application's message stays as it is (MSG-09): every send of one object gets an id of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from mqproto.codec import Command
from mqproto.errors import (
    AccessDenied,
    Attempt,
    BrokerError,
    CallExpired,
    ClientError,
    InvalidName,
    MQError,
    RemoteProtocolError,
    SendFailed,
    StateError,
    TooManyRequests,
)
from mqproto.message import Message, MessageQueue, SendResult, SendStatus
from mqproto.namespaces import NO_NAMESPACE, Namespace
from mqproto.state.cluster.routes import PublishInfo
from mqproto.state.flows.effects import Call, Expired, Flow, Lost, Oneway, Sleep, Wait, failure
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.publish_routes import PublishRoutes, RoutesHost
from mqproto.state.producer.send_request import RequestBuilder, SendRequest, send_result
from mqproto.state.producer.send_window import SendWindow, WindowPlace
from mqproto.state.producer.settings import ProducerSettings
from mqproto.validation import LONGEST_MS, check_group
from mqproto.wire.codes import NO_PERMISSION
from mqproto.wire.compression import check_available
from mqproto.wire.ids import UniqueIds
from mqproto.wire.names import TRACE_PRODUCER, is_inner_group
from mqproto.wire.tracing import Traced

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"

#: A one-way send waits while a broker has left more than this unread, or more than the window has; well before the node
#: refuses.
UNSENT_WAIT_MAX: Final = 32 << 20
#: How often a one-way send looks whether the broker has read what was sent before.
UNREAD_PAUSE_MS: Final = 10


class ProducerHost(RoutesHost, Protocol):
    """Members of the client node that a producer needs."""

    wall_ahead: int
    ids: UniqueIds
    namespace: Namespace

    def wake_soon(self, ticket: Ticket[None]) -> None:
        """Settle a ticket and resume the flows that wait for it."""

    def unsent(self, address: str) -> int:
        """How many bytes the peer at an address has left unread."""


class SendTrace(Protocol):
    """Message trace, as a producer sees it (`trace`)."""

    def published(
        self, messages: Sequence[Traced], topic: str, result: SendResult, address: str, started: int, now: int
    ) -> None:
        """A broker has answered an attempt that began at `started`."""

    def ending(
        self, message: Traced, topic: str, address: str, transaction_id: str | None, state: str, checked: bool, now: int
    ) -> None:
        """A broker is about to hear what came of a local transaction."""

    def close(self, now: int, deadline: int) -> Flow[None]:
        """Nothing more follows."""


def check_producer(settings: ProducerSettings) -> None:
    """Raises InvalidName for a group that no producer may have, InvalidSetting for other settings, and
    CompressionMissing.
    """
    check_group(settings.group)
    if settings.group == DEFAULT_GROUP:
        raise InvalidName("group", settings.group, "it is the placeholder of a group that was not set")
    settings.check()
    check_available(settings.compress_type)


class ProducerCore:
    """Producer of one group in a client node; made by `ClientNode.add_producer`."""

    def __init__(self, settings: ProducerSettings, host: ProducerHost) -> None:
        """Raises what `check_producer` raises."""
        check_producer(settings)
        self.settings = settings
        #: As it travels; that of the settings is the application's.
        self.group = settings.group if is_inner_group(settings.group) else host.namespace.wrap(settings.group)
        check_group(self.group)
        self.namespace = NO_NAMESPACE if settings.group.startswith(TRACE_PRODUCER) else host.namespace
        self.request_builder = RequestBuilder(settings, self.group, self.namespace, host.settings, host.ids)
        #: Hears of what is sent; None where nobody wants to know.
        self.trace: SendTrace | None = None
        #: Set by the node when it takes the producer out: sends fail from then on.
        self.closed = False
        self._attempt_ms = LONGEST_MS if settings.attempt_timeout_ms < 0 else settings.attempt_timeout_ms
        self._unsent_max = min(settings.send_window_bytes, UNSENT_WAIT_MAX)
        self.window = SendWindow(settings.send_window_messages, settings.send_window_bytes, host.wake_soon)
        self._host = host
        self.routes = PublishRoutes(settings, host)

    # --- sends

    def send(
        self,
        message: Message,
        now: int,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        checked: bool = False,
    ) -> Flow[SendResult]:
        """Send and wait for the broker: 1 + `retry_times` attempts, or a single one when the queue is given
        (docs/protocol/client.md 3.2, 3.3).

        Raises InvalidMessage or InvalidName before anything is sent; BrokerError for an answer that another attempt
        would not change; TooManyRequests when the budget went by without room in the window; NoNameServer, NoRoute or
        CallExpired when no queue could be found; else SendFailed with every attempt.
        `checked` leaves the check of the message out: the client's own messages carry reserved properties.
        """
        send_request = self._build(message, now, checked)
        attempts = 1 if queue is not None else 1 + self.settings.retry_times
        return (yield from self._deliver(send_request, now, queue, timeout_ms, attempts, True))

    def send_async(
        self,
        message: Message,
        now: int,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        checked: bool = False,
    ) -> Flow[SendResult]:
        """Send for a callback: another attempt follows only a link that could not be made or was lost, never an answer
        (docs/protocol/client.md 3.5).

        A send to a given queue is tried again at that queue. Where Apache's client kept the queue id of the first
        attempt and changed the broker under it, an attempt here goes to a queue that was chosen as a whole. `checked`
        and errors as of `send`.
        """
        send_request = self._build(message, now, checked)
        return (
            yield from self._deliver(send_request, now, queue, timeout_ms, 1 + self.settings.retry_times_async, False)
        )

    def send_batch(
        self, messages: Sequence[Message], now: int, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> Flow[SendResult]:
        """Send messages of one topic as one request (docs/protocol/client.md 3.10); errors as of `send`.

        The result's ids are joined by commas.
        """
        send_request = self._build_batch(messages, now)
        attempts = 1 if queue is not None else 1 + self.settings.retry_times
        return (yield from self._deliver(send_request, now, queue, timeout_ms, attempts, True))

    def send_batch_async(
        self, messages: Sequence[Message], now: int, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> Flow[SendResult]:
        """The same with the attempts of `send_async`."""
        send_request = self._build_batch(messages, now)
        return (
            yield from self._deliver(send_request, now, queue, timeout_ms, 1 + self.settings.retry_times_async, False)
        )

    def send_oneway(
        self, message: Message, now: int, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> Flow[None]:
        """Send without an answer, in one attempt; ends once the request is on a connected link. Errors as of `send`.

        Where the broker leaves what was sent before unread, the send waits as it does for room in the window
        (TooManyRequests).
        """
        send_request = self._build(message, now, False)
        deadline = self._deadline(now, timeout_ms)
        target = self._checked_queue(send_request, queue)
        place = self.window.enter(1, len(send_request.body))
        try:
            if place.waits:
                now = yield from self._room(place, now, deadline)
            if target is None:
                info, now = yield from self.routes.find(send_request.topic, now, deadline)
                target = self.routes.choose(info, None, now)
            started = now
            address, cause, now = yield from self._hand_over(send_request, target, now, deadline)
            self.routes.measure(target.broker_name, now - started, now, failed=cause is not None)
            if cause is not None:
                raise SendFailed(
                    send_request.topic, (Attempt(target.broker_name, address, cause, now - started),), cause
                )
        finally:
            self.window.leave(place)

    def _hand_over(
        self, send_request: SendRequest, target: MessageQueue, now: int, deadline: int
    ) -> Flow[tuple[str | None, MQError | None, int]]:
        """The one attempt of a one-way send: where it went, why it did not, and when."""
        address, now = yield from self.routes.master(target, now, deadline)
        if isinstance(address, MQError):
            return None, address, now
        started = now
        while self._host.unsent(address) > self._unsent_max:
            if now >= deadline:
                raise TooManyRequests(
                    f"{address} has left {self._host.unsent(address)} bytes unread for {now - started} ms"
                )
            _, now = yield Sleep(min(deadline, now + UNREAD_PAUSE_MS))
        outcome, now = yield Oneway(
            address,
            send_request.code,
            send_request.addressed(target, now + self._host.wall_ahead),
            send_request.body,
            deadline,
        )
        return address, None if outcome is None else failure(outcome), now

    def publish_queues(self, topic: str, now: int, *, timeout_ms: int | None = None) -> Flow[tuple[MessageQueue, ...]]:
        """The queues that a message of the topic could go to, in order, for a selector.

        Raises NoNameServer, NoRoute or CallExpired.
        """
        deadline = self._deadline(now, timeout_ms)
        info, _ = yield from self.routes.find(self.namespace.wrap(topic), now, deadline)
        return self.namespace.unwrap_queues(info.queues) if self.namespace else info.queues

    def _build(self, message: Message, now: int, checked: bool) -> SendRequest:
        self._check_open()
        return self.request_builder.build(message, now + self._host.wall_ahead, checked, self.trace is not None)

    def _build_batch(self, messages: Sequence[Message], now: int) -> SendRequest:
        self._check_open()
        return self.request_builder.build_batch(messages, now + self._host.wall_ahead, self.trace is not None)

    def _check_open(self) -> None:
        if self.closed:
            raise StateError(f"producer {self.group} is closed")

    def _deadline(self, now: int, timeout_ms: int | None) -> int:
        """When a send has to be over. Raises TooManyRequests where there is no time for it at all."""
        if timeout_ms is None:
            timeout_ms = self.settings.send_timeout_ms
        if timeout_ms <= 0:
            raise TooManyRequests(f"a budget of {timeout_ms} ms leaves no time to send anything")
        return now + timeout_ms

    # --- room

    def _room(self, place: WindowPlace, now: int, deadline: int) -> Flow[int]:
        """Wait until a send may go on; the time. Raises TooManyRequests when its budget is used up before."""
        began = now
        assert place.room is not None
        _, now = yield Wait(place.room, deadline)
        if place.waits:
            window = self.window
            raise TooManyRequests(
                f"no room within {now - began} ms: {window.messages} messages ({window.size} bytes) of group "
                f"{self.group} are in flight"
            )
        return now

    def room(self, place: Ticket[None]) -> Flow[None]:
        """Wait as long as the send does whose ticket of `SendWindow.last` this is: until it has room, or is over."""
        yield Wait(place)

    def flush(self, deadline: int | None = None) -> Flow[bool]:
        """Wait for all sends that have begun by now, until the deadline; whether they have ended, however that was."""
        for ended in self.window.in_flight():
            if not ended.settled:
                yield Wait(ended, deadline)
                if not ended.settled:
                    return False
        return True

    # --- attempts

    def _deliver(
        self,
        send_request: SendRequest,
        now: int,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        attempts_max: int,
        retry_answers: bool,
    ) -> Flow[SendResult]:
        deadline = self._deadline(now, timeout_ms)
        target = self._checked_queue(send_request, queue)
        place = self.window.enter(send_request.messages, len(send_request.body))
        try:
            if place.waits:
                now = yield from self._room(place, now, deadline)
            return (yield from self._attempts(send_request, now, target, deadline, attempts_max, retry_answers))
        finally:
            self.window.leave(place)

    def go_on(
        self,
        send_request: SendRequest,
        place: WindowPlace,
        call: Call,
        queue: MessageQueue,
        info: PublishInfo | None,
        begun: int,
        for_callback: bool,
    ) -> Flow[SendResult]:
        """A send whose first call, which is the first effect, was made at `begun`, to a queue that was taken from
        `info` or given.
        """
        settings = self.settings
        try:
            outcome, now = yield call
            assert call.address is not None
            made = call.address, self._result(outcome, queue, send_request, call.address), now
            retries = settings.retry_times_async if for_callback else settings.retry_times if info is not None else 0
            return (
                yield from self._attempts(
                    send_request, begun, queue, call.deadline, 1 + retries, not for_callback, info, made
                )
            )
        finally:
            self.window.leave(place)

    def _attempts(
        self,
        send_request: SendRequest,
        now: int,
        target: MessageQueue | None,
        deadline: int,
        attempts_max: int,
        retry_answers: bool,
        info: PublishInfo | None = None,
        made: tuple[str | None, SendResult | MQError, int] | None = None,
    ) -> Flow[SendResult]:
        """Attempts until one is the last. `made` is what came of a first one that went to `target`, and when."""
        begun = now
        routes = self.routes
        if target is None:
            info, now = yield from routes.find(send_request.topic, now, deadline)
        attempts: list[Attempt] = []
        kept: SendResult | None = None
        last: str | None = None
        while made is not None or (len(attempts) < attempts_max and now < deadline):
            if info is not None and made is None:
                target = routes.choose(info, last, now)
            assert target is not None
            last = target.broker_name
            started = now
            if made is None:
                more_to_come = len(attempts) + 1 < attempts_max
                limit = min(deadline, now + self._attempt_ms) if more_to_come else deadline
                try:
                    made = yield from self._attempt(
                        send_request, target, now, limit, bool(attempts) and not retry_answers
                    )
                except MQError as error:  # a limit of our own: this attempt sent nothing, of those before nobody knows
                    if not attempts and kept is None:
                        raise
                    attempts.append(Attempt(last, None, error, 0))
                    break
            address, result, now = made
            made = None
            routes.measure(last, now - started, now, failed=isinstance(result, Exception))
            if isinstance(result, SendResult):
                if (
                    result.status is SendStatus.SEND_OK
                    or not self.settings.retry_another_broker_when_not_store_ok
                    or not retry_answers
                ):
                    return result
                kept = result
                attempts_max -= 1
                continue
            attempts.append(Attempt(last, address, result, now - started))
            if isinstance(result, RemoteProtocolError):
                break  # it was stored, as far as one can tell
            if isinstance(result, BrokerError) and not (
                retry_answers and info is not None and self._worth_retrying(result, info)
            ):
                if kept is None:
                    raise result
                break
        if kept is not None:
            return kept
        routes.failed(send_request.topic)
        cause = (
            attempts[-1].failure
            if attempts
            else CallExpired(f"name servers about topic {send_request.topic!r}", now - begun)
        )
        raise SendFailed(send_request.topic, tuple(attempts), cause)

    def _attempt(
        self, send_request: SendRequest, queue: MessageQueue, now: int, deadline: int, first_port: bool
    ) -> Flow[tuple[str | None, SendResult | MQError, int]]:
        """One try: where it went, what came of it, and when."""
        address = self._host.routes.master(queue.broker_name)
        if address is None:
            found, now = yield from self.routes.master(queue, now, deadline)
            if isinstance(found, MQError):
                return None, found, now
            address = found
        fields = send_request.addressed(queue, now + self._host.wall_ahead)
        started = now
        outcome, now = yield Call(address, send_request.code, fields, send_request.body, deadline, first_port)
        result = self._result(outcome, queue, send_request, address)
        if self.trace is not None and isinstance(result, SendResult):
            self.trace.published(send_request.traced, send_request.topic, result, address, started, now)
        return address, result, now

    def _result(
        self, outcome: Command | Lost | Expired, queue: MessageQueue, send_request: SendRequest, address: str
    ) -> SendResult | MQError:
        """What came of a call."""
        if isinstance(outcome, Command):
            return send_result(outcome, self.namespace.unwrap_queue(queue), send_request.msg_id, address)
        return failure(outcome)

    def _worth_retrying(self, failure: BrokerError, info: PublishInfo) -> bool:
        """Whether another attempt may fare better: only for some codes, and a missing permission is the same again at
        the same broker.
        """
        if isinstance(failure, AccessDenied) or failure.code not in self.settings.retry_codes:
            return False
        return failure.code != NO_PERMISSION or len(info.write_queues) > 1

    def _checked_queue(self, send_request: SendRequest, queue: MessageQueue | None) -> MessageQueue | None:
        if queue is None:
            return None
        queue = self.namespace.wrap_queue(queue)
        if queue.topic != send_request.topic:
            raise ClientError(f"the message is for topic {send_request.topic!r}, the queue of topic {queue.topic!r}")
        return queue
