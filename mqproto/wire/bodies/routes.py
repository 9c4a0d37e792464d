"""Bodies of the name server: routes, cluster (docs/protocol/wire.md 15)."""

from __future__ import annotations

from typing import ClassVar, Final

from mqproto.wire.bodies.members import (
    I32,
    I64,
    LARGE,
    OPTIONAL_TEXT,
    TEXT,
    Body,
    body,
    list_of,
    map_of,
    member,
    nested,
)
from mqproto.wire.fastjson import dumps, dumps_standard

MASTER_ID: Final = 0


@body
class QueueData(Body):
    """The queues that one broker has of a topic."""

    broker_name: str = member("brokerName", TEXT, default="")
    read_queues: int = member("readQueueNums", I32, default=0)
    write_queues: int = member("writeQueueNums", I32, default=0)
    perm: int = member("perm", I32, default=0)
    #: Up to 4.8, and in Go, the name has an n for the y. No release reads the other name.
    sys_flag: int = member("topicSysFlag", I32, also="topicSynFlag", default=0)


@body
class BrokerData(Body):
    """The addresses of one broker set by broker id; id 0 is the master."""

    cluster: str = member("cluster", TEXT, default="")
    broker_name: str = member("brokerName", TEXT, default="")
    addresses: dict[int, str] = member("brokerAddrs", map_of(I64, TEXT), default_factory=dict)


@body
class TopicRoute(Body):
    """Route of a topic: the body of GET_ROUTEINFO_BY_TOPIC 105. `order_conf` is `broker:queues;broker:queues`."""

    queues: list[QueueData] = member("queueDatas", list_of(nested(QueueData)), default_factory=list)
    brokers: list[BrokerData] = member("brokerDatas", list_of(nested(BrokerData)), default_factory=list)
    order_conf: str | None = member("orderTopicConf", OPTIONAL_TEXT, default=None)
    filter_servers: dict[str, list[str]] = member(
        "filterServerTable", map_of(TEXT, list_of(TEXT)), default_factory=dict
    )

    def to_json(self, standard: bool = False) -> bytes:
        """In Java's dialect, or with quoted broker ids and ASCII only.

        Standard is for requests of version 401 and later and for those that ask with `acceptStandardJsonOnly`. Older Go
        clients read a quoted id as 0, so a slave would take its master's place.
        """
        value = self.to_value()
        return dumps_standard(value).encode() if standard else dumps(value).encode("utf-8", "replace")


@body
class ClusterInfo(Body):
    """All brokers by name and the broker names of each cluster: the body of GET_BROKER_CLUSTER_INFO 106."""

    limit: ClassVar[int] = LARGE

    brokers: dict[str, BrokerData] = member("brokerAddrTable", map_of(TEXT, nested(BrokerData)), default_factory=dict)
    clusters: dict[str, list[str]] = member("clusterAddrTable", map_of(TEXT, list_of(TEXT)), default_factory=dict)


@body
class BrokerMemberGroup(Body):
    """The live addresses of one broker set by broker id."""

    cluster: str = member("cluster", TEXT, default="")
    broker_name: str = member("brokerName", TEXT, default="")
    addresses: dict[int, str] = member("brokerAddrs", map_of(I64, TEXT), default_factory=dict)


@body
class BrokerMemberGroupBody(Body):
    """Members of a broker set: the body of GET_BROKER_MEMBER_GROUP 901 (5.x)."""

    group: BrokerMemberGroup = member("brokerMemberGroup", nested(BrokerMemberGroup), default_factory=BrokerMemberGroup)
