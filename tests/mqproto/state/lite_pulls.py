"""Lite pull consumers for the stage."""

from __future__ import annotations

from typing import Any

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.lite_pull_consumer import LitePullConsumerCore
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.state.node.contract import Ticket
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import FIRST, File
from tests.mqproto.state.scripted_broker import Cluster, queue_of

Q0, Q1 = queue_of("T"), queue_of("T", 1)


def pulls(cluster: Cluster, queue_id: int = 0) -> list[int]:
    """The offsets that a queue was pulled from."""
    return [
        int(one.fields["queueOffset"])
        for one in cluster.requests(RequestCode.PULL_MESSAGE)
        if one.fields["queueId"] == str(queue_id)
    ]


def make(
    cluster: Cluster, *topics: str, group: str = "g", file: File | None = None, **settings: Any
) -> LitePullConsumerCore:
    consumer = LitePullConsumerCore(
        cluster.stage.node, LitePullSettings(group=group, **settings), "face", offset_file=file
    )
    for topic in topics:
        consumer.subscribe(topic, "*", "TAG", None, cluster.stage.now)
    return consumer


def polling(cluster: Cluster, *topics: str, **settings: Any) -> LitePullConsumerCore:
    """A started consumer that begins at the first message."""
    cluster.stage.begin()
    consumer = make(cluster, *topics, **{"consume_from_where": FIRST, **settings})
    cluster.start(consumer)
    return consumer


def assigned(cluster: Cluster, *queues: MessageQueue, **settings: Any) -> LitePullConsumerCore:
    """A started consumer with these queues, from the first message on."""
    cluster.stage.begin()
    consumer = make(cluster, **{"consume_from_where": FIRST, **settings})
    consumer.assign(queues, cluster.stage.now)
    cluster.start(consumer)
    return consumer


def begin_poll(
    cluster: Cluster, consumer: LitePullConsumerCore, timeout_ms: int = 0, limit: int | None = None
) -> Ticket[list[MessageExt]]:
    return cluster.stage.start(consumer.poll(Claim(), timeout_ms, limit, cluster.stage.now))


def poll(cluster: Cluster, consumer: LitePullConsumerCore, limit: int | None = None) -> list[bytes]:
    """The bodies of what is there."""
    return [message.body for message in begin_poll(cluster, consumer, 0, limit).result()]


def poll_all(cluster: Cluster, consumer: LitePullConsumerCore) -> list[bytes]:
    """Poll until nothing is there."""
    bodies: list[bytes] = []
    while found := poll(cluster, consumer):
        bodies += found
    return bodies
