"""Subscription groups by request: 200, 201, 207, and 225 and 352 of 5.x (docs/protocol/broker.md 2.15)."""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.core.core import GROUP_NOT_EXIST, SUCCESS, SYSTEM_ERROR, ClientLink, Core, Handlers, Refused
from mqproto.engine.broker.operators.topics import QUEUES_MAX
from mqproto.engine.broker.sends.message_writer import is_true
from mqproto.engine.broker.tables import subscription_groups
from mqproto.wire.bodies import GroupConfig, GroupConfigList
from mqproto.wire.headers import DeleteSubscriptionGroupRequest, GetSubscriptionGroupConfigRequest
from mqproto.wire.names import GROUP_LENGTH_MAX


class GroupRequests:
    """Changes the table of groups, and shows it."""

    def __init__(self, core: Core) -> None:
        self.core = core

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            200: self.on_update,
            201: self.on_all,
            207: self.on_delete,
            225: self.on_update_list,
            352: self.on_one,
        }

    def on_update(self, link: ClientLink, request: Command) -> None:
        """Make or change a group; what the request leaves out gets its default (docs/protocol/broker.md 2.15)."""
        self._update(link, request, [GroupConfig.from_json(request.body)])

    def on_update_list(self, link: ClientLink, request: Command) -> None:
        """The same for several: all of them, or none if one cannot be."""
        self._update(link, request, GroupConfigList.from_json(request.body).groups)

    def _update(self, link: ClientLink, request: Command, configs: list[GroupConfig]) -> None:
        core = self.core
        known = core.subscription_groups.table
        for config in configs:
            if not subscription_groups.legal_group(config.name):
                raise Refused(SYSTEM_ERROR, f"groupName = [{config.name[:GROUP_LENGTH_MAX]}] value invalid")
            if not 0 <= config.retry_queues <= QUEUES_MAX:
                raise Refused(SYSTEM_ERROR, f"retryQueueNums = [{config.retry_queues}] value invalid")
        if len(known) + len({config.name for config in configs} - known.keys()) > subscription_groups.GROUPS_MAX:
            raise Refused(SYSTEM_ERROR, "this broker keeps no more groups")
        for config in configs:
            core.subscription_groups.put(config, core.wall)
        core.pending_acks.confirm(link, request)

    def on_all(self, link: ClientLink, request: Command) -> None:
        self.core.sliced_answers.reply(link, request, self.core.subscription_groups.as_body())

    def on_one(self, link: ClientLink, request: Command) -> None:
        """One group, for tools of 5.x."""
        group = GetSubscriptionGroupConfigRequest.decode(request.fields).group
        config = self.core.subscription_groups.table.get(group)
        if config is None:
            raise Refused(GROUP_NOT_EXIST, f"No group in this broker. group: {group}")
        link.reply(request, SUCCESS, body=config.to_json())

    def on_delete(self, link: ClientLink, request: Command) -> None:
        """Forget a group, and what it has committed if the request says so."""
        header = DeleteSubscriptionGroupRequest.decode(request.fields)
        core = self.core
        core.subscription_groups.delete(header.group_name, core.wall)
        core.statistics.forget_group(header.group_name)
        if header.remove_offset or is_true(request.fields.get("cleanOffset", "")):  # the name that 5.x has for it
            core.offsets.forget_group(header.group_name)
        core.pending_acks.confirm(link, request)
