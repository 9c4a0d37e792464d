"""Bodies of the name server: routes, cluster, registration (wire.md 15)."""

from __future__ import annotations

import struct
import zlib
from typing import Any, ClassVar, Final

from mqproto.bodies.config import DataVersion, TopicConfig, TopicFilterType, TopicTable
from mqproto.bodies.members import I32, I64, LARGE, OPTIONAL_TEXT, TEXT, Body, body, list_of, map_of, member, nested
from mqproto.codes import VERSION, VERSION_5
from mqproto.errors import RemoteProtocolError
from mqproto.fastjson import dumps, dumps_standard, loads

MASTER_ID: Final = 0

_WORD: Final = struct.Struct(">i")
#: What a compressed registration may grow to: a table of some 200,000 topics.
MAX_INFLATED: Final = 64 << 20


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
    """Where a topic is: the body of GET_ROUTEINFO_BY_TOPIC 105. `order_conf` is `broker:queues;broker:queues`."""

    queues: list[QueueData] = member("queueDatas", list_of(nested(QueueData)), default_factory=list)
    brokers: list[BrokerData] = member("brokerDatas", list_of(nested(BrokerData)), default_factory=list)
    order_conf: str | None = member("orderTopicConf", OPTIONAL_TEXT, default=None)
    filter_servers: dict[str, list[str]] = member("filterServerTable", map_of(TEXT, list_of(TEXT)), default_factory=dict)

    def to_json(self, standard: bool = False) -> bytes:
        """In Java's dialect, or with quoted broker ids and ASCII only.

        Standard is for requests of version 401 and later and for those that ask with `acceptStandardJsonOnly`. Older Go clients
        read a quoted id as 0, so a slave would take its master's place.
        """
        value = self.to_value()
        return dumps_standard(value).encode() if standard else dumps(value).encode("utf-8", "replace")


@body
class ClusterInfo(Body):
    """All brokers by name and the broker names of each cluster: the body of GET_BROKER_CLUSTER_INFO 106."""

    limit: ClassVar[int] = LARGE

    brokers: dict[str, BrokerData] = member("brokerAddrTable", map_of(TEXT, nested(BrokerData)), default_factory=dict)
    clusters: dict[str, list[str]] = member("clusterAddrTable", map_of(TEXT, list_of(TEXT)), default_factory=dict)


# --- registration -----------------------------------------------------------------------------------------------------


def topic_to_text(topic: TopicConfig, version: int = VERSION) -> str:
    """A topic as compressed registrations have it; 5.x appends its attributes. Order and system flag are not in it."""
    text = f"{topic.name} {topic.read_queues} {topic.write_queues} {topic.perm} {topic.filter_type}"
    return text if version < VERSION_5 else f"{text} {dumps(topic.attributes or {})}"


def topic_from_text(text: str) -> TopicConfig:
    """The other way: five words, and perhaps attributes. Raises `RemoteProtocolError`."""
    words = text.split(" ", 5)
    if len(words) < 5:
        raise RemoteProtocolError(f"no topic configuration: {text[:200]!r}")
    name, read, write, perm, filter_type = words[:5]
    facts: dict[str, Any] = {"topicName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm}
    if filter_type not in TopicFilterType.__members__:
        raise RemoteProtocolError(f"no topic filter type: {filter_type[:40]!r}")
    return TopicConfig.from_value({**facts, "topicFilterType": filter_type, "attributes": loads(words[5]) if len(words) > 5 else None})


class _Reader:
    """Length-prefixed pieces of a compressed registration."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def number(self) -> int:
        if len(self._data) - self._at < 4:
            raise RemoteProtocolError("compressed registration is cut off")
        number: int = _WORD.unpack_from(self._data, self._at)[0]
        self._at += 4
        return number

    def text(self) -> str:
        size = self.number()
        if not 0 <= size <= len(self._data) - self._at:
            raise RemoteProtocolError(f"compressed registration has a piece of {size} bytes")
        self._at += size
        return str(self._data[self._at - size : self._at], "utf-8", "replace")


def _piece(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return _WORD.pack(len(data)) + data


@body
class RegisterBrokerBody(Body):
    """What a broker tells a name server: the body of REGISTER_BROKER 103."""

    topic_table: TopicTable = member("topicConfigSerializeWrapper", nested(TopicTable), default_factory=TopicTable)
    filter_servers: list[str] = member("filterServerList", list_of(TEXT), default_factory=list)

    @classmethod
    def from_compressed(cls, data: bytes | memoryview, version: int = VERSION) -> RegisterBrokerBody:
        """Out of the compressed form of 4.x, or of 5.x when `version`, the request's, says so. Raises `RemoteProtocolError`."""
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(data, MAX_INFLATED)
        except zlib.error as error:
            raise RemoteProtocolError(f"compressed registration: {error}") from None
        if not inflater.eof:
            raise RemoteProtocolError("compressed registration is cut off, or too large")
        reader = _Reader(plain)
        table = TopicTable(DataVersion.from_json(reader.text()))
        for _ in range(reader.number()):
            topic = topic_from_text(reader.text())
            table.topics[topic.name] = topic
        servers = loads(reader.text())
        result = cls(table, [] if servers is None else list_of(TEXT).read(servers))
        if version >= VERSION_5 and not reader.at_end:
            for _ in range(reader.number()):
                reader.text()  # static topics of 5.x: nothing of ours asks for them
        return result

    def to_compressed(self, version: int = VERSION) -> bytes:
        """The compressed form that a name server reads in a request of `version`."""
        topics = [_piece(topic_to_text(topic, version)) for topic in self.topic_table.topics.values()]
        pieces = [_piece(dumps(self.topic_table.data_version.to_value())), _WORD.pack(len(topics)), *topics]
        pieces.append(_piece(dumps(self.filter_servers)))
        if version >= VERSION_5:
            pieces.append(_WORD.pack(0))
        return zlib.compress(b"".join(pieces), 9)

    @classmethod
    def decode(cls, data: bytes | memoryview, *, compressed: bool, version: int) -> RegisterBrokerBody:
        """The body of a request of `version` in any of its forms. Raises `RemoteProtocolError`.

        No body is an empty table; below version 37 the body is the topic table alone; and a 5.3 broker that compresses does not
        say so, so the first byte of a zlib stream counts too.
        """
        if not data:
            return cls()
        if compressed or data[0] == 0x78:
            return cls.from_compressed(data, version)
        if version < _VERSION_WITH_FILTER_SERVERS:
            return cls(TopicTable.from_json(data))
        return cls.from_json(data)


#: Release 3.0.11: from here on a registration names filter servers.
_VERSION_WITH_FILTER_SERVERS: Final = 37
