"""Trimming of queues and index to the beginning of the log (docs/protocol/store.md 9.2).

After files of the log were deleted the minimum of every queue is moved to its first message that is still there, then
files of queues and index that hold nothing else are removed, never the last of each. All queues are gone through in
slices: their files are read in a job, and what a slice costs the loop is bounded, however many queues there are.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.disk.folders import parent_of
from mqproto.engine.store.flush.queue_rounds import QueueRounds
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.layout import ENTRY, ENTRY_SIZE, offset_name
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.entries import first_kept
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.settings import StoreSettings
from mqproto.state.node.contract import Job

#: Queues of one slice that are looked at, and those of them whose files are read.
_LOOKED_AT: Final = 2000
_READ: Final = 200


class FindMinimums:
    """Job: find the first entries of some queues, as far as these are in files, whose records the log still has."""

    __slots__ = ("_extension", "_files", "_log_start", "_per_file", "found", "spans", "unit_files")

    def __init__(self, queues: ConsumeQueues, log_start: int, spans: list[tuple[Queue, int, int]]) -> None:
        self._files = queues.files
        self._extension = queues.extension
        self._per_file = queues.per_file
        self._log_start = log_start
        #: Queue, offset to search from, offset to search to.
        self.spans = spans
        #: One for each span; its end if there is none. Without its file a queue has nothing to search.
        self.found: list[int] = []
        #: Files of the queue extension that no entry leads to any more.
        self.unit_files: list[tuple[Queue, str]] = []

    def run(self) -> None:
        for queue, low, high in self.spans:
            reading = _Reading(self._files, queue, self._per_file)
            try:
                minimum = self._search(reading, low, high)
                if self._extension.present and low < minimum < high:
                    code = reading.entry(minimum)[2]
                    self.unit_files += [
                        (queue, path) for path in self._extension.unused(queue.topic, queue.queue_id, code)
                    ]
            except FileNotFoundError:  # the queue was deleted
                minimum = low
            finally:
                reading.close()
            self.found.append(minimum)

    def _search(self, reading: _Reading, low: int, high: int) -> int:
        """Most often nothing has changed, or everything is gone: these are looked at first."""
        log_start = self._log_start
        if first_kept(reading.place, low, low + 1, log_start) == low:
            return low
        if first_kept(reading.place, high - 1, high, log_start) == high:
            return high
        return first_kept(reading.place, low + 1, high - 1, log_start)


class _Reading:
    """Entries of one queue, read from its files without maps."""

    __slots__ = ("_files", "_opened", "_per_file", "_queue")

    def __init__(self, files: Files, queue: Queue, per_file: int) -> None:
        self._files = files
        self._queue = queue
        self._per_file = per_file
        self._opened: dict[int, File] = {}

    def entry(self, offset: int) -> tuple[int, int, int]:
        start = offset - offset % self._per_file
        file = self._opened.get(start)
        if file is None:
            file = self._opened[start] = self._files.open(f"{self._queue.folder}/{offset_name(start * ENTRY_SIZE)}")
        physical, size, code = ENTRY.unpack(file.read((offset - start) * ENTRY_SIZE, ENTRY_SIZE))
        return physical, size, code

    def place(self, offset: int) -> tuple[int, int]:
        return self.entry(offset)[:2]

    def close(self) -> None:
        for file in self._opened.values():
            file.close()


class RemoveFiles:
    """Job: remove files in order, each durably before the next one, so that what is left never has a gap."""

    __slots__ = ("_files", "paths")

    def __init__(self, files: Files, paths: list[str]) -> None:
        self._files = files
        #: What is still to be removed.
        self.paths = paths

    def run(self) -> None:
        while self.paths:
            self._files.remove(self.paths[0])
            self._files.sync_folder(parent_of(self.paths[0]))
            del self.paths[0]


class RemoveQueueFiles:
    """Job: the same for files of queues, but for queues that were deleted: others may have their folders now."""

    __slots__ = ("_files", "items")

    def __init__(self, files: Files, items: list[tuple[Queue, str]]) -> None:
        self._files = files
        #: What is still to be removed.
        self.items = items

    def run(self) -> None:
        while self.items:
            queue, path = self.items[0]
            folder = parent_of(path)
            if not queue.removed and self._files.exists(folder):
                self._files.remove(path)
                self._files.sync_folder(folder)
            del self.items[0]


class Trimmer:
    """Trimmer of queues and index after the log's beginning has moved; `step` while it is `behind`."""

    __slots__ = (
        "_batch",
        "_complete",
        "_dead_index_files",
        "_dead_queue_files",
        "_files",
        "_index",
        "_jobs",
        "_log",
        "_pause",
        "_queues",
        "_rest",
        "_retry",
        "_rounds",
        "_start",
        "busy",
    )

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        rounds: QueueRounds,
        jobs: list[Job],
    ) -> None:
        self._files = files
        self._log = log
        self._queues = queues
        self._index = index
        self._rounds = rounds
        self._jobs = jobs
        self.configure(settings)
        #: The beginning of the log that queues and index were trimmed to, or are being trimmed to.
        self._start = 0
        #: Queues that have not been gone through, and whether all others were looked into as far as was needed.
        self._rest: list[Queue] = []
        self._complete = True
        self._dead_queue_files: deque[tuple[Queue, str]] = deque()
        self._dead_index_files: list[str] = []
        #: A job is under way.
        self.busy = False

    def configure(self, settings: StoreSettings) -> None:
        """Take over what is set for how files are removed."""
        self._batch = settings.delete_file_batch_max
        self._pause = settings.delete_consume_queue_files_interval
        self._retry = settings.redelete_hanged_file_interval

    def begin(self) -> None:
        """The store was opened, and the minima of its queues are right.

        Files that an earlier run left over are noted.
        """
        self._start = self._queues.trimmed_to = self._log.start
        for queue in self._queues.by_key.values():
            self._drop_files(queue)
        self._dead_index_files += self._index.drop_below(self._start)

    @property
    def behind(self) -> bool:
        """Whether there is something to do."""
        return bool(self._start < self._log.start or self._rest or self._dead_queue_files or self._dead_index_files)

    def step(self) -> None:
        """Do the next step, at once or by a job."""
        if self._rest:
            self._search_slice()
        elif self._start < self._log.start:
            self._start = self._log.start
            self._rest = list(self._queues.by_key.values())
            self._complete = True
            self._dead_index_files += self._index.drop_below(self._start)
        elif self._dead_queue_files:
            batch = [self._dead_queue_files.popleft() for _ in range(min(self._batch, len(self._dead_queue_files)))]
            self.busy = True
            self._rounds.in_turn(RemoveQueueFiles(self._files, batch))
        elif self._dead_index_files:
            self.busy = True
            self._jobs.append(RemoveFiles(self._files, self._dead_index_files))
            self._dead_index_files = []

    def _search_slice(self) -> None:
        spans = []
        for _ in range(min(_LOOKED_AT, len(self._rest))):
            queue = self._rest.pop()
            # Entries in memory are of messages that stay: files of the log wait until their entries are in files.
            if not queue.removed and queue.min_offset < queue.written:
                spans.append((queue, queue.min_offset, queue.written))
                if len(spans) == _READ:
                    break
        if spans:
            self.busy = True
            self._jobs.append(FindMinimums(self._queues, self._start, spans))
        else:
            self._end_pass()

    def _end_pass(self) -> None:
        if not self._rest and self._complete:
            self._queues.trimmed_to = self._start

    def found(self, job: FindMinimums) -> None:
        """The job ended; one that failed has found less, and files stay longer."""
        self.busy = False
        self._complete &= len(job.found) == len(job.spans)
        for (queue, _, _), minimum in zip(job.spans, job.found, strict=False):
            if not queue.removed:
                queue.min_offset = max(queue.min_offset, minimum)
                self._drop_files(queue)
        for queue, path in job.unit_files:
            self._queues.forget_map(path)
            self._dead_queue_files.append((queue, path))
        self._end_pass()

    def _drop_files(self, queue: Queue) -> None:
        for path in self._queues.drop_files(queue):
            self._dead_queue_files.append((queue, path))

    def removed(self, job: RemoveFiles | RemoveQueueFiles) -> int:
        """The job ended; what it could not remove is tried again. Gives the pause in ms until the next step."""
        self.busy = False
        if isinstance(job, RemoveQueueFiles):
            self._rounds.turn_over()
            self._dead_queue_files.extendleft(reversed(job.items))
            return self._retry if job.items else self._pause
        self._dead_index_files = job.paths + self._dead_index_files
        return self._retry if job.paths else 0
