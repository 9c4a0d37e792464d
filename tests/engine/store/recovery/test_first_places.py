"""Queues that begin at an offset other than 0: what is found again after a crash, and without any queue files."""

from __future__ import annotations

import pytest

from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig, memory_rig


def begin_at(rig: Rig, offset: int) -> None:
    """Let the queue of `send` begin at an offset, as queues do whose first messages the log has lost."""
    rig.store._queues.begin_at(rig.store.queue("Topic", 0), offset)


@pytest.mark.parametrize("offset", [1, 7, 10, 13, 20])
def test_a_queue_begins_at_an_offset(make_rig: MakeRig, offset: int) -> None:
    """Its first file has blank entries before the first message: 10 entries fit a file."""
    rig = make_rig()
    rig.send("Other")
    begin_at(rig, offset)
    queue = rig.store.queue("Topic", 0)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (offset, offset, offset)
    rig.send(body=b"first")
    rig.settle()
    assert rig.files.names(queue.folder) == [f"{(offset - offset % 10) * 20:020d}"]
    for _ in range(2):
        assert [(each.queue_offset, each.body) for each in rig.read()] == [(offset, b"first")]
        queue = rig.store.queue("Topic", 0)
        assert (queue.min_offset, queue.max_offset) == (offset, offset + 1)
        assert rig.store.reader.entry(queue, offset - 1) is None
        rig.kill()
        rig.open()


def test_a_first_message_that_nobody_vouches_for_costs_only_itself() -> None:
    """A damaged place at the beginning of a queue: what follows claims others."""
    rig = memory_rig()
    rig.store.queue("Topic", 0).next_offset = 1 << 40
    rig.send(body=b"strange")
    rig.store.queue("Topic", 0).next_offset = 1
    rig.send(body=b"good")
    rig.send(body=b"good too")
    rig.kill()
    rig.open()
    assert any(f"claims place {1 << 40}" in note for note in rig.store.recovery.notes)
    assert [(each.queue_offset, each.body) for each in rig.read()] == [(1, b"good"), (2, b"good too")]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_such_a_queue_survives_the_loss_of_all_queues(rig: Rig, count: int) -> None:
    rig.send("Other")
    begin_at(rig, 1 << 40)
    for number in range(count):
        rig.send(body=b"%d" % number)
    rig.close()
    rig.files.remove_tree(f"{rig.root}/consumequeue")
    rig.open()
    assert [each.queue_offset for each in rig.read()] == [(1 << 40) + number for number in range(count)]
    assert not any("claims place" in note for note in rig.store.recovery.notes)
