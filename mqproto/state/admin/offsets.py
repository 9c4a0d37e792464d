"""Offsets of queues and of groups: looking them up, and sending groups to other places (docs/protocol/admin.md 2.3, 4;
docs/protocol/client.md 1.10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqproto.errors import ClientError, MQError, NoClients, NoRoute, PartlyFailed, PlaceFailure
from mqproto.message import MessageQueue
from mqproto.state.admin.calls import AdminCalls, queue_fields
from mqproto.state.cluster.routes import readable_queues
from mqproto.state.flows.effects import Flow
from mqproto.validation import check_consumer_group, check_given, check_group
from mqproto.wire.bodies import ConsumerStatus, ConsumeStats, ConsumeTimeSpans, QueueTimeSpan, ResetOffsets, TopicStats
from mqproto.wire.bodies.routes import MASTER_ID
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import (
    GetConsumerStatusRequest,
    GetConsumeStatsRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetResponse,
    GetMinOffsetResponse,
    QueryConsumerOffsetResponse,
    QueryConsumeTimeSpanRequest,
    ResetOffsetRequest,
    SearchOffsetResponse,
)
from mqproto.wire.names import RETRY_PREFIX

#: Stands for the end of a queue in requests to reset offsets.
_END: Final = -1


@dataclass(frozen=True, slots=True)
class Reset:
    """Offsets that a group was sent to: the next one of each queue, in queue order.

    `told` are the brokers whose members were told; they go to the new places and commit them within seconds. At the
    brokers in `committed` nobody was online, so the offsets were stored there directly.
    """

    group: str
    topic: str
    offsets: dict[MessageQueue, int]
    told: tuple[str, ...]
    committed: tuple[str, ...]


class OffsetFlows:
    """Operations on offsets. All of them raise NoNameServer, BrokerError, ConnectFailed, ConnectionLost and CallExpired
    where servers fail.

    Offsets are asked of masters, and stored there. Raised are InvalidName and NoRoute for topics and brokers that name
    servers do not know.
    """

    __slots__ = ("_calls",)

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    # --- of queues

    def maximum(self, queue: MessageQueue) -> Flow[int]:
        """The offset that the next message of a queue will have."""
        return (yield from self._maximum((yield from self._calls.master(queue)), queue))

    def _maximum(self, address: str, queue: MessageQueue) -> Flow[int]:
        command = yield from self._calls.done(address, RequestCode.GET_MAX_OFFSET, queue_fields(queue))
        return GetMaxOffsetResponse.decode(command.fields).offset

    def minimum(self, queue: MessageQueue) -> Flow[int]:
        """The offset of the oldest message of a queue that is still there."""
        return (yield from self._minimum((yield from self._calls.master(queue)), queue))

    def _minimum(self, address: str, queue: MessageQueue) -> Flow[int]:
        command = yield from self._calls.done(address, RequestCode.GET_MIN_OFFSET, queue_fields(queue))
        return GetMinOffsetResponse.decode(command.fields).offset

    def at_time(self, queue: MessageQueue, time_ms: int) -> Flow[int]:
        """The offset of the first message of a queue that was stored at a wall time (ms) or later.

        When there is none it is the end of the queue; Apache's brokers say the last message then.
        """
        return (yield from self._at_time((yield from self._calls.master(queue)), queue, time_ms))

    def _at_time(self, address: str, queue: MessageQueue, time_ms: int) -> Flow[int]:
        fields = {**queue_fields(queue), "timestamp": str(time_ms)}
        command = yield from self._calls.done(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return SearchOffsetResponse.decode(command.fields).offset

    def earliest_time(self, queue: MessageQueue) -> Flow[int]:
        """When the oldest message of a queue was stored, in wall milliseconds; -1 for an empty one."""
        address = yield from self._calls.master(queue)
        command = yield from self._calls.done(address, RequestCode.GET_EARLIEST_MSG_STORETIME, queue_fields(queue))
        return GetEarliestMsgStoretimeResponse.decode(command.fields).timestamp

    # --- of groups

    def committed(self, group: str, queue: MessageQueue) -> Flow[int | None]:
        """The next offset that a group will consume of a queue; None when its broker has none.

        A broker says 0 instead of none while the first message of the queue is still in memory, because a new group
        would begin there.
        """
        check_given("group", group)
        address = yield from self._calls.master(queue)
        fields = {**queue_fields(queue), "consumerGroup": group}
        command = yield from self._calls.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if command.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if command.code != ResponseCode.SUCCESS:
            raise self._calls.refusal(command, address)
        return QueryConsumerOffsetResponse.decode(command.fields).offset

    def commit(self, group: str, queue: MessageQueue, offset: int) -> Flow[None]:
        """Store the next offset that a group will consume of a queue. Members that are online go on from their own, and
        overwrite it.

        5.x shows where a reset went instead, until a member has followed it.
        """
        check_group(group)
        if offset < 0:
            raise ClientError(f"offset {offset} is negative")
        yield from self._commit((yield from self._calls.master(queue)), group, queue, offset)

    def _commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> Flow[None]:
        fields = {**queue_fields(queue), "consumerGroup": group, "commitOffset": str(offset)}
        yield from self._calls.done(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def reset_by_time(self, group: str, topic: str, time_ms: int | None, *, force: bool = True) -> Flow[Reset]:
        """Send a group to the first messages of a topic that were stored at a wall time (ms) or later; None sends it to
        the ends.

        Without `force` no queue is moved forward. Members that are online are told by their brokers; at a broker where
        nobody is online the offsets are stored directly. Every broker of the topic is asked, also after one has failed:
        PartlyFailed says which.
        """
        check_given("group", group)
        if time_ms is not None and time_ms < 0:
            raise ClientError(f"time {time_ms} is before 1970")
        route = yield from self._calls.route(topic)
        queues = readable_queues(topic, route)
        offsets: dict[MessageQueue, int] = {}
        told: list[str] = []
        committed: list[str] = []
        failures: list[PlaceFailure] = []
        for broker in sorted(route.brokers, key=lambda broker: broker.broker_name):
            address = broker.addresses.get(MASTER_ID)
            try:
                if address is None:
                    raise NoRoute(topic)
                moved = yield from self._reset_online(address, group, topic, time_ms, force)
                if moved is not None:
                    told.append(address)
                else:
                    own = [queue for queue in queues if queue.broker_name == broker.broker_name]
                    moved = yield from self._reset_offline(address, group, topic, own, time_ms, force)
                    committed.append(address)
                offsets.update(moved)
            except MQError as failure:
                failures.append(PlaceFailure(address or broker.broker_name, failure))
        if failures:
            raise PartlyFailed(f"resetting group {group} on topic {topic}", (*told, *committed), tuple(failures))
        return Reset(group, topic, dict(sorted(offsets.items())), tuple(told), tuple(committed))

    def skip(self, group: str, topic: str) -> Flow[Reset]:
        """Send a group to the ends of all queues of a topic, as `reset_by_time` with None: what is there now will not
        be consumed.
        """
        return self.reset_by_time(group, topic, None)

    def _reset_online(
        self, address: str, group: str, topic: str, time_ms: int | None, force: bool
    ) -> Flow[dict[MessageQueue, int] | None]:
        """Let the broker tell the members; None when nobody is online there."""
        fields = ResetOffsetRequest(topic, group, _END if time_ms is None else time_ms, force).encode()
        command = yield from self._calls.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        if command.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        if command.code != ResponseCode.SUCCESS:
            raise self._calls.refusal(command, address)
        return ResetOffsets.from_json(bytes(command.body)).offsets

    def _reset_offline(
        self, address: str, group: str, topic: str, queues: list[MessageQueue], time_ms: int | None, force: bool
    ) -> Flow[dict[MessageQueue, int]]:
        """The old way (docs/protocol/admin.md 4): look every offset up and store it.

        A queue of which the group has nothing begins at its minimum.
        """
        fields = GetConsumeStatsRequest(group).encode()
        timeout_ms = self._calls.long_timeout_ms
        command = yield from self._calls.done(address, RequestCode.GET_CONSUME_STATS, fields, timeout_ms=timeout_ms)
        known = ConsumeStats.from_json(bytes(command.body)).offsets
        stored = {queue: one.consumer_offset for queue, one in known.items() if queue.topic == topic}
        if not stored:
            command = yield from self._calls.done(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            ends = TopicStats.from_json(bytes(command.body)).offsets
            stored = {queue: ends[queue].min_offset for queue in queues if queue in ends}
        moved: dict[MessageQueue, int] = {}
        for queue in sorted(stored):
            if time_ms is None:
                target = yield from self._maximum(address, queue)
            else:
                target = yield from self._at_time(address, queue, time_ms)
            if force or target <= stored[queue]:
                yield from self._commit(address, group, queue, target)
                moved[queue] = target
            else:
                moved[queue] = stored[queue]
        return moved

    def clone(self, source: str, target: str, topic: str | None = None) -> Flow[dict[MessageQueue, int]]:
        """Give a group the offsets of another, of one topic or of all that it consumes except its retries. What was
        stored, by queue.

        Members of the target that are online go on from their own offsets. 5.x wants the target to exist (code 26).
        Every queue is tried: PartlyFailed names those (`topic/broker/id`) that failed. Raises NoClients for a source
        without offsets.
        """
        check_given("group", source)
        check_consumer_group(target)
        done: dict[MessageQueue, int] = {}
        failures: list[PlaceFailure] = []
        for place in (yield from self._calls.group_places(source)):
            fields = GetConsumeStatsRequest(source).encode()
            timeout_ms = self._calls.long_timeout_ms
            command = yield from self._calls.done(
                place.address, RequestCode.GET_CONSUME_STATS, fields, timeout_ms=timeout_ms
            )
            for queue, one in sorted(ConsumeStats.from_json(bytes(command.body)).offsets.items()):
                if queue.topic.startswith(RETRY_PREFIX) if topic is None else queue.topic != topic:
                    continue
                try:
                    yield from self._commit(place.address, target, queue, one.consumer_offset)
                    done[queue] = one.consumer_offset
                except MQError as failure:
                    failures.append(PlaceFailure(_name(queue), failure))
        if failures:
            raise PartlyFailed(f"cloning offsets of {source} to {target}", tuple(map(_name, done)), tuple(failures))
        if not done:
            raise NoClients(
                source, "it has consumed nothing" if topic is None else f"it has consumed nothing of topic {topic}"
            )
        return dict(sorted(done.items()))

    def of_members(
        self, group: str, topic: str, client_id: str | None = None
    ) -> Flow[dict[str, dict[MessageQueue, int]]]:
        """The offsets of a topic that members of a group hold in memory, by client id; of all members or of one.

        Raises BrokerError (1) when nobody of the group is online.
        """
        check_given("group", group)
        found: dict[str, dict[MessageQueue, int]] = {}
        fields = GetConsumerStatusRequest(topic, group, client_id).encode()
        for place in (yield from self._calls.places(topic)):
            timeout_ms = self._calls.long_timeout_ms
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            command = yield from self._calls.done(place.address, code, fields, timeout_ms=timeout_ms)
            for member, offsets in ConsumerStatus.from_json(bytes(command.body)).by_client.items():
                found.setdefault(member, {}).update(offsets)
        return found

    def time_spans(self, group: str, topic: str) -> Flow[list[QueueTimeSpan]]:
        """Store times at the ends of each queue of a topic and at the place of a group, in queue order."""
        check_given("group", group)
        spans: list[QueueTimeSpan] = []
        fields = QueryConsumeTimeSpanRequest(topic, group).encode()
        for place in (yield from self._calls.places(topic)):
            command = yield from self._calls.done(place.address, RequestCode.QUERY_CONSUME_TIME_SPAN, fields)
            spans += ConsumeTimeSpans.from_json(bytes(command.body)).spans
        return sorted(spans, key=lambda span: span.queue)


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
