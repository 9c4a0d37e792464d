"""Sends: checks, codes, remarks, what is stored (docs/protocol/broker.md 2.1, 2.2)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import BINARY
from mqproto.engine.remarks import FAQ
from mqproto.message import MessageExt
from mqproto.wire.batch import BatchEntry, encode_batch
from mqproto.wire.ids import java_hash
from tests.engine.broker.harness import HOST, PEER, Peer, World, send_fields

ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
MSG_ID = "C000020200002A9F" + "0" * 16


def test_a_message_is_stored_and_answered(world: World, peer: Peer) -> None:
    answer = peer.send("T", b"hi", "KEYS\x01k\x02WAIT\x01true\x02TAGS\x01a\x02", e="3", g="1699999999123", h="7")
    assert (answer.code, answer.remark) == (0, None)
    assert answer.fields == ALWAYS | {"msgId": MSG_ID, "queueId": "3", "queueOffset": "0"}
    (message,) = peer.messages("T", 3)
    assert message == MessageExt(
        "T",
        b"hi",
        {"KEYS": "k", "TAGS": "a", "CLUSTER": "DefaultCluster"},
        flag=7,
        queue_id=3,
        born_time=1699999999123,
        born_host_bytes=bytes([192, 0, 2, 3]) + (40000).to_bytes(4, "big"),
        store_time=world.wall,
        store_host_bytes=bytes([192, 0, 2, 2]) + (10911).to_bytes(4, "big"),
        body_crc=message.body_crc,
        store_size=message.store_size,
    )


def test_long_names_mean_the_same(peer: Peer) -> None:
    fields = {
        "producerGroup": "PG",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": "0",
    }
    fields |= {"bornTimestamp": "1", "flag": "0", "properties": "TAGS\x01a\x02"}
    assert peer.ask(10, fields, b"hi").code == 0
    assert peer.messages("T", 1)[0].tags == "a"


def test_offsets_are_dense_and_ids_tell_places(peer: Peer) -> None:
    answers = [peer.send() for _ in range(3)]
    assert [answer.fields["queueOffset"] for answer in answers] == ["0", "1", "2"]
    assert [message.offset_msg_id for message in peer.messages()] == [answer.fields["msgId"] for answer in answers]


def test_a_binary_request_gets_a_binary_answer(peer: Peer) -> None:
    answer = peer.ask(310, send_fields(), b"hi", kind=BINARY)
    assert (answer.code, answer.serialize_type) == (0, BINARY)
    assert answer.fields["queueOffset"] == "0"


@pytest.mark.parametrize("code", [310, 9999, 14])
def test_one_way_requests_are_never_answered(peer: Peer, code: int) -> None:
    peer.tell(code, send_fields(), b"hi", flag=2)
    peer.tell(code, send_fields("no such topic!"), b"hi", flag=2)
    peer.tell(code, {}, b"", flag=2)
    assert peer.read() == []


@pytest.mark.parametrize(
    ("text", "tags"),
    [("TAGS\x01A\x02", "A"), ("TAGS\x01A", "A"), ("", None), ("TAGS\x01\x02", None), ("MYTAGS\x01A\x02", None)],
)
def test_properties_end_with_one_mark_however_they_came(peer: Peer, text: str, tags: str | None) -> None:
    """MSG-01: what is appended is glued to nothing."""
    peer.send(properties=text)
    (message,) = peer.messages()
    assert message.tags == tags
    assert message.properties["CLUSTER"] == "DefaultCluster"


def test_a_message_without_body_is_stored(peer: Peer) -> None:
    """MSG-04."""
    assert peer.send(body=b"").code == 0
    assert peer.messages()[0].body == b""


class TestTopics:
    def test_a_topic_is_made_after_its_template(self, world: World, peer: Peer) -> None:
        peer.send("New", d="3")
        config = world.broker.topics.find("New")
        assert config is not None
        assert (config.read_queues, config.write_queues, config.perm, config.sys_flag) == (3, 3, 6, 0)
        peer.send("Wide", d="100", k="true")
        wide = world.broker.topics.find("Wide")
        assert wide is not None
        assert (wide.write_queues, wide.sys_flag) == (8, 1)

    def test_no_topic_without_a_template_to_inherit_from(self, peer: Peer) -> None:
        for template in ("Missing", "BenchmarkTest"):
            answer = peer.send("New", c=template)
            assert (answer.code, answer.remark) == (17, f"topic[New] not exist, apply first please!{FAQ}")
            assert answer.fields == ALWAYS

    def test_no_topic_where_that_is_switched_off(self) -> None:
        peer = World(auto_create_topic_enable=False).connect()
        assert peer.send("New").code == 17
        assert peer.send("New", c="DefaultCluster").code == 0, "other templates are no matter of this switch"

    @pytest.mark.parametrize(
        ("topic", "remark"),
        [
            (" ", "The specified topic is blank."),
            ("a" * 128, "The specified topic is longer than topic max length."),
            ("a.b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
            ("订单", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ],
    )
    def test_names_that_no_topic_has(self, peer: Peer, topic: str, remark: str) -> None:
        """LIM-01."""
        answer = peer.send(topic)
        assert (answer.code, answer.remark, answer.fields) == (1, remark, ALWAYS)

    def test_the_longest_name(self, peer: Peer) -> None:
        assert peer.send("a" * 127).code == 0
        assert peer.messages("a" * 127)[0].topic == "a" * 127

    @pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT"])
    def test_topics_of_the_system_take_no_messages(self, peer: Peer, topic: str) -> None:
        answer = peer.send(topic)
        assert (answer.code, answer.remark) == (16, f"Sending message to topic[{topic}] is forbidden.")


class TestChecks:
    def test_a_queue_that_is_not_there(self, peer: Peer) -> None:
        peer.send()
        answer = peer.send(e="4")
        assert answer.code == 1
        assert answer.remark == (
            "request queueId[4] is illegal, TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=4, perm=RW-, "
            f"topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: {PEER}"
        )

    def test_no_queue_means_any(self, peer: Peer) -> None:
        queues = {peer.send(e="-1").fields["queueId"] for _ in range(8)}
        assert queues == {"0", "1", "2", "3"}

    def test_before_the_time_to_begin(self) -> None:
        world = World(start_accept_send_request_time_stamp=1_700_000_005_000)
        peer = world.connect()
        answer = peer.send()
        assert (answer.code, answer.remark) == (1, "broker unable to service, until 2023-11-14 22:13:25,000")
        world.advance(4000)
        assert peer.send().code == 0

    def test_a_read_only_broker_refuses_ordered_topics(self) -> None:
        world = World(broker_permission=4)
        peer = world.connect()
        assert peer.send().code == 0, "others are kept away by the route alone"
        config = world.broker.topics.find("T")
        assert config is not None
        config.order = True
        world.broker.topics.put(config, 0)
        answer = peer.send()
        assert (answer.code, answer.remark) == (16, f"the broker[{HOST}] sending message is forbidden")

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"b": "-"}, "b"),
            ({"e": "abc"}, "e"),
            ({"e": "2147483648"}, "e"),
            ({"g": " 1"}, "g"),
            ({"f": "1_0"}, "f"),
            ({"a": "-"}, "a"),
        ],
    )
    def test_missing_and_malformed_fields(self, peer: Peer, changes: dict[str, Any], field: str) -> None:
        """COD-05: an answer that names the field, and the link goes on."""
        answer = peer.send(**changes)
        assert answer.code == 1
        assert answer.remark is not None
        assert f"field {field}:" in answer.remark
        assert peer.send(e="+1").fields["queueId"] == "1"

    @pytest.mark.parametrize("size", [32_767 - 23, 32_767 - 22])
    def test_properties_are_measured_with_what_is_added(self, peer: Peer, size: int) -> None:
        """MSG-03: CLUSTER, 0x01, DefaultCluster, 0x02 are 23 bytes."""
        answer = peer.send(properties="K\x01" + "v" * (size - 3) + "\x02")
        assert answer.code == (0 if size == 32_767 - 23 else 13)
        assert len(peer.messages()) == (1 if answer.code == 0 else 0)

    def test_properties_of_many_wide_characters(self, peer: Peer) -> None:
        assert peer.send(properties="K\x01" + "订" * 11_000).code == 13

    def test_a_body_of_more_than_the_limit(self) -> None:
        world = World(store={"max_message_size": 1000})
        peer = world.connect()
        assert peer.send(body=bytes(1000)).code == 0
        assert peer.send(body=bytes(1000 + 65537)).code == 13

    def test_a_refused_message_uses_no_offset(self, peer: Peer) -> None:
        """STO-03: good, illegal, good are offsets 0 and 1."""
        illegal = "K\x01" + "v" * 33_000 + "\x02"
        answers = [peer.send(properties=text, e=queue) for queue in "01" for text in ("", illegal, "")]
        assert [answer.code for answer in answers] == [0, 13, 0] * 2
        assert [answer.fields.get("queueOffset") for answer in answers] == ["0", None, "1"] * 2
        assert [len(peer.messages(queue=queue)) for queue in (0, 1)] == [2, 2]


class TestRetryTopics:
    def test_by_number_of_attempts(self, world: World, peer: Peer) -> None:
        """ADM-05: without a limit the group's counts; at the limit it is the dead letters; a new group is made."""
        assert peer.send("%RETRY%g", j="2", l="-").code == 0
        assert peer.send("%RETRY%g", j="17", l="-").code == 0
        assert peer.send("%RETRY%g", l="0").code == 0
        assert [message.reconsume_times for message in peer.messages("%RETRY%g")] == [2]
        assert [message.reconsume_times for message in peer.messages("%DLQ%g")] == [17, 0]
        config = world.broker.topics.find("%DLQ%g")
        assert config is not None
        assert (config.perm, config.write_queues) == (6, 1)

    def test_an_old_client_has_no_limit_of_its_own(self, peer: Peer) -> None:
        peer.ask(310, send_fields("%RETRY%g", l="0"), b"hi", version=120)
        assert len(peer.messages("%RETRY%g")) == 1

    def test_a_negative_limit_is_none(self, peer: Peer) -> None:
        """CON-13."""
        peer.send("%RETRY%g", l="-1", j="15")
        assert len(peer.messages("%RETRY%g")) == 1

    def test_an_unknown_group_where_groups_are_not_made(self) -> None:
        peer = World(auto_create_subscription_group=False).connect()
        answer = peer.send("%RETRY%g")
        assert (answer.code, answer.remark) == (26, f"subscription group not exist, g {FAQ}")

    def test_the_topic_is_made_even_without_a_template(self, world: World, peer: Peer) -> None:
        peer.send("%RETRY%g", c="Missing")
        config = world.broker.topics.find("%RETRY%g")
        assert config is not None
        assert (config.write_queues, config.perm) == (1, 6)


class TestBatches:
    def entries(self, count: int = 3, **more: str) -> bytes:
        text = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
        return encode_batch(
            [BatchEntry(b"%d" % n, f"UNIQ_KEY\x01id{n}\x02TAGS\x01t{n}\x02{text}".encode(), n) for n in range(count)]
        )

    @pytest.mark.parametrize("code", [320, 310])
    def test_the_flag_makes_the_batch_and_not_the_code(self, peer: Peer, code: int) -> None:
        answer = peer.ask(code, send_fields(properties="WAIT\x01true", m="true"), self.entries())
        assert answer.code == 0
        ids = answer.fields["msgId"].split(",")
        messages = peer.messages()
        assert [message.offset_msg_id for message in messages] == ids
        assert answer.fields["queueOffset"] == "0"
        assert [(message.body, message.flag, message.tags, message.msg_id) for message in messages] == [
            (b"%d" % n, n, f"t{n}", f"id{n}") for n in range(3)
        ]
        assert all(message.properties["CLUSTER"] == "DefaultCluster" for message in messages)

    def test_each_message_keeps_its_own_id(self, peer: Peer) -> None:
        """MSG-08: an id of the batch does not become the id of its messages."""
        properties = "WAIT\x01true\x02UNIQ_KEY\x01batch\x02X\x01y"
        peer.ask(320, send_fields(properties=properties, m="true"), self.entries(10))
        messages = peer.messages()
        assert [message.msg_id for message in messages] == [f"id{n}" for n in range(10)]
        assert {message.properties["X"] for message in messages} == {"y"}
        assert not any("WAIT" in message.properties for message in messages)

    def test_tags_of_each_message_filter(self, peer: Peer) -> None:
        peer.ask(320, send_fields(m="true"), self.entries())
        answer = peer.pull(subscription="t1")
        assert answer.fields["nextBeginOffset"] == "3"
        assert java_hash("t1") != java_hash("t2")

    def test_an_unmarked_batch_is_one_message(self, peer: Peer) -> None:
        """C++ sends `batch` = "1", which Java reads as false."""
        peer.ask(310, send_fields(m="1"), self.entries())
        assert [message.body for message in peer.messages()] == [self.entries()]

    @pytest.mark.parametrize(
        ("changes", "body"),
        [
            ({"b": "%RETRY%g"}, None),
            ({"i": "DELAY\x013"}, None),
            ({"f": "4"}, None),
            ({}, b""),
            ({}, b"\0\0\0\x05garbage"),
            ({}, bytes(2000)),
        ],
    )
    def test_what_no_batch_may_be(self, changes: dict[str, str], body: bytes | None) -> None:
        peer = World(store={"max_message_size": 1000}).connect()
        answer = peer.ask(320, send_fields(m="true") | changes, self.entries() if body is None else body)
        assert answer.code == 13
        assert answer.fields == ALWAYS
        assert peer.messages() == []

    def test_one_message_too_large_refuses_all(self, peer: Peer) -> None:
        assert peer.ask(320, send_fields(m="true"), self.entries(2, K="v" * 32_740)).code == 13
        assert peer.messages() == []
        assert peer.send().fields["queueOffset"] == "0"


class TestSyncFlush:
    def world(self) -> World:
        world = World(store={"flush_disk_type": "SYNC_FLUSH"})
        world.connect().send()
        world.hold_jobs = True
        return world

    def test_answers_wait_for_the_disk_and_one_flush_serves_all(self) -> None:
        world = self.world()
        first, second = world.connect(), world.connect()
        first.tell(310, send_fields(), b"1")
        second.tell(310, send_fields(), b"2")
        second.tell(310, send_fields(), b"3")
        assert first.read() + second.read() == []
        while world.jobs:
            world.run_held()
        assert [one.fields["queueOffset"] for one in first.read() + second.read()] == ["1", "2", "3"]

    def test_who_does_not_want_to_wait_does_not(self) -> None:
        world = self.world()
        peer = world.connect()
        assert peer.send(properties="WAIT\x01false\x02").code == 0
        assert peer.send(properties="TAGS\x01a\x02WAIT\x01FALSE").code == 0

    def test_a_disk_that_takes_too_long(self) -> None:
        world = self.world()
        peer = world.connect()
        peer.tell(310, send_fields(), b"1")
        world.advance(4999)
        assert peer.read() == []
        world.advance(1)
        (answer,) = peer.read()
        assert (answer.code, answer.fields["queueOffset"]) == (10, "1")
        while world.jobs:
            world.run_held()
        assert peer.read() == []

    def test_nothing_is_visible_before_it_is_durable(self) -> None:
        world = self.world()
        peer, reader = world.connect(), world.connect()
        peer.tell(310, send_fields(), b"1")
        assert len(reader.messages()) == 1
        while world.jobs:
            world.run_held()
        assert len(reader.messages()) == 2

    def test_so_many_may_wait_and_no_more(self) -> None:
        world = self.world()
        world.broker.settings.send_thread_pool_queue_capacity = 2
        peer = world.connect()
        peer.tell(310, send_fields(), b"1")
        peer.tell(310, send_fields(), b"2")
        answer = peer.ask(310, send_fields(), b"3")
        assert (answer.code, answer.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
        while world.jobs:
            world.run_held()
        assert [one.code for one in peer.read()] == [0, 0]
        assert len(peer.messages()) == 3

    def test_a_link_that_closed_is_not_answered(self) -> None:
        world = self.world()
        peer = world.connect()
        peer.tell(310, send_fields(), b"1")
        peer.close()
        while world.jobs:
            world.run_held()
        assert peer.read() == []
        assert not world.broker.pending_acks.count
