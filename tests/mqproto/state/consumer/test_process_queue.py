"""What a process queue holds, and how much of it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue, Window

QUEUE = MessageQueue("T", "b", 2)


def message(offset: int, body: bytes = b"x") -> MessageExt:
    return MessageExt("T", body, queue_id=2, queue_offset=offset, broker_name="b")


class Queue(RuleBasedStateMachine):
    """The process queue against a plain set of unfinished offsets."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.queue = ProcessQueue(QUEUE, 0)
        self.queue.start(start)
        self.unfinished: dict[int, MessageExt] = {}
        self.given: list[MessageExt] = []
        self.pulled_to = start

    @rule(
        gaps=st.lists(st.integers(0, 3), max_size=8),
        behind=st.integers(0, 3),
        overlap=st.integers(0, 2),
        size=st.integers(0, 9),
    )
    def put(self, gaps: list[int], behind: int, overlap: int, size: int) -> None:
        offset = max(0, self.pulled_to - overlap)
        messages = []
        for gap in gaps:
            messages.append(message(offset + gap, bytes(size)))
            offset += gap + 1
        fresh = self.queue.put(messages, offset + behind)
        assert fresh == [one for one in messages if one.queue_offset >= self.pulled_to], (
            "what was seen before is not new"
        )
        self.unfinished.update((one.queue_offset, one) for one in fresh)
        self.given += fresh
        self.pulled_to = max(self.pulled_to, offset + behind)

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        if self.given:
            chosen = data.draw(st.lists(st.sampled_from(self.given), max_size=4))
            for one in chosen:
                self.unfinished.pop(one.queue_offset, None)
            assert self.queue.settle(chosen) == min(self.unfinished, default=self.pulled_to)

    @invariant()
    def agrees(self) -> None:
        queue, offsets = self.queue, sorted(self.unfinished)
        assert len(queue) == len(offsets)
        assert queue.size == sum(len(one.body) for one in self.unfinished.values())
        assert queue.first == (offsets[0] if offsets else None)
        assert queue.last == (offsets[-1] if offsets else None)
        assert queue.span == (offsets[-1] - offsets[0] if offsets else 0)
        assert queue.next_offset == self.pulled_to
        assert queue.commit_offset == min(offsets, default=self.pulled_to), "never beyond the smallest unfinished"
        assert all((one in queue) == (one.queue_offset in self.unfinished) for one in self.given)


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_message_is_settled_once_and_by_itself() -> None:
    queue = ProcessQueue(QUEUE, 0)
    (first,) = queue.put([message(0, b"abc")], 1)
    assert queue.settle([message(0, b"abc")]) == 0, "another message of the same offset is not it"
    assert queue.settle([first, first]) == 1
    assert (queue.size, len(queue)) == (0, 0)


def test_zero_length_bodies_count_as_nothing() -> None:
    """MSG-04."""
    queue = ProcessQueue(QUEUE, 0)
    fresh = queue.put([message(0, b""), message(1), message(2), message(3)], 4)
    assert [one.body for one in fresh] == [b"", b"x", b"x", b"x"]
    assert queue.size == 3
    queue.settle(fresh)
    assert queue.size == 0


def test_a_dropped_queue_holds_nothing() -> None:
    queue = ProcessQueue(QUEUE, 0)
    fresh = queue.put([message(0), message(1)], 2)
    queue.drop()
    assert queue.dropped
    assert (len(queue), queue.size, queue.first) == (0, 0, None)
    assert fresh[0] not in queue


@pytest.mark.parametrize(
    ("window", "fill", "full"),
    [
        (Window(count=3), [message(n) for n in range(3)], False),
        (Window(count=3), [message(n) for n in range(4)], True),
        (Window(size_mib=1), [message(0, bytes((2 << 20) - 1))], False),
        (Window(size_mib=1), [message(0, bytes(2 << 20))], True),
        (Window(span=5), [message(0), message(5)], False),
        (Window(span=5), [message(0), message(6)], True),
        (Window(span=None), [message(0), message(60_000)], False),
    ],
)
def test_the_window_is_full_beyond_its_limits(window: Window, fill: list[MessageExt], full: bool) -> None:
    """docs/protocol/client.md 4.9: every threshold compares by "greater", sizes in whole mebibytes."""
    queue = ProcessQueue(QUEUE, 0)
    queue.put(fill, 0)
    assert window.is_full(queue) is full
