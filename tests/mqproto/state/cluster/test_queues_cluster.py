"""Queues that come, go and change their owners, back to back with our broker."""

from __future__ import annotations

from collections import Counter

import pytest

from mqproto.message import Message, MessageQueue
from mqproto.state.admin import AdminCore
from tests.mqproto.state.town import Consumer, Town

BROKER = "192.0.2.10:10911"


def resize(town: Town, read: int, write: int) -> None:
    host, node = town.client()
    topics = AdminCore(node).topics
    town.run(host, node, lambda now: topics.create("T", broker=BROKER, read_queues=read, write_queues=write))


def fill(town: Town, each: int) -> None:
    """As many messages in each of eight queues."""
    producer = town.producer()
    for queue_id in range(8):
        batch = [Message("T", b"%d/%d" % (queue_id, number)) for number in range(each)]
        queue = MessageQueue("T", "broker-a", queue_id)
        town.run(
            producer.host,
            producer.node,
            lambda now, batch=batch, queue=queue: producer.core.send_batch(batch, now, queue=queue),  # type: ignore[misc]
        )


def everything(each: int) -> set[bytes]:
    return {b"%d/%d" % (queue_id, number) for queue_id in range(8) for number in range(each)}


def test_queues_that_are_hidden_keep_their_messages_until_they_are_shown_again() -> None:
    """REB-05: 8 queues, then 4, then 8, then 16 to read and 12 to write; changes are seen within one refresh and one
    rebalance.
    """
    town = Town()
    resize(town, 8, 8)
    fill(town, 10)
    resize(town, 4, 4)
    consumer = town.consumer("T").start()
    town.world.run_for(60_000)
    assert Counter(one.queue_id for one in consumer.seen) == dict.fromkeys(range(4), 10)
    resize(town, 8, 8)
    town.world.run_until(lambda: len(consumer.seen) == 80, 50_000)
    assert set(consumer.bodies) == everything(10)
    resize(town, 16, 12)
    town.world.run_until(lambda: consumer.queues == 16, 50_000)
    producer = town.producer()
    queues = town.run(producer.host, producer.node, lambda now: producer.core.publish_queues("T", now))
    assert [queue.queue_id for queue in queues] == list(range(12))


@pytest.mark.parametrize("silently", [False, True])
def test_members_that_are_killed_again_and_again(silently: bool) -> None:
    """CON-17: 3,000 messages, two members, ten kills and restarts in turn, then one stays dead.

    `silently`: its machine loses power.
    """
    town = Town()
    resize(town, 8, 8)
    fill(town, 375)
    members: list[Consumer] = [town.consumer("T") for _ in range(2)]
    began = town.world.now
    for member in members:
        member.start()
    town.world.run_until(lambda: bool(members[0].seen), 3_000)
    seen: set[bytes] = set()
    for kill in range(10):
        dying = members[kill % 2]
        town.world.crash(dying.host, silently=silently)
        seen |= set(dying.bodies)
        members[kill % 2] = town.consumer("T").start()
        town.world.run_for(700)
    survivor, dying = members
    town.world.crash(dying.host, silently=silently)
    died = town.world.now
    town.world.run_until(lambda: survivor.queues == 8, 140_000)
    assert town.world.now - died <= (140_000 if silently else 1_000)
    town.world.run_until(lambda: everything(375) <= seen | set(dying.bodies) | set(survivor.bodies), 5_000)
    assert town.world.now - began < 170_000
