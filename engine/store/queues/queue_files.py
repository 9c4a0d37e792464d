"""Files of the consume queues as they are found at opening: which there are, and where each queue begins and ends
(docs/protocol/store.md 4, 8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.engine.store.disk.files import File
from mqproto.engine.store.errors import StoreDamaged
from mqproto.engine.store.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE, is_offset_name, offset_name
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.entries import first_kept, good_entries
from mqproto.engine.store.queues.queue import Queue

_REMEDY: Final = (
    "set mappedFileSizeConsumeQueue to what the directory was made with; "
    "--recover skip or cut makes the queue again from the log"
)


def load_queues(
    queues: ConsumeQueues, log_start: int, notes: list[str], unusable: Callable[[Queue, StoreDamaged], None]
) -> None:
    """Find all queues on disk, how far each one goes, and its first message that a log from `log_start` on still has.

    `unusable` gets the queues with missing files or files of a wrong size; they stay empty, unless it raises. Blocks.
    """
    files = queues.files
    queues.extension.present |= files.exists(queues.extension.folder)
    for topic in files.names(queues.folder):
        topic_folder = f"{queues.folder}/{topic}"
        for name in files.names(topic_folder):
            if name.isascii() and name.isdigit() and files.is_folder(f"{topic_folder}/{name}"):
                queue = queues.queue(topic, int(name))
                try:
                    _load(queues, queue, log_start, notes)
                except StoreDamaged as damage:
                    unusable(queue, damage)


def _load(queues: ConsumeQueues, queue: Queue, log_start: int, notes: list[str]) -> None:
    starts = _starts(queues, queue, notes)
    if not starts:
        return
    queue.first = starts[0] // ENTRY_SIZE
    queue.written = (starts[-1] + queues.file_size) // ENTRY_SIZE
    first, last = shorten(queues, queue, None)
    if last is not None:
        queues.known_end = max(queues.known_end, last[0] + last[1])
    if first is not None and first[0] >= log_start and first[1] != BLANK_SIZE:
        queue.min_offset = queue.first
    else:
        correct_min(queues, queue, log_start)
        data = queues.chunk(queue, queue.first, 1, queue.min_offset)
        if data and ENTRY.unpack_from(data)[0] < 0:
            notes.append(f"{queue} begins with an entry that leads nowhere: `store check` tells what is damaged")


def _starts(queues: ConsumeQueues, queue: Queue, notes: list[str]) -> list[int]:
    """Where the files of a queue begin, in bytes. Raises StoreDamaged for one that is missing or of a wrong size."""
    files, file_size = queues.files, queues.file_size
    sizes: dict[str, int] = {}
    for name in files.names(queue.folder):
        path = f"{queue.folder}/{name}"
        if is_offset_name(name):
            size = files.size(path)
            if size == file_size or not files.is_folder(path):
                sizes[name] = size
    names = list(sizes)
    while names and sizes[names[-1]] == 0:
        notes.append(f"{queue.folder}/{names[-1]} is empty and was left out")
        names.pop()
    starts = [int(name) for name in names]
    for index, start in enumerate(starts):
        path = f"{queue.folder}/{names[index]}"
        if (size := sizes[names[index]]) != file_size:
            raise StoreDamaged(path, None, (f"it has {size} bytes instead of the configured {file_size}",), _REMEDY)
        if start != starts[0] + file_size * index or start % file_size:
            raise StoreDamaged(path, None, ("the file before it is missing",), _REMEDY)
    return starts


def shorten(
    queues: ConsumeQueues, queue: Queue, below: int | None
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Let a queue end behind its last good entry: one that is set and, if `below` is given, lies below that physical
    offset. It is searched in the last file that begins with a good one.

    Gives physical offset and size of the first and the last entry, as far as they are in that file and not blank.
    """
    first = last = None
    end = queue.written
    queue.written = queue.first
    while end > queue.first:
        start = end - 1 - (end - 1) % queues.per_file
        file = queues.files.open(f"{queue.folder}/{offset_name(start * ENTRY_SIZE)}")
        try:
            good = good_entries(file.read, end - start, below)
            if below is None and good < end - start and any(file.read(good * ENTRY_SIZE, ENTRY_SIZE)):
                queues.torn.add(queue)
            if good:
                queue.written = start + good
                last = _place_in(file, good - 1)
                first = _place_in(file, 0) if start == queue.first else None
        finally:
            file.close()
        if good:
            break
        end = start
    queue.max_offset = queue.next_offset = queue.written
    return first, last


def _place_in(file: File, number: int) -> tuple[int, int] | None:
    """Physical offset and size of an entry; None for a blank one."""
    physical, size, _ = ENTRY.unpack(file.read(number * ENTRY_SIZE, ENTRY_SIZE))
    return None if size == BLANK_SIZE else (physical, size)


def correct_min(queues: ConsumeQueues, queue: Queue, log_start: int) -> None:
    """Set the first offset whose record the log still has (docs/protocol/store.md 4.4; the blank entries that a queue
    may begin with never count). Looks at the first entry before it searches, so that nothing depends on those in
    between while all are there.
    """

    def place(offset: int) -> tuple[int, int]:
        data = queues.chunk(queue, offset, 1, queue.next_offset)
        physical, size, _ = ENTRY.unpack_from(data) if data else (-1, 0, 0)
        return physical, size

    low = queue.first
    if low < queue.next_offset:
        physical, size = place(low)
        if physical < log_start or (size == BLANK_SIZE and physical == 0):
            low = first_kept(place, low, queue.next_offset, log_start)
    queue.min_offset = low
