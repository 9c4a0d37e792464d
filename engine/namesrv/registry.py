"""Who holds which topic: what brokers registered, and who of them is alive (broker.md 6.1, 6.3, 6.4).

Owns: topics, broker addresses, clusters, live entries and when they expire. Nothing of it outlives the process.
Leaves to others: requests and answers (handlers), links and time (the node). A link is here only a token that tells connections apart.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Final

from mqproto.bodies import BrokerData, ClusterInfo, DataVersion, QueueData, RegisterBrokerBody, TopicConfig, TopicRoute
from mqproto.bodies.routes import MASTER_ID
from mqproto.errors import MQError
from mqproto.flags import PERM_READ_WRITE, PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUB
from mqproto.headers import RegisterBrokerRequest
from mqproto.state.deadlines import Deadlines

#: A broker that did not register for so long is gone; brokers register every 10 to 60 s.
LIVE_MS: Final = 120_000
#: What anybody who reaches the port may make us keep: addresses of brokers, and queue entries (a topic at a broker).
ADDRESSES_MAX: Final = 20_000
ENTRIES_MAX: Final = 2_000_000


class RegistryFullError(MQError):
    """A registration would exceed a limit of this name server; nothing of it was taken."""


@dataclass(slots=True)
class Live:
    """A broker address that is alive."""

    address: str
    broker_name: str
    link: Hashable
    ha_address: str
    #: Which state of the broker's topics we have; None while we may have a part of them only.
    version: DataVersion | None
    filter_servers: list[str] = field(default_factory=list)


class Registry:
    """The tables of the name server. All lists that it gives are ordered by name, so that equal states give equal answers."""

    def __init__(self) -> None:
        #: Topic, then broker name.
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[str, Live] = {}
        self.deadlines: Deadlines[str] = Deadlines()
        self._topics_of: dict[str, set[str]] = {}
        self._addresses_of: dict[Hashable, set[str]] = {}
        self._entries = 0

    # --- coming ---

    def register(self, header: RegisterBrokerRequest, body: RegisterBrokerBody, link: Hashable, now: int) -> Live | None:
        """Take a broker in, or what has changed of it. Gives a slave its live master, if there is one.

        Topics that are missing from the body stay. Raises RegistryFullError.
        """
        name, address = header.broker_name, header.broker_addr
        table = body.topic_table
        before = self.live.get(address)
        self._check_room(header, table.topics)
        first = self._enter(header)
        if before is not None and before.version is not None and before.version == table.data_version and not first:
            version: DataVersion | None = before.version
        else:
            if header.broker_id == MASTER_ID:
                for topic in table.topics.values():
                    self._take_topic(name, topic)
            version = _known_version(before if not first else None, body)
        self._set_live(Live(address, name, link, header.ha_server_addr, version, body.filter_servers), now)
        if header.broker_id == MASTER_ID:
            return None
        return self.live.get(self.brokers[name].addresses.get(MASTER_ID, ""))

    def refresh(self, address: str, now: int) -> None:
        """A sign of life from a broker that is alive and has nothing new."""
        self.deadlines.set(address, now + LIVE_MS)

    def _check_room(self, header: RegisterBrokerRequest, topics: Collection[str]) -> None:
        if header.broker_addr not in self.live and len(self.live) >= ADDRESSES_MAX:
            raise RegistryFullError(f"this name server takes {ADDRESSES_MAX} broker addresses and not more")
        if self._entries + len(topics) > ENTRIES_MAX:
            held = self._topics_of.get(header.broker_name, set())
            if self._entries + sum(topic not in held for topic in topics) > ENTRIES_MAX:
                raise RegistryFullError(f"this name server takes {ENTRIES_MAX} queue entries and not more")

    def _enter(self, header: RegisterBrokerRequest) -> bool:
        """Note cluster, name and address; True if the name or the id was not there before."""
        name, address = header.broker_name, header.broker_addr
        data = self.brokers.get(name)
        if data is None:
            data = self.brokers[name] = BrokerData(header.cluster_name, name, {})
        elif data.cluster != header.cluster_name:
            self._leave_cluster(data)
            data.cluster = header.cluster_name
        self.clusters.setdefault(header.cluster_name, set()).add(name)
        # A slave that became master, or the other way round, has one id only.
        for broker_id in [each for each, held in data.addresses.items() if held == address and each != header.broker_id]:
            del data.addresses[broker_id]
        first = header.broker_id not in data.addresses
        data.addresses[header.broker_id] = address
        return first

    def _take_topic(self, broker_name: str, topic: TopicConfig) -> None:
        queues = self.topics.setdefault(topic.name, {})
        if broker_name not in queues:
            self._entries += 1
            self._topics_of.setdefault(broker_name, set()).add(topic.name)
        queues[broker_name] = QueueData(broker_name, topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag)

    def _set_live(self, entry: Live, now: int) -> None:
        self._drop_live(entry.address)
        self.live[entry.address] = entry
        self._addresses_of.setdefault(entry.link, set()).add(entry.address)
        self.deadlines.set(entry.address, now + LIVE_MS)

    # --- going ---

    def unregister(self, broker_name: str, address: str, broker_id: int) -> None:
        """A broker says that it goes. An id that another address holds by now stays."""
        self._drop_live(address)
        data = self.brokers.get(broker_name)
        if data is not None and data.addresses.get(broker_id) == address:
            del data.addresses[broker_id]
            self._drop_if_empty(data)

    def lost(self, link: Hashable) -> None:
        """A connection ended: every broker whose last registration came by it is gone."""
        for address in sorted(self._addresses_of.get(link, ())):
            entry = self._drop_live(address)
            data = None if entry is None else self.brokers.get(entry.broker_name)
            if data is not None:
                for broker_id in [each for each, held in data.addresses.items() if held == address]:
                    del data.addresses[broker_id]
                self._drop_if_empty(data)

    def expired(self, now: int) -> list[Hashable]:
        """The links of brokers that have been silent for too long; the caller ends them and reports them lost."""
        return [self.live[address].link for address in self.deadlines.due(now)]

    def _drop_live(self, address: str) -> Live | None:
        entry = self.live.pop(address, None)
        if entry is not None:
            self.deadlines.cancel(address)
            addresses = self._addresses_of[entry.link]
            addresses.discard(address)
            if not addresses:
                del self._addresses_of[entry.link]
        return entry

    def _drop_if_empty(self, data: BrokerData) -> None:
        """Without any address a broker name is gone, and what it held of topics. Slaves keep the topics of their master."""
        if data.addresses:
            return
        del self.brokers[data.broker_name]
        self._leave_cluster(data)
        for topic in self._topics_of.pop(data.broker_name, ()):
            self._drop_entry(topic, data.broker_name)

    def _leave_cluster(self, data: BrokerData) -> None:
        names = self.clusters.get(data.cluster, set())
        names.discard(data.broker_name)
        if not names:
            self.clusters.pop(data.cluster, None)

    def _drop_entry(self, topic: str, broker_name: str) -> None:
        del self.topics[topic][broker_name]
        self._entries -= 1
        if not self.topics[topic]:
            del self.topics[topic]

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic at the brokers of a cluster, or everywhere; a broker that has it brings it back with its next change."""
        for broker_name in list(self.topics.get(topic, ())):
            if cluster is None or broker_name in self.clusters.get(cluster, ()):
                self._topics_of[broker_name].discard(topic)
                self._drop_entry(topic, broker_name)

    # --- questions and marks ---

    def route(self, topic: str) -> TopicRoute | None:
        """Queues and brokers of a topic, by broker name (PRO-09); None without a queue at a known broker."""
        queues = self.topics.get(topic, {})
        names = sorted(name for name in queues if name in self.brokers)
        if not names:
            return None
        brokers = [self.brokers[name] for name in names]
        servers: dict[str, list[str]] = {}
        for broker in brokers:
            for address in broker.addresses.values():
                entry = self.live.get(address)
                if entry is not None and entry.filter_servers:
                    servers[address] = entry.filter_servers
        return TopicRoute([queues[name] for name in names], brokers, None, servers)

    def cluster_info(self) -> ClusterInfo:
        """Every broker and every cluster."""
        clusters = {cluster: sorted(self.clusters[cluster]) for cluster in sorted(self.clusters)}
        return ClusterInfo({name: self.brokers[name] for name in sorted(self.brokers)}, clusters)

    def set_write_permission(self, broker_name: str, allowed: bool) -> int:
        """Let a broker's topics be written to, or not, until its next change; the number of topics. Allowing makes them readable too."""
        topics = self._topics_of.get(broker_name, ())
        for topic in topics:
            queues = self.topics[topic][broker_name]
            queues.perm = PERM_READ_WRITE if allowed else queues.perm & ~PERM_WRITE
        return len(topics)

    def all_topics(self) -> list[str]:
        return sorted(self.topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics with a queue at one of the cluster's brokers."""
        return sorted(set().union(*(self._topics_of.get(name, ()) for name in self.clusters.get(cluster, ()))))

    def unit_topics(self, *, unit: bool | None = None, unit_sub: bool | None = None) -> list[str]:
        """Topics by the unit flags of their first entry; None does not look at a flag."""
        found: list[str] = []
        for topic, queues in self.topics.items():
            flag = next(iter(queues.values())).sys_flag
            if unit in (None, bool(flag & TOPIC_UNIT)) and unit_sub in (None, bool(flag & TOPIC_UNIT_SUB)):
                found.append(topic)
        return sorted(found)


def _known_version(before: Live | None, body: RegisterBrokerBody) -> DataVersion | None:
    """Which state of a broker's topics we have, once its body was taken.

    A broker announces a new topic by a body with this topic alone and the version of its whole table. That version is ours only if we
    had the one before. Otherwise topics would be missing for ever, because the next whole table would look known (broker.md 1.6, Trap).
    """
    version = body.topic_table.data_version
    if len(body.topic_table.topics) != 1:
        return version
    if before is not None and before.version is not None and before.version.counter + 1 == version.counter:
        return version
    return None
