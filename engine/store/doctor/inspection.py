"""Inspection of a data directory: files, ranges, topics, queues, times, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqproto.engine.store.doctor.views.directory import ConfigState, Directory
from mqproto.engine.store.doctor.views.queues import QueueView
from mqproto.engine.store.errors import StoreUnreadable
from mqproto.engine.store.log.records import store_time_of


@dataclass(frozen=True, slots=True)
class Size:
    """Size of some files: how many, their lengths together, and the bytes that they really take."""

    files: int = 0
    length: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class LogState:
    """State of the log. Times are store times in ms, -1 where there is no message."""

    size: Size
    file_size: int
    start: int
    end: int
    first_time: int
    last_time: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """State of a queue: its messages are `begin` to `end - 1`. Times are store times in ms, -1 without a message."""

    topic: str
    queue_id: int
    size: Size
    begin: int
    end: int
    first_time: int
    last_time: int


@dataclass(frozen=True, slots=True)
class IndexState:
    """State of an index file. `slots` is 0 when it could not be found out."""

    name: str
    size: Size
    slots: int
    entries_max: int
    entries: int
    slots_used: int
    begin: int
    end: int
    first_time: int
    last_time: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """Result of an inspection. `owner`: the process that holds the lock, 0 for one without a name, None for none."""

    root: str
    owner: int | None
    clean: bool
    log: LogState
    queues: list[QueueState]
    indexes: list[IndexState]
    #: Store times up to which log, queues and index were durable when it was written; 0: never.
    checkpoint: tuple[int, int, int]
    configs: list[ConfigState]
    #: What does not belong there.
    strange: list[str] = field(default_factory=list)


def inspect(directory: Directory) -> Inspection:
    """Look at everything, in time that grows with the files and not with the messages.

    Raises StoreUnreadable. Blocks.
    """
    try:
        return _Inspector(directory).run()
    except OSError as failure:
        raise StoreUnreadable(str(failure.filename or directory.root), failure.strerror or str(failure)) from failure


class _Inspector:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._strange: list[str] = [f"{directory.log.folder}/{name}" for name in directory.log.strange]

    def run(self) -> Inspection:
        directory = self._directory
        queues = [self._queue(queue) for queue in directory.queues()]
        indexes = list(self._indexes())
        self._strange += [f"{directory.root}/index/{name}" for name in directory.index_names()[1]]
        return Inspection(
            root=directory.root,
            owner=directory.owner,
            clean=directory.clean,
            log=self._log(max((queue.last_time for queue in queues), default=-1)),
            queues=queues,
            indexes=indexes,
            checkpoint=directory.checkpoint.times,
            configs=list(directory.configs()),
            strange=self._strange,
        )

    def _size(self, paths: list[str]) -> Size:
        """Of those that are still there."""
        files = self._directory.files
        count = length = used = 0
        for path in paths:
            try:
                length += files.size(path)
                used += files.used(path)
                count += 1
            except FileNotFoundError:
                continue
        return Size(count, length, used)

    def _time_at(self, physical: int) -> int:
        record = self._directory.log.record(physical)
        return -1 if record is None else store_time_of(record)

    def _log(self, last_time: int) -> LogState:
        log = self._directory.log
        return LogState(
            size=self._size([part.path for part in log.parts]),
            file_size=log.file_size,
            start=log.start,
            end=self._directory.end(),
            first_time=self._time_at(log.start),
            last_time=last_time,
        )

    def _queue(self, queue: QueueView) -> QueueState:
        self._strange += [f"{queue.folder}/{name}" for name in queue.strange]
        end = queue.end()
        begin = queue.begin(self._directory.log.start, end)
        first = queue.entry(begin) if begin < end else None
        last = queue.entry(end - 1) if begin < end else None
        return QueueState(
            topic=queue.topic,
            queue_id=queue.queue_id,
            size=self._size([part.path for part in queue.parts]),
            begin=begin,
            end=end,
            first_time=-1 if first is None else self._time_at(first[0]),
            last_time=-1 if last is None else self._time_at(last[0]),
        )

    def _indexes(self) -> Iterator[IndexState]:
        for index in self._directory.index_files():
            head = index.head
            yield IndexState(
                name=index.name,
                size=self._size([index.path]),
                slots=index.slots,
                entries_max=index.entries_max,
                entries=index.count - 1,
                slots_used=head.slots_used,
                begin=head.begin,
                end=head.end,
                first_time=head.begin_time,
                last_time=head.end_time,
            )
