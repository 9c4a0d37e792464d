"""The doctor of a data directory: looks at it, tells what is wrong, and mends it (docs/doctor.md).

Looking is read-only and safe beside a running broker; directories of Apache's brokers are read as well as ours. Nothing is printed
here, results are typed.
"""

from mqproto.engine.store.doctor.checking import Check, Progress, check
from mqproto.engine.store.doctor.directory import ConfigState, Directory, open_directory
from mqproto.engine.store.doctor.findings import Finding, Report
from mqproto.engine.store.doctor.indexes import IndexView
from mqproto.engine.store.doctor.inspection import Inspection, QueueState, Size, inspect
from mqproto.engine.store.doctor.log import LogPart, LogView, Stop, Walk
from mqproto.engine.store.doctor.queues import QueueView
from mqproto.engine.store.doctor.repairing import Repair, RepairPlan, RepairRefused

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
