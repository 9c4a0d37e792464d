"""What consumers that are asked for messages send agrees with Java's, field by field: captures pull and litepull of three releases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from mqproto.bodies import ConsumerData, HeartbeatData
from mqproto.codec import Command, decode, encode_response
from mqproto.codes import RequestCode
from mqproto.message import PullStatus
from mqproto.state.client import ClientNode
from mqproto.state.handout import Claim
from mqproto.state.lite_pull import LitePullCore
from mqproto.state.pull_consumer import PullConsumerCore
from mqproto.state.pull_settings import LitePullSettings, PullConsumerSettings
from mqproto.state.settings import ClientSettings
from tests.golden.golden import Exchange, Golden
from tests.mqproto.state.consumers import FIRST
from tests.mqproto.state.stage import IDENTITY, NS, Peer, Stage, success

BROKER = "127.0.0.1:10911"
#: 5.x has a code of its own for pulls of this kind, and a limit in bytes; brokers of all releases take 11 without it.
LITE_PULL = 361
NEWER = frozenset({"maxMsgBytes"})
#: 4.4 says neither that a client pulls nor which broker a request is for; servers of all releases take both.
LATER = frozenset({"ReqT", "bname"})

Question = tuple[int, frozenset[tuple[str, str]]]


def question(code: int, fields: Mapping[str, str], without: frozenset[str] = frozenset()) -> Question:
    code = RequestCode.PULL_MESSAGE if code == LITE_PULL else code
    return code, frozenset((name, text) for name, text in fields.items() if name not in without | NEWER)


class Recorded:
    """Apache's name server and broker, as far as one scenario has them, and a stage on which our client meets them."""

    def __init__(self, golden: Golden, version: str, name: str) -> None:
        own = {one.connection for one in golden.capture(version, name) if one.event == "open" and one.link.startswith("client-")}
        exchanges = [one for one in golden.exchanges(version, name) if one.request.connection in own and one.request.direction == ">"]
        self.theirs = [one.request for one in exchanges]
        self.without = LATER if version == "4.4.0" else frozenset[str]()
        self.stage = Stage(ClientNode(ClientSettings(name_servers=(NS,), stream=True), IDENTITY))
        for address, link in ((NS, "client-namesrv"), (BROKER, "client-broker")):
            peer = self.stage.peers[address] = Peer()
            there = [one for one in exchanges if one.request.link == link and one.answer is not None]
            for code in {one.request.code for one in there} | {RequestCode.PULL_MESSAGE}:
                peer.answers[code] = Answers(there, self.without)
            peer.answers[RequestCode.UNREGISTER_CLIENT] = success
        self.stage.begin()

    def asked(self, codes: Iterable[int]) -> tuple[set[Question], set[Question]]:
        """What Java asked and what we asked, of these codes."""
        wanted = {*codes}
        theirs = {question(one.code, one.fields, self.without) for one in self.theirs}
        ours = {question(one.code, one.fields, self.without) for peer in self.stage.peers.values() for one in peer.got}
        return {one for one in theirs if one[0] in wanted}, {one for one in ours if one[0] in wanted}

    def consumers(self) -> tuple[ConsumerData, ConsumerData]:
        """Java's part of its last heartbeat and ours."""
        theirs = [HeartbeatData.from_json(bytes(one.body)) for one in self.theirs if one.code == RequestCode.HEART_BEAT]
        ours = [HeartbeatData.from_json(bytes(one.body)) for one in self.stage.peers[BROKER].of(RequestCode.HEART_BEAT)]
        return theirs[-1].consumers[0], ours[-1].consumers[0]

    def run(self, flow: Any) -> Any:
        return self.stage.run(flow)


class Answers:
    """The recorded answer to the same request; none where there was none."""

    def __init__(self, exchanges: list[Exchange], without: frozenset[str]) -> None:
        self._exchanges = exchanges
        self._without = without

    def __call__(self, request: Command) -> bytes | None:
        asked = question(request.code, request.fields, self._without)
        for one in self._exchanges:
            same = question(one.request.code, one.request.fields, self._without) == asked
            if one.answer is not None and (same or request.code == RequestCode.HEART_BEAT):
                answer = decode(one.answer.frame[4:])
                return encode_response(request.opaque, answer.code, answer.fields, answer.body, remark=answer.remark)
        return None


def bodies(golden: Golden, version: str, name: str) -> list[bytes]:
    """Bodies of the messages that Java's program printed, in its order."""
    lines = [json.loads(line) for line in golden.printed(version, name).splitlines() if line.startswith("{")]
    return [line["body"].encode() for line in lines if "body" in line]


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.3.3"])
def test_a_pull_consumer_sends_what_javas_sends(golden: Golden, version: str) -> None:
    recorded = Recorded(golden, version, "pull")
    consumer = PullConsumerCore(recorded.stage.node, PullConsumerSettings("golden-pull"), "face")
    recorded.run(consumer.start(0))
    found: list[bytes] = []
    for queue in recorded.run(consumer.fetch_queues("Orders", 0)):
        offset = recorded.run(consumer.min_offset(queue, 0))
        while True:
            pulled = recorded.run(consumer.pull(queue, "TagB", offset, 32, "TAG", False, None, 0))
            found += [message.body for message in pulled.messages]
            offset = pulled.next_begin_offset
            if pulled.status in (PullStatus.NO_NEW_MSG, PullStatus.OFFSET_ILLEGAL):
                break
    assert sorted(found) == sorted(bodies(golden, version, "pull"))
    theirs, ours = recorded.asked({RequestCode.PULL_MESSAGE, RequestCode.GET_MIN_OFFSET})
    assert ours == theirs
    recorded.stage.advance(2_000)
    told_by_java, told = recorded.consumers()
    assert told == told_by_java


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_lite_pull_consumer_sends_what_javas_sends(golden: Golden, version: str) -> None:
    recorded = Recorded(golden, version, "litepull")
    members = next(one for one in recorded.theirs if one.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    own_id = f'{{"consumerIdList":["{recorded.stage.node.client_id}"]}}'.encode()
    recorded.stage.peers[BROKER].answers[members.code] = lambda request: success(request, body=own_id)
    consumer = LitePullCore(recorded.stage.node, LitePullSettings("golden-lite", consume_from_where=FIRST), "face")
    consumer.subscribe("Orders", "*", "TAG", None, 0)
    recorded.run(consumer.start(0))
    found: list[bytes] = []
    while messages := recorded.run(consumer.poll(Claim(), 0, None, 0)):
        found += [message.body for message in messages]
    assert set(bodies(golden, version, "litepull")) <= set(found), "it stopped when it had enough"
    theirs, ours = recorded.asked({RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_CONSUMER_LIST_BY_GROUP})
    assert ours == theirs
    recorded.run(consumer.shutdown(0))
    theirs, ours = recorded.asked({RequestCode.UPDATE_CONSUMER_OFFSET})
    assert {strip(one) for one in ours} == {strip(one) for one in theirs}, "how far each was is a matter of time"
    told_by_java, told = recorded.consumers()
    told_by_java.subscriptions[0].version = told.subscriptions[0].version
    assert told == told_by_java


def strip(asked: Question) -> Question:
    code, fields = asked
    return code, frozenset((name, text) for name, text in fields if name != "commitOffset")
