"""Pull consumers for the stage, and the calls of listeners of pull consumers."""

from __future__ import annotations

from typing import Any

from mqproto.message import MessageQueue, PullResult
from mqproto.state.consumer.pull.base import ListenerCall
from mqproto.state.consumer.pull.pull_consumer import PullConsumerCore
from mqproto.state.consumer.pull.settings import PullConsumerSettings
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Deliver
from tests.mqproto.state.consumers import File
from tests.mqproto.state.scripted_broker import Cluster, queue_of

Q0, Q1 = queue_of("T"), queue_of("T", 1)


def make(cluster: Cluster, group: str = "g", file: File | None = None, **settings: Any) -> PullConsumerCore:
    return PullConsumerCore(cluster.stage.node, PullConsumerSettings(group=group, **settings), "face", offset_file=file)


def pull(
    consumer: PullConsumerCore,
    queue: MessageQueue,
    expression: str,
    offset: int,
    max_nums: int = 32,
    *,
    kind: str = "TAG",
    block: bool = False,
    timeout_ms: int | None = None,
    now: int = 0,
) -> Flow[PullResult]:
    return consumer.pull(queue, expression, offset, max_nums, kind, block, timeout_ms, now)


def calls(cluster: Cluster) -> list[tuple[Any, ...]]:
    """The listeners' calls so far."""
    found = []
    for action in cluster.stage.delivered:
        assert isinstance(action, Deliver)
        assert isinstance(action.task, ListenerCall)
        assert (action.task.group, action.task.listener) == ("g", "face")
        found.append((action.task.function, *action.task.arguments))
    return found
