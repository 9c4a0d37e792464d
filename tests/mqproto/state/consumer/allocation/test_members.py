"""Allocation of queues to the members of a group."""

from __future__ import annotations

import pytest

from mqproto.message import MessageQueue
from mqproto.state.consumer.allocation.strategies import find_strategy
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.node.contract import Run
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import consuming
from tests.mqproto.state.scripted_broker import Cluster, queue_of


def test_members_share_the_queues_and_hand_them_over(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.put("T", b"x", queue_id=1)
    cluster.answer_all()
    assert queue_of("T", 1) in consumer._assignment.queues
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert queue_of("T", 1) not in consumer._assignment.queues
    assert cluster.broker.offsets[("T", 1)] == 1, "stored before the other asks for it"
    held = next(
        one for one in cluster.broker.held if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", "1")
    )
    pulls = len(cluster.requests(RequestCode.PULL_MESSAGE))
    cluster.put("T", b"theirs", queue_id=1)
    assert held not in cluster.broker.held
    assert cluster.bodies == [b"x"], "a late answer for a queue of the other is ignored"
    assert len(cluster.requests(RequestCode.PULL_MESSAGE)) == pulls
    cluster.broker.others.clear()
    cluster.advance(20_000)
    assert cluster.bodies == [b"x", b"theirs"]


def test_a_late_answer_for_a_queue_that_was_dropped_and_given_again_is_ignored(cluster: Cluster) -> None:
    """CON-16: each message once, one loop."""
    consuming(cluster, "T")
    held = next(
        one for one in cluster.broker.held if (one.request.fields["topic"], one.request.fields["queueId"]) == ("T", "1")
    )
    cluster.broker.held.remove(held)
    for others in (["zz@other"], []):
        cluster.broker.others[:] = others
        cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    cluster.put("T", b"once", queue_id=1)
    late = cluster.pull_answer(cluster.broker, held.request, held=True)
    assert late is not None
    cluster.stage.receive("b:10911", late)
    cluster.advance(2_000)
    assert cluster.bodies == [b"once"]
    assert len([one for one in cluster.broker.held if one.request.fields["queueId"] == "1"]) == 1


def test_a_member_that_the_broker_does_not_list_gets_nothing_and_says_that_it_is_there(cluster: Cluster) -> None:
    consumer = consuming(cluster, "T")
    cluster.broker.others.append("aa@other")
    beats = len(cluster.broker.heartbeats)
    cluster.broker.heartbeats.append(cluster.broker.heartbeats[0].__class__("x", [], []))
    consumer.consumer_ids_changed(cluster.stage.now)
    cluster.stage.settle()
    assert cluster.broker.heartbeats[beats + 1].consumers[0].group == "g"
    cluster.broker.others.clear()
    cluster.advance(21_000)
    assert len(consumer._assignment.queues) == 3


@pytest.mark.parametrize("trouble", ["refuses", "ignores"])
def test_without_the_list_of_members_everything_stays_as_it_is(cluster: Cluster, trouble: str) -> None:
    consumer = consuming(cluster, "T")
    if trouble == "refuses":
        cluster.broker.refuses[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = 1
    else:
        cluster.broker.ignores.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    before = dict(consumer._assignment.queues)
    cluster.advance(45_000)
    assert consumer._assignment.queues == before


def test_a_strategy_of_the_application_that_fails_changes_nothing(cluster: Cluster) -> None:
    class Broken:
        name = "BROKEN"

        def allocate(self, *facts: object) -> list[MessageQueue]:
            raise ZeroDivisionError

    cluster.stage.begin()
    consumer = PushConsumerCore(cluster.stage.node, ConsumerSettings(group="g"), None, strategy=Broken())
    consumer.subscribe("T", now=0)
    cluster.start(consumer)
    assert consumer._assignment.queues == {}
    assert any("ZeroDivisionError" in line for line in cluster.stage.node.notices)


def test_a_strategy_of_the_application_is_asked_beside_the_node_and_held_to_the_queues_that_there_are(
    cluster: Cluster,
) -> None:
    class Mine:
        name = "MINE"
        answer: object = [queue_of("T", 1)]

        def allocate(self, group: str, own_id: str, queues: list[MessageQueue], client_ids: list[str]) -> object:
            assert (group, own_id) == ("g", cluster.stage.node.client_id)
            return self.answer if queues[0].topic == "T" else queues

    mine = Mine()
    cluster.stage.begin()
    cluster.stage.runs_jobs = False
    consumer = PushConsumerCore(cluster.stage.node, ConsumerSettings(group="g"), None, strategy=find_strategy(mine))
    consumer.subscribe("T", now=0)
    cluster.start(consumer)
    jobs = [action.job for action in cluster.stage.delivered if isinstance(action, Run)]
    assert (len(jobs), consumer._assignment.queues) == (1, {}), (
        "nothing of the application's was called inside the node"
    )
    cluster.stage.runs_jobs = True
    jobs[0].run()
    cluster.stage.node.done(jobs[0], None, cluster.stage.now)
    cluster.stage.settle()
    cluster.advance(2_000)
    before = dict(consumer._assignment.queues)
    assert list(before) == [queue_of("T", 1), queue_of("%RETRY%g", 0)]
    for wrong in (None, [queue_of("T", 9)], [queue_of("U", 0)], [queue_of("T", 0), queue_of("T", 0)]):
        mine.answer = wrong
        cluster.advance(21_000)
        assert consumer._assignment.queues == before
    assert any("strategy MINE answered None" in line for line in cluster.stage.node.notices)
    mine.answer = (queue_of("T", 0),)
    cluster.advance(21_000)
    assert queue_of("T", 0) in consumer._assignment.queues
    assert queue_of("T", 1) not in consumer._assignment.queues


def test_more_and_fewer_queues_are_noticed(cluster: Cluster) -> None:
    """REB-05: by the next route refresh, at once."""
    consumer = consuming(cluster, "T")
    cluster.topic("T", 4)
    cluster.advance(31_000)
    assert len([queue for queue in consumer._assignment.queues if queue.topic == "T"]) == 4
    cluster.topic("T", 1)
    cluster.advance(31_000)
    assert [queue for queue in consumer._assignment.queues if queue.topic == "T"] == [queue_of("T", 0)]


def test_a_topic_that_is_no_longer_subscribed_brings_nothing(cluster: Cluster) -> None:
    cluster.topic("U")
    consumer = consuming(cluster, "T", "U")
    cluster.put("U", b"first")
    cluster.answer_all()
    consumer.unsubscribe("U", now=cluster.stage.now)
    consumer.unsubscribe("never", now=cluster.stage.now)
    cluster.stage.settle()
    assert [one.topic for one in cluster.broker.heartbeats[-1].consumers[0].subscriptions] == ["T", "%RETRY%g"]
    cluster.put("U", b"second")
    cluster.advance(30_000)
    assert cluster.bodies == [b"first"]
    assert cluster.broker.offsets[("U", 0)] == 1
    consumer.subscribe("U", now=cluster.stage.now)
    cluster.advance(1_000)
    assert cluster.bodies == [b"first", b"second"], "and goes on where it was"


def test_brokers_with_equal_queue_numbers_are_told_apart() -> None:
    """CON-20."""
    cluster = Cluster("a", "b")
    cluster.topic("T", 1)
    consumer = consuming(cluster, "T")
    cluster.put("T", b"a0", broker="a")
    cluster.put("T", b"b0", b"b1", broker="b")
    cluster.answer_all()
    assert consumer.offsets() == {
        queue_of("T", 0, "a"): 1,
        queue_of("T", 0, "b"): 2,
        **{queue_of("%RETRY%g", 0, one): 0 for one in "ab"},
    }
    cluster.advance(11_000)
    assert cluster.brokers["a"].offsets[("T", 0)] == 1
    assert cluster.brokers["b"].offsets[("T", 0)] == 2
