"""Topics and subscription groups by request: 17, 21, 215, 305, and 200, 201, 207 (broker.md 2.14, 2.15)."""

from __future__ import annotations

from engine.broker.core import SUCCESS, SYSTEM_ERROR, ClientLink, Core, Handlers, Refused
from engine.broker.pull import Pulling
from engine.broker.registration import Registration
from engine.broker.send import check_topic_name
from engine.store import Queue
from mqproto.bodies import GroupConfig, TopicConfig, TopicFilterType, TopicList
from mqproto.codec import ONEWAY_FLAG, Command, encode_response
from mqproto.headers import CreateTopicRequest, DeleteSubscriptionGroupRequest, DeleteTopicRequest
from mqproto.names import SCHEDULE_TOPIC

#: Queues of one topic. Apache has no limit, but every queue that is used takes a file.
QUEUES_MAX = 65_536


class TopicAdmin:
    """Changes the tables of topics and groups, and shows them."""

    def __init__(self, core: Core, registration: Registration, pulling: Pulling) -> None:
        self.core = core
        self.registration = registration
        self.pulling = pulling

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
        }

    def on_update_topic(self, link: ClientLink, request: Command) -> None:
        """Make or change a topic; answered once it is saved and the name servers know (or cannot be asked)."""
        header = CreateTopicRequest.decode(request.fields)
        core = self.core
        check_topic_name(header.topic)
        self._refuse_system(header.topic)
        if header.topic_filter_type not in TopicFilterType.__members__:
            raise Refused(SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid")
        for name, count in (("readQueueNums", header.read_queue_nums), ("writeQueueNums", header.write_queue_nums)):
            if not 0 <= count <= QUEUES_MAX:
                raise Refused(SYSTEM_ERROR, f"{name} = [{count}] value invalid")
        known = core.topics.find(header.topic)
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

    def on_system_topics(self, link: ClientLink, request: Command) -> None:
        link.reply(request, SUCCESS, body=TopicList(sorted(self.core.topics.built_in)).to_json())

    def on_delete_topic(self, link: ClientLink, request: Command) -> None:
        """Forget a topic and its queues. Name servers keep it until they are told themselves (216)."""
        topic = DeleteTopicRequest.decode(request.fields).topic
        core = self.core
        check_topic_name(topic)
        self._refuse_system(topic)
        core.topics.delete(topic, core.wall)
        core.statistics.forget_topic(topic)
        for queue in core.store.delete_queues(self._unwanted):
            self.pulling.abandon(queue)
        self._confirm(link, request)

    def _unwanted(self, queue: Queue) -> bool:
        """Queues of topics that nobody knows. Those of the system have no other owner and stay."""
        topics = self.core.topics
        return topics.find(queue.topic) is None and not topics.is_system(queue.topic) and queue.topic != SCHEDULE_TOPIC

    def _refuse_system(self, topic: str) -> None:
        if self.core.topics.is_system(topic):
            raise Refused(SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")

    def on_update_group(self, link: ClientLink, request: Command) -> None:
        config = GroupConfig.from_json(request.body)
        if not config.name:
            raise Refused(SYSTEM_ERROR, "groupName is missing")
        self.core.group_settings.put(config, self.core.wall)
        self._confirm(link, request)

    def on_groups(self, link: ClientLink, request: Command) -> None:
        self.core.long.reply(link, request, self.core.group_settings.as_body())

    def on_delete_group(self, link: ClientLink, request: Command) -> None:
        header = DeleteSubscriptionGroupRequest.decode(request.fields)
        core = self.core
        core.group_settings.delete(header.group_name, core.wall)
        core.statistics.forget_group(header.group_name)
        if header.remove_offset:
            core.offsets.forget_group(header.group_name)
        self._confirm(link, request)
