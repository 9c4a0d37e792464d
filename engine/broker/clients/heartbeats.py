"""Heartbeats of clients 34, their unregistration 35, members 38, subscription checks 46, connections 203, 204, 328.

Owns: who is notified of a change (40), when a silent member is dropped (docs/protocol/broker.md 2.7, 2.18, 3).
Leaves to others: the tables (`mqproto.engine.broker.core.client_registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import ClientRegistry, Departed, Member
from mqproto.engine.broker.core.core import ClientLink, Handlers
from mqproto.engine.broker.filters.consumer_filters import FilterTable
from mqproto.engine.broker.filters.message_filters import is_tag_type, not_supported
from mqproto.engine.broker.interfaces.answers import LongAnswers
from mqproto.engine.broker.interfaces.clock import Notices, Timers
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import joined
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import (
    CheckClient,
    ClientConnection,
    ConsumerConnection,
    ConsumerData,
    ConsumerIds,
    HeartbeatData,
    ProducerConnection,
    ProducerInfo,
)
from mqproto.wire.codes import Language, RequestCode, ResponseCode
from mqproto.wire.fastjson import dumps
from mqproto.wire.filters.tags import InvalidExpressionError
from mqproto.wire.flags import PERM_READ_WRITE, TOPIC_UNIT_SUB
from mqproto.wire.headers import (
    GetConsumerConnectionListRequest,
    GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest,
    UnregisterClientRequest,
)
from mqproto.wire.names import retry_topic

_LANGUAGES: Final = {int(language): language for language in Language}


class ClientRequests:
    """Requests by which clients come and go, and the notices to the other members of their groups."""

    def __init__(
        self,
        timers: Timers,
        notices: Notices,
        settings: BrokerSettings,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        filters: FilterTable,
        client_registry: ClientRegistry,
        answers: LongAnswers,
        end_link: Callable[[ClientLink, str], None],
    ) -> None:
        self.timers = timers
        self.notices = notices
        self.settings = settings
        self.topics = topics
        self.groups = groups
        self.filters = filters
        self.client_registry = client_registry
        self.answers = answers
        self.end_link = end_link

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.HEART_BEAT: self.on_heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.on_unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.on_members,
            RequestCode.CHECK_CLIENT_CONFIG: self.on_check,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.on_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.on_producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.on_all_producers,
        }

    def on_heartbeat(self, link: ClientLink, request: Command) -> None:
        heartbeat = HeartbeatData.from_json(request.body)
        if not heartbeat.client_id:
            raise Refused(ResponseCode.SYSTEM_ERROR, "heartbeat without clientID")
        for consumer in heartbeat.consumers:
            _check(consumer)
        for consumer in heartbeat.consumers:
            self._consumer(link, request, heartbeat.client_id, consumer)
        for group in heartbeat.producers:
            if group:
                self.client_registry.producer_seen(
                    group, link, heartbeat.client_id, request.language, request.version, self.timers.now
                )
        self._arm()
        link.reply(request, ResponseCode.SUCCESS)

    def _consumer(self, link: ClientLink, request: Command, client_id: str, consumer: ConsumerData) -> None:
        settings = self.groups.find(consumer.group, self.timers.wall)
        if settings is not None and settings.retry_queues > 0:
            flag = TOPIC_UNIT_SUB if consumer.unit_mode else 0
            self.topics.create(
                retry_topic(consumer.group), settings.retry_queues, PERM_READ_WRITE, flag, self.timers.wall
            )
        registered = self.client_registry.consumer_seen(
            consumer, link, client_id, request.language, request.version, self.timers.now
        )
        if registered.renewed or registered.dropped:
            self.filters.subscribed(consumer.group, registered.renewed, registered.dropped)
        if registered.dispute is not None:
            dispute = registered.dispute
            self.notices.notice(
                f"group {dispute.group}: clients {dispute.former} and {dispute.latter} subscribe differently to "
                f"{', '.join(dispute.topics)}; the later one wins"
            )
        if registered.changed and (settings is None or settings.notify_consumer_ids_changed_enable):
            self.notify([consumer.group])

    def on_unregister(self, link: ClientLink, request: Command) -> None:
        header = UnregisterClientRequest.decode(request.fields)
        if header.producer_group:
            self.client_registry.producer_left(header.producer_group, link)
        if header.consumer_group and self.client_registry.consumer_left(header.consumer_group, link):
            self._left([header.consumer_group])
            settings = self.groups.table.get(header.consumer_group)
            if settings is None or settings.notify_consumer_ids_changed_enable:
                self.notify([header.consumer_group])
        link.reply(request, ResponseCode.SUCCESS)

    def on_members(self, link: ClientLink, request: Command) -> None:
        group = GetConsumerListByGroupRequest.decode(request.fields).consumer_group
        members = self.client_registry.consumers.get(group)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        link.reply(request, ResponseCode.SUCCESS, body=ConsumerIds(members.client_ids()).to_json())

    def on_check(self, link: ClientLink, request: Command) -> None:
        """A consumer asks before it starts whether its expression would be taken. Nothing is registered."""
        wanted = CheckClient.from_json(request.body).subscription if request.body else None
        if wanted is not None and not is_tag_type(wanted.type):
            if not self.settings.enable_property_filter:
                raise Refused(ResponseCode.SYSTEM_ERROR, not_supported(wanted.type))
            try:
                self.filters.conditions.compile(wanted.type, wanted.expression)
            except InvalidExpressionError as error:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        link.reply(request, ResponseCode.SUCCESS)

    def on_consumers(self, link: ClientLink, request: Command) -> None:
        name = GetConsumerConnectionListRequest.decode(request.fields).consumer_group
        group = self.client_registry.consumers.get(name)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        connections = ConsumerConnection(
            _connections(group.members),
            dict(group.subscriptions),
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        link.reply(request, ResponseCode.SUCCESS, body=connections.to_json())

    def on_producers(self, link: ClientLink, request: Command) -> None:
        name = GetProducerConnectionListRequest.decode(request.fields).producer_group
        members = self.client_registry.producers.get(name)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        link.reply(request, ResponseCode.SUCCESS, body=ProducerConnection(_connections(members)).to_json())

    def on_all_producers(self, link: ClientLink, request: Command) -> None:
        pieces = self._producer_pieces()
        self.answers.answer(
            link, request, joined(pieces), lambda body: link.reply(request, ResponseCode.SUCCESS, body=body)
        )

    def _producer_pieces(self) -> Iterator[str]:
        """The text of a `ProducerTable`, member by member: one group has a member on each link of a Java client."""
        wall_ahead = self.timers.wall - self.timers.now
        comma = '{"data":{'
        for group, members in list(self.client_registry.producers.items()):
            yield f"{comma}{dumps(group)}:["
            comma = "],"
            for count, (link, member) in enumerate(list(members.items())):
                info = ProducerInfo(
                    member.client_id,
                    f"/{link.address}",  # as Java writes an address, and mqadmin prints it
                    _LANGUAGES.get(member.language),
                    member.version,
                    member.last_seen + wall_ahead,
                )
                yield f"{',' if count else ''}{dumps(info.to_value())}"
        yield '{"data":{}}' if comma[0] == "{" else "]}}"

    # --- leaving without a request ---

    def link_over(self, link: ClientLink) -> None:
        """A client's link is over: the other members of its groups take over."""
        self._departed(self.client_registry.gone(link))

    def sweep(self) -> None:
        """Alarm: drop members that were silent for too long, and close links that nobody uses any more
        (docs/protocol/broker.md 3.3).
        """
        departed = self.client_registry.expired(self.timers.now)
        for link in departed.links:
            if isinstance(link, ClientLink):
                self.end_link(link, "no heartbeat")
        self._departed(departed)
        self._arm()

    def _departed(self, departed: Departed) -> None:
        self._left(departed.consumer_groups)
        self.notify(departed.consumer_groups)

    def _left(self, groups: Iterable[str]) -> None:
        """Members of groups are gone: what groups without any wanted is forgotten some time later."""
        for group in groups:
            if group not in self.client_registry.consumers:
                self.filters.group_gone(group)

    def _arm(self) -> None:
        due = self.client_registry.next_deadline()
        if due is not None and self.sweep not in self.timers.alarms:
            self.timers.alarms.set(self.sweep, due)

    def notify(self, groups: Iterable[str]) -> None:
        """Notify all members of groups that a member came or went, so that they allocate the queues anew."""
        if not self.settings.notify_consumer_ids_changed_enable:
            return
        for group in groups:
            for link in self.client_registry.members(group):
                if isinstance(link, ClientLink) and not link.ended:
                    link.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})


def _check(consumer: ConsumerData) -> None:
    """Raises Refused for a consumer that says what we do not know: better no member than a wrong one (COD-10)."""
    for member, value in (
        ("groupName", consumer.group),
        ("consumeType", consumer.consume_type),
        ("messageModel", consumer.message_model),
        ("consumeFromWhere", consumer.consume_from_where),
    ):
        if not value:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"heartbeat of consumer group {consumer.group!r}: {member} is missing or unknown",
            )


def _connections(members: Mapping[Link, Member]) -> list[ClientConnection]:
    return [
        ClientConnection(member.client_id, link.address, _LANGUAGES.get(member.language), member.version)
        for link, member in members.items()
    ]
