"""Pulls: checks, codes, waiting at the end of a queue (docs/protocol/broker.md 2.4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqproto.codec import BINARY, Command
from mqproto.engine.remarks import FAQ
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import HOST, PEER, Peer, World, pull_fields, send_fields


def offsets(answer: Command) -> tuple[str, str, str]:
    return answer.fields["nextBeginOffset"], answer.fields["minOffset"], answer.fields["maxOffset"]


def hold(offset: int = 0, ms: int = 15_000, **changes: Any) -> dict[str, str]:
    """A pull that may wait."""
    return pull_fields(offset=offset, sysFlag="6", suspendTimeoutMillis=str(ms), **changes)


def heartbeat(group: str = "G", topic: str = "T", expression: str = "*", version: int = 5, **changes: Any) -> bytes:
    subscription = {
        "topic": topic,
        "subString": expression,
        "subVersion": version,
        "expressionType": "TAG",
        "codeSet": [0, 0],
    }
    consumer = {
        "groupName": group,
        "consumeType": 1,
        "messageModel": 1,
        "consumeFromWhere": 0,
        "subscriptionDataSet": [subscription],
    }
    return json.dumps({"clientID": "c1", "consumerDataSet": [consumer | changes]}).encode()


@pytest.fixture
def filled(peer: Peer) -> Peer:
    for n in range(5):
        peer.send(body=b"%d" % n, properties=f"TAGS\x01t{n % 2}\x02")
    return peer


class TestReading:
    def test_found(self, filled: Peer) -> None:
        answer = filled.pull()
        assert (answer.code, answer.remark, answer.fields["suggestWhichBrokerId"]) == (0, "FOUND", "0")
        assert offsets(answer) == ("5", "0", "5")
        assert [message.body for message in decode_records(answer.body)] == [b"0", b"1", b"2", b"3", b"4"]

    def test_so_many_and_from_there(self, filled: Peer) -> None:
        answer = filled.pull(offset=1, maxMsgNums="2")
        assert offsets(answer) == ("3", "0", "5")
        assert [message.body for message in decode_records(answer.body)] == [b"1", b"2"]

    @pytest.mark.parametrize("count", ["0", "-1"])
    def test_a_silly_count_gives_one(self, filled: Peer, count: str) -> None:
        assert offsets(filled.pull(maxMsgNums=count))[0] == "1"

    def test_by_tag(self, filled: Peer) -> None:
        answer = filled.pull(subscription="t1 || t7")
        assert offsets(answer) == ("5", "0", "5")
        assert [message.body for message in decode_records(answer.body)] == [b"1", b"3"]

    def test_nothing_matches(self, filled: Peer) -> None:
        answer = filled.pull(subscription="other")
        assert (answer.code, answer.remark, answer.body) == (20, "NO_MATCHED_MESSAGE", b"")
        assert offsets(answer)[0] == "5"

    @pytest.mark.parametrize(
        ("offset", "code", "remark", "next_offset"),
        [(5, 19, "OFFSET_OVERFLOW_ONE", "5"), (6, 21, "OFFSET_OVERFLOW_BADLY", "5"), (-1, 21, "OFFSET_TOO_SMALL", "0")],
    )
    def test_outside_of_the_queue(self, filled: Peer, offset: int, code: int, remark: str, next_offset: str) -> None:
        answer = filled.pull(offset=offset)
        assert (answer.code, answer.remark, answer.body) == (code, remark, b"")
        assert offsets(answer)[0] == next_offset

    def test_an_empty_queue(self, filled: Peer) -> None:
        assert filled.pull(queue=1).code == 19
        assert filled.pull(queue=1, offset=7).code == 21

    def test_lite_pull_is_the_same(self, filled: Peer) -> None:
        assert filled.ask(361, pull_fields(sysFlag="20")).code == 0

    def test_binary(self, filled: Peer) -> None:
        answer = filled.ask(11, pull_fields(), kind=BINARY)
        assert (answer.code, answer.remark, answer.serialize_type) == (0, "FOUND", BINARY)
        assert len(decode_records(answer.body)) == 5

    def test_what_clients_leave_out(self, filled: Peer) -> None:
        assert filled.ask(11, pull_fields(subVersion="-", expressionType="-")).code == 0

    def test_the_offset_that_came_along_is_committed(self, world: World, filled: Peer) -> None:
        filled.pull(offset=2, sysFlag="5", commitOffset="2")
        assert world.broker.offsets.find("G", "T", 0) == 2
        filled.pull(offset=2, sysFlag="5", commitOffset="-1")
        assert world.broker.offsets.find("G", "T", 0) == 2
        filled.pull(offset=4, sysFlag="4", commitOffset="4")
        assert world.broker.offsets.find("G", "T", 0) == 2


class TestChecks:
    def refused(self, peer: Peer, fields: dict[str, str]) -> tuple[int, str | None]:
        answer = peer.ask(11, fields)
        assert (answer.fields, answer.body) == ({}, b"")
        return answer.code, answer.remark

    def test_not_on_the_fast_listener(self, world: World, filled: Peer) -> None:
        fast = world.connect(listener="fast")
        assert self.refused(fast, pull_fields()) == (3, " request type 11 not supported")
        assert fast.send().code == 0

    def test_a_broker_that_is_not_readable(self) -> None:
        peer = World(broker_permission=2).connect()
        assert self.refused(peer, pull_fields()) == (16, f"the broker[{HOST}] pulling message is forbidden")

    def test_groups(self) -> None:
        world = World(auto_create_subscription_group=False)
        peer = world.connect()
        peer.send()
        assert self.refused(peer, pull_fields(group="G")) == (26, f"subscription group [G] does not exist, {FAQ}")
        assert peer.pull(group="CID_RMQ_SYS_X").code == 0
        peer.ask(200, None, b'{"groupName":"G","consumeEnable":false}')
        assert self.refused(peer, pull_fields(group="G")) == (16, "subscription group no permission, G")

    def test_an_illegal_group_is_not_made(self, filled: Peer) -> None:
        assert self.refused(filled, pull_fields(group="a b"))[0] == 26
        assert self.refused(filled, pull_fields(group=""))[0] == 26

    def test_topics(self, filled: Peer) -> None:
        assert self.refused(filled, pull_fields("U")) == (17, f"topic[U] not exist, apply first please! {FAQ}")
        fields = {
            "topic": "W",
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "2",
            "topicFilterType": "SINGLE_TAG",
        }
        assert filled.ask(17, fields).code == 0
        assert self.refused(filled, pull_fields("W")) == (16, "the topic[W] pulling message is forbidden")

    @pytest.mark.parametrize("queue", [-1, 4])
    def test_queues(self, filled: Peer, queue: int) -> None:
        remark = f"queueId[{queue}] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[{PEER}]"
        assert self.refused(filled, pull_fields(queue=queue)) == (1, remark)

    @pytest.mark.parametrize("text", ["||", " ", "| | ||"])
    def test_an_expression_without_tags(self, filled: Peer, text: str) -> None:
        if text == "| | ||":
            assert filled.pull(subscription=text).code == 20, "one bar is part of a tag"
        else:
            assert self.refused(filled, pull_fields(subscription=text)) == (
                23,
                "parse the consumer's subscription failed",
            )

    def test_other_filters(self, filled: Peer) -> None:
        remark = "The broker does not support consumer to filter message by SQL92"
        assert self.refused(filled, pull_fields(expressionType="SQL92", subscription="a > 1")) == (1, remark)
        assert self.refused(filled, pull_fields(expressionType="SQL92", subscription=""))[0] == 23

    @pytest.mark.parametrize(
        "changes",
        [{"queueId": "-"}, {"queueId": "abc"}, {"queueId": "2147483648"}, {"queueId": " 1"}, {"queueId": "1_0"},
         {"queueId": "1.0"}, {"queueId": ""}, {"queueOffset": "9223372036854775808"}, {"consumerGroup": "-"}],
    )  # fmt: skip
    def test_malformed_fields(self, filled: Peer, changes: dict[str, Any]) -> None:
        """COD-05."""
        code, remark = self.refused(filled, pull_fields(**changes))
        assert code == 1
        assert remark is not None
        assert next(iter(changes)) in remark
        assert filled.pull(queueId="+1").code == 19

    def test_no_fields_at_all(self, filled: Peer) -> None:
        assert self.refused(filled, {})[0] == 1


class TestSubscribedByHeartbeat:
    """Pulls without a subscription, as Go's: what is wanted is in the heartbeat alone."""

    def pull(self, peer: Peer, **changes: Any) -> Command:
        return peer.pull(**({"sysFlag": "0", "subscription": "", "subVersion": "0"} | changes))

    def test_found_by_the_expression_and_not_by_its_codes(self, filled: Peer) -> None:
        """One client sends wrong codes."""
        filled.heartbeat(heartbeat(expression="t1||t3"))
        filled.read()
        assert [message.body for message in decode_records(self.pull(filled).body)] == [b"1", b"3"]

    def test_offline_and_not_subscribed(self, filled: Peer) -> None:
        answer = self.pull(filled)
        assert (answer.code, answer.remark) == (24, f"the consumer's group info not exist{FAQ}")
        filled.heartbeat(heartbeat(topic="U"))
        answer = self.pull(filled)
        assert (answer.code, answer.remark) == (24, f"the consumer's subscription not exist{FAQ}")

    def test_a_heartbeat_that_lags_behind(self, filled: Peer) -> None:
        filled.heartbeat(heartbeat(version=5))
        assert self.pull(filled, subVersion="5").code == 0
        answer = self.pull(filled, subVersion="6")
        assert (answer.code, answer.remark) == (25, "the consumer's subscription not latest")
        assert self.pull(filled, subVersion="4").code == 0

    def test_broadcasting_may_be_forbidden(self, filled: Peer) -> None:
        filled.ask(200, None, b'{"groupName":"G","consumeBroadcastEnable":false}')
        filled.heartbeat(heartbeat(messageModel=0))
        answer = self.pull(filled)
        assert (answer.code, answer.remark) == (16, "the consumer group[G] can not consume by broadcast way")


class TestWaiting:
    def test_a_message_wakes_at_once(self, world: World, filled: Peer) -> None:
        reader = world.connect()
        reader.tell(11, hold(5))
        assert reader.read() == []
        world.advance(7000)
        filled.send(body=b"new")
        (answer,) = reader.read()
        assert (answer.code, answer.opaque, offsets(answer)) == (0, reader.opaque, ("6", "0", "6"))
        assert decode_records(answer.body)[0].body == b"new"

    def test_nothing_comes(self, world: World, filled: Peer) -> None:
        filled.tell(11, hold(5))
        world.advance(14_999)
        assert filled.read() == []
        world.advance(1)
        (answer,) = filled.read()
        assert (answer.code, answer.remark, offsets(answer)) == (19, "OFFSET_OVERFLOW_ONE", ("5", "0", "5"))

    def test_all_that_came_in_one_read_is_in_one_answer(self, world: World, filled: Peer) -> None:
        reader = world.connect()
        reader.tell(11, hold(5))
        filled.feed(b"".join(filled.frame(310, send_fields(), b"%d" % n) for n in range(3)))
        (answer,) = reader.read()
        assert [message.body for message in decode_records(answer.body)] == [b"0", b"1", b"2"]

    def test_what_does_not_match_does_not_wake_and_is_passed_over(self, world: World, filled: Peer) -> None:
        reader = world.connect()
        reader.tell(11, hold(5, subscription="t1"))
        filled.send(properties="TAGS\x01t0\x02")
        assert reader.read() == []
        world.advance(15_000)
        (answer,) = reader.read()
        assert (answer.code, offsets(answer)) == (20, ("6", "0", "6"))

    def test_a_match_behind_what_does_not(self, world: World, filled: Peer) -> None:
        reader = world.connect()
        reader.tell(11, hold(5, subscription="t1"))
        filled.send(properties="TAGS\x01t0\x02")
        filled.send(properties="TAGS\x01t1\x02", body=b"yes")
        (answer,) = reader.read()
        assert [message.body for message in decode_records(answer.body)] == [b"yes"]
        assert offsets(answer)[0] == "7"

    def test_every_waiting_pull_of_the_queue_and_no_other(self, world: World, filled: Peer) -> None:
        readers = [world.connect() for _ in range(3)]
        readers[0].tell(11, hold(5))
        readers[1].tell(11, pull_fields(group="H", offset=5, sysFlag="6"))
        readers[2].tell(11, pull_fields(queue=1, offset=0, sysFlag="6"))
        filled.send()
        assert [len(reader.read()) for reader in readers] == [1, 1, 0]

    @pytest.mark.parametrize(("ms", "waits"), [(0, 0), (-1, 0), (600_000, 60_000), (1000, 1000)])
    def test_holds_are_bounded(self, world: World, filled: Peer, ms: int, waits: int) -> None:
        """CON-19."""
        filled.tell(11, hold(5, ms))
        assert len(filled.read()) == (0 if waits else 1)
        if waits:
            assert world.advance_until(lambda: bool(filled.link.out)) == waits

    def test_without_long_polling_it_is_a_second(self) -> None:
        world = World(long_polling_enable=False)
        peer = world.connect()
        peer.send()
        peer.tell(11, hold(1))
        assert world.advance_until(lambda: bool(peer.link.out)) == 1000

    def test_only_who_asks_for_it_waits(self, filled: Peer) -> None:
        assert filled.pull(offset=5, suspendTimeoutMillis="15000").code == 19

    def test_a_one_way_pull_is_not_parked(self, world: World, filled: Peer) -> None:
        filled.tell(11, hold(5), flag=2)
        assert len(world.broker.parked_pulls) == 0
        filled.send()
        assert filled.read() == []

    def test_a_closed_link_waits_no_more(self, world: World, filled: Peer) -> None:
        reader = world.connect()
        reader.tell(11, hold(5))
        reader.close()
        assert len(world.broker.parked_pulls) == 0
        filled.send()
        assert reader.read() == []

    def test_a_topic_that_went_meanwhile(self, world: World, filled: Peer) -> None:
        reader = world.connect()
        reader.tell(11, hold(5))
        world.broker.topics.delete("T", world.wall)
        world.advance(15_000)
        assert [answer.code for answer in reader.read()] == [17]

    def test_places_are_bounded(self, world: World, filled: Peer) -> None:
        world.broker.parked_pulls.limit = 4
        filled.tell(11, hold(5))
        answer = filled.ask(11, hold(5))
        assert (answer.code, answer.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")

    def test_under_sync_flush_the_durable_message_wakes(self) -> None:
        world = World(store={"flush_disk_type": "SYNC_FLUSH"})
        peer, reader = world.connect(), world.connect()
        peer.send()
        reader.tell(11, hold(1))
        world.hold_jobs = True
        peer.tell(310, send_fields(), b"new")
        assert reader.read() == []
        while world.jobs:
            world.run_held()
        assert [answer.code for answer in reader.read()] == [0]

    def test_an_idle_broker_with_waiting_pulls_has_only_their_deadlines(self, world: World, filled: Peer) -> None:
        world.advance(15_000)
        filled.tell(11, hold(5, 20_000))
        filled.read()
        begin = world.now
        world.advance(19_000)
        assert world.broker.next_deadline() == begin + 20_000
