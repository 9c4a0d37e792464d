"""Operations on messages: what is found and what only looks like it, scans that end, and what groups did."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from mqproto.codec import Command, encode_response
from mqproto.errors import AccessDenied, BrokerError, ClientError, InvalidSetting, NoMessage, NoRoute
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.admin import MessageTrack, TrackType
from mqproto.wire.bodies import (
    ClientConnection,
    ConsumeDirectlyResult,
    ConsumerConnection,
    ConsumeStats,
    ConsumeType,
    DirectConsumeResult,
    GroupList,
    MessageModel,
    SubscriptionData,
)
from mqproto.wire.bodies.statistics import ConsumeOffsets
from mqproto.wire.filters.tags import InvalidExpressionError
from mqproto.wire.flags import COMPRESSED
from mqproto.wire.hosts import encode_host
from mqproto.wire.record import encode_record
from tests.mqproto.state.admin.servers import A, B, Servers
from tests.mqproto.state.stage import Peer, refused, success

#: Where offset ids lead: inside them there are only numbers.
HOST = "192.0.2.9:10911"
FOREVER = str((1 << 63) - 1)
QUEUE = MessageQueue("T", "a", 0)


def stored(
    offset: int = 0, physical: int = 500, body: bytes = b"x", topic: str = "T", time: int = 5, **properties: str
) -> MessageExt:
    return MessageExt(
        topic,
        body,
        {"UNIQ_KEY": f"U{offset}", **properties},
        queue_offset=offset,
        physical_offset=physical,
        store_time=time,
        born_host_bytes=encode_host("192.0.2.1:5"),
        store_host_bytes=encode_host(HOST),
    )


def records(messages: Iterable[MessageExt]) -> bytes:
    return b"".join(map(encode_record, messages))


@pytest.fixture
def servers() -> Servers:
    made = Servers("T")
    made.stage.peers[HOST] = Peer()
    made.brokers["a"].addresses[0] = A
    return made


# --- ids


def test_an_offset_id_leads_to_its_broker(servers: Servers) -> None:
    body = b"the same again and again" * 50
    packed = stored(body=zlib.compress(body))
    packed.sys_flag = COMPRESSED
    servers.answer(HOST, 33, body=encode_record(packed))
    found = servers.run(servers.core.messages.by_offset_id(stored().offset_msg_id))
    assert (found.body, found.sys_flag) == (body, 0)
    assert servers.asked(HOST) == [(33, {"offset": "500"})]


@pytest.mark.parametrize("given", ["", "xyz", "0" * 31, "G" * 32, "7F000001FFFFFFFF0000000000000000"])
def test_what_is_no_offset_id(servers: Servers, given: str) -> None:
    with pytest.raises(NoMessage) as none:
        servers.run(servers.core.messages.by_offset_id(given))
    assert (none.value.code, none.value.wanted) == (208, given)
    with pytest.raises(NoMessage):
        servers.run(servers.core.messages.resume_check(given))
    assert servers.stage.dials == []


def test_an_offset_where_no_message_begins(servers: Servers) -> None:
    wanted = stored().offset_msg_id
    for script in (encode_record(stored(physical=400)), encode_record(stored())[:50], b"\0" * 200, b""):
        servers.answer(HOST, 33, body=script)
        with pytest.raises(NoMessage, match="no message begins there"):
            servers.run(servers.core.messages.by_offset_id(wanted))
    servers.refuse(HOST, 33, 1, "can not find message by the offset, 500")
    with pytest.raises(NoMessage, match="can not find"):
        servers.run(servers.core.messages.by_offset_id(wanted))
    for code, remark, error in ((1, "AclException: no", AccessDenied), (2, "busy", BrokerError)):
        servers.refuse(HOST, 33, code, remark)
        with pytest.raises(error):
            servers.run(servers.core.messages.by_offset_id(wanted))


def test_a_unique_id_finds_the_oldest(servers: Servers) -> None:
    late, early = stored(1, 700, time=9, UNIQ_KEY="U"), stored(2, 600, time=4, UNIQ_KEY="U")
    servers.answer(A, 12, body=records([late, stored(3, UNIQ_KEY="same hash")]))
    servers.answer(B, 12, body=records([early, stored(4, topic="other", UNIQ_KEY="U")]))
    found = servers.run(servers.core.messages.by_unique_id("T", "U"))
    assert (found.physical_offset, found.broker_name) == (600, "b")
    assert [one.physical_offset for one in servers.run(servers.core.messages.all_by_unique_id("T", "U"))] == [600, 700]
    query = {
        "topic": "T",
        "key": "U",
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": FOREVER,
        "_UNIQUE_KEY_QUERY": "true",
    }
    assert servers.asked(A)[0] == (12, query)
    for address in (A, B):
        servers.refuse(address, 12, 22)
    with pytest.raises(NoMessage):
        servers.run(servers.core.messages.by_unique_id("T", "U"))
    with pytest.raises(NoRoute):
        servers.run(servers.core.messages.by_unique_id("U", "U"))


def test_either_id(servers: Servers) -> None:
    servers.answer(A, 12, body=records([stored(UNIQ_KEY="U")]))
    servers.refuse(B, 12, 22)
    assert servers.run(servers.core.messages.by_id("T", "U")).physical_offset == 500
    servers.answer(HOST, 33, body=encode_record(stored(body=b"by offset")))
    assert servers.run(servers.core.messages.by_id("T", stored().offset_msg_id)).body == b"by offset"
    servers.refuse(A, 12, 22)
    servers.refuse(HOST, 33, 2, "busy")
    with pytest.raises(BrokerError, match="busy"):  # not that there is none
        servers.run(servers.core.messages.by_id("T", stored().offset_msg_id))
    with pytest.raises(NoMessage):
        servers.run(servers.core.messages.by_id("T", "U"))


# --- keys


def test_keys_are_compared_and_not_only_their_hashes(servers: Servers) -> None:
    """MSG-14, STO-01: a broker that gives too much of the topic, the key or the time changes nothing."""
    strays = [stored(5, time=9, KEYS="k"), stored(6, time=2, KEYS="k"), stored(7, time=5, topic="other", KEYS="k")]
    servers.answer(
        A,
        12,
        body=records(
            [stored(1, time=8, KEYS="k1 k"), stored(2, time=3, KEYS="k k2"), stored(3, time=5, KEYS="kk"), *strays]
        ),
    )
    servers.answer(B, 12, body=records([stored(4, time=7, KEYS="k")]))
    found = servers.run(servers.core.messages.by_key("T", "k", limit=9, begin_ms=3, end_ms=8))
    assert [one.queue_offset for one in found] == [2, 4, 1]
    query = {
        "topic": "T",
        "key": "k",
        "maxNum": "9",
        "beginTimestamp": "3",
        "endTimestamp": "8",
        "_UNIQUE_KEY_QUERY": "false",
    }
    assert servers.asked(B) == [(12, query)]
    for bad in ("", "two keys"):
        with pytest.raises(ClientError, match="blanks"):
            servers.run(servers.core.messages.by_key("T", bad))
    with pytest.raises(InvalidSetting):
        servers.run(servers.core.messages.by_key("T", "k", limit=0))


@pytest.mark.parametrize("limit", [-1, 0, 2_147_483_647])
def test_limits_that_make_no_sense_are_not_sent(servers: Servers, limit: int) -> None:
    """ADM-01."""
    operations = servers.core.messages
    for flow in (
        operations.by_key("T", "k", limit=limit),
        operations.between("T", limit=limit),
        operations.in_queue(QUEUE, limit=limit),
    ):
        with pytest.raises(InvalidSetting):
            servers.run(flow)
    assert servers.stage.dials == []


def test_a_broker_that_cannot_search_is_no_empty_answer(servers: Servers) -> None:
    servers.answer(A, 12, body=records([stored(KEYS="k")]))
    servers.refuse(B, 12, 1)
    with pytest.raises(BrokerError):
        servers.run(servers.core.messages.by_key("T", "k"))


# --- queues


class Queue:
    """A queue that a broker serves: 11, 29, 30, 31."""

    def __init__(self, peer: Peer, messages: list[MessageExt], low: int = 0) -> None:
        self.messages, self.low, self.high = messages, low, messages[-1].queue_offset + 1
        peer.answers |= {
            11: self.pull,
            29: lambda request: success(request, {"offset": str(self.at_time(int(request.fields["timestamp"])))}),
            30: lambda request: success(request, {"offset": str(self.high)}),
            31: lambda request: success(request, {"offset": str(self.low)}),
        }
        self.stuck = False

    def at_time(self, time: int) -> int:
        """As Apache's brokers, which say the last message when there is none at the time."""
        return next((one.queue_offset for one in self.messages if one.store_time >= time), self.high - 1)

    def pull(self, request: Command) -> bytes:
        at, count = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        found = [one for one in self.messages if at <= one.queue_offset < at + count]
        following = at if self.stuck else found[-1].queue_offset + 1 if found else min(self.high, at + 1)
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(following),
            "minOffset": str(self.low),
            "maxOffset": str(self.high),
        }
        return encode_response(request.opaque, 0 if found else 19, fields, records(found))


def test_one_offset(servers: Servers) -> None:
    queue = Queue(servers.stage.peers[A], [stored(3), stored(5)])
    assert servers.run(servers.core.messages.at(QUEUE, 5)).queue_offset == 5
    for offset in (4, 9):
        with pytest.raises(NoMessage, match="goes on at"):
            servers.run(servers.core.messages.at(QUEUE, offset))
    servers.refuse(A, 11, 16, "no permission, it is forbidden")
    with pytest.raises(BrokerError):
        servers.run(servers.core.messages.at(QUEUE, 5))
    with pytest.raises(NoRoute):
        servers.run(servers.core.messages.at(MessageQueue("T", "elsewhere", 0), 5))
    assert queue.high == 6


def test_scans(servers: Servers) -> None:
    messages = [stored(number, time=number * 10, TAGS="a" if number % 2 else "b") for number in range(70)]
    Queue(servers.stage.peers[A], messages)
    scan = servers.core.messages.in_queue
    assert [one.queue_offset for one in servers.run(scan(QUEUE))] == list(range(70))
    assert [fields["maxMsgNums"] for code, fields in servers.asked(A) if code == 11] == ["32", "32", "32"]
    assert [one.queue_offset for one in servers.run(scan(QUEUE, 100, 130))] == [10, 11, 12]
    assert [one.queue_offset for one in servers.run(scan(QUEUE, 100, 130, tags="a"))] == [11]
    assert [one.queue_offset for one in servers.run(scan(QUEUE, limit=3))] == [0, 1, 2]
    assert servers.run(scan(QUEUE, 691)) == []
    assert [one.queue_offset for one in servers.run(scan(QUEUE, 690, 691))] == [69]
    servers.stage.peers[A].got.clear()
    assert [one.queue_offset for one in servers.run(scan(QUEUE, None, 20))] == [0, 1]
    assert len([code for code, _ in servers.asked(A) if code == 11]) == 1, "nothing is fetched past the time"
    with pytest.raises(InvalidExpressionError):
        servers.run(scan(QUEUE, tags="||"))
    with pytest.raises(InvalidSetting):
        servers.run(scan(QUEUE, limit=100_001))


def test_a_broker_that_does_not_move_on_ends_the_scan(servers: Servers) -> None:
    queue = Queue(servers.stage.peers[A], [stored(number) for number in range(70)])
    queue.stuck = True
    assert len(servers.run(servers.core.messages.in_queue(QUEUE))) == 32


def test_all_queues_of_a_topic_share_one_limit(servers: Servers) -> None:
    Queue(servers.stage.peers[A], [stored(number) for number in range(3)])
    Queue(servers.stage.peers[B], [stored(number) for number in range(3)])
    found = servers.run(servers.core.messages.between("T", limit=7))
    assert [(one.broker_name, one.queue_offset) for one in found] == [*[("a", 0), ("a", 1), ("a", 2)] * 2, ("b", 0)]


# --- what became of them


def track(servers: Servers, message: MessageExt, offset: int = 9, **changes: Any) -> list[MessageTrack]:
    """The tracks of a message for a group `g` that is online with an offset."""
    servers.add("%RETRY%g", "a")
    facts: dict[str, Any] = {
        "consume_type": ConsumeType.CONSUME_PASSIVELY,
        "message_model": MessageModel.CLUSTERING,
        **changes,
    }
    tags = facts.pop("tags", [])
    subscription = SubscriptionData("T", "", tags=tags)
    servers.answer(A, 300, body=GroupList(["g"]).to_json())
    servers.answer(B, 300, body=GroupList().to_json())
    servers.answer(A, 203, body=ConsumerConnection([ClientConnection("x")], {"T": subscription}, **facts).to_json())
    servers.answer(A, 208, body=ConsumeStats({QUEUE: ConsumeOffsets(9, offset)} if offset else {}).to_json())
    found: list[MessageTrack] = servers.run(servers.core.messages.tracks(message))
    return found


def test_tracks(servers: Servers) -> None:
    message = stored(3, TAGS="red")
    message.broker_name = "a"
    assert track(servers, message) == [MessageTrack("g", TrackType.CONSUMED)]
    assert track(servers, message, 3) == [MessageTrack("g", TrackType.NOT_CONSUME_YET)]
    assert track(servers, message, 0) == [MessageTrack("g", TrackType.NOT_CONSUME_YET)]
    assert track(servers, message, tags=["red", "blue"]) == [MessageTrack("g", TrackType.CONSUMED)]
    assert track(servers, message, tags=["*"]) == [MessageTrack("g", TrackType.CONSUMED)]
    assert track(servers, message, tags=["blue"]) == [MessageTrack("g", TrackType.CONSUMED_BUT_FILTERED)]
    assert track(servers, message, consume_type=ConsumeType.CONSUME_ACTIVELY) == [MessageTrack("g", TrackType.PULL)]
    (broadcast,) = track(servers, message, message_model=MessageModel.BROADCASTING)
    assert (broadcast.type, broadcast.reason) == (TrackType.UNKNOWN, "its members keep their offsets themselves")


def test_tracks_of_who_is_not_there_or_fails(servers: Servers) -> None:
    servers.brokers["a"].addresses[0] = HOST
    servers.add("T", "a")
    servers.answer(HOST, 300, body=GroupList(["g", "h"]).to_json())
    servers.add("%RETRY%g", "a")

    def members(request: Command) -> bytes:
        return refused(request, 206 if request.fields["consumerGroup"] == "g" else 1, "broken")

    servers.stage.peers[HOST].answers[203] = members
    servers.add("%RETRY%h", "a")
    one, other = servers.run(servers.core.messages.tracks(stored()))
    assert (one.type, one.reason) == (TrackType.NOT_ONLINE, "nobody is online")
    assert (other.type, "broken" in other.reason) == (TrackType.UNKNOWN, True)


def test_a_broker_that_has_left_has_no_offsets(servers: Servers) -> None:
    assert track(servers, stored(3)) == [MessageTrack("g", TrackType.NOT_CONSUME_YET)]


def test_no_group_no_track(servers: Servers) -> None:
    for address in (A, B):
        servers.answer(address, 300, body=GroupList().to_json())
    assert servers.run(servers.core.messages.tracks(stored())) == []


def test_a_member_consumes_a_message_now(servers: Servers) -> None:
    result = ConsumeDirectlyResult(result=DirectConsumeResult.CR_LATER, spent_ms=4)
    servers.answer(HOST, 309, body=result.to_json())
    assert servers.run(servers.core.messages.push("g", "x", stored())) == result
    assert servers.asked(HOST) == [(309, {"consumerGroup": "g", "clientId": "x", "msgId": stored().offset_msg_id})]


def test_a_half_message_is_checked_again(servers: Servers) -> None:
    servers.run(servers.core.messages.resume_check(stored().offset_msg_id))
    assert servers.asked(HOST) == [(323, {"msgId": stored().offset_msg_id})]
    servers.refuse(HOST, 323, 1)
    with pytest.raises(BrokerError):
        servers.run(servers.core.messages.resume_check(stored().offset_msg_id))


def test_entries_of_a_queue(servers: Servers) -> None:
    servers.answer(
        A, 321, body=b'{"queueData":[{"physicOffset":3,"physicSize":4,"tagsCode":5,"eval":true}],"maxQueueIndex":9}'
    )
    dump = servers.run(servers.core.messages.entries(A, QUEUE, 7, 2, group="g"))
    assert (dump.entries[0].physical_offset, dump.entries[0].matches, dump.max_index) == (3, True, 9)
    assert servers.asked(A) == [(321, {"topic": "T", "queueId": "0", "index": "7", "count": "2", "consumerGroup": "g"})]
    with pytest.raises(InvalidSetting):
        servers.run(servers.core.messages.entries(A, QUEUE, 0, 0))
