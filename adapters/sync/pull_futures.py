"""Methods of consumers that pull or poll and give futures, for every runtime in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

from mqproto.adapters.base.lite_pull_consumer import Offsets
from mqproto.adapters.sync.lite_pull_consumer import SyncLitePullConsumer
from mqproto.adapters.sync.pull_base import SyncPullingConsumer
from mqproto.adapters.sync.pull_consumer import SyncPullConsumer
from mqproto.adapters.sync.runtime import CALLBACKS_AT_A_TIME, AnySendFuture, OpenFuture, Pool
from mqproto.message import MessageQueue, PullResult
from mqproto.state.consumer.pull.pull_consumer import PULL_MAX_NUMS
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Ticket

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class PullingFutures(SyncPullingConsumer):
    """Consumer that can also pull or commit without waiting for the outcome."""

    _callbacks: Pool

    def _prepare(self) -> None:
        self._callbacks = self._new_pool("callbacks", CALLBACKS_AT_A_TIME)
        super()._prepare()

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


class LitePullFutures(PullingFutures, SyncLitePullConsumer):
    __doc__ = SyncLitePullConsumer.__doc__

    def commit_async(self, offsets: Offsets = None) -> AnySendFuture[None]:
        """As `commit_sync`, without waiting: the outcome is in the future.

        Its callbacks run in threads (greenlets) of the consumer.
        """
        return self._later(self._core.commit_sync, offsets)


class PullFutures(PullingFutures, SyncPullConsumer):
    __doc__ = SyncPullConsumer.__doc__

    def pull_async(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int = PULL_MAX_NUMS,
        *,
        kind: str = "TAG",
        timeout_ms: int | None = None,
    ) -> AnySendFuture[PullResult]:
        """As `pull`, without waiting: the outcome is in the future, whose callbacks run in threads (greenlets) of the
        consumer.
        """
        return self._filtered(
            queue, self._later(self._core.pull, queue, expression, offset, max_nums, kind, False, timeout_ms)
        )

    def pull_block_if_not_found_async(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int = PULL_MAX_NUMS,
        *,
        kind: str = "TAG",
        timeout_ms: int | None = None,
    ) -> AnySendFuture[PullResult]:
        """As `pull_block_if_not_found`, without waiting: the outcome is in the future."""
        return self._filtered(
            queue, self._later(self._core.pull, queue, expression, offset, max_nums, kind, True, timeout_ms)
        )

    def _filtered(self, queue: MessageQueue, future: AnySendFuture[PullResult]) -> AnySendFuture[PullResult]:
        """The future of what the filters leave; they run where callbacks do."""
        if not self._filters:
            return future
        left: OpenFuture[PullResult] = self._runtime.future(self._callbacks, self._driver.outcome)
        future.add_done_callback(partial(self._pass_on, queue, left))
        return left

    def _pass_on(self, queue: MessageQueue, left: OpenFuture[PullResult], found: AnySendFuture[PullResult]) -> None:
        try:
            result = self._left_of(queue, found.result())
        except BaseException as failure:  # nobody may wait for ever because of it
            left.set_exception(failure)
        else:
            left.set_result(result)
