"""Clients as users see them, whatever drives them: what is independent of waiting. Runtimes add the methods that wait.

Owns: the node, producer and consumer that a client is made of, the verbs that a driver calls inside the node, which listener gets what.
Leaves to others: sends and consumption (`mqproto.state`), waiting, threads and tasks (runtimes).
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack

from adapters.driving import Life
from adapters.files import LocalOffsetFile
from adapters.identity import client_identity, utc_offset_ms, wall_ms
from adapters.settings import (
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    client_settings,
    consumer_settings,
    producer_settings,
    text_option,
)
from mqproto.bodies import MessageModel
from mqproto.errors import ClientError, InvalidMessage, InvalidSetting
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.client import ClientNode
from mqproto.state.consumer import ConsumerCore
from mqproto.state.consumption import ConsumeTask
from mqproto.state.node import Ticket
from mqproto.state.producer import Selector, choose_queue
from mqproto.state.rebalance import Strategy

log: Final = logging.getLogger("mqproto.client")

#: Offset files of broadcasting consumers lie here, below the home directory (client.md 5.4).
_OFFSET_FOLDER: Final = ".rocketmq_offsets"

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Messages: TypeAlias = Message | Sequence[Message]


#: The consumer whose listener runs here and now.
_consuming: Final[ContextVar[object]] = ContextVar("mqproto_consuming", default=None)


class ClientFace:
    """One client node."""

    def __init__(self, kind: str, namesrv: str | Sequence[str] | None, options: ClientOptions, *, keep_default_name: bool = False) -> None:
        identity = client_identity(text_option(options, "client_ip"), text_option(options, "instance_name"), keep_default=keep_default_name)
        self._node = ClientNode(client_settings(namesrv, options), identity)
        self._life = Life(kind)

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        return self._node.client_id

    def _close_within(self, timeout_ms: int) -> float:
        """Bound the node's own steps at the end; gives the seconds after which the driver stops waiting for them."""
        self._node.settings.close_timeout_ms = max(1, timeout_ms)
        return timeout_ms / 1000 + 1.0

    def _before_start(self) -> int:
        """The time, for what is asked of the node before a driver runs it."""
        now = time.monotonic_ns() // 1_000_000
        self._node.wall_ahead = wall_ms() - now
        return now


class ProducerFace(ClientFace):
    """Sends messages for a producer group.

    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR. Further settings are
    Apache's in snake_case (`ProducerOptions`). Raises InvalidName and InvalidSetting.
    """

    def __init__(self, group: str, namesrv: str | Sequence[str] | None = None, **options: Unpack[ProducerOptions]) -> None:
        settings = producer_settings(group, options)
        super().__init__("producer", namesrv, options)
        self._core = self._node.add_producer(settings, self._before_start())

    @property
    def group(self) -> str:
        """The producer group."""
        return self._core.group

    def _name(self) -> str:
        return f"mqproto-producer-{self.group}"

    # Verbs for the driver.

    def _begin_send(self, message: Messages, queue: MessageQueue | None, timeout_ms: int | None, now: int) -> Ticket[SendResult]:
        if isinstance(message, Message):
            flow = self._core.send(message, now, queue=queue, timeout_ms=timeout_ms)
        else:
            flow = self._core.send_batch(message, now, queue=queue, timeout_ms=timeout_ms)
        return self._node.start(flow, now)

    def _begin_submit(self, message: Messages, queue: MessageQueue | None, timeout_ms: int | None, now: int) -> Ticket[SendResult]:
        if isinstance(message, Message):
            return self._node.start(self._core.send_async(message, now, queue=queue, timeout_ms=timeout_ms), now)
        return self._begin_send(message, queue, timeout_ms, now)

    def _begin_oneway(self, message: Message, queue: MessageQueue | None, timeout_ms: int | None, now: int) -> Ticket[None]:
        if not isinstance(message, Message):
            raise InvalidMessage("a batch cannot be sent one-way")
        return self._node.start(self._core.send_oneway(message, now, queue=queue, timeout_ms=timeout_ms), now)

    def _begin_queues(self, topic: str, timeout_ms: int | None, now: int) -> Ticket[tuple[MessageQueue, ...]]:
        return self._node.start(self._core.publish_queues(topic, now, timeout_ms=timeout_ms), now)


class Submitted(Generic[T]):
    """A send whose outcome goes to a future: `settle` is told when there is one."""

    def __init__(self, settle: Callable[[Ticket[T]], None]) -> None:
        self._settle = settle
        self._ticket: Ticket[T] | None = None

    def begin(self, verb: Callable[[*Ts, int], Ticket[T]], arguments: tuple[*Ts], now: int) -> Ticket[T]:
        """The verb for the driver."""
        self._ticket = verb(*arguments, now)
        return self._ticket

    def wake(self) -> None:
        assert self._ticket is not None
        self._settle(self._ticket)


class Selection:
    """A send whose queue the application's selector chooses: finding the queues and sending share one budget."""

    def __init__(self, producer: ProducerFace, message: Messages, selector: Selector, argument: object, timeout_ms: int | None) -> None:
        self._message = message if isinstance(message, Message) else next(iter(message), None)
        if self._message is None:
            raise InvalidMessage("an empty batch")
        self.topic = self._message.topic
        self._selector = selector
        self._argument = argument
        self.timeout_ms: int = producer._core.settings.send_timeout_ms if timeout_ms is None else timeout_ms
        self._begun = time.monotonic_ns()

    def choose(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Ask the selector, outside the node; `timeout_ms` is what is left of the budget afterwards."""
        assert self._message is not None
        queue = choose_queue(self._selector, queues, self._message, self._argument)
        self.timeout_ms = max(0, self.timeout_ms - (time.monotonic_ns() - self._begun) // 1_000_000)
        return queue


def check_target(queue: MessageQueue | None, selector: Selector | None) -> None:
    """A send has a queue, or a selector, or neither."""
    if queue is not None and selector is not None:
        raise ClientError("give a queue or a selector, not both")


class ConsumerFace(ClientFace):
    """Receives messages for a consumer group and hands them to a listener.

    The listener is called with a list of `MessageExt` and, if it takes a second argument, a `ConsumeContext`. It returns
    `ConsumeStatus.SUCCESS`; RECONSUME_LATER, an exception of any kind, None or anything else mean that the messages come again later.
    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR. `strategy` shares
    queues out among the members of the group. Further settings are Apache's in snake_case (`ConsumerOptions`). Raises InvalidName and
    InvalidSetting.
    """

    def __init__(
        self,
        group: str,
        listener: Callable[..., Any],
        namesrv: str | Sequence[str] | None = None,
        *,
        strategy: Strategy | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        settings = consumer_settings(group, options)
        broadcasts = settings.message_model is MessageModel.BROADCASTING
        super().__init__("consumer", namesrv, options, keep_default_name=broadcasts)
        self._listener = listener
        self._takes_context = takes_context(listener)
        self._awaits_as_set = "await_termination_millis_when_shutdown" in options
        offset_file: LocalOffsetFile | None = None
        if broadcasts:
            folder = Path(text_option(options, "local_offset_store_dir") or Path.home() / _OFFSET_FOLDER)
            try:
                offset_file = LocalOffsetFile(folder, self.client_id, group)
            except OSError as error:
                raise InvalidSetting("local_offset_store_dir", folder, f"the offset file cannot be read: {error}") from error
        self._core = ConsumerCore(self._node, settings, listener, strategy=strategy, offset_file=offset_file, utc_offset_ms=utc_offset_ms())

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._core.group

    def _name(self) -> str:
        return f"mqproto-consumer-{self.group}"

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Around each call of the listener."""
        token = _consuming.set(self)
        try:
            yield
        finally:
            _consuming.reset(token)

    @property
    def _is_listening(self) -> bool:
        """Whether the caller is the listener, or something that it has called."""
        return _consuming.get() is self

    def _arguments(self, task: ConsumeTask) -> tuple[Any, ...]:
        return (task.messages, task.context) if self._takes_context else (task.messages,)

    def _failed(self, error: BaseException) -> None:
        """The listener raised: the core decides what follows; a program is easier to mend with the place where it happened."""
        log.warning("the listener of group %s failed", self.group, exc_info=error)

    def _close_within(self, timeout_ms: int) -> float:
        """Running deliveries get half of the time, so that enough is left to store what they achieved; but a listener that closes its
        own consumer is not waited for."""
        if not self._awaits_as_set:
            self._core.settings.await_termination_millis_when_shutdown = 0 if self._is_listening else timeout_ms // 2
        return super()._close_within(timeout_ms)

    # Verbs for the driver.

    def _begin_start(self, now: int) -> Ticket[None]:
        return self._node.start(self._core.start(now), now)

    def _subscribe(self, topic: str, expression: str, kind: str, now: int) -> None:
        self._core.subscribe(topic, expression, kind, now=now)

    def _unsubscribe(self, topic: str, now: int) -> None:
        self._core.unsubscribe(topic, now=now)


def takes_context(listener: Callable[..., Any]) -> bool:
    """Whether a listener takes a second argument. Raises InvalidSetting when it can be called with neither one nor two."""
    try:
        signature = inspect.signature(listener)
    except ValueError:
        return False  # some built-in functions tell nothing: they get the messages alone
    except TypeError:
        raise InvalidSetting("listener", listener, "it must be callable") from None
    for count in (2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == 2
    raise InvalidSetting("listener", listener, "it must take a list of messages, and a context if it likes")
