"""Checks of clients: one violation at a time is put into a scenario that went well, and is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mqproto.adapters.simulated.client_scenario import ClientScenario
from mqproto.adapters.simulated.pull_clients import PollingClient, SimpleClient
from mqproto.adapters.simulated.request_clients import RequestClient, TransactionClient
from mqproto.message import Message
from mqproto.state.node.contract import Ticket


class QuietScenario(ClientScenario):
    """A scenario with all that is checked and few faults, before its orderly end."""

    def __init__(self) -> None:
        super().__init__(1, steps=12, faults=("burst",), groups=("walkers", "pollers"))

    def _end(self) -> None:
        """Not yet."""

    def first(self, kind: type[Any]) -> Any:
        return next(client for client in self.cluster.clients if type(client) is kind and client.up)


@pytest.fixture(scope="module")
def quiet() -> QuietScenario:
    scenario = QuietScenario()
    assert scenario.play() == []
    return scenario


def room_not_given_back(scenario: QuietScenario) -> Callable[[], None]:
    window = scenario.first(TransactionClient).core.producer.window
    place = window.enter(1, 10)
    return lambda: window.leave(place)


def request_without_outcome(scenario: QuietScenario) -> Callable[[], None]:
    waiting = scenario.first(RequestClient).node.requests._waiting
    waiting["x"] = None
    return waiting.clear  # type: ignore[no-any-return]


def check_unanswered(scenario: QuietScenario) -> Callable[[], None]:
    checks = scenario.first(TransactionClient).core._checks
    checks.add("x")
    return checks.clear  # type: ignore[no-any-return]


def too_much_out(scenario: QuietScenario) -> Callable[[], None]:
    core = scenario.first(SimpleClient).core
    core.held.taken |= dict.fromkeys(range(core.settings.consume_thread_min + 1))
    return core.held.taken.clear  # type: ignore[no-any-return]


def messages_nobody_polls(scenario: QuietScenario) -> Callable[[], None]:
    in_hand = scenario.first(PollingClient).core._prefetch.in_hand
    in_hand.waiting += 1

    def undo() -> None:
        in_hand.waiting -= 1

    return undo


def transaction_lost(scenario: QuietScenario) -> Callable[[], None]:
    scenario.transactions.committed.add(b"lost")
    return lambda: scenario.transactions.committed.discard(b"lost")


def transaction_nobody_committed(scenario: QuietScenario) -> Callable[[], None]:
    body = max(scenario.transactions.committed)
    scenario.transactions.committed.discard(body)
    return lambda: scenario.transactions.committed.add(body)


def other_reply(scenario: QuietScenario) -> Callable[[], None]:
    operation = next(one for _, one in scenario.first(RequestClient).requests if one.ticket.failure is None)
    good, operation.ticket = operation.ticket, Ticket()
    operation.ticket.settle(Message("x", b"re: something else"))

    def undo() -> None:
        operation.ticket = good

    return undo


def attempt_after_the_end(scenario: QuietScenario) -> Callable[[], None]:
    sent = next(one for one in scenario.cluster.records.sends if one.result is not None and one.ended)
    good, sent.ended = sent.ended, sent.begun - 1

    def undo() -> None:
        sent.ended = good

    return undo


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [
        (room_not_given_back, "still counts 1 messages (10 bytes)"),
        (request_without_outcome, "has 1 requests without an outcome"),
        (check_unanswered, "has 1 checks unanswered"),
        (too_much_out, "messages out"),
        (messages_nobody_polls, "messages that wait for a poll"),
        (transaction_lost, "b'lost' was committed and is not there"),
        (transaction_nobody_committed, "was not committed and is there"),
        (other_reply, "was answered by b're: something else'"),
        (attempt_after_the_end, "was sent at"),
    ],
)
def test_a_violation_is_found(
    quiet: QuietScenario, spoil: Callable[[QuietScenario], Callable[[], None]], wanted: str
) -> None:
    undo = spoil(quiet)
    violations = quiet.client_violations()
    undo()
    assert any(wanted in violation for violation in violations), violations
    assert quiet.client_violations() == []
