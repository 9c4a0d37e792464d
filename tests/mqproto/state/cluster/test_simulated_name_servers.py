"""Name servers that die, fall silent, come back and are replaced, by seed: a send finds its way as long as one of the
list answers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

import pytest

from mqproto.codec import Command
from mqproto.errors import CallExpired, ConnectFailed, ConnectionLost, MQError, NoNameServer
from mqproto.message import Message, SendStatus
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.stage import Peer, Stage, broker, route, success

SERVERS = [f"ns{number}:9876" for number in range(5)]
BUDGET_MS = 3_000


class World:
    """Five name servers that know every topic, each in one of three moods, and one broker."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.moods = dict.fromkeys(SERVERS, "well")
        self.listed = self.rng.sample(SERVERS, 2)
        self.stage = Stage(name_servers=tuple(self.listed))
        self.stage.peers["a:1"] = broker()
        for address in SERVERS:
            self.turn(address, "well")
        self.core: ProducerCore = self.stage.node.add_producer(
            ProducerSettings(group="pg", send_timeout_ms=BUDGET_MS), 0
        )
        self.stage.begin()

    def turn(self, address: str, mood: str) -> None:
        """Put a name server into a mood; one that dies takes its links along."""
        self.moods[address] = mood
        if mood == "dead":
            self.stage.peers.pop(address, None)
            if address in self.stage.links:
                self.stage.cut(address)
            return
        peer = self.stage.peers.setdefault(address, Peer())
        peer.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._answer if mood == "well" else lambda request: None

    def _answer(self, request: Command) -> bytes:
        return success(request, body=route("a=a:1").to_json(standard=True))

    def change(self) -> None:
        """Something happens."""
        for address in self.rng.sample(SERVERS, self.rng.randrange(3)):
            self.turn(address, self.rng.choice(["well", "silent", "dead"]))
        if self.rng.random() < 0.2:
            self.listed = self.rng.sample(SERVERS, self.rng.randrange(1, 6))
            self.stage.node.set_name_servers(self.listed, self.stage.now)
            self.stage.settle()

    def one_answers(self) -> bool:
        return any(self.moods[address] == "well" for address in self.listed)


@pytest.mark.parametrize("seed", range(40))
def test_a_send_finds_its_way_as_long_as_one_name_server_answers(seed: int) -> None:
    world = World(seed)
    stage = world.stage
    topics: Iterator[str] = (f"T{number}" for number in count())
    outcomes: list[MQError | SendStatus] = []
    for _ in range(25):
        world.change()
        tickets = [
            stage.start(world.core.send(Message(next(topics), b"x"), stage.now))
            for _ in range(world.rng.randrange(1, 4))
        ]
        stage.advance(BUDGET_MS)
        for ticket in tickets:
            assert ticket.settled, "in time"
            try:
                outcomes.append(ticket.result().status)
            except MQError as error:
                outcomes.append(error)
        if world.one_answers():
            assert outcomes[-len(tickets) :] == [SendStatus.SEND_OK] * len(tickets), (world.listed, world.moods)
        else:
            assert all(
                isinstance(one, NoNameServer | CallExpired | ConnectionLost | ConnectFailed)
                for one in outcomes[-len(tickets) :]
            )
        stage.advance(world.rng.randrange(1, 40_000))
    for address in SERVERS:
        world.turn(address, "well")
    stage.advance(60_000)
    assert not stage.node.calls, "nothing is left of what was given up"


def test_the_worlds_are_not_all_fair() -> None:
    """Some sends of those worlds meet nobody who answers."""
    bad = 0
    for seed in range(10):
        world = World(seed)
        for _ in range(25):
            world.change()
            bad += not world.one_answers()
    assert bad > 10
