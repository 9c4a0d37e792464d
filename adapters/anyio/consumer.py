"""Consumers that are iterated over in tasks."""

from __future__ import annotations

import time
from typing import Self

import anyio.lowlevel

from adapters.anyio.subscriber import AsyncSubscriber
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
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self._is_wanted(message := await self._received(timeout_ms)):
            if until is not None:
                timeout_ms = max(0, round((until - time.monotonic()) * 1000))
        return message

    async def _received(self, timeout_ms: int | None) -> MessageExt | None:
        """The same before the filters."""
        if self._life.closed:
            return None
        self._life.check()
        await anyio.lowlevel.checkpoint()  # others may run, however many messages are here
        claim = Claim()
        try:
            message = self._enter(self._take, claim)
            return message if message is not None else await self._driver.wait(self._begin_receive, claim, timeout_ms)
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
