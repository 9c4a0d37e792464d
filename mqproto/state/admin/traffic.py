"""Traffic of topics: what comes in, what groups take out, what waits (mqadmin's `statsAll`, docs/protocol/admin.md
2.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from mqproto.errors import MQError, NoClients, PartlyFailed, PlaceFailure
from mqproto.state.admin.brokers import BrokerFlows
from mqproto.state.admin.calls import AdminCalls
from mqproto.state.admin.groups import GroupFlows
from mqproto.state.admin.topics import TopicFlows
from mqproto.state.flows.effects import Flow
from mqproto.wire.bodies import BrokerStats
from mqproto.wire.names import DLQ_PREFIX, RETRY_PREFIX


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """Messages that a group takes out of a topic: a second over the last minute, on the last day; and that wait."""

    group: str
    tps: float
    day: int
    lag: int


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Messages that come into a topic: a second over the last minute, on the last day; and what its groups do."""

    topic: str
    tps: float
    day: int
    groups: tuple[GroupTraffic, ...]


class TrafficFlows:
    """Operations on traffic.

    All of them raise NoNameServer, BrokerError, ConnectFailed, ConnectionLost, CallExpired where servers fail.
    """

    __slots__ = ("_brokers", "_calls", "_groups", "_topics")

    def __init__(self, calls: AdminCalls, topics: TopicFlows, groups: GroupFlows, brokers: BrokerFlows) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups
        self._brokers = brokers

    def of_topic(self, topic: str) -> Flow[TopicTraffic]:
        """What goes through a topic at all its brokers. Raises InvalidName, NoRoute."""
        addresses = [place.address for place in (yield from self._calls.places(topic))]
        names = yield from self._topics.consumers(topic)
        tps, day = yield from self._counted(addresses, "TOPIC_PUT_NUMS", topic)
        groups: list[GroupTraffic] = []
        for group in names:
            out_tps, out_day = yield from self._counted(addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
            try:
                lag = (yield from self._groups.progress(group, topic)).lag
            except NoClients:
                lag = 0
            groups.append(GroupTraffic(group, out_tps, out_day, lag))
        return TopicTraffic(topic, tps, day, tuple(groups))

    def of_all(self) -> Flow[list[TopicTraffic]]:
        """The same for every topic but retry and dead-letter topics, by name.

        Raises PartlyFailed, which names topics that failed.
        """
        found: list[TopicTraffic] = []
        failures: list[PlaceFailure] = []
        for topic in (yield from self._topics.names()):
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                continue
            try:
                found.append((yield from self.of_topic(topic)))
            except MQError as failure:
                failures.append(PlaceFailure(topic, failure))
        if failures:
            raise PartlyFailed("looking at all topics", tuple(one.topic for one in found), tuple(failures))
        return found

    def _counted(self, addresses: list[str], name: str, key: str) -> Flow[tuple[float, int]]:
        """A counter, summed over brokers: rate of a minute, sum of a day."""
        tps, day = 0.0, 0
        for address in addresses:
            stats = yield from self._brokers.stats(address, name, key)
            if stats is not None:
                tps += stats.minute.tps
                day += _day(stats)
        return tps, day


def _day(stats: BrokerStats) -> int:
    """The sum of the last 24 hours; a broker that has not run for an hour, or a minute, has only those of shorter
    spans.
    """
    return stats.day.total or stats.hour.total or stats.minute.total
