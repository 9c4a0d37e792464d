"""Where a push consumer begins, and what moves it."""

from __future__ import annotations

import pytest

from mqproto.codec import encode_response
from mqproto.message import ConsumeStatus
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel, ResetOffsets
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import FIRST, LATER, File, consuming, make
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import WALL

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
BY_TIME = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


# --- where to begin


@pytest.mark.parametrize(
    ("where", "kept", "begins"),
    [
        (LAST, None, 3),
        (FIRST, None, 0),
        (BY_TIME, None, 2),
        (LAST, 1, 1),
        (FIRST, 2, 2),
        (BY_TIME, 0, 0),
        (FIRST, 3, 3),
    ],
)
def test_where_a_group_begins(cluster: Cluster, where: ConsumeFromWhere, kept: int | None, begins: int) -> None:
    """docs/protocol/client.md 4.3."""
    for minutes in (60, 31, 29):
        cluster.put("T", b"x", store_time=WALL - minutes * 60_000)
    if kept is not None:
        cluster.broker.offsets[("T", 0)] = kept
    cluster.start(make(cluster, "T", consume_from_where=where))
    first = next(
        one
        for one in cluster.requests(RequestCode.PULL_MESSAGE)
        if one.fields["topic"] == "T" and one.fields["queueId"] == "0"
    )
    assert int(first.fields["queueOffset"]) == begins
    assert len(cluster.tasks) == 3 - begins


@pytest.mark.parametrize(("where", "begins"), [(LAST, 0), (FIRST, 0), (BY_TIME, 2)])
def test_where_a_group_begins_in_its_retry_topic(cluster: Cluster, where: ConsumeFromWhere, begins: int) -> None:
    cluster.topic("%RETRY%g", 1)
    cluster.put("%RETRY%g", b"x", b"y", store_time=WALL - 60_000)
    cluster.start(make(cluster, "T", consume_from_where=where))
    first = next(one for one in cluster.requests(RequestCode.PULL_MESSAGE) if one.fields["topic"] == "%RETRY%g")
    assert int(first.fields["queueOffset"]) == begins


@pytest.mark.parametrize("code", [1, 2, 16, 26])
def test_an_offset_that_cannot_be_read_is_asked_for_again_and_never_guessed(cluster: Cluster, code: int) -> None:
    """docs/protocol/client.md 4.3: 4.x takes every refusal for "none" and jumps to the end."""
    cluster.put("T", b"unseen")
    cluster.broker.refuses[RequestCode.QUERY_CONSUMER_OFFSET] = code
    cluster.start(make(cluster, "T"))
    cluster.advance(3_000)
    assert cluster.requests(RequestCode.PULL_MESSAGE) == []
    del cluster.broker.refuses[RequestCode.QUERY_CONSUMER_OFFSET]
    cluster.broker.offsets[("T", 0)] = 0
    cluster.advance(2_000)
    assert cluster.bodies == [b"unseen"]
    assert any("where to begin" in line for line in cluster.stage.node.notices)


def test_where_a_group_began_is_kept_although_nothing_came(cluster: Cluster) -> None:
    """REB-06: 0 is committed; and a group that began at the end does not begin anew at a later end."""
    cluster.put("T", b"old", queue_id=1)
    cluster.stage.begin()
    cluster.start(make(cluster, "T"))
    cluster.advance(10_000)
    assert cluster.broker.offsets == {("T", 0): 0, ("T", 1): 1, ("%RETRY%g", 0): 0}


def test_an_empty_queue_that_was_cleaned_up_to_an_offset(cluster: Cluster) -> None:
    """REB-06: 5 is stored although nothing is there to be consumed, so no lag is shown, and never a negative one."""
    cluster.put("T", *[b"gone"] * 5)
    cluster.broker.minimum[("T", 0)] = 5
    cluster.broker.offsets[("T", 0)] = 0
    consuming(cluster, "T")
    cluster.advance(12_000)
    assert cluster.bodies == []
    assert cluster.broker.offsets[("T", 0)] == 5
    fresh = Cluster("b")
    fresh.topic("T")
    fresh.put("T", *[b"gone"] * 5)
    fresh.broker.minimum[("T", 0)] = 5
    consuming(fresh, "T")
    fresh.advance(12_000)
    assert (fresh.bodies, fresh.broker.offsets[("T", 0)]) == ([], 5)


# --- offsets that are moved


def test_an_offset_below_the_minimum_is_corrected(cluster: Cluster) -> None:
    """BRO-02's figures in small; nothing is running, so there is nothing to wait for."""
    cluster.put("T", *[b"%d" % n for n in range(9)])
    cluster.broker.minimum[("T", 0)] = 7
    cluster.broker.offsets[("T", 0)] = 3
    consuming(cluster, "T")
    cluster.advance(2_000)
    assert cluster.bodies == [b"7", b"8"]
    cluster.answer_all()
    cluster.advance(11_000)
    assert cluster.broker.offsets[("T", 0)] == 9


def test_late_completions_do_not_move_a_corrected_offset(cluster: Cluster) -> None:
    """CON-03: 50 callbacks run while the queue is cut; they finish during the pause."""
    consuming(cluster, "T", consume_thread_min=64)
    cluster.put("T", *[b"old"] * 50)
    assert len(cluster.tasks) == 50
    cluster.broker.queues[("T", 0)] = cluster.broker.queues[("T", 0)][:10]
    cluster.release(
        cluster.broker, lambda held: held.request.fields["queueId"] == "0" and held.request.fields["topic"] == "T"
    )
    for task in cluster.tasks[:50]:
        cluster.advance(150, 150)
        cluster.answer(task, LATER if task.messages[0].queue_offset % 2 else ConsumeStatus.SUCCESS)
    assert cluster.broker.sent_back == []
    cluster.put("T", b"new")
    assert cluster.bodies[50:] == []
    cluster.advance(4_000)
    assert cluster.bodies[50:] == [b"new"]
    cluster.advance(11_000)
    assert cluster.broker.offsets[("T", 0)] == 10
    cluster.answer_all()
    cluster.advance(5_000)
    assert cluster.broker.offsets[("T", 0)] == 11


def test_a_queue_that_is_cut_again_and_again_is_not_asked_in_a_tight_loop(cluster: Cluster) -> None:
    cluster.stage.begin()
    cluster.broker.refuses[RequestCode.PULL_MESSAGE] = 1
    consumer = make(cluster, "T")
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "5", "maxOffset": "5"}
    cluster.broker.peer.answers[RequestCode.PULL_MESSAGE] = lambda request: encode_response(request.opaque, 21, fields)
    cluster.start(consumer)
    cluster.advance(60_000)
    assert len(cluster.requests(RequestCode.PULL_MESSAGE)) <= 3 * 61


def test_an_operator_moves_a_group_back(cluster: Cluster) -> None:
    """docs/protocol/client.md 6, request 220; running deliveries get 10 s."""
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0", b"1", b"2")
    cluster.answer_all()
    cluster.put("T", b"3")
    running = cluster.tasks[-1]
    body = ResetOffsets({queue_of("T", 0): 1, queue_of("T", 1): 0, queue_of("other"): 5, queue_of("T", 7): 5}).to_json()
    cluster.stage.request(
        "b:10911", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, body, oneway=True
    )
    cluster.advance(9_000)
    cluster.answer(running)
    assert len(cluster.tasks) == 4
    cluster.advance(2_000)
    assert cluster.bodies[4:] == [b"1", b"2", b"3"]
    assert consumer.offsets()[queue_of("T", 0)] == 1
    cluster.answer_all()
    cluster.advance(6_000)
    assert cluster.broker.offsets[("T", 0)] == 4


def test_an_idle_queue_is_moved_at_once(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0", b"1")
    cluster.answer_all()
    consumer.reset_offsets("T", {queue_of("T"): 1, queue_of("T", 1): 0}, cluster.stage.now)
    cluster.advance(50, 50)
    assert cluster.bodies == [b"0", b"1", b"1"]
    assert not [line for line in cluster.stage.node.notices if "_correct" in line]


def test_a_reset_touches_nothing_but_its_topic(cluster: Cluster) -> None:
    cluster.topic("U")
    consumer = consuming(cluster, "T", "U")
    before = dict(consumer._assignment.queues)
    consumer.reset_offsets("T", {queue_of("U"): 0, queue_of("T"): -1}, cluster.stage.now)
    cluster.advance(1_000)
    assert consumer._assignment.queues == before


def test_a_second_reset_wins_over_the_first(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", *[b"%d" % n for n in range(5)])
    for offset in (0, 4):
        consumer.reset_offsets("T", {queue_of("T"): offset}, cluster.stage.now)
    cluster.stage.settle()
    cluster.advance(11_000)
    assert cluster.bodies[5:] == [b"4"]


def test_a_reset_of_a_queue_that_is_taken_away_meanwhile_is_still_stored(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"0", b"1", queue_id=1)
    consumer.reset_offsets("T", {queue_of("T", 1): 1}, cluster.stage.now)
    cluster.stage.settle()
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert cluster.broker.offsets[("T", 1)] == 1
    cluster.advance(30_000)
    assert queue_of("T", 1) not in consumer._assignment.queues


# --- broadcasting


def test_broadcasting_takes_every_queue_and_keeps_offsets_in_its_file(cluster: Cluster) -> None:
    cluster.broker.others.append("zz@other")
    cluster.stage.begin()
    file = File()
    consumer = make(cluster, "T", file=file, message_model=MessageModel.BROADCASTING, consume_from_where=FIRST)
    cluster.start(consumer)
    assert set(consumer._assignment.queues) == {queue_of("T", 0), queue_of("T", 1)}
    assert cluster.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []
    cluster.put("T", b"0", b"1")
    cluster.answer(cluster.tasks[0])
    cluster.answer(cluster.tasks[1], LATER)
    assert cluster.broker.sent_back == []
    pull = cluster.requests(RequestCode.PULL_MESSAGE)[-1]
    assert (pull.fields["sysFlag"], pull.fields["commitOffset"]) == ("2", "0")
    flow = consumer.shutdown(cluster.stage.now)
    cluster.stage.start(flow)
    assert file.main is not None
    assert b'"topic":"T"\n\t\t}:2' in file.main
    assert cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []
