"""The client node: who is asked what, and when."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from mqproto.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ResetOffsets,
    SubscriptionData,
)
from mqproto.codec import Command, encode_response
from mqproto.codes import VERSION, RequestCode, ResponseCode
from mqproto.errors import (
    BrokerError,
    CallExpired,
    ConnectionLost,
    InvalidSetting,
    NoNameServer,
    NoRoute,
    SendFailed,
    StateError,
    TooManyRequests,
)
from mqproto.message import Message, MessageExt, MessageQueue, SendStatus
from mqproto.record import encode_record
from mqproto.state import runner
from mqproto.state.client import ClientNode, client_id
from mqproto.state.client_requests import STACKS_MAX
from mqproto.state.flows import Call, Expired, Flow, Refresh, Sleep, Wait, Work
from mqproto.state.node import Ticket
from mqproto.state.runner import DialledLink
from mqproto.state.settings import ClientIdentity, ClientSettings, ProducerSettings, parse_addresses
from tests.mqproto.state.stage import IDENTITY, NS, TOPIC, Peer, Stage, broker, name_server, refused, route, stage_with, success

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BEAT = RequestCode.HEART_BEAT
GONE = RequestCode.UNREGISTER_CLIENT


class Consumer:
    """A consumer that only takes notes."""

    def __init__(self, node: ClientNode, group: str = "cg", topics: tuple[str, ...] = (TOPIC,)) -> None:
        self.node = node
        self.group = group
        self._topics = topics
        self.seen: list[tuple[Any, ...]] = []
        self.answers: list[Callable[[bytes, int], None]] = []
        self.shutdown_ms = 0

    def heartbeat_data(self) -> ConsumerData:
        subscriptions = [SubscriptionData(topic, "*") for topic in self._topics]
        return ConsumerData(
            self.group, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, subscriptions
        )

    def topics(self) -> tuple[str, ...]:
        return self._topics

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        self.seen.append(("queues", topic, len(queues), now))

    def consumer_ids_changed(self, now: int) -> None:
        self.seen.append(("ids", now))

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        self.seen.append(("reset", topic, dict(offsets)))

    def offsets(self) -> Mapping[MessageQueue, int]:
        return {MessageQueue(TOPIC, "a", 0): 5, MessageQueue("other", "a", 0): 6}

    def running_info(self, now: int) -> bytes:
        return b'{"properties":{}}'

    def consume_directly(self, message: MessageExt, broker_name: str, answer: Callable[[bytes, int], None], now: int) -> None:
        self.seen.append(("direct", message.body, message.topic, broker_name))
        self.answers.append(answer)

    def consumed(self, task: Any, result: Any, now: int) -> None:
        self.seen.append(("consumed", result))

    def shutdown(self, now: int) -> Flow[None]:
        if self.shutdown_ms:
            _, now = yield Sleep(now + self.shutdown_ms)
        self.seen.append(("shutdown", now))
        yield from self.node.remove_consumer(self, now)


# --- a send from end to end


def test_a_first_send_finds_its_way() -> None:
    stage, core = stage_with("a=a:1")
    result = stage.run(core.send(Message(TOPIC, b"paid"), 0))
    assert result.status is SendStatus.SEND_OK
    assert stage.dials == [NS, "a:1"]
    assert stage.peers[NS].codes() == [ROUTE]
    assert stage.peers["a:1"].codes() == [BEAT, SEND], "a new link begins with a heartbeat"
    sent = stage.peers["a:1"].got[1]
    assert (sent.version, bytes(sent.body)) == (VERSION, b"paid")
    stage.run(core.send(Message(TOPIC, b"again"), 0))
    assert stage.dials == [NS, "a:1"]
    assert stage.peers[NS].codes() == [ROUTE]


def test_a_topic_is_created_by_its_first_message() -> None:
    stage, core = stage_with("a=a:1")
    routes = {"TBW102": route("a=a:1", queues=8)}
    stage.peers[NS] = name_server(routes)
    assert stage.run(core.send(Message("new", b"x"), 0)).queue == MessageQueue("new", "a", 0)
    assert [request.fields["topic"] for request in stage.peers[NS].of(ROUTE)] == ["new", "TBW102"]
    routes["new"] = route("a=a:1", queues=1)
    stage.advance(30_000)
    assert {stage.run(core.send(Message("new", b"x"), stage.now)).queue.queue_id for _ in range(5)} == {0}


def test_announcements() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    beat = HeartbeatData.from_json(bytes(stage.peers["a:1"].of(BEAT)[0].body))
    assert (beat.client_id, beat.producers, beat.consumers) == ("10.0.0.7@4711#1", ["pg"], [])
    assert stage.node.routes.versions == {"a:1": VERSION}


# --- routes


def test_routes_are_polled() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert len(stage.peers[NS].got) == 1
    stage.advance(10)
    assert len(stage.peers[NS].got) == 2, "first after 10 ms"
    stage.advance(29_999)
    assert len(stage.peers[NS].got) == 2
    stage.advance(1)
    assert len(stage.peers[NS].got) == 3
    stage.peers[NS] = name_server({TOPIC: route("a=a:1", queues=9)})
    stage.advance(30_000)
    info = stage.node.routes.publish(TOPIC)
    assert info is not None
    assert len(info.queues) == 9


def test_flows_that_need_the_same_route_share_one_request() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers[NS].answers.clear()
    tickets = [stage.start(core.send(Message(TOPIC, b"x"), 0)) for _ in range(5)]
    short = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=100))
    assert stage.peers[NS].codes() == [ROUTE]
    stage.advance(100)
    with pytest.raises(CallExpired):
        short.result()
    request = stage.peers[NS].got[0]
    stage.receive(NS, success(request, body=route("a=a:1").to_json()))
    assert all(ticket.result().status is SendStatus.SEND_OK for ticket in tickets)


def test_consumers_hear_of_changed_routes() -> None:
    stage, core = stage_with("a=a:1")
    consumer = Consumer(stage.node)
    stage.node.add_consumer(consumer)
    stage.advance(10)
    assert consumer.seen == [("queues", TOPIC, 2, 10)]
    stage.advance(60_000)
    assert len(consumer.seen) == 1
    stage.peers[NS] = name_server({TOPIC: route("a=a:1", queues=4)})
    stage.advance(30_000)
    assert consumer.seen[1:] == [("queues", TOPIC, 4, 90_010)], "PRO-08: the topic that is used both ways is fresh on both sides"
    assert len(stage.run(core.publish_queues(TOPIC, stage.now))) == 4


def test_a_topic_without_route() -> None:
    stage, core = stage_with("a=a:1")
    with pytest.raises(NoRoute):
        stage.run(core.send(Message("unknown", b"x"), 0))


# --- time-outs, lost links


def test_a_broker_that_never_answers() -> None:
    """PRO-03."""
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers.clear()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    stage.advance(299)
    assert not ticket.settled
    stage.advance(1)
    with pytest.raises(SendFailed) as caught:
        ticket.result()
    assert [attempt.address for attempt in caught.value.attempts] == ["a:1"]
    assert caught.value.attempts[0].cost_ms == 300
    stage.advance(10_000)
    assert len(stage.peers["a:1"].of(SEND)) == 1, "nothing starts after the deadline"


def test_a_silent_link_ends_with_its_call_and_the_next_call_dials_anew() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers.clear()
    short = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    stage.advance(100)
    other = stage.start(core.send(Message(TOPIC, b"y"), stage.now, timeout_ms=1000))
    stage.peers["a:1"].answers = broker().answers
    stage.advance(200)
    assert short.failure is not None
    assert ("a:1", "no answer in time") in stage.hung_up
    assert other.result().status is SendStatus.SEND_OK, "its first attempt was lost with the link, its second went by the new one"
    assert stage.dials.count("a:1") == 2


def test_a_link_that_brings_other_answers_stays() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers.clear()
    slow = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    stage.advance(100)
    stage.peers["a:1"].answers = broker().answers
    stage.run(core.send(Message(TOPIC, b"y"), stage.now))
    stage.advance(200)
    assert isinstance(slow.failure, SendFailed)
    assert stage.hung_up == []


def test_late_and_doubled_answers_reach_nobody() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    first = peer.of(SEND)[0]
    peer.answers.clear()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    second = peer.of(SEND)[1]
    answer = success(second, {"msgId": "AA", "queueId": "1", "queueOffset": "9"})
    stage.receive("a:1", success(first, {"msgId": "AA", "queueId": "1", "queueOffset": "5"}))
    assert not ticket.settled
    stage.receive("a:1", answer + answer)
    assert ticket.result().queue_offset == 9
    stage.receive("a:1", answer)


def test_a_broker_that_dies_in_mid_send() -> None:
    stage, core = stage_with("a=a:1", "b=b:1")
    stage.peers["a:1"].answers.clear()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    stage.peers.pop("a:1")
    stage.cut("a:1")
    assert ticket.result().queue.broker_name == "b"


def test_every_call_of_a_reset_link_ends_once() -> None:
    """COD-11: a server that accepts, then resets; 1,000 async sends, at most 100 in flight."""
    stage, core = stage_with("a=a:1", in_flight_limit=100)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers.clear()
    woken: list[int] = []
    tickets: list[Ticket[Any]] = []
    for number in range(1000):
        ticket: Ticket[Any] = stage.node.start(core.send_async(Message(TOPIC, b"x"), 0), 0)
        ticket.wake = partial(woken.append, number)
        tickets.append(ticket)
        stage.settle()
    assert sum(isinstance(ticket.failure, TooManyRequests) for ticket in tickets) == 900
    stage.peers.pop("a:1")
    stage.cut("a:1")
    assert sorted(woken) == list(range(1000))
    assert all(isinstance(ticket.failure, SendFailed | TooManyRequests) for ticket in tickets)
    assert len(stage.node.calls) == 0
    assert stage.node.application_tickets() == []
    stage.peers["a:1"] = broker()
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK


def test_nothing_is_sent_for_a_call_that_expired_while_its_link_was_dialled() -> None:
    stage, core = stage_with("a=a:1")
    stage.dark.add("a:1")
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=300))
    other = stage.start(core.send_oneway(Message(TOPIC, b"one"), 0, timeout_ms=5000))
    lost = stage.start(core.send_oneway(Message(TOPIC, b"two"), 0, timeout_ms=200))
    stage.advance(300)
    assert isinstance(ticket.failure, SendFailed)
    assert isinstance(lost.failure, SendFailed)
    assert not other.settled
    stage.dark.clear()
    stage.connect(stage.links["a:1"])
    stage.settle()
    assert other.result() is None
    assert [bytes(request.body) for request in stage.peers["a:1"].of(SEND)] == [b"one"]


def test_sends_leave_nothing_behind() -> None:
    """PRO-07: sends of all kinds and ends, and the number of objects stays as it was."""
    stage, core = stage_with("a=a:1")
    peer = stage.peers["a:1"]

    def play(count: int) -> None:
        for number in range(count):
            message = Message(TOPIC, b"x")
            peer.answers[SEND] = answers if number % 3 else lambda request: refused(request, 13)
            stage.start(core.send(message, stage.now))
            stage.start(core.send_async(message, stage.now))
            stage.run(core.send_oneway(message, stage.now))
            peer.answers.pop(SEND)
            stage.start(core.send(message, stage.now, timeout_ms=5))
            stage.node.cancel(stage.start(core.send(message, stage.now)), stage.now)
            stage.advance(5)
            peer.got.clear()
            for trace in (stage.dials, stage.hung_up, stage.node.notices):
                trace.clear()

    answers = peer.answers[SEND]
    play(100)
    gc.collect()
    before = len(gc.get_objects())
    play(500)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_refused_connections_are_tried_within_the_attempts() -> None:
    stage, core = stage_with("a=a:1")
    del stage.peers["a:1"]
    with pytest.raises(SendFailed) as caught:
        stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert caught.value.code == 10001
    assert stage.dials == [NS, "a:1", "a:1", "a:1"]


def test_bytes_that_are_no_frames_end_the_link() -> None:
    stage, core = stage_with("a=a:1", "b=b:1")
    stage.peers["a:1"].answers.clear()
    ticket = stage.start(core.send(Message(TOPIC, b"x"), 0))
    stage.receive("a:1", b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert stage.hung_up[0][0] == "a:1"
    assert ticket.result().queue.broker_name == "b"
    assert any("a:1" in notice for notice in stage.node.notices)


def test_a_broker_that_asks_to_go_away_gets_the_call_again_by_a_new_link() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.clear()
    pending = stage.start(core.send(Message(TOPIC, b"pending"), 0))
    leaving = stage.links["a:1"]
    moved = stage.start(core.send(Message(TOPIC, b"moved"), 0))
    peer.answers = broker().answers
    stage.receive("a:1", refused(peer.of(SEND)[2], ResponseCode.GO_AWAY))
    assert moved.result().status is SendStatus.SEND_OK
    assert stage.dials.count("a:1") == 2
    assert stage.hung_up == [], "the other call may still be answered"
    stage.node.received(leaving, success(peer.of(SEND)[1], {"msgId": "A", "queueId": "0", "queueOffset": "3"}), 0)
    stage.settle()
    assert pending.result().queue_offset == 3
    assert stage.hung_up == [("a:1", "the peer asked us to go away")]


def test_the_only_name_server_may_ask_to_go_away_too() -> None:
    """It is dialled anew, as a broker is."""
    stage, core = stage_with("a=a:1")
    answer = stage.peers[NS].answers[ROUTE]
    stage.peers[NS].answers[ROUTE] = lambda request: refused(request, ResponseCode.GO_AWAY) if stage.dials == [NS] else answer(request)
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK
    assert stage.dials == [NS, NS, "a:1"]


def test_a_broker_that_keeps_sending_calls_away_is_not_asked_for_ever() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers[SEND] = lambda request: refused(request, ResponseCode.GO_AWAY)
    with pytest.raises(BrokerError) as caught:
        stage.run(core.send(Message(TOPIC, b"x"), 0))
    assert caught.value.code == 1500
    assert len(stage.peers["a:1"].of(SEND)) == 2


# --- heartbeats


def test_heartbeats_go_to_masters_and_with_a_consumer_to_slaves_too() -> None:
    stage = Stage()
    stage.peers[NS] = name_server({TOPIC: route("a=a:1", slaves={"a": "a:2"})})
    stage.peers |= {"a:1": broker(), "a:2": broker()}
    core = stage.node.add_producer(ProducerSettings(group="pg"), 0)
    stage.begin()
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.advance(1000)
    assert (len(stage.peers["a:1"].of(BEAT)), len(stage.peers["a:2"].of(BEAT))) == (2, 0)
    stage.node.add_consumer(Consumer(stage.node))
    stage.advance(30_000)
    assert (len(stage.peers["a:1"].of(BEAT)), len(stage.peers["a:2"].of(BEAT))) == (3, 1)
    beat = HeartbeatData.from_json(bytes(stage.peers["a:2"].of(BEAT)[0].body))
    assert [consumer.group for consumer in beat.consumers] == ["cg"]
    assert beat.consumers[0].subscriptions[0].topic == TOPIC


def test_nothing_is_sent_without_producers_and_consumers() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.run(stage.node.remove_producer(core, 0))
    count = len(stage.peers["a:1"].of(BEAT))
    stage.advance(90_000)
    assert len(stage.peers["a:1"].of(BEAT)) == count
    assert stage.node.heartbeat(stage.now).settled


def test_a_change_during_a_heartbeat_is_told_at_once() -> None:
    """A skipped heartbeat left Java's consumers out of step with their broker for 25 s."""
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.clear()
    first = stage.node.heartbeat(0)
    stage.settle()
    stage.node.add_consumer(Consumer(stage.node))
    others = [stage.node.heartbeat(0) for _ in range(3)]
    stage.settle()
    assert len(peer.of(BEAT)) == 2
    stage.receive("a:1", success(peer.of(BEAT)[1]))
    assert first.settled
    assert len(peer.of(BEAT)) == 3, "one for all who asked meanwhile"
    assert not any(ticket.settled for ticket in others)
    assert HeartbeatData.from_json(bytes(peer.of(BEAT)[2].body)).consumers
    later = stage.node.heartbeat(0)
    stage.settle()
    assert len(peer.of(BEAT)) == 3, "one at a time"
    stage.receive("a:1", success(peer.of(BEAT)[2]))
    assert all(ticket.settled for ticket in others)
    stage.receive("a:1", success(peer.of(BEAT)[3]))
    assert later.settled


def test_heartbeats_that_fail_are_noted_and_do_not_stop_the_others() -> None:
    stage, core = stage_with("a=a:1", "b=b:1", "c=c:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["b:1"].answers[BEAT] = lambda request: refused(request, 1, "not now")
    del stage.peers["c:1"]
    ticket = stage.node.heartbeat(0)
    stage.settle()
    assert ticket.settled
    assert [notice for notice in stage.node.notices if "not now" in notice]
    assert [notice for notice in stage.node.notices if "c:1" in notice]
    assert "b:1" not in stage.node.routes.versions


def test_brokers_that_no_route_names_are_forgotten() -> None:
    stage, core = stage_with("a=a:1", "b=b:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.advance(1000)
    stage.peers[NS] = name_server({TOPIC: route("a=a:1")})
    stage.advance(60_000)
    assert stage.node.routes.all_addresses() == ["a:1"]
    count = len(stage.peers["b:1"].of(BEAT))
    stage.advance(200_000)
    assert len(stage.peers["b:1"].of(BEAT)) == count
    assert ("b:1", "idle") in stage.hung_up
    assert "b:1" not in stage.node.links


def test_a_heartbeat_that_has_nothing_to_say_any_more_is_not_sent() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.pop(BEAT)
    stage.node.heartbeat(0)
    following = stage.node.heartbeat(0)
    stage.settle()
    stage.run(stage.node.remove_producer(core, 0))
    stage.receive("a:1", success(peer.of(BEAT)[1]))
    assert following.settled
    assert len(peer.of(BEAT)) == 2


def test_a_farewell_that_is_refused_is_noted() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers[GONE] = lambda request: refused(request, 1, "stay")
    stage.run(stage.node.remove_producer(core, 0))
    assert any("stay" in notice for notice in stage.node.notices)


def test_a_slow_round_of_polling_is_not_overtaken_by_the_next() -> None:
    stage, core = stage_with("a=a:1", poll_name_server_interval_ms=1000)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers[NS].answers.clear()
    stage.advance(500)
    tasks = len(stage.node._tasks)
    stage.advance(2_000)
    assert len(stage.peers[NS].of(ROUTE)) == 2
    assert len(stage.node._tasks) == tasks


def test_routes_may_be_asked_for_from_outside() -> None:
    stage = Stage(name_servers=()).begin()
    for _ in range(2):
        ticket = stage.node.refresh(TOPIC, 0)
        assert isinstance(ticket.result(), NoNameServer)


# --- requests of brokers


def linked_consumer() -> tuple[Stage, Consumer, Peer]:
    stage, core = stage_with("a=a:1")
    consumer = Consumer(stage.node)
    stage.node.add_consumer(consumer)
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
        stage.request("a:1", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, ResetOffsets(offsets).to_json(), oneway=True)
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
    stage.node.stacks = lambda: "main: in listen\n" + "x" * STACKS_MAX
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
    stage, consumer, peer = linked_consumer()
    stage.request("a:1", 9999, {})
    assert (peer.got[-1].code, peer.got[-1].remark) == (3, " request type 9999 not supported")
    stage.request("a:1", RequestCode.GET_CONSUMER_RUNNING_INFO, {})
    assert peer.got[-1].code == 1
    assert "consumerGroup" in str(peer.got[-1].remark)
    stage.request("a:1", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": TOPIC, "group": "cg"}, b"{")
    assert peer.got[-1].code == 1
    stage.request("a:1", RequestCode.CHECK_TRANSACTION_STATE, {"tranStateTableOffset": "1", "commitLogOffset": "2"}, oneway=True)
    assert "request 39 of a:1 cannot be read" in stage.node.notices[-1]
    assert consumer.seen == []
    assert stage.hung_up == []


# --- flows


def calling(address: str, deadline: int) -> Flow[object]:
    outcome, _ = yield Call(address, SEND, {"e": "0"}, b"x", deadline)
    return outcome


def test_a_call_whose_time_is_up_is_not_made() -> None:
    stage, _ = stage_with("a=a:1")
    stage.now = 5
    assert stage.run(calling("a:1", 5)) == Expired("a:1", 0)
    assert stage.dials == []


def test_a_link_with_a_call_in_flight_is_not_idle() -> None:
    stage = Stage().begin()
    stage.peers["x:1"] = Peer()
    ticket = stage.start(calling("x:1", 400_000))
    stage.advance(300_000)
    assert stage.hung_up == []
    stage.receive("x:1", success(stage.peers["x:1"].got[0]))
    assert isinstance(ticket.result(), Command)
    stage.advance(150_000)
    assert stage.hung_up == [("x:1", "idle")]


def test_flows_that_start_flows_do_not_nest() -> None:
    stage = Stage().begin()
    ended: list[int] = []

    def chain(left: int) -> Flow[None]:
        if left:
            stage.node.spawn(chain(left - 1), 0)
        ended.append(left)
        yield Sleep(0)

    stage.run(chain(3_000))
    assert len(ended) == 3_001


def test_cancelled_operations() -> None:
    stage, core = stage_with("a=a:1")
    stage.peers["a:1"].answers.clear()
    sending = stage.start(core.send(Message(TOPIC, b"x"), 0))
    stage.peers[NS].answers.clear()
    looking = stage.start(core.send(Message("other", b"x"), 0))

    def sleeping() -> Flow[None]:
        yield Sleep(10)

    asleep = stage.start(sleeping())
    for ticket in (sending, looking, asleep):
        stage.node.cancel(ticket, 0)
        stage.node.cancel(ticket, 0)
        assert isinstance(ticket.failure, StateError)
    stage.settle()
    assert len(stage.node.calls) == 2, "look-up and heartbeat are the node's own"
    request = stage.peers["a:1"].of(SEND)[0]
    stage.receive("a:1", success(request, {"msgId": "A", "queueId": "0", "queueOffset": "0"}))
    stage.advance(4000)
    assert stage.node.application_tickets() == []
    stage.node.cancel(Ticket(), 0)


def test_waiting_for_tickets() -> None:
    stage = Stage().begin()
    bell: Ticket[None] = Ticket()

    def waiting(deadline: int | None) -> Flow[tuple[bool, int]]:
        _, now = yield Wait(bell, deadline)
        return bell.settled, now

    patient = stage.start(waiting(None))
    impatient = stage.start(waiting(5))
    stage.advance(5)
    assert impatient.result() == (False, 5)
    assert not patient.settled
    stage.node.wake(bell, 7)
    stage.node.wake(bell, 8)
    assert patient.result() == (True, 7)
    assert stage.run(waiting(None)) == (True, 5)


def test_a_flow_that_fails_tells_whoever_waits() -> None:
    stage = Stage().begin()

    def failing() -> Flow[None]:
        yield Sleep(1)
        raise ValueError("broken")

    ticket = stage.start(failing())
    stage.node.spawn(failing(), 0)
    stage.advance(1)
    with pytest.raises(ValueError, match="broken"):
        ticket.result()
    assert any("broken" in notice for notice in stage.node.notices)


def test_an_operation_that_no_frame_can_carry_fails_alone() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    core.settings.max_message_size = 1 << 24
    core.settings.compress_body_over = 1 << 25
    ticket = stage.start(core.send(Message(TOPIC, b"x" * (1 << 24)), 0))
    assert ticket.failure is not None
    assert "16777216" in str(ticket.failure) or "frame" in str(ticket.failure)
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK


def test_one_way_sends_to_a_peer_that_reads_nothing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "UNSENT_MAX", 100_000)
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    outcomes: list[BaseException | None] = []
    for _ in range(40):
        ticket = stage.node.start(core.send_oneway(Message(TOPIC, b"x" * 4000), 0), 0)
        outcomes.append(ticket.failure)
    refusals = [failure for failure in outcomes if isinstance(failure, TooManyRequests)]
    assert 10 <= len(refusals) <= 20
    assert outcomes[:20] == [None] * 20
    stage.node.heartbeat(0)
    stage.settle()
    assert len(stage.peers["a:1"].of(BEAT)) == 2, "the node's own requests still go"
    stage.run(core.send_oneway(Message(TOPIC, b"x"), 0))


def test_an_interrupt_inside_a_flow_leaves_no_ticket_open() -> None:
    stage = Stage().begin()

    def interrupted() -> Flow[None]:
        yield Sleep(1)
        raise KeyboardInterrupt

    ticket = stage.start(interrupted())
    with pytest.raises(KeyboardInterrupt):
        stage.advance(1)
    assert isinstance(ticket.failure, KeyboardInterrupt)
    assert stage.node.application_tickets() == []
    assert stage.start(iter_once()).result() == 1


def iter_once() -> Flow[int]:
    yield Sleep(0)
    return 1


def test_life_cycle_operations_are_not_limited() -> None:
    stage, core = stage_with("a=a:1", in_flight_limit=1)
    stage.peers[NS].answers.clear()
    stage.start(core.send(Message(TOPIC, b"x"), 0))
    assert isinstance(stage.start(iter_once()).failure, TooManyRequests)
    assert stage.node.start(iter_once(), 0, limited=False).result() == 1


class Job:
    """A job that somebody else runs."""

    def run(self) -> None: ...


def test_jobs_of_flows() -> None:
    stage = Stage().begin()
    stage.runs_jobs = False

    def working() -> Flow[Exception | None]:
        failure, _ = yield Work(Job())
        return failure  # type: ignore[no-any-return]

    first, second, third = (stage.start(working()) for _ in range(3))
    jobs: list[Any] = [action.job for action in stage.delivered]  # type: ignore[attr-defined]
    stage.node.done(jobs[0], None, 1)
    stage.node.done(jobs[1], OSError("disk"), 2)
    stage.node.cancel(third, 3)
    stage.node.done(jobs[2], None, 4)
    stage.node.done(Job(), None, 5)
    assert first.result() is None
    assert isinstance(second.result(), OSError)


# --- the end


def test_close_says_goodbye() -> None:
    """client.md 1.2: consumers first, then the producers' groups, then the links."""
    stage, core = stage_with("a=a:1")
    consumer = Consumer(stage.node)
    stage.node.add_consumer(consumer)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.node.close(5)
    stage.node.close(5)
    stage.settle().advance(0)
    assert stage.node.ended
    farewells = [request.fields for request in stage.peers["a:1"].of(GONE)]
    assert farewells == [{"clientID": "10.0.0.7@4711#1", "consumerGroup": "cg"}, {"clientID": "10.0.0.7@4711#1", "producerGroup": "pg"}]
    assert {address for address, _ in stage.hung_up} == {NS, "a:1"}
    assert stage.node.next_deadline() is None
    assert consumer.seen[-1] == ("shutdown", 5)
    refusal = stage.start(core.send(Message(TOPIC, b"x"), 5))
    assert isinstance(refusal.failure, StateError)
    assert isinstance(stage.node.spawn(core.send(Message(TOPIC, b"x"), 5), 5).failure, StateError)
    with pytest.raises(StateError):
        stage.node.add_producer(ProducerSettings(group="other"), 5)
    stage.node.timer(99_999)


def test_close_waits_for_operations_in_flight_but_not_for_ever() -> None:
    """CON-14."""
    stage, core = stage_with("a=a:1", close_timeout_ms=2000)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    answers, peer.answers = peer.answers, {}
    quick = stage.start(core.send(Message(TOPIC, b"quick"), 0))
    stuck = stage.start(core.send(Message(TOPIC, b"stuck"), 0, timeout_ms=60_000))
    consumer = Consumer(stage.node)
    consumer.shutdown_ms = 500
    stage.node.add_consumer(consumer)
    stage.node.close(0)
    stage.settle()
    peer.answers = answers
    stage.receive("a:1", success(peer.of(SEND)[1], {"msgId": "A", "queueId": "0", "queueOffset": "0"}))
    assert quick.result().status is SendStatus.SEND_OK
    stage.advance(1999)
    assert consumer.seen == [("shutdown", 500)]
    early = stage.node.ended
    stage.advance(1)
    assert (early, stage.node.ended) == (False, True)
    assert isinstance(stuck.failure, StateError)
    assert stage.node.next_deadline() is None
    assert stage.links == {}


def test_an_operation_that_is_due_when_the_end_comes_ends_once() -> None:
    stage, core = stage_with("a=a:1", close_timeout_ms=1000)
    stage.dark.add("a:1")
    late = stage.start(core.send(Message(TOPIC, b"x"), 0, timeout_ms=1001))
    stage.node.close(0)
    stage.settle()
    stage.now = 2000
    stage.node.timer(2000)
    assert isinstance(late.failure, StateError)
    assert stage.node.ended


def test_close_with_a_silent_broker_is_bounded() -> None:
    stage, core = stage_with("a=a:1", close_timeout_ms=1000)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.peers["a:1"].answers.clear()
    stage.node.close(0)
    stage.settle().advance(1000)
    assert stage.node.ended
    assert stage.peers["a:1"].codes().count(GONE) == 1


def test_brokers_that_never_heard_of_us_are_not_told_that_we_leave() -> None:
    stage, core = stage_with("a=a:1", "b=b:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.node.close(5)
    stage.settle().advance(0)
    assert stage.node.ended
    assert stage.dials == [NS, "a:1"]


def test_close_before_anything_began() -> None:
    stage = Stage()
    stage.node.close(0)
    stage.settle().advance(0)
    assert stage.node.ended
    assert stage.dials == []


def test_one_producer_leaves_the_others() -> None:
    """PRO-08."""
    stage, core = stage_with("a=a:1")
    other = stage.node.add_producer(ProducerSettings(group="other"), 0)
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    stage.run(stage.node.remove_producer(core, 0))
    stage.run(stage.node.remove_producer(core, 0))
    assert [request.fields["producerGroup"] for request in stage.peers["a:1"].of(GONE)] == ["pg"]
    assert isinstance(stage.start(core.send(Message(TOPIC, b"x"), 0)).failure, StateError)
    assert stage.run(other.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK
    stage.node.add_producer(ProducerSettings(group="pg"), 0)


def test_one_producer_and_one_consumer_for_each_group() -> None:
    stage, core = stage_with("a=a:1")
    with pytest.raises(StateError, match="pg"):
        stage.node.add_producer(ProducerSettings(group="pg"), 0)
    consumer = Consumer(stage.node)
    stage.node.add_consumer(consumer)
    with pytest.raises(StateError, match="cg"):
        stage.node.add_consumer(Consumer(stage.node))
    stage.run(consumer.shutdown(0))
    stage.run(consumer.shutdown(0))
    stage.node.add_consumer(Consumer(stage.node))
    assert core.group == "pg"


def test_consumed_goes_to_its_consumer() -> None:
    stage = Stage().begin()
    consumer = Consumer(stage.node)
    stage.node.add_consumer(consumer)

    class Task:
        group = "cg"

    stage.node.consumed(Task(), "done", 1)
    Task.group = "gone"
    stage.node.consumed(Task(), "late", 1)
    assert consumer.seen == [("consumed", "done")]


# --- identity, settings


def test_a_client_that_pulls_says_so_in_every_request() -> None:
    """client.md 9, golden capture litepull: one-way requests and those to name servers too."""
    stage = Stage(stream=True)
    stage.peers[NS] = name_server({"T": route("b=b:1")})
    stage.peers["b:1"] = broker()
    stage.begin()
    producer = stage.node.add_producer(ProducerSettings("g"), 0)
    stage.run(producer.send_oneway(Message("T", b"x"), 0))
    stage.advance(2_000)
    got = stage.peers[NS].got + stage.peers["b:1"].got
    assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT} <= {one.code for one in got}
    assert {one.fields["ReqT"] for one in got} == {"0"}
    assert stage.node.client_id == "10.0.0.7@4711#1@STREAM"


def test_client_ids() -> None:
    assert client_id(IDENTITY) == "10.0.0.7@4711#1"
    assert client_id(IDENTITY, "unit") == "10.0.0.7@4711#1@unit"
    assert client_id(IDENTITY, " ") == "10.0.0.7@4711#1"
    assert client_id(IDENTITY, stream=True) == "10.0.0.7@4711#1@STREAM"
    assert client_id(IDENTITY, "unit", stream=True) == "10.0.0.7@4711#1@unit@STREAM"
    assert client_id(ClientIdentity("::1", 1, "i")) == "[::1]@i"
    assert client_id(ClientIdentity("[::1]", 1, "i")) == "[::1]@i"


def test_address_lists() -> None:
    assert parse_addresses(" a:1; b:2 ;;c:3;") == ("a:1", "b:2", "c:3")
    assert parse_addresses("") == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"name_servers": ("nonsense",)},
        {"name_servers": ("a:0",)},
        {"name_servers": ("a:65536",)},
        {"name_servers": (":1",)},
        {"api_timeout_ms": 0},
        {"in_flight_limit": 0},
        {"max_idle_ms": 1 << 40},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        ClientNode(ClientSettings(**settings), IDENTITY)


def test_a_client_accepts_nobody() -> None:
    assert Stage().node.accept("main", "x:1", "y:1", 0) is None


def test_inputs_for_links_that_are_over_are_harmless() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    link = stage.links["a:1"]
    assert isinstance(link, DialledLink)
    stage.node.drop(link, "test", 0)
    stage.settle()
    stage.node.received(link, encode_response(1, 0, None), 0)
    stage.node.closed(link, "late", 0)
    stage.node.opened(link, 0)
    stage.node.timer(0)
    stage.settle()
    assert stage.run(core.send(Message(TOPIC, b"x"), 0)).status is SendStatus.SEND_OK


def test_refresh_reports_a_link_that_was_lost() -> None:
    stage, _ = stage_with("a=a:1")
    stage.peers[NS] = Peer()

    def refreshing() -> Flow[object]:
        error, _ = yield Refresh(TOPIC, 3000)
        return error

    ticket = stage.start(refreshing())
    stage.cut(NS)
    assert isinstance(ticket.result(), ConnectionLost)


def test_answers_to_requests_may_come_in_one_read_with_them() -> None:
    stage, core = stage_with("a=a:1")
    stage.run(core.send(Message(TOPIC, b"x"), 0))
    peer = stage.peers["a:1"]
    peer.answers.clear()
    tickets = [stage.start(core.send(Message(TOPIC, b"x"), 0)) for _ in range(3)]
    sends = peer.of(SEND)[1:]
    data = b"".join(success(request, {"msgId": "A", "queueId": "0", "queueOffset": str(n)}) for n, request in enumerate(sends))
    stage.receive("a:1", data)
    assert [ticket.result().queue_offset for ticket in tickets] == [0, 1, 2]
