"""Requests of brokers and operators to the client node (docs/protocol/client.md 6)."""

from __future__ import annotations

from mqproto.message import Message, MessageExt, MessageQueue
from mqproto.state.client.broker_requests import STACKS_MAX
from mqproto.wire.bodies import ConsumerRunningInfo, ConsumerStatus, ResetOffsets
from mqproto.wire.codes import RequestCode
from mqproto.wire.record import encode_record
from tests.mqproto.state.recording_consumer import Consumer
from tests.mqproto.state.stage import TOPIC, Peer, Stage, stage_with


def linked_consumer() -> tuple[Stage, Consumer, Peer]:
    stage, core = stage_with("a=a:1")
    consumer = Consumer(stage.node)
    stage.node.consumers.add(consumer)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    consumer.seen.clear()
    peer = stage.peers["a:1"]
    peer.got.clear()
    return stage, consumer, peer


def test_changed_members() -> None:
    stage, consumer, peer = linked_consumer()
    stage.request("a:1", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "cg"}, oneway=True)
    stage.request("a:1", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "another"}, oneway=True)
    assert consumer.seen == [("ids", 0)]
    assert peer.got == []
    stage.request("a:1", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "cg"})
    assert [(answer.opaque, answer.code) for answer in peer.got] == [(900, 0)], "some brokers wait for an answer"


def test_reset_offsets() -> None:
    stage, consumer, _ = linked_consumer()
    offsets = {MessageQueue(TOPIC, "a", 0): 7}
    for group in ("cg", "unknown"):
        fields = {"topic": TOPIC, "group": group, "timestamp": "1", "isForce": "true"}
        stage.request(
            "a:1", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, ResetOffsets(offsets).to_json(), oneway=True
        )
    assert consumer.seen == [("reset", TOPIC, offsets)]
    assert "unknown" in stage.node.notices[-1]


def test_offsets_for_operators() -> None:
    stage, _, peer = linked_consumer()
    for topic, group in ((TOPIC, "cg"), ("", "cg"), (TOPIC, "unknown")):
        stage.request("a:1", RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group})
    one, both, none = (ConsumerStatus.from_json(bytes(answer.body)).offsets for answer in peer.got)
    assert one == {MessageQueue(TOPIC, "a", 0): 5}
    assert len(both) == 2
    assert none == {}


def test_running_info() -> None:
    stage, _, peer = linked_consumer()
    stage.request("a:1", RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "cg", "clientId": "x"})
    stage.request("a:1", RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "unknown", "clientId": "x"})
    known, unknown = peer.got
    assert (known.code, bytes(known.body)) == (0, b'{"properties":{}}')
    assert unknown.code == 1
    assert "unknown" in str(unknown.remark)


def test_running_info_with_stacks() -> None:
    """Only where they are asked for, only where the adapter can tell them, and not without end."""
    stage, _, peer = linked_consumer()
    fields = {"consumerGroup": "cg", "clientId": "x", "jstackEnable": "true"}
    stage.request("a:1", RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    stage.node.broker_requests.stacks = lambda: "main: in listen\n" + "x" * STACKS_MAX
    stage.request("a:1", RequestCode.GET_CONSUMER_RUNNING_INFO, {**fields, "jstackEnable": "false"})
    stage.request("a:1", RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    unable, unasked, told = (ConsumerRunningInfo.from_json(bytes(answer.body)).stack for answer in peer.got)
    assert (unable, unasked) == (None, None)
    assert told is not None
    assert told.startswith("main: in listen\n")
    assert len(told) == STACKS_MAX


def test_consume_directly() -> None:
    stage, consumer, peer = linked_consumer()
    record = encode_record(MessageExt(TOPIC, b"look", queue_id=3))
    fields = {"consumerGroup": "cg", "clientId": "x", "msgId": "m", "brokerName": "a"}
    stage.request("a:1", RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record)
    assert consumer.seen == [("direct", b"look", TOPIC, "a")]
    assert peer.got == []
    consumer.answers[0](b"{}", 5)
    stage.settle()
    assert [(answer.opaque, answer.code, bytes(answer.body)) for answer in peer.got] == [(900, 0, b"{}")]
    stage.request("a:1", RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "consumerGroup": "unknown"}, record)
    assert peer.got[-1].code == 1
    stage.request("a:1", RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, b"no record")
    assert peer.got[-1].code == 1
    stage.cut("a:1")
    consumer.answers[0](b"{}", 6)
    stage.settle()


def test_requests_that_we_cannot_serve() -> None:
    """COD-05, COD-08: an answer with the request's own opaque, and the link goes on."""
    stage, consumer, peer = linked_consumer()
    stage.request("a:1", 9999, {})
    assert (peer.got[-1].code, peer.got[-1].remark) == (3, " request type 9999 not supported")
    assert peer.got[-1].opaque == 900
    stage.request("a:1", RequestCode.GET_CONSUMER_RUNNING_INFO, {})
    assert (peer.got[-1].code, peer.got[-1].opaque) == (1, 900)
    assert "consumerGroup" in str(peer.got[-1].remark)
    stage.request("a:1", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": TOPIC, "group": "cg"}, b"{")
    assert peer.got[-1].code == 1
    stage.request(
        "a:1", RequestCode.CHECK_TRANSACTION_STATE, {"tranStateTableOffset": "1", "commitLogOffset": "2"}, oneway=True
    )
    assert "request 39 of a:1 cannot be read" in stage.node.notices[-1]
    assert consumer.seen == []
    assert stage.hung_up == []
