"""Registry of brokers and topics: what brokers registered, which are alive (docs/protocol/broker.md 6.1, 6.3, 6.4).

Owns: topics, broker addresses, clusters, live entries and when they expire. Nothing of it outlives the process.
Leaves to others: requests and answers (handlers), links and time (the node). A link is only a token here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from mqproto.engine.slices import Steps
from mqproto.errors import MQError
from mqproto.state.node.deadlines import Deadlines
from mqproto.wire.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicRoute,
)
from mqproto.wire.bodies.routes import MASTER_ID
from mqproto.wire.flags import PERM_READ_WRITE, PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUB
from mqproto.wire.headers import RegisterBrokerRequest

#: A broker that did not register for so long is gone; brokers register every 10 to 60 s.
LIVE_MS: Final = 120_000
#: Bounds of what a broker of 5.x may ask for instead.
LIVE_MIN_MS: Final = 1_000
LIVE_MAX_MS: Final = 3_600_000
#: Topics of a broker that are worked on in one slice: about a millisecond.
SLICE_TOPICS: Final = 1_000

_FACTS: Final = Struct(">iiii")
#: What anybody who reaches the port may make us keep: addresses of brokers, and queue entries (a topic at a broker).
ADDRESSES_MAX: Final = 20_000
ENTRIES_MAX: Final = 2_000_000


class RegistrationRefusedError(MQError):
    """Refusal of a registration: it would exceed a limit of this name server, or is older than what is known; nothing
    of it was taken.
    """


@dataclass(slots=True)
class Live:
    """Broker address that is alive."""

    address: str
    broker_name: str
    link: Hashable
    ha_address: str
    #: Which state of the broker's topics we have; None while we may have a part of them only.
    version: DataVersion | None
    filter_servers: list[str] = field(default_factory=list)
    #: Its deadline, counted from each sign of life.
    live_ms: int = LIVE_MS


class Registry:
    """Registry of one name server.

    All lists that it gives are ordered by name, so that equal states give equal answers.
    """

    def __init__(self) -> None:
        #: Topic, then broker name; what a broker has of a topic is packed into a number (`_pack`). Dicts of texts and
        #: numbers are left alone by Python's collector of cycles, which would else stop the loop for 100 ms with 10,000
        #: topics at each of 100 brokers.
        self.topics: dict[str, dict[str, int]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[str, Live] = {}
        self.deadlines: Deadlines[str] = Deadlines()
        self._topics_of: dict[str, dict[str, None]] = {}
        #: Takes the work of forgetting the topics of a broker that is gone; None while that is done at once.
        self.later: Callable[[Steps[None]], bool] | None = None
        self._addresses_of: dict[Hashable, set[str]] = {}
        self._entries = 0

    # --- coming ---

    def knows(self, header: RegisterBrokerRequest, version: DataVersion) -> bool:
        """Whether a registration under this version brings nothing new of topics."""
        entry, data = self.live.get(header.broker_addr), self.brokers.get(header.broker_name)
        there = data is not None and header.broker_id in data.addresses
        return there and entry is not None and entry.version is not None and entry.version == version

    def register(
        self,
        header: RegisterBrokerRequest,
        body: RegisterBrokerBody,
        link: Hashable,
        now: int,
        live_ms: int | None = None,
    ) -> Steps[Live | None]:
        """Take a broker in, or what has changed of it, in slices. Gives a slave its live master, if there is one.

        Topics that are missing from the body stay. `live_ms` is what the broker asks for as its deadline. Raises
        RegistrationRefusedError.
        """
        name, address = header.broker_name, header.broker_addr
        table = body.topic_table
        before = self.live.get(address)
        self._check_room(header, table.topics)
        self._check_state(header, table.data_version)
        if before is not None and before.broker_name != name:  # renamed: nothing would ever end the former name
            self._forget_address(before.broker_name, address)
        first = self._enter(header)
        known = before is not None and before.version is not None and before.version == table.data_version and not first
        entry = Live(
            address, name, link, header.ha_server_addr, table.data_version if known else None, body.filter_servers
        )
        if live_ms is not None and live_ms > 0:
            entry.live_ms = min(max(live_ms, LIVE_MIN_MS), LIVE_MAX_MS)
        self._set_live(entry, now)
        if not known:
            whole = header.broker_id != MASTER_ID or (yield from self._take_topics(entry, table.topics.values()))
            if whole:
                entry.version = _known_version(before if not first else None, body)
        if header.broker_id == MASTER_ID:
            return None
        return self.live.get(self.brokers[name].addresses.get(MASTER_ID, ""))

    def refresh(self, address: str, now: int) -> None:
        """A sign of life from a broker, if it is alive."""
        entry = self.live.get(address)
        if entry is not None:
            self.deadlines.set(address, now + entry.live_ms)

    def _check_room(self, header: RegisterBrokerRequest, topics: Collection[str]) -> None:
        if header.broker_addr not in self.live and len(self.live) >= ADDRESSES_MAX:
            raise RegistrationRefusedError(f"this name server takes {ADDRESSES_MAX} broker addresses and not more")
        if self._entries + len(topics) > ENTRIES_MAX:
            held = self._topics_of.get(header.broker_name, {})
            if self._entries + sum(topic not in held for topic in topics) > ENTRIES_MAX:
                raise RegistrationRefusedError(f"this name server takes {ENTRIES_MAX} queue entries and not more")

    def _check_state(self, header: RegisterBrokerRequest, version: DataVersion) -> None:
        """An id that changes hands does not go back to an older state (5.x counts states; 4.x does not)."""
        data = self.brokers.get(header.broker_name)
        holder = None if data is None else data.addresses.get(header.broker_id)
        if holder is None or holder == header.broker_addr:
            return
        entry = self.live.get(holder)
        state = 0 if entry is None or entry.version is None else entry.version.state_version or 0
        if state > (version.state_version or 0):
            raise RegistrationRefusedError("register broker failed")

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
        for broker_id in [
            each for each, held in data.addresses.items() if held == address and each != header.broker_id
        ]:
            del data.addresses[broker_id]
        first = header.broker_id not in data.addresses
        data.addresses[header.broker_id] = address
        return first

    def _take_topics(self, entry: Live, topics: Iterable[TopicConfig]) -> Steps[bool]:
        """Take the topics of a master; False when it went, or came anew, before all were taken."""
        name = entry.broker_name
        held = self._topics_of.setdefault(name, {})
        shared: dict[tuple[int, int, int, int], int] = {}
        for number, topic in enumerate(topics, 1):
            facts = (topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag)
            packed = shared.get(facts)
            if packed is None:
                packed = shared[facts] = _pack(*facts)
            self._put(name, held, topic.name, packed)
            if number % SLICE_TOPICS == 0:
                yield
                if self.live.get(entry.address) is not entry or self._topics_of.get(name) is not held:
                    return False
        return True

    def _put(self, name: str, held: dict[str, None], topic: str, packed: int) -> None:
        """Note what a broker has of a topic; `held` are the topics of this broker."""
        entries = self.topics.get(topic)
        if entries is None:
            entries = self.topics[topic] = {}
        if topic not in held:
            self._entries += 1
            held[topic] = None
        entries[name] = packed

    def register_topic(self, topic: str, all_queues: Iterable[QueueData]) -> None:
        """Note queues of one topic at brokers that are known; the others are left out (5.x).

        Raises RegistrationRefusedError.
        """
        if self._entries >= ENTRIES_MAX:
            raise RegistrationRefusedError(f"this name server takes {ENTRIES_MAX} queue entries and not more")
        for queues in all_queues:
            name = queues.broker_name
            if name in self.brokers:
                packed = _pack(queues.read_queues, queues.write_queues, queues.perm, queues.sys_flag)
                self._put(name, self._topics_of.setdefault(name, {}), topic, packed)

    def _set_live(self, entry: Live, now: int) -> None:
        self._drop_live(entry.address)
        self.live[entry.address] = entry
        self._addresses_of.setdefault(entry.link, set()).add(entry.address)
        self.deadlines.set(entry.address, now + entry.live_ms)

    # --- going ---

    def unregister(self, broker_name: str, address: str, broker_id: int) -> None:
        """A broker says that it goes. An id that another address holds by now stays."""
        entry = self._drop_live(address)
        if entry is not None:  # whatever it says of its name and id
            self._forget_address(entry.broker_name, address)
        data = self.brokers.get(broker_name)
        if data is not None and data.addresses.get(broker_id) == address:
            del data.addresses[broker_id]
            self._drop_if_empty(data)

    def lost(self, link: Hashable) -> None:
        """A connection ended: every broker whose last registration came by it is gone."""
        for address in sorted(self._addresses_of.get(link, ())):
            entry = self._drop_live(address)
            if entry is not None:
                self._forget_address(entry.broker_name, address)

    def _forget_address(self, broker_name: str, address: str) -> None:
        """An address is no longer one of a broker's, under no id."""
        data = self.brokers.get(broker_name)
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
        """Without any address a broker name is gone, and what it held of topics.

        Slaves keep the topics of their master.
        """
        if data.addresses:
            return
        del self.brokers[data.broker_name]
        self._leave_cluster(data)
        steps = self._forget_topics(data.broker_name, self._topics_of.pop(data.broker_name, {}))
        if self.later is None or not self.later(steps):
            for _ in steps:
                pass

    def _forget_topics(self, name: str, held: dict[str, None]) -> Steps[None]:
        """Remove what a broker held, in slices.

        It may be back meanwhile; until then nobody is led to it, as its name is gone.
        """
        topics = self.topics
        for number, topic in enumerate(held, 1):
            self._entries -= 1
            entries = topics.get(topic)
            if entries is not None and topic not in self._topics_of.get(name, ()):
                entries.pop(name, None)
                if not entries:
                    del topics[topic]
            if number % SLICE_TOPICS == 0:
                yield

    def _leave_cluster(self, data: BrokerData) -> None:
        names = self.clusters.get(data.cluster, set())
        names.discard(data.broker_name)
        if not names:
            self.clusters.pop(data.cluster, None)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic at the brokers of a cluster, or everywhere; a broker that has it brings it back."""
        entries = self.topics.get(topic, {})
        for name in list(entries):
            held = self._topics_of.get(name, {})
            if topic in held and (cluster is None or name in self.clusters.get(cluster, ())):
                del held[topic]
                self._entries -= 1
                del entries[name]
        if topic in self.topics and not entries:
            del self.topics[topic]

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
        return TopicRoute([QueueData(name, *_unpack(queues[name])) for name in names], brokers, None, servers)

    def queues(self, topic: str, broker_name: str) -> QueueData | None:
        """What a broker has of a topic."""
        packed = self.topics.get(topic, {}).get(broker_name)
        return None if packed is None or broker_name not in self.brokers else QueueData(broker_name, *_unpack(packed))

    def cluster_info(self) -> ClusterInfo:
        """Every broker and every cluster."""
        clusters = {cluster: sorted(self.clusters[cluster]) for cluster in sorted(self.clusters)}
        return ClusterInfo({name: self.brokers[name] for name in sorted(self.brokers)}, clusters)

    def set_write_permission(self, broker_name: str, allowed: bool) -> Steps[int]:
        """Let a broker's topics be written to, or not, until its next change, in slices; the number of topics.

        Allowing makes them readable too.
        """
        count = 0
        changed: dict[int, int] = {}
        for number, topic in enumerate(list(self._topics_of.get(broker_name, ())), 1):
            entries = self.topics.get(topic, {})
            packed = entries.get(broker_name)
            if packed is not None:
                if packed not in changed:
                    read, write, perm, flag = _unpack(packed)
                    changed[packed] = _pack(read, write, PERM_READ_WRITE if allowed else perm & ~PERM_WRITE, flag)
                entries[broker_name] = changed[packed]
                count += 1
            if number % SLICE_TOPICS == 0:
                yield
        return count

    def all_topics(self) -> list[str]:
        return sorted(self.topics)

    def topics_of_cluster(self, cluster: str) -> Steps[list[str]]:
        """Topics with a queue at one of the cluster's brokers, a broker in each slice."""
        found: set[str] = set()
        for number, name in enumerate(sorted(self.clusters.get(cluster, ()))):
            if number and len(found) > SLICE_TOPICS:
                yield
            found.update(self._topics_of.get(name, ()))
        return sorted(found)

    def unit_topics(self, *, unit: bool | None = None, unit_sub: bool | None = None) -> Steps[list[str]]:
        """Topics by the unit flags of their first entry, in slices; None does not look at a flag."""
        found: list[str] = []
        for number, (topic, queues) in enumerate(list(self.topics.items()), 1):
            for packed in queues.values():
                flag = _unpack(packed)[3]
                if unit in (None, bool(flag & TOPIC_UNIT)) and unit_sub in (None, bool(flag & TOPIC_UNIT_SUB)):
                    found.append(topic)
                break
            if number % SLICE_TOPICS == 0:
                yield
        return sorted(found)


def _pack(*facts: int) -> int:
    """Numbers of read and write queues, permission and flag in one number."""
    return int.from_bytes(_FACTS.pack(*facts), "big", signed=True)


def _unpack(packed: int) -> tuple[int, int, int, int]:
    read, write, perm, flag = _FACTS.unpack(packed.to_bytes(_FACTS.size, "big", signed=True))
    return read, write, perm, flag


def _known_version(before: Live | None, body: RegisterBrokerBody) -> DataVersion | None:
    """Which state of a broker's topics we have, once its body was taken.

    A broker announces a new topic by a body with this topic alone and the version of its whole table. That version is
    ours only if we had the one before. Otherwise topics would be missing for ever, because the next whole table would
    look known (docs/protocol/broker.md 1.6, Trap).
    """
    version = body.topic_table.data_version
    if len(body.topic_table.topics) != 1:
        return version
    if before is not None and before.version is not None and before.version.counter + 1 == version.counter:
        return version
    return None
