"""Base of consumers that pull or poll, whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

from mqproto.adapters.base.pull_base import BasePullingConsumer
from mqproto.adapters.coroutines.client import AsyncClient
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.base import ListenerCall
from mqproto.state.flows.effects import Flow

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class AsyncPullingConsumer(BasePullingConsumer, AsyncClient):
    """Consumer that pulls or polls. Its listeners for queues are called beside the application, one at a time."""

    def _prepare(self) -> None:
        self._listening = self._new_pool("listener", 1)

    async def _wait(self, operation: Callable[[*Ts, int], Flow[R]], *arguments: *Ts) -> R:
        """Run an operation of the core and wait for its end. Cancelling gives it up."""
        self._lifecycle.check()
        return await self._driver.wait(self._begin, operation, arguments)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ListenerCall)
        self._listening.submit(partial(self._notify, task))

    async def _notify(self, task: ListenerCall) -> None:
        try:
            await self._called(task.function, *task.arguments, pool=self._listening)
        except BaseException as error:  # whatever it is, it ends nothing else
            # it was cancelled because all of this ends
            if self._is_cancelled(error):  # async only
                raise
            self._failed(task, error)
            if isinstance(error, KeyboardInterrupt):
                self._runtime.interrupted(error)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get.

        Raises MQError when its broker cannot be asked, as the next ones.
        """
        return await self._wait(self._core.queries.max_offset, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await self._wait(self._core.queries.min_offset, queue)
