"""Messages, queues and results, as users meet them."""

from __future__ import annotations

from mqproto.message import Message, MessageExt, MessageQueue, join_keys
from mqproto.wire.hosts import encode_host
from tests.golden.golden import GOLDEN


def test_keys_are_joined_as_java_joins_them() -> None:
    """One blank between two, none behind the last (MSG-14)."""
    for vector in GOLDEN.vectors("set-keys"):
        assert join_keys(vector.input) == vector.output()
    assert join_keys("one text") == "one text"


def test_properties_as_they_travel() -> None:
    message = Message("T", b"x", "TagA", ["k1", "k2"], {"color": "red"}, delay_level=3, wait=False)
    assert message.wire_properties() == {"color": "red", "KEYS": "k1 k2", "TAGS": "TagA", "DELAY": "3", "WAIT": "false"}
    assert message.properties == {"color": "red"}, "sending changes nothing of the caller's"
    assert Message("T", b"x").wire_properties() == {"WAIT": "true"}
    assert Message("T", b"x", keys="only").wire_properties()["KEYS"] == "only"
    assert Message("T", b"x", tags="", keys=[""]).wire_properties() == {"WAIT": "true"}, "an empty value is none"


def test_a_received_message_shows_what_its_properties_say() -> None:
    message = MessageExt(
        "T", b"x", {"TAGS": "A", "KEYS": "k1  k2", "UNIQ_KEY": "AB", "DELAY": "4"}, physical_offset=4096
    )
    message.store_host_bytes = encode_host("192.168.0.9:10911")
    message.born_host_bytes = encode_host("[::1]:5")
    assert (message.tags, message.keys, message.delay_level) == ("A", ["k1", "k2"], 4)
    assert (message.born_host, message.store_host) == ("[::1]:5", "192.168.0.9:10911")
    assert message.msg_id == "AB"
    assert message.offset_msg_id == "C0A8000900002A9F0000000000001000"


def test_a_received_message_without_properties() -> None:
    message = MessageExt("T", b"x", store_host_bytes=encode_host("192.168.0.9:10911"), physical_offset=4096)
    assert (message.tags, message.keys, message.delay_level) == (None, [], 0)
    assert message.msg_id == message.offset_msg_id == "C0A8000900002A9F0000000000001000"


def test_a_delay_that_is_no_number_counts_as_none() -> None:
    """MSG-11."""
    for text in ("4x", "", "-1", "٤"):
        assert MessageExt("T", b"x", {"DELAY": text}).delay_level == 0


def test_queues_are_ordered_by_topic_broker_and_number() -> None:
    """The order that allocation relies on (PRO-09)."""
    queues = [MessageQueue(topic, broker, number) for topic in "ba" for broker in ("b-2", "b-10") for number in (10, 9)]
    assert sorted(queues) == [
        MessageQueue(topic, broker, number) for topic in "ab" for broker in ("b-10", "b-2") for number in (9, 10)
    ]
    assert len(set(queues)) == 8
