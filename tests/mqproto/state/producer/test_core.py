"""Sends as transcripts: what a flow asks for, what it is told, what it asks for then."""

from __future__ import annotations

import sys

import pytest

from mqproto.codec import Command
from mqproto.errors import (
    BrokerError,
    CallExpired,
    ClientError,
    CompressionMissing,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    RemoteProtocolError,
    SendFailed,
    TooManyRequests,
)
from mqproto.message import Message, MessageQueue, SendResult, SendStatus
from mqproto.state.flows.effects import Call, Expired, Lost, Oneway, Refresh
from mqproto.wire import properties
from mqproto.wire.batch import decode_batch
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.compression import Compression, inflate
from tests.mqproto.state.producers import SEND, SEND_BATCH, TOPIC, Host, call, end, producer, took
from tests.mqproto.state.stage import WALL, route

# --- one attempt


def test_what_a_send_looks_like() -> None:
    core = producer("a=a:1", default_topic_queues=8)
    message = Message(TOPIC, b"paid", tags="T", keys=["k1", "k2"], properties={"shop": "7"}, flag=3)
    effect = next(core.send(message, 5))
    assert isinstance(effect, Call)
    assert effect.address == "a:1"
    assert effect.deadline == 3005
    assert effect.body == b"paid"
    props = properties.decode(effect.fields["i"])
    assert {key: value for key, value in effect.fields.items() if key != "i"} == {
        "a": "pg",
        "b": TOPIC,
        "c": "TBW102",
        "d": "8",
        "e": "0",
        "f": "0",
        "g": str(WALL + 5),
        "h": "3",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "a",
    }
    unique = props.pop(properties.UNIQ_KEY)
    assert unique.startswith("0A000007" + "1267")
    assert props == {"shop": "7", "KEYS": "k1 k2", "TAGS": "T", "WAIT": "true"}
    assert message.properties == {"shop": "7"}, "the application's message stays as it is"


def test_result_of_a_send() -> None:
    core = producer("a=a:1")
    flow = core.send(Message(TOPIC, b"paid"), 0)
    effect = next(flow)
    assert isinstance(effect, Call)
    result = end(flow, took(0, 41, transactionId="tx", MSG_REGION="eu", TRACE_ON="false"), 2)
    assert result == SendResult(
        SendStatus.SEND_OK,
        properties.decode(effect.fields["i"])["UNIQ_KEY"],
        MessageQueue(TOPIC, "a", 0),
        41,
        "AA",
        "tx",
        "eu",
        False,
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, SendStatus.FLUSH_DISK_TIMEOUT), (12, SendStatus.FLUSH_SLAVE_TIMEOUT), (11, SendStatus.SLAVE_NOT_AVAILABLE)],
)
def test_stored_but_not_safe_is_a_result(code: int, status: SendStatus) -> None:
    flow = producer("a=a:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    result = end(flow, took(1, code=code), 2)
    assert result.status is status
    assert result.queue.queue_id == 1, "where the broker says it is"
    assert (result.region_id, result.trace_on) == ("DefaultRegion", True)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"queueId": "1"},
        {"queueOffset": "1"},
        *({"queueId": text, "queueOffset": "1"} for text in ("x", " 1", "1_0", "1.0", "", "2147483648", "٣")),
        {"queueId": "1", "queueOffset": "9223372036854775808"},
    ],
)
def test_a_success_that_cannot_be_read_is_not_tried_again(fields: dict[str, str]) -> None:
    """COD-05, in an answer."""
    flow = producer("a=a:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    with pytest.raises(SendFailed, match="took the message") as caught:
        flow.send((Command(0, fields, flag=1), 1))
    assert isinstance(caught.value.cause, RemoteProtocolError)


def test_large_bodies_travel_compressed_and_stay_as_they_are() -> None:
    """MSG-09: the second attempt sends the same bytes, not compressed again; the caller's message is untouched."""
    body = b"0123456789" * 500
    message = Message(TOPIC, body)
    flow = producer("a=a:1").send(message, 0)
    first = next(flow)
    assert isinstance(first, Call)
    assert first.fields["f"] == str(0x301)
    assert len(first.body) < 200
    assert inflate(first.body, 0x301) == body
    second = flow.send((Command(ResponseCode.SERVICE_NOT_AVAILABLE, flag=1), 1))
    assert isinstance(second, Call)
    assert (second.body, second.fields["f"], second.fields["i"]) == (first.body, first.fields["f"], first.fields["i"])
    assert message.body is body
    small = next(producer("a=a:1", compress_body_over=len(body) + 1).send(message, 0))
    assert isinstance(small, Call)
    assert small.body is body


@pytest.mark.parametrize(
    ("kind", "flag"), [(Compression.ZLIB, 0x301), (Compression.LZ4, 0x101), (Compression.ZSTD, 0x201)]
)
def test_bodies_are_packed_in_the_way_that_is_set(kind: Compression, flag: int) -> None:
    body = b"0123456789" * 500
    effect = next(producer("a=a:1", compress_type=kind).send(Message(TOPIC, body), 0))
    assert isinstance(effect, Call)
    assert effect.fields["f"] == str(flag)
    assert len(effect.body) < 1000
    assert inflate(effect.body, flag) == body


def test_a_way_of_packing_whose_package_is_missing_is_refused_when_the_producer_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CompressionMissing, match=r"Zstandard: install mqproto\[compression\]"):
        producer("a=a:1", compress_type=Compression.ZSTD)
    producer("a=a:1")


def test_each_send_of_one_object_has_its_own_id() -> None:
    core = producer("a=a:1")
    message = Message(TOPIC, b"x")
    ids = set()
    for _ in range(3):
        effect = next(core.send(message, 0))
        assert isinstance(effect, Call)
        ids.add(properties.decode(effect.fields["i"])["UNIQ_KEY"])
    assert len(ids) == 3


def test_messages_of_the_client_itself_carry_reserved_properties() -> None:
    host = Host()
    host.routes.update("%RETRY%g", route("a=a:1", queues=1))
    core = producer(host=host)
    own = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "UNIQ_KEY": "ID", "TRAN_MSG": "true"}
    effect = next(core.send(Message("%RETRY%g", b"x", properties=own), 0, checked=True))
    assert isinstance(effect, Call)
    assert (effect.fields["j"], effect.fields["l"], effect.fields["f"]) == ("3", "16", "4")
    assert properties.decode(effect.fields["i"]) == {**own, "WAIT": "true"}
    with pytest.raises(InvalidMessage):
        next(core.send(Message("%RETRY%g", b"x", properties=own), 0))
    plain = next(core.send(Message("%RETRY%g", b"x"), 0))
    assert isinstance(plain, Call)
    assert plain.fields["j"] == "0"
    assert "l" not in plain.fields


# --- attempts


def test_attempts_go_to_another_broker_within_one_budget() -> None:
    flow = producer("b=b:1", "a=a:1").send(Message(TOPIC, b"x"), 0, timeout_ms=1000)
    assert call(next(flow)) == ("a:1", "0", "a", 1000)
    assert call(flow.send((Lost("a:1", "refused"), 100))) == ("b:1", "0", "b", 1000)
    assert call(flow.send((Command(1, flag=1, remark="disk"), 300))) == ("a:1", "0", "a", 1000)
    with pytest.raises(SendFailed) as caught:
        flow.send((Lost("a:1", "reset", connected=True), 450))
    failed = caught.value
    assert [(a.broker_name, a.address, type(a.failure), a.cost_ms) for a in failed.attempts] == [
        ("a", "a:1", ConnectFailed, 100),
        ("b", "b:1", BrokerError, 200),
        ("a", "a:1", ConnectionLost, 150),
    ]
    assert isinstance(failed.cause, ConnectionLost)
    assert failed.code == -1
    for part in (TOPIC, "a:1", "refused", "b:1", "disk", "reset"):
        assert part in str(failed)


def test_no_attempt_starts_after_the_deadline() -> None:
    """PRO-03: a broker that never answers uses up the budget once, not once for each attempt."""
    flow = producer("a=a:1", "b=b:1").send(Message(TOPIC, b"x"), 0, timeout_ms=300)
    assert call(next(flow))[3] == 300
    with pytest.raises(SendFailed) as caught:
        flow.send((Expired("a:1", 300), 300))
    assert len(caught.value.attempts) == 1
    assert isinstance(caught.value.cause, CallExpired)
    assert caught.value.code == 10002


def test_an_attempt_may_be_limited_as_long_as_another_can_follow() -> None:
    """A broker that says nothing costs its share of the budget; the last attempt has all that is left."""
    core = producer("a=a:1", "b=b:1", attempt_timeout_ms=400, retry_times=2)
    flow = core.send(Message(TOPIC, b"x"), 0, timeout_ms=1000)
    assert call(next(flow)) == ("a:1", "0", "a", 400)
    assert call(flow.send((Expired("a:1", 400), 400))) == ("b:1", "0", "b", 800)
    assert call(flow.send((Lost("b:1", "reset"), 500)))[3] == 1000
    flow = core.send(Message(TOPIC, b"x"), 0, timeout_ms=300)
    assert call(next(flow))[3] == 300
    queue = MessageQueue(TOPIC, "a", 0)
    assert call(next(core.send(Message(TOPIC, b"x"), 0, queue=queue)))[3] == 3000, "no other attempt follows"
    assert call(next(core.send_async(Message(TOPIC, b"x"), 0, queue=queue)))[3] == 400


@pytest.mark.parametrize("code", [2, 13, 3, 25])
def test_a_refusal_that_would_come_again_is_raised_at_once(code: int) -> None:
    flow = producer("a=a:1", "b=b:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    with pytest.raises(BrokerError, match="because") as caught:
        flow.send((Command(code, flag=1, remark="because"), 1))
    assert (caught.value.code, caught.value.address) == (code, "a:1")


def test_a_refusal_after_a_lost_link_is_raised_as_it_came() -> None:
    flow = producer("a=a:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((Lost("a:1", "reset", True), 1))
    flow.send((Lost("a:1", "reset", True), 2))
    with pytest.raises(BrokerError):
        flow.send((Command(13, flag=1), 3))


def test_a_limit_of_our_own_is_raised_as_such_only_if_nothing_was_sent() -> None:
    """TooManyRequests says that; after an attempt whose link was lost nobody knows, and a message that was stored stays
    stored.
    """
    flow = producer("a=a:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    with pytest.raises(TooManyRequests):
        flow.throw(TooManyRequests("full"))
    flow = producer("a=a:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((Lost("a:1", "reset", True), 1))
    with pytest.raises(SendFailed) as caught:
        flow.throw(TooManyRequests("full"))
    assert [type(one.failure) for one in caught.value.attempts] == [ConnectionLost, TooManyRequests]
    flow = producer("a=a:1", "b=b:1", retry_another_broker_when_not_store_ok=True).send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((took(0, code=ResponseCode.SLAVE_NOT_AVAILABLE), 1))
    with pytest.raises(StopIteration) as ended:
        flow.throw(TooManyRequests("full"))
    assert ended.value.value.status is SendStatus.SLAVE_NOT_AVAILABLE


def test_missing_permission_is_tried_at_another_broker_only() -> None:
    """PRO-11: with one broker there is one request and the broker's own words."""
    flow = producer("a=a:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    with pytest.raises(BrokerError) as caught:
        flow.send((Command(16, flag=1, remark="no write permission"), 1))
    assert (caught.value.code, caught.value.remark) == (16, "no write permission")
    flow = producer("a=a:1", "b=b:1").send(Message(TOPIC, b"x"), 0)
    next(flow)
    assert call(flow.send((Command(16, flag=1), 1)))[2] == "b"


def test_retriable_refusals_end_in_send_failed_with_the_brokers_code() -> None:
    flow = producer("a=a:1", retry_times=1).send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((Command(14, flag=1), 1))
    with pytest.raises(SendFailed) as caught:
        flow.send((Command(14, flag=1), 2))
    assert caught.value.code == 14
    assert len(caught.value.attempts) == 2


def test_another_broker_when_not_safely_stored() -> None:
    flow = producer("a=a:1", "b=b:1", retry_another_broker_when_not_store_ok=True).send(Message(TOPIC, b"x"), 0)
    next(flow)
    assert call(flow.send((took(0, code=10), 1)))[2] == "b"
    assert call(flow.send((Lost("b:1", "refused"), 2)))[2] == "a"
    result = end(flow, Lost("a:1", "reset"), 3)
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT, "an earlier result beats a later failure"
    flow = producer("a=a:1", "b=b:1", retry_another_broker_when_not_store_ok=True).send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((took(0, code=10), 1))
    assert end(flow, Command(13, flag=1), 2).status is SendStatus.FLUSH_DISK_TIMEOUT


def test_a_send_to_a_queue_has_one_attempt_and_its_own_errors() -> None:
    core = producer("a=a:1", "b=b:1")
    queue = MessageQueue(TOPIC, "b", 1)
    flow = core.send(Message(TOPIC, b"x"), 0, queue=queue)
    assert call(next(flow)) == ("b:1", "1", "b", 3000)
    with pytest.raises(SendFailed):
        flow.send((Lost("b:1", "refused"), 1))
    flow = core.send(Message(TOPIC, b"x"), 0, queue=queue)
    next(flow)
    with pytest.raises(BrokerError):
        flow.send((Command(1, flag=1), 1))
    with pytest.raises(ClientError, match="queue of topic"):
        next(core.send(Message(TOPIC, b"x"), 0, queue=MessageQueue("other", "b", 1)))


# --- asynchronous sends


def test_async_sends_try_again_only_after_a_lost_link_and_at_a_queue_of_the_new_broker() -> None:
    """Java keeps the queue id of the first attempt, which the other broker may not have."""
    host = Host()
    mixed = route("a=a:1", "b=b:1", queues=4)
    mixed.queues[1].write_queues = 1
    host.routes.update(TOPIC, mixed)
    host.routes.publish(TOPIC).turn = 3  # type: ignore[union-attr]
    flow = producer(host=host).send_async(Message(TOPIC, b"x"), 0)
    assert call(next(flow)) == ("a:1", "3", "a", 3000)
    assert call(flow.send((Lost("a:1", "reset", True), 1))) == ("b:1", "0", "b", 3000)
    with pytest.raises(BrokerError):
        flow.send((Command(1, flag=1), 2))


def test_async_batches_have_the_attempts_of_async_sends() -> None:
    core = producer("a=a:1", "b=b:1", retry_times=0, retry_times_async=1)
    messages = [Message(TOPIC, b"1"), Message(TOPIC, b"2")]
    flow = core.send_batch_async(messages, 0)
    first = next(flow)
    assert isinstance(first, Call)
    assert first.code == SEND_BATCH
    assert call(flow.send((Lost("a:1", "reset", True), 1)))[2] == "b"
    with pytest.raises(SendFailed):
        flow.send((Lost("b:1", "reset", True), 2))
    flow = core.send_batch_async(messages, 0)
    next(flow)
    with pytest.raises(BrokerError):
        flow.send((Command(1, flag=1), 1))


def test_the_codes_that_are_worth_another_attempt_can_be_set() -> None:
    """5.x tries busy brokers' messages elsewhere, 4.9 does not; who wants to says so."""
    flow = producer("a=a:1", "b=b:1", retry_codes=frozenset({2})).send(Message(TOPIC, b"x"), 0)
    next(flow)
    assert call(flow.send((Command(ResponseCode.SYSTEM_BUSY, flag=1), 1)))[2] == "b"
    with pytest.raises(BrokerError):
        flow.send((Command(ResponseCode.SERVICE_NOT_AVAILABLE, flag=1), 2))


def test_async_sends_to_a_queue_stay_at_its_broker() -> None:
    flow = producer("a=a:1", "b=b:1").send_async(Message(TOPIC, b"x"), 0, queue=MessageQueue(TOPIC, "b", 1))
    for now in range(3):
        effect = next(flow) if now == 0 else flow.send((Lost("b:1", "refused"), now))
        assert call(effect) == ("b:1", "1", "b", 3000)
    with pytest.raises(SendFailed) as caught:
        flow.send((Lost("b:1", "refused"), 3))
    assert len(caught.value.attempts) == 3
    assert caught.value.code == 10001


# --- oneway, batches


def test_oneway_ends_with_the_request() -> None:
    core = producer("a=a:1")
    flow = core.send_oneway(Message(TOPIC, b"x"), 0)
    effect = next(flow)
    assert isinstance(effect, Oneway)
    assert (effect.address, effect.code, effect.body, effect.deadline) == ("a:1", SEND, b"x", 3000)
    assert end(flow, None, 1) is None
    flow = core.send_oneway(Message(TOPIC, b"x"), 0, queue=MessageQueue(TOPIC, "a", 1))
    next(flow)
    with pytest.raises(SendFailed) as caught:
        flow.send((Lost("a:1", "refused"), 5))
    assert isinstance(caught.value.cause, ConnectFailed)


def test_oneway_without_a_master() -> None:
    flow = producer("a=a:1").send_oneway(Message(TOPIC, b"x"), 0, queue=MessageQueue(TOPIC, "gone", 1))
    assert next(flow) == Refresh(TOPIC, 3000)
    with pytest.raises(SendFailed, match="no master of broker gone"):
        flow.send((None, 1))


def test_a_batch_is_one_request_that_is_never_compressed() -> None:
    """MSG-08, MSG-09."""
    core = producer("a=a:1")
    bodies = [b"a" * 5000, b"b"]
    flow = core.send_batch([Message(TOPIC, bodies[0], tags="T"), Message(TOPIC, bodies[1])], 0)
    effect = next(flow)
    assert isinstance(effect, Call)
    assert (effect.code, effect.fields["m"], effect.fields["f"]) == (RequestCode.SEND_BATCH_MESSAGE, "true", "0")
    assert properties.decode(effect.fields["i"]) == {"WAIT": "true"}
    entries = decode_batch(effect.body)
    assert [entry.body for entry in entries] == bodies
    ids = [properties.decode_bytes(entry.properties)["UNIQ_KEY"] for entry in entries]
    assert properties.decode_bytes(entries[0].properties)["TAGS"] == "T"
    assert end(flow, took(0), 1).msg_id == ",".join(ids)


def test_bad_batches() -> None:
    core = producer("a=a:1", max_message_size=100)
    for messages in ([], [Message(TOPIC, b"x"), Message("other", b"y")], [Message(TOPIC, b"x", delay_level=3)]):
        with pytest.raises(InvalidMessage):
            next(core.send_batch(messages, 0))
    with pytest.raises(InvalidMessage, match="split it"):
        next(core.send_batch([Message(TOPIC, b"x" * 60), Message(TOPIC, b"y" * 60)], 0))
