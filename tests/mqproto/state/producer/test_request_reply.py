"""Messages that wait for a reply, and the replies: who is told what, and the one outcome that each has."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command, encode, encode_response
from mqproto.errors import (
    BrokerError,
    CallExpired,
    InvalidMessage,
    NoReplyAddress,
    NoRoute,
    RemoteProtocolError,
    RequestTimeout,
    SendFailed,
    StateError,
    TooManyRequests,
)
from mqproto.message import Message, MessageExt, MessageQueue
from mqproto.replies import ReplyMessage, reply_to
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire import properties
from mqproto.wire.bodies import HeartbeatData
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.compression import Compression, deflate
from tests.golden.golden import Golden
from tests.mqproto.state.stage import NS, WALL, Stage, broker, name_server, refused, route, success

SEND, PUSH, REPLY = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
HEARTBEAT = RequestCode.HEART_BEAT


@pytest.fixture
def stage() -> Stage:
    """The topic is at broker a; broker b is of the same cluster."""
    stage = Stage()
    stage.peers[NS] = name_server({"asked": route("a=a:1"), "c_REPLY_TOPIC": route("a=a:1", "b=b:1", queues=1)})
    for address in ("a:1", "b:1"):
        stage.peers[address] = broker()
    return stage.begin()


def core_of(stage: Stage, **settings: Any) -> ProducerCore:
    return stage.node.add_producer(ProducerSettings(group="pg", **settings), stage.now)


def ask(stage: Stage, core: ProducerCore, body: bytes = b"question", **options: Any) -> Ticket[MessageExt]:
    return stage.start(stage.node.requests.ask(core, Message("asked", body), stage.now, **options))


def sent(stage: Stage, address: str = "a:1") -> list[Command]:
    return stage.peers[address].of(SEND)


def correlation(command: Command) -> str:
    return properties.decode(command.fields["i"])["CORRELATION_ID"]


def push(stage: Stage, correlation_id: str, body: bytes = b"answer", address: str = "a:1", **fields: str) -> Command:
    """The broker hands a reply on; what the client answers to that."""
    given = pushed_fields(correlation_id, **fields)
    peer = stage.peers[address]
    before = len(peer.got)
    stage.request(address, PUSH, given, body)
    return next(command for command in peer.got[before:] if command.is_response)


def pushed_fields(correlation_id: str, **fields: str) -> dict[str, str]:
    return {
        "producerGroup": "replier",
        "topic": "c_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "11",
        "flag": "3",
        "bornHost": "127.0.0.1:4000",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": "22",
        "properties": properties.encode(
            {"CORRELATION_ID": correlation_id, "MSG_TYPE": "reply", "PUSH_REPLY_TIME": "12"}
        ),
        **fields,
    }


def timeless(stage: Stage, address: str = "a:1") -> None:
    """The broker takes messages and never says so."""
    stage.peers[address].answers[SEND] = lambda request: None


# --- asking


def test_a_request_and_its_reply(stage: Stage) -> None:
    """docs/protocol/client.md 3.13: marks on the way out, the body of the responder on the way back (PRO-10)."""
    core = core_of(stage)
    message = Message("asked", b"question", tags="T", properties={"shop": "7"})
    ticket = stage.start(stage.node.requests.ask(core, message, stage.now, timeout_ms=5_000))
    (request,) = sent(stage)
    marks = properties.decode(request.fields["i"])
    assert (marks["REPLY_TO_CLIENT"], marks["TTL"], marks["shop"], marks["TAGS"]) == (
        stage.node.client_id,
        "5000",
        "7",
        "T",
    )
    assert marks["CORRELATION_ID"] != marks["UNIQ_KEY"]
    assert message.properties == {"shop": "7"}
    assert not ticket.settled
    stage.advance(100)
    assert push(stage, marks["CORRELATION_ID"]).code == ResponseCode.SUCCESS
    reply = ticket.result()
    assert (reply.body, reply.topic, reply.flag, reply.born_time, reply.store_time) == (
        b"answer",
        "c_REPLY_TOPIC",
        3,
        11,
        22,
    )
    assert (reply.born_host, reply.store_host) == ("127.0.0.1:4000", "127.0.0.1:10911")
    assert reply.properties["ARRIVE_TIME"] == str(WALL + 100)
    assert reply.properties["CORRELATION_ID"] == marks["CORRELATION_ID"]
    assert len(stage.node.requests) == 0


def test_a_silent_responder(stage: Stage) -> None:
    """PRO-10: one failure, in time, and nothing is left behind; what comes later is dropped."""
    core = core_of(stage)
    ticket = ask(stage, core, timeout_ms=500)
    stage.advance(499)
    assert not ticket.settled
    stage.advance(1)
    with pytest.raises(RequestTimeout) as failed:
        ticket.result()
    assert (failed.value.code, failed.value.topic, failed.value.timeout_ms) == (10006, "asked", 500)
    assert failed.value.correlation_id == correlation(sent(stage)[0])
    assert len(stage.node.requests) == 0
    assert push(stage, failed.value.correlation_id).code == ResponseCode.SUCCESS
    assert "for which nobody waits" in stage.node.notices[-1]


def test_unknown_and_doubled_replies_are_dropped(stage: Stage) -> None:
    """PRO-10."""
    core = core_of(stage)
    ticket, other = ask(stage, core), ask(stage, core)
    assert push(stage, "nobody's").code == ResponseCode.SUCCESS
    first = correlation(sent(stage)[0])
    assert push(stage, first).code == ResponseCode.SUCCESS
    assert push(stage, first, b"again").code == ResponseCode.SUCCESS
    assert push(stage, "", properties="").code == ResponseCode.SUCCESS
    assert ticket.result().body == b"answer"
    assert not other.settled
    assert len(stage.node.requests) == 1
    assert sum("for which nobody waits" in notice for notice in stage.node.notices) == 3


def test_two_replies_in_one_read(stage: Stage) -> None:
    """The second comes before the first has woken anybody: it is dropped all the same."""
    core = core_of(stage)
    ticket = ask(stage, core)
    pushed = pushed_fields(correlation(sent(stage)[0]))
    frames = [encode(Command(PUSH, pushed, body, opaque)) for opaque, body in enumerate((b"first", b"second"))]
    stage.receive("a:1", b"".join(frames))
    assert ticket.result().body == b"first"


def test_a_reply_that_is_faster_than_the_acknowledgement(stage: Stage) -> None:
    timeless(stage)
    core = core_of(stage)
    ticket = ask(stage, core)
    push(stage, correlation(sent(stage)[0]))
    assert ticket.result().body == b"answer"
    assert len(stage.node.calls) == 0, "nobody waits for the acknowledgement any more"
    stage.receive("a:1", success(sent(stage)[0], {"msgId": "AA", "queueId": "0", "queueOffset": "0"}))


def test_a_refused_request_fails_at_once(stage: Stage) -> None:
    """Not at the time-out, and with the cause."""
    stage.peers["a:1"].answers[SEND] = lambda request: refused(request, ResponseCode.NO_PERMISSION, "closed")
    ticket = ask(stage, core_of(stage))
    with pytest.raises(BrokerError, match="closed"):
        ticket.result()
    assert len(stage.node.requests) == 0


def test_a_request_that_no_broker_acknowledges(stage: Stage) -> None:
    """Whether it was sent is unknown then, so it is the send that failed."""
    timeless(stage)
    ticket = ask(stage, core_of(stage), timeout_ms=500)
    stage.advance(500)
    with pytest.raises(SendFailed) as failed:
        ticket.result()
    assert isinstance(failed.value.cause, CallExpired)


def test_a_stored_request_counts_as_sent_whatever_the_status(stage: Stage) -> None:
    stored = {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "0"}
    stage.peers["a:1"].answers[SEND] = lambda request: encode_response(
        request.opaque, ResponseCode.FLUSH_DISK_TIMEOUT, stored
    )
    ticket = ask(stage, core_of(stage))
    push(stage, correlation(sent(stage)[0]))
    assert ticket.result().body == b"answer"


def test_a_lost_link_is_another_attempt(stage: Stage) -> None:
    timeless(stage)
    ticket = ask(stage, core_of(stage))
    stage.cut("a:1")
    first, second = sent(stage)
    assert correlation(first) == correlation(second)
    push(stage, correlation(first))
    assert ticket.result().body == b"answer"


def test_a_given_queue(stage: Stage) -> None:
    core = core_of(stage)
    for _ in range(3):
        ask(stage, core, queue=MessageQueue("asked", "a", 1))
    assert [command.fields["e"] for command in sent(stage)] == ["1"] * 3


def test_what_cannot_be_asked(stage: Stage) -> None:
    core = core_of(stage)
    with pytest.raises(InvalidMessage):
        ask(stage, core, b"").result()
    with pytest.raises(InvalidMessage, match="another one"):
        stage.run(stage.node.requests.ask(core, reply_to(received(), b"x"), stage.now))
    with pytest.raises(NoRoute):
        stage.run(stage.node.requests.ask(core, Message("nowhere", b"x"), stage.now))
    stage.run(stage.node.remove_producer(core, stage.now))
    with pytest.raises(StateError):
        ask(stage, core).result()
    assert sent(stage) == []
    assert len(stage.node.requests) == 0


def test_requests_that_wait_are_bounded() -> None:
    stage = Stage(in_flight_limit=2)
    stage.peers[NS] = name_server({"asked": route("a=a:1")})
    stage.peers["a:1"] = broker()
    core = core_of(stage.begin())
    first, second = ask(stage, core), ask(stage, core)
    assert isinstance(ask(stage, core).failure, TooManyRequests)
    push(stage, correlation(sent(stage)[0]))
    assert first.settled
    third = ask(stage, core)
    assert not second.settled
    assert not third.settled


def test_cancelling_leaves_no_trace(stage: Stage) -> None:
    timeless(stage)
    ticket = ask(stage, core_of(stage))
    assert len(stage.node.calls) == 1
    stage.node.cancel(ticket, stage.now)
    stage.settle()
    assert isinstance(ticket.failure, StateError)
    assert (len(stage.node.requests), len(stage.node.calls)) == (0, 0)
    push(stage, correlation(sent(stage)[0]))
    assert "for which nobody waits" in stage.node.notices[-1]


def test_closing_waits_for_replies(stage: Stage) -> None:
    ticket, late = ask(stage, core_of(stage)), ask(stage, stage.node.producers.by_group["pg"], timeout_ms=60_000)
    stage.node.close(stage.now)
    stage.settle()
    push(stage, correlation(sent(stage)[0]))
    assert ticket.result().body == b"answer"
    stage.advance(stage.node.settings.close_timeout_ms)
    assert isinstance(late.failure, StateError)
    assert stage.node.ended
    assert (len(stage.node.requests), len(stage.node.calls)) == (0, 0)


def test_closing_gives_up_what_was_not_even_sent(stage: Stage) -> None:
    timeless(stage)
    ticket = ask(stage, core_of(stage), timeout_ms=60_000)
    stage.node.close(stage.now)
    stage.settle().advance(stage.node.settings.close_timeout_ms)
    assert isinstance(ticket.failure, StateError)
    assert stage.node.ended
    assert (len(stage.node.requests), len(stage.node.calls)) == (0, 0)


# --- replies


def test_a_compressed_reply(stage: Stage) -> None:
    body = b"at length " * 1000
    packed, flag = deflate(body, Compression.ZLIB, 5)
    ticket = ask(stage, core_of(stage))
    push(stage, correlation(sent(stage)[0]), packed, sysFlag=str(flag))
    assert (ticket.result().body, ticket.result().sys_flag) == (body, 0)


def test_a_reply_whose_body_cannot_be_read(stage: Stage) -> None:
    """Java hands the packed bytes to the application; a failure says what is wrong."""
    ticket = ask(stage, core_of(stage))
    assert push(stage, correlation(sent(stage)[0]), b"no zlib", sysFlag="1").code == ResponseCode.SUCCESS
    with pytest.raises(RemoteProtocolError):
        ticket.result()


@pytest.mark.parametrize(
    ("host", "shown"), [("[::1]:4000", "[::1]:4000"), ("/127.0.0.1:4", "127.0.0.1:4"), ("here", "0.0.0.0:0")]
)
def test_hosts_of_a_reply(stage: Stage, host: str, shown: str) -> None:
    ticket = ask(stage, core_of(stage))
    push(stage, correlation(sent(stage)[0]), bornHost=host)
    assert ticket.result().born_host == shown


def test_a_push_that_cannot_be_read_is_refused(stage: Stage) -> None:
    ticket = ask(stage, core_of(stage))
    assert push(stage, correlation(sent(stage)[0]), queueId="none").code == ResponseCode.SYSTEM_ERROR
    assert not ticket.settled
    push(stage, correlation(sent(stage)[0]))
    assert ticket.settled, "the link goes on"


# --- brokers that have to know us


def test_every_broker_of_the_cluster_is_told_of_us_first(stage: Stage) -> None:
    """Whoever replies may do so by any broker of the cluster, which finds us by our heartbeat."""
    core = core_of(stage)
    ask(stage, core)
    for address in ("a:1", "b:1"):
        beats = [HeartbeatData.from_json(bytes(command.body)) for command in stage.peers[address].of(HEARTBEAT)]
        assert [(beat.client_id, beat.producers) for beat in beats] == [(stage.node.client_id, ["pg"])]
    assert stage.peers["a:1"].codes().index(HEARTBEAT) < stage.peers["a:1"].codes().index(SEND)
    ask(stage, core)
    assert len(stage.peers["b:1"].of(HEARTBEAT)) == 1
    assert [command.fields["topic"] for command in stage.peers[NS].got].count("c_REPLY_TOPIC") == 1
    assert "c_REPLY_TOPIC" in stage.node.wanted_topics()


def test_a_broker_that_was_not_met_yet_though_the_route_is_known(stage: Stage) -> None:
    """A send has fetched the route and met one broker; Apache's client would greet the other one half a minute
    later.
    """
    stage.peers[NS].answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: (
        success(request, body=route("a=a:1", "b=b:1").to_json())
        if request.fields["topic"] == "asked"
        else refused(request, ResponseCode.TOPIC_NOT_EXIST)
    )
    core = core_of(stage)
    stage.run(core.send(Message("asked", b"x"), stage.now, queue=MessageQueue("asked", "a", 0)))
    assert "b:1" not in stage.links
    ask(stage, core, queue=MessageQueue("asked", "a", 0))
    assert len(stage.peers["b:1"].of(HEARTBEAT)) == 1


def test_a_broker_whose_heartbeat_is_on_the_way(stage: Stage) -> None:
    """The link is there, but whether the broker has read what it is told on it is not known yet."""
    answer = stage.peers["a:1"].answers.pop(HEARTBEAT)
    core = core_of(stage)
    stage.run(core.send(Message("asked", b"x"), stage.now))
    stage.peers["a:1"].answers[HEARTBEAT] = answer
    ask(stage, core)
    assert len(sent(stage)) == 1
    stage.receive("a:1", success(stage.peers["a:1"].of(HEARTBEAT)[0]))
    assert len(sent(stage)) == 2


def test_a_broker_that_is_down_costs_a_second_once(stage: Stage) -> None:
    del stage.peers["b:1"]
    stage.dark.add("b:1")
    core = core_of(stage)
    stage.run(core.send(Message("asked", b"x"), stage.now))
    ticket = ask(stage, core, timeout_ms=10_000)
    stage.advance(999)
    assert len(sent(stage)) == 1
    stage.advance(1)
    assert len(sent(stage)) == 2
    ask(stage, core)
    assert len(sent(stage)) == 3, "the next one does not wait again"
    push(stage, correlation(sent(stage)[1]))
    assert ticket.settled


def test_a_short_request_keeps_half_of_its_time(stage: Stage) -> None:
    del stage.peers["b:1"]
    stage.dark.add("b:1")
    core = core_of(stage)
    ask(stage, core, timeout_ms=200)
    stage.advance(100)
    assert len(sent(stage)) == 1


def test_a_topic_that_does_not_exist_yet(stage: Stage) -> None:
    """Its queues come from the template, and so does the cluster."""
    stage.peers[NS].answers.clear()
    known = {"TBW102": route("a=a:1"), "c_REPLY_TOPIC": route("b=b:1")}
    stage.peers[NS] = name_server(known)
    core = core_of(stage)
    stage.start(stage.node.requests.ask(core, Message("new", b"x"), stage.now))
    assert len(sent(stage)) == 1
    assert len(stage.peers["b:1"].of(HEARTBEAT)) == 1


# --- replying


def received(**others: str) -> MessageExt:
    given = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "10.0.0.9@1", "TTL": "3000", "CLUSTER": "c", **others}
    return MessageExt("asked", b"question", {name: value for name, value in given.items() if value})


def test_a_reply_goes_by_the_topic_of_the_cluster(stage: Stage) -> None:
    stage.peers["a:1"].answers[REPLY] = stage.peers["a:1"].answers[SEND]
    stage.peers["b:1"].answers[REPLY] = stage.peers["a:1"].answers[SEND]
    core = core_of(stage)
    reply = reply_to(received(), b"answer")
    reply.properties["shop"] = "7"
    stage.run(core.send(reply, stage.now))
    stage.run(core.send_async(reply, stage.now))
    stage.run(core.send_oneway(reply, stage.now))
    replies = stage.peers["a:1"].of(REPLY) + stage.peers["b:1"].of(REPLY)
    assert len(replies) == 3
    props = properties.decode(replies[0].fields["i"])
    assert replies[0].fields["b"] == "c_REPLY_TOPIC"
    assert props.pop("UNIQ_KEY")
    assert props == {
        "shop": "7",
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "10.0.0.9@1",
        "TTL": "3000",
    }


def test_replies_belong_to_no_namespace() -> None:
    """The topic is the cluster's: Java wraps it, and then whether a reply arrives depends on who may create topics."""
    stage = Stage(namespace="ns")
    stage.peers[NS] = name_server({"ns%asked": route("a=a:1"), "c_REPLY_TOPIC": route("a=a:1", "b=b:1")})
    for address in ("a:1", "b:1"):
        stage.peers[address] = broker()
        stage.peers[address].answers[REPLY] = stage.peers[address].answers[SEND]
    core = core_of(stage.begin())
    ticket = ask(stage, core)
    assert sent(stage)[0].fields["b"] == "ns%asked"
    assert len(stage.peers["b:1"].of(HEARTBEAT)) == 1
    push(stage, correlation(sent(stage)[0]))
    assert ticket.result().body == b"answer"
    stage.run(core.send(reply_to(received(), b"answer"), stage.now))
    (reply,) = stage.peers["a:1"].of(REPLY) + stage.peers["b:1"].of(REPLY)
    assert (reply.fields["b"], "INSTANCE_ID" in properties.decode(reply.fields["i"])) == ("c_REPLY_TOPIC", False)


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_a_message_that_cannot_be_replied_to(missing: str) -> None:
    with pytest.raises(NoReplyAddress, match=missing) as refusal:
        reply_to(received(**{missing: ""}), b"answer")
    assert (refusal.value.code, refusal.value.missing) == (10007, missing)
    assert "TTL" not in reply_to(received(TTL=""), b"answer").wire_properties()


def test_a_reply_is_checked_and_travels_alone(stage: Stage) -> None:
    core = core_of(stage)
    with pytest.raises(InvalidMessage, match="empty"):
        stage.run(core.send(reply_to(received(), b""), stage.now))
    with pytest.raises(InvalidMessage, match="batch"):
        stage.run(core.send_batch([reply_to(received(), b"answer")], stage.now))
    with pytest.raises(InvalidMessage, match="bytes 1 and 2"):
        stage.run(core.send(ReplyMessage("c_REPLY_TOPIC", b"x", tags="\x01"), stage.now))


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_pushes_of_every_release(golden: Golden, stage: Stage, version: str) -> None:
    """Recorded pushes, as they came: their bodies reach who asked."""
    pushes = [entry for entry in golden.capture(version, "request-reply") if entry.is_request and entry.code == PUSH]
    assert pushes
    core = core_of(stage)
    for entry in pushes:
        ticket = ask(stage, core)
        asked = correlation(sent(stage)[-1])
        recorded = properties.decode(entry.fields["properties"])["CORRELATION_ID"]
        waiting = stage.node.requests._waiting
        waiting[recorded] = waiting[asked]
        stage.receive("a:1", entry.frame)
        assert ticket.result().body.startswith(b"reply to question-")
        assert stage.peers["a:1"].got[-1].code == ResponseCode.SUCCESS
        del waiting[recorded]
