"""Consumers that are iterated over in tasks."""

from __future__ import annotations

from typing import Self

import anyio.lowlevel

from adapters.anyio.subscriber import AsyncSubscriber
from adapters.faces.budget import Budget
from adapters.faces.consumer import ConsumerFace
from mqproto.errors import StateError
from mqproto.message import MessageExt
from mqproto.state.iterated import Claim


class Consumer(ConsumerFace, AsyncSubscriber):
    __doc__ = ConsumerFace.__doc__

    async def receive(self, timeout_ms: int | None = None) -> MessageExt | None:
        """The next message, as iteration gives it; None when none came within `timeout_ms`, or the consumer is closed.

        Raises StateError before the start. Cancelling takes no message.
        """
        budget = None if timeout_ms is None else Budget(timeout_ms)
        while True:
            if self._life.closed:
                return None
            self._life.check()
            await anyio.lowlevel.checkpoint()  # others may run, however many messages are here
            claim = Claim()
            try:
                message = self._enter(self._take, claim)
                if message is None:
                    message = await self._driver.wait(self._begin_receive, claim, None if budget is None else budget.left_ms())
                if message is None or self._is_wanted(message):
                    return message
            except StateError as failure:
                self._nothing_comes(failure)
                return None
            except BaseException:
                self._interrupted(claim)
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message
