"""Bodies of clients: heartbeats of C++, Go and ours, running information, resets, and what else peers send."""

from __future__ import annotations

import pytest

from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    BrokerData,
    ClientConnection,
    ConsumeDirectlyResult,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStats,
    ConsumeTimeSpans,
    ConsumeType,
    CorrectionOffsets,
    DirectConsumeResult,
    HeartbeatData,
    MessageModel,
    OffsetMoved,
    ResetOffsets,
    SubscriptionData,
    TopicConfig,
)
from mqproto.wire.codes import Language
from mqproto.wire.fastjson import JsonError, dumps
from tests.mqproto.wire.bodies.test_bodies import QUEUE


def test_heartbeat_of_cpp() -> None:
    """Enums as ordinals, longs as texts, sets left out, a newline at the end."""
    text = (
        '{"clientID":"7-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,'
        '"subscriptionDataSet":[{"subString":"a || b","subVersion":"1700000000000","topic":"t","codeSet":[0,0],'
        '"tagsSet":["a","b"]},'
        '{"subString":"*","subVersion":"0","topic":"%RETRY%g"}]}]}\n'
    )
    heartbeat = HeartbeatData.from_json(text.encode())
    (consumer,) = heartbeat.consumers
    assert consumer == ConsumerData(
        "g",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        [
            SubscriptionData("t", "a || b", "TAG", ["a", "b"], [0, 0], 1700000000000),
            SubscriptionData("%RETRY%g", "*", "TAG", [], [], 0),
        ],
    )
    assert heartbeat.producers == []


def test_heartbeat_of_go() -> None:
    """Codes as texts, versions in nanoseconds."""
    text = (
        '{"topic":"t","subString":"s || t","codeSet":["115","116"],"tagsSet":["s","t"],'
        '"subVersion":1700000000000000000}'
    )
    subscription = SubscriptionData.from_json(text)
    assert (subscription.codes, subscription.version) == ([115, 116], 1700000000000000000)


def test_heartbeats_with_words_that_nobody_knows() -> None:
    """COD-10: unset, so that whoever acts on it can refuse."""
    heartbeat = HeartbeatData.from_json(
        '{"clientID":"c","consumerDataSet":[{"consumeType":"PUSH","messageModel":"OTHER","groupName":"g"}]}'
    )
    assert heartbeat.consumers == [ConsumerData("g")]
    assert heartbeat.consumers[0].consume_type is None
    for number in (6, -1, 99):
        with pytest.raises(JsonError):
            HeartbeatData.from_json(dumps({"consumerDataSet": [{"consumeType": number}]}))


def test_our_heartbeat() -> None:
    """COD-10: names that every release reads; the sample of docs/protocol/wire.md 15."""
    subscription = SubscriptionData("orders", "tagx", "TAG", ["tagx"], [3552286], 1700000000000)
    consumer = ConsumerData(
        "cg",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        [subscription],
    )
    assert HeartbeatData("10.0.0.7@4711", ["pg"], [consumer]).to_json() == (
        b'{"clientID":"10.0.0.7@4711","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        b'"groupName":"cg","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[3552286],'
        b'"expressionType":"TAG","subString":"tagx","subVersion":1700000000000,"tagsSet":["tagx"],"topic":"orders"}],"unitMode":false}],'
        b'"producerDataSet":[{"groupName":"pg"}]}'
    )


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ('{"mqTable":{}}', {}),
        (
            '{"mqTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"commitOffset":"5","droped":"flase","locked":"true"}}}',
            {QUEUE: 5},
        ),
        (
            '{"mqTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"commitOffset":5},{"brokerName":"b","queueId":1,"topic":"t"}:{}}}',
            {QUEUE: 5, MessageQueue("t", "b", 1): 0},
        ),
    ],
)
def test_running_info(text: str, queues: dict[MessageQueue, int]) -> None:
    """COD-13: of no queue, one, two; ours says `{}` for none."""
    info = ConsumerRunningInfo.from_json(text)
    assert {queue: one.commit_offset for queue, one in info.queues.items()} == queues
    assert not any(one.dropped for one in info.queues.values())
    assert ConsumerRunningInfo.from_json(info.to_json()) == info
    assert b'"mqTable":{}' in ConsumerRunningInfo().to_json()
    with pytest.raises(JsonError):
        ConsumerRunningInfo.from_json('{"mqTable":}')  # what C++ says of no queue: hence the broker relays it unread


def test_reset_offsets_in_both_forms() -> None:
    body = ResetOffsets({QUEUE: 5, MessageQueue("t", "b", 1): 6})
    assert body.to_json() == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5,{"brokerName":"b","queueId":1,"topic":"t"}:6}}'
    )
    listed = dumps(body.to_list_value())
    assert listed == (
        '{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"t"},{"brokerName":"b","offset":6,"queueId":1,"topic":"t"}]}'
    )
    assert ResetOffsets.from_json(listed) == ResetOffsets.from_json(body.to_json()) == body
    quoted = dumps({"offsetTable": {dumps({"brokerName": "b", "queueId": 0, "topic": "t"}): 5}})
    assert ResetOffsets.from_json(quoted) == ResetOffsets({QUEUE: 5})


def test_other_samples() -> None:
    """Bodies that no capture holds."""
    moved = OffsetMoved("cg", QUEUE, 5, 100)
    assert moved.to_json() == (
        b'{"consumerGroup":"cg","messageQueue":{"brokerName":"b","queueId":0,"topic":"t"},"offsetNew":100,"offsetRequest":5}'
    )
    assert OffsetMoved.from_json(moved.to_json()) == moved
    status = ConsumerStatus({}, {"c": {QUEUE: 5}})
    assert (
        status.to_json()
        == b'{"consumerTable":{"c":{{"brokerName":"b","queueId":0,"topic":"t"}:5}},"messageQueueTable":{}}'
    )
    assert CorrectionOffsets({0: 3}).to_json() == b'{"correctionOffsets":{0:3}}'
    direct = ConsumeDirectlyResult.from_json('{"consumeResult":0,"spentTimeMills":3}')
    assert direct.result is DirectConsumeResult.CR_SUCCESS
    assert ConsumeStats.from_json('{"consumeTps":null,"offsetTable":null}') == ConsumeStats()
    assert ConsumeStats({}, float("nan")).to_json() == b'{"consumeTps":null,"offsetTable":{}}'
    spans = ConsumeTimeSpans.from_json(
        '{"consumeTimeSpanSet":[{"messageQueue":{"brokerName":"b","queueId":0,"topic":"t"},"minTimeStamp":7}]}'
    )
    assert spans.spans[0].queue == QUEUE
    assert TopicConfig("T", filter_type="MULTI_TAG").to_json() == (
        b'{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"MULTI_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}'
    )


def test_languages() -> None:
    for text, language in (('"GO"', Language.GO), ("9", Language.GO), ('"KLINGON"', None), ("null", None)):
        assert ClientConnection.from_json('{"language":' + text + "}").language is language
    for text in ("14", "-1", "[]"):
        with pytest.raises(JsonError):
            ClientConnection.from_json('{"language":' + text + "}")


@pytest.mark.parametrize(("text", "number"), [("1", 1.0), ('"1.5"', 1.5), ("true", 1.0), ("null", 0.0), ("NaN", 0.0)])
def test_rates(text: str, number: float) -> None:
    assert ConsumeStats.from_json('{"consumeTps":' + text + "}").tps == number
    for wrong in ('"x"', "[]", '"\u0661"', "1" + "0" * 350):
        with pytest.raises(JsonError):
            ConsumeStats.from_json('{"consumeTps":' + wrong + "}")


def test_members_in_any_case() -> None:
    assert BrokerData.from_json('{"Cluster":"c","BROKERNAME":"b","brokeraddrs":{0:"a"}}') == BrokerData(
        "c", "b", {0: "a"}
    )
    assert BrokerData.from_json('{"cluster":"c","Cluster":"x",7:1}').cluster == "c"
