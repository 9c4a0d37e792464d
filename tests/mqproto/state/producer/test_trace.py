"""Message trace of producers and consumers, as transcripts."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command, encode_response
from mqproto.errors import InvalidName, SendFailed
from mqproto.message import ConsumeStatus, Message, MessageExt, SendStatus
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings, TransactionSettings
from mqproto.state.producer.trace import FLUSH_MS, KEYS_BYTES_MAX, MESSAGE_BYTES_MAX, RECORDS_MAX
from mqproto.transactions import LocalTransactionState
from mqproto.wire import properties
from mqproto.wire.codes import RequestCode
from mqproto.wire.compression import inflate
from mqproto.wire.flags import COMPRESSED
from mqproto.wire.names import TRACE_TOPIC
from tests.golden.golden import FOLLOWED, GOLDEN
from tests.mqproto.state.scripted_broker import Cluster
from tests.mqproto.state.stage import NS, WALL, Peer, Stage, broker, name_server, refused, route, success

SEND = RequestCode.SEND_MESSAGE_V2
BUSINESS, TRACES = "b1:10911", "b2:10911"


class Traced:
    """A node with a traced producer; its trace goes to a broker of its own."""

    def __init__(
        self, *, trace_route: Any = None, missing: bool = False, listener: object = None, **settings: Any
    ) -> None:
        self.stage = Stage()
        routes = {"t": route(f"b1={BUSINESS}")}
        topic = settings.get("customized_trace_topic") or TRACE_TOPIC
        if not missing:
            routes[topic] = trace_route or route(f"b2={TRACES}", queues=1)
        self.stage.peers[NS] = name_server(routes)
        self.business, self.traces = broker(), broker()
        self.stage.peers[BUSINESS], self.stage.peers[TRACES] = self.business, self.traces
        self.stage.begin()
        made = {"group": "g", "enable_msg_trace": True, **settings}
        self.transactions = None
        if listener is not None:
            self.transactions = self.stage.node.add_transaction_producer(TransactionSettings(**made), listener, 0)
            self.producer: ProducerCore = self.transactions.producer
        else:
            self.producer = self.stage.node.add_producer(ProducerSettings(**made), 0)

    def send(self, body: bytes = b"x", **settings: Any) -> Any:
        return self.stage.run(self.producer.send(Message("t", body, **settings), self.stage.now))

    def close(self) -> None:
        close(self.stage)


def close(stage: Stage) -> None:
    stage.node.close(stage.now)
    stage.settle().advance(0)


def sent(peer: Peer) -> list[Command]:
    return peer.of(SEND)


def body_of(command: Command) -> str:
    body = bytes(command.body)
    return (
        inflate(body, int(command.fields["f"]), 1 << 24) if int(command.fields["f"]) & COMPRESSED else body
    ).decode()


def records(peer: Peer) -> list[list[str]]:
    """The records that were sent, as fields."""
    return [text.split("\x01") for command in sent(peer) for text in body_of(command).split("\x02") if text]


def keys(command: Command) -> list[str]:
    return properties.decode(command.fields["i"])[properties.KEYS].split()


# --- sends


def test_a_send_is_told_half_a_second_later() -> None:
    made = Traced()
    results = [made.send(tags="tag", keys=["k1", "k2"]), made.send(b"second")]
    assert not sent(made.traces)
    made.stage.advance(FLUSH_MS - 1)
    assert not sent(made.traces)
    made.stage.advance(1)
    (message,) = sent(made.traces)
    common = ["Pub", str(WALL), "DefaultRegion", "g", "t"]
    assert records(made.traces) == [
        [*common, results[0].msg_id, "tag", "k1 k2", BUSINESS, "1", "0", "0", results[0].offset_msg_id, "true"],
        [*common, results[1].msg_id, "null", "null", BUSINESS, "6", "0", "0", results[1].offset_msg_id, "true"],
    ]
    assert keys(message) == [results[0].msg_id, "k1", "k2", results[1].msg_id]
    made.stage.advance(60_000)
    assert len(sent(made.traces)) == 1, "a trace is not traced"


def test_a_trace_message_is_like_javas() -> None:
    """Field by field, but for what differs in any two runs; the group has no number at its end."""
    (java,) = (
        exchange.request
        for exchange in GOLDEN.exchanges(FOLLOWED, "trace")
        if exchange.request.code == SEND and exchange.request.fields["a"].endswith("PRODUCE-1")
    )
    made = Traced()
    made.send(tags="TagT", keys="trace-key-0")
    made.stage.advance(FLUSH_MS)
    (ours,) = sent(made.traces)
    changing = {"a", "e", "g", "i", "n"}
    assert {name: value for name, value in ours.fields.items() if name not in changing} == {
        name: value for name, value in java.fields.items() if name not in changing
    }
    assert ours.fields["a"] == "_INNER_TRACE_PRODUCER-g-PRODUCE"
    assert properties.decode(ours.fields["i"]).keys() == properties.decode(java.fields["i"]).keys()


def test_kinds_and_outcomes() -> None:
    made = Traced()
    made.send(delay_level=3)
    made.business.answers[SEND] = lambda request: success(request, {"msgId": "0B", "queueId": "0", "queueOffset": "1"})
    made.send()
    made.stage.advance(FLUSH_MS)
    delayed, plain = records(made.traces)
    assert (delayed[11], plain[11]) == ("3", "0")
    assert plain[12] == "0B"


def test_what_was_stored_unsafely_is_no_success() -> None:
    made = Traced()
    made.business.answers[SEND] = lambda request: encode_response(
        request.opaque, 10, {"msgId": "0C", "queueId": request.fields["e"], "queueOffset": "1"}
    )
    assert made.send().status is SendStatus.FLUSH_DISK_TIMEOUT
    made.stage.advance(FLUSH_MS)
    assert records(made.traces)[0][13] == "false"


def test_a_refused_send_and_a_one_way_send_are_not_told() -> None:
    """There is no result to tell of (docs/protocol/client.md 3.14)."""
    made = Traced()
    made.stage.run(made.producer.send_oneway(Message("t", b"x"), 0))
    made.business.answers[SEND] = lambda request: refused(request, 1)
    with pytest.raises(SendFailed):
        made.send()
    made.stage.advance(60_000)
    assert not sent(made.traces)


def test_each_attempt_that_was_answered_with_a_result_is_told() -> None:
    made = Traced(retry_another_broker_when_not_store_ok=True)
    made.business.answers[SEND] = lambda request: encode_response(
        request.opaque, 12, {"msgId": "0C", "queueId": request.fields["e"], "queueOffset": "1"}
    )
    made.send()
    made.stage.advance(FLUSH_MS)
    assert [record[13] for record in records(made.traces)] == ["false"] * 3


def test_every_message_of_a_batch_can_be_found() -> None:
    made = Traced()
    batch = [Message("t", bytes(index), tags=f"t{index}", keys=f"k{index}") for index in (1, 2, 3)]
    result = made.stage.run(made.producer.send_batch(batch, 0))
    made.stage.advance(FLUSH_MS)
    ids = result.msg_id.split(",")
    assert [(one[5], one[6], one[7], one[9]) for one in records(made.traces)] == [
        (msg_id, f"t{index}", f"k{index}", str(index)) for index, msg_id in zip((1, 2, 3), ids, strict=True)
    ]
    assert set(ids) <= set(keys(sent(made.traces)[0]))


def test_a_broker_may_switch_the_trace_off() -> None:
    made = Traced()
    made.business.answers[SEND] = lambda request: success(
        request, {"msgId": "0B", "queueId": "0", "queueOffset": "1", "TRACE_ON": "false"}
    )
    made.send()
    made.stage.advance(60_000)
    assert not sent(made.traces)


def test_sends_to_the_trace_topic_are_not_traced() -> None:
    made = Traced()
    made.stage.run(made.producer.send(Message(TRACE_TOPIC, b"x"), 0))
    made.stage.advance(60_000)
    assert len(sent(made.traces)) == 1


def test_a_topic_of_the_applications_choice() -> None:
    made = Traced(customized_trace_topic="my-traces")
    made.send()
    made.stage.advance(FLUSH_MS)
    assert sent(made.traces)[0].fields["b"] == "my-traces"
    with pytest.raises(InvalidName):
        made.stage.node.add_producer(ProducerSettings(group="x", customized_trace_topic="no topic"), 0)


def test_transactions_tell_of_their_half_and_of_their_end() -> None:
    made = Traced(listener=object())
    assert made.transactions is not None
    offset_id = "7F00000100002A9F0000000000000000"
    made.business.answers[SEND] = lambda request: success(
        request, {"msgId": offset_id, "queueId": "0", "queueOffset": "1"}
    )
    half = made.stage.run(made.transactions.send_half(Message("t", b"x", tags="tag", keys="k"), 0))
    ended = made.transactions.judged(half, LocalTransactionState.COMMIT_MESSAGE, None)
    made.stage.run(made.transactions.end(half, ended, 0))
    made.stage.advance(FLUSH_MS)
    first, second = records(made.traces)
    msg_id = half.result.msg_id
    assert (first[0], first[5], first[11]) == ("Pub", msg_id, "1")
    common = ["EndTransaction", str(WALL), "DefaultRegion", "g", "t", msg_id, "tag", "k", BUSINESS, "2"]
    assert second == [*common, "null", "COMMIT_MESSAGE", "false"]


# --- batches and limits


def test_a_thousand_records_go_in_messages_of_a_hundred() -> None:
    """TRC-04: at most 100 records in a message, in stable order, and the first do not wait for half a second."""
    made = Traced()
    ids = [made.send().msg_id for _ in range(1_001)]
    assert len(sent(made.traces)) == 10
    made.stage.advance(FLUSH_MS)
    assert [record[5] for record in records(made.traces)] == ids
    assert max(body_of(command).count("\x02") for command in sent(made.traces)) == 100


def test_long_keys_are_spread_over_messages() -> None:
    """TRC-01: no property string above its limit, no trace lost."""
    made = Traced()
    ids = [made.send(keys=f"{index:0>400}").msg_id for index in range(100)]
    made.stage.advance(FLUSH_MS)
    assert len(sent(made.traces)) > 1
    for command in sent(made.traces):
        assert len(command.fields["i"].encode()) < KEYS_BYTES_MAX + 200
        assert len(body_of(command).encode()) <= MESSAGE_BYTES_MAX
    assert [record[5] for record in records(made.traces)] == ids
    assert {key for command in sent(made.traces) for key in keys(command)} >= {*ids, f"{99:0>400}"}


def test_one_message_with_more_keys_than_fit_is_found_by_its_id() -> None:
    made = Traced()
    one = made.send(keys=" ".join(f"key-{index:0>5}" for index in range(3_200)))
    made.stage.advance(FLUSH_MS)
    assert keys(sent(made.traces)[0]) == [one.msg_id]
    assert "key-03199" in records(made.traces)[0][7]


def test_what_finds_no_room_is_dropped_and_counted() -> None:
    made = Traced()
    made.traces.answers[SEND] = lambda request: None
    for _ in range(RECORDS_MAX + 500):
        assert made.send().status is SendStatus.SEND_OK
    made.stage.advance(100_000)
    trace = made.stage.node.tracers[0]
    assert trace.dropped > 0
    assert trace.lost + trace.dropped == RECORDS_MAX + 500
    assert max(body_of(command).count("\x02") for command in sent(made.traces)) == 100
    assert sum("message trace cannot be sent" in notice for notice in made.stage.node.notices) == 1


@pytest.mark.parametrize("kind", ["no queue", "missing", "forbidden", "unreachable"])
def test_trouble_with_the_trace_is_no_trouble_of_sends(kind: str) -> None:
    """TRC-04."""
    routes = {"no queue": route(f"b2={TRACES}", queues=0), "unreachable": route("b3=nowhere:1")}
    made = Traced(trace_route=routes.get(kind), missing=kind == "missing")
    if kind == "forbidden":
        made.traces.answers[SEND] = lambda request: refused(
            request, 16, "the topic[RMQ_SYS_TRACE_TOPIC] sending message is forbidden"
        )
    for _ in range(3):
        assert made.send().status is SendStatus.SEND_OK
        made.stage.advance(5_000)
    assert made.stage.node.tracers[0].lost == 3
    assert sum("message trace cannot be sent" in notice for notice in made.stage.node.notices) == 1
    made.close()
    assert made.stage.node.ended
    assert any("3 records of the message trace were not sent" in notice for notice in made.stage.node.notices)


# --- the end


def test_closing_sends_what_is_left() -> None:
    """TRC-03: send one, close at once."""
    made = Traced()
    one = made.send()
    made.close()
    assert [record[5] for record in records(made.traces)] == [one.msg_id]
    assert made.stage.node.ended


def test_closing_does_not_wait_longer_than_it_may() -> None:
    """TRC-03: nobody answers for the trace topic."""
    made = Traced()
    made.stage.node.settings.close_timeout_ms = 1_000
    made.traces.answers[SEND] = lambda request: None
    made.send()
    made.close()
    assert not made.stage.node.ended
    made.stage.advance(1_000)
    assert made.stage.node.ended


def test_a_producer_that_leaves_takes_its_trace_along() -> None:
    made = Traced()
    made.send()
    made.stage.run(made.stage.node.remove_producer(made.producer, 0))
    assert len(records(made.traces)) == 1
    assert not made.stage.node.tracers
    assert TRACE_TOPIC not in made.stage.node.wanted_topics()


def test_a_producer_that_leaves_waits_for_its_trace_as_long_as_it_may() -> None:
    made = Traced()
    made.stage.node.settings.close_timeout_ms = 1_000
    made.traces.answers[SEND] = lambda request: None
    made.send()
    left = made.stage.start(made.stage.node.remove_producer(made.producer, 0))
    made.stage.advance(999)
    assert not left.settled
    made.stage.advance(1)
    assert left.settled


# --- consumption


def consumer(world: Cluster, **settings: Any) -> PushConsumerCore:
    world.topic("t", 1)
    world.topic(TRACE_TOPIC, 1)
    world.broker.peer.answers[SEND] = broker().answers[SEND]
    made = {"group": "g", "enable_msg_trace": True, **settings}
    core = PushConsumerCore(world.stage.node, ConsumerSettings(**made), "listener")
    core.subscribe("t", now=0)
    world.stage.run(core.start(0))
    return core


def stored(index: int, **values: str) -> MessageExt:
    return MessageExt("t", b"x", {properties.UNIQ_KEY: f"ID{index}", **values}, queue_offset=index)


def put(world: Cluster, *messages: MessageExt) -> None:
    world.broker.queues.setdefault(("t", 0), []).extend(messages)
    world.stage.advance(60_000)


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    ("result", "outcome", "code"),
    [
        (ConsumeStatus.SUCCESS, "true", "0"),
        (ConsumeStatus.RECONSUME_LATER, "false", "4"),
        (ValueError("x"), "false", "2"),
        (None, "false", "3"),
    ],
)
def test_a_delivery_is_told_before_and_after(orderly: bool, result: Any, outcome: str, code: str) -> None:
    world = Cluster()
    consumer(world, orderly=orderly, consume_message_batch_max_size=2)
    put(world, stored(0, KEYS="k"), stored(1, MSG_REGION="here"))
    (task,) = world.tasks
    handed_out = task.started_at
    world.stage.advance(10)
    assert [record[0] for record in records(world.broker.peer)] == ["SubBefore", "SubBefore"]
    now = world.stage.now
    world.stage.node.consumed(task, result, now)
    world.stage.settle()
    world.stage.advance(FLUSH_MS)
    first, second, third, fourth = records(world.broker.peer)[:4]
    request = first[4]
    assert len(request) == 32
    assert first == ["SubBefore", str(handed_out + WALL), "null", "g", request, "ID0", "0", "k"]
    assert second == ["SubBefore", str(handed_out + WALL), "here", "g", request, "ID1", "0", "null"]
    cost = str((now - handed_out) // 2)
    assert third == ["SubAfter", request, "ID0", cost, outcome, "k", code, str(now + WALL), "g"]
    assert fourth == ["SubAfter", request, "ID1", cost, outcome, "null", code, str(now + WALL), "g"]


def test_each_message_has_its_own_outcome() -> None:
    world = Cluster()
    consumer(world, consume_message_batch_max_size=2)
    put(world, stored(0), stored(1))
    (task,) = world.tasks
    task.context.ack_index = 0
    world.answer(task)
    world.stage.advance(FLUSH_MS)
    assert [(one[2], one[4], one[6]) for one in records(world.broker.peer) if one[0] == "SubAfter"] == [
        ("ID0", "true", "4"),
        ("ID1", "false", "4"),
    ]


def test_messages_that_ask_for_it_are_not_told() -> None:
    world = Cluster()
    consumer(world, consume_message_batch_max_size=2)
    put(world, stored(0, TRACE_ON="false"), stored(1, TRACE_ON="true"))
    (task,) = world.tasks
    world.stage.node.consumed(task, ConsumeStatus.SUCCESS, world.stage.now)
    world.stage.settle().advance(FLUSH_MS)
    assert {record[5] if record[0] == "SubBefore" else record[2] for record in records(world.broker.peer)} == {"ID1"}


def test_closing_a_consumer_sends_what_is_left() -> None:
    """TRC-03."""
    world = Cluster()
    consumer(world)
    put(world, stored(0))
    (task,) = world.tasks
    world.stage.node.consumed(task, ConsumeStatus.SUCCESS, world.stage.now)
    close(world.stage)
    assert [record[0] for record in records(world.broker.peer)] == ["SubBefore", "SubAfter"]
    assert world.stage.node.ended
