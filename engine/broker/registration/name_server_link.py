"""Link of a broker to one name server (docs/protocol/broker.md 1.6).

Owns: dialling and redialling, what the name server is known to know, what it is sent next.
Leaves to others: which name servers there are and when all of them are asked (`name_servers`), what a registration says
(`registration_body`), what name servers make of it.

Whole registrations to one name server follow each other: what changes while one is on its way goes with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from mqproto.codec import Command
from mqproto.engine.broker.interfaces.requests import Waiter
from mqproto.engine.broker.registration.registration_body import RegistrationBody
from mqproto.errors import TooManyRequests
from mqproto.state.node.connection import Connection
from mqproto.state.node.contract import Dial
from mqproto.wire.bodies import KVTable, TopicConfig
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.fastjson import JsonError
from mqproto.wire.headers import QueryDataVersionRequest, RegisterBrokerRequest, UnregisterBrokerRequest

if TYPE_CHECKING:
    from mqproto.engine.broker.registration.name_servers import Registration


_DIAL_MS: Final = 3000
_UNREGISTER_MS: Final = 3000
#: Pause before the next try to connect: doubled at each failure up to the longest.
_PAUSE_MS: Final = 500
_PAUSE_MAX_MS: Final = 8000

Then = Callable[[], None]


class NameServerLink:
    """Link to one name server, and what that is known to know."""

    def __init__(self, registration: Registration, address: str) -> None:
        self.registration = registration
        self.address = address
        self.link: Connection[Waiter] | None = None
        #: It has confirmed a full registration on this link, and every increment since.
        self.current = False
        #: It has answered a registration, or could not be reached.
        self.tried = False
        #: Topics that it holds for ordered; None while it has not said.
        self.ordered: frozenset[str] | None = None
        #: No longer one of ours: the link ends and is not made again.
        self.leaving = False
        #: A full registration is being made or on its way; who waits for it, and for the one after it.
        self._telling = False
        self._served: list[Then] = []
        self._waiting: list[Then] = []
        self._again = False
        self._pause_ms = 0

    @property
    def connected(self) -> bool:
        return self.link is not None and self.link.connected and not self.link.ended

    # --- the link ---

    def dial(self) -> None:
        """Connect; an alarm after a pause."""
        self.link = Connection(self.registration.node, self.registration.calls, self.address, connected=False)
        self.registration.node.actions.append(Dial(self.link, _DIAL_MS))

    def opened(self) -> None:
        assert self.link is not None
        self.link.connect()
        self._pause_ms = 0
        self.tell_all()

    def closed(self, reason: str) -> None:
        """The link is over: at once to the next, or after a pause where none could be made."""
        link = self.link
        if link is None:
            return
        ending = self.leaving or self.registration.closing
        if self._pause_ms == 0 and not ending:
            self.registration.notices.notice(f"name server {self.address}: {reason}")
        self.link = None
        self.current = False
        self.ordered = None
        waiters = link.end()
        if not ending:
            self.registration.timers.alarms.set(self.dial, self.registration.timers.now + self._pause_ms)
            self._pause_ms = min(max(self._pause_ms * 2, _PAUSE_MS), _PAUSE_MAX_MS)
        for waiter in waiters:
            waiter(None)
        self._settle_all()
        self._tried()

    def drop(self, reason: str) -> None:
        """End the link from our side."""
        if self.link is not None:
            self.registration.node.hang_up(self.link, reason)
            self.closed(reason)

    def call(self, waiter: Waiter, code: int, fields: dict[str, str], body: bytes, timeout_ms: int) -> None:
        """Ask; `waiter` gets the answer, or None at once where there is no link."""
        link = self.link
        if link is None or not self.connected:
            waiter(None)
            return
        try:
            link.call(waiter, code, fields, body, deadline=self.registration.timers.now + timeout_ms)
        except TooManyRequests:
            waiter(None)

    # --- everything ---

    def tell_all(self, then: Then | None = None) -> None:
        """Register with all topics; `then` is called once that is over, with whatever outcome."""
        self.current = False
        if then is not None:
            self._waiting.append(then)
        if self._telling:
            self._again = True
            return
        self._telling = True
        self._again = False
        self._served, self._waiting = self._waiting, []
        link = self.link
        self.registration.bodies.whole(lambda told: self._tell_whole(told) if link is self.link else None)

    def tell_if_changed(self) -> None:
        """Ask first whether it knows the version of our table (where registrations are not forced)."""
        version = self.registration.topics.version.to_json()
        timeout = self.registration.settings.register_broker_timeout_mills
        fields = QueryDataVersionRequest(*self.registration.identity).encode()
        self.call(self._version_answered, RequestCode.QUERY_DATA_VERSION, fields, version, timeout)

    def _version_answered(self, answer: Command | None) -> None:
        if answer is None or answer.code != ResponseCode.SUCCESS or answer.fields.get("changed", "").lower() != "false":
            self.tell_all()

    def _tell_whole(self, told: RegistrationBody) -> None:
        self._register(told, lambda answer: self._all_told(told, answer))

    def _all_told(self, told: RegistrationBody, answer: Command | None) -> None:
        if answer is None:
            if self.connected:
                self.drop("no answer to a registration")
            return
        if answer.code == ResponseCode.SUCCESS:
            self._again = self._again or told.version != self.registration.topics.version
            self.current = not self._again
            self._take_order(answer)
        else:
            self.registration.notices.notice(
                f"name server {self.address} refused the registration: code {answer.code}, {answer.remark}"
            )
        again = self._again
        self._telling = False
        served, self._served = self._served, []
        for then in served:
            then()
        self._tried()
        if again:
            self.tell_all()

    def _settle_all(self) -> None:
        """Nothing is on its way any more: let nobody wait."""
        waiting = self._served + self._waiting
        self._telling = False
        self._served, self._waiting = [], []
        for then in waiting:
            then()

    # --- in addition ---

    def tell(self, topics: Iterable[TopicConfig], then: Then) -> None:
        """Register with these topics in addition; everything, where it is not certain what is known."""
        if not self.current:
            self.tell_all(then)
            return

        def answered(answer: Command | None) -> None:
            self._more_told(answer)
            then()

        self._register(self.registration.bodies.part(topics), answered)

    def _more_told(self, answer: Command | None) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            return
        # It may have the version of the whole and not all of it: make the versions differ, and tell everything.
        self.current = False
        if self.connected:
            self.registration.topics.version.next(self.registration.timers.wall)
            self.tell_all()

    def _register(self, told: RegistrationBody, waiter: Waiter) -> None:
        name, address, cluster, number = self.registration.identity
        fields = RegisterBrokerRequest(
            name, address, cluster, self.registration.ha_address, number, told.compressed, told.crc
        ).encode()
        self.call(
            waiter,
            RequestCode.REGISTER_BROKER,
            fields,
            told.data,
            self.registration.settings.register_broker_timeout_mills,
        )

    def unregister(self, waiter: Waiter) -> None:
        """Say that this broker goes."""
        self.call(
            waiter,
            RequestCode.UNREGISTER_BROKER,
            UnregisterBrokerRequest(*self.registration.identity).encode(),
            b"",
            _UNREGISTER_MS,
        )

    def _tried(self) -> None:
        if not self.tried:
            self.tried = True
            self.registration.tried()

    def _take_order(self, answer: Command) -> None:
        """The answer's body names the topics that are ordered; no body says nothing."""
        if not answer.body:
            return
        try:
            self.ordered = frozenset(KVTable.from_json(answer.body).table)
        except JsonError as error:
            self.registration.notices.notice(
                f"name server {self.address} answered a registration with no table: {error}"
            )
            return
        self.registration.take_order()
