"""Bodies against Apache's own reading and writing, against every recorded body, and against what C++, Go and Node
send.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mqproto.errors import RemoteProtocolError
from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    Body,
    BrokerData,
    BrokerStats,
    CheckClient,
    ClusterInfo,
    ConsumeDirectlyResult,
    ConsumerConnection,
    ConsumerFilters,
    ConsumerIds,
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DataVersion,
    DelayOffsets,
    GroupConfig,
    GroupList,
    GroupTable,
    HeartbeatData,
    KVTable,
    LockAnswer,
    LockRequest,
    OffsetTable,
    ProducerConnection,
    ProducerTable,
    QueueData,
    QueueDump,
    RegisterBrokerBody,
    ResetOffsets,
    TopicConfig,
    TopicList,
    TopicRoute,
    TopicStats,
    TopicTable,
    json_pieces,
    pretty_pieces,
    topic_from_text,
    topic_to_text,
)
from mqproto.wire.fastjson import JavaMap, JsonError, dumps, loads
from tests.golden.golden import GOLDEN, VERSIONS, Golden

REQUESTS: dict[int, type[Body]] = {
    34: HeartbeatData,
    41: LockRequest,
    42: LockRequest,
    46: CheckClient,
    103: RegisterBrokerBody,
    200: GroupConfig,
    220: ResetOffsets,
    322: DataVersion,
}
ANSWERS: dict[int, type[Body]] = {
    21: TopicTable,
    28: KVTable,
    38: ConsumerIds,
    41: LockAnswer,
    43: OffsetTable,
    45: DelayOffsets,
    103: KVTable,
    105: TopicRoute,
    106: ClusterInfo,
    201: GroupTable,
    202: TopicStats,
    203: ConsumerConnection,
    204: ProducerConnection,
    206: TopicList,
    208: ConsumeStats,
    219: KVTable,
    221: ConsumerStatus,
    222: ResetOffsets,
    223: ConsumerStatus,
    224: TopicList,
    300: GroupList,
    303: ConsumeTimeSpans,
    304: TopicList,
    305: TopicList,
    307: ConsumerRunningInfo,
    308: CorrectionOffsets,
    309: ConsumeDirectlyResult,
    311: TopicList,
    312: TopicList,
    313: TopicList,
    315: BrokerStats,
    317: ConsumeStatsList,
    321: QueueDump,
    322: DataVersion,
    328: ProducerTable,
    351: TopicConfig,
}
CLASSES: dict[str, type[Body]] = {
    "TopicRouteData": TopicRoute,
    "HeartbeatData": HeartbeatData,
    "ConsumeStats": ConsumeStats,
    "TopicStatsTable": TopicStats,
    "ResetOffsetBody": ResetOffsets,
    "ClusterInfo": ClusterInfo,
    "TopicList": TopicList,
    "KVTable": KVTable,
    "LockBatchRequestBody": LockRequest,
    "LockBatchResponseBody": LockAnswer,
    "ConsumerOffsetSerializeWrapper": OffsetTable,
    "GetConsumerStatusBody": ConsumerStatus,
    "ConsumeMessageDirectlyResult": ConsumeDirectlyResult,
    "ProducerConnection": ProducerConnection,
    "QueryConsumeQueueResponseBody": QueueDump,
    "ConsumerRunningInfo": ConsumerRunningInfo,
    "SubscriptionGroupWrapper": GroupTable,
    "TopicConfigSerializeWrapper": TopicTable,
}
#: Members that only 5.x writes and no 4.x peer reads.
ONLY_5X = {
    *(
        "enableActingMaster",
        "heartbeatFingerprint",
        "withoutSub",
        "pullOffset",
        "topicPutTps",
        "onlyThisBroker",
        "mqPopTable",
    ),
    *("userConsumerInfo", "totalInflightDiff"),
}
QUEUE = MessageQueue("t", "b", 0)


def without(text: str | bytes, names: set[str]) -> Any:
    """A JSON text as a value without some members anywhere, without null and empty ones, and with sets and maps in one
    order.
    """

    def clean(value: Any) -> Any:
        if isinstance(value, JavaMap):
            return sorted((dumps(clean(key)), clean(one)) for key, one in value)
        if isinstance(value, list):
            return sorted(
                (clean(one) for one in value), key=lambda one: dumps(one) if isinstance(one, (dict, list)) else str(one)
            )
        if isinstance(value, dict):
            cleaned = {str(key): clean(one) for key, one in value.items() if key not in names}
            return {key: one for key, one in sorted(cleaned.items()) if one not in (None, {}, [])}
        return value

    return clean(loads(text))


# --- Apache's own functions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(len(GOLDEN.vectors("body-round-trip"))))
def test_body_round_trip(golden: Golden, index: int) -> None:
    """What Java reads we read, and write so that it means what Java's own writing of it means."""
    vector = golden.vectors("body-round-trip")[index]
    cls = CLASSES[vector.input["class"]]
    text = vector.input["text"]
    if vector.fails() or vector.output() is None:
        with pytest.raises(JsonError):
            cls.from_json(text)
        return
    ours = cls.from_json(text).to_json()
    assert cls.from_json(ours) == cls.from_json(text)
    assert "".join(json_pieces(cls.from_json(text))).encode() == ours
    assert "".join(pretty_pieces(cls.from_json(text))) == cls.from_json(text).to_pretty()
    # 4.9 writes one of the two names of a topic's system flag, and defaults where 4.x members were absent
    spared = {"topicSynFlag"} | ({"consumeTps"} if '"consumeTps":' not in text else set())
    for version in ("4.9.7", "5.3.3"):
        assert without(ours, spared | ONLY_5X | FIVE_OF_GROUPS) == without(
            vector.output(version), spared | ONLY_5X | FIVE_OF_GROUPS
        )


FIVE_OF_GROUPS = {
    *(
        "attributes",
        "stateVersion",
        "consumeMessageOrderly",
        "consumeTimeoutMinute",
        "groupRetryPolicy",
        "groupSysFlag",
    ),
}


def test_topic_config_encode(golden: Golden) -> None:
    for vector in golden.vectors("topic-config-encode"):
        topic = TopicConfig(*vector.input)
        assert topic_to_text(topic) == vector.output("4.9.7")
        assert topic_to_text(topic, 479) == vector.output("5.3.3")


def test_topic_config_decode(golden: Golden) -> None:
    """As 5.x does: more than five words are in order."""
    for vector in golden.vectors("topic-config-decode"):
        want = vector.output("5.3.3")
        if vector.fails("5.3.3") or not want["accepted"]:
            with pytest.raises(RemoteProtocolError):
                topic_from_text(vector.input)
            continue
        topic = topic_from_text(vector.input)
        facts = (topic.name, topic.read_queues, topic.write_queues, topic.perm, topic.filter_type)
        assert facts == (want["topicName"], want["read"], want["write"], want["perm"], want["filter"])


def test_topic_config_with_attributes() -> None:
    text = 'TopicA 4 8 6 SINGLE_TAG {"+message.type":"DELAY x"}'
    topic = topic_from_text(text)
    assert topic.attributes == {"+message.type": "DELAY x"}
    assert topic_to_text(topic, 413) == text
    assert topic_to_text(topic, 412) == "TopicA 4 8 6 SINGLE_TAG"


# --- recorded bodies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_body(version: str) -> None:
    """All JSON bodies of the captures are read; what we write of those of 4.x is the same to the byte, but for what is
    listed.
    """
    seen: set[tuple[int, str]] = set()
    for name in GOLDEN.capture_names(version):
        for exchange in GOLDEN.exchanges(version, name):
            code = exchange.request.code
            for side, entry, table in ((">", exchange.request, REQUESTS), ("<", exchange.answer, ANSWERS)):
                if entry is not None and entry.body[:1] in (b"{", b"["):
                    agrees(table[code], entry.body, version, code)
                    seen.add((code, side))
    assert len(seen) > 26


def agrees(cls: type[Body], theirs: bytes, version: str, code: int) -> None:
    body = cls.from_json(theirs)
    ours = body.to_json()
    assert cls.from_json(ours) == body
    assert "".join(json_pieces(body)).encode() == ours
    assert "".join(pretty_pieces(body)) == body.to_pretty()
    if isinstance(body, TopicRoute):
        ours = body.to_json(standard=b'"brokerAddrs":{"' in theirs)
        for one in (b"topicSynFlag", b"topicSysFlag"):
            if one not in theirs:  # no release writes both
                ours = re.sub(b'"' + one + rb'":\d+,', b"", ours)
    if version == "5.3.3":
        assert without(ours, ONLY_5X) == without(theirs, ONLY_5X), code
    elif code == 321 and b"queueData" not in theirs:
        assert without(ours, set()) == without(theirs, set())  # the empty list, that Java leaves out
    else:
        assert ours == theirs, code


# --- configuration files ----------------------------------------------------------------------------------------------

FILES: dict[str, type[Body]] = {
    "topics.json": TopicTable,
    "subscriptionGroup.json": GroupTable,
    "consumerOffset.json": OffsetTable,
    "delayOffset.json": DelayOffsets,
    "consumerFilter.json": ConsumerFilters,
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["clean", "crashed"])
def test_configuration_files_are_written_as_apache_writes_them(golden: Golden, version: str, kind: str) -> None:
    """To the byte, with all that 5.x adds; only the list of topics by group, which it can work out, is not kept."""
    config = golden.store(version, kind).config
    for name, cls in FILES.items():
        text = (config / name).read_text()
        body = cls.from_json(text)
        if '"groupTopicMap"' in text:
            assert without(body.to_pretty(), set()) == without(text, {"groupTopicMap"})
        else:
            assert body.to_pretty() == text
        assert cls.from_json(body.to_pretty()) == body
        assert "".join(pretty_pieces(body)) == body.to_pretty()


def test_names_of_many_bytes_survive() -> None:
    """STO-06: twice saved and loaded; also with a mark of byte order in front."""
    table = TopicTable(DataVersion(1, 2), {"订单😀": TopicConfig("订单😀", attributes={"备注": "订单😀"})})
    once = TopicTable.from_json(table.to_pretty().encode())
    assert TopicTable.from_json(b"\xef\xbb\xbf" + once.to_pretty().encode()) == table


def test_members_of_later_releases_are_kept() -> None:
    groups = '{"g":{"groupName":"g","later":{"a":[1]}}}'
    text = f'{{"dataVersion":{{"counter":0,"timestamp":0}},"subscriptionGroupTable":{groups},"zz":1}}'
    table = GroupTable.from_json(text)
    assert table.groups["g"].unknown == {"later": {"a": [1]}}
    assert loads(table.to_json())["subscriptionGroupTable"]["g"]["later"] == {"a": [1]}
    assert table.to_json().endswith(b',"zz":1}')


def test_data_version_counts_changes() -> None:
    version = DataVersion(5, 1)
    version.next(9)
    assert version == DataVersion(9, 2)
    assert version.to_json() == b'{"counter":2,"timestamp":9}'


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quote", ["", '"'])
def test_broker_ids_with_and_without_quotes(quote: str) -> None:
    """COD-06."""
    text = (
        '{"brokerDatas":[{"brokerAddrs":{*0*:"h:10911",*1*:"h:10921"},"brokerName":"a","cluster":"c"}],"queueDatas":[]}'
    ).replace("*", quote)
    route = TopicRoute.from_json(text)
    assert route.brokers == [BrokerData("c", "a", {0: "h:10911", 1: "h:10921"})]
    assert b'{0:"h:10911",1:"h:10921"}' in route.to_json()
    assert b'{"0":"h:10911","1":"h:10921"}' in route.to_json(standard=True)
    assert json.loads(route.to_json(standard=True))["queueDatas"] == []


def test_addresses_with_many_colons() -> None:
    """MSG-06: an address is a text here; nothing splits it."""
    data = BrokerData("c", "a", {0: "[fe80::1%lo]:10911", 1: "::1:10911"})
    assert BrokerData.from_json(data.to_json()) == data


def test_system_flag_under_both_names() -> None:
    assert QueueData("b", 4, 4, 6, 1).to_json() == (
        b'{"brokerName":"b","perm":6,"readQueueNums":4,"topicSynFlag":1,"topicSysFlag":1,"writeQueueNums":4}'
    )
    for text, flag in (
        ('"topicSynFlag":1', 1),
        ('"topicSysFlag":2', 2),
        ('"topicSynFlag":1,"topicSysFlag":2', 2),
        ('"perm":6', 0),
    ):
        assert QueueData.from_json("{" + text + "}").sys_flag == flag
