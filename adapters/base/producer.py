"""Producers as users see them: what is independent of waiting."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, Unpack

from mqproto.adapters.base.budget import Budget, check_timeout
from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.hooks.send_hooks import SendHooks
from mqproto.adapters.base.settings.client_settings import check_as_written, producer_settings
from mqproto.adapters.base.settings.options import ProducerOptions, SendOptions
from mqproto.errors import ClientError, InvalidMessage
from mqproto.hooks import CheckForbiddenHook, SendMessageHook
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.selectors import Selector, check_queue, choose_queue, random_selector
from mqproto.splitting import split_batch
from mqproto.state.flows.effects import Flow, Sleep
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore, check_producer
from mqproto.state.producer.settings import ProducerSettings
from mqproto.validation import check_batch

Messages: TypeAlias = Message | Sequence[Message]

_SEND_OPTIONS: Final = SendOptions.__annotations__.keys()
#: Selector that takes any queue.
select_by_random: Final = random_selector(random.randrange)


class BaseProducer(BaseClient):
    """Producer: sends messages for a producer group.

    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR.
    Further settings are Apache's in snake_case (`ProducerOptions`). Raises InvalidName,
    InvalidSetting and CompressionMissing.

    At most `send_window_messages` messages and `send_window_bytes` bytes are in flight. What is sent beyond that waits,
    in order and within the budget of each send, and fails with TooManyRequests when there is no room by then: nothing
    was sent in that case. The same error comes at once when 65,535 operations of the client wait or are in flight.
    """

    _core: ProducerCore
    _registered = False

    def __init__(
        self, group: str, namesrv: str | Sequence[str] | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        self._producer_settings = self._read_settings(group, options)
        check_as_written(partial(check_producer, self._producer_settings))
        super().__init__("producer", namesrv, options)
        self._hooks = SendHooks(group, self._settings.namespace)

    def _read_settings(self, group: str, options: Mapping[str, Any]) -> ProducerSettings:
        return producer_settings(group, options)

    @property
    def group(self) -> str:
        """The producer group."""
        return self._producer_settings.group

    def _name(self) -> str:
        return f"mqproto-producer-{self.group}"

    def register_send_message_hook(self, hook: SendMessageHook) -> None:
        """Have a hook see every send from now on, before and after (docs/protocol/client.md 3.12)."""
        self._hooks.add(hook)

    def register_check_forbidden_hook(self, hook: CheckForbiddenHook) -> None:
        """Have a hook asked before every send from now on; what it raises is raised to whoever sends."""
        self._hooks.add_check(hook)

    def _split(self, messages: Sequence[Message], max_bytes: int) -> list[list[Message]]:
        size_max = self._producer_settings.max_message_size
        return split_batch(messages, max_bytes=min(max_bytes, size_max), max_message_size=size_max)

    def _selection(self, message: Messages, options: SendOptions) -> Selection | None:
        """A selection of the queue by the application, where the options ask for one. Raises TypeError for others."""
        if not options.keys() <= _SEND_OPTIONS:
            unknown = ", ".join(sorted(options.keys() - _SEND_OPTIONS))
            raise TypeError(f"a send has no option {unknown}; it has {', '.join(_SEND_OPTIONS)}")
        selector, argument = options.get("selector"), options.get("argument")
        if selector is None and argument is None:
            return None
        return Selection(self, message, options.get("queue"), selector, argument, options.get("timeout_ms"))

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

    def _begin_send(
        self, message: Messages, queue: MessageQueue | None, timeout_ms: int | None, now: int
    ) -> Ticket[SendResult]:
        if queue is not None or timeout_ms is not None:
            check_choice(queue, timeout_ms)
        if isinstance(message, Message):
            return self._node.send(self._core, message, now, queue, timeout_ms)
        return self._node.start(self._core.send_batch(message, now, queue=queue, timeout_ms=timeout_ms), now)

    def _begin_oneway(
        self, message: Messages, queue: MessageQueue | None, timeout_ms: int | None, now: int
    ) -> Ticket[None]:
        if not isinstance(message, Message):
            raise InvalidMessage("a batch cannot be sent one-way")
        check_choice(queue, timeout_ms)
        return self._node.start(self._core.send_oneway(message, now, queue=queue, timeout_ms=timeout_ms), now)

    def _begin_request(
        self, message: Message, queue: MessageQueue | None, timeout_ms: int | None, now: int
    ) -> Ticket[MessageExt]:
        if not isinstance(message, Message):
            raise InvalidMessage("a batch cannot ask for a reply")
        check_choice(queue, timeout_ms)
        flow = self._node.requests.ask(self._core, message, now, queue=queue, timeout_ms=timeout_ms)
        return self._node.start(flow, now)

    def _begin_room(self, place: Ticket[None], now: int) -> Ticket[None]:
        return self._node.start(self._core.room(place), now, limited=False)

    def _begin_flush(self, timeout_ms: int | None, now: int) -> Ticket[bool]:
        check_choice(None, timeout_ms)
        return self._node.start(self._core.flush(None if timeout_ms is None else now + timeout_ms), now, limited=False)

    def _begin_queues(self, topic: str, timeout_ms: int | None, now: int) -> Ticket[tuple[MessageQueue, ...]]:
        return self._node.start(self._core.publish_queues(topic, now, timeout_ms=timeout_ms), now)


def check_choice(queue: MessageQueue | None, timeout_ms: int | None) -> None:
    """Check what a send may be told besides its message. Raises ClientError."""
    if queue is not None:
        check_queue(queue)
    if timeout_ms is not None:
        check_timeout(timeout_ms)


class Selection:
    """Send whose queue the application's selector chooses: finding the queues and sending share one budget."""

    def __init__(
        self,
        producer: BaseProducer,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | None,
        argument: object,
        timeout_ms: int | None,
    ) -> None:
        if selector is None:
            raise ClientError(
                "an argument is what a selector chooses by: give one, selector=select_by_hash for instance"
            )
        if queue is not None:
            raise ClientError("give a queue or a selector, not both")
        if not isinstance(message, Message):
            check_batch(message, producer._producer_settings.max_message_size)
        self._message = message if isinstance(message, Message) else message[0]
        self.topic = self._message.topic
        self._selector = selector
        self._argument = argument
        self.timeout_ms: int = producer._producer_settings.send_timeout_ms if timeout_ms is None else timeout_ms
        self._budget = Budget(self.timeout_ms)

    def choose(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Ask the selector, outside the node; `timeout_ms` is what is left of the budget afterwards."""
        queue = choose_queue(self._selector, queues, self._message, self._argument)
        self.timeout_ms = self._budget.left_ms()
        return queue
