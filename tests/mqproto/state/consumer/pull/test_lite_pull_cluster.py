"""Lite pull consumers back to back with our name server and brokers, under virtual time and on bad networks."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.errors import MQError, StateError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.lite_pull_consumer import LitePullConsumerCore
from mqproto.state.consumer.pull.pull_consumer import PullConsumerCore
from mqproto.state.consumer.pull.settings import LitePullSettings, PullConsumerSettings
from mqproto.state.node.contract import Ticket
from tests.mqproto.state.consumers import FIRST, numbers
from tests.mqproto.state.town import CALM, Town

#: Broker, queue and offset of a message.
Place = tuple[str, int, int]


def place(message: MessageExt) -> Place:
    return message.broker_name, message.queue_id, message.queue_offset


class Poller:
    """A program that polls, works on what came, and polls again. Only what it has worked on to the end is `done`."""

    def __init__(self, town: Town, seed: int = 0, **settings: Any) -> None:
        self.town = town
        self.host, self.node = town.client()
        self.core = LitePullConsumerCore(
            self.node, LitePullSettings("pollers", consume_from_where=FIRST, **settings), "face"
        )
        self.core.subscribe("T", "*", "TAG", None, town.world.now)
        self.random = random.Random(seed)
        self.longest_ms = 0
        self.working: list[MessageExt] = []
        self.done: list[MessageExt] = []
        self.left = False

    def start(self) -> Poller:
        self.town.run(self.host, self.node, self.core.start)
        self._poll()
        return self

    def _poll(self) -> None:
        self.done += self.working
        self.working = []
        if self.host.alive and not self.left:
            self.host.enter(self._begin)

    def _begin(self, now: int) -> None:
        claim = Claim()
        ticket = self.node.start(self.core.poll(claim, 1_000, None, now), now)
        ticket.wake = lambda: self._came(ticket)

    def _came(self, ticket: Ticket[list[MessageExt]]) -> None:
        with suppress(StateError):  # closed
            self.working = list(ticket.result())
            world = self.town.world
            world.at(world.now + self.random.randint(0, self.longest_ms), self._work_ends)

    def _work_ends(self) -> None:
        if self.host.alive:
            self._poll()

    def close(self) -> None:
        self.left = True
        self.town.run(self.host, self.node, self.core.shutdown)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.done]


class Observer:
    """Asks brokers how far the group is."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.host, self.node = town.client()
        self.core = PullConsumerCore(self.node, PullConsumerSettings("pollers"), "face")
        town.run(self.host, self.node, self.core.start)

    def committed(self) -> dict[MessageQueue, int | None]:
        found = {}
        for queue in self.town.run(self.host, self.node, lambda now: self.core.queries.fetch_queues("T", now)):
            found[queue] = self.town.run(
                self.host,
                self.node,
                lambda now, queue=queue: self.core.fetch_consume_offset(queue, True, now),  # type: ignore[misc]
            )
        return found


def check_commits(town: Town, pollers: list[Poller]) -> None:
    """No stored offset is beyond a message that nobody has worked on to the end."""
    observer = Observer(town)
    done = {place(message) for poller in pollers for message in poller.done}
    for queue, committed in observer.committed().items():
        missing = [
            offset for offset in range(committed or 0) if (queue.broker_name, queue.queue_id, offset) not in done
        ]
        assert not missing, f"{queue} is committed to {committed}, nobody has worked on {missing}"
    town.world.crash(observer.host)


def test_what_is_sent_is_polled_in_order_and_once() -> None:
    town = Town()
    producer = town.producer()
    producer.send("T", *numbers(40))
    poller = Poller(town).start()
    town.world.run_until(lambda: len(poller.done) == 40)
    assert sorted(poller.bodies, key=int) == numbers(40)
    for queue_id in range(4):
        offsets = [message.queue_offset for message in poller.done if message.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))
    sent = town.world.now
    producer.send("T", b"40")
    town.world.run_until(lambda: len(poller.working) + len(poller.done) == 41)
    assert town.world.now - sent <= 200


def test_a_closed_member_hands_over_what_it_has_not_confirmed() -> None:
    town = Town()
    town.producer().send("T", *numbers(40))
    first = Poller(town, pull_batch_size=3)
    first.longest_ms = 300
    first.start()
    town.world.run_until(lambda: len(first.done) >= 10)
    first.close()
    check_commits(town, [first])
    second = Poller(town).start()
    town.world.run_until(lambda: len({*first.bodies, *second.bodies}) == 40, 10_000)
    again = {place(message) for message in first.done} & {place(message) for message in second.done}
    assert not again, "what was confirmed does not come again"


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_is_committed_too_early(seed: int) -> None:
    """Members that come, go and crash in the middle of their work, on a network that delays, splits and cuts."""
    town = Town(seed, SimulatedConditions(delay_max=40, split=0.3, cut=0.004), brokers=2)
    chance = random.Random(seed)
    producer = town.producer()
    sent: list[bytes] = []
    pollers: list[Poller] = []

    def join() -> None:
        poller = Poller(
            town,
            seed + len(pollers),
            pull_batch_size=chance.choice((1, 3, 10)),
            pull_threshold_for_all=chance.choice((5, 10_000)),
        )
        poller.longest_ms = chance.choice((0, 200, 3_000))
        with suppress(MQError):
            poller.start()
        pollers.append(poller)

    join()
    for number in range(40):
        if number in (6, 14, 22):
            join()
        if number in (18, 26):
            leaving = pollers[number // 20]
            if chance.random() < 0.5:
                town.world.crash(leaving.host)
            else:
                with suppress(MQError):
                    leaving.close()
        with suppress(MQError):  # a send may fail on such a network: then nothing is promised
            producer.send("T", b"%d" % number)
            sent.append(b"%d" % number)
        town.world.run_for(500)
    town.world.conditions = CALM
    town.world.run_for(5_000)
    check_commits(town, pollers)
    town.world.run_for(60_000)
    assert set(sent) <= {body for poller in pollers for body in poller.bodies}
    check_commits(town, pollers)


@pytest.mark.parametrize("seed", range(4))
def test_a_world_that_stops_for_a_minute(seed: int) -> None:
    """The process is frozen while brokers take it for dead: it goes on, nothing is lost, nothing committed too
    early.
    """
    town = Town(seed, brokers=2)
    producer = town.producer()
    producer.send("T", *numbers(20))
    pollers = [Poller(town, seed, pull_batch_size=2), Poller(town, seed + 1, pull_batch_size=2)]
    for poller in pollers:
        poller.longest_ms = 500
        poller.start()
    town.world.run_for(2_000)
    frozen = pollers[0]
    frozen.longest_ms = 60_000  # its application sleeps with messages in hand
    producer.send("T", *numbers(20, 20))
    town.world.run_for(180_000)
    frozen.longest_ms = 0
    town.world.run_for(120_000)
    assert {body for poller in pollers for body in poller.bodies} == set(numbers(40))
    check_commits(town, pollers)
