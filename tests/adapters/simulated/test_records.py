"""Records of progress: how far a group may have stored offsets, by what its listeners said."""

from __future__ import annotations

import pytest

from mqproto.adapters.simulated.records import Delivery, Records
from mqproto.message import ConsumeStatus, MessageExt, MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)
SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER
COMMIT, ROLLBACK = ConsumeStatus.COMMIT, ConsumeStatus.ROLLBACK


class Book:
    """The records of one group with one queue."""

    def __init__(self, *, orderly: bool) -> None:
        self.records = Records(orderly={"group"} if orderly else set())

    def take(self, offset: int, result: ConsumeStatus, *, auto_commit: bool = True, member: str = "one") -> Delivery:
        message = MessageExt("orders", b"x", {})
        message.queue_offset = offset
        delivery = Delivery(member, "group", QUEUE, member, [message], 0, self.records.behind("group", QUEUE))
        self.records.ended(delivery, result, 1, auto_commit=auto_commit)
        return delivery

    @property
    def finished(self) -> int:
        progress = self.records.finished.get(("group", QUEUE))
        return 0 if progress is None else progress.below

    @property
    def succeeded(self) -> int:
        return self.records.behind("group", QUEUE)


@pytest.mark.parametrize("orderly", [False, True])
def test_what_failed_may_be_passed_only_where_it_comes_again_another_way(orderly: bool) -> None:
    book = Book(orderly=orderly)
    book.take(0, SUCCESS)
    book.take(1, LATER)
    assert book.finished == (1 if orderly else 2)
    assert book.succeeded == 1


def test_what_is_committed_later_may_be_passed_only_then() -> None:
    book = Book(orderly=True)
    first = book.take(0, SUCCESS, auto_commit=False)
    second = book.take(1, SUCCESS, auto_commit=False)
    assert (book.finished, book.succeeded) == (0, 2)
    assert [first.succeeded, second.succeeded] == [False, False]
    book.take(2, COMMIT, auto_commit=False)
    assert (book.finished, book.succeeded) == (3, 3)
    assert [first.succeeded, second.succeeded] == [True, True]


def test_what_is_rolled_back_comes_again() -> None:
    book = Book(orderly=True)
    book.take(0, COMMIT, auto_commit=False)
    lost = book.take(1, SUCCESS, auto_commit=False)
    book.take(2, ROLLBACK, auto_commit=False)
    assert (book.finished, book.succeeded) == (1, 1)
    book.take(1, COMMIT, auto_commit=False)
    assert (book.finished, book.succeeded) == (2, 2)
    assert not lost.succeeded


def test_another_member_that_may_still_commit_is_not_rolled_back() -> None:
    book = Book(orderly=True)
    book.take(0, SUCCESS, auto_commit=False)
    book.take(0, ROLLBACK, auto_commit=False, member="other")
    assert book.succeeded == 1
    book.take(1, COMMIT, auto_commit=False)
    book.take(2, ROLLBACK, auto_commit=False, member="other")
    assert (book.finished, book.succeeded) == (2, 2)
