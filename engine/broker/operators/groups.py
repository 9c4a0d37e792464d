"""Subscription groups by request: 200, 201, 207, and 225 and 352 of 5.x (docs/protocol/broker.md 2.15)."""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.answers import Confirmations, LongAnswers
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.operators.topics import QUEUES_MAX
from mqproto.engine.broker.sends.message_writer import is_true
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.tables import subscription_groups
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.wire.bodies import GroupConfig, GroupConfigList
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import DeleteSubscriptionGroupRequest, GetSubscriptionGroupConfigRequest
from mqproto.wire.names import GROUP_LENGTH_MAX


class GroupRequests:
    """Requests to change the table of groups and to list it."""

    def __init__(
        self,
        clock: Clock,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        statistics: Statistics,
        confirmations: Confirmations,
        answers: LongAnswers,
    ) -> None:
        self.clock = clock
        self.groups = groups
        self.offsets = offsets
        self.statistics = statistics
        self.confirmations = confirmations
        self.answers = answers

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.on_update,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.on_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.on_delete,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.on_update_list,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.on_one,
        }

    def on_update(self, link: Peer, request: Command) -> None:
        """Make or change a group; what the request leaves out gets its default (docs/protocol/broker.md 2.15)."""
        self._update(link, request, [GroupConfig.from_json(request.body)])

    def on_update_list(self, link: Peer, request: Command) -> None:
        """The same for several: all of them, or none if one cannot be."""
        self._update(link, request, GroupConfigList.from_json(request.body).groups)

    def _update(self, link: Peer, request: Command, configs: list[GroupConfig]) -> None:
        known = self.groups.table
        for config in configs:
            if not subscription_groups.legal_group(config.name):
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"groupName = [{config.name[:GROUP_LENGTH_MAX]}] value invalid"
                )
            if not 0 <= config.retry_queues <= QUEUES_MAX:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"retryQueueNums = [{config.retry_queues}] value invalid")
        if len(known) + len({config.name for config in configs} - known.keys()) > subscription_groups.GROUPS_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker keeps no more groups")
        for config in configs:
            self.groups.put(config, self.clock.wall)
        self.confirmations.confirm(link, request)

    def on_all(self, link: Peer, request: Command) -> None:
        self.answers.reply(link, request, self.groups.as_body())

    def on_one(self, link: Peer, request: Command) -> None:
        """One group, for tools of 5.x."""
        group = GetSubscriptionGroupConfigRequest.decode(request.fields).group
        config = self.groups.table.get(group)
        if config is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {group}")
        link.reply(request, ResponseCode.SUCCESS, body=config.to_json())

    def on_delete(self, link: Peer, request: Command) -> None:
        """Forget a group, and what it has committed if the request says so."""
        header = DeleteSubscriptionGroupRequest.decode(request.fields)
        self.groups.delete(header.group_name, self.clock.wall)
        self.statistics.forget_group(header.group_name)
        if header.remove_offset or is_true(request.fields.get("cleanOffset", "")):  # the name that 5.x has for it
            self.offsets.forget_group(header.group_name)
        self.confirmations.confirm(link, request)
