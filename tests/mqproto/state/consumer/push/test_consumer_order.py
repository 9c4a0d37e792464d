"""Ordered consumption with the locks of brokers."""

from __future__ import annotations

import json

from mqproto.wire.bodies import ConsumerRunningInfo, MessageModel
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import FIRST, LATER, File, consuming, make
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import WALL, success


def unlocked(cluster: Cluster) -> list[int]:
    """Numbers of the queues of the topic T that were unlocked so far, in order."""
    bodies = [json.loads(bytes(one.body)) for one in cluster.requests(RequestCode.UNLOCK_BATCH_MQ)]
    return sorted(queue["queueId"] for body in bodies for queue in body["mqSet"] if queue["topic"] == "T")


def test_an_ordered_consumer_locks_its_queues_before_it_reads_their_offsets(cluster: Cluster) -> None:
    """ORD-01: no waiting, the lock is known when the queue is."""
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", b"1")
    assert cluster.bodies == [b"0"]
    codes = cluster.broker.peer.codes()
    assert codes.index(RequestCode.LOCK_BATCH_MQ) < codes.index(RequestCode.QUERY_CONSUMER_OFFSET)
    cluster.answer_all()
    assert cluster.bodies == [b"0", b"1"]
    info = ConsumerRunningInfo.from_json(consumer.running_info(5_000))
    assert (info.queues[queue_of("T")].locked, info.queues[queue_of("T")].last_lock_time) == (True, WALL)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"


def test_a_queue_that_another_member_has_locked_is_taken_once_it_is_free(cluster: Cluster) -> None:
    """ORD-01: under 3 s after it is free."""
    cluster.broker.locked_elsewhere.add(queue_of("T"))
    consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0")
    cluster.advance(30_000)
    assert cluster.bodies == []
    cluster.broker.offsets[("T", 0)] = 1
    cluster.put("T", b"1")
    cluster.broker.locked_elsewhere.clear()
    cluster.advance(2_000)
    assert cluster.bodies == [b"1"], "and goes on where the other one stopped"


def test_locks_are_renewed_and_what_was_lost_begins_anew(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", b"1", b"2")
    for _ in range(2):
        cluster.advance(20_000)
    renewals = [
        request for request in cluster.requests(RequestCode.LOCK_BATCH_MQ) if bytes(request.body).count(b"queueId") == 3
    ]
    assert len(renewals) == 2
    cluster.broker.locked_elsewhere.add(queue_of("T"))
    cluster.advance(20_000)
    cluster.answer(cluster.tasks[0])
    cluster.advance(5_000)
    assert cluster.bodies == [b"0"], "somebody else has it"
    cluster.broker.offsets[("T", 0)] = 2
    cluster.broker.locked_elsewhere.clear()
    cluster.advance(3_000)
    assert cluster.bodies == [b"0", b"2"]
    assert consumer.offsets()[queue_of("T")] == 2


def test_locks_that_cannot_be_renewed_run_out_and_are_taken_up_again(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", b"1", b"2")
    cluster.broker.refuses[RequestCode.LOCK_BATCH_MQ] = 1
    cluster.advance(29_000)
    cluster.answer(cluster.tasks[0])
    assert cluster.bodies == [b"0", b"1"]
    cluster.advance(3_000)
    cluster.answer(cluster.tasks[1])
    assert cluster.bodies == [b"0", b"1"], "after 30 s nobody may be sure"
    cluster.broker.refuses.clear()
    cluster.advance(3_000)
    assert cluster.bodies == [b"0", b"1", b"2"]


def test_a_lock_that_runs_out_while_it_is_renewed_is_taken_up_again(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True)
    cluster.broker.ignores.add(RequestCode.LOCK_BATCH_MQ)
    cluster.advance(30_000)
    (*_, renewal) = cluster.requests(RequestCode.LOCK_BATCH_MQ)
    cluster.advance(500, step=500)
    cluster.put("T", b"0")
    assert cluster.bodies == [], "half a second ago the lock ran out"
    cluster.broker.ignores.clear()
    answer = cluster.broker.peer.answers[RequestCode.LOCK_BATCH_MQ](renewal)
    assert answer is not None
    cluster.stage.receive(cluster.broker.address, answer)
    assert cluster.bodies == [b"0"]


def test_a_queue_is_unlocked_when_its_listener_has_ended(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", queue_id=1)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert queue_of("T", 1) not in consumer._assignment.queues
    assert cluster.requests(RequestCode.UNLOCK_BATCH_MQ) == []
    cluster.answer(cluster.tasks[0])
    (unlock,) = cluster.requests(RequestCode.UNLOCK_BATCH_MQ)
    assert b'"queueId":1' in bytes(unlock.body)


def test_a_queue_is_unlocked_when_its_last_offset_is_stored(cluster: Cluster) -> None:
    """Its next owner would begin at the offset from before otherwise, and be given what we have consumed."""
    consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", queue_id=1)
    cluster.answer(cluster.tasks[0])
    cluster.broker.ignores.add(RequestCode.UPDATE_CONSUMER_OFFSET)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    cluster.advance(4_000)
    (commit,) = [one for one in cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET) if not one.is_oneway]
    assert (commit.fields["queueId"], commit.fields["commitOffset"]) == ("1", "1")
    assert cluster.requests(RequestCode.UNLOCK_BATCH_MQ) == []
    cluster.stage.receive(cluster.broker.address, success(commit))
    assert len(cluster.requests(RequestCode.UNLOCK_BATCH_MQ)) == 1


def test_a_broker_that_stores_no_offset_lets_the_queue_go_all_the_same(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True)
    cluster.broker.ignores.add(RequestCode.UPDATE_CONSUMER_OFFSET)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    cluster.advance(5_500)
    assert len(cluster.requests(RequestCode.UNLOCK_BATCH_MQ)) == 1


def test_the_lock_of_a_queue_whose_listener_still_runs_is_renewed_until_it_has_ended(cluster: Cluster) -> None:
    """A lock lasts 60 s at a broker, a listener as long as it likes: nobody else may have the queue beside it."""
    consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", queue_id=1)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)

    def renewals() -> int:
        return len(
            [
                request
                for request in cluster.requests(RequestCode.LOCK_BATCH_MQ)
                if b'"queueId":1' in bytes(request.body)
            ]
        )

    before = renewals()
    cluster.advance(100_000)
    assert renewals() - before == 5
    cluster.answer(cluster.tasks[0])
    cluster.advance(60_000)
    assert renewals() - before == 5
    assert len(cluster.requests(RequestCode.UNLOCK_BATCH_MQ)) == 1


def test_an_idle_queue_is_unlocked_at_once(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert len(cluster.requests(RequestCode.UNLOCK_BATCH_MQ)) == 1


def test_a_queue_that_goes_while_its_lock_is_asked_for_is_unlocked(cluster: Cluster) -> None:
    """The broker gives us the lock although we want it no more, and would keep it from the queue's new owner for a
    minute.
    """
    cluster.broker.ignores.add(RequestCode.LOCK_BATCH_MQ)
    consuming(cluster, "T", orderly=True)
    assert cluster.requests(RequestCode.LOCK_BATCH_MQ)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    (unlock,) = cluster.requests(RequestCode.UNLOCK_BATCH_MQ)
    assert b'"queueId":1' in bytes(unlock.body)


def test_the_end_unlocks_what_is_being_asked_for(cluster: Cluster) -> None:
    cluster.broker.ignores.add(RequestCode.LOCK_BATCH_MQ)
    consumer = consuming(cluster, "T", orderly=True)
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    assert unlocked(cluster) == [0, 1]


def test_the_end_unlocks_everything_after_the_offsets_are_stored(cluster: Cluster) -> None:
    """ORD-05."""
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0")
    cluster.answer_all()
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    codes = cluster.broker.peer.codes()
    assert unlocked(cluster) == [0, 1]
    assert (
        codes.index(RequestCode.UPDATE_CONSUMER_OFFSET)
        < codes.index(RequestCode.UNLOCK_BATCH_MQ)
        < codes.index(RequestCode.UNREGISTER_CLIENT)
    )


def test_the_end_unlocks_when_the_offsets_are_taken(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    cluster.broker.ignores.add(RequestCode.UPDATE_CONSUMER_OFFSET)
    ticket = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    cluster.stage.advance(1_000)
    commits = [one for one in cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET) if not one.is_oneway]
    assert {one.fields["queueId"] for one in commits if one.fields["topic"] == "T"} == {"0", "1"}
    assert unlocked(cluster) == []
    for commit in commits:
        cluster.stage.receive(cluster.broker.address, success(commit))
    assert unlocked(cluster) == [0, 1]
    assert ticket.settled


def test_the_end_waits_for_queues_that_are_just_given_up(cluster: Cluster) -> None:
    """Nobody would tell the broker that they are free: their next owners would wait for a minute."""
    consumer = consuming(cluster, "T", orderly=True)
    cluster.broker.ignores.add(RequestCode.UPDATE_CONSUMER_OFFSET)
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    ticket = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    for commit in [one for one in cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET) if not one.is_oneway]:
        assert not ticket.settled
        cluster.stage.receive(cluster.broker.address, success(commit))
    assert ticket.settled
    assert unlocked(cluster) == [0, 1]


def test_nobody_hears_of_the_end_before_the_locks_are_free(cluster: Cluster) -> None:
    """Other members ask for the queues as soon as they hear of it, and Java's do not ask again for 20 s."""
    consumer = consuming(cluster, "T", orderly=True)
    cluster.broker.ignores.add(RequestCode.UNLOCK_BATCH_MQ)
    ticket = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    for unlock in cluster.requests(RequestCode.UNLOCK_BATCH_MQ):
        assert not unlock.is_oneway
        assert cluster.requests(RequestCode.UNREGISTER_CLIENT) == []
        cluster.stage.receive(cluster.broker.address, success(unlock))
    assert ticket.settled
    assert len(cluster.requests(RequestCode.UNREGISTER_CLIENT)) == 1


def test_the_end_locks_nothing_any_more(cluster: Cluster) -> None:
    """A queue that another member had until now is not taken in the middle of the end: nobody would give it back for a
    minute.
    """
    cluster.broker.locked_elsewhere.add(queue_of("T"))
    consumer = consuming(cluster, "T", orderly=True)
    cluster.advance(500)
    cluster.broker.locked_elsewhere.clear()
    cluster.broker.ignores |= {RequestCode.UNLOCK_BATCH_MQ, RequestCode.UNREGISTER_CLIENT}
    before = len(cluster.requests(RequestCode.LOCK_BATCH_MQ))
    ticket = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    cluster.advance(5_000)
    assert ticket.settled
    assert len(cluster.requests(RequestCode.LOCK_BATCH_MQ)) == before


def test_the_end_unlocks_the_queue_of_a_listener_that_still_runs(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    cluster.put("T", b"0", queue_id=1)
    cluster.stage.run(consumer.shutdown(cluster.stage.now))
    assert unlocked(cluster) == [0, 1]
    cluster.answer_all()
    assert unlocked(cluster) == [0, 1], "once"


def test_a_broker_that_takes_no_unlock_does_not_hold_up_the_end(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T", orderly=True)
    cluster.broker.ignores.add(RequestCode.UNLOCK_BATCH_MQ)
    ticket = cluster.stage.start(consumer.shutdown(cluster.stage.now))
    cluster.stage.advance(1_000)
    assert ticket.settled


def test_an_ordered_failure_pauses_its_queue(cluster: Cluster) -> None:
    consuming(cluster, "T", orderly=True, suspend_current_queue_time_millis=2_000)
    cluster.put("T", b"0", b"1")
    cluster.put("T", b"other", queue_id=1)
    cluster.answer(cluster.tasks[0], LATER)
    cluster.stage.advance(1_999)
    assert cluster.bodies == [b"0", b"other"]
    cluster.stage.advance(1)
    assert cluster.bodies == [b"0", b"other", b"0"]
    assert cluster.broker.sent_back == []


def test_a_long_suspension_behind_a_full_window_ends_by_itself(cluster: Cluster) -> None:
    """ORD-03: 150 s in steps of 1 s; the pull that stands still meanwhile is no stuck one, and the queue is kept."""
    consumer = consuming(cluster, "T", orderly=True, pull_threshold_for_queue=10, pull_batch_size=4)
    cluster.put("T", *[b"%d" % number for number in range(40)])
    queue = consumer._assignment.queues[queue_of("T")]

    def pulls() -> list[str]:
        fields = [request.fields for request in cluster.requests(RequestCode.PULL_MESSAGE)]
        return [one["queueOffset"] for one in fields if (one["topic"], one["queueId"]) == ("T", "0")]

    before = pulls()
    for _ in range(150):
        cluster.answer(cluster.tasks[-1], LATER)
        cluster.advance(1_000)
    assert set(cluster.bodies) == {b"0"}
    assert consumer._assignment.queues[queue_of("T")] is queue
    assert pulls() == before == ["0", "4", "8"]
    tasks = len(cluster.tasks) - 1
    while tasks < len(cluster.tasks):
        cluster.answer(cluster.tasks[tasks])
        tasks += 1
    assert cluster.bodies[-40:] == [b"%d" % number for number in range(40)], "at once, in order"


def test_ordered_broadcasting_needs_no_locks(cluster: Cluster) -> None:
    cluster.stage.begin()
    consumer = make(
        cluster, "T", file=File(), message_model=MessageModel.BROADCASTING, orderly=True, consume_from_where=FIRST
    )
    cluster.start(consumer)
    cluster.put("T", b"0", b"1")
    cluster.answer_all()
    assert cluster.bodies == [b"0", b"1"]
    assert cluster.requests(RequestCode.LOCK_BATCH_MQ) == []
