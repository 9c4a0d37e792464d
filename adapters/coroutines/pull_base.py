"""What consumers that are asked for messages share, where methods are coroutines."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from mqproto.adapters.base.pull_base import BasePullingConsumer
from mqproto.adapters.coroutines.client import AsyncClient
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.base import ListenerCall
from mqproto.state.flows.effects import Flow

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class AsyncPullingConsumer(BasePullingConsumer, AsyncClient):
    """Listeners for queues are called one at a time, in order: in a task, or in a thread where they are no coroutine
    functions.
    """

    def _prepare(self) -> None:
        self._turn = anyio.Lock()

    async def _wait(self, operation: Callable[[*Ts, int], Flow[R]], *arguments: *Ts) -> R:
        """Run an operation of the core and wait for its end. Cancelling gives it up."""
        self._lifecycle.check()
        return await self._driver.wait(self._begin, operation, arguments)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ListenerCall)
        self._driver.soon(self._notify, task)

    async def _notify(self, task: ListenerCall) -> None:
        with self._cancelled_at_close() as scope:
            try:
                async with self._turn:
                    await _call(task)
            except BaseException as error:  # whatever it is, it ends no other task ...
                if (scope.cancel_called or self._driver.ending) and isinstance(error, anyio.get_cancelled_exc_class()):
                    raise  # ... unless it was cancelled because all of this ends
                self._failed(task, error)
                if isinstance(error, KeyboardInterrupt):
                    self._driver.interrupted(error)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get.

        Raises MQError when its broker cannot be asked, as the next ones.
        """
        return await self._wait(self._core.max_offset, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await self._wait(self._core.min_offset, queue)


async def _call(task: ListenerCall) -> None:
    listener = task.function
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(getattr(listener, "__call__", None)):  # noqa: B004
        await listener(*task.arguments)
        return
    result = await anyio.to_thread.run_sync(partial(listener, *task.arguments), abandon_on_cancel=True)
    if inspect.isawaitable(result):
        await result
