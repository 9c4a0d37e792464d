"""Administration of a cluster: the calls behind mqadmin as flows with typed results (docs/protocol/admin.md).

core = AdminCore(node)
node.start(core.topics.create("orders", cluster="DefaultCluster"), now)

One family of operations a module. Operations over several servers go on after a failure and raise `PartlyFailed`,
which says where it was.
"""

from __future__ import annotations

from mqproto.state.admin.access import AccessFlows, AccessVersion, Account
from mqproto.state.admin.brokers import BrokerFlows, BrokerRates, BrokerRuntime
from mqproto.state.admin.calls import LONGEST_TIMEOUT_MS, TIMEOUT_MS, AdminCalls, AdminHost
from mqproto.state.admin.groups import GroupCheck, GroupFlows, GroupProgress, GroupSummary, QueueProgress
from mqproto.state.admin.messages import MessageFlows, MessageTrack, TrackType
from mqproto.state.admin.name_servers import NameServerFlows
from mqproto.state.admin.offsets import OffsetFlows, Reset
from mqproto.state.admin.topics import TopicFlows
from mqproto.state.admin.traffic import GroupTraffic, TopicTraffic, TrafficFlows

__all__ = [
    "LONGEST_TIMEOUT_MS",
    "TIMEOUT_MS",
    "AccessFlows",
    "AccessVersion",
    "Account",
    "AdminCore",
    "AdminHost",
    "BrokerFlows",
    "BrokerRates",
    "BrokerRuntime",
    "GroupCheck",
    "GroupFlows",
    "GroupProgress",
    "GroupSummary",
    "GroupTraffic",
    "MessageFlows",
    "MessageTrack",
    "NameServerFlows",
    "OffsetFlows",
    "QueueProgress",
    "Reset",
    "TopicFlows",
    "TopicTraffic",
    "TrackType",
    "TrafficFlows",
]


class AdminCore:
    """Operations of all families over one node.

    `timeout_ms` limits each request; it sends no heartbeat, and brokers do not know it.
    """

    __slots__ = ("access", "brokers", "groups", "messages", "name_servers", "offsets", "topics", "traffic")

    def __init__(self, host: AdminHost, timeout_ms: int = TIMEOUT_MS) -> None:
        """Raises InvalidSetting."""
        calls = AdminCalls(host, timeout_ms)
        self.topics = TopicFlows(calls)
        self.groups = GroupFlows(calls, self.topics)
        self.offsets = OffsetFlows(calls)
        self.messages = MessageFlows(calls, self.topics, self.groups)
        self.brokers = BrokerFlows(calls)
        self.name_servers = NameServerFlows(calls)
        self.traffic = TrafficFlows(calls, self.topics, self.groups, self.brokers)
        self.access = AccessFlows(calls)
