"""Pull consumers whose methods are coroutines."""

from __future__ import annotations

from mqproto.adapters.base.pull_consumer import BasePullConsumer
from mqproto.adapters.coroutines.pull_base import AsyncPullingConsumer
from mqproto.message import MessageExt, MessageQueue, PullResult
from mqproto.state.consumer.pull.pull_consumer import PULL_MAX_NUMS


class AsyncPullConsumer(BasePullConsumer, AsyncPullingConsumer):
    __doc__ = BasePullConsumer.__doc__

    async def pull(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int = PULL_MAX_NUMS,
        *,
        kind: str = "TAG",
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Up to `max_nums` messages of a queue from `offset` on, filtered by tags (`a || b`, `*`) or, with kind
        "SQL92", by properties.

        Comes back at once, also with nothing; `timeout_ms` (`consumer_pull_timeout_millis` unless given) is how long
        the broker may need. What the result says of the next offset is not kept anywhere. Raises
        InvalidExpressionError, ClientError for arguments that make no sense, NoRoute, BrokerError, CallExpired and
        other MQErrors, RecordError when the first message found cannot be read (its `queue_offset` tells which one to
        step over), StateError when the consumer does not run.
        """
        return self._left_of(
            queue, await self._wait(self._core.pull, queue, expression, offset, max_nums, kind, False, timeout_ms)
        )

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        max_nums: int = PULL_MAX_NUMS,
        *,
        kind: str = "TAG",
        timeout_ms: int | None = None,
    ) -> PullResult:
        """As `pull`, but at the end of the queue the broker waits for a message, for up to
        `broker_suspend_max_time_millis`.

        With a `timeout_ms` (else `consumer_timeout_millis_when_suspend`) it waits for at most two thirds of that.
        """
        return self._left_of(
            queue, await self._wait(self._core.pull, queue, expression, offset, max_nums, kind, True, timeout_ms)
        )

    async def fetch_subscribe_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All readable queues of a topic, asked of a name server now.

        Raises NoRoute, NoNameServer, BrokerError (17: no such topic).
        """
        return await self._wait(self._core.queries.fetch_queues, topic)

    async def update_consume_offset_to_broker(self, queue: MessageQueue, offset: int, oneway: bool = False) -> None:
        """Set the group's offset and store it now: with the broker's answer, whose failure is raised, or `oneway`."""
        await self._wait(self._core.commit, queue, offset, oneway)

    async def fetch_consume_offset(self, queue: MessageQueue, from_store: bool = False) -> int | None:
        """The group's offset of a queue: the one in memory, else (with `from_store` always) the stored one; None when
        there is none.

        Raises MQError when that cannot be known now.
        """
        return await self._wait(self._core.fetch_consume_offset, queue, from_store)

    async def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message that was stored at `timestamp` (wall milliseconds) or later."""
        return await self._wait(self._core.queries.search_offset, queue, timestamp)

    async def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message that is still there was stored, in wall milliseconds; -1 for an empty queue."""
        return await self._wait(self._core.queries.earliest_msg_store_time, queue)

    async def send_message_back(
        self,
        message: MessageExt,
        delay_level: int = 0,
        broker_name: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """Let a message come again later, to this group or another: by the broker that stored it, or as a new message
        where that fails.

        `delay_level` -1 makes it a dead letter, 0 leaves the time to the broker, else it is a level of the broker's
        table. After `max_reconsume_times` times it is a dead letter. Raises InvalidName, MQError when both ways failed.
        """
        await self._wait(self._core.send_message_back, message, delay_level, broker_name, consumer_group)
