"""Base of pull consumers: the pull consumer and the lite pull consumer (docs/protocol/client.md 5).

Owns: the end of their life, calls of listeners for queues.
Leaves to others: which messages go to the application, and when their offsets move (`pull_consumer`,
`lite_pull_consumer`), queries about queues and offsets (`queue_queries`).

User code runs outside the node: a listener's call goes out as a `ListenerCall` by a `Deliver` action, with no answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.consumer.base import ConsumerBase
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.state.consumer.life import Phase
from mqproto.state.consumer.offsets import OFFSET_TIMEOUT_MS, OffsetFile
from mqproto.state.consumer.pull.queue_queries import QueueQueries
from mqproto.state.consumer.pull.settings import PullingSettings
from mqproto.state.flows.effects import Flow, Wait
from mqproto.state.node.contract import Deliver
from mqproto.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    DirectConsumeResult,
)

#: Called with the topic, all of its queues, and those of this member.
QueueListener: TypeAlias = Callable[[str, tuple[MessageQueue, ...], tuple[MessageQueue, ...]], Any]


@dataclass(slots=True, eq=False)
class ListenerCall:
    """Call of `function(*arguments)` for the client that `listener` stands for.

    Whatever it returns or raises changes nothing here.
    """

    group: str
    listener: Any
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class PullConsumerBase(ConsumerBase, ABC):
    """Pull consumer of either kind. `listener` is the adapter's: it comes back in every `ListenerCall`."""

    settings: PullingSettings

    def __init__(
        self,
        node: ClientNode,
        settings: PullingSettings,
        listener: Any,
        offset_file: OffsetFile | None,
        offset_storage: OffsetStorage | None,
    ) -> None:
        """`settings` are checked, with the group as it travels. Else as `ConsumerBase`."""
        super().__init__(node, settings.group, settings.message_model, offset_file, offset_storage)
        self.listener = listener
        self.queries = QueueQueries(self._node)

    # --- what a kind decides

    @abstractmethod
    def _persist(self, now: int) -> Flow[None]:
        """Store the offsets that are known."""

    @abstractmethod
    def _end(self, now: int) -> None:
        """The consumer is over: forget queues and messages."""

    # --- life

    def shutdown(self, now: int) -> Flow[None]:
        """The end: offsets stored, the group unregistered. Twice is harmless."""
        if self.life.ending:
            yield Wait(self._stopped)
            return
        registered = self.phase is not Phase.CREATED
        self.life.phase = Phase.STOPPING
        for loop in self._loops:
            self.node.cancel(loop, now)
        self._leave(now)
        if registered:
            stored = self.node.spawn(self._persist(now), now)
            _, now = yield Wait(stored, now + OFFSET_TIMEOUT_MS)
            yield from self.node.remove_consumer(self, now)
        self._end(now)
        yield from self._close_trace(now)
        self.life.phase = Phase.STOPPED
        self.node.wake(self._stopped, now)

    def _leave(self, now: int) -> None:
        """The consumer begins to end: wake whoever waits for it."""

    def _call(self, function: Callable[..., Any] | None, *arguments: Any) -> None:
        """Have the adapter call a listener."""
        if function is not None:
            self.node.actions.append(Deliver(ListenerCall(self.group, self.listener, function, arguments)))

    # --- for the node and the brokers

    def heartbeat_data(self) -> ConsumerData:
        """Pull consumers always say that they begin at the end, wherever they do (docs/protocol/client.md 1.7)."""
        settings = self.settings
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            settings.message_model,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            list(self._subscriptions.by_topic.values()),
            settings.unit_mode,
        )

    def consume_directly(
        self, message: MessageExt, broker_name: str, reply: Callable[[bytes, int], None], now: int
    ) -> None:
        """No listener could be given a message of an operator's."""
        remark = f"consumer {self.group} is asked for its messages, it has no listener"
        reply(ConsumeDirectlyResult(result=DirectConsumeResult.CR_THROW_EXCEPTION, remark=remark).to_json(), now)

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """Nothing goes out here that is answered."""
