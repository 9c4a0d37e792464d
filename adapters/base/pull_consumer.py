"""Pull consumers as users see them: what is independent of waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from mqproto.adapters.base.pull_base import BasePullingConsumer, QueueListener
from mqproto.adapters.base.settings.client_settings import pull_consumer_settings
from mqproto.adapters.base.settings.options import PullConsumerOptions
from mqproto.message import MessageQueue, PullResult
from mqproto.state.client.node import ClientNode
from mqproto.state.consumer.pull.pull_consumer import PullConsumerCore
from mqproto.validation import check_topic


class BasePullConsumer(BasePullingConsumer):
    """Consumer that pulls messages of single queues for a group: from where and how many the application says, and it
    keeps the offsets.

    Queues of registered topics, and of those pulled from, are shared out among the members of the group; that is advice
    for whoever asks (`fetch_message_queues_in_balance`), any queue can be pulled. An offset that is set is stored every
    few seconds and at the end; nothing else moves it.
    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR.
    Further settings are Apache's in snake_case (`PullConsumerOptions`). Raises InvalidName and InvalidSetting.
    """

    _made: PullConsumerCore | None = None

    def __init__(
        self, group: str, namesrv: str | Sequence[str] | None = None, **options: Unpack[PullConsumerOptions]
    ) -> None:
        self._pull_settings = pull_consumer_settings(group, options)
        super().__init__("pull consumer", self._pull_settings, namesrv, options)
        #: Registered before the start.
        self._listeners: dict[str, QueueListener | None] = {}

    @property
    def _core(self) -> PullConsumerCore:
        return self._running(self._made)

    def _joined(self, node: ClientNode) -> None:
        super()._joined(node)
        self._made = PullConsumerCore(
            node,
            self._pull_settings,
            self,
            strategy=self._strategy,
            offset_file=self._offset_file,
            offset_storage=self._storage,
        )

    def register_message_queue_listener(self, topic: str, listener: QueueListener | None = None) -> None:
        """Share out the queues of a topic, before or after the start, and have
        `listener(topic, all_queues, own_queues)` called when the share changes. One listener for each topic; the last
        one counts. Raises InvalidName or StateError.
        """
        if self._lifecycle.running:
            self._enter(self._core.register, topic, listener)
        else:
            self._want(topic, listener)

    def fetch_message_queues_in_balance(self, topic: str) -> tuple[MessageQueue, ...]:
        """Our share of a topic that is registered or was pulled from, in queue order; empty while it is not known.

        Does not wait.
        """
        self._lifecycle.check()
        return self._enter(self._queues_in_balance, topic)

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset of a queue (that of the next message to consume); it may go down. Stored every few
        seconds and at the end. Does not wait. Raises ClientError for what is no offset, StateError.
        """
        self._lifecycle.check()
        self._enter(self._core.update_consume_offset, queue, offset)

    def _left_of(self, queue: MessageQueue, found: PullResult) -> PullResult:
        """What came of a pull after the filters."""
        if not self._filters or not found.messages:
            return found
        return replace(found, messages=tuple(self._filters.left_of(queue, list(found.messages))))

    def _want(self, topic: str, listener: QueueListener | None) -> None:
        self._check_open()
        check_topic(topic)
        self._listeners[topic] = listener

    # Verbs for the driver.

    def _prepare_core(self, now: int) -> None:
        for topic, listener in self._listeners.items():
            self._core.register(topic, listener, now)

    def _queues_in_balance(self, topic: str, now: int) -> tuple[MessageQueue, ...]:
        return self._core.queues_in_balance(topic)
