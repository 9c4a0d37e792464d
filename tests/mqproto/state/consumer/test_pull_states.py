"""Assigned queues and their pull loops do what their table of states says, and nothing besides."""

from __future__ import annotations

from random import Random

from mqproto.codec import Command
from mqproto.errors import MQError, NoRoute, TooManyRequests
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull_loop import Subscribed, pull_loop
from mqproto.state.consumer.pull_states import FIRST, TRANSITIONS, PullLoopEvent, PullLoopState
from mqproto.state.flows.effects import Call, Effect, Expired, Flow, Later, Lost, Refresh, Sleep, Wait
from mqproto.state.node.contract import Ticket
from mqproto.wire.codes import ResponseCode
from tests.mqproto.state.consumer.test_pull_loop import QUEUE, Host, answer, message
from tests.transitions import Observed


class Loop(Host):
    """A queue whose consumer and brokers do as chance wills; the host of its loop."""

    def __init__(self, random: Random, observed: Observed[PullLoopState, PullLoopEvent]) -> None:
        super().__init__()
        self.random = random
        self.observed = observed
        self.queue = ProcessQueue(QUEUE, 0)
        self.pull_interval_ms = random.choice((0, 0, 200))
        self.state = FIRST[0]
        #: What the loop is about to hear.
        self.event = PullLoopEvent.STARTED
        self.in_look_up = False

    def to(self, event: PullLoopEvent, state: PullLoopState) -> None:
        if self.state is not PullLoopState.DROPPED:
            self.state = self.observed.step(self.state, event, state)

    # --- what the loop asks its host

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        self.to(self.event, PullLoopState.NEXT)
        self.subscription = None if self.random.random() < 0.1 else Subscribed("*", "TAG", 7)
        self.event = PullLoopEvent.NOT_SUBSCRIBED if self.subscription is None else PullLoopEvent.NO_ADDRESS
        return Ticket() if self.random.random() < 0.2 else None

    def pull_address(self, queue: ProcessQueue, now: int) -> Flow[tuple[str | MQError, int]]:
        if self.random.random() < 0.8:
            return "b:1", now
        self.in_look_up = True
        _, now = yield Refresh("T", now + 3_000)
        self.in_look_up = False
        return ("b:1" if self.random.random() < 0.5 else NoRoute("T")), now

    # --- what becomes of it

    def drop(self) -> None:
        self.queue.drop()
        self.to(PullLoopEvent.DROP, PullLoopState.DROPPED)

    def play(self) -> None:
        if self.random.random() < 0.1:
            self.drop()
            return
        self.queue.start(5)
        loop = pull_loop(self.queue, self, self, 0)
        now = 0
        try:
            effect = next(loop)
            while True:
                self.waits(effect)
                now += 10
                if self.random.random() < 0.15:
                    self.drop()
                outcome = self.outcome(effect)
                effect = loop.throw(outcome) if isinstance(outcome, MQError) else loop.send((outcome, now))
        except StopIteration:
            assert self.queue.dropped
            self.to(self.event, PullLoopState.DROPPED)

    def waits(self, effect: Effect) -> None:
        """The state that an effect stands for."""
        match effect:
            case Refresh():
                self.to(PullLoopEvent.ADDRESS_UNKNOWN, PullLoopState.LOOKING_UP)
            case Call():
                self.to(PullLoopEvent.ASKED, PullLoopState.PULLING)
            case Later():
                self.to(self.event, PullLoopState.HANDING_OVER)
            case Wait(ticket=ticket):
                if ticket is self.beat:
                    self.to(self.event, PullLoopState.LEARNING)
                else:
                    self.to(PullLoopEvent.FULL, PullLoopState.HELD)
            case Sleep():
                self.to(self.event, PullLoopState.PAUSED)
            case _:
                raise AssertionError(effect)

    def outcome(self, effect: Effect) -> object:
        """What the loop hears; `event` says it."""
        match effect:
            case Call():
                self.event, outcome = self.random.choice(self.answers())
                return outcome
            case Later():
                self.event = PullLoopEvent.HANDED_OVER
            case Sleep():
                self.event = PullLoopEvent.TIME
            case Wait(ticket=ticket):
                self.event = PullLoopEvent.KNOWN if ticket is self.beat else PullLoopEvent.ROOM
            case _:
                self.event = PullLoopEvent.NO_ADDRESS
        return None

    def answers(self) -> list[tuple[PullLoopEvent, object]]:
        at = self.queue.next_offset
        return [
            (PullLoopEvent.FOUND, answer(0, at + 2, [message(at), message(at + 1)])),
            (PullLoopEvent.FOUND_ONE, answer(0, at + 1, [message(at)])),
            (PullLoopEvent.NOTHING, answer(ResponseCode.PULL_NOT_FOUND, at)),
            (PullLoopEvent.NOTHING, answer(ResponseCode.PULL_RETRY_IMMEDIATELY, at + 10)),
            (PullLoopEvent.OUTSIDE, answer(ResponseCode.PULL_OFFSET_MOVED, 0)),
            (PullLoopEvent.UNKNOWN, Command(int(ResponseCode.SUBSCRIPTION_NOT_EXIST), flag=1)),
            (PullLoopEvent.UNKNOWN, Command(int(ResponseCode.SUBSCRIPTION_NOT_LATEST), flag=1)),
            (PullLoopEvent.FAILED, Command(int(ResponseCode.FLOW_CONTROL), flag=1)),
            (PullLoopEvent.FAILED, Command(1, flag=1)),
            (PullLoopEvent.FAILED, Command(0, flag=1)),
            (PullLoopEvent.FAILED, Expired("b:1", 30_000)),
            (PullLoopEvent.FAILED, Lost("b:1", "reset", True)),
            (PullLoopEvent.FAILED, TooManyRequests("calls are in flight")),
        ]


def test_queues_change_as_listed() -> None:
    observed = Observed(TRANSITIONS)
    for seed in range(400):
        Loop(Random(seed), observed).play()
    assert observed.unseen == []
