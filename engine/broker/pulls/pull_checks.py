"""Checks that a pull must pass before anything is read for it (docs/protocol/broker.md 2.4, steps 1 to 8).

Owns: the checks in Apache's order with its codes, which filter applies.
Leaves to others: what filters do (`message_filters`), what groups subscribed (`client_registry`, `consumer_filters`).
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.filters.consumer_filters import FilterTable
from mqproto.engine.broker.filters.message_filters import (
    EVERYTHING,
    Filter,
    SqlFilter,
    TagFilters,
    is_tag_type,
    not_supported,
)
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.remarks import FAQ
from mqproto.engine.settings import BrokerSettings
from mqproto.wire.bodies import GroupConfig, MessageModel
from mqproto.wire.codes import ResponseCode
from mqproto.wire.filters.tags import InvalidExpressionError
from mqproto.wire.flags import PERM_READ, PULL_SUBSCRIPTION
from mqproto.wire.headers import PullMessageRequest
from mqproto.wire.names import RETRY_PREFIX

#: Remark of the code SUBSCRIPTION_PARSE_FAILED.
_UNREADABLE: Final = "parse the consumer's subscription failed"
_NO_FILTER_DATA: Final = "The broker's consumer filter data is not exist!Your expression may be wrong!"


class PullChecks:
    """Checks of pulls."""

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        filters: FilterTable,
        client_registry: ClientRegistry,
        host: str,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.topics = topics
        self.groups = groups
        self.filters = filters
        self.client_registry = client_registry
        self.host = host
        self.tags = TagFilters()

    def check(self, link: Peer, header: PullMessageRequest) -> GroupConfig:
        """Steps 1 to 6: the group's settings. Raises Refused."""
        if not self.settings.broker_permission & PERM_READ:
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{self.host}] pulling message is forbidden")
        group = header.consumer_group
        settings = self.groups.find(group, self.clock.wall)
        if settings is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist, {FAQ}"
            )
        if not settings.consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        topic = header.topic
        config = self.topics.find(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not config.perm & PERM_READ:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < config.read_queues:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queues}] "
                f"consumer:[{link.address}]",
            )
        return settings

    def again(self, link: Peer, header: PullMessageRequest) -> GroupConfig:
        """Both for a pull that has waited: an expression that it brought was read already, and is not kept.

        Raises Refused.
        """
        settings = self.check(link, header)
        if not header.sys_flag & PULL_SUBSCRIPTION:
            self.filter_of(header, settings)
        return settings

    def filter_of(self, header: PullMessageRequest, settings: GroupConfig) -> Filter:
        """Steps 7 and 8: what the pull wants. Raises Refused."""
        try:
            if header.sys_flag & PULL_SUBSCRIPTION:
                wanted = self._carried(header.subscription, header.expression_type)
            else:
                wanted = self._subscribed(header, settings)
        except InvalidExpressionError:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _UNREADABLE) from None
        if self.settings.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            wanted = self.filters.retry_filter(header.topic[len(RETRY_PREFIX) :], wanted.codes)
        return wanted

    def subscribed(self, header: PullMessageRequest) -> tuple[str, str] | None:
        """What the group has subscribed of the topic at this moment, as expression and type; None when nobody has."""
        group = self.client_registry.consumers.get(header.consumer_group)
        subscription = group.subscriptions.get(header.topic) if group is not None else None
        return (subscription.expression, subscription.type) if subscription is not None else None

    def lasting_filter(self, header: PullMessageRequest) -> Filter | None:
        """The filter of a pull that was served, if it can be no other as long as the header is the same."""
        if (
            header.sys_flag & PULL_SUBSCRIPTION
            and is_tag_type(header.expression_type)
            and not header.topic.startswith(RETRY_PREFIX)
        ):
            return self.tags.find(header.subscription)
        return None

    def _carried(self, expression: str | None, kind: str | None) -> Filter:
        """The filter of an expression that came with the pull. Raises InvalidExpressionError and Refused."""
        if is_tag_type(kind):
            return self.tags.find(expression)
        if not expression:
            raise InvalidExpressionError("", "there is none")
        self._check_supported(kind)
        return SqlFilter(self.filters.conditions.compile(kind, expression))

    def _subscribed(self, header: PullMessageRequest, settings: GroupConfig) -> Filter:
        """The filter that the group subscribed by its heartbeat. Raises InvalidExpressionError and Refused."""
        group = self.client_registry.consumers.get(header.consumer_group)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if not settings.consume_broadcast_enable and group.message_model is MessageModel.BROADCASTING:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.version < header.sub_version:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.class_filter:
            return EVERYTHING
        if is_tag_type(subscription.type):
            return self.tags.find(subscription.expression)
        filters = self.filters
        data = filters.find(header.consumer_group, header.topic)
        if data is None:
            raise Refused(ResponseCode.FILTER_DATA_NOT_EXIST, _NO_FILTER_DATA)
        if data.entry.version < header.sub_version:
            raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        self._check_supported(subscription.type)
        try:
            return filters.filter_of(data)
        except InvalidExpressionError:
            raise Refused(ResponseCode.FILTER_DATA_NOT_EXIST, _NO_FILTER_DATA) from None

    def _check_supported(self, kind: str | None) -> None:
        if not self.settings.enable_property_filter:
            raise Refused(ResponseCode.SYSTEM_ERROR, not_supported(kind))
