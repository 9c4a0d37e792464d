"""Producers and consumers back to back with our name server and broker, under virtual time."""

from __future__ import annotations

from contextlib import suppress

import pytest

from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.errors import MQError
from mqproto.message import MessageExt
from tests.mqproto.state.consumers import numbers
from tests.mqproto.state.town import CALM, LATER, SUCCESS, Town


@pytest.fixture
def town() -> Town:
    return Town()


def test_what_is_sent_is_consumed(town: Town) -> None:
    """CON-17: the first message is there within 3 s."""
    results = town.producer().send("T", *numbers(20))
    consumer = town.consumer("T").start()
    began = town.world.now
    town.world.run_until(lambda: len(consumer.seen) >= 20)
    assert town.world.now - began <= 3_000
    assert sorted(consumer.bodies, key=int) == numbers(20)
    assert {one.msg_id for one in consumer.seen} == {one.msg_id for one in results}
    assert {(one.queue_id, one.queue_offset) for one in consumer.seen} == {
        (one.queue.queue_id, one.queue_offset) for one in results
    }
    assert all(one.broker_name == "broker-a" and one.topic == "T" for one in consumer.seen)


def test_messages_that_come_later_are_pushed_at_once(town: Town) -> None:
    """CON-19."""
    producer = town.producer()
    producer.send("T", b"first")
    consumer = town.consumer("T").start()
    town.world.run_until(lambda: consumer.bodies == [b"first"])
    town.world.run_for(20_000)
    producer.send("T", b"second")
    sent = town.world.now
    town.world.run_until(lambda: consumer.bodies == [b"first", b"second"])
    assert town.world.now - sent <= 100


def test_tags_are_filtered(town: Town) -> None:
    producer = town.producer()
    producer.send("T", b"red", tag="red")
    producer.send("T", b"blue", tag="blue")
    consumer = town.consumer()
    consumer.core.subscribe("T", "red || green", now=town.world.now)
    consumer.start()
    producer.send("T", b"green", tag="green")
    town.world.run_for(30_000)
    assert sorted(consumer.bodies) == [b"green", b"red"]


def test_a_failed_message_comes_again_after_ten_seconds_as_itself(town: Town) -> None:
    """CON-01, CON-10: attempt number 1, topic `T`, the id it had; and only that message."""
    producer = town.producer()
    (bad,) = producer.send("T", b"bad")
    producer.send("T", b"good")
    failures = iter([ValueError("boom")])

    def listen(messages: list[MessageExt]) -> object:
        return next(failures, SUCCESS) if messages[0].body == b"bad" else SUCCESS

    consumer = town.consumer("T", listener=listen).start()
    town.world.run_until(lambda: len(consumer.seen) == 2)
    failed = town.world.now
    town.world.run_until(lambda: len(consumer.seen) == 3)
    again = consumer.seen[-1]
    assert (again.body, again.topic, again.reconsume_times, again.msg_id) == (b"bad", "T", 1, bad.msg_id)
    assert 10_000 <= town.world.now - failed <= 32_000
    town.world.run_for(60_000)
    assert len(consumer.seen) == 3


def test_a_message_that_always_fails_ends_with_the_dead_letters(town: Town) -> None:
    """CON-13."""
    town.producer().send("T", b"bad")
    consumer = town.consumer("T", listener=lambda messages: LATER, max_reconsume_times=2).start()
    town.world.run_for(600_000)
    assert [one.reconsume_times for one in consumer.seen] == [0, 1, 2]


def test_a_new_member_takes_its_share_and_the_last_one_everything(town: Town) -> None:
    """Nothing is lost on the way, and at the end nothing is consumed twice that was committed."""
    producer = town.producer()
    producer.send("T", b"0")
    first = town.consumer("T").start()
    town.world.run_until(lambda: first.bodies == [b"0"])
    assert first.queues == 4
    second = town.consumer("T").start()
    town.world.run_until(lambda: (first.queues, second.queues) == (2, 2), 5_000)
    producer.send("T", *numbers(16, 1))
    town.world.run_until(lambda: len(first.seen) + len(second.seen) == 17, 5_000)
    assert len(second.seen) >= 4
    first.close()
    town.world.run_until(lambda: second.queues == 4, 5_000)
    producer.send("T", *numbers(8, 17))
    town.world.run_until(lambda: len(first.seen) + len(second.seen) == 25, 5_000)
    assert sorted(first.bodies + second.bodies, key=int) == numbers(25)


def test_progress_is_kept_over_a_restart(town: Town) -> None:
    producer = town.producer()
    producer.send("T", *numbers(10))
    first = town.consumer("T").start()
    town.world.run_until(lambda: len(first.seen) == 10)
    first.close()
    producer.send("T", *numbers(5, 10))
    second = town.consumer("T").start()
    town.world.run_until(lambda: len(second.seen) == 5)
    town.world.run_for(30_000)
    assert sorted(second.bodies, key=int) == numbers(5, 10)


def test_a_member_that_dies_is_replaced_at_once(town: Town) -> None:
    """CON-17: the broker sees the connection end; what the dead one had not finished comes to the other."""
    producer = town.producer()
    producer.send("T", b"0")
    survivor = town.consumer("T").start()
    dying = town.consumer("T")
    dying.takes_ms = 3_600_000
    dying.start()
    town.world.run_until(lambda: dying.queues == 2, 5_000)
    producer.send("T", *numbers(12, 1))
    town.world.run_for(1_000)
    town.world.crash(dying.host)
    town.world.run_until(lambda: survivor.queues == 4, 5_000)
    town.world.run_until(lambda: sorted(set(survivor.bodies), key=int) == numbers(13), 5_000)


def test_a_broker_that_is_killed_and_starts_again_is_found_again(town: Town) -> None:
    """What had been consumed and committed does not come again, what had not been does, and new messages follow."""
    producer = town.producer()
    producer.send("T", *numbers(4))
    consumer = town.consumer("T").start()
    town.world.run_until(lambda: len(consumer.seen) == 4)
    town.world.run_for(21_000)
    files = town.files["broker-a"].process_death()
    town.world.crash(town.brokers[0])
    town.world.run_for(5_000)
    town.add_broker("broker-a", "192.0.2.10", files)
    town.world.run_for(3_000)
    producer.send("T", *numbers(4, 4))
    town.world.run_until(lambda: len(consumer.seen) >= 8, 10_000)
    town.world.run_for(60_000)
    assert sorted(consumer.bodies, key=int) == numbers(8)


def test_order_holds_while_members_come_and_go(town: Town) -> None:
    """ORD-01: first message and takeover under 3 s; of each queue everything in order."""
    producer = town.producer()
    producer.send("T", *numbers(12))
    first = town.consumer("T", orderly=True)
    first.takes_ms = 50
    began = town.world.now
    first.start()
    town.world.run_until(lambda: bool(first.seen))
    assert town.world.now - began < 3_000
    second = town.consumer("T", orderly=True)
    second.takes_ms = 50
    second.start()
    town.world.run_until(lambda: (first.queues, second.queues) == (2, 2), 10_000)
    producer.send("T", *numbers(20, 12))
    town.world.run_for(5_000)
    first.close()
    closed = town.world.now
    producer.send("T", *numbers(8, 32))
    town.world.run_until(lambda: len({one.body for one in first.seen + second.seen}) == 40, 10_000)
    assert town.world.now - closed < 3_000
    for member in (first, second):
        for queue_id in range(4):
            offsets = [one.queue_offset for one in member.seen if one.queue_id == queue_id]
            assert offsets == sorted(set(offsets))


def test_a_dead_members_locks_run_out(town: Town) -> None:
    """ORD-05: kill -9; the lock of the broker lasts 60 s, then one round of 20 s."""
    producer = town.producer()
    producer.send("T", *numbers(8))
    dying = town.consumer("T", orderly=True)
    dying.takes_ms = 3_600_000
    dying.start()
    town.world.run_for(3_000)
    survivor = town.consumer("T", orderly=True).start()
    town.world.crash(dying.host)
    died = town.world.now
    town.world.run_until(lambda: len(survivor.seen) == 8, 90_000)
    assert town.world.now - died <= 80_000


@pytest.mark.parametrize("seed", range(8))
def test_many_members_on_a_bad_network_see_everything(seed: int) -> None:
    """Whatever the network does, every acknowledged message is consumed, and in the end each queue has one owner."""
    town = Town(seed, SimulatedConditions(delay_max=40, split=0.3, cut=0.004), brokers=2)
    producer = town.producer()
    sent: list[bytes] = []
    members = [town.consumer("T").start()]
    for number in range(30):
        if number in (8, 16):
            members.append(town.consumer("T").start())
        if number == 22:
            members[0].close()
        with suppress(MQError):  # a send may fail on such a network: then nothing is promised
            producer.send("T", b"%d" % number)
            sent.append(b"%d" % number)
        town.world.run_for(500)
    town.world.conditions = CALM
    town.world.run_for(60_000)
    assert set(sent) <= {body for member in members for body in member.bodies}
    shares = [{queue for queue in member.core._assignment.queues if queue.topic == "T"} for member in members[1:]]
    assert len(shares[0] | shares[1]) == len(shares[0]) + len(shares[1]) == 8
