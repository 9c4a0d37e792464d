"""The doctor of a data directory: looks at it, tells what is wrong, and mends it (docs/doctor.md).

Looking is read-only and safe beside a running broker; directories of Apache's brokers are read as well as ours. Nothing is printed
here, results are typed.
"""

from engine.store.doctor.checking import Check, Progress, check
from engine.store.doctor.directory import ConfigState, Directory, open_directory
from engine.store.doctor.findings import Finding, Report
from engine.store.doctor.indexes import IndexView
from engine.store.doctor.inspection import Inspection, QueueState, Size, inspect
from engine.store.doctor.log import LogPart, LogView, Stop, Walk
from engine.store.doctor.queues import QueueView
from engine.store.doctor.repairing import Repair, RepairPlan, RepairRefused

__all__ = [
    "Check",
    "ConfigState",
    "Directory",
    "Finding",
    "IndexView",
    "Inspection",
    "LogPart",
    "LogView",
    "Progress",
    "QueueState",
    "QueueView",
    "Repair",
    "RepairPlan",
    "RepairRefused",
    "Report",
    "Size",
    "Stop",
    "Walk",
    "check",
    "inspect",
    "open_directory",
]
