"""Producers of messages in transactions whose methods are coroutines."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import cast

from mqproto.adapters.base.transaction_producer import BaseTransactionProducer
from mqproto.adapters.coroutines.producer import AsyncProducer
from mqproto.errors import StateError
from mqproto.hooks import CommunicationMode
from mqproto.message import Message
from mqproto.state.producer.transactions import CheckTask, Half
from mqproto.transactions import TransactionSendResult


class AsyncTransactionProducer(BaseTransactionProducer, AsyncProducer):
    __doc__ = BaseTransactionProducer.__doc__

    def _prepare(self) -> None:
        super()._prepare()
        self._checks = self._new_pool("checks", self._transaction_settings.check_thread_pool_max_size)

    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Have a broker put the message aside, run the local transaction by `listener.execute(message, argument)`, tell
        the broker.

        The listener runs here and now, and not at all if the broker could not make the message safe: `status` is not
        SEND_OK then and the message is rolled back. An exception of the listener is logged and kept in the result as
        `local_failure`: the state is UNKNOW, and the broker asks `listener.check` later. So it does
        if the caller is cancelled while a coroutine of the listener runs (a plain function is waited for),
        or if the broker cannot be told, which is logged. `timeout_ms` (`send_msg_timeout` unless given) is the budget
        of the first step. Raises as `send`, InvalidMessage also for a delayed message; in all these cases the local
        transaction has not been run.
        """
        self._lifecycle.check()
        half = await self._put_aside(message, timeout_ms)
        verdict: object = None
        raised: Exception | None = None
        if half.accepted:
            try:
                verdict = await self._called(self._execute, half.message, argument)
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
        self._checks.submit(partial(self._answer, task))

    async def _answer(self, task: CheckTask) -> None:
        result: object
        try:
            result = await self._called(self._check, task.message, pool=self._checks)
        except BaseException as error:  # whatever it is, even SystemExit, it ends this question and nothing else
            # it was cancelled because all of this ends
            if self._is_cancelled(error):  # async only
                raise
            self._failed("check", error)
            result = error
        with suppress(StateError):  # closed meanwhile: the broker asks another producer of the group
            self._driver.enter(self._node.producers.checked, task, self._answered(task, result))
        if isinstance(result, KeyboardInterrupt):
            self._runtime.interrupted(result)
