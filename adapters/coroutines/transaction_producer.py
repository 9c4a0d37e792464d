"""Producers of messages in transactions whose methods are coroutines; plain functions of listeners run in threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import anyio
import anyio.to_thread

from mqproto.adapters.base.transaction_producer import BaseTransactionProducer
from mqproto.adapters.coroutines.producer import Producer
from mqproto.errors import StateError
from mqproto.hooks import CommunicationMode
from mqproto.message import Message
from mqproto.state.producer.transactions import CheckTask, Half
from mqproto.transactions import TransactionSendResult


class TransactionProducer(BaseTransactionProducer, Producer):
    __doc__ = (
        BaseTransactionProducer.__doc__ or ""
    ) + "Methods of the listener that are no coroutine functions run in threads."

    def _prepare(self) -> None:
        super()._prepare()
        self._turns = anyio.Semaphore(self._transaction_settings.check_thread_pool_max_size)
        self._threads = anyio.CapacityLimiter(self._transaction_settings.check_thread_pool_max_size)

    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Have a broker put the message aside, run the local transaction by `listener.execute(message, argument)`, tell
        the broker.

        The listener runs here and now, and not at all if the broker could not make the message safe: `status` is not
        SEND_OK then and the message is rolled back. An exception of the listener is logged and kept in the result as
        `local_failure`: the state is UNKNOW, and the broker asks `listener.check` later. So it does if the caller is
        cancelled while a coroutine of the listener runs, or if the broker cannot be told, which is logged; a plain
        function is waited for. `timeout_ms` (`send_msg_timeout` unless given) is the budget of the first step. Raises
        as `send`, InvalidMessage also for a delayed message; in all these cases the local transaction has not been run.
        """
        self._lifecycle.check()
        half = await self._put_aside(message, timeout_ms)
        verdict: object = None
        raised: Exception | None = None
        if half.accepted:
            try:
                verdict = await called(self._execute, half.message, argument)
            except Exception as error:  # whatever it is, it says that nobody knows
                self._failed("execute", error)
                raised = error
        ended = self._decided(half, verdict, raised)
        try:
            return await self._driver.wait(self._begin_end, half, ended)
        except StateError:
            return self._untold(ended)

    async def _put_aside(self, message: Message, timeout_ms: int | None) -> Half:
        if not self._hooks.any:
            return await self._driver.wait(self._begin_half, message, timeout_ms)
        context = self._hooks.before(message, None, CommunicationMode.SYNC)
        with self._hooks.around(context):
            half = await self._driver.wait(self._begin_half, cast(Message, context.message), timeout_ms)
            context.result = half.result
        return half

    def _deliver(self, task: object) -> None:
        assert isinstance(task, CheckTask)
        self._driver.soon(self._answer, task)

    async def _answer(self, task: CheckTask) -> None:
        result: object = None
        with self._cancelled_at_close() as scope:
            async with self._turns:
                try:
                    result = await called(self._check, task.message, limiter=self._threads)
                except BaseException as error:  # the same ...
                    if (scope.cancel_called or self._driver.ending) and isinstance(
                        error, anyio.get_cancelled_exc_class()
                    ):
                        raise  # ... unless it was cancelled because all of this ends
                    self._failed("check", error)
                    result = error
            with suppress(StateError):  # closed meanwhile: the broker asks another producer of the group
                self._driver.enter(self._node.checked, task, self._answered(task, result))
            if isinstance(result, KeyboardInterrupt):
                self._driver.interrupted(result)


async def called(
    function: Callable[..., Any], *arguments: object, limiter: anyio.CapacityLimiter | None = None
) -> object:
    """What a function of the listener gives: awaited if it is a coroutine function, else run in a thread.

    With a limiter a thread is left alone when the caller is cancelled, without one it is waited for.
    """
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(*arguments)
    result = await anyio.to_thread.run_sync(
        partial(function, *arguments), abandon_on_cancel=limiter is not None, limiter=limiter
    )
    return await result if inspect.isawaitable(result) else result
