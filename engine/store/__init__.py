"""The store: Apache's data directory (store.md), the only place that touches files."""

from engine.store.closing import CloseStore
from engine.store.coldreads import ColdRead, Read
from engine.store.commitlog import AllocateLog, CreateLog
from engine.store.config import ConfigFile
from engine.store.disk import DiskFiles
from engine.store.errors import ConfigDamaged, PutRefused, PutStatus, StoreDamaged, StoreError, StoreLocked, StoreUnwritable
from engine.store.extension import Unit
from engine.store.files import Files
from engine.store.flushjobs import FlushLog
from engine.store.judging import NOWHERE, Judge
from engine.store.memory import MemoryFiles
from engine.store.queue import Queue
from engine.store.reading import Reader
from engine.store.records import properties_of
from engine.store.report import Ending, Lost, Recover, RecoveryReport
from engine.store.results import BatchEntry, GetResult, GetStatus, QueryResult
from engine.store.settings import StoreSettings
from engine.store.store import Store

__all__ = [
    "NOWHERE",
    "AllocateLog",
    "BatchEntry",
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
    "Judge",
    "Lost",
    "MemoryFiles",
    "PutRefused",
    "PutStatus",
    "QueryResult",
    "Queue",
    "Read",
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
