"""Queues that begin at an offset, or go on at a higher one: for messages that move here from elsewhere."""

from __future__ import annotations

import pytest

from mqproto.engine.store.layout import ENTRY
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig, memory_rig


@pytest.mark.parametrize("offset", [1, 7, 10, 13, 20])
def test_a_queue_begins_at_an_offset(make_rig: MakeRig, offset: int) -> None:
    """Its first file is there before a message is: 10 entries fit a file."""
    rig = make_rig()
    rig.send("Other")
    queue = rig.store.queue("Topic", 0)
    rig.store.skip_to(queue, offset)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (offset, offset, offset)
    assert rig.files.names(queue.folder) == [f"{(offset - offset % 10) * 20:020d}"]
    rig.reopen()
    queue = rig.store.queue("Topic", 0)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (offset, offset, offset)
    rig.send(body=b"first")
    for _ in range(2):
        assert [(each.queue_offset, each.body) for each in rig.read()] == [(offset, b"first")]
        queue = rig.store.queue("Topic", 0)
        assert (queue.min_offset, queue.max_offset) == (offset, offset + 1)
        assert rig.store.entry(queue, offset - 1) is None
        rig.kill()
        rig.open()


@pytest.mark.parametrize("offset", [4, 9, 10, 25])
@pytest.mark.parametrize("settled", [False, True])
def test_a_queue_goes_on_at_an_offset(rig: Rig, offset: int, settled: bool) -> None:
    rig.send_many(3)
    if settled:
        rig.settle()
    rig.send_many(50, "Other")
    queue = rig.store.queue("Topic", 0)
    places = offset - queue.next_offset
    rig.store.skip_to(queue, offset)
    physical = rig.send(body=b"after")
    rig.store.lead_over(queue, places)
    raw = [ENTRY.unpack_from(rig.store._queues.chunk(queue, place, 1, offset + 1)) for place in range(3, offset + 1)]
    assert [each[0] for each in raw] == [physical] * (places + 1)
    assert {each[1] for each in raw} == {raw[-1][1]}, "Apache's brokers read a whole message there"
    for _ in range(2):
        queue = rig.store.queue("Topic", 0)
        assert (queue.min_offset, queue.max_offset) == (0, offset + 1)
        assert rig.store.entry(queue, 3) is None
        assert [each.queue_offset for each in rig.read(start=offset)] == [offset]
        rig.reopen()


def test_what_is_passed_cannot_come_again(rig: Rig) -> None:
    rig.send_many(3)
    queue = rig.store.queue("Topic", 0)
    rig.store.skip_to(queue, 3)
    assert queue.next_offset == 3
    with pytest.raises(ValueError, match="cannot go on at offset 2"):
        rig.store.skip_to(queue, 2)


def test_messages_that_wait_for_the_disk_come_first(make_rig: MakeRig) -> None:
    rig = make_rig(flush_disk_type="SYNC_FLUSH")
    rig.send()
    queue = rig.store.queue("Topic", 0)
    with pytest.raises(ValueError, match="cannot go on"):
        rig.store.skip_to(queue, 5)
    rig.store.want_flush()
    rig.run_jobs()
    rig.store.skip_to(queue, 5)
    assert queue.max_offset == 5


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
def test_a_moved_queue_survives_the_loss_of_all_queues(rig: Rig, count: int) -> None:
    rig.send("Other")
    rig.store.skip_to(rig.store.queue("Topic", 0), 1 << 40)
    for number in range(count):
        rig.send(body=b"%d" % number)
    rig.close()
    rig.files.remove_tree(f"{rig.root}/consumequeue")
    rig.open()
    assert [each.queue_offset for each in rig.read()] == [(1 << 40) + number for number in range(count)]
    assert not any("claims place" in note for note in rig.store.recovery.notes)


@pytest.mark.parametrize("before", [0, 3])
def test_a_message_may_begin_a_file_of_the_log(rig: Rig, before: int) -> None:
    rig.send_many(before)
    rig.store.begin_log_file()
    rig.run_jobs()
    assert rig.send(body=b"next") == 4096
    for _ in range(2):
        assert [each.queue_offset for each in rig.read()] == list(range(before + 1))
        assert rig.read()[-1].physical_offset == 4096
        rig.reopen()
    rig.kill()
    rig.open()
    assert rig.read()[-1].physical_offset == 4096
