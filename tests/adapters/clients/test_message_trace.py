"""The message trace of producers and consumers, on every runtime, read back by a consumer of the trace topic."""

from __future__ import annotations

from mqproto import ConsumeFromWhere, Message
from mqproto.wire.names import TRACE_TOPIC
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Collector

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def records(collector: Collector, count: int) -> list[list[str]]:
    """The first records that came, as fields."""

    def found() -> list[list[str]]:
        return [text.split("\x01") for body in collector.bodies() for text in body.decode().split("\x02") if text]

    messages = 1
    while len(found()) < count:
        collector.wait(messages)
        messages += 1
    return found()


def test_sends_and_deliveries_are_told(world: World) -> None:
    """TRC-03: what was told last is there although the client closes at once."""
    producer = world.producer("traced", enable_msg_trace=True)
    sent = [
        producer.send(Message(world.topic, b"x", tags="tag", keys="key")),
        producer.send([Message(world.topic, b"y"), Message(world.topic, b"z")]),
    ]
    producer.close()
    topic, world.topic = world.topic, TRACE_TOPIC
    collector = world.collect(group="reads-traces")
    found = records(collector, 3)
    assert [(one[0], one[3], one[4], one[6], one[7], one[13]) for one in found] == [
        ("Pub", "traced", topic, "tag", "key", "true"),
        *[("Pub", "traced", topic, "null", "null", "true")] * 2,
    ]
    assert [one[5] for one in found] == [sent[0].msg_id, *sent[1].msg_id.split(",")]
    world.topic = topic
    world.collect(enable_msg_trace=True).wait(3)
    consumed = records(collector, 9)[3:]
    assert sorted(one[0] for one in consumed) == ["SubAfter"] * 3 + ["SubBefore"] * 3
    assert {one[5] for one in consumed if one[0] == "SubBefore"} == {one[5] for one in found}


def test_polls_are_told(world: World) -> None:
    """With the poll that hands a message out and with the next one; the last one's messages are not done with."""
    producer = world.producer()
    first = producer.send(Message(world.topic, b"x", keys="key"))
    second = producer.send(Message(world.topic, b"y"), queue=first.queue)
    consumer = world.make(
        world.runtime.module.LitePullConsumer, "polls", world.namesrv, enable_msg_trace=True, consume_from_where=FIRST
    )
    consumer.subscribe(world.topic)
    consumer.start()
    for body in (b"x", b"y"):
        (message,) = consumer.poll(int(PATIENCE * 1000), max_messages=1)
        assert message.body == body
    consumer.close()
    world.topic = TRACE_TOPIC
    before, after, last = records(world.collect(group="reads-traces"), 3)
    assert (before[0], before[3], before[5], before[7]) == ("SubBefore", "polls", first.msg_id, "key")
    assert (after[0], after[1], after[2], after[4], after[8]) == ("SubAfter", before[4], first.msg_id, "true", "polls")
    assert (last[0], last[5]) == ("SubBefore", second.msg_id)


def test_a_topic_of_its_own(world: World) -> None:
    producer = world.producer("traced", enable_msg_trace=True, customized_trace_topic="my-traces")
    producer.send(Message(world.topic, b"x"))
    producer.close()
    world.topic = "my-traces"
    assert records(world.collect(), 1)[0][0] == "Pub"
