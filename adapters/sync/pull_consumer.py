"""Pull consumers for every runtime in which waiting is a plain call."""

from __future__ import annotations

from functools import partial

from mqproto.adapters.base.pull_consumer import BasePullConsumer
from mqproto.adapters.sync.pull_base import SyncPullingConsumer
from mqproto.adapters.sync.runtime import AnySendFuture, OpenFuture
from mqproto.message import MessageExt, MessageQueue, PullResult
from mqproto.state.consumer.pull.pull import PULL_MAX_NUMS


class SyncPullConsumer(BasePullConsumer, SyncPullingConsumer):
    __doc__ = BasePullConsumer.__doc__

    def pull(
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
            queue, self._wait(self._core.pull, queue, expression, offset, max_nums, kind, False, timeout_ms)
        )

    def pull_block_if_not_found(
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
            queue, self._wait(self._core.pull, queue, expression, offset, max_nums, kind, True, timeout_ms)
        )

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

    def fetch_subscribe_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All readable queues of a topic, asked of a name server now.

        Raises NoRoute, NoNameServer, BrokerError (17: no such topic).
        """
        return self._wait(self._core.fetch_queues, topic)

    def update_consume_offset_to_broker(self, queue: MessageQueue, offset: int, oneway: bool = False) -> None:
        """Set the group's offset and store it now: with the broker's answer, whose failure is raised, or `oneway`."""
        self._wait(self._core.commit, queue, offset, oneway)

    def fetch_consume_offset(self, queue: MessageQueue, from_store: bool = False) -> int | None:
        """The group's offset of a queue: the one in memory, else (with `from_store` always) the stored one; None when
        there is none.

        Raises MQError when that cannot be known now.
        """
        return self._wait(self._core.fetch_consume_offset, queue, from_store)

    def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message that was stored at `timestamp` (wall milliseconds) or later, as the broker
        finds it.
        """
        return self._wait(self._core.search_offset, queue, timestamp)

    def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message that is still there was stored, in wall milliseconds; -1 for an empty queue."""
        return self._wait(self._core.earliest_msg_store_time, queue)

    def send_message_back(
        self,
        message: MessageExt,
        delay_level: int = 0,
        broker_name: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """Let a message come again later, to this group or another: by the broker that stored it, or as a new message
        where that fails.

        `delay_level` -1 makes it a dead letter, 0 leaves the time to the broker, else it is a level of the broker's
        table. After `max_reconsume_times` times it is a dead letter. Raises InvalidName, and MQError when both ways
        failed.
        """
        self._wait(self._core.send_message_back, message, delay_level, broker_name, consumer_group)
