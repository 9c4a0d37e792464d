"""Doctor of a data directory: it looks at it, reports what is wrong and repairs it (docs/doctor.md).

Looking is read-only and safe beside a running broker; directories of Apache's brokers are read as well as ours. Nothing
is printed here, results are typed.
"""

from mqproto.engine.store.doctor.checks.check import Check, CheckProgress, check
from mqproto.engine.store.doctor.checks.findings import Finding, Report
from mqproto.engine.store.doctor.inspection import Inspection, QueueState, Size, inspect
from mqproto.engine.store.doctor.repair import Repair, RepairPlan, RepairRefused
from mqproto.engine.store.doctor.views.directory import ConfigState, Directory, open_directory
from mqproto.engine.store.doctor.views.indexes import IndexView
from mqproto.engine.store.doctor.views.log import LogPart, LogView, Stop, Walk
from mqproto.engine.store.doctor.views.queues import QueueView

__all__ = [
    "Check",
    "CheckProgress",
    "ConfigState",
    "Directory",
    "Finding",
    "IndexView",
    "Inspection",
    "LogPart",
    "LogView",
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
