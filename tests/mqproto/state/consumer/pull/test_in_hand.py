"""Messages in hand, without a consumer."""

from __future__ import annotations

from mqproto.message import MessageExt
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull.in_hand import Batch, MessagesInHand
from tests.mqproto.state.scripted_broker import queue_of


def fetched(in_hand: MessagesInHand, queue_id: int, count: int, start: int = 0) -> ProcessQueue:
    """A process queue whose messages wait for a poll."""
    queue = ProcessQueue(queue_of("T", queue_id), 0)
    queue.start(start)
    more(in_hand, queue, count)
    return queue


def more(in_hand: MessagesInHand, queue: ProcessQueue, count: int) -> None:
    start = queue.next_offset
    messages = [
        MessageExt("T", b"x", queue_id=queue.queue.queue_id, queue_offset=offset)
        for offset in range(start, start + count)
    ]
    in_hand.add(queue, queue.put(messages, start + count))


def offsets(batch: Batch | None) -> list[tuple[int, int]]:
    assert batch is not None
    return [(message.queue_id, message.queue_offset) for message in batch.messages]


def test_batches_go_out_as_they_came() -> None:
    in_hand = MessagesInHand()
    first = fetched(in_hand, 0, 2)
    fetched(in_hand, 1, 1)
    more(in_hand, first, 1)
    assert in_hand.waiting == 4
    assert [offsets(in_hand.take(None, 0)) for _ in range(3)] == [[(0, 0), (0, 1)], [(1, 0)], [(0, 2)]]
    assert (in_hand.take(None, 0), in_hand.waiting) == (None, 0)


def test_a_batch_can_be_cut() -> None:
    in_hand = MessagesInHand()
    fetched(in_hand, 0, 3)
    assert offsets(in_hand.take(2, 0)) == [(0, 0), (0, 1)]
    assert in_hand.waiting == 1
    assert offsets(in_hand.take(2, 0)) == [(0, 2)]


def test_handed_out_messages_stay_until_they_are_confirmed() -> None:
    in_hand = MessagesInHand()
    queue = fetched(in_hand, 0, 3)
    in_hand.take(2, 0)
    assert (len(queue), queue.commit_offset) == (3, 0)
    assert in_hand.confirm(0) == [queue]
    assert (len(queue), queue.commit_offset) == (1, 2)
    assert in_hand.confirm(0) == []


def test_what_is_put_back_goes_out_next() -> None:
    in_hand = MessagesInHand()
    queue = fetched(in_hand, 0, 2)
    fetched(in_hand, 1, 1)
    batch = in_hand.take(None, 0)
    assert batch is not None
    in_hand.put_back(batch)
    assert in_hand.waiting == 3
    assert in_hand.confirm(0) == [], "nobody has it"
    assert offsets(in_hand.take(None, 0)) == [(0, 0), (0, 1)]
    in_hand.confirm(0)
    in_hand.put_back(batch)
    assert (in_hand.waiting, len(queue)) == (1, 0), "it was confirmed: too late"


def test_batches_of_dropped_queues_are_passed_over() -> None:
    in_hand = MessagesInHand()
    lost = fetched(in_hand, 0, 2)
    fetched(in_hand, 1, 1)
    more(in_hand, lost, 1)
    handed = in_hand.take(1, 0)
    lost.drop()
    assert in_hand.waiting == 3
    assert offsets(in_hand.take(None, 0)) == [(1, 0)]
    assert (in_hand.take(None, 0), in_hand.waiting) == (None, 0)
    assert [queue.queue.queue_id for queue in in_hand.confirm(0)] == [1], "what was polled of it confirms nothing"
    assert handed is not None


def test_batches_of_dropped_queues_are_swept() -> None:
    in_hand = MessagesInHand()
    lost = fetched(in_hand, 0, 4)
    fetched(in_hand, 1, 1)
    in_hand.take(1, 0)
    lost.drop()
    in_hand.sweep()
    assert in_hand.waiting == 1
    assert in_hand.confirm(0) == []
    assert offsets(in_hand.take(None, 0)) == [(1, 0)]
