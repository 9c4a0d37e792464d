"""Each check of clients sees what it is there for: one fault at a time is put into a story that went well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mqproto.adapters.simulated.client_scenario import ClientScenario
from mqproto.adapters.simulated.pull_clients import Iterator, PollingClient
from mqproto.adapters.simulated.request_clients import Asker, Teller
from mqproto.message import Message
from mqproto.state.node.contract import Ticket


class Told(ClientScenario):
    """A quiet story of all that is checked, before its orderly end."""

    def __init__(self) -> None:
        super().__init__(1, steps=12, trouble=("burst",), groups=("walkers", "pollers"))

    def _end(self) -> None:
        """Not yet."""

    def first(self, kind: type[Any]) -> Any:
        return next(client for client in self.cluster.clients if type(client) is kind and client.up)


@pytest.fixture(scope="module")
def told() -> Told:
    story = Told()
    assert story.play() == []
    return story


def room_not_given_back(story: Told) -> Callable[[], None]:
    window = story.first(Teller).core.producer.window
    place = window.enter(1, 10)
    return lambda: window.leave(place)


def question_without_outcome(story: Told) -> Callable[[], None]:
    waiting = story.first(Asker).node.requests._waiting
    waiting["x"] = None
    return waiting.clear  # type: ignore[no-any-return]


def check_unanswered(story: Told) -> Callable[[], None]:
    checks = story.first(Teller).core._checks
    checks.add("x")
    return checks.clear  # type: ignore[no-any-return]


def too_much_out(story: Told) -> Callable[[], None]:
    core = story.first(Iterator).core
    core._taken |= dict.fromkeys(range(core.settings.consume_thread_min + 1))
    return core._taken.clear  # type: ignore[no-any-return]


def messages_nobody_polls(story: Told) -> Callable[[], None]:
    in_hand = story.first(PollingClient).core._in_hand
    in_hand.waiting += 1

    def undo() -> None:
        in_hand.waiting -= 1

    return undo


def transaction_lost(story: Told) -> Callable[[], None]:
    story.bank.committed.add(b"lost")
    return lambda: story.bank.committed.discard(b"lost")


def transaction_nobody_committed(story: Told) -> Callable[[], None]:
    body = max(story.bank.committed)
    story.bank.committed.discard(body)
    return lambda: story.bank.committed.add(body)


def other_reply(story: Told) -> Callable[[], None]:
    operation = next(one for _, one in story.first(Asker).questions if one.ticket.failure is None)
    good, operation.ticket = operation.ticket, Ticket()
    operation.ticket.settle(Message("x", b"re: something else"))

    def undo() -> None:
        operation.ticket = good

    return undo


def attempt_after_the_end(story: Told) -> Callable[[], None]:
    sent = next(one for one in story.cluster.records.sends if one.result is not None and one.ended)
    good, sent.ended = sent.ended, sent.begun - 1

    def undo() -> None:
        sent.ended = good

    return undo


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [
        (room_not_given_back, "still counts 1 messages (10 bytes)"),
        (question_without_outcome, "has 1 requests without an outcome"),
        (check_unanswered, "has 1 questions unanswered"),
        (too_much_out, "messages out"),
        (messages_nobody_polls, "messages that wait for a poll"),
        (transaction_lost, "b'lost' was committed and is not there"),
        (transaction_nobody_committed, "was not committed and is there"),
        (other_reply, "was answered by b're: something else'"),
        (attempt_after_the_end, "was sent at"),
    ],
)
def test_a_fault_is_seen(told: Told, spoil: Callable[[Told], Callable[[], None]], wanted: str) -> None:
    undo = spoil(told)
    faults = told.client_faults()
    undo()
    assert any(wanted in fault for fault in faults), faults
    assert told.client_faults() == []
