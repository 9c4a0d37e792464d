"""Base of push and simple consumers, which fetch ahead: what is independent of waiting and of listeners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.settings.client_settings import consumer_settings, storage_option, strategy_option
from mqproto.adapters.base.settings.options import ConsumerOptions
from mqproto.adapters.io.files import LocalOffsetFile
from mqproto.adapters.io.identity import utc_offset_ms
from mqproto.errors import StateError
from mqproto.message import MessageExt
from mqproto.state.client.node import ClientNode
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.subscriptions import check_subscription
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import MessageModel
from mqproto.wire.names import wrap_namespace


class BaseSubscriber(BaseClient):
    """A consumer whose queues are shared out among the members of its group, and whose messages are fetched ahead."""

    _core_class: ClassVar[type[PushConsumerCore]] = PushConsumerCore
    _core: PushConsumerCore

    def __init__(self, group: str, namesrv: str | Sequence[str] | None, options: ConsumerOptions) -> None:
        settings = self._consumer_settings = consumer_settings(group, options)
        settings.check()
        broadcasts = settings.message_model is MessageModel.BROADCASTING
        super().__init__("consumer", namesrv, options, keep_default_name=broadcasts)
        self._strategy = strategy_option(options)
        self._storage = storage_option(options)
        self._offset_file: LocalOffsetFile | None = None
        #: What was subscribed before the start: expression and kind by topic.
        self._wanted: dict[str, tuple[str, str]] = {}
        if broadcasts and self._storage is None:
            self._offset_file = self._open_offsets(group, options)

    def _joined(self, node: ClientNode) -> None:
        super()._joined(node)
        self._core = self._core_class(
            node,
            self._consumer_settings,
            self,
            strategy=self._strategy,
            offset_file=self._offset_file,
            offset_storage=self._storage,
            utc_offset_ms=utc_offset_ms(),
        )

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._consumer_settings.group

    def _name(self) -> str:
        return f"mqproto-consumer-{self.group}"

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Receive a topic, filtered by tags (`a || b`), or by properties with kind "SQL92". Before or after the start.

        Replaces what was said of the topic before. Raises InvalidName, InvalidExpressionError or StateError.
        """
        if self._lifecycle.running:
            self._enter(self._subscribe, topic, expression, kind)
            return
        if self._lifecycle.closed:
            raise StateError(f"consumer {self.group} is closed")
        check_subscription(wrap_namespace(self._settings.namespace, topic), expression, kind)
        self._wanted[topic] = expression, kind

    def unsubscribe(self, topic: str) -> None:
        """Receive a topic no longer. An unknown one is no error."""
        if self._lifecycle.running:
            self._enter(self._unsubscribe, topic)
        else:
            self._wanted.pop(topic, None)

    def suspend(self) -> None:
        """Fetch no more messages; those that are here are still delivered."""
        self._lifecycle.check()
        self._enter(self._suspend)

    def resume(self) -> None:
        """Fetch messages again."""
        self._lifecycle.check()
        self._enter(self._resume)

    def _resize(self, count: int) -> None:
        """Let `count` deliveries be with the application at once."""
        if self._lifecycle.running:
            self._enter(self._update_core_pool_size, count)
        else:
            self._consumer_settings.resize(count)

    # Verbs for the driver.

    def _begin_start(self, now: int) -> Ticket[None]:
        for topic, (expression, kind) in self._wanted.items():
            self._core.subscribe(topic, expression, kind, now=now)
        return self._node.start(self._core.start(now), now)

    def _closing(self, now: int) -> Flow[None]:
        return self._core.shutdown(now)

    def _subscribe(self, topic: str, expression: str, kind: str, now: int) -> None:
        self._core.subscribe(topic, expression, kind, now=now)

    def _unsubscribe(self, topic: str, now: int) -> None:
        self._core.unsubscribe(topic, now=now)

    def _suspend(self, now: int) -> None:
        self._core.suspend(now)

    def _resume(self, now: int) -> None:
        self._core.resume(now)

    def _update_core_pool_size(self, count: int, now: int) -> None:
        self._core.update_core_pool_size(count, now)

    def _begin_send_back(
        self, message: MessageExt, delay_level: int, broker_name: str | None, now: int
    ) -> Ticket[None]:
        return self._node.start(self._core.send_message_back(message, delay_level, broker_name, now), now)

    def _begin_reset(self, topic: str, timestamp: int, now: int) -> Ticket[None]:
        return self._node.start(self._core.reset_to_time(topic, timestamp, now), now)
