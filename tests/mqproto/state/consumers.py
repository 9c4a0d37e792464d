"""Push consumers for the stage, with scripted brokers around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqproto.message import ConsumeStatus
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.wire.bodies import ConsumeFromWhere
from tests.mqproto.state.scripted_broker import Cluster

LATER = ConsumeStatus.RECONSUME_LATER
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class File:
    """A local offset file in memory."""

    def __init__(self, main: bytes | None = None) -> None:
        self.main = main
        self.backup: bytes | None = None

    def save(self, text_of: Callable[[bytes | None], str], *, set_aside: bool) -> File:
        self.main = text_of(self.main).encode()
        return self

    def run(self) -> None: ...


def numbers(count: int, start: int = 0) -> list[bytes]:
    """Bodies that tell messages apart."""
    return [b"%d" % number for number in range(start, start + count)]


def make(
    cluster: Cluster, *topics: str, group: str = "g", file: File | None = None, **settings: Any
) -> PushConsumerCore:
    consumer = PushConsumerCore(
        cluster.stage.node, ConsumerSettings(group=group, **settings), "listener", offset_file=file
    )
    for topic in topics:
        consumer.subscribe(topic, now=cluster.stage.now)
    return consumer


def consuming(cluster: Cluster, *topics: str, **settings: Any) -> PushConsumerCore:
    """A started consumer that begins at the first message."""
    cluster.stage.begin()
    consumer = make(cluster, *topics, **{"consume_from_where": FIRST, **settings})
    cluster.start(consumer)
    return consumer
