"""Store: Apache's data directory (docs/protocol/store.md), the only place that touches files."""

from mqproto.engine.store.disk.config_files import ConfigFile
from mqproto.engine.store.disk.disk import DiskFiles
from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.engine.store.errors import (
    ConfigDamaged,
    PutRefused,
    PutStatus,
    StoreDamaged,
    StoreError,
    StoreLocked,
    StoreUnwritable,
)
from mqproto.engine.store.flush.closing import CloseStore
from mqproto.engine.store.flush.flush_jobs import FlushLog
from mqproto.engine.store.log.commit_log import AllocateLog, CreateLog
from mqproto.engine.store.log.records import properties_of
from mqproto.engine.store.queues.extension import Unit
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.reads.cold_reads import ColdRead, Read
from mqproto.engine.store.reads.read_filter import NOWHERE, ReadFilter
from mqproto.engine.store.reads.reader import Reader
from mqproto.engine.store.report import Ending, LostRange, Recover, RecoveryReport
from mqproto.engine.store.results import BatchPart, GetResult, GetStatus, QueryResult
from mqproto.engine.store.settings import StoreSettings
from mqproto.engine.store.store import Store

__all__ = [
    "NOWHERE",
    "AllocateLog",
    "BatchPart",
    "CloseStore",
    "ColdRead",
    "ConfigDamaged",
    "ConfigFile",
    "CreateLog",
    "DiskFiles",
    "Ending",
    "Files",
    "FlushLog",
    "GetResult",
    "GetStatus",
    "LostRange",
    "MemoryFiles",
    "PutRefused",
    "PutStatus",
    "QueryResult",
    "Queue",
    "Read",
    "ReadFilter",
    "Reader",
    "Recover",
    "RecoveryReport",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreLocked",
    "StoreSettings",
    "StoreUnwritable",
    "Unit",
    "properties_of",
]
