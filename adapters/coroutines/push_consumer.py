"""Push consumers whose methods are coroutines; listeners run in tasks, or in threads where they are plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread

from mqproto.adapters.base.push_consumer import AT_A_STRETCH, BasePushConsumer, consuming
from mqproto.adapters.base.settings import ConsumerOptions
from mqproto.adapters.coroutines.subscriber import AsyncSubscriber
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.message import MessageExt
from mqproto.state.consumer.push.concurrent import ConsumeTask


class _Place:
    """Where a task waits for a delivery."""

    __slots__ = ("filled", "task")

    def __init__(self, filled: Callable[[], object]) -> None:
        self.filled = filled
        self.task: ConsumeTask | None = None


class PushConsumer(BasePushConsumer, AsyncSubscriber):
    __doc__ = (BasePushConsumer.__doc__ or "") + "A listener that is no coroutine function runs in a thread."

    def __init__(
        self,
        group: str,
        listener: Callable[..., Any],
        namesrv: str | Sequence[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(group, listener, namesrv, **options)
        call = getattr(listener, "__call__", None)  # noqa: B004  # an object whose call is a coroutine function
        self._is_coroutine = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call)

    def _prepare(self) -> None:
        self._idle: list[_Place] = []
        self._threads = anyio.CapacityLimiter(self._consumer_settings.consume_thread_min)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End within `timeout_ms`: running listeners get half of it, offsets are stored, the group is unregistered;
        then tasks that still run are cancelled.

        Twice, or before the start, is harmless; so is closing from inside the listener, whose result then does not
        count.
        """
        await super().close(timeout_ms)

    async def send_message_back(
        self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None
    ) -> None:
        """Let one message of a list come again later, so that the listener may return SUCCESS for it all the same.

        By the broker that stored it, or as a new message where that fails. `delay_level` -1 makes it a dead letter, 0
        leaves the time to the broker, else it is a level of the broker's table. Raises StateError, and MQError when
        both ways failed: the message is then with the listener still.
        """
        self._lifecycle.check()
        await self._driver.wait(self._begin_send_back, message, delay_level, broker_name)

    def _room_for(self, count: int) -> None:
        if self._lifecycle.running:
            self._threads.total_tokens = max(self._threads.total_tokens, count)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ConsumeTask)
        if self._follows(task):
            return
        if (
            self._idle
        ):  # waking a task costs a fraction of starting one, and it runs one round of the event loop earlier
            place = self._idle.pop()
            place.task = task
            place.filled()
        else:
            self._driver.soon(self._consume, task)

    async def _consume(self, task: ConsumeTask) -> None:
        with self._cancelled_at_close() as scope:
            at_a_stretch = 1
            while True:
                answer = await self._heard(task, scope)
                following = self._consumed(self._driver.enter, task, answer)
                if isinstance(answer, KeyboardInterrupt):
                    self._driver.interrupted(answer)
                if following is None:
                    following = await self._next()
                    if following is None:
                        return
                    at_a_stretch = 0  # others have run meanwhile
                elif at_a_stretch == AT_A_STRETCH:
                    # listeners that wait for nothing must not keep the others from running
                    await anyio.lowlevel.checkpoint()
                    at_a_stretch = 0
                at_a_stretch += 1
                task = following

    async def _next(self) -> ConsumeTask | None:
        """The next delivery, for a task that has nothing to do; None when there will be none.

        There are never more than places.
        """
        if not self._lifecycle.running:
            return None
        is_filled, filled = self._driver.signal()
        place = _Place(filled)
        self._idle.append(place)
        try:
            await is_filled
        except BaseException:
            if place in self._idle:  # cancelled: all of this ends
                self._idle.remove(place)
            raise
        return place.task

    async def _heard(self, task: ConsumeTask, scope: anyio.CancelScope) -> object:
        """What the listener says, or the exception that it raised."""
        token = consuming.set(self)
        try:
            if self._is_coroutine and not self._hooks:
                return await self._call(task)
            return await self._answer(task)
        except BaseException as error:  # whatever it is, it is the listener's answer (CON-01) ...
            if (scope.cancel_called or self._driver.ending) and isinstance(error, anyio.get_cancelled_exc_class()):
                raise  # ... unless it was cancelled because all of this ends
            self._failed(error)
            return error
        finally:
            consuming.reset(token)

    async def _answer(self, task: ConsumeTask) -> object:
        """The same by hooks or in a thread."""
        if self._is_coroutine:
            hearing = self._hooks.begin(task)
            if hearing.wanted:
                with hearing:
                    hearing.result = await self._call(task)
            return hearing.result
        hearing = await anyio.to_thread.run_sync(
            partial(self._hear, task), abandon_on_cancel=True, limiter=self._threads
        )
        if inspect.isawaitable(hearing.result):
            with hearing:
                hearing.result = await hearing.result
        return hearing.result
