"""Reader of messages: from a queue, by place, by time and by key (docs/protocol/store.md 14).

Nothing is copied: what is given are slices of the mapped log. Over `cold_files` the same is read from files.
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.flush.flusher import Flusher
from mqproto.engine.store.index.index import Index
from mqproto.engine.store.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE, HOLE_CODE, MAGIC_FILLER
from mqproto.engine.store.log.commit_log import CommitLog
from mqproto.engine.store.log.records import facts_of, store_time_of
from mqproto.engine.store.queues.consume_queues import ConsumeQueues
from mqproto.engine.store.queues.extension import Unit, is_address
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.reads.cached_files import CachedLog, CachedQueues
from mqproto.engine.store.reads.cold_files import ColdIndex, ColdLog, ColdQueues
from mqproto.engine.store.reads.read_filter import ReadFilter
from mqproto.engine.store.results import GetResult, GetStatus, QueryResult
from mqproto.engine.store.settings import StoreSettings
from mqproto.wire.record_layout import HEADS, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, RECORD_FIXED, SIZE_MAGIC

#: Bytes of queue entries that one read looks at, however few of them match (docs/protocol/store.md 14.1).
_SCAN_SIZE: Final = 16_000
#: Memory of a machine that does not say (docs/protocol/store.md 13.6).
_MEMORY_UNKNOWN: Final = 24 << 30
#: Bytes after which `warm` ends.
_WARM_SIZE: Final = 1 << 20
#: Bytes that the answer to a query has: half of what a frame takes, and one message may be longer.
_QUERY_SIZE_MAX: Final = 8 << 20
_EVERYTHING: Final = 1 << 62
#: Later than any store time.
_NEVER: Final = 1 << 63
#: A tags code outside of this range is no hash but stands for something that we do not know: then the consumer has to
#: filter.
_HASH_MIN: Final = -0x80000000
_HASH_MAX: Final = 0x7FFFFFFF


class Reader:
    """Reader of a store, over its maps or over files."""

    __slots__ = (
        "_delays",
        "_flusher",
        "_index",
        "_log",
        "_machine",
        "_memory",
        "_queues",
        "_settings",
        "near",
        "trusted_from",
    )

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog | ColdLog | CachedLog,
        queues: ConsumeQueues | ColdQueues | CachedQueues,
        index: Index | ColdIndex | None,
        flusher: Flusher | ColdLog,
        memory: int | None,
    ) -> None:
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        self._flusher = flusher
        self._delays = settings.delay_levels
        self._machine = memory or _MEMORY_UNKNOWN
        self._memory = 0
        #: Bytes behind the end of the log that may be given as one view each run.
        self.near = 0
        self.configure()
        #: Entries of messages from this offset on were made by this process and never came from a disk: nothing is
        #: wrong with them.
        self.trusted_from = _EVERYTHING

    def configure(self) -> None:
        """Take over what is set for how far memory reaches."""
        settings = self._settings
        self._memory = self._machine * settings.access_message_in_memory_max_ratio // 100
        self.near = self._memory
        if settings.cold_read_distance and isinstance(self._log, CommitLog):
            # a view of a map; what is read from files may come from anywhere
            self.near = min(self.near, settings.cold_read_distance)

    def on_disk(self, physical: int) -> bool:
        """Whether a record lies further behind the log's end than memory reaches (docs/protocol/store.md 13.6)."""
        return self._log.end - physical > self._memory

    def warm(self, queue: Queue, offset: int, count: int) -> int:
        """Read up to so many messages, or a good deal of bytes, only that the system has them in memory then."""
        end = min(offset + count, queue.max_offset)
        size = 0
        while offset < end and size < _WARM_SIZE:
            result = self.get(queue, offset, end - offset, None, None)
            if result.next_offset <= offset:
                break
            offset = result.next_offset
            size += result.size
        return offset

    def begins_in_memory(self, queue: Queue) -> bool:
        """Whether the first message of a queue lies where memory is taken to reach; true if there is none."""
        entry = self.entry(queue, queue.min_offset)
        return entry is None or not self.on_disk(entry[0])

    # --- from a queue ---

    def get(
        self,
        queue: Queue,
        offset: int,
        max_count: int,
        codes: frozenset[int] | None,
        read_filter: ReadFilter | None = None,
    ) -> GetResult:
        """Read messages from a queue.

        `codes`: wanted tag hashes, None for all; `read_filter` decides on those that have one.
        """
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [], 0, 0, False)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high, [], 0, 0, False)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [], 0, 0, False)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high, [], 0, 0, False)
        wanted = max_count if max_count > 1 else 1
        count = max(_SCAN_SIZE // ENTRY_SIZE, wanted)
        if codes is None and read_filter is None and wanted < count:
            count = wanted
        entries = self._queues.chunk(queue, offset, count, high)
        if not entries:
            following = offset - offset % self._queues.per_file + self._queues.per_file
            return GetResult(GetStatus.OFFSET_FOUND_NULL, min(following, high), low, high, [], 0, 0, False)
        result = self._take_runs(queue, entries, offset, wanted, codes) if read_filter is None else None
        if result is None:
            result = self._take_each(queue, entries, offset, wanted, codes, read_filter)
        result.min_offset = low
        result.max_offset = high
        return result

    def _take_runs(
        self,
        queue: Queue,
        entries: bytes | memoryview | bytearray,
        offset: int,
        wanted: int,
        codes: frozenset[int] | None,
    ) -> GetResult | None:
        """The quick way: records that lie side by side are given as one view. None when anything is unusual: records
        that are gone, or lie far back, or entries that lead to no record, as the last record of each run shows.
        """
        log = self._log
        first: int = ENTRY.unpack_from(entries)[0]
        settings = self._settings
        if log.end - first > self.near or first < log.start:
            return None
        wanted = min(wanted, settings.max_transfer_count_on_message_in_memory)
        size_max = settings.max_transfer_bytes_on_message_in_memory
        unsure = first < self.trusted_from
        views: list[memoryview] = []
        run_start = run_end = last_size = total = count = scanned = 0
        for physical, size, code in ENTRY.iter_unpack(entries):
            if count and (count >= wanted or total + size > size_max):
                break
            scanned += 1
            if (
                codes is not None
                and code not in codes
                and (_HASH_MIN <= code <= _HASH_MAX or self._unwanted(queue, code, codes))
            ):
                continue
            if physical != run_end or size <= 0:
                if physical < run_end or size <= 0:
                    return None
                if run_end:
                    view = log.slice(run_start, run_end)
                    if view is None or (
                        unsure and SIZE_MAGIC.unpack_from(view, run_end - run_start - last_size)[0] != last_size
                    ):
                        return None
                    views.append(view)
                run_start = physical
            run_end = physical + size
            last_size = size
            total += size
            count += 1
        if not count:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, offset + scanned, 0, 0, [], 0, 0, False)
        view = log.slice(run_start, run_end)
        if view is None or run_end > self._flusher.visible_end:
            return None
        if ENTRY.unpack_from(entries, (scanned - 1) * ENTRY_SIZE)[2] == HOLE_CODE:
            # any other hole shows by the entry behind it
            return None
        if unsure and SIZE_MAGIC.unpack_from(view, len(view) - last_size)[0] != last_size:
            return None
        views.append(view)
        return GetResult(
            GetStatus.FOUND, offset + scanned, 0, 0, views, total, count, False, "", log.end - run_end + last_size
        )

    def _take_each(
        self,
        queue: Queue,
        entries: bytes | memoryview | bytearray,
        offset: int,
        wanted: int,
        codes: frozenset[int] | None,
        read_filter: ReadFilter | None,
    ) -> GetResult:
        """The same one by one: with filters, over gaps, from far back."""
        log = self._log
        memory_from = log.end - self._memory
        status = GetStatus.NO_MATCHED_MESSAGE
        views: list[memoryview] = []
        total = count = scanned = 0
        damaged = ""
        last = skip_below = -1
        for physical, size, code in ENTRY.iter_unpack(entries):
            last = physical
            if 0 <= physical < skip_below:
                scanned += 1
                continue
            if read_filter is not None and read_filter.work_left <= 0:
                break
            if count and (code == HOLE_CODE or self._full(count, total + size, wanted, physical < memory_from)):
                break
            scanned += 1
            if code == HOLE_CODE:
                status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            if (
                codes is not None
                and code not in codes
                and (_HASH_MIN <= code <= _HASH_MAX or self._unwanted(queue, code, codes))
            ):
                continue
            if read_filter is not None and physical >= read_filter.bits_from and is_address(code):
                unit = self._queues.unit(queue, code)
                if unit is not None and not read_filter.may_take(unit.bits):
                    continue
            view = self._visible(physical, size)
            if view is None or not _is_record(view):
                if not count:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                if size != BLANK_SIZE and not 0 <= physical < log.start:
                    damaged = (
                        f"{queue} leads to no message at queue offset {offset + scanned - 1}: "
                        f"`store check` tells what is damaged"
                    )
                skip_below = (
                    (physical // log.file_size + 1) * log.file_size
                    if physical < log.start and size != BLANK_SIZE
                    else -1
                )
                continue
            if read_filter is not None and not read_filter.takes(view):
                continue
            views.append(view)
            total += size
            count += 1
            status = GetStatus.FOUND
            skip_below = -1
        return GetResult(
            status, offset + scanned, 0, 0, views, total, count, log.end - last > self._memory, damaged, log.end - last
        )

    def _unwanted(self, queue: Queue, code: int, codes: frozenset[int]) -> bool:
        """Whether what stands in place of a tags code is known to lead to one that is not wanted; otherwise the
        consumer has to filter.
        """
        unit = self._queues.unit(queue, code) if is_address(code) else None
        return unit is not None and unit.tags_code not in codes and _HASH_MIN <= unit.tags_code <= _HASH_MAX

    def _full(self, count: int, total: int, wanted: int, on_disk: bool) -> bool:
        """Whether an answer with `count` messages can take no more (docs/protocol/store.md 14.2)."""
        settings = self._settings
        if on_disk:
            limit, size_max = (
                settings.max_transfer_count_on_message_in_disk,
                settings.max_transfer_bytes_on_message_in_disk,
            )
        else:
            limit, size_max = (
                settings.max_transfer_count_on_message_in_memory,
                settings.max_transfer_bytes_on_message_in_memory,
            )
        return count >= wanted or count >= limit or total > size_max

    def _visible(self, physical: int, size: int) -> memoryview | None:
        """Bytes of the log that readers may see."""
        if size <= 0 or physical < self._log.start or physical + size > self._flusher.visible_end:
            return None
        return self._log.slice(physical, physical + size)

    # --- by place ---

    def record(self, physical: int) -> memoryview | None:
        """The visible record that begins at a physical offset; None where none begins, whatever an offset points to."""
        head = self._visible(physical, RECORD_FIXED)
        if head is None:
            return None
        size, magic = SIZE_MAGIC.unpack_from(head)
        if (
            magic == MAGIC_FILLER
            or size < RECORD_FIXED
            or int.from_bytes(head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") != physical
        ):
            return None
        return self._visible(physical, size)

    def entry(self, queue: Queue, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of a visible message; for a code that is lost its address."""
        entry = self._queues.entry(queue, offset) if offset < queue.max_offset else None
        if entry is None or not is_address(entry[2]):
            return entry
        physical, size, address = entry
        unit = self._queues.unit(queue, address)
        if unit is not None:
            return physical, size, unit.tags_code
        record = self.record(physical)
        return physical, size, address if record is None else facts_of(record).tags_code(self._delays)

    def unit(self, queue: Queue, offset: int) -> Unit | None:
        """What the extension of the consume queue keeps of a visible message; None if there is nothing."""
        entry = self._queues.entry(queue, offset) if offset < queue.max_offset else None
        return self._queues.unit(queue, entry[2]) if entry is not None and is_address(entry[2]) else None

    # --- by time ---

    def store_time(self, queue: Queue, offset: int) -> int:
        """When a message was stored; -1 if it cannot be read."""
        entry = self.entry(queue, offset)
        view = None if entry is None else self._visible(entry[0], min(entry[1], HEADS[-1].size))
        return -1 if view is None else store_time_of(view)

    def earliest_store_time(self, queue: Queue | None = None) -> int:
        """Store time of the oldest message of a queue, or of the log; -1 if there is none."""
        if queue is not None:
            time = self._time_from(queue, queue.min_offset, queue.max_offset)
            return -1 if time == _NEVER else time
        view = self.record(self._log.start)
        return -1 if view is None else store_time_of(view)

    def offset_by_time(self, queue: Queue, timestamp: int) -> int:
        """The first offset whose message was stored at or after a time; the queue's maximum if there is none.

        By halving the whole queue; messages that cannot be read count as older, a place without a message counts as
        the next one does.
        After the clock was set back the result still lies within the queue.
        """
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            if self._time_from(queue, middle, high) < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    def _time_from(self, queue: Queue, offset: int, stop: int) -> int:
        """Store time of the first message at an offset or behind it; -1 if it cannot be read, a time after all if there
        is none below `stop`.
        """
        count = 1
        while offset < stop:
            data = self._queues.chunk(queue, offset, count, stop)
            if not data:
                return -1
            for physical, size, _ in ENTRY.iter_unpack(data):
                if size != BLANK_SIZE:
                    view = self._visible(physical, min(size, HEADS[-1].size))
                    return -1 if view is None else store_time_of(view)
            offset += len(data) // ENTRY_SIZE
            count = _SCAN_SIZE // ENTRY_SIZE
        return _NEVER

    # --- by key ---

    def query(self, topic: str, key: str, max_count: int, begin: int, end: int) -> QueryResult:
        """Messages with a key (or unique id), stored between two wall times, both included (docs/protocol/store.md
        5.4): the newest ones, and no more than a frame takes.

        Hashes and times of the index are just a hint, so each message is looked at.
        """
        limit = min(max_count, self._settings.max_msgs_num_batch)
        found: dict[int, memoryview] = {}
        size = 0
        assert self._index is not None
        for physical in self._index.candidates(topic, key, begin, end):
            if len(found) >= limit:
                break
            record = None if physical in found else self.record(physical)
            if record is not None:
                facts = facts_of(record)
                if facts.topic == topic and begin <= facts.store_time <= end and facts.has_key(key):
                    size += len(record)
                    if size > _QUERY_SIZE_MAX and found:
                        break
                    found[physical] = record
        last_time, last_offset = self._index.last
        return QueryResult([found[physical] for physical in sorted(found)], last_time, last_offset)


def _is_record(view: memoryview) -> bool:
    """Whether bytes that a queue leads to begin as a record of that size. They do not where an entry is damaged."""
    if len(view) < RECORD_FIXED:
        return False
    size, magic = SIZE_MAGIC.unpack_from(view)
    return size == len(view) and magic in (MAGIC_V1, MAGIC_V2)
