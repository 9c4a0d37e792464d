"""Whatever peers send: answers or a closed link, never an error of ours, never a link that hangs, never more memory
than the limits say.
"""

from __future__ import annotations

from random import Random

import pytest

from mqproto.codec import Command, encode
from mqproto.engine.broker.node import FAST, MAIN
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT
from tests.engine.broker.harness import Peer, World
from tests.golden.mutations import broken_fields, mutated, recorded

REQUESTS = recorded("broker")
CODES = sorted({request.code for request in REQUESTS})
STEPS = 400
END_TRANSACTION = 37


def make() -> World:
    return World(enable_property_filter=True)


def take(world: World, peer: Peer) -> list[Command]:
    """What has come, once requests that wait for something have been answered; answers to the broker's own requests are
    none.
    """
    answers = [one for one in peer.read() if one.is_response]
    if not answers:
        world.advance_until(lambda: bool(peer.link.out) or peer.ended(), 60_000)
        answers = [one for one in peer.read() if one.is_response]
    return answers


@pytest.mark.parametrize("code", CODES)
def test_missing_malformed_negative_and_huge_fields(code: int) -> None:
    """An answer with its opaque, and the link lives; whatever is wrong."""
    world = make()
    peer = world.connect()
    number = 1
    for request in (one for one in REQUESTS if one.code == code):
        for what, broken in broken_fields(request):
            if code == END_TRANSACTION and broken.fields.get("commitOrRollback") == "0":
                continue  # "not known" has no answer (docs/protocol/broker.md 2.9)
            number += 1
            broken.opaque = number
            peer.feed(encode(broken))
            answers = take(world, peer)
            assert [answer.opaque for answer in answers] == [number], what
            assert not peer.ended(), what
    assert (
        peer.ask(
            310, {"a": "P", "b": "Alive", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
        ).code
        == 0
    )


class Swarm:
    """A broker and peers that come, send damaged requests in pieces, and go."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = make()
        self.peers: list[Peer] = []
        #: What each peer has not sent yet of what it began to send.
        self.rest: dict[Peer, bytes] = {}

    def step(self) -> None:
        random, world = self.random, self.world
        if len(self.peers) < 3 or (len(self.peers) < 12 and random.random() < 0.1):
            peer = world.connect(
                f"192.0.2.{random.randrange(1, 250)}:{random.randrange(1, 65536)}", random.choice((MAIN, MAIN, FAST))
            )
            self.peers.append(peer)
        peer = random.choice(self.peers)
        match random.randrange(10):
            case 0:
                self.leave(peer)
            case 1:
                world.advance(random.choice((0, 1, 100, 5000, 40_000)))
            case 2:
                peer.feed(random.randbytes(random.randint(1, 30)))
            case 3 | 4:
                frames = [encode(random.choice(REQUESTS)) for _ in range(random.randint(1, 5))]
                self.send(peer, b"".join(frames))
            case _:
                self.send(peer, mutated(random, encode(random.choice(REQUESTS))))
        for one in list(self.peers):
            if random.random() < 0.5 or one.ended():
                for request in (got for got in one.read() if not got.is_response and not got.flag & 2):
                    if random.random() < 0.5 and not one.ended():
                        one.answer(request, random.choice((0, 1)), {"a": "b"}, random.randbytes(10))
            if one.ended():
                self.forget(one)

    def send(self, peer: Peer, data: bytes) -> None:
        """What a peer began before, and these bytes, up to a random place."""
        data = self.rest.pop(peer, b"") + data
        cut = self.random.randint(1, len(data)) if self.random.random() < 0.5 else len(data)
        if cut < len(data):
            self.rest[peer] = data[cut:]
        if not peer.ended():
            peer.feed(data[:cut])

    def leave(self, peer: Peer) -> None:
        if not peer.ended():
            peer.close()
        self.forget(peer)

    def forget(self, peer: Peer) -> None:
        self.peers.remove(peer)
        self.rest.pop(peer, None)

    def check(self) -> None:
        """The broker's books fit what there is."""
        broker = self.world.broker
        alive = {peer.link for peer in self.peers if not peer.ended()}
        assert set(broker.links) == alive
        assert broker.unfinished == sum(len(link.rest) for link in broker.links)
        assert all(link.unsent <= 64 * SERVER_UNSENT_LIMIT for link in broker.links)
        assert len(broker.sliced_answers.work) <= 64 * len(alive) + 16

    def empty(self) -> None:
        """Everybody leaves: nothing is kept of them."""
        world = self.world
        for peer in list(self.peers):
            self.leave(peer)
        broker = world.broker
        assert not broker.links
        assert broker.unfinished == 0
        assert len(broker.parked_pulls) == 0
        assert len(broker.waiting_reads) == 0
        world.advance(200_000)
        assert len(broker.sliced_answers.work) == 0
        assert len(broker.calls) == 0
        assert broker.pending_acks.count == 0
        peer = world.connect()
        assert peer.send("Alive", body=b"still here").code == 0
        assert peer.messages("Alive")[-1].body == b"still here"
        world.close()
        assert broker.ended


@pytest.mark.parametrize("seed", range(12))
def test_swarms(seed: int) -> None:
    swarm = Swarm(seed)
    for step in range(STEPS):
        swarm.step()
        if step % 40 == 0:
            swarm.check()
    swarm.check()
    swarm.empty()
