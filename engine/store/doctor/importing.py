"""Putting an export into a data directory that no broker works on (docs/doctor.md).

Messages are appended as a broker would append them, so that log, queues and index agree at every moment; configurations
follow when all messages are durable, committed offsets last. An import that breaks off leaves a directory that opens,
and can be done again.

Store times stay where they do not go back (recovery and searches by time rely on that): a message that is older than
the last one of the log gets that one's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mqproto.engine.settings import check
from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.doctor.exportfile import ExportedMessage, ExportReader
from mqproto.engine.store.doctor.planning import RECORD_CRC, Fate, ImportPlan, ImportRefused, QueuePlan
from mqproto.engine.store.doctor.views.directory import Directory
from mqproto.engine.store.doctor.views.tables import TableFiles
from mqproto.engine.store.errors import PutRefused
from mqproto.engine.store.layout import ENTRY_SIZE, HEADS, RECORD_FIXED, SYS_FLAG_AT, offset_name
from mqproto.engine.store.log.records import facts_of, topic_span
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.settings import StoreSettings
from mqproto.engine.store.store import Store
from mqproto.wire.properties import KEYS, UNIQ_KEY

#: Whoever kept a message took it: the usual limit of a body does not count.
_BODY_MAX: Final = (1 << 31) - 1 - 65_536
#: Bytes of records after which the store gets time to flush, and how much.
_ROUND: Final = 16 << 20
_ROUND_MS: Final = 10_000
#: The property that holds a checksum of the whole record, and its bytes.
_CRC: Final = f"{RECORD_CRC}\x01".encode()
_CRC_SIZE: Final = 20
#: Messages between two reports of progress.
_STEP: Final = 1000


def settings_for(directory: Directory) -> StoreSettings:
    """The settings that the files of a directory were made with, as far as they show. Raises OSError."""
    settings = StoreSettings(store_path_root_dir=directory.root)
    if directory.log.folder != f"{directory.root}/commitlog":
        settings.store_path_commit_log = directory.log.folder
    if directory.log.parts:
        settings.mapped_file_size_commit_log = directory.log.file_size
    settings.mapped_file_size_consume_queue = directory.queue_file_size
    for index in directory.index_files():
        if index.slots:
            settings.max_hash_slot_num, settings.max_index_num = index.slots, index.entries_max
    return settings


class Import:
    """One import, by a plan that was made for the directory as it is. `run` yields the messages stored so far, and ends
    when all is durable; then `message_writer` and `there` count messages that were stored and that were there.
    """

    __slots__ = ("_files", "_now", "_plan", "_reader", "_since", "_store", "_times", "_wall", "stored", "there")

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        reader: ExportReader,
        plan: ImportPlan,
        *,
        wall: int,
        utc_offset_ms: int = 0,
    ) -> None:
        """Opens the directory, or makes it. Blocks. Raises what `Store.open` raises, and ImportRefused when the
        directory is not what the plan was made for.
        """
        if plan.refused:
            raise ImportRefused(f"{plan.refused[0].topic}/{plan.refused[0].queue_id} has other messages")
        if reader.head != plan.head:
            raise ImportRefused("this is not the export that the plan was made for")
        settings = replace(
            settings, max_message_size=_BODY_MAX, flush_disk_type="ASYNC_FLUSH", allocation_window=64 << 20
        )
        check(settings)
        self._files = files
        self._plan = plan
        self._reader = reader
        self._wall = wall
        self._now = 0
        self._since = 0
        #: Files of queues, and when they would have been written.
        self._times: dict[str, int] = {}
        self.stored = 0
        self.there = 0
        begin_log(files, settings, plan)
        self._store = Store.open(settings, files, wall=wall, utc_offset_ms=utc_offset_ms)
        try:
            self._check_bounds()
        except ImportRefused:
            self.close()
            raise

    def close(self) -> None:
        """Give the directory back, orderly. Blocks. Raises StoreUnwritable."""
        self._store.run_jobs(self._now, self._wall)
        self._store.close(self._wall)
        for path, time in self._times.items():
            self._files.set_modified(path, time)

    def _check_bounds(self) -> None:
        for one in self._plan.queues:
            queue = self._store.find_queue(one.topic, one.queue_id)
            bounds = (0, 0) if queue is None else (queue.min_offset, queue.next_offset)
            if bounds != (one.low, one.first):
                raise ImportRefused(
                    f"{one.topic}/{one.queue_id} is not what it was when the import was planned: begin again"
                )

    def run(self) -> Iterator[int]:
        """Raises ExportDamaged, ImportRefused, PutRefused, OSError; what was stored before stays. To be used once."""
        self._leave_first_file()
        queues = [self._store.queue(one.topic, one.queue_id) for one in self._plan.queues]
        for message in self._reader.messages():
            one = self._plan.queues[message.number]
            if one.fate is Fate.THERE or (one.fate is Fate.CONTINUED and message.offset < one.first):
                self.there += 1
            else:
                self._put(one, queues[message.number], message)
                self.stored += 1
                self._since += len(message.record)
                if self._since >= _ROUND:
                    self._pass_time()
            if self._reader.messages_read % _STEP == 0:
                yield self._reader.messages_read
        for one, queue in zip(self._plan.queues, queues, strict=True):
            if not one.messages and one.fate is Fate.KEPT:
                self._store.skip_to(queue, one.source.end)  # all its messages are gone, and the next one has its offset
        self._store.want_flush()
        self._store.run_jobs(self._now, self._wall)
        self._save_tables()
        for queue in queues:
            self._times.update(self._file_times(queue))

    def _leave_first_file(self) -> None:
        """In a log that begins at 0 the blank entries that a queue begins with lead Apache's brokers to its first file:
        they pass over all messages there that follow blank ones, so messages of such queues go into a later file
        (docs/protocol/store.md 4.4, 14.1).
        """
        store = self._store
        blank = any(one.first == 0 and one.source.begin and one.messages for one in self._plan.queues)
        if blank and store.min_physical == 0 and store.end < store.settings.mapped_file_size_commit_log:
            store.begin_log_file()
            self._store.run_jobs(self._now, self._wall)

    def _file_times(self, queue: Queue) -> Iterator[tuple[str, int]]:
        """When the last message of each file of a queue was stored: 4.x looks for a time in the first file that was
        written at that time or later (docs/protocol/store.md 14.3).
        """
        per_file = self._store.settings.queue_file_size // ENTRY_SIZE
        place = queue.min_offset
        while place < queue.next_offset:
            start = place - place % per_file
            place = min(start + per_file, queue.next_offset)
            time = self._store.store_time(queue, place - 1)
            if time > 0:
                yield f"{queue.folder}/{offset_name(start * ENTRY_SIZE)}", time

    def _put(self, one: QueuePlan, queue: Queue, message: ExportedMessage) -> None:
        """Append a message, at its offset if offsets are kept."""
        store, record = self._store, message.record
        places = 0
        if one.keeps_offsets and message.offset > queue.next_offset:
            self._store.run_jobs(self._now, self._wall)
            places = message.offset - queue.next_offset if queue.next_offset else 0
            store.skip_to(queue, message.offset)
        facts = facts_of(record)
        head = HEADS[record[SYS_FLAG_AT + 3] >> 4 & 3]
        fields = head.unpack_from(record)
        body_end = head.size + fields[14]
        try:
            store.writer.append(
                queue,
                record[head.size : body_end],
                _properties(record, body_end),
                fields[4],
                fields[7],
                fields[8],
                fields[9],
                fields[11],
                fields[12],
                fields[13],
                facts.tags_code([]),
                facts.properties.get(UNIQ_KEY),
                facts.properties.get(KEYS),
                max(min(facts.store_time, self._wall), store.last_time),
            )
        except PutRefused as failure:
            raise ImportRefused(
                f"message {message.offset} of {one.topic}/{one.queue_id} was not taken: {failure.why}"
            ) from failure
        if places:
            store.lead_over(queue, places)
        if store.jobs:
            self._store.run_jobs(self._now, self._wall)

    # --- the driver ---

    def _pass_time(self) -> None:
        """Let the store write out what came together: nothing here takes long enough for its clock."""
        self._since = 0
        self._now += _ROUND_MS
        self._store.timer(self._now, self._wall)
        self._store.run_jobs(self._now, self._wall)

    # --- configurations ---

    def _save_tables(self) -> None:
        """Add what the plan says, once all messages are durable."""
        store, plan = self._store, self._plan
        if store.flushed != store.end:
            raise ImportRefused("the disk failed: the messages are not durable")
        table_files = TableFiles(self._files, store.settings.store_path_root_dir)
        tables = table_files.load()
        for config in plan.topics:
            tables.topics.topics[config.name] = config
        for group in plan.groups:
            tables.groups.groups[group] = plan.head.groups[group]
        taken = [each for each in plan.offsets if each.taken]
        for each in taken:
            tables.offsets.offsets.setdefault(f"{each.topic}@{each.group}", {})[each.queue_id] = each.offset
        tables.topics.data_version.next(self._wall)
        tables.groups.data_version.next(self._wall)
        table_files.save(tables, topics=bool(plan.topics), groups=bool(plan.groups), offsets=bool(taken))


def _properties(record: memoryview, body_end: int) -> bytes:
    """The properties of a record as they are, but for the checksum of the old place that 5.x may put last
    (docs/protocol/store.md 2.2).
    """
    properties = bytes(record[topic_span(record, body_end)[1] + 2 :])
    return properties[:-_CRC_SIZE] if properties[-_CRC_SIZE:].startswith(_CRC) else properties


def begin_log(files: Files, settings: StoreSettings, plan: ImportPlan) -> None:
    """Let the log of a new directory begin so far from 0 that the offsets of its queues are none that it could not
    have.

    A queue that begins later begins with blank entries; Apache's brokers take them for messages of a log that begins at
    0 (docs/protocol/store.md 4.4), and consumers for lag. Recovery doubts a message that claims a place for which there
    were never enough bytes. Blocks. Raises OSError.
    """
    root, folder = settings.store_path_root_dir, settings.commit_log_folder
    first = max((one.source.end for one in plan.queues if one.source.begin), default=0)
    if not first or files.names(folder) or files.names(f"{root}/consumequeue"):
        return
    size = settings.mapped_file_size_commit_log
    start = -(-first * RECORD_FIXED // size) * size
    files.make_folder(folder)
    file = files.create(f"{folder}/{offset_name(start)}", size)
    file.sync()
    file.close()
    files.sync_folder(folder)
