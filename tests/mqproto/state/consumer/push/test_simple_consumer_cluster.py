"""Simple consumers, with our name server and brokers, under virtual time: members that come, go, die and forget."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.errors import MQError
from mqproto.message import MessageExt
from mqproto.state.consumer.push.held_messages import HeldClaim
from mqproto.state.consumer.push.simple_consumer import SimpleConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import ConsumeFromWhere
from tests.mqproto.state.consumers import numbers
from tests.mqproto.state.town import CALM, Town

#: Places of a member; the rest waits at the brokers.
PLACES = 4


class Member:
    """Two tasks that receive: each works on a message for a while and then settles it, or forgets it."""

    def __init__(self, town: Town, random: random.Random, **settings: Any) -> None:
        self.town = town
        self.random = random
        self.host, self.node = town.client()
        self.host.on_deliver = lambda _: None  # what is said of messages that it forgets
        given = {
            "group": "consumers",
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            "consume_timeout": 1,
            **settings,
        }
        self.core = SimpleConsumerCore(self.node, ConsumerSettings(consume_thread_min=PLACES, **given), "face")
        self.core.subscribe("T", now=town.world.now)
        #: What counted as acknowledged, in order.
        self.acked: list[MessageExt] = []
        self.forgets = 0.0
        self.most_out = 0

    def start(self, tasks: int = 2) -> Member:
        self.town.run(self.host, self.node, self.core.start)
        for _ in range(tasks):
            self._receive_next()
        return self

    def _receive_next(self) -> None:
        def begin(now: int) -> None:
            ticket: Ticket[MessageExt | None] = self.node.start(self.core.held.receive(HeldClaim(), None, now), now)
            ticket.wake = lambda: self._got(ticket)
            if ticket.settled:
                self._got(ticket)

        if self.host.alive:
            with suppress(MQError):
                self.host.enter(begin)

    def _got(self, ticket: Ticket[MessageExt | None]) -> None:
        message = ticket.result() if ticket.failure is None else None
        self.most_out = max(self.most_out, len(self.core.held.taken))
        if message is not None:
            world = self.town.world
            world.at(world.now + self.random.randint(1, 60), lambda: self._settle(message))

    def _settle(self, message: MessageExt) -> None:
        if not self.host.alive:
            return
        choice = self.random.random()
        if choice >= self.forgets + 0.1:
            self.host.enter(lambda now: self._ack(message, now))
        elif choice >= self.forgets:
            self.host.enter(lambda now: self._refuse(message, now))
        self._receive_next()

    def _ack(self, message: MessageExt, now: int) -> None:
        if self.core.ack(message, now):
            self.acked.append(message)

    def _refuse(self, message: MessageExt, now: int) -> None:
        self.core.retry_later(message, now, 1)

    def close(self) -> None:
        self.town.run(self.host, self.node, self.core.shutdown)

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.acked]


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_everything_is_acknowledged_whatever_members_do(seed: int, orderly: bool) -> None:
    """Messages are lost by nobody: not by a member that dies, is closed, forgets, or loses a queue while it works."""
    town = Town(seed, SimulatedConditions(delay_max=40, split=0.3, cut=0.003), brokers=2)
    dice = random.Random(seed)
    producer = town.producer()
    sent: list[bytes] = []
    members = [Member(town, dice, orderly=orderly).start()]
    members[0].forgets = 0.05
    for number in range(36):
        if number in (6, 12, 18):
            members.append(Member(town, dice, orderly=orderly).start())
        if number == 22:
            members[1].close()
        if number == 28:
            town.world.crash(members[2].host)
        with suppress(MQError):  # a send may fail on such a network: then nothing is promised
            producer.send("T", b"%d" % number)
            sent.append(b"%d" % number)
        town.world.run_for(400)
    town.world.conditions = CALM
    members[0].forgets = 0.0
    town.world.run_for(240_000)
    left = members[0], members[3]
    assert set(sent) <= {body for member in members for body in member.bodies}
    assert all(member.most_out <= PLACES for member in members)
    shares = [{queue for queue in member.core._assignment.queues if queue.topic == "T"} for member in left]
    assert len(shares[0] | shares[1]) == len(shares[0]) + len(shares[1]) == 8
    assert all(not member.core.held.taken and not member.core.held.waiting for member in left)


@pytest.mark.parametrize("seed", range(4))
def test_in_order_each_member_acknowledges_a_queue_in_order(seed: int) -> None:
    town = Town(seed)
    dice = random.Random(seed)
    producer = town.producer()
    producer.send("T", *numbers(16))
    first = Member(town, dice, orderly=True).start(tasks=3)
    town.world.run_for(3_000)
    second = Member(town, dice, orderly=True).start(tasks=3)
    producer.send("T", *numbers(24, 16))
    town.world.run_for(10_000)
    first.close()
    producer.send("T", *numbers(8, 40))
    town.world.run_for(60_000)
    for member in (first, second):
        for queue_id in range(4):
            offsets = [
                one.queue_offset for one in member.acked if one.queue_id == queue_id and not one.topic.startswith("%")
            ]
            assert offsets == sorted(offsets)
    assert {*first.bodies, *second.bodies} == set(numbers(48))


def test_a_closed_member_hands_over_what_it_had_not_acknowledged() -> None:
    town = Town()
    producer = town.producer()
    producer.send("T", *numbers(8))
    first = Member(town, random.Random(1)).start(tasks=0)
    town.world.run_for(2_000)
    taken: list[MessageExt] = []

    def work(now: int) -> None:
        taken.extend(message for _ in range(3) if (message := first.core.held.take(HeldClaim(), now)) is not None)
        first._ack(taken[0], now)

    first.host.enter(work)
    assert len(taken) == 3
    first.close()
    second = Member(town, random.Random(1)).start()
    town.world.run_for(20_000)
    assert set(second.bodies) == set(numbers(8)) - {taken[0].body}


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("still_ms", [60_000, 200_000])
def test_a_member_that_stands_still_loses_nothing(still_ms: int, orderly: bool) -> None:
    """It wakes with messages in work whose queues may be another's by then: after 120 s its broker has given it up."""
    town = Town()
    dice = random.Random(still_ms)
    producer = town.producer()
    producer.send("T", *numbers(16))
    sleeper = Member(town, dice, orderly=orderly).start()
    other = Member(town, dice, orderly=orderly).start()
    town.world.run_until(
        lambda: len(other.core._assignment.queues) > 1 and len(sleeper.core._assignment.queues) > 1, 10_000
    )
    producer.send("T", *numbers(24, 16))
    town.world.run_until(lambda: bool(sleeper.core.held.taken), 5_000)
    town.world.freeze(sleeper.host)
    town.world.run_for(still_ms)
    producer.send("T", *numbers(8, 40))
    town.world.thaw(sleeper.host)
    town.world.run_for(120_000)
    assert {*sleeper.bodies, *other.bodies} == set(numbers(48))
    shares = [{queue for queue in member.core._assignment.queues if queue.topic == "T"} for member in (sleeper, other)]
    assert len(shares[0] | shares[1]) == len(shares[0]) + len(shares[1]) == 4
    producer.send("T", *numbers(8, 48))
    town.world.run_for(60_000)
    assert {*sleeper.bodies, *other.bodies} == set(numbers(56))
