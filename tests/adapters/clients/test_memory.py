"""Nothing piles up in a client, however much it sends, fails to send and receives: on every runtime, counted in objects
(PRO-07).
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from mqproto import Message
from mqproto.errors import InvalidName, MQError
from mqproto.wire.bodies import ConsumeFromWhere
from tests.adapters.conftest import World
from tests.adapters.harness import Anyio
from tests.adapters.io.test_lifecycle import NOWHERE

#: So many of each kind, after as many to warm up; a leak of one object of ours for each of them is seen.
COUNT = 300
#: Deadlines that were cancelled are swept now and then: so many operations more may be remembered
#: (`mqproto.state.node.deadlines`).
SLACK = 100
#: What these hold (frames of failures, most of all), and the time limits of dials.
OTHERS = COUNT * 4


def everything(world: World) -> Callable[[], Any]:
    """A function, or coroutine function, that sends, fails and receives COUNT times each."""
    module = world.runtime.module
    producer = world.producer()._target
    lost = world.start(module.Producer, "lost", NOWHERE)._target
    producer_topic = world.topic
    world.runtime.call(producer.send, Message(producer_topic, b"makes the topic"))
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = world.make(module.Consumer, world.group, world.namesrv, consume_from_where=first)
    consumer.subscribe(producer_topic)
    consumer.start()
    source = consumer._target

    def plain() -> None:
        for number in range(COUNT):
            producer.send(Message(producer_topic, b"%d" % number))
            producer.submit(Message(producer_topic, b"%d" % number)).add_done_callback(lambda future: future.result())
            for client, topic, error in ((lost, producer_topic, MQError), (producer, "no topic!", InvalidName)):
                with pytest.raises(error):
                    client.send(Message(topic, b"x"), timeout_ms=1)
            for _ in range(2):
                assert source.ack(next(source))
        producer.flush()

    async def task() -> None:
        import anyio

        for number in range(COUNT):
            await producer.send(Message(producer_topic, b"%d" % number))
            with anyio.CancelScope() as scope:
                scope.cancel()
                await producer.send(Message("another", b"cancelled"))
            for client, topic, error in ((lost, producer_topic, MQError), (producer, "no topic!", InvalidName)):
                with pytest.raises(error):
                    await client.send(Message(topic, b"x"), timeout_ms=1)
            assert source.ack(await anext(source))
        with suppress(MQError):
            await producer.flush()

    return task if isinstance(world.runtime, Anyio) else plain


def census(world: World) -> Counter[str]:
    world.runtime.call(lambda: None)
    gc.collect()
    return Counter(f"{type(found).__module__}.{type(found).__name__}" for found in gc.get_objects())


def test_object_counts_stay_flat(world: World) -> None:
    run = everything(world)
    world.runtime.call(run)
    before = census(world)
    world.runtime.call(run)
    more = census(world) - before
    ours = {kind: count for kind, count in more.items() if kind.startswith(("mqproto", "adapters"))}
    assert max(ours.values(), default=0) <= SLACK, more.most_common(5)
    assert max(more.values(), default=0) < OTHERS, more.most_common(5)
