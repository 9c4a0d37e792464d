"""Registration with all name servers: 103, 104, 322 (docs/protocol/broker.md 1.6).

Owns: which name servers there are, when all of them are sent something.
Leaves to others: each single one of them (`name_server_link`), what a registration says (`registration_body`), the
topic table (`tables.topics`).

A name server gets everything when a link to it comes up and every period after that, and the topics alone that are made
in between. That saves the body of a large table, but has a trap: a name server takes the version of the table over from
such an *increment*. If it did not know this broker before, or missed an increment, it would have a part of the table
under the version of the whole, and take the next full registration for old news. So increments go only to a name server
that has confirmed a full one on this very link; and when one fails, the version is counted up before all is sent again.
"""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.interfaces.answers import LongAnswers
from mqproto.engine.broker.interfaces.clock import Notices, Timers
from mqproto.engine.broker.interfaces.requests import Waiter
from mqproto.engine.broker.registration.name_server_link import NameServerLink, Then
from mqproto.engine.broker.registration.registration_body import RegistrationBodies
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.remarks import code_not_supported
from mqproto.engine.settings import BrokerSettings
from mqproto.state.node.connection import Calls
from mqproto.state.node.contract import Link, NodeBase
from mqproto.wire.codes import ResponseCode
from mqproto.wire.hosts import join_address


class Registration:
    """Registration with the name servers of one broker."""

    def __init__(
        self,
        node: NodeBase,
        calls: Calls[Waiter],
        timers: Timers,
        notices: Notices,
        settings: BrokerSettings,
        topics: TopicConfigs,
        answers: LongAnswers,
        host: str,
        port: int,
    ) -> None:
        #: Links to name servers are those of this node, and share its calls.
        self.node = node
        self.calls = calls
        self.timers = timers
        self.notices = notices
        self.settings = settings
        self.topics = topics
        #: Broker name, address, cluster, id: in each of our requests.
        self.identity = (
            settings.broker_name,
            join_address(host, port),
            settings.broker_cluster_name,
            settings.broker_id,
        )
        self.ha_address = join_address(settings.broker_ip2 or host, port + 1)
        self.bodies = RegistrationBodies(timers, settings, topics, answers)
        self.servers = [NameServerLink(self, address) for address in dict.fromkeys(settings.namesrv_addresses())]
        #: Those that are being told that this broker leaves them.
        self._leaving: list[NameServerLink] = []
        self.closing = False
        self._waiting: list[Then] = []

    def when_tried(self, then: Then) -> None:
        """Call `then` once every name server has answered a registration or could not be reached."""
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
        self._arm()

    def _arm(self) -> None:
        if self.servers:
            self.timers.alarms.set(self.renew, self.timers.now + self.settings.register_period)
        else:
            self.timers.alarms.cancel(self.renew)

    def renew(self) -> None:
        """Alarm, every period: tell every name server that we are here."""
        for server in self.servers:
            if server.connected:
                if self.settings.force_register:
                    server.tell_all()
                else:
                    server.tell_if_changed()
        self._arm()

    def announce(self, then: Then | None = None) -> None:
        """Tell every name server of the topics that were made or changed; `then` is called after all answers."""
        topics = self.topics
        fresh = [config for name in topics.fresh if (config := topics.find(name)) is not None]
        topics.fresh.clear()
        connected = [server for server in self.servers if server.connected] if fresh else []
        countdown = _Countdown(len(connected), then)
        for server in connected:
            server.tell(fresh, countdown.one)
        if not connected and then is not None:
            then()

    # --- changes of settings ---

    def permission_changed(self, then: Then | None = None) -> None:
        """`brokerPermission` has another value: tell of all topics anew.

        `then` is called once all have answered, or cannot.
        """
        self.topics.next_version(self.timers.wall)
        connected = [server for server in self.servers if server.connected]
        countdown = _Countdown(len(connected), then)
        for server in connected:
            server.tell_all(countdown.one)
        if not connected and then is not None:
            then()

    def addresses_changed(self) -> None:
        """`namesrvAddr` has another value: register with the new ones, leave those that are no longer in it."""
        if self.closing:
            return
        known = {server.address: server for server in self.servers}
        wanted = list(dict.fromkeys(self.settings.namesrv_addresses()))
        self.servers = [known.get(address) or NameServerLink(self, address) for address in wanted]
        for server in self.servers:
            if server.address not in known:
                server.dial()
        for address, server in known.items():
            if address not in wanted:
                self._leave(server)
        self._arm()
        self.tried()

    def period_changed(self) -> None:
        """`registerNameServerPeriod` has another value: it counts from now."""
        if not self.closing:
            self._arm()

    def _leave(self, server: NameServerLink) -> None:
        """A name server that is no longer ours learns that, and its link ends."""
        server.leaving = True
        self.timers.alarms.cancel(server.dial)

        def left(answer: Command | None) -> None:
            server.drop("no longer a name server of this broker")
            if server in self._leaving:
                self._leaving.remove(server)

        self._leaving.append(server)
        server.unregister(left)

    def take_order(self) -> None:
        """Have the topics ordered that the first name server of the list which said so holds for ordered.

        One of them speaks for all: two that disagree would change the topics back and forth.
        """
        for server in self.servers:
            if server.ordered is not None:
                self.topics.set_ordered(server.ordered, self.timers.wall)
                return

    # --- the end ---

    def finish(self, then: Then) -> None:
        """Unregister everywhere, then end the links."""
        self.closing = True
        self.timers.alarms.cancel(self.renew)
        for server in self.servers:
            self.timers.alarms.cancel(server.dial)
        connected = [server for server in self.servers if server.connected]
        countdown = _Countdown(len(connected), lambda: self._finished(then))
        for server in connected:
            server.unregister(countdown.answered)
        if not connected:
            self._finished(then)

    def _finished(self, then: Then) -> None:
        for server in [*self.servers, *self._leaving]:
            server.drop("the broker ends")
        then()

    # --- inputs ---

    def server_of(self, link: Link) -> NameServerLink | None:
        for server in [*self.servers, *self._leaving]:
            if server.link is link:
                return server
        return None

    def received(self, server: NameServerLink, data: bytes) -> None:
        link = server.link
        assert link is not None
        for command in link.receive(data):
            if command.is_response:
                waiter = link.answered(command)
                if waiter is not None:
                    waiter(command)
            else:
                link.reply(
                    command,
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    remark=code_not_supported(command.code),
                )
        if link.broken is not None:
            server.drop(str(link.broken))


class _Countdown:
    """Countdown: calls a function once so many calls have ended."""

    def __init__(self, count: int, then: Then | None) -> None:
        self.count = count
        self.then = then

    def one(self) -> None:
        self.count -= 1
        if self.count == 0 and self.then is not None:
            self.then()

    def answered(self, answer: Command | None) -> None:
        self.one()
