"""Settings of the store under Apache's keys, with the defaults of 4.9 (docs/protocol/broker.md 8.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqproto.engine.settings import Settings, setting
from mqproto.engine.store.layout import (
    ENTRY_SIZE,
    FILLER_SIZE,
    RECORD_EXTRA,
    UNIT,
    UNIT_END_SIZE,
    UNIT_SIZE_MAX,
)
from mqproto.errors import InvalidSetting

ASYNC_FLUSH: Final = "ASYNC_FLUSH"
SYNC_FLUSH: Final = "SYNC_FLUSH"
_I32_MAX: Final = (1 << 31) - 1
_HOURS: Final = 24
_DELAY_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY_DIGITS_MAX: Final = 12


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each delay level, level 1 first (docs/protocol/store.md 11).

    Raises ValueError for a text that is no list such as `1s 5m 2h`.
    """
    levels = []
    for word in text.split(" "):
        number, unit = word[:-1], _DELAY_UNITS.get(word[-1:])
        if unit is None or not (number.isascii() and number.isdigit() and len(number) <= _DELAY_DIGITS_MAX):
            raise ValueError(f"{word!r} is no delay level")
        levels.append(int(number) * unit)
    return tuple(levels)


@dataclass(slots=True, kw_only=True)
class StoreSettings(Settings):
    """Settings of a store: where the data lies, how it is kept. Sizes in bytes, times in ms unless said otherwise."""

    #: Root of the data directory; whoever starts a broker gives it (Apache: `~/store`).
    store_path_root_dir: str = setting("store", important=True)
    #: Empty: `<root>/commitlog`.
    store_path_commit_log: str = setting("", important=True)
    mapped_file_size_commit_log: int = setting(1 << 30, also=("mapedFileSizeCommitLog",), low=1024, high=_I32_MAX)
    #: Rounded up to whole entries of 20 bytes.
    mapped_file_size_consume_queue: int = setting(
        6_000_000, also=("mapedFileSizeConsumeQueue",), low=1, high=_I32_MAX - ENTRY_SIZE
    )

    #: Keep for each message what does not fit a queue entry: its tags code, store time and the bitmap of filters
    #: (docs/protocol/store.md 4.5).
    enable_consume_queue_ext: bool = setting(False)
    mapped_file_size_consume_queue_ext: int = setting(48 << 20, low=64, high=_I32_MAX)
    #: Bits of that bitmap, whole bytes of them.
    bit_map_length_consume_queue_ext: int = setting(112, high=8 * (UNIT_SIZE_MAX - UNIT.size))

    flush_disk_type: str = setting(ASYNC_FLUSH, choices=(ASYNC_FLUSH, SYNC_FLUSH), important=True)
    flush_interval_commit_log: int = setting(500, low=1, live=True, important=True)
    #: Pages of 4096 bytes that are worth a flush before the thorough interval is over.
    flush_commit_log_least_pages: int = setting(4, live=True)
    flush_commit_log_thorough_interval: int = setting(10_000, low=1, live=True)
    flush_interval_consume_queue: int = setting(1000, low=1, live=True)
    flush_consume_queue_least_pages: int = setting(2, live=True)
    flush_consume_queue_thorough_interval: int = setting(60_000, low=1, live=True)
    sync_flush_timeout: int = setting(5000, low=1, live=True, important=True)
    #: How long the log's disk may be at one job until messages are refused, if they would have to wait for it.
    os_page_cache_busy_time_out_mills: int = setting(1000, low=1, live=True)

    #: Of a body; a record may have 65,536 bytes more (4.9.5 and later, docs/protocol/store.md 2.7).
    max_message_size: int = setting(4 << 20, low=1, high=_I32_MAX - RECORD_EXTRA, live=True)
    check_crc_on_recover: bool = setting(True, key="checkCRCOnRecover")
    message_delay_level: str = setting("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    flush_delay_offset_interval: int = setting(10_000, low=1)
    #: Delivered messages count in the statistics of topics.
    enable_schedule_message_stats: bool = setting(True, live=True)

    max_transfer_bytes_on_message_in_memory: int = setting(262_144, live=True, important=True)
    max_transfer_count_on_message_in_memory: int = setting(32, live=True, important=True)
    max_transfer_bytes_on_message_in_disk: int = setting(65_536, live=True, important=True)
    max_transfer_count_on_message_in_disk: int = setting(8, live=True, important=True)
    #: Percent of the machine's memory that counts as "in memory" behind the end of the log.
    access_message_in_memory_max_ratio: int = setting(40, high=100, live=True, important=True)

    message_index_enable: bool = setting(True, live=True, important=True)
    max_hash_slot_num: int = setting(5_000_000, low=1, high=_I32_MAX)
    max_index_num: int = setting(20_000_000, low=2, high=_I32_MAX)
    #: Cap of one query by key.
    max_msgs_num_batch: int = setting(64, low=1, live=True)
    default_query_max_num: int = setting(32, low=1, live=True)

    #: 0, our own: nothing is deleted and no disk is looked at unless asked.
    clean_resource_interval: int = setting(10_000, live=True)
    delete_commit_log_files_interval: int = setting(100, live=True)
    delete_consume_queue_files_interval: int = setting(100, live=True)
    #: Files that one round deletes at most (5.x).
    delete_file_batch_max: int = setting(10, low=1, live=True)
    #: When a file that the system did not let go is tried again.
    redelete_hanged_file_interval: int = setting(120_000, low=1, live=True)
    #: Hours of the day, separated by `;`.
    delete_when: str = setting("04", live=True, important=True)
    #: Hours.
    file_reserved_time: int = setting(72, live=True, important=True)
    #: Percent.
    disk_max_used_space_ratio: int = setting(75, low=10, high=99, live=True)
    clean_file_forcibly_enable: bool = setting(True, live=True)
    #: Parts of 1, or percent if beyond 1; bounded as in 5.x: 0.30 to 0.85 and 0.35 to 0.90.
    disk_space_clean_forcibly_ratio: float = setting(0.85, high=100, live=True)
    disk_space_warning_level_ratio: float = setting(0.90, high=100, live=True)
    #: Our own: with room for so many files of the log no percentage forces deletion, with half of it none stops
    #: writing; 0: percentages alone count.
    disk_free_files_enough: int = setting(16, live=True)

    #: Our own: messages that lie further behind the end of the log, in bytes, are read in jobs, and less of them at a
    #: time; nearer ones are taken to be in memory. 0: all are read at once, which may wait for the disk. Apache's ratio
    #: is the upper limit.
    cold_read_distance: int = setting(1 << 30)
    #: Our own: blocks of the log are allocated ahead of the write position in steps of so many bytes.
    allocation_window: int = setting(64 << 20, low=4096)
    #: Our own: how many consume queue files are mapped at a time.
    mapped_queue_files: int = setting(256, low=1)

    @property
    def commit_log_folder(self) -> str:
        return self.store_path_commit_log or f"{self.store_path_root_dir}/commitlog"

    @property
    def queue_file_size(self) -> int:
        """Bytes of a consume queue file, a multiple of 20."""
        return -(-self.mapped_file_size_consume_queue // ENTRY_SIZE) * ENTRY_SIZE

    @property
    def index_file_size(self) -> int:
        return 40 + 4 * self.max_hash_slot_num + ENTRY_SIZE * self.max_index_num

    @property
    def delete_hours(self) -> frozenset[int]:
        """Hours of the day, local time, in which old files go."""
        return frozenset(int(hour) for hour in self.delete_when.split(";") if hour.strip())

    @property
    def largest_record(self) -> int:
        """Bytes of a whole record that are still taken."""
        return min(self.max_message_size + RECORD_EXTRA, self.mapped_file_size_commit_log - FILLER_SIZE)

    @property
    def delay_levels(self) -> tuple[int, ...]:
        """Milliseconds of each delay level, level 1 first. Raises ValueError for a text that was never checked."""
        return parse_delay_levels(self.message_delay_level)

    def check_together(self) -> None:
        try:
            parse_delay_levels(self.message_delay_level)
        except ValueError as failure:
            raise InvalidSetting("messageDelayLevel", self.message_delay_level, str(failure)) from None
        if (
            self.mapped_file_size_consume_queue_ext
            < UNIT.size + self.bit_map_length_consume_queue_ext // 8 + UNIT_END_SIZE
        ):
            text = f"too small for a bitmap of {self.bit_map_length_consume_queue_ext} bits"
            raise InvalidSetting("mappedFileSizeConsumeQueueExt", self.mapped_file_size_consume_queue_ext, text)
        hours = [hour.strip() for hour in self.delete_when.split(";") if hour.strip()]
        if not hours or not all(hour.isascii() and hour.isdigit() and int(hour) < _HOURS for hour in hours):
            raise InvalidSetting(
                "deleteWhen", self.delete_when, "hours of the day from 0 to 23 expected, separated by ;"
            )
        if "," in self.store_path_commit_log:
            raise InvalidSetting("storePathCommitLog", self.store_path_commit_log, "one folder expected")
