"""What operators ask of a cluster: the calls behind mqadmin as flows with typed results (admin.md; client.md 1.10).

core = AdminCore(node)
node.start(core.topics.create("orders", cluster="DefaultCluster"), now)

One family of operations a module. Operations over several servers go on after a failure and raise `PartlyFailed`, which says where.
"""

from __future__ import annotations

from mqproto.state.admin.access import Access, AccessVersion, Account
from mqproto.state.admin.brokers import BrokerRuntime, Brokers, Rates
from mqproto.state.admin.calls import LONGEST_TIMEOUT_MS, TIMEOUT_MS, AdminHost, Desk
from mqproto.state.admin.groups import GroupCheck, GroupProgress, Groups, GroupSummary, QueueProgress
from mqproto.state.admin.messages import Messages, MessageTrack, TrackType
from mqproto.state.admin.name_servers import NameServerOperations
from mqproto.state.admin.offsets import Offsets, Reset
from mqproto.state.admin.topics import Topics
from mqproto.state.admin.traffic import GroupTraffic, TopicTraffic, Traffic

__all__ = [
    "LONGEST_TIMEOUT_MS",
    "TIMEOUT_MS",
    "Access",
    "AccessVersion",
    "Account",
    "AdminCore",
    "AdminHost",
    "BrokerRuntime",
    "Brokers",
    "GroupCheck",
    "GroupProgress",
    "GroupSummary",
    "GroupTraffic",
    "Groups",
    "MessageTrack",
    "Messages",
    "NameServerOperations",
    "Offsets",
    "QueueProgress",
    "Rates",
    "Reset",
    "TopicTraffic",
    "Topics",
    "TrackType",
    "Traffic",
]


class AdminCore:
    """All families over one node. `timeout_ms` limits each request; it sends no heartbeat, and brokers do not know it."""

    __slots__ = ("access", "brokers", "groups", "messages", "name_servers", "offsets", "topics", "traffic")

    def __init__(self, host: AdminHost, timeout_ms: int = TIMEOUT_MS) -> None:
        """Raises InvalidSetting."""
        desk = Desk(host, timeout_ms)
        self.topics = Topics(desk)
        self.groups = Groups(desk, self.topics)
        self.offsets = Offsets(desk)
        self.messages = Messages(desk, self.topics, self.groups)
        self.brokers = Brokers(desk)
        self.name_servers = NameServerOperations(desk)
        self.traffic = Traffic(desk, self.topics, self.groups, self.brokers)
        self.access = Access(desk)
