"""Consume queues: for every queue of a topic the places of its messages in the log (docs/protocol/store.md 4).

Owns: the queues in memory, their files, reading entries. An entry is appended to the queue's `tail` in memory; a job
writes tails to files when enough has come together (`queue_rounds`). After a crash what was not written is made again
from the log, so nothing is lost by that, and ten thousand queues need neither a map nor a file descriptor each. Files
are mapped for reading, the least recently read map goes when there are too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.layout import BLANK, BLANK_SIZE, ENTRY, ENTRY_SIZE, offset_name
from mqproto.engine.store.queues.entries import entry_of
from mqproto.engine.store.queues.extension import Extension, Unit, Units
from mqproto.engine.store.queues.queue import NO_SIZE, Queue
from mqproto.engine.store.queues.queue_io import FileWrite
from mqproto.engine.store.settings import StoreSettings

_NO_ENTRIES: Final = memoryview(b"")
#: Bytes of the longest topic: 5.x keeps retry topics in records of version 2, and names of folders end there
#: (docs/protocol/store.md 2.2).
_TOPIC_MAX: Final = 255
#: Names that would lead out of their folder. The broker checks topics; the store makes sure.
_NOT_A_NAME: Final = frozenset({"", ".", ".."})


def _is_topic_name(topic: str) -> bool:
    """Whether a folder may have the name of a topic."""
    return (
        topic not in _NOT_A_NAME
        and not ("/" in topic or "\\" in topic or "\0" in topic)
        and len(topic.encode()) <= _TOPIC_MAX
    )


class ConsumeQueues:
    """Queues of a store, all of them."""

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
        "known_end",
        "mark_spacing",
        "per_file",
        "torn",
        "trimmed_to",
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
        self.trimmed_to = 0
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
        """Let an empty queue begin at an offset.

        Entries before it in the same file are blank (docs/protocol/store.md 4.3).
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

    # --- reading ---

    def chunk(self, queue: Queue, offset: int, count: int, stop: int) -> bytes | memoryview | bytearray:
        """Up to `count` entries from `offset` on, none at or behind `stop`, all of one file; empty without it."""
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

    def unwritten(self, queue: Queue, stop: int) -> Iterator[FileWrite]:
        """What has to be written so that entries below `stop` are in files."""
        at = queue.written
        while at < stop:
            start = at - at % self.per_file
            end = min(stop, start + self.per_file)
            data = bytes(queue.tail[(at - queue.written) * ENTRY_SIZE : (end - queue.written) * ENTRY_SIZE])
            yield FileWrite(
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

    # --- ends ---

    def last(self, queue: Queue) -> tuple[int, int] | None:
        """Physical offset and size of the last entry that is not blank."""
        found = self.entry(queue, queue.next_offset - 1)
        return None if found is None else found[:2]

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
