"""A broadcasting consumer asks brokers and name servers for what Apache's client asked in a recorded run, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqproto.bodies import MessageModel
from mqproto.codec import Command
from mqproto.codes import RequestCode
from tests.golden.golden import FOLLOWED, Entry, Golden
from tests.mqproto.state.consumers import FIRST, File, make
from tests.mqproto.state.scripted_broker import Cluster
from tests.mqproto.state.stage import NS

#: Differs in every run.
NEVER_EQUAL = {"subVersion"}
HEARTBEAT, PULL, GONE = int(RequestCode.HEART_BEAT), int(RequestCode.PULL_MESSAGE), int(RequestCode.UNREGISTER_CLIENT)


def requests_of_one_member(golden: Golden) -> list[Entry]:
    """What the first member of the group asked the broker for."""
    requests = [
        entry
        for entry in golden.capture(FOLLOWED, "consume-broadcast")
        if entry.link == "client-broker" and entry.direction == ">" and entry.is_request
    ]
    member = next(entry.connection for entry in requests if entry.code == PULL)
    return [entry for entry in requests if entry.connection == member]


@pytest.fixture
def ours(golden: Golden) -> list[Command]:
    """The same by our consumer: two queues with a message each, consumed, then the end."""
    cluster = Cluster("broker-a")
    cluster.topic("News")
    cluster.stage.begin()
    consumer = make(cluster, "News", group="golden-news", file=File(), message_model=MessageModel.BROADCASTING, consume_from_where=FIRST)
    for queue_id in (0, 1):
        cluster.put("News", b"message", queue_id=queue_id, tag="TagN")
    cluster.start(consumer)
    cluster.answer_all()
    cluster.advance(20_000)  # until pulls follow that know of consumed messages
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    assert {request.fields["topic"] for request in cluster.stage.peers[NS].got} == {"News"}
    return cluster.broker.peer.got


def fields_of(requests: list[Any], code: int) -> set[frozenset[tuple[str, str]]]:
    return {
        frozenset((name, value) for name, value in one.fields.items() if name not in NEVER_EQUAL) for one in requests if one.code == code
    }


def test_the_same_kinds_of_requests(golden: Golden, ours: list[Command]) -> None:
    """No list of members, no lock, no question about offsets, no commit."""
    assert {one.code for one in ours} == {one.code for one in requests_of_one_member(golden)} == {HEARTBEAT, PULL, GONE}


def test_the_same_pulls(golden: Golden, ours: list[Command]) -> None:
    theirs = fields_of(requests_of_one_member(golden), PULL)
    assert fields_of(ours, PULL) == {one for one in theirs if dict(one)["queueOffset"] in "01"}


def test_the_same_heartbeats(golden: Golden, ours: list[Command]) -> None:
    """But for the inner producer, which we do not announce before it sends."""
    told = []
    for requests in (requests_of_one_member(golden), ours):
        body = json.loads(bytes(next(one.body for one in requests if one.code == HEARTBEAT)))
        (consumer,) = body["consumerDataSet"]
        (subscription,) = consumer["subscriptionDataSet"]
        del subscription["subVersion"]
        told.append((body.keys(), consumer))
    assert told[0] == told[1]


def test_the_same_farewell(golden: Golden, ours: list[Command]) -> None:
    theirs = [one.fields for one in requests_of_one_member(golden) if one.code == GONE and "consumerGroup" in one.fields]
    (mine,) = (one.fields for one in ours if one.code == GONE)
    assert mine.keys() == theirs[0].keys()
    assert mine["consumerGroup"] == theirs[0]["consumerGroup"]
