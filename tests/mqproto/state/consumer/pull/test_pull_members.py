"""The queues and the offsets of a pull consumer's group: what is kept, what is stored, who has what."""

from __future__ import annotations

import pytest

from mqproto.errors import BrokerError, ClientError, InvalidName, StateError
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.pull_consumer import PullConsumerCore
from mqproto.wire.bodies import MessageModel
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import File
from tests.mqproto.state.pull_consumers import Q0, Q1, calls, make, pull
from tests.mqproto.state.scripted_broker import Cluster, queue_of


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    cluster.stage.begin()
    return cluster


@pytest.fixture
def consumer(cluster: Cluster) -> PullConsumerCore:
    consumer = make(cluster)
    cluster.start(consumer)
    return consumer


def on_change(topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None: ...


# --- the group's offsets


def test_an_offset_is_kept_in_memory_and_stored_every_few_seconds(cluster: Cluster, consumer: PullConsumerCore) -> None:
    """Also for queues that are not this member's: Java forgets those (docs/protocol/client.md 5.1)."""
    cluster.broker.offsets["T", 0] = 3
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, False, 0)) == 3
    assert cluster.stage.run(consumer.fetch_consume_offset(Q1, False, 0)) is None
    consumer.update_consume_offset(Q0, 9, 0)
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, False, 0)) == 9
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, True, 0)) == 3
    consumer.update_consume_offset(Q0, 5, 0)
    cluster.advance(10_000)
    assert cluster.broker.offsets["T", 0] == 5, "it may go down"


def test_a_foreign_queue_is_stored_once_so_that_its_owner_is_not_undone(
    cluster: Cluster, consumer: PullConsumerCore
) -> None:
    consumer.update_consume_offset(Q0, 5, 0)
    cluster.advance(10_000)
    cluster.broker.offsets["T", 0] = 50  # another member has gone on
    cluster.advance(30_000)
    assert cluster.broker.offsets["T", 0] == 50
    consumer.update_consume_offset(Q0, 60, 0)
    cluster.advance(5_000)
    assert cluster.broker.offsets["T", 0] == 60


def test_an_offset_that_could_not_be_stored_is_stored_later(cluster: Cluster, consumer: PullConsumerCore) -> None:
    consumer.update_consume_offset(Q0, 5, 0)
    cluster.broker.refuses[RequestCode.UPDATE_CONSUMER_OFFSET] = 1
    cluster.advance(10_000)
    del cluster.broker.refuses[RequestCode.UPDATE_CONSUMER_OFFSET]
    cluster.advance(5_000)
    assert cluster.broker.offsets["T", 0] == 5


def test_an_offset_can_be_stored_at_once(cluster: Cluster, consumer: PullConsumerCore) -> None:
    cluster.stage.run(consumer.commit(Q0, 4, False, 0))
    assert cluster.broker.offsets["T", 0] == 4
    assert not cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET)[0].is_oneway
    cluster.stage.run(consumer.commit(Q0, 6, True, 0))
    assert cluster.broker.offsets["T", 0] == 6
    assert cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET)[1].is_oneway
    assert cluster.stage.run(consumer.fetch_consume_offset(Q0, False, 0)) == 6
    cluster.advance(20_000)
    assert len(cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == 2, "nothing is left to store"
    cluster.broker.refuses[RequestCode.UPDATE_CONSUMER_OFFSET] = 16
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.commit(Q0, 7, False, 0))


def test_there_is_a_limit_for_offsets_that_wait(
    cluster: Cluster, consumer: PullConsumerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.state.consumer.pull.pull_consumer.QUEUES_MAX", 2)
    for queue_id in (0, 1, 1):
        consumer.update_consume_offset(queue_of("T", queue_id), 5, 0)
    with pytest.raises(ClientError, match="wait to be stored"):
        consumer.update_consume_offset(queue_of("T", 2), 5, 0)
    cluster.advance(10_000)
    consumer.update_consume_offset(queue_of("T", 2), 5, 0)


def test_what_is_no_offset_is_refused(cluster: Cluster, consumer: PullConsumerCore) -> None:
    with pytest.raises(ClientError):
        consumer.update_consume_offset(Q0, -1, 0)
    with pytest.raises(StateError):
        make(cluster).update_consume_offset(Q0, 1, 0)
    cluster.broker.refuses[RequestCode.QUERY_CONSUMER_OFFSET] = 2
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.fetch_consume_offset(Q0, True, 0))


# --- rebalancing


def test_registered_topics_are_shared_out_and_told(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.1: the listener gets all queues and the own ones."""
    cluster.broker.others = ["10.0.0.1@other"]
    consumer = make(cluster)
    consumer.register("T", on_change, 0)
    cluster.start(consumer)
    assert calls(cluster) == [(on_change, "T", (Q0, Q1), (Q1,))]
    assert consumer.queues_in_balance("T") == (Q1,)
    assert consumer.queues_in_balance("U") == ()
    told = cluster.broker.heartbeats[0].consumers[0]
    assert (told.group, told.consume_type, told.consume_from_where) == (
        "g",
        "CONSUME_ACTIVELY",
        "CONSUME_FROM_LAST_OFFSET",
    )
    assert [(one.topic, one.expression, one.version) for one in told.subscriptions] == [("T", "*", 0)]
    cluster.advance(40_000)
    assert len(calls(cluster)) == 1, "nothing has changed"
    cluster.broker.others = []
    cluster.stage.request(
        cluster.broker.address, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True
    )
    assert calls(cluster)[1:] == [(on_change, "T", (Q0, Q1), (Q0, Q1))]


def test_each_topic_has_a_listener_of_its_own(cluster: Cluster) -> None:
    """Java has one for all, the last one that was given."""
    cluster.topic("U", 1)
    consumer = make(cluster)
    consumer.register("T", on_change, 0)
    consumer.register("U", print, 0)
    cluster.start(consumer)
    assert [call[:2] for call in calls(cluster)] == [(on_change, "T"), (print, "U")]


def test_pulled_topics_are_shared_out_too_but_brokers_are_not_told(
    cluster: Cluster, consumer: PullConsumerCore
) -> None:
    assert consumer.queues_in_balance("T") == ()
    cluster.stage.run(pull(consumer, Q0, "*", 0))
    cluster.advance(20_000)
    assert consumer.queues_in_balance("T") == (Q0, Q1)
    assert cluster.broker.heartbeats[-1].consumers[0].subscriptions == []


def test_a_queue_that_goes_takes_its_offset_along(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.register("T", None, 0)
    cluster.start(consumer)
    consumer.update_consume_offset(Q0, 8, 0)
    consumer.update_consume_offset(Q1, 9, 0)
    cluster.broker.others = ["10.0.0.1@other"]
    cluster.stage.request(
        cluster.broker.address, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True
    )
    assert cluster.broker.offsets == {("T", 0): 8}
    assert consumer.offsets() == {Q1: 9}
    cluster.broker.offsets["T", 0] = 80
    cluster.advance(30_000)
    assert cluster.broker.offsets == {("T", 0): 80, ("T", 1): 9}


def test_a_topic_that_is_not_there_yet_is_asked_for_again(cluster: Cluster) -> None:
    consumer = make(cluster)
    consumer.register("later", on_change, 0)
    cluster.start(consumer)
    cluster.topic("later", 1)
    cluster.advance(2_000)
    assert [call[1] for call in calls(cluster)] == ["later"]


def test_members_that_cannot_be_had_are_asked_for_again_soon(cluster: Cluster) -> None:
    cluster.broker.refuses[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = 1
    consumer = make(cluster)
    consumer.register("T", on_change, 0)
    cluster.start(consumer)
    assert consumer.queues_in_balance("T") == ()
    del cluster.broker.refuses[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
    cluster.stage.advance(1_000)
    assert consumer.queues_in_balance("T") == (Q0, Q1)


def test_names_that_no_topic_has_are_refused(cluster: Cluster, consumer: PullConsumerCore) -> None:
    with pytest.raises(InvalidName):
        consumer.register("a b", None, 0)


def test_offsets_of_a_broadcasting_consumer_are_in_its_file(cluster: Cluster) -> None:
    file = File()
    consumer = make(cluster, file=file, message_model=MessageModel.BROADCASTING)
    consumer.register("T", None, 0)
    cluster.start(consumer)
    assert consumer.queues_in_balance("T") == (Q0, Q1)
    cluster.stage.run(consumer.fetch_consume_offset(Q0, True, 0))
    assert not cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET)
