"""Base of consumers that pull or poll: what both kinds share and what is independent of waiting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple

from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.hooks.filter_hooks import Filters
from mqproto.adapters.base.settings.client_settings import storage_option, strategy_option, stream_option
from mqproto.adapters.base.settings.options import PullingOptions
from mqproto.adapters.io.files import LocalOffsetFile
from mqproto.consume_hooks import FilterMessageHook
from mqproto.errors import StateError
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.base import ListenerCall, PullConsumerBase
from mqproto.state.consumer.pull.settings import PullingSettings
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import MessageModel

log: Final = logging.getLogger("mqproto.client")

C = TypeVar("C")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class BasePullingConsumer(BaseClient):
    """Consumer that pulls or polls messages for a group."""

    _made: PullConsumerBase | None = None

    def __init__(
        self, kind: str, settings: PullingSettings, namesrv: str | Sequence[str] | None, options: PullingOptions
    ) -> None:
        settings.check()
        self._consumer_settings = settings
        self._filters = Filters(settings.group, unit_mode=settings.unit_mode)
        broadcasts = settings.message_model is MessageModel.BROADCASTING
        super().__init__(kind, namesrv, options, keep_default_name=broadcasts)
        self._settings.stream = stream_option(options)
        self._strategy = strategy_option(options)
        self._storage = storage_option(options)
        self._offset_file: LocalOffsetFile | None = None
        if broadcasts and self._storage is None:
            self._offset_file = self._open_offsets(settings.group, options)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._consumer_settings.group

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have a hook sort messages out before the application gets them, in the thread or task that asks for them;
        what it takes out is consumed.
        """
        self._filters.add(hook)

    @property
    def _core(self) -> PullConsumerBase:
        """Raises StateError before the start."""
        return self._running(self._made)

    def _running(self, core: C | None) -> C:
        if core is None:
            raise StateError(f"consumer {self.group} is not started")
        return core

    def _name(self) -> str:
        return f"mqproto-consumer-{self.group}"

    def _check_open(self) -> None:
        """Raises StateError at the end of life."""
        if self._lifecycle.closed:
            raise StateError(f"consumer {self.group} is closed")

    def _failed(self, task: ListenerCall, error: BaseException) -> None:
        log.warning("a listener for queues of group %s failed", task.group, exc_info=error)

    # Verbs for the driver.

    def _prepare_core(self, now: int) -> None:
        """Pass on to the core what was said before the start."""

    def _begin_start(self, now: int) -> Ticket[None]:
        self._prepare_core(now)
        return self._node.start(self._core.start(now), now, limited=False)

    def _closing(self, now: int) -> Flow[None]:
        return self._core.shutdown(now)

    def _begin(self, operation: Callable[[*Ts, int], Flow[R]], arguments: tuple[*Ts], now: int) -> Ticket[R]:
        return self._node.start(operation(*arguments, now), now)


#: Called with a topic, all of its queues, and those that are this member's.
QueueListener = Callable[[str, tuple[MessageQueue, ...], tuple[MessageQueue, ...]], Any]
#: Called with a topic and its queues.
TopicListener = Callable[[str, tuple[MessageQueue, ...]], Any]
