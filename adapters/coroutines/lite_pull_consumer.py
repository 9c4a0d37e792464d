"""Lite pull consumers whose methods are coroutines."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from mqproto.adapters.base.budget import Budget
from mqproto.adapters.base.lite_pull_consumer import BaseLitePullConsumer, Offsets
from mqproto.adapters.coroutines.pull_base import AsyncPullingConsumer
from mqproto.errors import StateError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.pull.in_hand import Claim


class AsyncLitePullConsumer(BaseLitePullConsumer, AsyncPullingConsumer):
    __doc__ = BaseLitePullConsumer.__doc__

    async def poll(self, timeout_ms: int | None = None, *, max_messages: int | None = None) -> list[MessageExt]:
        """The next messages of one queue, as many as a pull brought (`pull_batch_size`), or at most `max_messages`.

        Waits for up to `timeout_ms` (`poll_timeout_millis` unless given; 0 does not wait); an empty list when nothing
        came, or when the consumer was closed meanwhile. With `auto_commit` it also says that what was handed out before
        is done with. Raises StateError when the consumer does not run.
        """
        self._lifecycle.check()
        budget = Budget(self._poll_timeout(timeout_ms))
        while True:
            claim = Claim()
            # others may run, however many messages are there
            await self._runtime.checkpoint()  # async only
            try:
                messages = self._driver.enter(self._core.poll_now, claim, max_messages)
                if not messages and (left_ms := budget.left_ms()):
                    messages = await self._driver.wait(self._begin, self._core.poll, (claim, left_ms, max_messages))
                left = self._filters.left_of_any(messages)
            except BaseException:  # cancelled or interrupted: what came in this very moment was not handed out
                with suppress(StateError):
                    self._driver.enter(self._put_back, claim)
                raise
            if left or not messages or not budget.left_ms():
                return left

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        """The next message, which also says that the one before is done with. Ends when the consumer is closed."""
        while True:
            try:
                messages = await self.poll(max_messages=1)
            except StateError:
                if self._lifecycle.closed:
                    raise StopAsyncIteration from None
                raise
            if messages:
                return messages[0]

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset with the next poll; what is fetched ahead is dropped. With `auto_commit` the next poll
        commits it too.

        Raises StateError when the queue is not ours, ClientError for an offset outside of it, MQError when its broker
        cannot be asked.
        """
        await self._wait(self._core.seek, queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message that is still there. As `seek`."""
        await self._wait(self._core.seek_to_begin, queue)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on at the message that comes next. As `seek`."""
        await self._wait(self._core.seek_to_end, queue)

    async def commit_sync(self, offsets: Offsets = None) -> None:
        """As `commit`, and wait until the offsets are stored; raises the first failure of a broker. (Apache's only sets
        them in memory.)
        """
        await self._wait(self._core.commit_sync, offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset of any queue; None when there is none. Raises MQError when that cannot be known now."""
        return await self._wait(self._core.committed, queue)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message that was stored at `timestamp` (wall milliseconds) or later."""
        return await self._wait(self._core.queries.search_offset, queue, timestamp)

    async def fetch_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All readable queues of a topic, asked of a name server now.

        Raises NoRoute, NoNameServer, BrokerError (17: no such topic).
        """
        return await self._wait(self._core.queries.fetch_queues, topic)
