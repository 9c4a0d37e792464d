"""Order in whole clusters: who has a queue while members come and go, and how long."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.adapters.simulated import Cluster, checks
from mqproto.message import ConsumeStatus, Message, MessageQueue
from mqproto.wire.bodies import ConsumeFromWhere


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_nobody_gets_a_queue_whose_listener_runs_longer_than_a_lock_lasts(strategy: str) -> None:
    """A lock lasts 60 s at a broker. A queue that moves in the middle of a message stays locked until its listener has
    ended, then it is the other's at once.
    """
    cluster = Cluster(1)
    producer = cluster.producer("shop")
    producer.send(Message("orders", b"makes the topic"))
    options: dict[str, Any] = {
        "topics": ("orders",),
        "orderly": True,
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "allocate_message_queue_strategy": strategy,
    }
    first = cluster.consumer("clerks", lambda messages: ConsumeStatus.SUCCESS, takes_ms=150_000, **options).start()
    for _ in range(2):
        for number in range(4):
            producer.send(Message("orders", b"x"), queue=MessageQueue("orders", "broker-a", number))
    cluster.run_for(3_000)
    assert len(first.messages) == 4
    first.takes_ms = 0
    second = cluster.consumer("clerks", lambda messages: ConsumeStatus.SUCCESS, **options).start()
    cluster.run_for(3_000)
    assert [queue for queue in second.queues if queue.topic == "orders"]
    cluster.run_for(140_000)
    assert second.messages == []
    assert checks.alone(cluster) == []
    cluster.run_for(10_000)
    assert len(second.messages) >= 2
    cluster.run_for(30_000)
    assert checks.at_rest(cluster) == []
