"""The store: Apache's data directory (store.md), the only place that touches files."""

from engine.store.errors import ConfigDamaged, PutRefused, PutStatus, StoreDamaged, StoreError, StoreLocked, StoreUnwritable
from engine.store.queue import Queue
from engine.store.results import BatchEntry, GetResult, GetStatus, QueryResult
from engine.store.settings import StoreSettings
from engine.store.store import Store

__all__ = [
    "BatchEntry",
    "ConfigDamaged",
    "GetResult",
    "GetStatus",
    "PutRefused",
    "PutStatus",
    "QueryResult",
    "Queue",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreLocked",
    "StoreSettings",
    "StoreUnwritable",
]
