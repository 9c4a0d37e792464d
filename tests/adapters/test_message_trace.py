"""The message trace of producers and consumers, on every runtime, read back by a consumer of the trace topic."""

from __future__ import annotations

from mqproto import Message
from mqproto.names import TRACE_TOPIC
from tests.adapters.conftest import World
from tests.adapters.harness import Collector


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


def test_a_topic_of_its_own(world: World) -> None:
    producer = world.producer("traced", enable_msg_trace=True, customized_trace_topic="my-traces")
    producer.send(Message(world.topic, b"x"))
    producer.close()
    world.topic = "my-traces"
    assert records(world.collect(), 1)[0][0] == "Pub"
