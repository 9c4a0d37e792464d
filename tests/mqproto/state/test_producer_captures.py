"""Our producer through the scenarios that Apache's was recorded in, over the recorded answers: for the same job it sends the same."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto import properties
from mqproto.batch import decode_batch
from mqproto.bodies import TopicRoute
from mqproto.codec import Command, encode
from mqproto.codes import RequestCode
from mqproto.compression import Compression, inflate
from mqproto.flags import COMPRESSED, COMPRESSION_SHIFT
from mqproto.message import Message, MessageQueue, SendResult, SendStatus
from mqproto.properties import KEYS, TAGS, UNIQ_KEY, WAIT
from mqproto.state.flows import Flow
from mqproto.state.settings import ProducerSettings
from tests.golden.golden import FOLLOWED, GOLDEN, Exchange
from tests.mqproto.state.stage import NS, Peer, Stage, success

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
SCENARIOS = ("sync", "async", "oneway", "batch", "compressed", "orderly", "unicode", "auto-create", "lz4", "zstd")
BATCH = RequestCode.SEND_BATCH_MESSAGE
#: What is each program's own: which queue's turn it is, the time, and the id among the properties.
OWN = {"e", "g", "i"}
#: Fields by which the other releases' requests differ from those of the one that we follow: 4.4 names neither broker nor way of packing.
DIFFERS: dict[str, set[str]] = {"4.4.0": {"n", "f"}, "4.9.7": set(), "5.3.3": set()}


def scenarios() -> list[Any]:
    return [
        pytest.param(version, name, id=f"{version}-{name}")
        for version in DIFFERS
        for name in SCENARIOS
        if f"produce-{name}" in GOLDEN.capture_names(version)
    ]


def message(text: str, body: bytes, topic: str, flag: int = 0) -> Message:
    """The message that an application gave, as far as its properties tell."""
    values = properties.decode(text)
    own = {name: value for name, value in values.items() if name not in (KEYS, TAGS, UNIQ_KEY, WAIT, properties.DELAY)}
    return Message(topic, body, values.get(TAGS), values.get(KEYS, ""), own, flag, wait=values.get(WAIT) != "false")


def given(request: Command) -> Message | list[Message]:
    """What the application gave for a recorded request."""
    fields = request.fields
    if request.code == BATCH:
        return [message(one.properties.decode(), one.body, fields["b"], one.flag) for one in decode_batch(request.body)]
    return message(fields["i"], inflate(bytes(request.body), int(fields["f"])), fields["b"], int(fields["h"]))


class Recording:
    """Name server and broker of a scenario: each answers what the recorded one answered to the same question."""

    def __init__(self, version: str, name: str) -> None:
        exchanges = GOLDEN.exchanges(version, f"produce-{name}")
        self.sends = [one for one in exchanges if one.request.code in SENDS]
        self.routes: dict[str, list[Exchange]] = {}
        addresses: set[str] = set()
        for one in exchanges:
            if one.request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                self.routes.setdefault(one.request.fields["topic"], []).append(one)
                if one.answer is not None and one.answer.body:
                    route = TopicRoute.from_json(one.answer.body)
                    addresses |= {address for broker in route.brokers for address in broker.addresses.values()}
        self.stage = Stage()
        name_server = self.stage.peers[NS] = Peer()
        name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.route
        self.broker = Peer()
        for code in SENDS:
            self.broker.answers[code] = self.taken
        self.broker.answers[RequestCode.HEART_BEAT] = success
        self.stage.peers.update(dict.fromkeys(addresses, self.broker))
        self.answers = iter(self.sends)

    def route(self, request: Command) -> bytes:
        known = self.routes[request.fields["topic"]]
        return self._again(known.pop(0) if len(known) > 1 else known[0], request.opaque)

    def taken(self, request: Command) -> bytes | None:
        exchange = next(self.answers)
        return None if exchange.answer is None else self._again(exchange, request.opaque)

    def _again(self, exchange: Exchange, opaque: int) -> bytes:
        assert exchange.answer is not None
        header = exchange.answer.header
        return encode(Command(exchange.answer.code, exchange.answer.fields, exchange.answer.body, opaque, 1, header.get("remark")))


def compression(request: Any) -> Compression:
    flags = int(request.fields["f"])
    kind = Compression((flags >> COMPRESSION_SHIFT) & 7)
    return kind if flags & COMPRESSED and kind else Compression.ZLIB


@pytest.mark.parametrize(("version", "name"), scenarios())
def test_the_same_job_makes_the_same_requests(version: str, name: str) -> None:
    recording = Recording(version, name)
    stage = recording.stage
    first = recording.sends[0].request
    core = stage.node.add_producer(ProducerSettings(first.fields["a"], compress_type=compression(first)), 0)
    stage.begin()
    for exchange in recording.sends:
        recorded = Command(exchange.request.code, exchange.request.fields, exchange.request.body)
        what = given(recorded)
        queue = MessageQueue(recorded.fields["b"], "broker-a", int(recorded.fields["e"])) if name == "orderly" else None
        flow: Flow[Any]
        if isinstance(what, list):
            flow = core.send_batch(what, 0, queue=queue)
        elif exchange.answer is None:
            flow = core.send_oneway(what, 0, queue=queue)
        elif name == "async":
            flow = core.send_async(what, 0, queue=queue)
        else:
            flow = core.send(what, 0, queue=queue)
        outcome: SendResult | None = stage.run(flow)
        sent = recording.broker.of(recorded.code)[-1]
        same(sent, recorded, DIFFERS[version])
        if outcome is not None:
            told(outcome, sent, exchange)


def same(sent: Command, recorded: Command, differs: set[str]) -> None:
    fields = {key: value for key, value in sent.fields.items() if key not in OWN | differs}
    assert fields == {key: value for key, value in recorded.fields.items() if key not in OWN | differs}
    ours, theirs = properties.decode(sent.fields["i"]), properties.decode(recorded.fields["i"])
    assert {**ours, UNIQ_KEY: ""} == {**theirs, UNIQ_KEY: ""}
    if sent.code == BATCH:
        for one, other in zip(decode_batch(sent.body), decode_batch(recorded.body), strict=True):
            assert (one.body, one.flag) == (other.body, other.flag)
            assert properties.decode_bytes(one.properties).keys() == properties.decode_bytes(other.properties).keys()
        return
    flags = int(sent.fields["f"])
    assert inflate(bytes(sent.body), flags) == inflate(bytes(recorded.body), flags)


def told(outcome: SendResult, sent: Command, exchange: Exchange) -> None:
    """The result says what the recorded answer said."""
    assert exchange.answer is not None
    fields = exchange.answer.fields
    assert outcome.status is SendStatus.SEND_OK
    assert (outcome.queue.queue_id, outcome.queue_offset) == (int(fields["queueId"]), int(fields["queueOffset"]))
    assert (outcome.offset_msg_id, outcome.region_id, outcome.trace_on) == (
        fields["msgId"],
        fields["MSG_REGION"],
        fields["TRACE_ON"] == "true",
    )
    if sent.code != BATCH:
        assert outcome.msg_id == properties.decode(sent.fields["i"])[UNIQ_KEY]


def test_all_ways_of_sending_were_recorded_with_the_release_that_we_follow() -> None:
    assert {name for name in SCENARIOS if f"produce-{name}" in GOLDEN.capture_names(FOLLOWED)} == set(SCENARIOS)
