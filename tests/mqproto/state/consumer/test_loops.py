"""Loops of a consumer, as transcripts."""

from __future__ import annotations

from mqproto.state.consumer.loops import RebalanceLoop, persist_loop
from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Ticket


def settle(ticket: Ticket[None], now: int) -> None:
    if not ticket.settled:
        ticket.settle(None)


class Rounds:
    """Rounds of rebalancing, each with what it answers."""

    def __init__(self, *complete: bool) -> None:
        self.left = list(complete)
        self.loop = RebalanceLoop(settle)
        self.during: bool = False

    def one(self, now: int) -> Flow[tuple[bool, int]]:
        if self.during:
            self.loop.soon(now)
        yield from ()
        return self.left.pop(0), now

    def pauses(self, *, call_in: int | None = None) -> list[int]:
        """How long the loop waits after each round; in round `call_in` something calls for the next."""
        flow, now, found = self.loop.run(self.one, 20_000, 0), 0, []
        effect = next(flow)
        while True:
            assert isinstance(effect, Wait)
            assert effect.deadline is not None
            found.append(effect.deadline - now)
            if not self.left:
                return found
            if len(found) == call_in:
                self.loop.soon(now)
            else:
                now = effect.deadline
            effect = flow.send((None, now))


def test_complete_rounds_come_at_the_interval() -> None:
    assert Rounds(True, True, True).pauses() == [20_000, 20_000, 20_000]


def test_a_round_that_lacks_something_is_soon_followed_by_another_then_less_and_less_soon() -> None:
    assert Rounds(*[False] * 7, True).pauses() == [1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 20_000, 20_000]


def test_a_complete_round_begins_the_pauses_anew() -> None:
    assert Rounds(False, False, True, False).pauses() == [1_000, 2_000, 20_000, 1_000]


def test_a_call_begins_the_pauses_anew() -> None:
    assert Rounds(*[False] * 4).pauses(call_in=2) == [1_000, 2_000, 1_000, 2_000]


def test_a_call_during_a_round_makes_one_more() -> None:
    rounds = Rounds(True)
    rounds.during = True
    effect = next(rounds.loop.run(rounds.one, 20_000, 0))
    assert isinstance(effect, Wait)
    assert effect.ticket.settled


def test_offsets_are_stored_first_after_ten_seconds_then_at_the_interval() -> None:
    """docs/protocol/client.md 1.3."""
    stored: list[int] = []

    def persist(now: int) -> Flow[None]:
        stored.append(now)
        yield from ()

    flow = persist_loop(persist, 5_000, 7)
    assert next(flow) == Sleep(10_007)
    assert flow.send((None, 10_008)) == Sleep(15_008)
    assert flow.send((None, 15_009)) == Sleep(20_009)
    assert stored == [10_008, 15_009]
