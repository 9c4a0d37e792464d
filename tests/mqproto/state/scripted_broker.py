"""Name server and brokers that are scripted, for consumers on a `Stage`: queues in memory, held pulls, switches for
trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mqproto.codec import Command, encode_response
from mqproto.message import ConsumeStatus, MessageExt, MessageQueue
from mqproto.state.consumer.pull.base import PullConsumerBase
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.node.contract import Deliver
from mqproto.wire.bodies import ConsumerIds, HeartbeatData, LockAnswer, LockRequest, TopicRoute
from mqproto.wire.codes import RequestCode
from mqproto.wire.names import retry_topic
from mqproto.wire.record import encode_record
from tests.mqproto.state.stage import NS, Peer, Stage, name_server, refused, route, success

HOLD_MS = 15_000


@dataclass
class Held:
    """A pull that waits for a message."""

    request: Command
    since: int


@dataclass
class Broker:
    """One broker of the cluster."""

    name: str
    address: str
    peer: Peer = field(default_factory=Peer)
    queues: dict[tuple[str, int], list[MessageExt]] = field(default_factory=dict)
    #: First offset that is still there, by queue.
    minimum: dict[tuple[str, int], int] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    #: Members that it tells of besides the one on the stage.
    others: list[str] = field(default_factory=list)
    heartbeats: list[HeartbeatData] = field(default_factory=list)
    sent_back: list[dict[str, str]] = field(default_factory=list)
    #: Queues that another member has locked.
    locked_elsewhere: set[MessageQueue] = field(default_factory=set)
    #: Codes that are refused, and with what.
    refuses: dict[int, int] = field(default_factory=dict)
    #: Codes that get no answer.
    ignores: set[int] = field(default_factory=set)


class Cluster:
    """A stage with a consumer's world. Topics have two queues at each broker unless the route says otherwise."""

    def __init__(self, *brokers: str, **settings: Any) -> None:
        self.stage = Stage(**settings)
        self.routes: dict[str, TopicRoute] = {}
        self.brokers = {name: Broker(name, f"{name}:10911") for name in brokers or ("b",)}
        self.stage.peers[NS] = name_server(self.routes)
        for broker in self.brokers.values():
            self.stage.peers[broker.address] = broker.peer
            self._script(broker)

    def topic(self, name: str, queues: int = 2) -> None:
        self.routes[name] = route(*(f"{one.name}={one.address}" for one in self.brokers.values()), queues=queues)

    @property
    def broker(self) -> Broker:
        return next(iter(self.brokers.values()))

    # --- what a broker does

    def _script(self, broker: Broker) -> None:
        handlers: dict[int, Callable[[Broker, Command], bytes | None]] = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: lambda broker, request: success(request),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.CHECK_CLIENT_CONFIG: lambda broker, request: success(request),
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: lambda broker, request: None if request.is_oneway else success(request),
        }

        def answering(handler: Callable[[Broker, Command], bytes | None]) -> Callable[[Command], bytes | None]:
            def answer(request: Command) -> bytes | None:
                if request.code in broker.ignores:
                    return None
                if request.code in broker.refuses:
                    return refused(request, broker.refuses[request.code])
                return handler(broker, request)

            return answer

        for code, handler in handlers.items():
            broker.peer.answers[code] = answering(handler)

    def _heartbeat(self, broker: Broker, request: Command) -> bytes:
        data = HeartbeatData.from_json(bytes(request.body))
        broker.heartbeats.append(data)
        for consumer in data.consumers:
            topic = retry_topic(consumer.group)
            if consumer.message_model == "CLUSTERING" and topic not in self.routes:
                self.topic(topic, 1)
        return success(request)

    def _members(self, broker: Broker, request: Command) -> bytes:
        group = request.fields["consumerGroup"]
        known = any(one.group == group for data in broker.heartbeats[-1:] for one in data.consumers)
        return success(
            request, body=ConsumerIds([*broker.others, *([self.stage.node.client_id] if known else [])]).to_json()
        )

    def _query(self, broker: Broker, request: Command) -> bytes:
        key = (request.fields["topic"], int(request.fields["queueId"]))
        if key not in broker.offsets:
            return refused(request, 22)
        return success(request, {"offset": str(broker.offsets[key])})

    def _update(self, broker: Broker, request: Command) -> bytes | None:
        broker.offsets[(request.fields["topic"], int(request.fields["queueId"]))] = int(request.fields["commitOffset"])
        return None if request.is_oneway else success(request)

    def _max(self, broker: Broker, request: Command) -> bytes:
        return success(request, {"offset": str(len(self._queue(broker, request)))})

    def _min(self, broker: Broker, request: Command) -> bytes:
        return success(
            request, {"offset": str(broker.minimum.get((request.fields["topic"], int(request.fields["queueId"])), 0))}
        )

    def _earliest(self, broker: Broker, request: Command) -> bytes:
        queue = self._queue(broker, request)
        return success(request, {"timestamp": str(queue[0].store_time if queue else -1)})

    def _search(self, broker: Broker, request: Command) -> bytes:
        found = sum(one.store_time < int(request.fields["timestamp"]) for one in self._queue(broker, request))
        return success(request, {"offset": str(found)})

    def _send_back(self, broker: Broker, request: Command) -> bytes:
        broker.sent_back.append(dict(request.fields))
        return success(request)

    def _lock(self, broker: Broker, request: Command) -> bytes:
        asked = LockRequest.from_json(bytes(request.body)).queues
        return success(
            request, body=LockAnswer([queue for queue in asked if queue not in broker.locked_elsewhere]).to_json()
        )

    def _queue(self, broker: Broker, request: Command) -> list[MessageExt]:
        return broker.queues.setdefault((request.fields["topic"], int(request.fields["queueId"])), [])

    def _pull(self, broker: Broker, request: Command) -> bytes | None:
        fields = request.fields
        if int(fields["sysFlag"]) & 1:
            self._update(broker, request)
        reply = self.pull_answer(broker, request, held=not int(fields["sysFlag"]) & 2)
        if reply is None:
            broker.held.append(Held(request, self.stage.now))
        return reply

    def pull_answer(self, broker: Broker, request: Command, *, held: bool) -> bytes | None:
        queue, offset = self._queue(broker, request), int(request.fields["queueOffset"])
        low = broker.minimum.get((request.fields["topic"], int(request.fields["queueId"])), 0)
        fields = {"suggestWhichBrokerId": "0", "minOffset": str(low), "maxOffset": str(len(queue))}
        if offset < low or offset > len(queue):
            return encode_response(
                request.opaque, 21, {**fields, "nextBeginOffset": str(low if offset < low else len(queue))}
            )
        found = queue[offset : offset + int(request.fields["maxMsgNums"])]
        if not found and not held:
            return None
        body = b"".join(map(encode_record, found))
        return encode_response(
            request.opaque, 0 if found else 19, {**fields, "nextBeginOffset": str(offset + len(found))}, body
        )

    # --- what tests do

    def put(
        self, topic: str, *bodies: bytes, queue_id: int = 0, broker: str = "", tag: str = "", **others: Any
    ) -> list[MessageExt]:
        """Store messages, and answer the pulls that wait for them."""
        at = self.brokers[broker] if broker else self.broker
        queue = at.queues.setdefault((topic, queue_id), [])
        for body in bodies:
            offset = len(queue)
            number = sum(map(len, at.queues.values()))
            one = MessageExt(
                topic, body, queue_id=queue_id, queue_offset=offset, physical_offset=1_000 * number, **others
            )
            one.properties = {"TAGS": tag, **one.properties} if tag else one.properties
            queue.append(one)
        self.release(
            at, lambda held: (held.request.fields["topic"], int(held.request.fields["queueId"])) == (topic, queue_id)
        )
        return queue

    def release(self, broker: Broker, which: Callable[[Held], bool]) -> None:
        """Answer held pulls, whatever there is."""
        for held in [one for one in broker.held if which(one)]:
            broker.held.remove(held)
            reply = self.pull_answer(broker, held.request, held=True)
            assert reply is not None
            if broker.address in self.stage.links:
                self.stage.receive(broker.address, reply)

    def advance(self, ms: int, step: int = 1_000) -> None:
        """Let time pass, and brokers end the pulls that they held for long enough."""
        while ms > 0:
            self.stage.advance(min(step, ms))
            ms -= step
            for broker in self.brokers.values():
                self.release(broker, lambda held: self.stage.now - held.since >= HOLD_MS)

    @property
    def tasks(self) -> list[ConsumeTask]:
        """The deliveries so far, in order."""
        found: list[ConsumeTask] = []
        for action in self.stage.delivered:
            assert isinstance(action, Deliver)
            assert isinstance(action.task, ConsumeTask)
            found.append(action.task)
        return found

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for task in self.tasks for one in task.messages]

    def answer(self, task: ConsumeTask, result: object = ConsumeStatus.SUCCESS) -> None:
        self.stage.node.consumed(task, result, self.stage.now)
        self.stage.settle()

    def answer_all(self, result: object = ConsumeStatus.SUCCESS) -> None:
        """Answer every delivery, those too that only come when others are done."""
        index = 0
        while index < len(self.tasks):
            self.answer(self.tasks[index], result)
            index += 1

    def requests(self, code: int, broker: str = "") -> list[Command]:
        return (self.brokers[broker] if broker else self.broker).peer.of(code)

    def start(self, consumer: PushConsumerCore | PullConsumerBase) -> None:
        self.stage.run(consumer.start(self.stage.now))


def queue_of(topic: str, queue_id: int = 0, broker: str = "b") -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)
