"""Sends do what their table of states says, and nothing besides."""

from __future__ import annotations

from random import Random
from typing import Any

from mqproto.codec import Command
from mqproto.errors import BrokerError, CallExpired, MQError, TooManyRequests
from mqproto.message import Message, MessageQueue
from mqproto.state.flows.effects import Call, Effect, Expired, Flow, Lost, Oneway, Refresh, Sleep, Wait
from mqproto.state.producer.core import UNSENT_WAIT_MAX, ProducerCore
from mqproto.state.producer.send_states import FIRST, TRANSITIONS, SendEvent, SendState
from mqproto.wire.codes import ResponseCode
from tests.mqproto.state.producers import SEND, TOPIC, Host, producer, took
from tests.mqproto.state.stage import route
from tests.transitions import Observed

QUEUE = MessageQueue(TOPIC, "a", 0)
STATES: dict[type[Any], SendState] = {
    Wait: SendState.WAITING,
    Refresh: SendState.ROUTING,
    Sleep: SendState.UNREAD,
    Call: SendState.SENDING,
    Oneway: SendState.SENDING,
}


class Send:
    """One send, of any kind, to brokers and name servers that do as chance wills."""

    def __init__(self, random: Random, observed: Observed[SendState, SendEvent]) -> None:
        self.random = random
        self.observed = observed
        self.host = Host()
        if random.random() < 0.6:
            self.host.routes.update(TOPIC, route("a=a:1", "b=b:1"))
        if random.random() < 0.3:
            self.host.unread["a:1"] = self.host.unread["b:1"] = UNSENT_WAIT_MAX + 1
        self.core = producer(
            host=self.host,
            send_window_messages=1,
            retry_another_broker_when_not_store_ok=random.random() < 0.7,
        )
        self.now = 0
        self.throws = False

    def begin(self) -> tuple[Flow[Any], SendState]:
        core, message, queue = self.core, Message(TOPIC, b"x"), self.random.choice((None, None, QUEUE))
        kind = self.random.choice((core.send, core.send_async, core.send_oneway, None))
        if kind is not None:
            return kind(message, 0, queue=queue, timeout_ms=100), FIRST[0]
        info = self.host.routes.publish(TOPIC)
        return self._made(core, message, info is not None and self.random.random() < 0.8), FIRST[1]

    def _made(self, core: ProducerCore, message: Message, chosen: bool) -> Flow[Any]:
        """A send whose first call was made without a flow, to a queue that was chosen or given."""
        request = core._build(message, 0, False)
        call = Call("a:1", SEND, request.addressed(QUEUE, 0), request.body, 100)
        info = self.host.routes.publish(TOPIC) if chosen else None
        return core.go_on(request, core.window.enter(1, 1), call, QUEUE, info, 0, self.random.random() < 0.5)

    def play(self) -> None:
        others = self.core.window.enter(1, 1) if self.random.random() < 0.3 else None
        flow, state = self.begin()
        made = state is SendState.SENDING
        event = SendEvent.BEGIN
        try:
            effect = next(flow)
            while True:
                after = STATES[type(effect)]
                if not made:
                    state = self.observed.step(state, event, after)
                made = False
                self.now += 10
                if isinstance(effect, Wait):
                    if self.random.random() < 0.7:
                        assert others is not None
                        self.core.window.leave(others)
                    else:
                        assert effect.deadline is not None
                        self.now = effect.deadline
                    event = SendEvent.ROOM if effect.ticket.settled else SendEvent.OVER
                    effect = flow.send((None, self.now))
                    continue
                event, outcome = self.outcome(effect)
                if isinstance(outcome, MQError) and not isinstance(effect, Refresh):
                    effect = flow.throw(outcome)
                else:
                    effect = flow.send((outcome, self.now))
        except StopIteration:
            self.observed.step(state, event, SendState.SENT)
        except MQError:
            self.observed.step(state, event, SendState.FAILED)

    def outcome(self, effect: Effect) -> tuple[SendEvent, object]:
        match effect:
            case Refresh():
                return SendEvent.ROUTED, self._routed()
            case Sleep():
                if self.random.random() < 0.2:
                    self.host.unread.clear()
                elif self.random.random() < 0.3:
                    self.now = 100
                over = self.now >= 100 and bool(self.host.unread)
                return SendEvent.OVER if over else SendEvent.READ, None
            case Call(address=address) | Oneway(address=address):
                assert address is not None
                if self.random.random() < 0.1:
                    self.now = 100
                events = self._oneway(address) if isinstance(effect, Oneway) else self._answered(address)
                found = self.random.choice(events)
                if self.random.random() < 0.2:
                    self.host.routes.update(TOPIC, route("a=a:1"))
                    self.host.routes.update(TOPIC, route("a=a:1", "b=b:1"))
                if self.random.random() < 0.3:
                    self._forget_masters()
                return found
            case _:
                raise AssertionError(effect)

    def _forget_masters(self) -> None:
        """Only slaves of the brokers are known from now on."""
        found = route("a=a:1", "b=b:1")
        for broker in found.brokers:
            broker.addresses = {1: "s:1"}
        self.host.routes.update(TOPIC, found)

    def _routed(self) -> MQError | None:
        kind = self.random.randrange(5)
        if kind == 0:
            return BrokerError(ResponseCode.TOPIC_NOT_EXIST, None, "ns:1")
        if kind == 1:
            return CallExpired("ns:1", 10)
        if kind == 2:
            self._forget_masters()
        else:
            self.host.routes.update(TOPIC, route("a=a:1", "b=b:1"))
        return None

    def _answered(self, address: str) -> list[tuple[SendEvent, object]]:
        return [
            (SendEvent.STORED, took(0)),
            *[(SendEvent.UNSAFE, took(0, code=int(ResponseCode.FLUSH_DISK_TIMEOUT)))] * 4,
            (SendEvent.REFUSED, took(0, code=1)),
            (SendEvent.REFUSED, took(0, code=13)),
            (SendEvent.LOST, Lost(address, "reset", True)),
            (SendEvent.LOST, Lost(address, "refused")),
            (SendEvent.LOST, Expired(address, 10)),
            (SendEvent.UNREADABLE, Command(0, flag=1)),
            (SendEvent.LIMIT, TooManyRequests("calls are in flight")),
        ]

    def _oneway(self, address: str) -> list[tuple[SendEvent, object]]:
        return [
            (SendEvent.STORED, None),
            (SendEvent.LOST, Lost(address, "refused")),
            (SendEvent.LOST, Expired(address, 10)),
            (SendEvent.LIMIT, TooManyRequests("calls are in flight")),
        ]


def test_sends_change_as_listed() -> None:
    observed = Observed(TRANSITIONS)
    for seed in range(3_000):
        Send(Random(seed), observed).play()
    assert observed.unseen == []
