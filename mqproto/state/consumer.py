"""The push consumer: one group of one client node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqproto.state.client import ClientNode
from mqproto.state.consumer_settings import ConsumerSettings
from mqproto.state.consumption import ConsumeTask
from mqproto.state.flows import Flow
from mqproto.state.offsets import OffsetFile
from mqproto.state.rebalance import Averagely, Strategy

__all__ = ["ConsumeTask", "ConsumerCore", "ConsumerSettings"]


class ConsumerCore:
    """A push consumer. Its `listener` is the adapter's: it comes back in every `ConsumeTask`."""

    def __init__(
        self,
        node: ClientNode,
        settings: ConsumerSettings,
        listener: Any,
        *,
        strategy: Strategy | None = None,
        offset_file: OffsetFile | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """Raises InvalidName and InvalidSetting. BROADCASTING needs an `offset_file`; `warn` takes one line for the operator."""
        settings.check()
        self.settings = settings
        self.strategy: Strategy = strategy or Averagely()

    @property
    def group(self) -> str:
        return self.settings.group

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG", *, now: int) -> None:
        """Consume a topic, filtered by tags or (kind "SQL92") by properties. Before or after the start."""
        raise NotImplementedError

    def unsubscribe(self, topic: str, *, now: int) -> None:
        """Stop consuming a topic."""
        raise NotImplementedError

    def start(self, now: int) -> Flow[None]:
        """The start, to be run by `ClientNode.start`."""
        raise NotImplementedError

    def shutdown(self, now: int) -> Flow[None]:
        """The end, to be run by `ClientNode.start`: running deliveries are waited for as set, offsets stored, the group unregistered."""
        raise NotImplementedError

    def suspend(self, now: int) -> None:
        """Stop pulling and rebalancing; what is cached is still delivered."""
        raise NotImplementedError

    def resume(self, now: int) -> None:
        """Go on."""
        raise NotImplementedError

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """See `ConsumeTask`; adapters call `ClientNode.consumed`."""
        raise NotImplementedError
