"""Queues that sends go to: routes that are found, missing or provisional, brokers that are avoided, lost sends."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import (
    BrokerError,
    CallExpired,
    ClientError,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    MQError,
    NoNameServer,
    NoRoute,
    SendFailed,
    StateError,
)
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Call, Lost, Oneway, Refresh
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.send_request import send_result
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.compression import Compression
from tests.mqproto.state.producers import TOPIC, Host, call, end, producer, took
from tests.mqproto.state.stage import route

# --- routes


def test_an_unknown_topic_is_looked_up_once() -> None:
    core = producer()
    flow = core.send(Message(TOPIC, b"x"), 0)
    assert next(flow) == Refresh(TOPIC, 3000)
    core._host.routes.update(TOPIC, route("a=a:1"))
    assert call(flow.send((None, 40))) == ("a:1", "0", "a", 3000)
    assert core.routes.topics() == {TOPIC}
    assert call(next(core.send(Message(TOPIC, b"x"), 50)))[0] == "a:1"


def test_a_topic_that_does_not_exist_goes_where_the_template_is() -> None:
    core = producer()
    flow = core.send(Message(TOPIC, b"x"), 0)
    assert next(flow) == Refresh(TOPIC, 3000)
    missing = BrokerError(17, "no route", "ns")
    assert flow.send((missing, 10)) == Refresh("TBW102", 3000)
    core._host.routes.update("TBW102", route("b=b:1", "a=a:1", queues=8, perm=7))
    assert call(flow.send((None, 20))) == ("a:1", "0", "a", 3000)
    assert core.routes.topics() == {TOPIC, "TBW102"}, "both are kept fresh"
    assert [call(next(core.send(Message(TOPIC, b"x"), 30)))[1:3] for _ in range(8)] == [
        *(("1", "a"), ("2", "a"), ("3", "a")),
        *(("0", "b"), ("1", "b"), ("2", "b"), ("3", "b")),
        ("0", "a"),
    ], "4 queues a broker, and nobody is asked again"
    core._host.routes.update(TOPIC, route("b=b:1", queues=1))
    core.routes.changed(TOPIC)
    assert call(next(core.send(Message(TOPIC, b"x"), 40)))[0] == "b:1"
    assert core.routes.topics() == {TOPIC}


def test_the_template_is_forgotten_with_the_brokers_that_it_led_to() -> None:
    core = producer(retry_times=0)
    flow = core.send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((BrokerError(17, "no route", "ns"), 10))
    core._host.routes.update("TBW102", route("a=a:1"))
    flow.send((None, 20))
    with pytest.raises(SendFailed):
        flow.send((Lost("a:1", "refused"), 30))
    assert isinstance(next(core.send(Message(TOPIC, b"x"), 40)), Refresh)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (NoNameServer(), NoNameServer),
        (NoNameServer(("ns:1",), "refused"), NoNameServer),
        (CallExpired("name server", 3000), CallExpired),
        (BrokerError(1, "broken", "ns"), BrokerError),
    ],
)
def test_without_a_name_server_the_send_says_so(error: MQError, raised: type[MQError]) -> None:
    flow = producer().send(Message(TOPIC, b"x"), 0)
    next(flow)
    with pytest.raises(raised):
        flow.send((error, 10))


def test_no_route_at_all() -> None:
    flow = producer().send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((BrokerError(17, "no route", "ns"), 10))
    with pytest.raises(NoRoute) as caught:
        flow.send((BrokerError(17, "no route", "ns"), 20))
    assert (caught.value.topic, caught.value.code) == (TOPIC, 10005)


def test_a_template_that_cannot_be_written_is_no_route() -> None:
    core = producer()
    flow = core.send(Message(TOPIC, b"x"), 0)
    next(flow)
    flow.send((BrokerError(17, "no route", "ns"), 10))
    core._host.routes.update("TBW102", route("a=a:1", perm=4))
    with pytest.raises(NoRoute):
        flow.send((None, 20))
    assert core.routes.topics() == set()


def test_a_topic_that_cannot_be_written_has_no_route() -> None:
    core = producer()
    core._host.routes.update(TOPIC, route("a=a:1", perm=4))
    flow = core.send(Message(TOPIC, b"x"), 0)
    assert next(flow) == Refresh(TOPIC, 3000)
    with pytest.raises(NoRoute):
        flow.send((None, 10))


def test_the_route_lookup_counts_against_the_budget() -> None:
    core = producer()
    flow = core.send(Message(TOPIC, b"x"), 0, timeout_ms=100)
    assert next(flow) == Refresh(TOPIC, 100)
    core._host.routes.update(TOPIC, route("a=a:1"))
    with pytest.raises(SendFailed) as caught:
        flow.send((None, 100))
    assert caught.value.attempts == ()


def test_a_known_route_is_used_without_asking() -> None:
    """NSV-03: nothing about name servers stands in the way of a send whose route is known."""
    flow = producer("a=a:1").send(Message(TOPIC, b"x"), 0)
    assert isinstance(next(flow), Call)


def test_a_broker_without_master_is_looked_up_again() -> None:
    core = producer("a=a:1")
    host = core._host
    del host.routes.addresses["a"][0]
    flow = core.send(Message(TOPIC, b"x"), 0)
    assert next(flow) == Refresh(TOPIC, 3000)
    host.routes.addresses["a"][0] = "a:2"
    assert call(flow.send((None, 1)))[0] == "a:2"
    del host.routes.addresses["a"][0]
    flow = core.send(Message(TOPIC, b"x"), 0, queue=MessageQueue(TOPIC, "a", 0))
    next(flow)
    with pytest.raises(SendFailed, match="no master") as caught:
        flow.send((None, 2))
    assert caught.value.code == 10003
    assert caught.value.attempts[0].address is None


def test_queues_for_selectors() -> None:
    core = producer("b=b:1", "a=a:1", queues=1)
    with pytest.raises(StopIteration) as stop:
        next(core.publish_queues(TOPIC, 0))
    assert stop.value.value == (MessageQueue(TOPIC, "a", 0), MessageQueue(TOPIC, "b", 0))
    assert next(producer().publish_queues(TOPIC, 0, timeout_ms=50)) == Refresh(TOPIC, 50)


# --- fault tolerance, second port, state


def test_without_fault_tolerance_the_next_attempt_avoids_the_last_broker_only() -> None:
    """Wherever the round robin stands: with one queue each, and with brokers of different sizes."""
    for turn in range(12):
        host = Host(seed=turn)
        host.routes = RouteTable(turn)
        mixed = route("a=a:1", "b=b:1", "c=c:1", queues=3)
        mixed.queues[0].write_queues = 1
        host.routes.update(TOPIC, mixed)
        flow = producer(host=host, retry_times=4).send(Message(TOPIC, b"x"), 0)
        last = call(next(flow))[2]
        for now in range(1, 5):
            broker = call(flow.send((Lost(last, "reset"), now)))[2]
            assert broker != last
            last = broker
        flow.close()


def test_with_fault_tolerance_too_another_attempt_goes_to_another_broker() -> None:
    """Also where the last one is not avoided, because it did store the message."""
    for turn in range(8):
        host = Host(seed=turn)
        host.routes = RouteTable(turn)
        settings = {"latency_fault_tolerance": True, "retry_another_broker_when_not_store_ok": True}
        flow = producer("a=a:1", "b=b:1", queues=4, host=host, **settings).send(Message(TOPIC, b"x"), 0)
        last = call(next(flow))[2]
        assert call(flow.send((took(0, code=10), 1)))[2] != last
        flow.close()


def test_one_way_sends_tell_of_brokers_too() -> None:
    core = producer("a=a:1", "b=b:1", queues=1, latency_fault_tolerance=True)
    flow = core.send_oneway(Message(TOPIC, b"x"), 0)
    effect = next(flow)
    assert isinstance(effect, Oneway)
    with pytest.raises(SendFailed):
        flow.send((Lost("a:1", "refused"), 1))
    assert effect.address == "a:1"
    assert {call(next(core.send(Message(TOPIC, b"x"), 3)))[2] for _ in range(4)} == {"b"}


def test_slow_and_failing_brokers_are_avoided() -> None:
    core = producer("a=a:1", "b=b:1", latency_fault_tolerance=True)
    flow = core.send(Message(TOPIC, b"x"), 0)
    assert call(next(flow))[2] == "a"
    assert call(flow.send((Lost("a:1", "refused"), 1)))[2] == "b"
    end(flow, took(0), 2)
    assert {call(next(core.send(Message(TOPIC, b"x"), 3)))[2] for _ in range(6)} == {"b"}
    assert {call(next(core.send(Message(TOPIC, b"x"), 600_001)))[2] for _ in range(6)} == {"a", "b"}


def test_bad_messages_are_refused_before_anything_is_sent() -> None:
    core = producer("a=a:1", max_message_size=10)
    for message in (Message("", b"x"), Message("a b", b"x"), Message("SCHEDULE_TOPIC_XXXX", b"x")):
        with pytest.raises(InvalidName):
            next(core.send(message, 0))
    for message in (Message(TOPIC, b""), Message(TOPIC, b"x" * 11), Message(TOPIC, b"x", properties={"KEYS": "k"})):
        for flow in (core.send(message, 0), core.send_async(message, 0), core.send_oneway(message, 0)):
            with pytest.raises(InvalidMessage):
                next(flow)


@pytest.mark.parametrize("group", ["", "DEFAULT_PRODUCER", "a b", "x" * 256])
def test_bad_groups(group: str) -> None:
    with pytest.raises(InvalidName):
        ProducerCore(ProducerSettings(group=group), Host())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("send_timeout_ms", 0),
        ("attempt_timeout_ms", 0),
        ("attempt_timeout_ms", -2),
        ("retry_times", -1),
        ("compress_level", 10),
        ("compress_type", Compression.ZLIB_UNTYPED),
        ("retry_codes", frozenset({"2"})),
        ("send_window_messages", 0),
        ("send_window_bytes", 0),
        ("default_topic_queues", 0),
        ("latency_max_ms", (1, 2)),
        ("latency_max_ms", (7, 6, 5, 4, 3, 2, 1)),
    ],
)
def test_bad_settings(key: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=key):
        ProducerCore(ProducerSettings(**{"group": "pg", key: value}), Host())


def test_a_closed_producer_sends_nothing() -> None:
    core = producer("a=a:1")
    core.closed = True
    with pytest.raises(StateError, match="pg"):
        next(core.send(Message(TOPIC, b"x"), 0))
    with pytest.raises(StateError):
        next(core.send_batch([Message(TOPIC, b"x")], 0))


def test_result_keeps_the_queue_object_where_it_can() -> None:
    queue = MessageQueue(TOPIC, "a", 3)
    result = send_result(took(3), queue, "ID", "a:1")
    assert isinstance(result, SendResult)
    assert result.queue is queue


def test_why_the_broker_of_a_given_queue_is_not_known() -> None:
    """A name server that cannot be reached, if that is why; a topic that it does not know says less than the broker's
    name.
    """
    for error, expected in (
        (NoNameServer(("ns:1",), "refused"), NoNameServer),
        (BrokerError(17, "no route", "ns:1"), ClientError),
    ):
        flow = producer().send(Message(TOPIC, b"x"), 0, queue=MessageQueue(TOPIC, "a", 0))
        assert isinstance(next(flow), Refresh)
        with pytest.raises(SendFailed) as caught:
            flow.send((error, 1))
        assert type(caught.value.cause) is expected
