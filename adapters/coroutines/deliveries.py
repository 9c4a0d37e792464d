"""Deliveries of push consumers to listeners, which run in tasks, or in threads where they are plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

from mqproto.adapters.base.push_consumer import AT_A_STRETCH, BasePushConsumer, consuming
from mqproto.adapters.base.settings.options import ConsumerOptions
from mqproto.adapters.coroutines.lifetime import is_coroutine_function
from mqproto.adapters.coroutines.subscriber import AsyncSubscriber
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.state.consumer.push.concurrent import ConsumeTask


class WaitingTask:
    """Task that waits for a delivery."""

    __slots__ = ("filled", "task")

    def __init__(self, filled: Callable[[], object]) -> None:
        self.filled = filled
        self.task: ConsumeTask | None = None


class AsyncDeliveries(BasePushConsumer, AsyncSubscriber):
    """Push consumer as far as it calls its listener."""

    def __init__(
        self,
        group: str,
        listener: Callable[..., Any],
        namesrv: str | Sequence[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(group, listener, namesrv, **options)
        self._is_coroutine = is_coroutine_function(listener)

    def _prepare(self) -> None:
        self._idle: list[WaitingTask] = []
        self._threads = self._runtime.threads(self._consumer_settings.consume_thread_min)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End within `timeout_ms`: running listeners get half of it, offsets are stored, the group is unregistered;
        then tasks that still run are cancelled.

        Twice, or before the start, is harmless; so is closing from inside the listener, whose result is dropped.
        """
        await super().close(timeout_ms)

    def _room_for(self, count: int) -> None:
        if self._lifecycle.running:
            self._threads.total_tokens = max(self._threads.total_tokens, count)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ConsumeTask)
        if self._follows(task):
            return
        # waking a task costs a fraction of starting one, and it runs one round of the event loop earlier
        if self._idle:
            place = self._idle.pop()
            place.task = task
            place.filled()
        else:
            self._driver.soon(self._consume, task)

    async def _consume(self, task: ConsumeTask) -> None:
        with self._cancelled_at_close():
            at_a_stretch = 1
            while True:
                answer = await self._heard(task)
                following = self._consumed(self._driver.enter, task, answer)
                if isinstance(answer, KeyboardInterrupt):
                    self._runtime.interrupted(answer)
                if following is None:
                    following = await self._next()
                    if following is None:
                        return
                    at_a_stretch = 0  # others have run meanwhile
                elif at_a_stretch == AT_A_STRETCH:
                    # listeners that wait for nothing must not keep the others from running
                    await self._runtime.checkpoint()
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
        place = WaitingTask(filled)
        self._idle.append(place)
        try:
            await is_filled
        except BaseException:
            if place in self._idle:  # cancelled: all of this ends
                self._idle.remove(place)
            raise
        return place.task

    async def _heard(self, task: ConsumeTask) -> object:
        """The listener's answer, or the exception that it raised."""
        token = consuming.set(self)
        try:
            if self._is_coroutine and not self._hooks:
                return await self._call(task)
            return await self._answer(task)
        except BaseException as error:  # whatever it is, it is the listener's answer (CON-01) ...
            if self._is_cancelled(error):
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
        hearing = await self._runtime.in_thread(partial(self._hear, task), threads=self._threads, abandon=True)
        if inspect.isawaitable(hearing.result):
            with hearing:
                hearing.result = await hearing.result
        return hearing.result
