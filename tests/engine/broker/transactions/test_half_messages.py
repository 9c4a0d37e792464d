"""Which half messages are open (mqproto.engine.broker.transactions.half_messages)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.engine.broker.transactions.half_messages import HalfMessages


def fresh(first: int = 0, end: int = 0, op_first: int = 0) -> HalfMessages:
    halves = HalfMessages(first, op_first, end)
    halves.loaded()
    return halves


def open_ones(halves: HalfMessages) -> list[int]:
    found = []
    at: int | None = halves.first
    while at is not None and (at := halves.next_open(at, halves.end)) is not None:
        found.append(at)
        at += 1
    return found


def end(halves: HalfMessages, offset: int, op_offset: int) -> None:
    halves.note(op_offset, offset)
    halves.settle(offset)


def test_progress_stops_at_the_oldest_open_one() -> None:
    halves = fresh(10, 14, op_first=5)
    end(halves, 11, 5)
    assert (halves.first, halves.op_first, halves.open) == (10, 5, 3)
    end(halves, 10, 6)
    assert (halves.first, halves.op_first, halves.open) == (12, 7, 2)
    assert open_ones(halves) == [12, 13]
    assert halves.run_of_open(12, 14) == 2


def test_an_op_message_of_a_later_half_holds_progress_of_its_queue() -> None:
    halves = fresh(0, 3)
    end(halves, 0, 0)
    end(halves, 2, 1)
    end(halves, 2, 2)
    assert (halves.first, halves.op_first) == (1, 1)
    end(halves, 1, 3)
    assert (halves.first, halves.op_first) == (3, 4)


def test_the_first_end_is_known_for_a_while() -> None:
    halves = fresh(0, 200_000)
    assert not halves.is_settled(0)
    for offset in range(199_999):
        halves.settle(offset)
    assert (halves.first, halves.open) == (199_999, 1)
    assert halves.is_settled(199_998)
    assert halves.is_settled(150_000)
    assert not halves.is_settled(0)  # forgotten
    assert len(halves._states) < 140_000


def test_copies_are_settled_together() -> None:
    halves = fresh(0, 1)
    halves.moved(0, 1)
    halves.moved(1, 2)
    assert open_ones(halves) == [2]
    assert [halves.copies(offset) for offset in (0, 1, 2)] == [(0, 2), (1, 2), (2,)]
    assert not halves.is_settled(1)
    halves.settle(0)
    assert open_ones(halves) == []
    assert [halves.is_settled(offset) for offset in (0, 1, 2)] == [True] * 3
    assert halves.copies(2) == (2,)


def test_a_copy_that_another_broker_left_open_too() -> None:
    halves = fresh(0, 2)
    halves.moved(0, 2)
    halves.join(1, 2)
    assert open_ones(halves) == [2]
    assert halves.copies(1) == (1, 2)
    halves.settle(1)
    assert (halves.first, halves.open, halves.is_settled(0)) == (3, 0, True)


def test_what_was_given_up_can_still_be_ended() -> None:
    halves = fresh(0, 2)
    halves.give_up(0)
    assert (halves.first, halves.is_settled(0), halves.is_open(0)) == (1, False, False)
    halves.settle(0)
    assert halves.is_settled(0)


def test_a_range_is_passed_over() -> None:
    halves = fresh(0, 6)
    halves.settle(2)
    assert halves.pass_over(1, 5) == 3
    assert open_ones(halves) == [0, 5]
    assert halves.is_settled(2)
    assert halves.pass_over(0, 6) == 2
    assert (halves.first, halves.open) == (6, 0)


def test_op_messages_of_the_start_and_new_ones() -> None:
    """New ones may be stored before the old ones are read, which stand before them in their queue."""
    halves = HalfMessages(5, 2, 9)
    halves.note(6, 8)
    halves.settle(8)
    halves.read(2, [3])
    assert (halves.first, halves.op_first) == (5, 3)
    halves.read(3, [6])
    assert (halves.first, halves.op_first) == (5, 3)
    halves.read(4, [5, 3])
    halves.read(5, [])
    assert halves.open == 1
    halves.loaded()
    assert (halves.first, halves.op_first) == (7, 6)
    halves.read(9, [100])  # a half that there is not, behind two places without a message
    assert halves.op_first == 6
    assert open_ones(halves) == [7]


def test_progress_of_ops_comes_in_bounded_steps() -> None:
    halves = fresh(0, 5001)
    for n in range(5000):
        end(halves, n + 1, n)
    end(halves, 0, 5000)
    assert halves.first == 5001
    assert halves.op_first == 64
    halves.pass_ops(4000)
    assert halves.op_first == 4064
    assert len(halves._ops) < 1000
    halves.pass_ops(4000)
    assert halves.op_first == 5001


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["prepare", "end", "move", "give up"]), st.integers(0, 40)), max_size=80))
def test_like_a_plain_model(steps: list[tuple[str, int]]) -> None:
    halves = fresh()
    transactions: list[list[int]] = []
    next_offset = op_offset = 0
    model: set[int] = set()
    ops: list[int] = []
    for what, number in steps:
        if what == "prepare" or not transactions:
            transactions.append([next_offset])
            model.add(next_offset)
            next_offset += 1
            halves.reach(next_offset)
            continue
        copies = transactions[number % len(transactions)]
        if what == "end":
            offset = copies[number % len(copies)]
            for each in halves.copies(offset):
                halves.note(op_offset, each)
                ops.append(each)
                op_offset += 1
            halves.settle(offset)
            if copies[-1] in model or offset in model:
                model -= set(copies)
        elif copies[-1] in model:
            if what == "move":
                halves.moved(copies[-1], next_offset)
                model.discard(copies[-1])
                copies.append(next_offset)
                model.add(next_offset)
                next_offset += 1
            else:
                halves.give_up(copies[-1])
                model.discard(copies[-1])
        assert open_ones(halves) == sorted(model)
        assert halves.open == len(model)
        assert halves.first == min(model, default=next_offset)
        assert halves.op_first == next((n for n, offset in enumerate(ops) if offset >= halves.first), len(ops))
