"""Fast sends beside the flows that they stand for: the same bytes, the same outcomes, whatever happens."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqproto.codec import Command, encode_response
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.client.node import ClientNode
from mqproto.state.flows.tasks import FastCall
from mqproto.state.node.contract import Buffer, Link, Ticket
from mqproto.state.producer import fast_answers
from mqproto.state.producer.fast_answers import SendAnswer, read_send_answer
from mqproto.state.producer.fast_send import TOPIC_TEMPLATES_MAX, FastSend
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode
from tests.golden.golden import VERSIONS, Golden
from tests.mqproto.state.stage import NS, Stage, broker, name_server, route, success

SEND = RequestCode.SEND_MESSAGE_V2
TOPIC = "orders"
GO_AWAY, BUSY, FLUSH_TIMEOUT = 1500, 2, 10


class World:
    """A producer, two brokers that do what they are told, and a note of every byte that the node sent."""

    def __init__(self, fast: bool, node_settings: dict[str, Any] | None = None, **producer_settings: Any) -> None:
        self.stage = Stage(**(node_settings or {}))
        self.sent: list[tuple[str, bytes]] = []
        self.mood = "apache"
        self.offset = 0
        #: What brokers have not answered yet.
        self.held: list[tuple[str, Command]] = []
        self.stage.peers[NS] = name_server(dict.fromkeys([TOPIC, "ns1%" + TOPIC], route("a=a:1", "b=b:1")))
        for address in ("a:1", "b:1"):
            peer = self.stage.peers[address] = broker()
            peer.answers[SEND] = partial(self._answer, address)
        node = self.stage.node
        self.core = node.add_producer(ProducerSettings("pg%1", send_timeout_ms=500, **producer_settings), 0)
        if not fast:
            node._fast_sends[self.core]._usual = False
        take = node.data_to_send

        def data_to_send(link: Link) -> list[Buffer]:
            buffers = take(link)
            self.sent.append((link.address, b"".join(buffers)))
            return buffers

        node.data_to_send = data_to_send  # type: ignore[method-assign]
        self.stage.begin()
        self.tickets: list[Ticket[SendResult]] = []
        for _ in range(4):  # route and links of both brokers are there before the first step
            self.send(Message(TOPIC, b"first"))

    def _answer(self, address: str, request: Command) -> bytes | None:
        queue, self.offset = request.fields["e"], self.offset + 1
        match self.mood:
            case "silent":
                self.held.append((address, request))
                return None
            case "apache" | "five" | "ours" | "other queue":
                return taken(self.mood, request.opaque, queue if self.mood != "other queue" else "1", self.offset)
            case "unread":
                return success(request, {"msgId": "AA"})
            case mood:
                fields = {"msgId": "AA", "queueId": queue, "queueOffset": "7"}
                return encode_response(request.opaque, int(mood), fields, remark="so it is")

    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        for_callback: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        node, now = self.stage.node, self.stage.now
        self.tickets.append(
            node.send(self.core, message, now, queue=queue, timeout_ms=timeout_ms, for_callback=for_callback)
        )
        self.stage.settle()

    def step(self, what: str, argument: Any) -> None:
        match what:
            case "mood":
                self.mood = argument
            case "send":
                self.send(**argument)
            case "pass":
                self.stage.advance(argument)
            case "answer":
                self.mood, held, self.held = argument, self.held, []
                for address, request in held:
                    if address in self.stage.links and (answer := self._answer(address, request)):
                        self.stage.receive(address, answer)
            case "cut":
                if argument in self.stage.links:
                    self.stage.cut(argument)
            case "cancel":
                self.stage.node.cancel(self.tickets[-1], self.stage.now)
                self.stage.settle()
            case "leave":
                self.stage.start(self.stage.node.remove_producer(self.core, self.stage.now))
            case "route":
                self.stage.peers[NS] = name_server({TOPIC: route("b=b:1", "a=a:1", queues=argument)})
                self.stage.advance(30_000)

    def state(self) -> tuple[Any, ...]:
        """All that can be seen from outside."""
        window = self.core.window
        outcomes = [
            (ticket.settled, repr(ticket.failure or ticket.result())) if ticket.settled else (False, "")
            for ticket in self.tickets
        ]
        return (
            self.sent,
            outcomes,
            (window.messages, window.size, window.waiting),
            list(self.stage.node.notices),
            self.stage.hung_up,
        )


def taken(kind: str, opaque: int, queue: str, offset: int) -> bytes:
    """The answer to a send, member by member as brokers write it."""
    if kind == "ours":
        fields = {
            "msgId": "0B" * 16,
            "queueId": queue,
            "queueOffset": str(offset),
            "MSG_REGION": "R1",
            "TRACE_ON": "false",
        }
        return encode_response(opaque, 0, fields)
    first = f'"TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"{"0A" * 16}"'
    if kind == "five":
        first = f'"transactionId":"{"0C" * 16}","msgId":"{"0A" * 16}","TRACE_ON":"false","MSG_REGION":""'
    header = (
        f'{{"code":0,"extFields":{{"queueId":"{queue}",{first},"queueOffset":"{offset}"}},"flag":1,"language":"JAVA",'
        f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":399}}'
    ).encode()
    return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


texts = st.text(st.sampled_from('aZ09 %"\\äß€😀\x1f'), max_size=6)
messages = st.builds(
    Message,
    topic=st.sampled_from([TOPIC, TOPIC, TOPIC, TOPIC, "nowhere", "bad topic", "%RETRY%g", "SCHEDULE_TOPIC_XXXX"]),
    body=st.sampled_from([b"x", b"\0" * 100, b"", b"long" * 2000]),
    tags=st.none() | texts,
    keys=st.just(()) | texts | st.lists(texts, max_size=2),
    properties=st.just({}) | st.dictionaries(texts | st.sampled_from(["WAIT", "k"]), texts, max_size=2),
    flag=st.sampled_from([0, 0, 0, 5]),
    delay_level=st.sampled_from([0, 0, 3, -1]),
    wait=st.booleans(),
)
plain_messages = st.builds(Message, topic=st.just(TOPIC), body=st.sampled_from([b"x", b"yy"]))
queues = st.none() | st.builds(
    MessageQueue, st.sampled_from([TOPIC, "other"]), st.sampled_from(["a", "b", "gone"]), st.integers(0, 3)
)
steps = st.one_of(
    st.tuples(
        st.just("mood"),
        st.sampled_from(["apache", "five", "ours", "other queue", "silent", "unread", "1500", "2", "10", "14", "1"]),
    ),
    st.tuples(
        st.just("send"),
        st.fixed_dictionaries(
            {
                "message": plain_messages | messages,
                "queue": st.none() | queues,
                "for_callback": st.booleans(),
                "timeout_ms": st.sampled_from([None, None, 100, 0]),
            }
        ),
    ),
    st.tuples(st.just("pass"), st.sampled_from([1, 50, 600])),
    st.tuples(st.just("cut"), st.sampled_from(["a:1", "b:1"])),
    st.tuples(st.sampled_from(["cancel", "leave"]), st.none()),
    st.tuples(st.just("route"), st.sampled_from([1, 3])),
)
kinds: list[dict[str, Any]] = [
    {},
    {"send_window_messages": 2},
    {"retry_another_broker_when_not_store_ok": True},
    {"latency_fault_tolerance": True},
    {"attempt_timeout_ms": 400},
    {"node_settings": {"namespace": "ns1"}},
    {"node_settings": {"unit_mode": True}},
]


def one(queue: MessageQueue | None = None, for_callback: bool = False, **message: Any) -> tuple[str, Any]:
    """A step that sends."""
    return "send", {
        "message": Message(TOPIC, b"x", **message),
        "queue": queue,
        "for_callback": for_callback,
        "timeout_ms": None,
    }


SEND_ONE = one()
AT_A = MessageQueue(TOPIC, "a", 1)


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(kinds), story=st.lists(steps, max_size=12))
@example(
    kind={}, story=[("mood", "silent"), SEND_ONE, SEND_ONE, ("cut", "a:1"), ("pass", 600), ("mood", "ours"), SEND_ONE]
)
@example(kind={}, story=[("mood", "1500"), SEND_ONE, ("mood", "five"), SEND_ONE])
@example(kind={}, story=[("mood", "silent"), SEND_ONE, ("cancel", None), ("pass", 600)])
@example(kind={}, story=[("mood", "silent"), SEND_ONE, one(wait=False), ("pass", 600)])
@example(
    kind={},
    story=[
        ("mood", "silent"),
        one(AT_A),
        one(AT_A, True),
        one(None, True),
        ("cut", "a:1"),
        ("answer", "14"),
        ("pass", 600),
    ],
)
@example(kind={}, story=[("mood", "silent"), SEND_ONE, ("leave", None), SEND_ONE, ("answer", "other queue"), SEND_ONE])
@example(
    kind={"send_window_messages": 2}, story=[("mood", "silent"), *4 * [SEND_ONE], ("answer", "apache"), ("pass", 600)]
)
@example(
    kind={"node_settings": {"namespace": "ns1"}},
    story=[one(tags="t"), SEND_ONE, ("mood", "silent"), one(tags="t"), ("answer", "1")],
)
@example(kind={"node_settings": {"in_flight_limit": 2}}, story=[("mood", "silent"), *4 * [SEND_ONE], ("pass", 600)])
@example(kind={"attempt_timeout_ms": 400}, story=[("mood", "silent"), SEND_ONE, ("pass", 600), SEND_ONE])
def test_a_fast_send_is_what_its_flow_would_be(kind: dict[str, Any], story: list[tuple[str, Any]]) -> None:
    worlds = World(True, **kind), World(False, **kind)
    for what, argument in story:
        for world in worlds:
            world.step(what, argument)
        assert worlds[0].state() == worlds[1].state(), what
        fast = worlds[0].stage.node
        assert fast._fast_open == sum(
            isinstance(caller, FastCall) for link in fast.all_links() for caller in link.calls.values()
        )
    for world in worlds:
        world.stage.advance(2_000)
        world.stage.node.close(world.stage.now)
        world.stage.settle().advance(5_000)
    assert worlds[0].state() == worlds[1].state(), "the end"
    for world in worlds:
        assert all(ticket.settled for ticket in world.tickets)
        assert (world.core.window.messages, world.core.window.size) == (0, 0)
        node: ClientNode = world.stage.node
        assert not node._tasks
        assert not node.calls.open
        assert (node._open, node._fast_open) == (0, 0)


@pytest.mark.parametrize("mood", ["apache", "five", "ours", "other queue"])
def test_the_usual_send_needs_no_flow(mood: str) -> None:
    world = World(True)
    world.mood = "silent"
    world.send(Message(TOPIC, b"x", tags="t", keys="k"), for_callback=True)
    node = world.stage.node
    [send] = node.application_tickets()
    assert type(send) is FastSend
    [request] = world.stage.peers["a:1"].of(SEND)[-1:]
    world.stage.receive("a:1", taken(mood, request.opaque, request.fields["e"], 12))
    assert world.tickets[-1] is send
    assert send.result().queue_offset == 12
    assert not node._tasks, "and no flow has taken its place"


@pytest.mark.parametrize("mood", ["apache", "five", "ours"])
def test_answers_are_read_the_same_however_many_calls_were_made(mood: str) -> None:
    answers = [read_send_answer(taken(mood, opaque, "3", 12)[4:]) for opaque in (0, 2**31 - 1)]
    assert answers[0] is not None
    assert answers[1] == (2**31 - 1, *answers[0][1:])


def test_an_answer_in_two_reads_and_with_others_behind_it() -> None:
    world = World(True)
    world.mood = "silent"
    for body in (b"1", b"2", b"3", b"4"):
        world.send(Message(TOPIC, body))
    requests = world.stage.peers["b:1"].of(SEND)[-2:]
    stream = b"".join(taken("apache", request.opaque, request.fields["e"], at) for at, request in enumerate(requests))
    world.stage.receive("b:1", stream[:70]).receive("b:1", stream[70:] + b"\xff\xff\xff\xff")
    results = [ticket.result().queue_offset for ticket in world.tickets[4:] if ticket.settled]
    assert results == [0, 1]
    assert world.stage.hung_up[0][0] == "b:1"


def test_templates_of_many_topics_do_not_pile_up() -> None:
    world = World(True)
    names = [f"t{number}" for number in range(TOPIC_TEMPLATES_MAX + 10)]
    for name in names:
        world.stage.node.routes.update(name, route("a=a:1"))
        world.send(Message(name, b"x"))
    assert all(ticket.settled and ticket.failure is None for ticket in world.tickets)
    assert len(world.stage.node._fast_sends[world.core]._topic_templates) <= TOPIC_TEMPLATES_MAX


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_apache_brokers_are_the_usual_ones(golden: Golden, version: str) -> None:
    """A release that orders its fields in another way would cost time and nothing else: this tells which releases do
    not.
    """
    found = [(answer, read_send_answer(answer.frame[4:])) for answer in golden.json_answers(version, SEND)]
    assert len(found) > 10
    usual = fast_answers._USUAL_5 if version >= "5" else fast_answers._USUAL_4
    for answer, match in found:
        assert match is not None, answer.frame
        assert usual.fullmatch(answer.frame, 8), "the quick way"
        taken = SendAnswer(*match)
        assert taken.opaque == answer.opaque
        assert str(taken.offset) == answer.fields["queueOffset"]
        assert (str(taken.queue_id), taken.offset_msg_id) == (answer.fields["queueId"], answer.fields["msgId"])
        assert (taken.region, taken.trace_on) == (answer.fields["MSG_REGION"], answer.fields["TRACE_ON"] == "true")
        assert taken.transaction_id == answer.fields.get("transactionId")
