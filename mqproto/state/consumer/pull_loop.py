"""Pull loop: exactly one runs for each process queue (docs/protocol/client.md 4.9).

Owns: when the next pull goes out, the request, the reading of its answer, what becomes of what cannot be read.
Leaves to others: what was pulled and is not finished (`process_queue`), deliveries (the kinds of consumers), the
offsets (`offsets`), which queues there are (`assignment`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from mqproto.codec import Command
from mqproto.errors import BrokerError, MQError, StateError, refusal
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.fast_pulls import FastPullAnswer, read_found
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.flows.effects import LATER, Call, Flow, Sleep, Wait, answer
from mqproto.state.node.contract import Ticket
from mqproto.wire import properties as names
from mqproto.wire.codes import SUCCESS, RequestCode, ResponseCode
from mqproto.wire.flags import COMPRESSED, pull_flag
from mqproto.wire.headers import PullMessageRequest, PullMessageResponse
from mqproto.wire.record import RecordError, decode_records

#: How long a broker may hold a pull at the end of a queue, and how long we wait for the answer (docs/protocol/client.md
#: 1.9.3).
SUSPEND_MS: Final = 15_000
PULL_TIMEOUT_MS: Final = 30_000
#: Before the next pull after FLOW_CONTROL (215).
FLOW_CONTROL_MS: Final = 20
#: Least time between two pulls that bring nothing: a broker that holds no pull (any more) must not get pulls in a
#: tight loop.
EMPTY_PAUSE_MS: Final = 50
#: How long the pull loop waits for a heartbeat that shall make the broker know the subscription.
HEARTBEAT_WAIT_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Subscription as a pull and its answer need it."""

    #: `*`, tags, or the expression of another kind.
    expression: str
    #: TAG or SQL92.
    kind: str
    version: int
    #: Tags to keep; empty keeps all. The broker compares hashes, so tags that share one come too and are sorted out
    #: here.
    tags: frozenset[str] = frozenset()


@dataclass(slots=True)  # made for every answer: frozen ones take three times as long
class Pulled:
    """Answer to a pull. `messages` is None for an offset outside the queue, then `next_offset` is inside."""

    messages: list[MessageExt] | None
    next_offset: int
    broker_id: int


class PullNode(Protocol):
    """Members of the node that a pull loop needs. Flows that take time answer the time as well."""

    @property
    def group(self) -> str: ...

    def pull_address(self, queue: ProcessQueue, now: int) -> Flow[tuple[str | MQError, int]]:
        """Where to pull, or why that is not known."""

    def heartbeat(self, now: int) -> Ticket[None]:
        """The broker does not know the subscription, or an old one. Settled when it should know."""

    def pull_failed(self, queue: ProcessQueue, error: MQError) -> None:
        """For the operator; the loop goes on."""


class PullHost(Protocol):
    """Consumer of a pull loop: whether and what it pulls, and what it does with the answers."""

    @property
    def pull_interval_ms(self) -> int: ...

    @property
    def pull_timeout_ms(self) -> int:
        """How long an answer is waited for: longer than the broker may hold the pull."""

    @property
    def failure_pause_ms(self) -> int:
        """Before the next pull after one that failed."""

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        """A ticket to wait for before the next pull; None to pull now."""

    def subscribed(self, topic: str) -> Subscribed | None: ...

    def pull_fields(self, queue: ProcessQueue, subscribed: Subscribed) -> dict[str, str]:
        """The header of the next pull."""

    def arrived(self, queue: ProcessQueue, fresh: list[MessageExt], now: int) -> None:
        """New messages are in the process queue."""

    def caught_up(self, queue: ProcessQueue) -> None:
        """An answer brought nothing new; the next offset may have moved on."""

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        """The queue does not have the offset of the pull, but this one. The process queue is dropped."""


def pull_header(
    group: str,
    queue: ProcessQueue,
    subscribed: Subscribed,
    *,
    batch: int,
    commit_offset: int | None,
    post_subscription: bool,
) -> dict[str, str]:
    """The extFields of PULL_MESSAGE (docs/protocol/client.md 4.9). `commit_offset` None: there is nothing to commit, or
    not at this broker.

    A slave cannot take an offset, so only a pull from the master carries the flag that it is valid.
    """
    header = PullMessageRequest(
        consumer_group=group,
        topic=queue.queue.topic,
        queue_id=queue.queue.queue_id,
        queue_offset=queue.next_offset,
        max_msg_nums=batch,
        sys_flag=pull_flag(
            commit_offset=commit_offset is not None and commit_offset > 0 and queue.broker_id == 0,
            suspend=True,
            subscription=post_subscription,
        ),
        commit_offset=-1 if commit_offset is None else commit_offset,
        suspend_timeout_millis=SUSPEND_MS,
        subscription=subscribed.expression if post_subscription else None,
        sub_version=subscribed.version,
        expression_type=subscribed.kind,
    )
    return {**header.encode(), "bname": queue.queue.broker_name}


def read_answer(command: Command, queue: MessageQueue, tags: frozenset[str], address: str) -> Pulled:
    """The answer to PULL_MESSAGE. Raises BrokerError for a refusal, HeaderError and RecordError where it is damaged.

    A record whose body cannot be read (damaged, or compressed in a way that needs a package) comes as an empty message
    whose sysFlag still says that it is compressed: it goes the way of failed messages and does not block the queue.
    """
    if command.code not in _ANSWERS:
        raise refusal(command.code, command.remark, address)
    header = PullMessageResponse.decode(command.fields)
    broker_id, next_offset = header.suggest_which_broker_id, header.next_begin_offset
    if command.code != SUCCESS:
        return Pulled(None if command.code == ResponseCode.PULL_OFFSET_MOVED else [], next_offset, broker_id)
    found = FastPullAnswer(
        broker_id, next_offset, header.min_offset, header.max_offset, command.body, command.opaque, command.version
    )
    return _read_found(found, queue, tags)


def _read_found(found: FastPullAnswer, queue: MessageQueue, tags: frozenset[str]) -> Pulled:
    """The same for an answer that has messages."""
    next_offset = found.next_offset
    try:
        messages = decode_records(found.records, queue.broker_name)
    except RecordError as error:
        messages, next_offset = _salvage(error, queue)
    if tags:
        messages = [message for message in messages if message.tags in tags or message.sys_flag & COMPRESSED]
    low, high = str(found.min_offset), str(found.max_offset)
    for message in messages:
        properties = message.properties
        properties[names.MIN_OFFSET] = low
        properties[names.MAX_OFFSET] = high
    return Pulled(messages, next_offset, found.broker_id)


def _salvage(error: RecordError, queue: MessageQueue) -> tuple[list[MessageExt], int]:
    """The messages before a bad record, and the offset to go on at. Raises the error when nothing can be made of it."""
    if error.messages:
        return error.messages, error.messages[-1].queue_offset + 1
    if error.cause is None or error.queue_offset is None or error.physical_offset is None:
        raise error
    unreadable = UnreadableMessage(
        queue.topic,
        b"",
        sys_flag=COMPRESSED,
        queue_id=queue.queue_id,
        queue_offset=error.queue_offset,
        physical_offset=error.physical_offset,
        broker_name=queue.broker_name,
    )
    unreadable.reason = str(error.cause)
    return [unreadable], error.queue_offset + 1


class UnreadableMessage(MessageExt):
    """Message whose body cannot be read; `reason` says why, and which package would help where one is missing."""

    __slots__ = ("reason",)
    reason: str


def reason_of(message: MessageExt) -> str:
    """Why the body of a message cannot be read, to be put behind a remark on it."""
    return f": {message.reason}" if isinstance(message, UnreadableMessage) else ""


_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_UNKNOWN_SUBSCRIPTION: Final = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})


def pull_loop(queue: ProcessQueue, host: PullHost, node: PullNode, now: int) -> Flow[None]:
    """Pull until the queue is dropped.

    Whatever a broker does ends in another round, after a pause where it brought nothing.
    """
    announced = False
    while not queue.dropped:
        ticket = host.hold(queue)
        if ticket is not None:
            _, now = yield Wait(ticket)
            continue
        pulled, now = yield from _pull(queue, host, node, now)
        if pulled is None:
            return
        if isinstance(pulled, Pulled):
            announced = False
            queue.trouble = ""
            pause = _take_in(pulled, queue, host, now)
            if not pause and pulled.messages is not None and len(pulled.messages) == 1:
                _, now = yield LATER  # a single message is with its listener before the next pull is made
        else:
            code = pulled.code if isinstance(pulled, BrokerError) else None
            pause = FLOW_CONTROL_MS if code == ResponseCode.FLOW_CONTROL else host.failure_pause_ms
            if code in _UNKNOWN_SUBSCRIPTION:
                _, now = yield Wait(node.heartbeat(now), now + HEARTBEAT_WAIT_MS)
                pause = pause if announced else 0
                announced = True
            if pause:
                node.pull_failed(queue, pulled)
        if pause:
            _, now = yield Sleep(now + pause)


def _pull(queue: ProcessQueue, host: PullHost, node: PullNode, now: int) -> Flow[tuple[Pulled | MQError | None, int]]:
    """One request and what its answer says; None when the queue was dropped meanwhile, whatever it says."""
    subscribed = host.subscribed(queue.queue.topic)
    if subscribed is None:
        return StateError(f"group {node.group} does not subscribe {queue.queue.topic}"), now
    address, now = yield from node.pull_address(queue, now)
    if isinstance(address, MQError):
        return address, now
    queue.last_pull_at = now
    fields = host.pull_fields(queue, subscribed)
    try:
        outcome, now = yield Call(
            address, RequestCode.PULL_MESSAGE, fields, deadline=now + host.pull_timeout_ms, read_answer=read_found
        )
        if queue.dropped:
            return None, now
        # The subscription may have changed while the broker held the pull; it answers by the new one, once it knows it.
        subscribed = host.subscribed(queue.queue.topic) or subscribed
        if type(outcome) is FastPullAnswer:
            return _read_found(outcome, queue.queue, subscribed.tags), now
        return read_answer(answer(outcome), queue.queue, subscribed.tags, address), now
    except MQError as error:
        return error, now


def _take_in(pulled: Pulled, queue: ProcessQueue, host: PullHost, now: int) -> int:
    """Carry out what an answer says. Answers how long to wait before the next pull."""
    queue.broker_id = pulled.broker_id
    if pulled.messages is None:
        host.outside(queue, pulled.next_offset, now)
        return 0
    pulled_at, pulled_offset = queue.last_pull_at, queue.next_offset
    fresh = queue.put(pulled.messages, pulled.next_offset)
    if fresh:
        host.arrived(queue, fresh, now)
        return host.pull_interval_ms
    host.caught_up(queue)
    if queue.next_offset > pulled_offset:
        return 0
    if pulled.messages:  # it brings only what was pulled before
        return host.failure_pause_ms
    return max(0, pulled_at + EMPTY_PAUSE_MS - now)
