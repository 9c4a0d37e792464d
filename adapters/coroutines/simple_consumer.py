"""Simple consumers whose methods are coroutines."""

from __future__ import annotations

from functools import partial
from typing import Self

from mqproto.adapters.base.budget import Budget
from mqproto.adapters.base.simple_consumer import BaseSimpleConsumer
from mqproto.adapters.coroutines.subscriber import AsyncSubscriber
from mqproto.errors import StateError
from mqproto.message import MessageExt
from mqproto.state.consumer.push.held_messages import HeldClaim
from mqproto.state.consumer.push.simple_consumer import ClaimExpired


class AsyncSimpleConsumer(BaseSimpleConsumer, AsyncSubscriber):
    __doc__ = BaseSimpleConsumer.__doc__

    def _prepare(self) -> None:
        self._hook_calls = self._new_pool("hooks", 1)

    async def _end(self, timeout_ms: int) -> None:
        try:
            await super()._end(timeout_ms)
        finally:
            self._given_up()

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ClaimExpired)
        if self._hooks:
            self._hook_calls.submit(partial(self._tell, task))

    async def _tell(self, task: ClaimExpired) -> None:
        self._took_too_long(task)

    async def receive(self, timeout_ms: int | None = None) -> MessageExt | None:
        """The next message, as iteration gives it; None when none came within `timeout_ms`, or the consumer is closed.

        Raises StateError before the start. Cancelling takes no message.
        """
        budget = None if timeout_ms is None else Budget(timeout_ms)
        while True:
            if self._lifecycle.closed:
                return None
            self._lifecycle.check()
            # others may run, however many messages are here
            await self._runtime.checkpoint()  # async only
            claim = HeldClaim()
            try:
                message = self._enter(self._take, claim)
                if message is None:
                    message = await self._driver.wait(
                        self._begin_receive, claim, None if budget is None else budget.left_ms()
                    )
                if message is None or self._is_wanted(message, claim):
                    return message
            except StateError as failure:
                self._nothing_comes(failure)
                return None
            except BaseException as error:
                self._interrupted(claim, error)
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message
