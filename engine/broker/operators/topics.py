"""Topics by request: 17, 21, 215, 305, and 18 and 351 of 5.x (docs/protocol/broker.md 2.14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.answers import Confirmations, LongAnswers
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Peer, Refused
from mqproto.engine.broker.operators.cleaning import CleaningRequests
from mqproto.engine.broker.registration.name_servers import Registration
from mqproto.engine.broker.sends.send import check_topic_name
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.tables import topics
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.slices import Steps
from mqproto.wire.bodies import TopicConfig, TopicConfigList, TopicFilterType, TopicList
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.flags import PERM_INHERIT, PERM_PRIORITY, PERM_READ_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUB
from mqproto.wire.headers import CreateTopicRequest, DeleteTopicRequest, GetTopicConfigRequest
from mqproto.wire.names import SYSTEM_TOPICS

#: Queues of one topic. Apache has no limit, but every queue that is used takes a file.
QUEUES_MAX: Final = 65_536
_PERM_MAX: Final = PERM_READ_WRITE | PERM_INHERIT | PERM_PRIORITY
_SYS_FLAG_MAX: Final = TOPIC_UNIT | TOPIC_UNIT_SUB


class TopicRequests:
    """Requests to change the table of topics and to list it."""

    def __init__(
        self,
        clock: Clock,
        topics: TopicConfigs,
        statistics: Statistics,
        confirmations: Confirmations,
        answers: LongAnswers,
        registration: Registration,
        cleaning: CleaningRequests,
    ) -> None:
        self.clock = clock
        self.topics = topics
        self.statistics = statistics
        self.confirmations = confirmations
        self.answers = answers
        self.registration = registration
        self.cleaning = cleaning

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.on_update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.on_update_list,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.on_all,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.on_delete,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.on_system_topics,
            RequestCode.GET_TOPIC_CONFIG: self.on_one,
        }

    # --- changes ---

    def on_update(self, link: Peer, request: Command) -> None:
        """Make or change a topic; answered once it is saved and the name servers know (or cannot be asked)."""
        header = CreateTopicRequest.decode(request.fields)
        if header.topic_filter_type not in TopicFilterType.__members__:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid")
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
        )
        known = self.topics.find(header.topic)
        if known is not None:  # the request has no way to say what newer releases keep of a topic
            config.attributes, config.unknown = known.attributes, known.unknown
        self._update(link, request, [config])

    def on_update_list(self, link: Peer, request: Command) -> None:
        """The same for several: all of them, or none if one cannot be."""
        self._update(link, request, TopicConfigList.from_json(request.body).topics)

    def _update(self, link: Peer, request: Command, configs: Sequence[TopicConfig]) -> None:
        known = self.topics.table
        for config in configs:
            check_topic_name(config.name)
            self._refuse_system(config.name)
            _check_numbers(config)
        if len(known) + len({config.name for config in configs} - known.keys()) > topics.TOPICS_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker keeps no more topics")
        for config in configs:
            before = known.get(config.name)
            config.order = before is not None and before.order  # said by the name servers alone
            self.topics.put(config, self.clock.wall)
        self.registration.announce(lambda: self.confirmations.confirm(link, request))

    def on_delete(self, link: Peer, request: Command) -> None:
        """Forget a topic, its queues and what groups have consumed of it.

        Name servers keep it until they are told themselves (216).
        """
        topic = DeleteTopicRequest.decode(request.fields).topic
        check_topic_name(topic)
        self._refuse_system(topic)
        self.cleaning.start(self._delete(topic), lambda: self.confirmations.confirm(link, request))

    def _delete(self, topic: str) -> Steps[None]:
        config = self.topics.find(topic)
        self.topics.delete(topic, self.clock.wall)
        self.statistics.forget_topic(topic)
        yield from self.cleaning.deleted(topic, 0 if config is None else max(config.read_queues, config.write_queues))

    def _refuse_system(self, topic: str) -> None:
        if self.topics.is_system(topic):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")

    # --- looking ---

    def on_all(self, link: Peer, request: Command) -> None:
        self.answers.reply(link, request, self.topics.as_body())

    def on_one(self, link: Peer, request: Command) -> None:
        """One topic, for tools of 5.x."""
        topic = GetTopicConfigRequest.decode(request.fields).topic
        config = self.topics.find(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        link.reply(request, ResponseCode.SUCCESS, body=config.to_json())

    def on_system_topics(self, link: Peer, request: Command) -> None:
        link.reply(
            request, ResponseCode.SUCCESS, body=TopicList(sorted(self.topics.built_in | SYSTEM_TOPICS)).to_json()
        )


def _check_numbers(config: TopicConfig) -> None:
    """Raises Refused for numbers that no topic has."""
    for name, number, limit in (
        ("readQueueNums", config.read_queues, QUEUES_MAX),
        ("writeQueueNums", config.write_queues, QUEUES_MAX),
        ("perm", config.perm, _PERM_MAX),
        ("topicSysFlag", config.sys_flag, _SYS_FLAG_MAX),
    ):
        if not 0 <= number <= limit:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{name} = [{number}] value invalid")
