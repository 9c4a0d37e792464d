"""Ends of the consume queues after an orderly end: entries that lead to no message of their queue are dropped.

A recovery of Apache's broker leaves such entries over, as it does not clear what it cuts off; damage makes them too.
"""

from __future__ import annotations

from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.log.records import facts_of, measure
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue


def drop_strange_entries(log: CommitLog, queues: ConsumeQueues, end: int, notes: list[str]) -> tuple[int, bool]:
    """Let each queue end with an entry that leads to its own message. Gives where the log, which ends at `end`, has to
    be read from for queues that lack entries, and whether any were dropped.
    """
    known_end, begin, strange = log.start, end, False
    for queue in queues.by_key.values():
        queue_end, dropped = _drop(log, queues, queue, notes)
        if dropped:  # the entries may be damaged, and their messages lie anywhere behind the last good one
            begin = min(begin, queue_end)
            strange = True
        known_end = max(known_end, queue_end)
    return min(known_end, begin), strange


def _drop(log: CommitLog, queues: ConsumeQueues, queue: Queue, notes: list[str]) -> tuple[int, bool]:
    """Shorten one queue. Gives where its last message ends (the start of the log if there is none), and whether entries
    were dropped.
    """
    before = queue.next_offset
    end = log.start
    while queue.next_offset > queue.min_offset:
        entry = queues.entry(queue, queue.next_offset - 1)
        if entry is not None and (entry[0] < log.start or not _is_strange(log, queues, queue, entry, notes)):
            end = max(end, entry[0] + entry[1])
            break
        queue.next_offset -= 1
        queue.written = queue.max_offset = queue.next_offset
    dropped = before - queue.next_offset
    if dropped:
        notes.append(f"{queue} had {dropped} entries that lead to no message of it")
    if queue in queues.torn:
        notes.append(f"{queue} had a damaged entry behind its end: what follows is made again")
    return end, dropped > 0 or queue in queues.torn


def _is_strange(
    log: CommitLog, queues: ConsumeQueues, queue: Queue, entry: tuple[int, int, int], notes: list[str]
) -> bool:
    """Whether the last entry of a queue leads to no message, or to one of another queue, which knows it. A message that
    nobody else knows stays where it is, even if it claims another place: no checksum covers that part of it.
    """
    record = _record(log, entry[0], entry[1])
    if record is None:
        return True
    facts = facts_of(record)
    claimed = queues.by_key.get((facts.topic, facts.queue_id))
    if claimed is queue and facts.queue_offset == queue.next_offset - 1:
        return False
    known = None if claimed is None else queues.entry(claimed, facts.queue_offset)
    if known is not None and known[0] == entry[0]:
        return True
    notes.append(f"the message at offset {entry[0]} claims another place than {queue}, where it is")
    return False


def _record(log: CommitLog, offset: int, size: int) -> memoryview | None:
    """The record at an offset, if there is one of that size."""
    log_file = log.log_file_at(offset)
    if log_file is None:
        return None
    view, at = log.view_of(log_file), offset - log_file.start
    return view[at : at + size] if measure(view, at, offset, False) == size else None
