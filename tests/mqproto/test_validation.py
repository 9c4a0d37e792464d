"""Checks of a client, against Apache's own."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import InvalidMessage, InvalidName
from mqproto.message import Message
from mqproto.validation import (
    check_batch,
    check_consumer_group,
    check_group,
    check_message,
    check_property,
    check_topic,
)
from tests.golden.golden import GOLDEN, Vector


@pytest.mark.parametrize("vector", GOLDEN.vectors("client-check-topic"), ids=lambda vector: repr(vector.input)[:20])
def test_topics_are_accepted_and_refused_as_by_4_9(vector: Vector) -> None:
    if vector.fails():
        with pytest.raises(InvalidName) as caught:
            check_topic(vector.input or "")
        assert caught.value.kind == "topic"
    else:
        check_topic(vector.input)


@pytest.mark.parametrize("vector", GOLDEN.vectors("client-check-group"), ids=lambda vector: repr(vector.input)[:20])
def test_groups_are_accepted_and_refused_as_by_4_9(vector: Vector) -> None:
    if vector.fails():
        with pytest.raises(InvalidName) as caught:
            check_group(vector.input or "")
        assert caught.value.kind == "group"
    else:
        check_group(vector.input)


def test_lengths() -> None:
    """Topics up to 127, consumer groups so that their retry topic is one; the reason is told (LIM-01)."""
    check_topic("t" * 127)
    with pytest.raises(InvalidName, match="longer than 127"):
        check_topic("t" * 128)
    check_group("g" * 255)
    check_consumer_group("g" * 120)
    for length in (121, 255):
        with pytest.raises(InvalidName, match=r"its topic %RETRY%\.\.\. would be longer than 127"):
            check_consumer_group("g" * length)
    with pytest.raises(InvalidName, match="longer than 255"):
        check_consumer_group("g" * 256)
    for name in ("a.b", "a/b", "a b"):
        with pytest.raises(InvalidName, match="only letters"):
            check_consumer_group(name)


def test_user_properties_as_java_checks_them() -> None:
    for vector in GOLDEN.vectors("put-user-property"):
        name, value = vector.input["name"], vector.input["value"]
        if vector.fails():
            with pytest.raises(InvalidMessage):
                check_property(name, value)
        else:
            check_property(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("a\x01", "v"), ("a\x02", "v"), ("a", "\x01"), ("a", "v\x02"), ("CLUSTER", "v"), (" ", "v"), ("a", " ")],
)
def test_properties_that_would_damage_the_string_or_belong_to_the_system(name: str, value: str) -> None:
    with pytest.raises(InvalidMessage):
        check_message(Message("T", b"x", properties={name: value}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"body": b""}, "the body is empty"),
        ({"body": "text"}, "of type str, not bytes"),
        ({"body": bytes(11)}, "11 bytes, more than 10"),
        ({"delay_level": -1}, "negative"),
        ({"flag": 1 << 31}, "32 bits"),
        ({"tags": "a\x01b"}, "may not occur"),
        ({"keys": ["a", "b\x02"]}, "may not occur"),
        ({"properties": {"KEYS": "k"}}, "used by the system"),
        ({"properties": {"a": 1}}, "are texts"),
    ],
)
def test_messages_that_no_broker_would_take(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidMessage, match=why) as caught:
        check_message(Message(**{"topic": "T", "body": b"x", **changes}), 10)
    assert caught.value.code == 13


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": None},
        {"topic": 7},
        {"body": bytearray(b"x")},
        {"tags": 7},
        {"keys": 7},
        {"keys": [7]},
        {"flag": "1"},
        {"delay_level": None},
        {"properties": None},
        {"properties": ["a"]},
    ],
)
def test_attributes_of_a_wrong_type(changes: dict[str, Any]) -> None:
    with pytest.raises((InvalidMessage, InvalidName), match=r"type|not bytes"):
        check_message(Message(**{"topic": "T", "body": b"x", **changes}))


@pytest.mark.parametrize("given", [None, "text", 7, {"topic": "T"}])
def test_what_is_no_message(given: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"Message expected|sequence of them expected"):
        check_message(given)
    with pytest.raises(InvalidMessage, match=r"Message expected|sequence of them expected"):
        check_batch(given)


def test_times_of_later_releases_pass() -> None:
    """5.x brokers read these; they are ordinary properties for everybody else (docs/protocol/client.md 9)."""
    for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"):
        check_message(Message("T", b"x", properties={name: "1700000000000"}))


def test_topics_that_no_client_may_send_to() -> None:
    for topic in (
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ):
        with pytest.raises(InvalidName, match="forbidden"):
            check_message(Message(topic, b"x"))
    check_message(Message("TBW102", b"x"))
    check_message(Message("%RETRY%g", b"x"))


def test_properties_are_measured_encoded() -> None:
    """32,767 bytes with what the attributes add, not characters (MSG-03)."""
    room = 32767 - len("n\x01\x02WAIT\x01true\x02")
    check_message(Message("T", b"x", properties={"n": "x" * room}))
    with pytest.raises(InvalidMessage, match="32768 bytes"):
        check_message(Message("T", b"x", properties={"n": "x" * (room + 1)}))
    with pytest.raises(InvalidMessage, match="33017 bytes"):
        check_message(Message("T", b"x", properties={"n": "中" * 11_000, "k": "v"}))


def test_batches() -> None:
    check_batch([Message("T", b"1"), Message("T", b"2")])
    for messages, why in (
        ([], "without messages"),
        ([Message("T", b"1"), Message("U", b"2")], "one topic"),
        ([Message("T", b"1"), Message("T", b"2", wait=False)], "differ"),
        ([Message("T", b"1", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"1")], "retry topic"),
        ([Message("T", b"1"), Message("T", b"")], "empty"),
    ):
        with pytest.raises(InvalidMessage, match=why):
            check_batch(messages)
