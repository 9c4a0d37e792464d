"""Consumer for tests of the node around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.flows.effects import Flow, Sleep
from mqproto.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData
from tests.mqproto.state.stage import TOPIC


class Consumer:
    """Consumer that only records what it hears."""

    def __init__(self, node: ClientNode, group: str = "cg", topics: tuple[str, ...] = (TOPIC,)) -> None:
        self.node = node
        self.group = group
        self._topics = topics
        self.seen: list[tuple[Any, ...]] = []
        self.answers: list[Callable[[bytes, int], None]] = []
        self.shutdown_ms = 0

    def heartbeat_data(self) -> ConsumerData:
        subscriptions = [SubscriptionData(topic, "*") for topic in self._topics]
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscriptions,
        )

    def topics(self) -> tuple[str, ...]:
        return self._topics

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        self.seen.append(("queues", topic, len(queues), now))

    def consumer_ids_changed(self, now: int) -> None:
        self.seen.append(("ids", now))

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        self.seen.append(("reset", topic, dict(offsets)))

    def offsets(self) -> Mapping[MessageQueue, int]:
        return {MessageQueue(TOPIC, "a", 0): 5, MessageQueue("other", "a", 0): 6}

    def running_info(self, now: int) -> bytes:
        return b'{"properties":{}}'

    def consume_directly(
        self, message: MessageExt, broker_name: str, answer: Callable[[bytes, int], None], now: int
    ) -> None:
        self.seen.append(("direct", message.body, message.topic, broker_name))
        self.answers.append(answer)

    def consumed(self, task: Any, result: Any, now: int) -> None:
        self.seen.append(("consumed", result))

    def shutdown(self, now: int) -> Flow[None]:
        if self.shutdown_ms:
            _, now = yield Sleep(now + self.shutdown_ms)
        self.seen.append(("shutdown", now))
        yield from self.node.remove_consumer(self, now)
