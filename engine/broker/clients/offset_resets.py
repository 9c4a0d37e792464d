"""Resets of offsets, INVOKE_BROKER_TO_RESET_OFFSET 222: a group goes on from another offset, which its clients hear by
220 (docs/protocol/broker.md 2.19).

Owns: which offset of a queue belongs to a time, which clients are notified, in which form.
Leaves to others: commits: the clients go to the new offset and commit it.

Requests of 5.x may name one queue, and an offset instead of a time. Such a reset is also made in the broker's own
table, so that it needs nobody online.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.clients.client_calls import refuse_old
from mqproto.engine.broker.core.client_registry import ClientRegistry, Member
from mqproto.engine.broker.core.core import ClientLink, Handlers
from mqproto.engine.broker.interfaces.answers import DiskReads, LongAnswers
from mqproto.engine.broker.interfaces.clock import Notices
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Peer, Refused
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import Steps
from mqproto.engine.store import Queue, Reader, Store
from mqproto.message import MessageQueue
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT
from mqproto.wire.bodies import ResetOffsets, TopicConfig
from mqproto.wire.codes import Language, RequestCode, ResponseCode
from mqproto.wire.fastjson import dumps
from mqproto.wire.headers import ResetOffsetRequest, ResetOneQueueFields

#: Stands for the end of the queue.
_END: Final = -1
#: Clients that are notified in one slice: about a millisecond.
_CLIENTS_OF_A_SLICE: Final = 100


class OffsetResetRequests:
    """Requests that send groups to other offsets."""

    def __init__(
        self,
        notices: Notices,
        settings: BrokerSettings,
        store: Store,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        client_registry: ClientRegistry,
        reads: DiskReads,
        answers: LongAnswers,
    ) -> None:
        self.notices = notices
        self.settings = settings
        self.store = store
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.client_registry = client_registry
        self.reads = reads
        self.answers = answers

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.on_reset,
        }

    def on_reset(self, link: Peer, request: Command) -> None:
        header = ResetOffsetRequest.decode(request.fields)
        place = ResetOneQueueFields.decode(request.fields)
        config = self.topics.find(header.topic)
        if config is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        if header.timestamp < _END:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"timestamp = [{header.timestamp}] value invalid")
        if place.queue_id >= 0:
            self._one_queue(link, request, header, place, config)
        else:
            self._all_queues(link, request, header, config)

    # --- 4.x ---

    def _all_queues(self, link: Peer, request: Command, header: ResetOffsetRequest, config: TopicConfig) -> None:
        """By time, for all queues that are written. The offsets of the answer are those that the clients were told."""
        committed = self.offsets.of(header.group, header.topic)
        ids = range(config.write_queues)
        if not any(queue_id in committed for queue_id in ids):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        self._online(header)

        def then(targets: list[int]) -> None:
            offsets = {}
            for queue_id, target in zip(ids, targets, strict=True):
                stored = committed.get(queue_id, -1)
                value = target if header.is_force or stored < 0 or target < stored else stored
                offsets[MessageQueue(header.topic, self.settings.broker_name, queue_id)] = value
            self._tell(link, request, header, offsets, self._online(header))

        self._find(link, request, header, ids, then)

    def _online(self, header: ResetOffsetRequest) -> list[Member]:
        """The members of the group.

        Raises Refused when there are none, or one that is too old; then nobody was told anything.
        """
        members = list(self.client_registry.members(header.group).values())
        if not members:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        refuse_old(members)
        return members

    # --- 5.x ---

    def _one_queue(
        self,
        link: Peer,
        request: Command,
        header: ResetOffsetRequest,
        place: ResetOneQueueFields,
        config: TopicConfig,
    ) -> None:
        """One queue, by time or to an offset; committed here, and told to whoever is online."""
        queue_id = place.queue_id
        if queue_id >= max(config.write_queues, config.read_queues):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"queueId[{queue_id}] is illegal, topic:[{header.topic}]")
        if header.group not in self.groups.table:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        refuse_old(self.client_registry.members(header.group).values())

        def then(targets: list[int]) -> None:
            if not self.offsets.commit(header.group, header.topic, queue_id, targets[0]):
                raise Refused(ResponseCode.SYSTEM_ERROR, "this broker keeps no more offsets")
            offsets = {MessageQueue(header.topic, self.settings.broker_name, queue_id): targets[0]}
            self._tell(link, request, header, offsets, list(self.client_registry.members(header.group).values()))

        if place.offset is None or place.offset == _END:
            self._find(link, request, header, range(queue_id, queue_id + 1), then)
            return
        queue = self.store.find_queue(header.topic, queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        if not low <= place.offset <= high:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"Target offset {place.offset} not in consume queue range [{low}-{high}]"
            )
        then([place.offset])

    # --- both ---

    def _find(
        self,
        link: Peer,
        request: Command,
        header: ResetOffsetRequest,
        ids: range,
        then: Callable[[list[int]], None],
    ) -> None:
        """The offsets in some queues that belong to the time of the request."""
        queues = [self.store.find_queue(header.topic, queue_id) for queue_id in ids]
        if header.timestamp == _END:
            then([0 if queue is None else queue.max_offset for queue in queues])
            return

        def read(reader: Reader, part: Sequence[Queue]) -> list[int]:
            return [reader.offset_by_time(queue, header.timestamp) for queue in part]

        def found(offsets: list[int]) -> None:
            rest = iter(offsets)
            then([0 if queue is None else next(rest) for queue in queues])

        self.reads.across(link, request, [queue for queue in queues if queue is not None], read, found)

    def _tell(
        self,
        link: Peer,
        request: Command,
        header: ResetOffsetRequest,
        offsets: dict[MessageQueue, int],
        members: Sequence[Member],
    ) -> None:
        """Tell the clients, then the operator. Raises Refused; then nobody was told."""
        body = ResetOffsets(offsets)
        steps = self._tell_all(header, body, members, by_cpp=request.language == Language.CPP)

        def told(_: None) -> None:
            try:
                self.answers.reply(link, request, body)
            except Refused as refused:
                link.reply(request, refused.code, remark=refused.remark)

        if not self.answers.run(self, steps, told):
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)

    def _tell_all(
        self, header: ResetOffsetRequest, body: ResetOffsets, members: Sequence[Member], by_cpp: bool
    ) -> Steps[None]:
        """Tell each client in the form that it can read: Java's is a mystery to C++, and the other way round."""
        fields = ResetOffsetRequest(header.topic, header.group, header.timestamp).encode()
        forms = (body.to_json(), dumps(body.to_list_value()).encode("utf-8", "replace"))
        for count, member in enumerate(members, 1):
            link = member.link
            if isinstance(link, ClientLink) and not link.ended:
                as_list = member.language == Language.CPP or (by_cpp and member.language != Language.JAVA)
                if link.unsent > SERVER_UNSENT_LIMIT:
                    self.notices.notice(
                        f"{member.client_id} takes nothing from its link and was not told of the "
                        f"reset of {header.group}"
                    )
                else:
                    link.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, forms[as_list])
            if count % _CLIENTS_OF_A_SLICE == 0:
                yield
