"""The consume queues: for every queue of a topic the places of its messages in the log (docs/protocol/store.md 4).

Owns: the queues in memory, their files, reading entries.
An entry is appended to the queue's `tail` in memory; a job writes tails to files when enough has come together
(`flusher`). After a crash what was not written is made again from the log, so nothing is lost by that, and ten thousand
queues need neither a map nor a file descriptor each. Files are mapped for reading, the least recently read map goes
when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.errors import StoreDamaged
from mqproto.engine.store.layout import BLANK, BLANK_SIZE, ENTRY, ENTRY_SIZE, HOLE_CODE, is_offset_name, offset_name
from mqproto.engine.store.queues.extension import Extension, Unit, Units
from mqproto.engine.store.queues.queue import NO_SIZE, Queue
from mqproto.engine.store.queues.queue_io import Piece
from mqproto.engine.store.settings import StoreSettings

_NO_ENTRIES: Final = memoryview(b"")
#: Bytes of the longest topic: 5.x keeps retry topics in records of version 2, and names of folders end there
#: (docs/protocol/store.md 2.2).
_TOPIC_MAX: Final = 255
#: Names that would lead out of their folder. The broker checks topics; the store makes sure.
_NOT_A_NAME: Final = frozenset({"", ".", ".."})

_REMEDY: Final = "set mappedFileSizeConsumeQueue to what the directory was made with; --recover skip or cut makes the queue again from the log"


def _is_topic_name(topic: str) -> bool:
    """Whether a folder may have the name of a topic."""
    return (
        topic not in _NOT_A_NAME
        and not ("/" in topic or "\\" in topic or "\0" in topic)
        and len(topic.encode()) <= _TOPIC_MAX
    )


class ConsumeQueues:
    """All queues of a store."""

    __slots__ = (
        "_maps",
        "_maps_max",
        "_units_begun",
        "by_key",
        "dirty",
        "extension",
        "file_size",
        "files",
        "folder",
        "followed",
        "known_end",
        "mark_spacing",
        "per_file",
        "torn",
    )

    def __init__(self, files: Files, settings: StoreSettings) -> None:
        self.files = files
        self.folder = f"{settings.store_path_root_dir}/consumequeue"
        self.file_size = settings.queue_file_size
        #: Bytes of the log between the marks of a queue (`Queue.mark`).
        self.mark_spacing = 1
        #: Entries of a file.
        self.per_file = self.file_size // ENTRY_SIZE
        self.by_key: dict[tuple[str, int], Queue] = {}
        #: Queues with a tail, but for those that are just being written. Some may have been deleted.
        self.dirty: list[Queue] = []
        #: Behind the last message of the log that any queue knew when it was loaded; -1: none did.
        self.known_end = -1
        #: The beginning of the log that the minima of all queues agree with.
        self.followed = 0
        #: Queues that end, as they were found, at an entry that is neither good nor empty: it is damaged, and there was
        #: more.
        self.torn: set[Queue] = set()
        self._maps: dict[str, tuple[File, memoryview]] = {}
        self._maps_max = settings.mapped_queue_files
        self.extension = Extension(files, settings, self._view)
        self._units_begun = False

    def queue(self, topic: str, queue_id: int) -> Queue:
        """The queue; made, in memory, when there is none. ValueError for a topic that is no name of a folder."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            if not _is_topic_name(topic):
                raise ValueError(f"no topic has the name {topic!r}")
            queue = self.by_key[topic, queue_id] = Queue(topic, queue_id, f"{self.folder}/{topic}/{queue_id}")
        return queue

    def add(self, queue: Queue, entry: bytes) -> None:
        """Append one entry; `Writer.append` does the same in line."""
        if not queue.tail:
            self.dirty.append(queue)
        queue.tail += entry
        queue.next_offset += 1

    def begin_at(self, queue: Queue, offset: int) -> None:
        """Let an empty queue begin at an offset: entries before it in the same file are blank (docs/protocol/store.md
        4.3).
        """
        start = offset - offset % self.per_file
        queue.first = queue.written = start
        queue.min_offset = queue.max_offset = queue.next_offset = offset
        had_tail = bool(queue.tail)
        queue.tail[:] = BLANK * (offset - start)
        if queue.tail and not had_tail:
            self.dirty.append(queue)

    def skip(self, queue: Queue, offset: int, physical: int) -> None:
        """Leave the places up to an offset blank. Blank entries carry a physical offset, that of the message that
        follows, so that offsets never decrease within a queue.
        """
        count = offset - queue.next_offset
        self.add(queue, ENTRY.pack(physical, BLANK_SIZE, 0) * count)
        queue.next_offset = queue.max_offset = offset

    def path_of(self, queue: Queue, offset: int) -> str:
        """The file that an entry belongs to."""
        return f"{queue.folder}/{offset_name((offset - offset % self.per_file) * ENTRY_SIZE)}"

    # --- reading ---

    def chunk(self, queue: Queue, offset: int, count: int, stop: int) -> bytes | memoryview | bytearray:
        """Up to `count` entries from `offset` on, none at or behind `stop`, all of one file; empty if it is not
        readable.
        """
        stop = min(stop, offset + count, offset - offset % self.per_file + self.per_file)
        written = queue.written
        if offset >= written:
            return queue.tail[(offset - written) * ENTRY_SIZE : (stop - written) * ENTRY_SIZE]
        start = offset % self.per_file
        view = self._view(f"{queue.folder}/{offset_name((offset - start) * ENTRY_SIZE)}")
        found = view[start * ENTRY_SIZE : (min(stop, written) - offset + start) * ENTRY_SIZE]
        if stop <= written or not found:
            return found
        return bytes(found) + queue.tail[: (stop - written) * ENTRY_SIZE]

    def file_entries(self, queue: Queue, offset: int, stop: int) -> memoryview:
        """Entries of the file that holds `offset`, from there on and below `stop`, whether or not they count; empty
        without a file.
        """
        start = offset % self.per_file
        view = self._view(f"{queue.folder}/{offset_name((offset - start) * ENTRY_SIZE)}")
        return view[start * ENTRY_SIZE : (min(stop, offset - start + self.per_file) - offset + start) * ENTRY_SIZE]

    def entry(self, queue: Queue, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of one message below `next_offset`."""
        if not queue.min_offset <= offset < queue.next_offset:
            return None
        return entry_of(self.chunk(queue, offset, 1, queue.next_offset))

    def _view(self, path: str) -> memoryview:
        """A file, mapped; nothing if it is not there."""
        found = self._maps.pop(path, None)
        if found is None:
            try:
                file = self.files.open(path)
            except FileNotFoundError:
                return _NO_ENTRIES
            if file.size == 0:
                file.close()
                return _NO_ENTRIES
            found = (file, file.view())
            if len(self._maps) >= self._maps_max:
                self._maps.pop(next(iter(self._maps)))[0].close()
        self._maps[path] = found
        return found[1]

    def file_at(self, path: str) -> File | None:
        """A file, open for as long as its map is kept; None if it is not there."""
        found = self._view(path)
        return self._maps[path][0] if found else None

    def forget_map(self, path: str) -> None:
        """Give back the map of a file, if there is one."""
        if path in self._maps:
            self._maps.pop(path)[0].close()

    def forget_maps(self) -> None:
        """Give back all maps."""
        for file, _ in self._maps.values():
            file.close()
        self._maps.clear()

    # --- writing ---

    def pieces(self, queue: Queue, stop: int) -> Iterator[Piece]:
        """What has to be written so that entries below `stop` are in files."""
        at = queue.written
        while at < stop:
            start = at - at % self.per_file
            end = min(stop, start + self.per_file)
            data = bytes(queue.tail[(at - queue.written) * ENTRY_SIZE : (end - queue.written) * ENTRY_SIZE])
            yield Piece(
                f"{queue.folder}/{offset_name(start * ENTRY_SIZE)}", (at - start) * ENTRY_SIZE, data, self.file_size
            )
            at = end

    def wrote(self, queue: Queue, stop: int) -> None:
        """Entries below `stop` are in files now."""
        if not queue.removed and stop > queue.written:
            queue.mark(queue.written, ENTRY.unpack_from(queue.tail)[0], self.mark_spacing)
            del queue.tail[: (stop - queue.written) * ENTRY_SIZE]
            queue.written = stop

    def remove(self, queue: Queue) -> None:
        """Forget a queue. Its files are the caller's to remove."""
        queue.removed = True
        queue.fixed_size = NO_SIZE  # sends every append to the check that refuses it
        self.by_key.pop((queue.topic, queue.queue_id), None)
        queue.tail.clear()
        folders = self.folders_of(queue)
        if queue.units is not None:
            self.extension.drop(queue.units)
            queue.units = None
        for path in [path for path in self._maps if path.rpartition("/")[0] in folders]:
            self._maps.pop(path)[0].close()

    def folders_of(self, queue: Queue) -> list[str]:
        """Where the files of a queue are."""
        extension = self.extension
        return [queue.folder, extension.folder_of(queue.topic, queue.queue_id)] if extension.present else [queue.folder]

    # --- the extension ---

    def extend(self, queue: Queue, code: int, store_time: int, bits: bytes) -> int:
        """Put a unit for the next message of a queue; gives its address, which the entry holds in place of the code. A
        queue that was found on disk must have been begun, or this blocks.
        """
        units = queue.units or self._units(queue)
        if units.written < 0:
            if queue.next_offset == 0 and self._units_begun:
                units.written = 0  # a new queue: nothing has to be looked for
            else:
                self._begin_units(queue, units)
        return self.extension.put(units, code, store_time, bits)

    def unit(self, queue: Queue, address: int) -> Unit | None:
        """The unit at an address; None if it is gone."""
        return self.extension.find(queue.units or self._units(queue), address)

    def _units(self, queue: Queue) -> Units:
        queue.units = units = Units(self.extension.folder_of(queue.topic, queue.queue_id))
        return units

    def _begin_units(self, queue: Queue, units: Units) -> None:
        last = (
            self.chunk(queue, queue.next_offset - 1, 1, queue.next_offset) if queue.next_offset > queue.first else b""
        )
        self.extension.begin(units, queue.next_offset, ENTRY.unpack_from(last)[2] if last else None)

    def begin_extension(self) -> None:
        """Find where the units of every queue end, so that none has to be looked for when a message comes, and remove
        those of queues that are no more. Blocks.
        """
        extension = self.extension
        if not extension.enabled:
            return
        for topic in self.files.names(extension.folder):
            for name in self.files.names(f"{extension.folder}/{topic}"):
                if name.isascii() and name.isdigit() and (topic, int(name)) not in self.by_key:
                    self.files.remove_tree(f"{extension.folder}/{topic}/{name}")
        for queue in self.by_key.values():
            if queue.units is None or queue.units.written < 0:
                self._begin_units(queue, queue.units or self._units(queue))
        self._units_begun = True

    def drop_units(self) -> None:
        """Entries were dropped: where the units end has to be found again. All that was in memory is forgotten."""
        for queue in self.by_key.values():
            if queue.units is not None:
                self.extension.drop(queue.units)
        self._units_begun = False

    # --- opening ---

    def load(self, log_start: int, notes: list[str], unusable: Callable[[Queue, StoreDamaged], None]) -> None:
        """Find all queues on disk, how far each one goes, and its first message that a log from `log_start` on still
        has.

        `unusable` is told of queues with files that are missing or of a wrong size; they stay empty, unless it raises.
        Blocks.
        """
        self.extension.present |= self.files.exists(self.extension.folder)
        for topic in self.files.names(self.folder):
            topic_folder = f"{self.folder}/{topic}"
            for name in self.files.names(topic_folder):
                if name.isascii() and name.isdigit() and self.files.is_folder(f"{topic_folder}/{name}"):
                    queue = self.queue(topic, int(name))
                    try:
                        self._load(queue, log_start, notes)
                    except StoreDamaged as damage:
                        unusable(queue, damage)

    def _load(self, queue: Queue, log_start: int, notes: list[str]) -> None:
        sizes: dict[str, int] = {}
        for name in self.files.names(queue.folder):
            path = f"{queue.folder}/{name}"
            if is_offset_name(name):
                size = self.files.size(path)
                if size == self.file_size or not self.files.is_folder(path):
                    sizes[name] = size
        names = list(sizes)
        while names and sizes[names[-1]] == 0:
            notes.append(f"{queue.folder}/{names[-1]} is empty and was left out")
            names.pop()
        if not names:
            return
        starts = [int(name) for name in names]
        for index, start in enumerate(starts):
            path = f"{queue.folder}/{names[index]}"
            if (size := sizes[names[index]]) != self.file_size:
                raise StoreDamaged(
                    path, None, (f"it has {size} bytes instead of the configured {self.file_size}",), _REMEDY
                )
            if start != starts[0] + self.file_size * index or start % self.file_size:
                raise StoreDamaged(path, None, ("the file before it is missing",), _REMEDY)
        queue.first = starts[0] // ENTRY_SIZE
        queue.written = (starts[-1] + self.file_size) // ENTRY_SIZE
        first, last = self.shorten(queue, None)
        if last is not None:
            self.known_end = max(self.known_end, last[0] + last[1])
        if first is not None and first[0] >= log_start and first[1] != BLANK_SIZE:
            queue.min_offset = queue.first
        else:
            self.correct_min(queue, log_start)
            data = self.chunk(queue, queue.first, 1, queue.min_offset)
            if data and ENTRY.unpack_from(data)[0] < 0:
                notes.append(f"{queue} begins with an entry that leads nowhere: `store check` tells what is damaged")

    def shorten(self, queue: Queue, below: int | None) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Let a queue end behind its last good entry: one that is set and, if `below` is given, lies below that
        physical offset.

        Entries follow each other, so the end is searched by halving, in the last file that begins with a good one.
        Gives physical offset and size of the first and the last entry, as far as they are in that file and not blank.
        """
        first = last = None
        end = queue.written
        queue.written = queue.first
        while end > queue.first:
            start = end - 1 - (end - 1) % self.per_file
            file = self.files.open(f"{queue.folder}/{offset_name(start * ENTRY_SIZE)}")
            try:
                good = _good_entries(file, end - start, below)
                if below is None and good < end - start and any(file.read(good * ENTRY_SIZE, ENTRY_SIZE)):
                    self.torn.add(queue)
                if good:
                    queue.written = start + good
                    last = _place(file, good - 1)
                    first = _place(file, 0) if start == queue.first else None
            finally:
                file.close()
            if good:
                break
            end = start
        queue.max_offset = queue.next_offset = queue.written
        return first, last

    def last(self, queue: Queue) -> tuple[int, int] | None:
        """Physical offset and size of the last entry that is not blank."""
        found = self.entry(queue, queue.next_offset - 1)
        return None if found is None else found[:2]

    def correct_min(self, queue: Queue, log_start: int) -> None:
        """Set the first offset whose record the log still has (docs/protocol/store.md 4.4; the blank entries that a
        queue may begin with never count). Looks at the first entry before it searches, so that nothing depends on those
        in between while all are there.
        """
        low = queue.first
        if low < queue.next_offset:
            physical, size = self._place(queue, low)
            if physical < log_start or (size == BLANK_SIZE and physical == 0):
                low = first_kept(lambda offset: self._place(queue, offset), low, queue.next_offset, log_start)
        queue.min_offset = low

    def _place(self, queue: Queue, offset: int) -> tuple[int, int]:
        data = self.chunk(queue, offset, 1, queue.next_offset)
        physical, size, _ = ENTRY.unpack_from(data) if data else (-1, 0, 0)
        return physical, size

    def drop_files(self, queue: Queue) -> list[str]:
        """Take files out of a queue that lie wholly before its first message, never the last one; gives their paths in
        order. Removing them is the caller's.
        """
        paths: list[str] = []
        while queue.first + self.per_file <= queue.min_offset and queue.first + self.per_file < queue.written:
            path = f"{queue.folder}/{offset_name(queue.first * ENTRY_SIZE)}"
            self.forget_map(path)
            paths.append(path)
            queue.first += self.per_file
        return paths


def first_kept(place: Callable[[int], tuple[int, int]], low: int, high: int, log_start: int) -> int:
    """The first offset from `low` on whose record a log from `log_start` on still has; `high` if there is none below.
    `place` gives physical offset and size of an entry.
    """
    while low < high:
        middle = (low + high) // 2
        physical, size = place(middle)
        if physical < log_start or (size == BLANK_SIZE and physical == 0):
            low = middle + 1
        else:
            high = middle
    return low


def entry_of(data: bytes | memoryview | bytearray) -> tuple[int, int, int] | None:
    """Physical offset, size and tags code of the entry that `data` begins with; None for a blank one, or none."""
    if not data:
        return None
    physical, size, code = ENTRY.unpack_from(data)
    return None if size == BLANK_SIZE or size <= 0 or code == HOLE_CODE else (physical, size, code)


def _place(file: File, number: int) -> tuple[int, int] | None:
    """Physical offset and size of an entry; None for a blank one."""
    physical, size, _ = ENTRY.unpack(file.read(number * ENTRY_SIZE, ENTRY_SIZE))
    return None if size == BLANK_SIZE else (physical, size)


def _good_entries(file: File, count: int, below: int | None) -> int:
    """How many of the first `count` entries of a file are good."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        physical, size, _ = ENTRY.unpack(file.read(middle * ENTRY_SIZE, ENTRY_SIZE))
        if size > 0 and physical >= 0 and (below is None or physical < below):
            low = middle + 1
        else:
            high = middle
    return low
