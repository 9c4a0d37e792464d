"""What docs/clients.md says under "What is promised" and the tests of single machines cannot show: whole clusters under
virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from mqproto import ConsumeFromWhere, Message, MessageExt, MessageQueue, SendResult, select_by_hash
from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.engine.broker.node import BrokerNode
from mqproto.message import ConsumeStatus
from mqproto.state.admin import AdminCore
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.node.contract import Deliver, Ticket
from tests.mqproto.state.consumers import numbers
from tests.mqproto.state.town import LATER, SUCCESS, Consumer, Town, town_of_one_queue


@pytest.fixture
def town() -> Town:
    return town_of_one_queue()


def broker(town: Town) -> BrokerNode:
    node = town.brokers[0].node
    assert isinstance(node, BrokerNode)
    return node


def stored(town: Town, topic: str) -> int:
    """How many messages the broker has in the queues of a topic."""
    return sum(queue.max_offset for queue in broker(town).store.queues() if queue.topic == topic)


def cut(town: Town, host: str) -> None:
    """Break the links between a host and the broker, so that nothing under way arrives; new ones can be made."""
    town.world.part(host, "broker-a")
    town.world.heal()


def committed(town: Town, group: str = "consumers") -> int | None:
    return broker(town).offsets.find(group, "T", 0)


def consumed(consumer: Consumer) -> list[bytes]:
    return [one.body for one in consumer.seen if one.topic == "T"]


class Ledger:
    """What an application keeps in one database: effects, and in the same transaction how far each queue is."""

    def __init__(self) -> None:
        self.booked: list[tuple[MessageQueue, bytes]] = []
        self.places: dict[MessageQueue, int] = {}
        self.repeated = 0

    def book(self, message: MessageExt) -> None:
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        if message.queue_offset < self.places.get(queue, 0):
            self.repeated += 1
        else:
            self.booked.append((queue, message.body))
            self.places[queue] = message.queue_offset + 1

    def read(self, group: str, queue: MessageQueue) -> int | None:
        return self.places.get(queue)

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """It is saved already."""


def keep_offsets(consumer: Consumer, ledger: Ledger) -> None:
    """Have a consumer that has not started keep its offsets there."""
    consumer.core = PushConsumerCore(consumer.node, replace(consumer.core.settings), "listener", offset_storage=ledger)
    consumer.core.subscribe("T", now=consumer.town.world.now)


def test_a_send_whose_answer_is_lost_may_be_stored_twice_under_one_id(town: Town) -> None:
    producer = town.producer()
    producer.send("T", b"before")
    found: list[Ticket[SendResult]] = []
    producer.host.enter(lambda now: found.append(producer.node.start(producer.core.send(Message("T", b"x"), now), now)))
    town.world.run_until(lambda: stored(town, "T") == 2)
    cut(town, producer.host.name)
    town.world.run_until(lambda: found[0].settled)
    assert stored(town, "T") == 3
    consumer = town.consumer("T").start()
    town.world.run_until(lambda: len(consumer.seen) == 3)
    twice = [one for one in consumer.seen if one.body == b"x"]
    assert [one.msg_id for one in twice] == [found[0].result().msg_id] * 2
    assert len({(one.queue_id, one.queue_offset) for one in twice}) == 2


def test_what_a_killed_process_repeats(town: Town) -> None:
    """Nothing is lost; again comes what was finished since offsets were stored, which is seconds ago, and nothing
    older.
    """
    producer = town.producer()
    producer.send("T", *numbers(10))
    killed = Consumer(town, ("T",), lambda messages: SUCCESS, {}, takes_ms=20).start()
    town.world.run_until(lambda: len(killed.seen) == 10)
    town.world.run_for(15_000)
    assert committed(town) == 10
    producer.send("T", *numbers(3, 10))
    town.world.run_until(lambda: len(killed.seen) == 13)
    town.world.crash(killed.host)
    heir = town.consumer("T").start()
    producer.send("T", b"13")
    town.world.run_until(lambda: b"13" in consumed(heir))
    again = consumed(heir)[:-1]
    assert again, "the offset was not stored yet"
    assert again == numbers(13)[-len(again) :]
    assert len(again) <= 3
    assert {one.msg_id for one in heir.seen if one.body != b"13"} <= {one.msg_id for one in killed.seen}


def test_a_message_in_work_holds_the_offset_for_all_that_is_behind_it(town: Town) -> None:
    producer = town.producer()
    producer.send("T", *numbers(5))
    slow = town.consumer("T")
    deliver = slow.host.on_deliver
    assert deliver is not None

    def all_but_one(action: Deliver) -> None:
        assert isinstance(action.task, ConsumeTask)
        if action.task.messages[0].body != b"1":
            deliver(action)

    slow.host.on_deliver = all_but_one
    slow.start()
    town.world.run_until(lambda: len(slow.seen) == 4)
    town.world.run_for(30_000)
    assert committed(town) == 1
    slow.close()
    heir = town.consumer("T").start()
    town.world.run_until(lambda: len(heir.seen) == 4)
    assert consumed(heir) == numbers(4, 1)


def test_closing_repeats_nothing_that_was_finished(town: Town) -> None:
    producer = town.producer()
    producer.send("T", *numbers(5))
    first = town.consumer("T").start()
    town.world.run_until(lambda: len(first.seen) == 5)
    first.close()
    assert committed(town) == 5, "long before the time of the first store"


def test_a_message_that_is_taken_back_and_its_answer_lost_comes_again_twice(town: Town) -> None:
    town.producer().send("T", b"bad")
    answers = iter([LATER])

    def listen(messages: list[MessageExt]) -> ConsumeStatus:
        return next(answers, SUCCESS)

    consumer = town.consumer("T", listener=listen).start()
    town.world.run_until(lambda: stored(town, "SCHEDULE_TOPIC_XXXX") == 1)
    cut(town, consumer.host.name)
    town.world.run_for(60_000)
    assert [(one.body, one.topic, one.reconsume_times) for one in consumer.seen] == [
        (b"bad", "T", 0),
        (b"bad", "T", 1),
        (b"bad", "T", 1),
    ]
    assert len({one.msg_id for one in consumer.seen}) == 1


def test_dead_letters_can_be_consumed_and_other_groups_notice_nothing(town: Town) -> None:
    (sent,) = town.producer().send("T", b"bad")
    other = town.consumer("T", group="others").start()
    failing = town.consumer("T", listener=lambda messages: LATER, max_reconsume_times=1).start()
    gravedigger = town.consumer("%DLQ%consumers", group="gravediggers").start()
    town.world.run_for(120_000)
    assert [one.reconsume_times for one in failing.seen] == [0, 1]
    assert [(one.topic, one.body, one.msg_id) for one in gravedigger.seen] == [("%DLQ%consumers", b"bad", sent.msg_id)]
    assert consumed(other) == [b"bad"]


def add_queues(town: Town) -> None:
    host, node = town.client()
    topics = AdminCore(node).topics
    town.run(host, node, lambda now: topics.create("T", broker="192.0.2.10:10911", read_queues=8, write_queues=8))


@pytest.mark.parametrize("asks_the_broker", [True, False])
def test_a_queue_that_is_added_is_read_from_its_beginning(town: Town, asks_the_broker: bool) -> None:
    """Also by a group that begins at the end of queues: what is sent before its members know of the queue is not passed
    over. Unless it keeps its offsets itself: then no broker is asked.
    """
    producer = town.producer()
    consumer = town.consumer("T", consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    if not asks_the_broker:
        keep_offsets(consumer, Ledger())
    consumer.start()
    town.world.run_for(2_000)
    producer.send("T", b"0")
    town.world.run_until(lambda: consumed(consumer) == [b"0"])
    town.world.run_for(15_000)
    add_queues(town)
    town.producer().send("T", *numbers(20, 1))
    assert len(consumed(consumer)) < 21, "it does not know of the new queues yet"
    town.world.run_for(60_000)
    assert (sorted(consumed(consumer), key=int) == numbers(21)) is asks_the_broker


def test_an_ordered_member_that_stands_still_does_not_hold_its_queue_for_ever(town: Town) -> None:
    """The lock is gone after a minute: then another member begins with what the frozen one is in the middle of."""
    producer = town.producer()
    producer.send("T", *numbers(3))
    frozen = town.consumer("T", orderly=True)
    frozen.takes_ms = 600_000
    frozen.start()
    town.world.run_for(3_000)
    town.world.freeze(frozen.host)
    stopped = town.world.now
    other = town.consumer("T", orderly=True).start()
    town.world.run_until(lambda: consumed(other) == numbers(3), 300_000)
    assert town.world.now - stopped > 55_000
    assert not frozen.seen, "its listener has not ended"
    town.world.run_until(lambda: bool(frozen.seen), 600_000)
    frozen.takes_ms = 0
    town.world.thaw(frozen.host)
    producer.send("T", *numbers(3, 3))
    town.world.run_until(lambda: set(consumed(frozen) + consumed(other)) == set(numbers(6)), 60_000)
    for member in (frozen, other):
        assert consumed(member) == sorted(consumed(member)), "in order, whatever is repeated"


def test_a_key_may_go_to_another_queue_when_queues_are_added() -> None:
    four = [MessageQueue("T", "b", number) for number in range(4)]
    message = Message("T", b"x")
    keys = [f"order-{number}" for number in range(100)]
    assert all(select_by_hash(four, message, key) is select_by_hash(four, message, key) for key in keys)
    assert any(
        select_by_hash(four, message, key) is not select_by_hash([*four, MessageQueue("T", "b", 4)], message, key)
        for key in keys
    )


@pytest.mark.parametrize("seed", range(6))
def test_an_ordered_consumer_with_effects_and_offsets_in_one_place_has_each_effect_once(seed: int) -> None:
    """Members are killed and frozen at any moment; each message is booked once, and those of a queue in order."""
    town = Town(seed, SimulatedConditions(delay_max=40, split=0.2))
    random = Random(seed)
    producer, ledger = town.producer(), Ledger()

    def member() -> Consumer:
        def book(messages: list[MessageExt]) -> ConsumeStatus:
            for message in messages:
                ledger.book(message)
            return random.choice([SUCCESS, SUCCESS, SUCCESS, LATER])  # it may fail when all is done

        made = town.consumer("T", listener=book, orderly=True, suspend_current_queue_time_millis=100)
        made.takes_ms = random.choice([0, 300])
        keep_offsets(made, ledger)
        return made.start()

    members = [member(), member()]
    for number in range(60):
        producer.send("T", b"%d" % number)
        town.world.run_for(random.randrange(600))
        if number % 15 == 14:
            leaving = members.pop(0)
            if random.random() < 0.5:
                town.world.freeze(leaving.host)
                town.world.run_for(70_000)
                town.world.thaw(leaving.host)
            town.world.crash(leaving.host)
            members.append(member())
    town.world.run_for(120_000)
    assert sorted((body for _, body in ledger.booked), key=int) == numbers(60)
    for queue in ledger.places:
        mine = [int(body) for one, body in ledger.booked if one == queue]
        assert mine == sorted(mine)
    assert ledger.repeated
