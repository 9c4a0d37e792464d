"""Offsets that the application keeps itself: in its database, say, beside what came of the messages.

Owns: when the application's storage is read and written, and the check of what it answers.
Leaves to others: the storage itself, which is called beside the node and may block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from mqproto.errors import ClientError, MQError
from mqproto.message import MessageQueue
from mqproto.state.consumer.offsets import SAVE_PAUSE_MS, GroupOffsets
from mqproto.state.flows.effects import Flow, Sleep, Work, current

_OFFSET_MAX: Final = 2**63 - 1


class OffsetStorage(Protocol):
    """Storage of an application that keeps a group's offsets itself. An offset is that of the next message to consume.

    Both methods are called outside the event loop, in some thread, may block, and may raise: then the question is asked
    again after a pause, and what was to be saved is saved with the next round, every
    `persist_consumer_offset_interval`. Group and topics are wire names.
    """

    def read(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that was saved last; None without one: the queue begins where the group is configured to."""

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep these offsets, the ones that changed. Other queues of the group keep theirs. One call at a time."""


class _Read:
    """Job that reads an offset."""

    __slots__ = ("_group", "_queue", "_storage", "offset")

    def __init__(self, storage: OffsetStorage, group: str, queue: MessageQueue) -> None:
        self._storage = storage
        self._group = group
        self._queue = queue
        self.offset: int | None = None

    def run(self) -> None:
        offset = self._storage.read(self._group, self._queue)
        if offset is not None and (type(offset) is not int or not 0 <= offset <= _OFFSET_MAX):
            raise ClientError(f"the offset storage answered {offset!r} for {self._queue}: an offset or None expected")
        self.offset = offset


class _Save:
    """Job that saves offsets."""

    __slots__ = ("_group", "_offsets", "_storage")

    def __init__(self, storage: OffsetStorage, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._storage = storage
        self._group = group
        self._offsets = offsets

    def run(self) -> None:
        self._storage.save(self._group, dict(self._offsets))


class ExternalOffsets(GroupOffsets):
    """Offsets kept by the application."""

    __slots__ = ("_group", "_saved", "_saving", "_storage", "_wanted", "_warn")

    def __init__(self, group: str, storage: OffsetStorage, warn: Callable[[str], None]) -> None:
        super().__init__()
        self._group = group
        self._storage = storage
        self._warn = warn
        self._saved: dict[MessageQueue, int] = {}
        self._wanted: dict[MessageQueue, int] = {}
        self._saving = False

    def fetch(self, queue: MessageQueue, now: int) -> Flow[tuple[int | None, int]]:
        """Raises ClientError when the storage raises, or answers what is no offset."""
        if queue in self._wanted:  # it was not saved yet
            return self._wanted[queue], now
        job = _Read(self._storage, self._group, queue)
        failure, now = yield Work(job)
        if failure is not None:
            raise (
                failure if isinstance(failure, ClientError) else ClientError(f"the offset storage failed: {failure!r}")
            ) from failure
        if job.offset is not None:
            self._saved[queue] = job.offset
        return job.offset, now

    def persist(self, queues: Collection[MessageQueue], now: int) -> Flow[None]:
        yield from self._save({queue: self._offsets[queue] for queue in queues if queue in self._offsets})

    refresh = persist

    def keep(self, queue: MessageQueue, offset: int, now: int) -> Flow[None]:
        yield from self.commit(queue, offset, now)
        if queue not in self._wanted:
            self._saved.pop(queue, None)  # somebody else may save it from now on

    def commit(self, queue: MessageQueue, offset: int, now: int) -> Flow[tuple[MQError | None, int]]:
        self._wanted[queue] = offset
        while self._saving:  # it takes this one along, or fails and is tried again here
            _, now = yield Sleep(now + SAVE_PAUSE_MS)
        failure = yield from self._save({})
        return None if failure is None else ClientError(f"the offset storage failed: {failure!r}"), (
            yield from current(now)
        )

    def _save(self, offsets: dict[MessageQueue, int]) -> Flow[Exception | None]:
        """Save what differs from the last save; one call at a time, and what comes meanwhile goes with the next."""
        self._wanted |= {queue: offset for queue, offset in offsets.items() if self._saved.get(queue) != offset}
        if self._saving:
            return None
        self._saving = True
        failure: Exception | None = None
        while self._wanted:
            batch = dict(self._wanted)
            failure, _ = yield Work(_Save(self._storage, self._group, batch))
            if failure is not None:
                self._warn(f"group {self._group}: the offset storage failed, offsets are saved later: {failure!r}")
                break
            self._saved |= batch
            self._wanted = {queue: offset for queue, offset in self._wanted.items() if batch.get(queue) != offset}
        self._saving = False
        return failure
