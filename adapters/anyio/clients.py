"""Clients whose methods are coroutines; listeners run in tasks, or in threads where they are plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

import anyio
import anyio.to_thread

from adapters.anyio.driver import Driver
from adapters.clients import ConsumerFace, Messages, ProducerFace, Selection, check_target
from adapters.driving import CLOSE_TIMEOUT_MS
from adapters.settings import ConsumerOptions
from mqproto.errors import StateError
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.consumption import ConsumeTask
from mqproto.state.producer import Selector
from mqproto.state.rebalance import Strategy


class AsyncClient:
    """What producers and consumers share: `async with` starts and closes."""

    async def start(self) -> Self:
        raise NotImplementedError

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with anyio.CancelScope(shield=True):  # the time-out bounds it; a cancelled client still ends in order
            await self.close()


class Producer(ProducerFace, AsyncClient):
    __doc__ = ProducerFace.__doc__

    _driver: Driver

    async def start(self) -> Self:
        """Begin; name servers and brokers are met with the first send. Only once: raises StateError after that."""
        self._life.start()
        self._driver = Driver(self._node, {}, None, self._node.cancel, self._node.notices, name=self._name())
        await self._driver.start()
        return self

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Let sends in flight end, unregister, disconnect: within `timeout_ms`. Twice, or before the start, is harmless."""
        if self._life.close():
            await self._driver.stop(self._close_within(timeout_ms))

    async def send(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, or a batch of messages of one topic, and wait until a broker has taken it.

        To `queue`, or to the one that `selector(queues, message, argument)` chooses, in one attempt; else to queues in turn, with further
        attempts. `timeout_ms` (`send_msg_timeout` unless given) is the budget of all of it. Raises what `ProducerCore.send` raises:
        InvalidMessage, InvalidName, BrokerError, NoNameServer, NoRoute, CallExpired, SendFailed; StateError when it does not run.
        Cancelling gives the send up: whether the broker has taken it is then unknown.
        """
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = await self._select(message, selector, argument, timeout_ms)
        return await self._driver.wait(self._begin_send, message, queue, timeout_ms)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a message that no broker answers; ends when it is on its way, in one attempt. Raises as `send`, but no BrokerError."""
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = await self._select(message, selector, argument, timeout_ms)
        await self._driver.wait(self._begin_oneway, message, queue, timeout_ms)

    async def _select(self, message: Messages, selector: Selector, argument: object, timeout_ms: int | None) -> tuple[MessageQueue, int]:
        selection = Selection(self, message, selector, argument, timeout_ms)
        queues = await self._driver.wait(self._begin_queues, selection.topic, selection.timeout_ms)
        return selection.choose(queues), selection.timeout_ms


class PushConsumer(ConsumerFace, AsyncClient):
    __doc__ = (ConsumerFace.__doc__ or "") + "A listener that is no coroutine function runs in a thread."

    _driver: Driver

    def __init__(
        self,
        group: str,
        listener: Callable[..., Any],
        namesrv: str | Sequence[str] | None = None,
        *,
        strategy: Strategy | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(group, listener, namesrv, strategy=strategy, **options)
        self._is_coroutine = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(getattr(listener, "__call__", None))  # noqa: B004

    async def start(self) -> Self:
        """Begin; ends when routes are known and queues are being shared out. Only once.

        Raises StateError after that, NoNameServer and other MQErrors when name servers cannot be reached; the consumer is closed then.
        """
        self._life.start()
        self._threads = anyio.CapacityLimiter(self._core.settings.consume_thread_min)
        self._driver = Driver(self._node, {}, self._deliver, self._node.cancel, self._node.notices, name=self._name())
        try:
            await self._driver.start()
            await self._driver.wait(self._begin_start)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise
        return self

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End within `timeout_ms`: running listeners get half of it, offsets are stored, the group is unregistered; then tasks that still
        run are cancelled.

        Twice, or before the start, is harmless; so is closing from inside the listener, whose result then does not count.
        """
        if self._life.close():
            await self._driver.stop(self._close_within(timeout_ms), from_inside=self._is_listening)

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Receive a topic, filtered by tags (`a || b`), or by properties with kind "SQL92". Before or after the start.

        Replaces what was said of the topic before. Raises InvalidName, InvalidExpressionError or StateError.
        """
        if self._life.running:
            self._driver.enter(self._subscribe, topic, expression, kind)
        else:
            self._subscribe(topic, expression, kind, self._before_start())

    def unsubscribe(self, topic: str) -> None:
        """Receive a topic no longer. An unknown one is no error."""
        if self._life.running:
            self._driver.enter(self._unsubscribe, topic)
        else:
            self._unsubscribe(topic, self._before_start())

    def suspend(self) -> None:
        """Fetch no more messages; those that are here are still delivered."""
        self._life.check()
        self._driver.enter(self._core.suspend)

    def resume(self) -> None:
        """Fetch messages again."""
        self._life.check()
        self._driver.enter(self._core.resume)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ConsumeTask)
        self._driver.soon(self._consume, task)

    async def _consume(self, task: ConsumeTask) -> None:
        result: object
        with self._listening():
            try:
                result = await self._call(task)
            except BaseException as error:  # whatever it is, it is the listener's answer (CON-01) ...
                if self._driver.ending and isinstance(error, anyio.get_cancelled_exc_class()):
                    raise  # ... unless the driver has cancelled it
                self._failed(error)
                result = error
        with suppress(StateError):  # closed meanwhile: the messages come again
            self._driver.enter(self._node.consumed, task, result)

    async def _call(self, task: ConsumeTask) -> object:
        arguments = self._arguments(task)
        if self._is_coroutine:
            return await self._listener(*arguments)
        result = await anyio.to_thread.run_sync(partial(self._listener, *arguments), abandon_on_cancel=True, limiter=self._threads)
        return await result if inspect.isawaitable(result) else result
