"""Pulls at the broker do what their table of states says, and nothing besides."""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

import pytest

from mqproto.compiling import is_compiled
from mqproto.engine.broker import node
from mqproto.engine.broker.core.core import ClientLink, Core
from mqproto.engine.broker.filters.message_filters import Filter
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.pulls import pull
from mqproto.engine.broker.pulls.pull import HeldPull, PullCall, PullRequests
from mqproto.engine.broker.pulls.pull_states import FIRST, TRANSITIONS, PullEvent, PullState
from mqproto.engine.store import ColdRead, GetResult, Queue
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import GroupConfig
from tests.engine.broker.harness import Peer, World, heartbeat, pull_fields, send_fields
from tests.transitions import Observed

if is_compiled():
    pytest.skip("watches from inside a class that is compiled", allow_module_level=True)

Key: TypeAlias = tuple[ClientLink, int]

DELETE_TOPIC, DELETE_DEAD_QUEUES = 215, 306
WAITING = (PullState.READING, PullState.PARKED, PullState.QUEUED)


class Watched(PullRequests):
    """Serves pulls, and knows where each of them is, by link and opaque."""

    observed: Observed[PullState, PullEvent]

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.states: dict[Key, PullState] = {}
        #: Why a pull is answered that is answered now.
        self.cause = PullEvent.SERVED

    def step(self, link: ClientLink, call: PullCall, event: PullEvent, state: PullState) -> None:
        key = link, call.opaque
        self.states[key] = self.observed.step(self.states[key], event, state)

    # --- what becomes of pulls

    def serve(self, link: ClientLink, call: PullCall) -> None:
        self.states[link, call.opaque] = FIRST[0]
        self.cause = PullEvent.SERVED
        try:
            super().serve(link, call)
        except Refused:
            self.step(link, call, PullEvent.REFUSAL, PullState.REFUSED)
            raise

    def _wait(self, job: ColdRead[GetResult], link: ClientLink, queue: Queue, call: PullCall, wanted: Filter) -> None:
        super()._wait(job, link, queue, call, wanted)
        self.step(link, call, PullEvent.COLD, PullState.READING)

    def _park(self, pull: HeldPull) -> None:
        super()._park(pull)
        self.step(pull.client, pull.call, PullEvent.EMPTY, PullState.PARKED)

    def _answer(
        self, link: ClientLink, call: PullCall, settings: GroupConfig, code: int, result: GetResult, queue: Queue
    ) -> None:
        event = PullEvent.READ if self.states[link, call.opaque] is PullState.READING else self.cause
        self.step(link, call, event, PullState.ANSWERED)
        super()._answer(link, call, settings, code, result, queue)

    def refuse(self, link: ClientLink, call: PullCall, refused: Refused) -> None:
        if self.states[link, call.opaque] is not PullState.REFUSED:
            self.step(link, call, PullEvent.REFUSAL, PullState.REFUSED)
        super().refuse(link, call, refused)

    # --- when

    def wake(self) -> None:
        self.cause = PullEvent.ARRIVED
        super().wake()
        self.look_at_crowd()

    def wake_crowd(self) -> None:
        self.cause = PullEvent.ARRIVED
        super().wake_crowd()
        self.look_at_crowd()

    def look_at_crowd(self) -> None:
        """Who is to be looked at later, and who was looked at and still waits."""
        crowd = {(one.client, one.call.opaque) for one in self._crowd if isinstance(one, HeldPull)}
        for key, state in self.states.items():
            if state is PullState.PARKED and key in crowd:
                self.states[key] = self.observed.step(state, PullEvent.CROWD, PullState.QUEUED)
            elif state is PullState.QUEUED and key not in crowd:
                self.states[key] = self.observed.step(state, PullEvent.PASSED_OVER, PullState.PARKED)

    def expire(self, pull: HeldPull) -> None:
        self.cause = PullEvent.TIME_UP
        super().expire(pull)

    def abandon(self, queue: Queue) -> None:
        self.cause = PullEvent.DELETED
        super().abandon(queue)

    def link_over(self, link: Link) -> None:
        for key, state in self.states.items():
            if key[0] is link and state in WAITING:
                self.states[key] = self.observed.step(state, PullEvent.LINK_OVER, PullState.GONE)

    def waiting_in(self, state: PullState) -> int:
        return list(self.states.values()).count(state)


class Play:
    """A broker and consumers that do as chance wills."""

    def __init__(self, seed: int, cold: bool | None = None) -> None:
        self.random = Random(seed)
        if cold is None:
            cold = self.random.random() < 0.5
        self.world = World(store={"access_message_in_memory_max_ratio": 0} if cold else {})
        pulls = self.world.broker.pull_requests
        assert isinstance(pulls, Watched)
        self.pulls = pulls
        self.owner = self.world.connect("192.0.2.9:1")
        for n in range(20):
            self.owner.send(body=b"%d" % n, properties=f"TAGS\x01t{n % 2}\x02")
        self.owner.heartbeat(heartbeat())
        self.peers = [self.world.connect(f"192.0.2.3:{40_000 + n}") for n in range(4)]
        self.end = 20
        self.world.advance(5_000)  # what was sent is in the files of its queue, which may go while a job reads
        self.world.hold_jobs = True

    def pull(self, peer: Peer) -> None:
        offset = self.random.choice((0, 3, self.end, self.end, self.end, self.end + 50))
        changes: dict[str, Any] = {
            "sysFlag": self.random.choice(("4", "6", "6", "6")),
            "subscription": self.random.choice(("*", "t0", "no such tag")),
            "suspendTimeoutMillis": self.random.choice(("500", "15000")),
            "topic": self.random.choice(("T",) * 9 + ("missing",)),
        }
        peer.tell(11, pull_fields(offset=offset, **changes))

    def send(self) -> None:
        self.owner.tell(310, send_fields(properties="TAGS\x01t0\x02"), b"x")
        self.end += 1

    def end_read(self) -> None:
        """A job ends; now and then the disk fails, or the job comes too late to begin."""
        if not self.world.jobs:
            return
        job = self.world.jobs.pop(0)
        if self.random.random() < 0.2:
            self.world.broker.done(job, OSError(5, "Input/output error"), self.world.now)
        else:
            self.world.run(job)
        self.world.act()

    def leave(self, peer: Peer) -> None:
        """One consumer's link ends; another one takes its place."""
        self.pulls.link_over(peer.link)
        peer.close()
        self.peers.remove(peer)
        self.peers.append(self.world.connect(f"192.0.2.3:{self.random.randrange(50_000, 60_000)}"))

    def send_late(self) -> None:
        """The broker hears of the time and of a message at once."""
        self.world.now += 600
        self.send()

    def delete(self) -> None:
        """The topic is deleted, or a queue whose messages are all gone; then it begins anew."""
        if self.random.random() < 0.5:
            self.owner.tell(DELETE_TOPIC, {"topic": "T"})
        else:
            queue = self.world.store.queue("T", 0)
            queue.min_offset = queue.max_offset
            self.owner.tell(DELETE_DEAD_QUEUES)
        self.settle()
        self.end = 0
        self.send()

    def settle(self) -> None:
        self.world.advance(self.random.choice((0, 1, 1, 600)))

    def read_all(self) -> None:
        for peer in [self.owner, *self.peers]:
            peer.read()

    def go_on(self) -> None:
        chance = self.random.random()
        peer = self.random.choice(self.peers)
        if chance < 0.45:
            self.pull(peer)
        elif chance < 0.55:
            self.send()
        elif chance < 0.6:
            self.send_late()
        elif chance < 0.8:
            self.end_read()
        elif chance < 0.9:
            self.settle()
        elif chance < 0.92:
            self.leave(peer)
        elif chance < 0.97:
            self.delete()
        else:
            self.read_all()


def queue_goes_while_it_is_read() -> None:
    """What chance brings about once in a thousand times."""
    play = Play(0, cold=True)
    (consumer, *_) = play.peers
    consumer.tell(11, pull_fields(offset=0, sysFlag="6"))
    assert play.pulls.waiting_in(PullState.READING) == 1
    play.world.hold_jobs = False
    jobs = list(play.world.jobs)
    play.owner.tell(DELETE_TOPIC, {"topic": "T"})
    play.world.advance(0)
    play.send()
    for job in jobs:
        play.world.run(job)
    assert play.pulls.waiting_in(PullState.PARKED) == 1


def test_pulls_change_as_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "LOOKS_MAX", 2)
    monkeypatch.setattr(node, "PullRequests", Watched)
    observed = Observed(TRANSITIONS)
    monkeypatch.setattr(Watched, "observed", observed, raising=False)
    queue_goes_while_it_is_read()
    for seed in range(150):
        play = Play(seed)
        for _ in range(60):
            play.go_on()
    assert observed.unseen == []
