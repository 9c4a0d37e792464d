"""Settings of the store: Apache's keys in snake_case, with the defaults of 4.9 (broker.md 8.3).

Both spellings of the file sizes (`maped...`, `mapped...`) mean the same attribute; `engine.settings` maps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ASYNC_FLUSH: Final = "ASYNC_FLUSH"
SYNC_FLUSH: Final = "SYNC_FLUSH"

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(slots=True)
class StoreSettings:
    """Where the data lies and how it is kept. Sizes in bytes, intervals in milliseconds unless said otherwise."""

    #: Root of the data directory; the adapters give a default (`~/store`).
    store_path_root_dir: str = "store"
    #: Empty: `<root>/commitlog`.
    store_path_commit_log: str = ""
    mapped_file_size_commit_log: int = 1 << 30
    #: Rounded up to whole entries of 20 bytes.
    mapped_file_size_consume_queue: int = 6_000_000
    #: ASYNC_FLUSH or SYNC_FLUSH.
    flush_disk_type: str = ASYNC_FLUSH
    #: ASYNC_MASTER, SYNC_MASTER or SLAVE.
    broker_role: str = "ASYNC_MASTER"
    flush_interval_commit_log: int = 500
    #: Pages of 4096 bytes that are worth a flush before the thorough interval is over.
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    sync_flush_timeout: int = 5000
    slave_timeout: int = 3000
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    destroy_mapped_file_interval_forcibly: int = 120_000
    redelete_hanged_file_interval: int = 120_000
    #: Hours of the day, separated by `;`.
    delete_when: str = "04"
    #: Hours.
    file_reserved_time: int = 72
    #: Percent.
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly_enable: bool = True
    #: Of a body; the record may have 65,536 bytes more (4.9.5 and later, store.md 2.7).
    max_message_size: int = 4 << 20
    check_crc_on_recover: bool = True
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    #: Percent of the machine's memory that counts as "in memory" behind the end of the log.
    access_message_in_memory_max_ratio: int = 40
    message_index_enable: bool = True
    message_index_safe: bool = False
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    #: Cap of one query by key.
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32
    message_delay_level: str = DELAY_LEVELS
    flush_delay_offset_interval: int = 10_000
    offset_check_in_slave: bool = False
    disk_fall_recorded: bool = True
    ha_send_heartbeat_interval: int = 5000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 32_768
    ha_slave_fallbehind_max: int = 268_435_456
    ha_master_address: str = ""
    #: Our own: blocks of the log are allocated ahead of the write position in steps of this many bytes.
    allocation_window: int = 64 << 20
    #: Our own: how many files may be mapped at a time.
    mapped_files_max: int = 512
    unknown: dict[str, str] = field(default_factory=dict)
