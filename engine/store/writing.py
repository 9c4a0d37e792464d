"""Writer of messages: each goes into log, queue and index in one step, so that none of them is ever behind the others
in memory.

Owns: what is refused and why, room for the next record, how much was stored since the opening. Leaves to others: making
files and their blocks (`commit_log`, `index`), what becomes durable when (`flusher`, `queue_rounds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final
from zlib import crc32

from mqproto.engine.store.errors import PutRefused, PutStatus
from mqproto.engine.store.flush.flusher import Flusher
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.layout import ENTRY, FILLER_SIZE
from mqproto.engine.store.log.commit_log import NO_ROOM, CommitLog
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.queue import NO_SIZE, Queue
from mqproto.engine.store.results import BatchPart
from mqproto.engine.store.settings import StoreSettings
from mqproto.wire.flags import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from mqproto.wire.properties import ENCODED_MAX as PROPERTIES_MAX
from mqproto.wire.record_layout import HEAD_V4, HEADS, IPV6_EXTRA, LENGTH, MAGIC_V1

_HOST_V4: Final = 8
_V4: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)
#: How long a full disk is left alone before it is tried again.
_RETRY_MS: Final = 1000


class Writer:
    """Writer of a store."""

    __slots__ = (
        "_extended",
        "_flusher",
        "_index",
        "_index_enabled",
        "_log",
        "_opened_at",
        "_queues",
        "_retry_at",
        "_settings",
        "_sync",
        "_unflushed",
        "put_count",
    )

    def __init__(
        self, settings: StoreSettings, log: CommitLog, queues: ConsumeQueues, index: Index, flusher: Flusher
    ) -> None:
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        self._index_enabled = settings.message_index_enable
        self._extended = settings.enable_consume_queue_ext
        self._flusher = flusher
        self._sync = flusher.sync
        self._unflushed = flusher.unflushed
        self._retry_at = 0
        #: Messages stored since the store was opened, and where the log ended then.
        self.put_count = 0
        self._opened_at = 0

    def begin(self, wall: int, full: bool) -> None:
        """The store is open. `full`: its disk had no room for the log just now."""
        self._opened_at = self._log.end
        if full:
            self._retry_at = wall

    def configure(self) -> None:
        """Take over whether there is an index."""
        self._index_enabled = self._settings.message_index_enable

    def append(
        self, queue: Queue, body: bytes | memoryview, properties: bytes, flag: int, sys_flag: int, born_time: int,
        born_host: bytes, store_host: bytes, reconsume_times: int, prepared_offset: int, tags_code: int,
        uniq_key: str | None, keys: str | None, wall: int, filter_bits: bytes = b"",
    ) -> int:  # fmt: skip
        """Store a message; gives its physical offset. Its queue offset is `queue.next_offset - 1` afterwards.

        Prepared and rolled back messages (by the sysFlag) are stored, but have no place in the queue.

        Hosts are 8 or 20 bytes (address and port); the IPv6 bits of the sysFlag are set from their lengths. `tags_code`
        is the hash of the tag, for the schedule topic the deliver time. `filter_bits` is a bitmap of the filters that
        the message passes; it is kept where the consume queue has an extension and no longer than configured. Raises
        PutRefused; then nothing was stored.
        """
        log = self._log
        body_size = len(body)
        properties_size = len(properties)
        size = queue.fixed_size + body_size + properties_size
        head = HEAD_V4
        flags = sys_flag & _V4
        if len(born_host) != _HOST_V4 or len(store_host) != _HOST_V4:
            head, flags, size = _with_hosts(flags, size, born_host, store_host)
        start = log.end
        if (
            start + size + FILLER_SIZE > log.soft
            or properties_size > PROPERTIES_MAX
            or body_size > self._settings.max_message_size
        ):
            self._check(queue, size, body_size, properties_size)
            self._make_room(size, wall)
            start = log.end
        # prepared and rolled back messages have no place in the queue (docs/protocol/store.md 2.4)
        placeless = flags & TRANSACTION_PREPARED
        offset = 0 if placeless else queue.next_offset
        try:
            fields = head.pack(
                size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue.queue_id, flag, offset, start, flags, born_time,
                born_host, wall, store_host, reconsume_times, prepared_offset, body_size,
            )  # fmt: skip
            if self._extended and not placeless:
                tags_code = self._queues.extend(queue, tags_code, wall, filter_bits)
            entry = ENTRY.pack(start, size, tags_code)
        except StructError as failure:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a field is out of its range: {failure}") from None
        at = start - log.base
        log.view[at : at + size] = b"".join((fields, body, queue.topic_field, LENGTH.pack(properties_size), properties))
        end = start + size
        log.end = end
        self.put_count += 1
        if wall < log.last_time:
            self._flusher.clock_went_back(wall)
        log.last_time = wall
        if not placeless:
            tail = queue.tail
            if not tail:
                self._queues.dirty.append(queue)
            tail += entry
            queue.next_offset = offset + 1
            if self._sync:
                if not queue.unflushed:
                    queue.unflushed = True
                    self._unflushed.append(queue)
            else:
                queue.max_offset = offset + 1
        if (uniq_key or keys) and self._index_enabled and flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._index.add(queue, uniq_key, keys, start, wall)
        return start

    def append_batch(
        self,
        queue: Queue,
        entries: Sequence[BatchPart],
        sys_flag: int,
        born_time: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        wall: int,
    ) -> list[int]:
        """Store messages with consecutive offsets in one file, all or none; gives their physical offsets.

        Raises PutRefused.
        """
        _, _, extra = _with_hosts(0, 0, born_host, store_host)
        total = 0
        for entry in entries:
            size = queue.fixed_size + extra + len(entry.body) + len(entry.properties)
            self._check(queue, size, len(entry.body), len(entry.properties))
            if not (-0x80000000 <= entry.flag <= 0x7FFFFFFF and -(1 << 63) <= entry.tags_code < 1 << 63):
                raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "a field is out of its range")
            total += size
        if total > self._settings.mapped_file_size_commit_log - FILLER_SIZE:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a batch of {total} bytes does not fit a file of the log")
        self._make_room(total, wall)
        self._log.soft = self._log.limit  # there is room for all of them: none may be refused on the way
        offsets = [
            self.append(
                queue, entry.body, entry.properties, entry.flag, sys_flag, born_time, born_host, store_host,
                reconsume_times, 0, entry.tags_code, entry.uniq_key, entry.keys, wall, entry.filter_bits,
            )
            for entry in entries
        ]  # fmt: skip
        self._log.look_ahead()
        return offsets

    def _check(self, queue: Queue, size: int, body_size: int, properties_size: int) -> None:
        """Raises PutRefused for a message that no store takes."""
        settings = self._settings
        if queue.removed:
            raise PutRefused(
                PutStatus.SERVICE_NOT_AVAILABLE, f"the queue {queue.queue_id} of {queue.topic} was deleted"
            )
        if queue.fixed_size == NO_SIZE:
            raise PutRefused(
                PutStatus.MESSAGE_ILLEGAL, f"the topic {queue.topic} is too long for a record of this store"
            )
        if body_size > settings.max_message_size:
            raise PutRefused(
                PutStatus.MESSAGE_ILLEGAL, f"a body of {body_size} bytes is longer than {settings.max_message_size}"
            )
        if properties_size > PROPERTIES_MAX:
            raise PutRefused(
                PutStatus.PROPERTIES_SIZE_EXCEEDED,
                f"properties of {properties_size} bytes are longer than {PROPERTIES_MAX}",
            )
        if size > settings.largest_record:
            raise PutRefused(
                PutStatus.MESSAGE_ILLEGAL, f"a record of {size} bytes is longer than {settings.largest_record}"
            )

    def _make_room(self, size: int, wall: int) -> None:
        """The slow way of an append: prepare the place of a record, or refuse the message."""
        flusher = self._flusher
        if flusher.failure is not None:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, f"the disk failed: {flusher.failure}")
        if self._log.refusals:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "; ".join(self._log.refusals.values()))
        if self._index.behind:
            self._index.retry(wall)
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk has no room for the index")
        if wall < self._retry_at:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        try:
            self._log.make_room(size)
        except OSError as failure:
            if failure.errno in NO_ROOM:
                self._retry_at = wall + _RETRY_MS
                raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full") from failure
            flusher.fail(failure)
            raise PutRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, str(failure)) from failure
        self._retry_at = 0

    @property
    def writable(self) -> bool:
        """Whether the last message could be stored; false when the disk failed, or was full when last tried."""
        flusher = self._flusher
        return flusher.failure is None and not self._log.refusals and not self._retry_at and not self._index.behind

    @property
    def put_size(self) -> int:
        """Bytes of the messages stored since it was opened."""
        return self._log.end - self._opened_at - self._log.skipped

    @property
    def needs_room(self) -> bool:
        """Whether one of the next messages may have to wait until the disk has given the log more blocks."""
        log = self._log
        return log.limit - log.end < min(self._settings.largest_record, log.file_size // 8)


def _with_hosts(flags: int, size: int, born_host: bytes, store_host: bytes) -> tuple[Struct, int, int]:
    """Layout, sysFlag and size of a record whose hosts may be IPv6."""
    born_v6, store_v6 = len(born_host) != _HOST_V4, len(store_host) != _HOST_V4
    for host in (born_host, store_host):
        if len(host) not in (_HOST_V4, _HOST_V4 + IPV6_EXTRA):
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, f"a host has 8 or 20 bytes, not {len(host)}")
    flags |= BORN_HOST_V6 * born_v6 | STORE_HOST_V6 * store_v6
    return HEADS[born_v6 | store_v6 << 1], flags, size + IPV6_EXTRA * (born_v6 + store_v6)
