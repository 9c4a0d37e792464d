"""Producers as users see them: what is independent of waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack

from adapters.faces.client import ClientFace
from adapters.settings import ProducerOptions, producer_settings
from mqproto.errors import ClientError, InvalidMessage
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.selectors import Selector, choose_queue
from mqproto.state.flows import Flow, Sleep
from mqproto.state.node import Ticket
from mqproto.state.producer import ProducerCore, check_producer
from mqproto.state.settings import ProducerSettings

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Messages: TypeAlias = Message | Sequence[Message]


class ProducerFace(ClientFace):
    """Sends messages for a producer group.

    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR. Further settings are
    Apache's in snake_case (`ProducerOptions`). Raises InvalidName and InvalidSetting.
    """

    _core: ProducerCore
    _registered = False

    def __init__(self, group: str, namesrv: str | Sequence[str] | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._producer_settings = self._read_settings(group, options)
        check_producer(self._producer_settings)
        super().__init__("producer", namesrv, options)

    def _read_settings(self, group: str, options: Mapping[str, Any]) -> ProducerSettings:
        return producer_settings(group, options)

    @property
    def group(self) -> str:
        """The producer group."""
        return self._producer_settings.group

    def _name(self) -> str:
        return f"mqproto-producer-{self.group}"

    # Verbs for the driver.

    def _begin_start(self, now: int) -> Ticket[None]:
        return self._node.start(self._registering(now), now, limited=False)

    def _registering(self, now: int) -> Flow[None]:
        self._core = self._node.add_producer(self._producer_settings, now)
        self._registered = True
        yield Sleep(now)

    def _closing(self, now: int) -> Flow[None]:
        if self._registered:
            yield from self._node.remove_producer(self._core, now)

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

    def _begin_request(self, message: Message, queue: MessageQueue | None, timeout_ms: int | None, now: int) -> Ticket[MessageExt]:
        flow = self._node.requests.ask(self._core, message, now, queue=queue, timeout_ms=timeout_ms)
        return self._node.start(flow, now)

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
        self.timeout_ms: int = producer._producer_settings.send_timeout_ms if timeout_ms is None else timeout_ms
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
