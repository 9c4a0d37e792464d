"""What consumers that are asked for messages share, for every runtime in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

from mqproto.adapters.base.pull_base import BasePullingConsumer
from mqproto.adapters.sync.client import SyncClient
from mqproto.adapters.sync.runtime import CALLBACKS_AT_A_TIME, AnySendFuture, OpenFuture, Pool
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.base import ListenerCall
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Ticket

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class SyncPullingConsumer(BasePullingConsumer, SyncClient):
    """Listeners for queues are called one at a time, in order, in a thread (greenlet) of the consumer."""

    _listening: Pool
    _callbacks: Pool

    def _prepare(self) -> None:
        self._callbacks = self._new_pool("callbacks", CALLBACKS_AT_A_TIME)
        self._listening = self._new_pool("listener", 1)

    def _wait(self, operation: Callable[[*Ts, int], Flow[R]], *arguments: *Ts) -> R:
        """Run an operation of the core and wait for its end."""
        self._lifecycle.check()
        return self._driver.wait(self._begin, operation, arguments)

    def _later(self, operation: Callable[[*Ts, int], Flow[R]], *arguments: *Ts) -> AnySendFuture[R]:
        """Run an operation of the core; its outcome is in the future."""
        self._lifecycle.check()
        future: OpenFuture[R] = self._runtime.future(self._callbacks, self._driver.outcome)
        self._driver.launch(future.ended, self._begin_later, (future, operation, arguments))
        return future

    def _begin_later(
        self, future: OpenFuture[R], operation: Callable[[*Ts, int], Flow[R]], arguments: tuple[*Ts], now: int
    ) -> Ticket[R]:
        ticket = future.ticket = self._begin(operation, arguments, now)
        return ticket

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ListenerCall)
        self._listening.submit(partial(self._notify, task))

    def _notify(self, task: ListenerCall) -> None:
        try:
            task.function(*task.arguments)
        except BaseException as error:  # whatever it is, it is no reason to end the thread
            self._failed(task, error)
            if isinstance(error, KeyboardInterrupt):
                self._runtime.interrupted(error)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get.

        Raises MQError when its broker cannot be asked, as the next ones.
        """
        return self._wait(self._core.max_offset, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return self._wait(self._core.min_offset, queue)
