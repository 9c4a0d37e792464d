"""Messages that failed, back to back with our broker: what they are filtered by, what no broker takes back, where they
end.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest

from mqproto.engine.broker.node import BrokerNode
from mqproto.message import Message, MessageExt, MessageQueue
from mqproto.state.admin import AdminCore
from tests.mqproto.state.town import LATER, SUCCESS, Town, town_of_one_queue


@pytest.fixture
def town() -> Town:
    return town_of_one_queue()


def test_properties_that_leave_no_room_for_a_way_back(town: Town) -> None:
    """MSG-03: neither the broker nor the retry topic takes the message back, so it is tried again here, every 5 s, and
    told of.
    """
    producer = town.producer()
    message = Message("T", b"wide", properties={"wide": "v" * 32_600})
    town.run(producer.host, producer.node, lambda now: producer.core.send(message, now))
    tries: list[tuple[int, int]] = []

    def listen(messages: list[MessageExt]) -> object:
        tries.append((messages[0].reconsume_times, town.world.now))
        return LATER if len(tries) < 4 else SUCCESS

    consumer = town.consumer("T", listener=listen).start()
    town.world.run_for(60_000)
    assert [attempt for attempt, _ in tries] == [0, 1, 2, 3]
    assert {len(one.properties["wide"]) for one in consumer.seen} == {32_600}
    assert all(5_000 <= later - former <= 6_000 for (_, former), (_, later) in pairwise(tries))
    assert sum("could not be sent back" in notice for notice in consumer.node.notices) == 3
    consumer.close()
    broker = town.brokers[0].node
    assert isinstance(broker, BrokerNode)
    assert broker.offsets.find("consumers", "T", 0) == 1
    assert {queue.topic for queue in broker.store.queues() if queue.max_offset} == {"T"}, (
        "nothing was stored for the retries"
    )


@pytest.mark.parametrize(("kind", "first", "second"), [("TAG", "A", "B"), ("SQL92", "n = 1", "n = 2")])
def test_a_retry_does_not_depend_on_the_subscription_of_its_topic(
    town: Town, kind: str, first: str, second: str
) -> None:
    """FLT-05: whatever is subscribed by the time it comes back, as with Java."""
    broker = town.brokers[0].node
    assert isinstance(broker, BrokerNode)
    broker.settings.enable_property_filter = True
    producer = town.producer()

    def send(body: bytes, tag: str, number: str) -> None:
        message = Message("T", body, tag, properties={"n": number})
        town.run(producer.host, producer.node, lambda now: producer.core.send(message, now))

    answers = iter([LATER])
    consumer = town.consumer(listener=lambda messages: next(answers, SUCCESS))
    consumer.core.subscribe("T", first, kind, now=town.world.now)
    consumer.start()
    send(b"fails", "A", "1")
    town.world.run_until(lambda: consumer.bodies == [b"fails"])
    consumer.host.enter(lambda now: consumer.core.subscribe("T", second, kind, now=now))
    town.world.run_for(1_000)
    send(b"wanted now", "B", "2")
    town.world.run_for(60_000)
    assert sorted((one.body, one.topic, one.reconsume_times) for one in consumer.seen) == [
        (b"fails", "T", 0),
        (b"fails", "T", 1),
        (b"wanted now", "T", 0),
    ]


@pytest.mark.parametrize("perm", [6, 2])
def test_dead_letters_are_read_and_sent_to_their_topic_again(town: Town, perm: int) -> None:
    """ADM-06: they know their topic, id and attempts; where an old broker made their topic write-only, an operator
    opens it.
    """
    (sent,) = town.producer().send("T", b"bad", tag="A")
    listener = [LATER]
    consumer = town.consumer("T", listener=lambda messages: listener[0], max_reconsume_times=1).start()
    town.world.run_for(120_000)
    assert [one.reconsume_times for one in consumer.seen] == [0, 1]
    host, node = town.client()
    admin = AdminCore(node)
    dead = "%DLQ%consumers"
    town.run(host, node, lambda now: admin.topics.update_perm(dead, perm, broker="192.0.2.10:10911"))
    if perm == 2:
        town.run(host, node, lambda now: admin.topics.update_perm(dead, 6, broker="192.0.2.10:10911"))
    letter = town.run(host, node, lambda now: admin.messages.at(MessageQueue(dead, "broker-a", 0), 0))
    assert (letter.body, letter.tags, letter.msg_id, letter.reconsume_times) == (b"bad", "A", sent.msg_id, 2)
    assert letter.properties["RETRY_TOPIC"] == "T"
    assert letter.properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
    listener[0] = SUCCESS
    again = Message(letter.properties["RETRY_TOPIC"], letter.body, letter.tags)
    producer = town.producer()
    town.run(producer.host, producer.node, partial(producer.core.send, again))
    town.world.run_until(lambda: len(consumer.seen) == 3)
    assert (consumer.seen[-1].topic, consumer.seen[-1].body, consumer.seen[-1].reconsume_times) == ("T", b"bad", 0)
