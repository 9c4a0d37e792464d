"""Manifest of a directory that was closed in an orderly way: a file of our own that Apache's brokers do not look at.

With it the next opening knows which queues and index files there must be, so a lost one is noticed, and it needs not
look into each queue to find its end, so a start is quick with many queues. It only counts while the log still ends
where it says and nobody else wrote the checkpoint since: otherwise another broker was here, and everything is looked
at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.flush.checkpoint import Checkpoint
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.layout import ENTRY_SIZE, is_index_name, is_offset_name, offset_name
from mqproto.engine.store.log.commit_log import NO_ROOM, CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import Queue

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """Manifest in memory. Offsets are physical, except those of the queues."""

    log_start: int
    log_end: int
    #: Of the checkpoint.
    times: tuple[int, int, int]
    queue_file_size: int
    #: Name of each index file, and the place of the last message in it.
    index: list[tuple[str, int]]
    #: Topic, queue id: first entry on disk, minimum, next offset.
    queues: list[tuple[str, int, int, int, int]]


def write_manifest(
    files: Files, path: str, log: CommitLog, queues: ConsumeQueues, index: Index, times: tuple[int, int, int]
) -> None:
    """Describe a store all of whose data are durable, with a checkpoint of these `times`. A disk that has no room for
    it does without.
    The caller syncs the folder. Blocks.
    """
    value = {
        "version": _VERSION,
        "log": [
            queues.trimmed_to,
            log.end,
        ],  # while the queues do not follow the log's beginning yet, this does not fit, and nothing is believed
        "times": times,
        "queueFileSize": queues.file_size,
        "index": [[each.path.rpartition("/")[2], each.end] for each in index.index_files],
        "queues": [
            [queue.topic, queue.queue_id, queue.first, queue.min_offset, queue.next_offset]
            for queue in queues.by_key.values()
            if queue.next_offset > 0
        ],
    }
    text = json.dumps(value, separators=(",", ":")).encode()
    try:
        files.write(f"{path}.tmp", b"%s\n%08x\n" % (text, crc32(text)))
        files.rename(f"{path}.tmp", path)
    except OSError as failure:
        if failure.errno not in NO_ROOM:
            raise
        files.remove(f"{path}.tmp")


def read_manifest(files: Files, path: str, checkpoint: Checkpoint, notes: list[str]) -> Manifest | None:
    """The manifest, if there is one that still counts as far as the checkpoint shows. Blocks."""
    try:
        text, _, check = files.read(path).rstrip(b"\n").rpartition(b"\n")
    except FileNotFoundError:
        return None
    if check != b"%08x" % crc32(text):
        notes.append(f"{path} is damaged: everything is looked at instead")
        return None
    value = json.loads(text)
    if value["version"] != _VERSION:
        return None
    found = Manifest(
        value["log"][0],
        value["log"][1],
        (value["times"][0], value["times"][1], value["times"][2]),
        value["queueFileSize"],
        [(name, end) for name, end in value["index"]],
        [(topic, queue_id, first, low, end) for topic, queue_id, first, low, end in value["queues"]],
    )
    if files.exists(checkpoint.path):
        written, described = files.modified(checkpoint.path), files.modified(path)
        if found.times != checkpoint.times or (written is not None and described is not None and written > described):
            return None
    else:
        notes.append(f"{checkpoint.path} is missing: it is made again")
        checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time = found.times
    return found


def adopt_queues(manifest: Manifest, queues: ConsumeQueues, notes: list[str]) -> int | None:
    """Take the queues over without looking into them. Gives where the log has to be read from because files of them are
    gone, -1 if none is; None if there is what the manifest does not know, or a file of another size: then it does not
    count. Blocks.
    """
    files, size = queues.files, queues.file_size
    if manifest.queue_file_size != size:
        return None
    unknown = {
        (topic, name) for topic in files.names(queues.folder) for name in files.names(f"{queues.folder}/{topic}")
    }
    damaged: list[Queue] = []
    for topic, queue_id, first, low, end in manifest.queues:
        queue = queues.queue(topic, queue_id)
        unknown.discard((topic, str(queue_id)))
        queue.first, queue.min_offset = first, low
        queue.written = queue.next_offset = queue.max_offset = end
        for kept, at in enumerate(range(first * ENTRY_SIZE, end * ENTRY_SIZE, size)):
            path = f"{queue.folder}/{offset_name(at)}"
            try:
                if files.size(path) != size:
                    return None
            except FileNotFoundError:
                notes.append(f"{path} is missing: {queue} is made again from the log")
                _shorten(queues, queue, kept)
                damaged.append(queue)
                break
    for topic, name in unknown:
        if (
            name.isascii()
            and name.isdigit()
            and any(map(is_offset_name, files.names(f"{queues.folder}/{topic}/{name}")))
        ):
            return None
    queues.known_end = manifest.log_end
    begin = -1
    for queue in damaged:
        last = queues.last(queue) if queue.next_offset > queue.first else None
        at = manifest.log_start if last is None else max(last[0], manifest.log_start)
        begin = at if begin < 0 else min(begin, at)
    return begin


def _shorten(queues: ConsumeQueues, queue: Queue, kept: int) -> None:
    """Let a queue end with the last of its first files."""
    end = queue.first + kept * queues.per_file if kept else 0
    if not kept:
        queue.first = queue.min_offset = 0
    queue.written = queue.next_offset = queue.max_offset = end
    queue.min_offset = min(queue.min_offset, end)


def restore_ends(manifest: Manifest, queues: ConsumeQueues, notes: list[str]) -> None:
    """See to it that no place of a queue that was made again is given out twice, when its last messages are no longer
    in the log.
    """
    for topic, queue_id, _, _, end in manifest.queues:
        queue = queues.queue(topic, queue_id)
        if queue.next_offset < end:
            notes.append(f"messages {queue.next_offset} to {end - 1} of {topic}, queue {queue_id}, are gone")
            if queue.next_offset == queue.first:
                queues.begin_at(queue, end)
            else:
                queues.skip(queue, end, manifest.log_end)


def index_lost_from(manifest: Manifest, index: Index) -> int:
    """Where the log has to be read from because an index file is gone; -1 if none is. Blocks."""
    present = {name for name in index.files.names(index.folder) if is_index_name(name)}
    begin = manifest.log_start
    for name, end in manifest.index:
        if name not in present:
            return begin
        begin = max(end, manifest.log_start)
    return -1
