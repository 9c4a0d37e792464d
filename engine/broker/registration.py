"""Registration with the name servers: 103, 104, 322 (broker.md 1.6).

Owns: one link to each name server, what each of them is known to know, when it is told again.
Leaves to others: the topic table (`tables`), what name servers make of it.

A name server is told everything when a link to it comes up and every period after that, and the topics alone that are made in
between. That saves the body of a large table, but has a trap: a name server takes the version of the table over from such an
*increment*. If it did not know this broker before, or missed an increment, it would have a part of the table under the version of
the whole, and take the next full registration for old news. So increments go only to a name server that has confirmed a full one on
this very link; and when one fails, the version is counted up before everything is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from engine.broker.core import NOT_SUPPORTED, SUCCESS, Core, Waiter
from mqproto.bodies import KVTable, RegisterBrokerBody, TopicConfig, TopicTable
from mqproto.codec import Command
from mqproto.errors import TooManyRequests
from mqproto.fastjson import JsonError
from mqproto.flags import PERM_READ_WRITE
from mqproto.headers import QueryDataVersionRequest, RegisterBrokerRequest, UnregisterBrokerRequest
from mqproto.hosts import join_address
from mqproto.ids import body_crc
from mqproto.state.connection import Connection
from mqproto.state.node import Dial, Link

REGISTER_BROKER: Final = 103
UNREGISTER_BROKER: Final = 104
QUERY_DATA_VERSION: Final = 322

_DIAL_MS: Final = 3000
_UNREGISTER_MS: Final = 3000
#: Pause before the next try to connect: doubled at each failure up to the longest.
_PAUSE_MS: Final = 500
_PAUSE_MAX_MS: Final = 8000

Then = Callable[[], None]


class NameServer:
    """One name server, and what it is known to know."""

    __slots__ = ("address", "core", "current", "link", "pause_ms", "registration", "tried")

    def __init__(self, registration: Registration, address: str) -> None:
        self.registration = registration
        self.core = registration.core
        self.address = address
        self.link: Connection[Waiter] | None = None
        #: It has confirmed a full registration on this link, and every increment since.
        self.current = False
        #: It has answered a registration, or could not be reached.
        self.tried = False
        self.pause_ms = 0

    @property
    def connected(self) -> bool:
        return self.link is not None and self.link.connected and not self.link.ended

    # --- the link ---

    def dial(self) -> None:
        """Connect; an alarm after a pause."""
        self.link = Connection(self.core, self.core.calls, self.address, connected=False)
        self.core.actions.append(Dial(self.link, _DIAL_MS))

    def opened(self) -> None:
        assert self.link is not None
        self.link.connect()
        self.pause_ms = 0
        self.tell_all()

    def closed(self, reason: str) -> None:
        """The link is over: at once to the next, or after a pause where none could be made."""
        link = self.link
        if link is None:
            return
        if self.pause_ms == 0 and not self.registration.closing:
            self.core.notice(f"name server {self.address}: {reason}")
        self.link = None
        self.current = False
        waiters = link.end()
        if not self.registration.closing:
            self.core.alarms.set(self.dial, self.core.now + self.pause_ms)
            self.pause_ms = min(max(self.pause_ms * 2, _PAUSE_MS), _PAUSE_MAX_MS)
        for waiter in waiters:
            waiter(None)
        self._tried()

    def drop(self, reason: str) -> None:
        """End the link from our side."""
        if self.link is not None:
            self.core.hang_up(self.link, reason)
            self.closed(reason)

    def call(self, waiter: Waiter, code: int, fields: dict[str, str], body: bytes, timeout_ms: int) -> None:
        """Ask; `waiter` gets the answer, or None at once where there is no link."""
        link = self.link
        if link is None or not self.connected:
            waiter(None)
            return
        try:
            link.call(waiter, code, fields, body, deadline=self.core.now + timeout_ms)
        except TooManyRequests:
            waiter(None)

    # --- telling ---

    def tell_all(self) -> None:
        """Register with all topics."""
        self.current = False
        self._register(self.core.topics.table.values(), self._all_told)

    def tell_if_changed(self) -> None:
        """Ask first whether it knows the version of our table (where registrations are not forced)."""
        version = self.core.topics.version.to_json()
        timeout = self.core.settings.register_broker_timeout_mills
        fields = QueryDataVersionRequest(*self.registration.identity).encode()
        self.call(self._version_answered, QUERY_DATA_VERSION, fields, version, timeout)

    def _version_answered(self, answer: Command | None) -> None:
        if answer is None or answer.code != SUCCESS or answer.fields.get("changed", "").lower() != "false":
            self.tell_all()

    def tell(self, topics: Iterable[TopicConfig], then: Then) -> None:
        """Register with these topics in addition; everything, where it is not certain what is known."""
        told = self._more_told if self.current else self._all_told

        def answered(answer: Command | None) -> None:
            told(answer)
            then()

        self._register(topics if self.current else self.core.topics.table.values(), answered)

    def _register(self, topics: Iterable[TopicConfig], waiter: Waiter) -> None:
        settings = self.core.settings
        body = self.registration.body(topics)
        data = body.to_compressed() if settings.compressed_register else body.to_json()
        name, address, cluster, number = self.registration.identity
        fields = RegisterBrokerRequest(
            name, address, cluster, self.registration.ha_address, number, settings.compressed_register, body_crc(data)
        ).encode()
        self.call(waiter, REGISTER_BROKER, fields, data, settings.register_broker_timeout_mills)

    def _tried(self) -> None:
        if not self.tried:
            self.tried = True
            self.registration.tried()

    def _all_told(self, answer: Command | None) -> None:
        if answer is None:
            if self.connected:
                self.drop("no answer to a registration")
            return
        self._tried()
        if answer.code != SUCCESS:
            self.core.notice(f"name server {self.address} refused the registration: code {answer.code}, {answer.remark}")
            return
        self.current = True
        self._take_order(answer)

    def _more_told(self, answer: Command | None) -> None:
        if answer is not None and answer.code == SUCCESS:
            return
        # It may have the version of the whole and not all of it: make the versions differ, and tell everything.
        self.current = False
        if self.connected:
            self.core.topics.version.next(self.core.wall)
            self.tell_all()

    def _take_order(self, answer: Command) -> None:
        """The answer's body names the topics that are ordered; no body says nothing."""
        if not answer.body:
            return
        try:
            ordered = KVTable.from_json(answer.body).table
        except JsonError as error:
            self.core.notice(f"name server {self.address} answered a registration with no table: {error}")
            return
        self.core.topics.set_ordered(ordered, self.core.wall)


class Registration:
    """All name servers."""

    def __init__(self, core: Core) -> None:
        settings = core.settings
        self.core = core
        #: Broker name, address, cluster, id: in each of our requests.
        self.identity = (settings.broker_name, core.address, settings.broker_cluster_name, settings.broker_id)
        host = settings.broker_ip2 or core.host
        self.ha_address = join_address(host, core.port + 1)
        self.servers = [NameServer(self, address) for address in dict.fromkeys(settings.namesrv_addresses())]
        self.closing = False
        self._waiting: list[Then] = []

    def when_tried(self, then: Then) -> None:
        """Call `then` once every name server has answered a registration or could not be reached; at once if that is so."""
        self._waiting.append(then)
        self.tried()

    def tried(self) -> None:
        if all(server.tried for server in self.servers):
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()

    def begin(self) -> None:
        for server in self.servers:
            server.dial()
        if self.servers:
            self._arm()

    def _arm(self) -> None:
        self.core.alarms.set(self.renew, self.core.now + self.core.settings.register_period)

    def renew(self) -> None:
        """Alarm, every period: tell every name server that we are here."""
        for server in self.servers:
            if server.connected:
                if self.core.settings.force_register:
                    server.tell_all()
                else:
                    server.tell_if_changed()
        self._arm()

    def announce(self, then: Then | None = None) -> None:
        """Tell every name server of the topics that were made or changed; `then` is called once all have answered, or cannot."""
        topics = self.core.topics
        fresh = [config for name in topics.fresh if (config := topics.find(name)) is not None]
        topics.fresh.clear()
        connected = [server for server in self.servers if server.connected] if fresh else []
        countdown = _Countdown(len(connected), then)
        for server in connected:
            server.tell(fresh, countdown.one)
        if not connected and then is not None:
            then()

    def body(self, topics: Iterable[TopicConfig]) -> RegisterBrokerBody:
        """The body that tells of these topics; a broker that is not fully open says so of each of them."""
        perm = self.core.settings.broker_permission
        if perm & PERM_READ_WRITE != PERM_READ_WRITE:
            topics = [TopicConfig(one.name, one.read_queues, one.write_queues, perm, one.filter_type) for one in topics]
        return RegisterBrokerBody(TopicTable(self.core.topics.version, {one.name: one for one in topics}))

    def finish(self, then: Then) -> None:
        """Unregister everywhere, then end the links."""
        self.closing = True
        self.core.alarms.cancel(self.renew)
        for server in self.servers:
            self.core.alarms.cancel(server.dial)
        connected = [server for server in self.servers if server.connected]
        countdown = _Countdown(len(connected), lambda: self._finished(then))
        fields = UnregisterBrokerRequest(*self.identity).encode()
        for server in connected:
            server.call(countdown.answered, UNREGISTER_BROKER, fields, b"", _UNREGISTER_MS)
        if not connected:
            self._finished(then)

    def _finished(self, then: Then) -> None:
        for server in self.servers:
            server.drop("the broker ends")
        then()

    # --- inputs ---

    def server_of(self, link: Link) -> NameServer | None:
        for server in self.servers:
            if server.link is link:
                return server
        return None

    def received(self, server: NameServer, data: bytes) -> None:
        link = server.link
        assert link is not None
        for command in link.receive(data):
            if command.is_response:
                waiter = link.answered(command)
                if waiter is not None:
                    waiter(command)
            else:
                link.reply(command, NOT_SUPPORTED, remark=f" request type {command.code} not supported")
        if link.broken is not None:
            server.drop(str(link.broken))


class _Countdown:
    """Calls a function once so many calls have ended."""

    def __init__(self, count: int, then: Then | None) -> None:
        self.count = count
        self.then = then

    def one(self) -> None:
        self.count -= 1
        if self.count == 0 and self.then is not None:
            self.then()

    def answered(self, answer: Command | None) -> None:
        self.one()
