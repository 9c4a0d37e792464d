"""Which half messages are open (mqproto.engine.broker.transactions.half_messages)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.engine.broker.transactions.half_messages import HalfMessages


def fresh(first: int = 0, end: int = 0, op_first: int = 0) -> HalfMessages:
    states = HalfMessages(first, op_first, end)
    states.loaded()
    return states


def open_ones(states: HalfMessages) -> list[int]:
    found = []
    at: int | None = states.first
    while at is not None and (at := states.next_open(at, states.end)) is not None:
        found.append(at)
        at += 1
    return found


def end(states: HalfMessages, offset: int, op_offset: int) -> None:
    states.note(op_offset, offset)
    states.settle(offset)


def test_progress_stops_at_the_oldest_open_one() -> None:
    states = fresh(10, 14, op_first=5)
    end(states, 11, 5)
    assert (states.first, states.op_first, states.open) == (10, 5, 3)
    end(states, 10, 6)
    assert (states.first, states.op_first, states.open) == (12, 7, 2)
    assert open_ones(states) == [12, 13]
    assert states.run_of_open(12, 14) == 2


def test_an_op_message_of_a_later_half_holds_progress_of_its_queue() -> None:
    states = fresh(0, 3)
    end(states, 0, 0)
    end(states, 2, 1)
    end(states, 2, 2)
    assert (states.first, states.op_first) == (1, 1)
    end(states, 1, 3)
    assert (states.first, states.op_first) == (3, 4)


def test_the_first_end_is_known_for_a_while() -> None:
    states = fresh(0, 200_000)
    assert not states.is_settled(0)
    for offset in range(199_999):
        states.settle(offset)
    assert (states.first, states.open) == (199_999, 1)
    assert states.is_settled(199_998)
    assert states.is_settled(150_000)
    assert not states.is_settled(0)  # forgotten
    assert len(states._states) < 140_000


def test_copies_are_settled_together() -> None:
    states = fresh(0, 1)
    states.moved(0, 1)
    states.moved(1, 2)
    assert open_ones(states) == [2]
    assert [states.copies(offset) for offset in (0, 1, 2)] == [(0, 2), (1, 2), (2,)]
    assert not states.is_settled(1)
    states.settle(0)
    assert open_ones(states) == []
    assert [states.is_settled(offset) for offset in (0, 1, 2)] == [True] * 3
    assert states.copies(2) == (2,)


def test_a_copy_that_another_broker_left_open_too() -> None:
    states = fresh(0, 2)
    states.moved(0, 2)
    states.join(1, 2)
    assert open_ones(states) == [2]
    assert states.copies(1) == (1, 2)
    states.settle(1)
    assert (states.first, states.open, states.is_settled(0)) == (3, 0, True)


def test_what_was_given_up_can_still_be_ended() -> None:
    states = fresh(0, 2)
    states.give_up(0)
    assert (states.first, states.is_settled(0), states.is_open(0)) == (1, False, False)
    states.settle(0)
    assert states.is_settled(0)


def test_a_range_is_passed_over() -> None:
    states = fresh(0, 6)
    states.settle(2)
    assert states.pass_over(1, 5) == 3
    assert open_ones(states) == [0, 5]
    assert states.is_settled(2)
    assert states.pass_over(0, 6) == 2
    assert (states.first, states.open) == (6, 0)


def test_op_messages_of_the_start_and_new_ones() -> None:
    """New ones may be stored before the old ones are read, which stand before them in their queue."""
    states = HalfMessages(5, 2, 9)
    states.note(6, 8)
    states.settle(8)
    states.read(2, [3])
    assert (states.first, states.op_first) == (5, 3)
    states.read(3, [6])
    assert (states.first, states.op_first) == (5, 3)
    states.read(4, [5, 3])
    states.read(5, [])
    assert states.open == 1
    states.loaded()
    assert (states.first, states.op_first) == (7, 6)
    states.read(9, [100])  # a half that there is not, behind two places without a message
    assert states.op_first == 6
    assert open_ones(states) == [7]


def test_progress_of_ops_comes_in_bounded_steps() -> None:
    states = fresh(0, 5001)
    for n in range(5000):
        end(states, n + 1, n)
    end(states, 0, 5000)
    assert states.first == 5001
    assert states.op_first == 64
    states.pass_ops(4000)
    assert states.op_first == 4064
    assert len(states._ops) < 1000
    states.pass_ops(4000)
    assert states.op_first == 5001


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["prepare", "end", "move", "give up"]), st.integers(0, 40)), max_size=80))
def test_like_a_plain_model(steps: list[tuple[str, int]]) -> None:
    states = fresh()
    transactions: list[list[int]] = []
    next_offset = op_offset = 0
    model: set[int] = set()
    ops: list[int] = []
    for what, number in steps:
        if what == "prepare" or not transactions:
            transactions.append([next_offset])
            model.add(next_offset)
            next_offset += 1
            states.reach(next_offset)
            continue
        copies = transactions[number % len(transactions)]
        if what == "end":
            offset = copies[number % len(copies)]
            for each in states.copies(offset):
                states.note(op_offset, each)
                ops.append(each)
                op_offset += 1
            states.settle(offset)
            if copies[-1] in model or offset in model:
                model -= set(copies)
        elif copies[-1] in model:
            if what == "move":
                states.moved(copies[-1], next_offset)
                model.discard(copies[-1])
                copies.append(next_offset)
                model.add(next_offset)
                next_offset += 1
            else:
                states.give_up(copies[-1])
                model.discard(copies[-1])
        assert open_ones(states) == sorted(model)
        assert states.open == len(model)
        assert states.first == min(model, default=next_offset)
        assert states.op_first == next((n for n, offset in enumerate(ops) if offset >= states.first), len(ops))
