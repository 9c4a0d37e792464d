"""Messages on their way to an application that polls, without a consumer."""

from __future__ import annotations

from mqproto.message import MessageExt
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull.in_hand import Batch, Handout
from tests.mqproto.state.scripted_broker import queue_of


def fetched(handout: Handout, queue_id: int, count: int, start: int = 0) -> ProcessQueue:
    """A process queue whose messages wait to be handed out."""
    queue = ProcessQueue(queue_of("T", queue_id), 0)
    queue.start(start)
    more(handout, queue, count)
    return queue


def more(handout: Handout, queue: ProcessQueue, count: int) -> None:
    start = queue.next_offset
    messages = [MessageExt("T", b"x", queue_id=queue.queue.queue_id, queue_offset=offset) for offset in range(start, start + count)]
    handout.add(queue, queue.put(messages, start + count))


def offsets(batch: Batch | None) -> list[tuple[int, int]]:
    assert batch is not None
    return [(message.queue_id, message.queue_offset) for message in batch.messages]


def test_batches_go_out_as_they_came() -> None:
    handout = Handout()
    first = fetched(handout, 0, 2)
    fetched(handout, 1, 1)
    more(handout, first, 1)
    assert handout.waiting == 4
    assert [offsets(handout.take(None, 0)) for _ in range(3)] == [[(0, 0), (0, 1)], [(1, 0)], [(0, 2)]]
    assert (handout.take(None, 0), handout.waiting) == (None, 0)


def test_a_batch_can_be_cut() -> None:
    handout = Handout()
    fetched(handout, 0, 3)
    assert offsets(handout.take(2, 0)) == [(0, 0), (0, 1)]
    assert handout.waiting == 1
    assert offsets(handout.take(2, 0)) == [(0, 2)]


def test_handed_out_messages_stay_until_they_are_confirmed() -> None:
    handout = Handout()
    queue = fetched(handout, 0, 3)
    handout.take(2, 0)
    assert (len(queue), queue.commit_offset) == (3, 0)
    assert handout.confirm(0) == [queue]
    assert (len(queue), queue.commit_offset) == (1, 2)
    assert handout.confirm(0) == []


def test_what_is_put_back_goes_out_next() -> None:
    handout = Handout()
    queue = fetched(handout, 0, 2)
    fetched(handout, 1, 1)
    batch = handout.take(None, 0)
    assert batch is not None
    handout.put_back(batch)
    assert handout.waiting == 3
    assert handout.confirm(0) == [], "nobody has it"
    assert offsets(handout.take(None, 0)) == [(0, 0), (0, 1)]
    handout.confirm(0)
    handout.put_back(batch)
    assert (handout.waiting, len(queue)) == (1, 0), "it was confirmed: too late"


def test_batches_of_dropped_queues_are_passed_over() -> None:
    handout = Handout()
    lost = fetched(handout, 0, 2)
    fetched(handout, 1, 1)
    more(handout, lost, 1)
    handed = handout.take(1, 0)
    lost.drop()
    assert handout.waiting == 3
    assert offsets(handout.take(None, 0)) == [(1, 0)]
    assert (handout.take(None, 0), handout.waiting) == (None, 0)
    assert [queue.queue.queue_id for queue in handout.confirm(0)] == [1], "what was handed out of it confirms nothing"
    assert handed is not None


def test_batches_of_dropped_queues_are_swept() -> None:
    handout = Handout()
    lost = fetched(handout, 0, 4)
    fetched(handout, 1, 1)
    handout.take(1, 0)
    lost.drop()
    handout.sweep()
    assert handout.waiting == 1
    assert handout.confirm(0) == []
    assert offsets(handout.take(None, 0)) == [(1, 0)]
