"""Ordered consumption whose listener says itself what is committed (docs/protocol/client.md 4.13)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import NoRoute
from mqproto.message import ConsumeStatus
from mqproto.state.flows.effects import Sleep
from tests.mqproto.state.by_hand import Q0, OrderedBench, message

SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER
COMMIT, ROLLBACK = ConsumeStatus.COMMIT, ConsumeStatus.ROLLBACK


def answer(bench: OrderedBench, result: object, *, auto_commit: bool = False, now: int = 1) -> None:
    """What a listener does that has taken the commits over."""
    bench.delivered[-1].context.auto_commit = auto_commit
    bench.answer(result, now=now)


def pulled(count: int, **settings: Any) -> OrderedBench:
    bench = OrderedBench(**settings)
    bench.pulled(Q0, *[message(n) for n in range(count)])
    return bench


def test_the_offset_moves_with_a_commit_and_not_before() -> None:
    bench = pulled(4)
    answer(bench, SUCCESS)
    answer(bench, SUCCESS)
    assert (bench.offsets_seen(), bench.offsets.known(Q0), len(bench.queues[Q0])) == ([0, 1, 2], None, 4)
    answer(bench, COMMIT)
    assert (bench.offsets.known(Q0), len(bench.queues[Q0]), bench.moves) == (3, 1, 1)


def test_a_rollback_brings_everything_since_the_last_commit_again_in_order() -> None:
    bench = pulled(5)
    answer(bench, COMMIT)
    for result in (SUCCESS, SUCCESS, ROLLBACK):
        answer(bench, result)
    assert bench.effect() == Sleep(1_001)
    assert bench.offsets.known(Q0) == 1
    bench.go_on(None, 1_001)
    for _ in range(3):
        answer(bench, SUCCESS)
    answer(bench, COMMIT)
    assert bench.offsets_seen() == [0, 1, 2, 3, 1, 2, 3, 4]
    assert bench.offsets.known(Q0) == 5
    assert all(one.reconsume_times == 0 for task in bench.delivered for one in task.messages), (
        "a rollback is no failure of a message"
    )
    assert bench.notices == []


def test_a_failure_lets_what_was_consumed_before_wait_for_its_commit() -> None:
    bench = pulled(2)
    answer(bench, SUCCESS)
    answer(bench, LATER)
    assert bench.offsets.known(Q0) is None
    bench.go_on(None, 1_001)
    answer(bench, COMMIT)
    assert (bench.offsets_seen(), bench.offsets.known(Q0)) == ([0, 1, 1], 2)
    assert bench.delivered[-1].messages[0].reconsume_times == 1


def test_success_with_auto_commit_commits_what_was_left_open() -> None:
    bench = pulled(2)
    answer(bench, SUCCESS)
    answer(bench, SUCCESS, auto_commit=True)
    assert bench.offsets.known(Q0) == 2


def test_an_exception_before_the_listener_took_the_commits_over_commits_nothing() -> None:
    bench = pulled(2)
    answer(bench, SUCCESS)
    answer(bench, ValueError("no"), auto_commit=True)
    assert bench.offsets.known(Q0) is None


def test_a_commit_with_auto_commit_is_a_success() -> None:
    bench = pulled(1)
    answer(bench, COMMIT, auto_commit=True)
    assert (bench.offsets.known(Q0), bench.notices) == (1, [])


def test_a_rollback_with_auto_commit_is_a_failure_and_a_mistake() -> None:
    """Java drops these messages."""
    bench = pulled(1)
    answer(bench, ROLLBACK, auto_commit=True)
    assert bench.effect() == Sleep(1_001)
    assert bench.offsets.known(Q0) is None
    assert bench.notices == [
        "the listener of group g returned ROLLBACK with auto_commit on: only what it was given comes again"
    ]


def test_a_dead_letter_is_done_with_whatever_is_rolled_back() -> None:
    bench = pulled(3, max_reconsume_times=0)
    answer(bench, SUCCESS)
    answer(bench, LATER)
    assert len(bench.resent) == 1
    assert bench.offsets.known(Q0) == 0
    answer(bench, ROLLBACK)
    bench.go_on(None, 1_001)
    answer(bench, SUCCESS)
    answer(bench, COMMIT)
    assert bench.offsets_seen() == [0, 1, 2, 0, 2]
    assert bench.offsets.known(Q0) == 3


def test_a_dead_letter_that_cannot_be_stored_is_no_commit() -> None:
    bench = pulled(2, max_reconsume_times=0)
    bench.resend_failure = NoRoute("%RETRY%g")
    answer(bench, SUCCESS)
    answer(bench, LATER)
    bench.go_on(None, 1)
    assert bench.offsets.known(Q0) is None


def test_of_a_list_the_front_can_be_committed() -> None:
    bench = pulled(3, consume_message_batch_max_size=3)
    bench.delivered[0].context.ack_index = 1
    answer(bench, COMMIT)
    assert bench.offsets.known(Q0) == 2
    bench.go_on(None, 1_001)
    assert bench.offsets_seen() == [0, 1, 2, 2]


def test_a_queue_that_goes_takes_its_open_messages_along() -> None:
    bench = pulled(3)
    answer(bench, SUCCESS)
    bench.queues[Q0].drop()
    bench.queues[Q0] = bench.make(Q0)
    answer(bench, COMMIT)
    assert bench.offsets.known(Q0) is None
    bench.pulled(Q0, message(0), message(1))
    answer(bench, COMMIT)
    assert (bench.offsets_seen(), bench.offsets.known(Q0)) == ([0, 1, 0, 1], 1)


def test_who_never_commits_is_told_when_the_window_is_full() -> None:
    bench = pulled(5, pull_threshold_for_queue=2)
    for _ in range(5):
        answer(bench, SUCCESS)
    assert bench.notices == [f"3 messages of {Q0} wait for a commit: it is fetched no more"]


@pytest.mark.parametrize("name", ["SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER"])
def test_both_names_of_a_pause_mean_the_same(name: str) -> None:
    assert ConsumeStatus[name] is LATER
