"""Errors of sends: what they say of the message (docs/clients.md, "What is promised"), whatever servers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from mqproto.codec import Command
from mqproto.errors import (
    BrokerError,
    CallExpired,
    ConnectionLost,
    MQError,
    NoNameServer,
    NoRoute,
    RemoteProtocolError,
    SendFailed,
    TooManyRequests,
)
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.flows.effects import Call, Effect, Expired, Flow, Lost, Refresh
from mqproto.wire.codes import ResponseCode
from tests.mqproto.state.producers import TOPIC, Host, producer, took
from tests.mqproto.state.stage import route

STORED: Final = (0, *(int(code) for code in (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)))
REFUSED: Final = (1, 2, 13, 14, 16, 17, 204)
FULL: Final = "our own limit"
#: What may come of a call: links, answers, and limits of our own.
OUTCOMES: Final = ("lost", "refused", "expired", "unreadable", FULL, *STORED, *REFUSED)
ROUTES: Final = ("found", "no topic", "no name server", "expired")


@dataclass
class World:
    """Plays brokers and name servers to one send, and remembers what became of its message."""

    outcomes: list[str | int]
    routes: list[str]
    host: Host
    now: int = 0
    calls: int = 0
    #: A broker has it for certain, or perhaps.
    stored: bool = False
    maybe: bool = False
    #: The last call was answered by a refusal.
    refused: bool = False

    def play(self, flow: Flow[SendResult]) -> SendResult:
        """Raises what the send raises."""
        try:
            effect = next(flow)
            while True:
                outcome = self._look_up() if isinstance(effect, Refresh) else self._answer(effect)
                effect = flow.throw(TooManyRequests("full")) if outcome is FULL else flow.send((outcome, self.now))
        except StopIteration as end:
            result: SendResult = end.value
            return result

    def _look_up(self) -> MQError | None:
        self.now += 10
        kind = self.routes.pop(0) if self.routes else "found"
        if kind == "no topic":
            return BrokerError(ResponseCode.TOPIC_NOT_EXIST, None, "ns:1")
        if kind == "no name server":
            return NoNameServer(("ns:1",))
        if kind == "expired":
            return CallExpired("ns:1", 10)
        self.host.routes.update(TOPIC, route("a=a:1", "b=b:1"))
        return None

    def _answer(self, effect: Effect) -> object:
        assert isinstance(effect, Call)
        assert effect.address is not None
        assert self.now < effect.deadline, "nothing starts after the deadline (PRO-03)"
        kind = self.outcomes.pop(0) if self.outcomes else 0
        if kind is FULL:
            return FULL
        self.calls += 1
        self.now = effect.deadline if kind == "expired" else self.now + 10
        self.refused = kind in REFUSED
        self.stored = self.stored or kind in STORED
        self.maybe = self.maybe or kind in ("lost", "expired", "unreadable")
        if kind in ("lost", "refused"):
            return Lost(effect.address, "reset", kind == "lost")
        if kind == "expired":
            return Expired(effect.address, 10)
        return Command(0, flag=1) if kind == "unreadable" else took(0, code=int(kind))


def tells_of_doubt(failed: SendFailed) -> bool:
    """Whether one of the attempts may have been stored."""
    return any(isinstance(one.failure, CallExpired | ConnectionLost | RemoteProtocolError) for one in failed.attempts)


@example([STORED[1], 13], [], True, False, False, True, -1)
@example([STORED[1], "lost", FULL], [], True, False, False, True, -1)
@example(["lost", FULL], [], False, False, True, False, -1)
@example(["expired", 1], [], False, False, False, False, 400)
@given(
    st.lists(st.sampled_from(OUTCOMES), max_size=6),
    st.lists(st.sampled_from(ROUTES), max_size=3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from((-1, 400)),
)
def test_what_an_error_says(
    outcomes: list[str | int],
    routes: list[str],
    known: bool,
    to_queue: bool,
    in_future: bool,
    elsewhere: bool,
    attempt_ms: int,
) -> None:
    host = Host()
    if known:
        host.routes.update(TOPIC, route("a=a:1", "b=b:1"))
    core = producer(host=host, retry_another_broker_when_not_store_ok=elsewhere, attempt_timeout_ms=attempt_ms)
    queue = MessageQueue(TOPIC, "a", 0) if to_queue else None
    send = core.send_async if in_future else core.send
    world = World(list(outcomes), list(routes), host)
    found: SendResult | MQError
    try:
        found = world.play(send(Message(TOPIC, b"x"), 0, queue=queue))
    except MQError as error:
        found = error
    assert world.stored is isinstance(found, SendResult), "what was acknowledged is no error"
    if isinstance(found, TooManyRequests | NoNameServer | NoRoute | CallExpired):
        assert not world.calls, "nothing was sent"
    elif isinstance(found, BrokerError):
        assert world.refused or not world.calls, "by the broker that was asked last, or a name server"
    elif isinstance(found, SendFailed):
        assert not world.maybe or tells_of_doubt(found)
    else:
        assert isinstance(found, SendResult), "there are no other errors"
    assert core.window.messages == 0
    assert world.now <= 3_000, "the budget of all of it"
