"""Topics and subscription groups by request: 17, 21, 215, 305, 351, and 200, 201, 207, 352 (broker.md 2.14, 2.15)."""

from __future__ import annotations

from typing import Final

from engine.broker import tables
from engine.broker.cleaning import Cleaning
from engine.broker.core import GROUP_NOT_EXIST, SUCCESS, SYSTEM_ERROR, TOPIC_NOT_EXIST, ClientLink, Core, Handlers, Refused
from engine.broker.registration import Registration
from engine.broker.send import check_topic_name
from engine.broker.stored import is_true
from engine.broker.tables import legal_group
from engine.longwork import Steps
from mqproto.bodies import GroupConfig, TopicConfig, TopicFilterType, TopicList
from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.flags import PERM_INHERIT, PERM_PRIORITY, PERM_READ_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUB
from mqproto.headers import (
    CreateTopicRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicRequest,
    GetSubscriptionGroupConfigRequest,
    GetTopicConfigRequest,
)
from mqproto.names import GROUP_LENGTH_MAX

#: Queues of one topic. Apache has no limit, but every queue that is used takes a file.
QUEUES_MAX: Final = 65_536
_PERM_MAX: Final = PERM_READ_WRITE | PERM_INHERIT | PERM_PRIORITY
_SYS_FLAG_MAX: Final = TOPIC_UNIT | TOPIC_UNIT_SUB


class TopicAdmin:
    """Changes the tables of topics and groups, and shows them."""

    def __init__(self, core: Core, registration: Registration, cleaning: Cleaning) -> None:
        self.core = core
        self.registration = registration
        self.cleaning = cleaning

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (broker.md 2.0)."""
        return {
            17: self.on_update_topic,
            21: self.on_topics,
            200: self.on_update_group,
            201: self.on_groups,
            207: self.on_delete_group,
            215: self.on_delete_topic,
            305: self.on_system_topics,
            351: self.on_topic,
            352: self.on_group,
        }

    def on_update_topic(self, link: ClientLink, request: Command) -> None:
        """Make or change a topic; answered once it is saved and the name servers know (or cannot be asked)."""
        header = CreateTopicRequest.decode(request.fields)
        core = self.core
        check_topic_name(header.topic)
        self._refuse_system(header.topic)
        if header.topic_filter_type not in TopicFilterType.__members__:
            raise Refused(SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid")
        for name, number, limit in (
            ("readQueueNums", header.read_queue_nums, QUEUES_MAX),
            ("writeQueueNums", header.write_queue_nums, QUEUES_MAX),
            ("perm", header.perm, _PERM_MAX),
            ("topicSysFlag", header.topic_sys_flag or 0, _SYS_FLAG_MAX),
        ):
            if not 0 <= number <= limit:
                raise Refused(SYSTEM_ERROR, f"{name} = [{number}] value invalid")
        known = core.topics.find(header.topic)
        if known is None and len(core.topics.table) >= tables.TOPICS_MAX:
            raise Refused(SYSTEM_ERROR, "this broker keeps no more topics")
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            order=known is not None and known.order,  # said by the name servers alone
        )
        core.topics.put(config, core.wall)
        self.registration.announce(lambda: self._confirm(link, request))

    def _confirm(self, link: ClientLink, request: Command) -> None:
        """Say that a change of a table was made, once it is saved."""
        if not request.flag & ONEWAY_FLAG:
            answer = encode_response(request.opaque, SUCCESS, serialize_type=request.serialize_type)
            self.core.acknowledgements.confirm(link, answer)

    def on_topics(self, link: ClientLink, request: Command) -> None:
        self.core.long.reply(link, request, self.core.topics.as_body())

    def on_topic(self, link: ClientLink, request: Command) -> None:
        """One topic, for tools of 5.x."""
        topic = GetTopicConfigRequest.decode(request.fields).topic
        config = self.core.topics.find(topic)
        if config is None:
            raise Refused(TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        link.reply(request, SUCCESS, body=config.to_json())

    def on_system_topics(self, link: ClientLink, request: Command) -> None:
        link.reply(request, SUCCESS, body=TopicList(sorted(self.core.topics.built_in)).to_json())

    def on_delete_topic(self, link: ClientLink, request: Command) -> None:
        """Forget a topic, its queues and what groups have consumed of it. Name servers keep it until they are told themselves (216)."""
        topic = DeleteTopicRequest.decode(request.fields).topic
        check_topic_name(topic)
        self._refuse_system(topic)
        self.cleaning.start(self._delete(topic), lambda: self._confirm(link, request))

    def _delete(self, topic: str) -> Steps[None]:
        core = self.core
        config = core.topics.find(topic)
        core.topics.delete(topic, core.wall)
        core.statistics.forget_topic(topic)
        yield from self.cleaning.deleted(topic, 0 if config is None else max(config.read_queues, config.write_queues))

    def _refuse_system(self, topic: str) -> None:
        if self.core.topics.is_system(topic):
            raise Refused(SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")

    def on_update_group(self, link: ClientLink, request: Command) -> None:
        config = GroupConfig.from_json(request.body)
        core = self.core
        if not legal_group(config.name):
            raise Refused(SYSTEM_ERROR, f"groupName = [{config.name[:GROUP_LENGTH_MAX]}] value invalid")
        if not 0 <= config.retry_queues <= QUEUES_MAX:
            raise Refused(SYSTEM_ERROR, f"retryQueueNums = [{config.retry_queues}] value invalid")
        if config.name not in core.group_settings.table and len(core.group_settings.table) >= tables.GROUPS_MAX:
            raise Refused(SYSTEM_ERROR, "this broker keeps no more groups")
        core.group_settings.put(config, core.wall)
        self._confirm(link, request)

    def on_groups(self, link: ClientLink, request: Command) -> None:
        self.core.long.reply(link, request, self.core.group_settings.as_body())

    def on_group(self, link: ClientLink, request: Command) -> None:
        """One group, for tools of 5.x."""
        group = GetSubscriptionGroupConfigRequest.decode(request.fields).group
        config = self.core.group_settings.table.get(group)
        if config is None:
            raise Refused(GROUP_NOT_EXIST, f"No group in this broker. group: {group}")
        link.reply(request, SUCCESS, body=config.to_json())

    def on_delete_group(self, link: ClientLink, request: Command) -> None:
        header = DeleteSubscriptionGroupRequest.decode(request.fields)
        core = self.core
        core.group_settings.delete(header.group_name, core.wall)
        core.statistics.forget_group(header.group_name)
        if header.remove_offset or is_true(request.fields.get("cleanOffset", "")):  # the name that 5.x has for it
            core.offsets.forget_group(header.group_name)
        self._confirm(link, request)
