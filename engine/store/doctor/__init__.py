"""The doctor of a data directory: looks at it, tells what is wrong, and mends it (docs/doctor.md).

Looking is read-only and safe beside a running broker; directories of Apache's brokers are read as well as ours. Nothing is printed
here, results are typed.
"""

from engine.store.doctor.directory import ConfigState, Directory, open_directory
from engine.store.doctor.indexes import IndexView
from engine.store.doctor.inspection import Inspection, QueueState, Size, inspect
from engine.store.doctor.log import LogPart, LogView, Stop, Walk
from engine.store.doctor.queues import QueueView

__all__ = [
    "ConfigState",
    "Directory",
    "IndexView",
    "Inspection",
    "LogPart",
    "LogView",
    "QueueState",
    "QueueView",
    "Size",
    "Stop",
    "Walk",
    "inspect",
    "open_directory",
]
