"""Index: from keys and unique ids of messages to their places in the log (docs/protocol/store.md 5).

Owns: the index files, their making, adding keys, candidates for a query.
A file is made, and its blocks are allocated ahead of the entries, by jobs. Keys that come before their place is ready
wait in `late`; queries look there too. The head of a file is written when it is flushed: after a crash recovery cuts
the file to what was durable and adds the rest again from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.index.index_file import IndexFile
from mqproto.engine.store.index.index_reader import ENTRY_SIZE, IndexReader
from mqproto.engine.store.layout import index_name, is_index_name
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.settings import StoreSettings
from mqproto.state.node.contract import Job
from mqproto.wire.ids import index_hash, java_hash

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_MODULO: Final = 0x100000000
_I32_MAX: Final = 0x7FFFFFFF

#: Unique ids of IPv4 clients have 32 digits. The first 24 stay the same for about a minute of one producer, so their
#: part of the hash is kept; that of the last 8 is computed.
_KEY_LENGTH: Final = 32
_HEAD_LENGTH: Final = 24
_TAIL: Final = Struct("8B")
_POWER_8: Final = 31**8
_HEADS_MAX: Final = 4096

#: Entries that get blocks at a time: at first, and later.
_FIRST_STEP: Final = 1 << 14
_STEP: Final = 1 << 18
#: Bytes that are read at a time.
_CHUNK: Final = 1 << 20
#: Keys that may wait for their place. Beyond it the store refuses messages.
LATE_MAX: Final = 1 << 16
#: Entries that one query looks at. A chain may be as long as a file has entries, and the loop waits for the query.
_LOOKED_AT_MAX: Final = 50_000


class AllocateIndex:
    """Job: make an index file, or allocate blocks of one; of one that was found, also bring the slots into memory."""

    __slots__ = ("end", "entries_at", "file", "files", "folder", "path", "ready", "size", "start")

    def __init__(self, index: Index, path: str, file: File | None, start: int, end: int, ready: int) -> None:
        self.files = index.files
        self.folder = index.folder
        self.size = index.file_size
        self.entries_at = index.file_size - ENTRY_SIZE * index.entries_max
        self.path = path
        #: The open file; None: it is still to be made.
        self.file = file
        self.start = start
        self.end = end
        #: Entries below this number have blocks afterwards.
        self.ready = ready

    def run(self) -> None:
        if self.file is not None:
            self.file.allocate(self.start, self.end - self.start)
            if self.start == 0:
                # every key goes to another page of the slots: appends must not wait for the disk with each
                for at in range(0, self.entries_at, _CHUNK):
                    self.file.read(at, min(_CHUNK, self.entries_at - at))
            return
        self.files.make_folder(self.folder)
        file = self.files.create(self.path, self.size)
        try:
            file.allocate(self.start, self.end - self.start)
            self.files.sync_folder(self.folder)
        except OSError:
            file.close()
            raise
        self.file = file


class Index:
    """Index files, all of them, and the one that is written."""

    __slots__ = (
        "_busy",
        "_heads",
        "_next",
        "_soft",
        "current",
        "entries_max",
        "file_size",
        "files",
        "folder",
        "full",
        "index_files",
        "jobs",
        "late",
        "slots",
        "utc_offset",
    )

    def __init__(self, files: Files, settings: StoreSettings, jobs: list[Job], utc_offset_ms: int) -> None:
        self.files = files
        self.jobs = jobs
        self.folder = f"{settings.store_path_root_dir}/index"
        self.slots = settings.max_hash_slot_num
        self.entries_max = settings.max_index_num
        self.file_size = settings.index_file_size
        self.utc_offset = utc_offset_ms
        #: Oldest first.
        self.index_files: list[IndexFile] = []
        #: The last one, which keys are added to.
        self.current: IndexFile | None = None
        #: Files that became full and are not durable yet.
        self.full: list[IndexFile] = []
        #: Keys that wait for a file or for blocks: hash, physical offset, store time.
        self.late: list[tuple[int, int, int]] = []
        self._heads: dict[str, int] = {}
        self._busy = False
        #: The file that will follow the current one.
        self._next: IndexFile | None = None
        #: From this entry on `add` has to ask what is ready.
        self._soft = 0

    def load(self, notes: list[str]) -> None:
        """Find the files on disk. Those of another size or with a strange name are left alone. Blocks."""
        for name in self.files.names(self.folder):
            path = f"{self.folder}/{name}"
            if not is_index_name(name) or self.files.is_folder(path):
                notes.append(f"{path} is no index file and was left out")
            elif (size := self.files.size(path)) != self.file_size:
                notes.append(f"{path} has {size} bytes instead of the configured {self.file_size} and was left out")
            else:
                self.index_files.append(IndexFile(self.files, path, self.slots))
        self.current = self.index_files[-1] if self.index_files else None

    def begin_again(self) -> None:
        """The files were changed: forget what was prepared and what waits. No job may be under way."""
        self.jobs[:] = [job for job in self.jobs if not isinstance(job, AllocateIndex)]
        self._busy = False
        self._soft = 0
        self._drop_next()
        self.late.clear()
        self.full.clear()
        self.current = self.index_files[-1] if self.index_files else None
        if self.current is not None:
            self.current.ready = 0

    def _drop_next(self) -> None:
        if self._next is not None:
            self._next.close()
            self.files.remove(self._next.path)
            self._next = None

    def drop_below(self, log_start: int) -> list[str]:
        """Take out the files that only know messages before the beginning of the log, never the last one, nor one that
        is not durable yet;
        gives their paths. Removing them is the caller's.
        """
        paths: list[str] = []
        while (
            len(self.index_files) > 1 and self.index_files[0].end < log_start and self.index_files[0] not in self.full
        ):
            index_file = self.index_files.pop(0)
            index_file.close()
            paths.append(index_file.path)
        return paths

    # --- adding ---

    def add(self, queue: Queue, uniq_key: str | None, keys: str | None, physical: int, wall: int) -> None:
        """Index one message: its unique id, then each of its keys, which single blanks separate."""
        if uniq_key:
            self._put(self._unique_hash(queue, uniq_key), physical, wall)
        if keys:
            for key in keys.split(" "):
                if key:
                    self._put(index_hash(key, queue.prefix_hash), physical, wall)

    def _unique_hash(self, queue: Queue, key: str) -> int:
        """The index hash of a unique id."""
        if len(key) == _KEY_LENGTH:
            head = key[:_HEAD_LENGTH]
            tail = key[_HEAD_LENGTH:].encode("utf-8", "surrogatepass")
            part = self._heads.get(head)
            if part is None and head.isascii():
                if len(self._heads) >= _HEADS_MAX:
                    self._heads.clear()
                part = self._heads[head] = (java_hash(head) & _MASK) * _POWER_8
            if part is not None and len(tail) == _TAIL.size:
                a, b, c, d, e, f, g, z = _TAIL.unpack(tail)
                h: int = (
                    queue.key_hash + part + ((((((a * 31 + b) * 31 + c) * 31 + d) * 31 + e) * 31 + f) * 31 + g) * 31 + z
                ) & _MASK
                return h if h < _SIGN else _MODULO - h & _I32_MAX
        return index_hash(key, queue.prefix_hash)

    def _put(self, key_hash: int, physical: int, wall: int) -> None:
        current = self.current
        if current is not None and current.count < self._soft and not self.late:
            current.add(key_hash, physical, wall)
        else:
            self.late.append((key_hash, physical, wall))
            self._drain()
            self._look_ahead(wall)

    def _drain(self) -> None:
        """Put late keys as far as there are blocks."""
        done = 0
        for key_hash, physical, wall in self.late:
            current = self.current
            if current is None or current.count >= self.entries_max:
                current = self._roll()
            if current is None or current.count >= current.ready:
                break
            current.add(key_hash, physical, wall)
            done += 1
        del self.late[:done]

    def _roll(self) -> IndexFile | None:
        """Go on in the file that was made ahead; None while there is none."""
        old, following = self.current, self._next
        if following is None:
            return None
        if old is not None:
            following.begin_after(old)
            old.write_head()
            self.full.append(old)
        following.write_head()
        self.index_files.append(following)
        self.current = following
        self._next = None
        return following

    def _look_ahead(self, wall: int) -> None:
        """Ask for blocks, or for the next file, before they are needed, and set how far `add` needs not ask."""
        current = self.current
        ready = 0 if current is None else current.ready
        self._soft = ready
        full = current is None or ready == self.entries_max
        if self._busy or (full and self._next is not None):
            return
        enough = ready - (ready // 8 if full else min(_STEP, ready) // 2)
        if current is not None and current.count < enough:
            self._soft = enough
            return
        self._busy = True
        self.jobs.append(self._creation(wall) if current is None or full else self._allocation(current))

    def _allocation(self, current: IndexFile) -> AllocateIndex:
        """The job for the next entries of a file, and for its slots if it is a file that was found."""
        ready = min(max(current.ready, current.count) + (_STEP if current.ready else _FIRST_STEP), self.entries_max)
        start = current.entries_at + ENTRY_SIZE * current.ready if current.ready else 0
        return AllocateIndex(self, current.path, current.map(), start, current.entries_at + ENTRY_SIZE * ready, ready)

    def _creation(self, wall: int) -> AllocateIndex:
        """The job for the next file, named after the time, or, as files are found again in the order of their names,
        after the last one.
        """
        name = index_name(wall, self.utc_offset)
        if self.index_files:
            last = self.index_files[-1].path.rpartition("/")[2]
            if name <= last:
                name = f"{int(last) + 1:017d}"
        ready = min(_FIRST_STEP, self.entries_max)
        end = self.file_size - ENTRY_SIZE * (self.entries_max - ready)
        return AllocateIndex(self, f"{self.folder}/{name}", None, 0, end, ready)

    def prepared(self, job: AllocateIndex, failure: Exception | None, wall: int) -> None:
        """The job ended. A failure is tried again with the next key."""
        self._busy = False
        if failure is None:
            self._take(job)
            self._drain()
            self._look_ahead(wall)

    @property
    def behind(self) -> bool:
        """So many keys wait that no more messages should be taken."""
        return len(self.late) > LATE_MAX

    def retry(self, wall: int) -> None:
        """Try again to get room."""
        self._look_ahead(wall)

    def _take(self, job: AllocateIndex) -> None:
        current = self.current
        if current is not None and current.path == job.path:
            current.ready = max(current.ready, job.ready)
        else:
            self._next = IndexFile(self.files, job.path, self.slots, job.file)
            self._next.map()
            self._next.ready = job.ready

    def settle(self, wall: int) -> None:
        """Put all late keys now, and make what they need.

        Blocks; no job may be under way. Raises OSError when the disk has no room.
        """
        self._drain()
        while self.late:
            job = next((job for job in self.jobs if isinstance(job, AllocateIndex)), None)
            if job is not None:  # asked for, and not yet begun
                self.jobs.remove(job)
                self._busy = False
            else:
                current = self.current
                full = current is None or current.count >= self.entries_max
                job = self._creation(wall) if current is None or full else self._allocation(current)
            job.run()
            self._take(job)
            self._drain()

    # --- reading ---

    def candidates(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Physical offsets of messages that may have a key and may have been stored between two times, newest first."""
        return candidates(self.late, self.index_files, topic, key, begin, end)

    @property
    def last(self) -> tuple[int, int]:
        """Store time and physical offset of the last message that was indexed; zeros if there is none."""
        if self.late:
            return self.late[-1][2], self.late[-1][1]
        return (self.index_files[-1].end_time, self.index_files[-1].end) if self.index_files else (0, 0)

    def close(self) -> None:
        """Give all files back; one that was made ahead and never used is removed."""
        with suppress(OSError):  # it does no harm, the next file of that name takes its place
            self._drop_next()
        for index_file in self.index_files:
            index_file.close()


def candidates(
    late: list[tuple[int, int, int]], index_files: Sequence[IndexReader], topic: str, key: str, begin: int, end: int
) -> Iterator[int]:
    """The same for a given state of the index."""
    key_hash = index_hash(f"{topic}#{key}")
    for late_hash, physical, wall in reversed(late):
        if late_hash == key_hash and begin <= wall <= end:
            yield physical
    budget = _LOOKED_AT_MAX
    for index_file in reversed(index_files):
        if index_file.covers(begin, end):
            for physical in index_file.find(key_hash, begin, end):
                if physical >= 0:
                    yield physical
                budget -= 1
                if budget == 0:
                    return
        if index_file.count > 1 and index_file.begin_time < begin:
            return
