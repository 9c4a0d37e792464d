"""The lite pull consumer on a client node: polls, confirmations, offsets, trouble."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mqproto.errors import BrokerError, ClientError, StateError
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.lite_pull_consumer import LitePullConsumerCore
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.wire.bodies import MessageModel, ResetOffsets
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import FIRST, File, numbers
from tests.mqproto.state.lite_pulls import Q0, Q1, assigned, begin_poll, poll, poll_all, polling, pulls
from tests.mqproto.state.scripted_broker import Cluster, queue_of

UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET


# --- polling


def test_a_poll_brings_what_one_pull_brought(cluster: Cluster) -> None:
    cluster.put("T", *numbers(25))
    consumer = polling(cluster, "T")
    assert [len(poll(cluster, consumer)) for _ in range(4)] == [10, 10, 5, 0]


def test_a_poll_can_be_cut_short(cluster: Cluster) -> None:
    cluster.put("T", *numbers(5))
    consumer = polling(cluster, "T")
    assert poll(cluster, consumer, 2) == [b"0", b"1"]
    assert poll(cluster, consumer, 1) == [b"2"]
    assert poll(cluster, consumer, 9) == [b"3", b"4"]


def test_queues_take_turns(cluster: Cluster) -> None:
    cluster.put("T", *numbers(20))
    cluster.put("T", *numbers(20, 100), queue_id=1)
    consumer = polling(cluster, "T")
    heads = [poll(cluster, consumer)[0] for _ in range(4)]
    assert sorted(heads[:2]) == [b"0", b"100"]
    assert sorted(heads[2:]) == [b"10", b"110"]


def test_a_poll_waits_for_a_message(cluster: Cluster) -> None:
    consumer = polling(cluster, "T")
    ticket = begin_poll(cluster, consumer, 5_000)
    cluster.advance(4_000)
    assert not ticket.settled
    cluster.put("T", b"a")
    assert [message.body for message in ticket.result()] == [b"a"]
    message = ticket.result()[0]
    assert (message.topic, message.broker_name, message.properties["MAX_OFFSET"]) == ("T", "b", "1")


def test_a_poll_ends_empty_after_its_time(cluster: Cluster) -> None:
    consumer = polling(cluster, "T")
    ticket = begin_poll(cluster, consumer, 5_000)
    cluster.stage.advance(4_999)
    assert not ticket.settled
    cluster.stage.advance(1)
    assert ticket.result() == []
    ticket = begin_poll(cluster, consumer, 5_000)
    cluster.advance(2_000)
    cluster.put("T", b"a")
    assert len(ticket.result()) == 1


def test_several_polls_wait_side_by_side_and_each_message_goes_to_one(cluster: Cluster) -> None:
    consumer = polling(cluster, "T", auto_commit=False)
    tickets = [begin_poll(cluster, consumer, 5_000) for _ in range(3)]
    cluster.put("T", b"a")
    cluster.put("T", b"b", queue_id=1)
    assert sorted(message.body for ticket in tickets if ticket.settled for message in ticket.result()) == [b"a", b"b"]
    cluster.stage.advance(5_000)
    assert sorted(len(ticket.result()) for ticket in tickets) == [0, 1, 1]


def test_an_interrupted_poll_gives_its_messages_back(cluster: Cluster) -> None:
    """Whoever was cancelled just when the messages came: the next poll has them, and nothing was confirmed."""
    cluster.put("T", b"a", b"b")
    consumer = polling(cluster, "T")
    claim = Claim()
    cluster.stage.run(consumer.poll(claim, 0, None, cluster.stage.now))
    consumer.put_back(claim, cluster.stage.now)
    consumer.put_back(claim, cluster.stage.now)
    consumer.put_back(Claim(), cluster.stage.now)
    assert poll(cluster, consumer) == [b"a", b"b"]
    assert consumer.offsets()[Q0] == 0
    assert poll(cluster, consumer) == []
    assert consumer.offsets()[Q0] == 2


def test_messages_given_back_wake_a_poll_that_waits(cluster: Cluster) -> None:
    cluster.put("T", b"a")
    consumer = polling(cluster, "T", auto_commit=False)
    claim = Claim()
    waiting = cluster.stage.start(consumer.poll(claim, 0, None, cluster.stage.now))
    assert waiting.settled
    # The second poll would confirm the first one's message; it is given back before that.
    consumer.put_back(claim, cluster.stage.now)
    ticket = begin_poll(cluster, consumer, 1_000)
    assert [message.body for message in ticket.result()] == [b"a"]


# --- confirming


def test_a_message_is_confirmed_by_the_next_poll(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2: the contract."""
    cluster.put("T", *numbers(3))
    consumer = polling(cluster, "T")
    poll(cluster, consumer, 2)
    cluster.advance(15_000)
    assert cluster.broker.offsets["T", 0] == 0, "polled, and not confirmed by another poll"
    poll(cluster, consumer)
    cluster.advance(5_000)
    assert cluster.broker.offsets["T", 0] == 2


def test_what_was_filtered_away_moves_the_offset_with_the_next_poll(cluster: Cluster) -> None:
    """FLT-01."""
    cluster.stage.begin()
    consumer = polling(cluster)
    consumer.subscribe("T", "TagA", "TAG", None, cluster.stage.now)
    cluster.stage.settle()
    cluster.put("T", *numbers(7), tag="TagB")
    assert poll(cluster, consumer) == []
    assert consumer.offsets()[Q0] == 7


def test_offsets_are_stored_every_few_seconds(cluster: Cluster) -> None:
    """Here `auto_commit_interval_millis` is how often that happens; the first time comes after 10 s as for all
    consumers.
    """
    consumer = polling(cluster, "T", auto_commit_interval_millis=2_000)
    cluster.put("T", b"a")
    poll(cluster, consumer)
    poll(cluster, consumer)
    cluster.stage.advance(9_000)
    assert not cluster.requests(UPDATE)
    cluster.stage.advance(1_500)
    assert len(cluster.requests(UPDATE)) == 2, "two queues"
    cluster.put("T", b"b")
    poll(cluster, consumer)
    poll(cluster, consumer)
    cluster.stage.advance(2_000)
    assert len(cluster.requests(UPDATE)) == 3, "what has changed"
    cluster.stage.advance(30_000)
    assert len(cluster.requests(UPDATE)) == 5, "and all of them now and then"
    assert {one.is_oneway for one in cluster.requests(UPDATE)} == {True}


def test_without_auto_commit_only_a_commit_moves_the_offset(cluster: Cluster) -> None:
    cluster.put("T", *numbers(30))
    consumer = polling(cluster, "T", auto_commit=False)
    assert len(poll_all(cluster, consumer)) == 30
    cluster.advance(20_000)
    assert consumer.offsets()[Q0] == 0
    consumer.commit(None, False, cluster.stage.now)
    assert consumer.offsets()[Q0] == 30
    assert cluster.broker.offsets["T", 0] == 0
    cluster.advance(5_000)
    assert cluster.broker.offsets["T", 0] == 30


def test_a_commit_covers_what_the_last_poll_handed_out(cluster: Cluster) -> None:
    cluster.put("T", *numbers(3))
    consumer = polling(cluster, "T", auto_commit=False)
    poll(cluster, consumer, 2)
    cluster.stage.run(consumer.commit_sync(None, cluster.stage.now))
    assert cluster.broker.offsets["T", 0] == 2
    assert {one.is_oneway for one in cluster.requests(UPDATE)} == {False}


def test_a_commit_sent_at_once_has_no_answer(cluster: Cluster) -> None:
    cluster.put("T", *numbers(3))
    consumer = polling(cluster, "T", auto_commit=False)
    poll(cluster, consumer)
    consumer.commit([Q0], True, cluster.stage.now)
    cluster.stage.settle()
    assert [(one.fields["queueId"], one.fields["commitOffset"], one.is_oneway) for one in cluster.requests(UPDATE)] == [
        ("0", "3", True)
    ]


def test_given_offsets_are_committed_as_they_are(cluster: Cluster) -> None:
    """They may go down, and lie anywhere."""
    cluster.put("T", *numbers(9))
    consumer = polling(cluster, "T", auto_commit=False)
    poll(cluster, consumer)
    cluster.stage.run(consumer.commit_sync({Q0: 4, Q1: 0}, cluster.stage.now))
    assert cluster.broker.offsets == {("T", 0): 4, ("T", 1): 0}
    assert cluster.stage.run(consumer.committed(Q0, 0)) == 4
    with pytest.raises(ClientError):
        consumer.commit({Q0: -1}, False, 0)
    with pytest.raises(StateError):
        consumer.commit({Q0: 7, queue_of("U"): 1}, False, 0)
    assert consumer.offsets()[Q0] == 4, "a refused commit changes nothing"


def test_a_commit_before_it_is_known_where_a_queue_begins_stays(cluster: Cluster) -> None:
    """The answer of the broker, which has another offset, comes later."""
    cluster.put("T", *numbers(9))
    cluster.broker.offsets["T", 0] = 7
    consumer = polling(cluster, auto_commit=False)
    consumer.assign([Q0], cluster.stage.now)
    consumer.commit({Q0: 4}, False, cluster.stage.now)
    cluster.advance(1_000)
    assert poll_all(cluster, consumer) == numbers(9)[7:]
    assert consumer.offsets()[Q0] == 4
    cluster.advance(10_000)
    assert cluster.broker.offsets["T", 0] == 4


def test_a_commit_that_a_broker_refuses_fails_when_all_have_answered(cluster: Cluster) -> None:
    cluster.put("T", b"a")
    consumer = polling(cluster, "T", auto_commit=False)
    poll(cluster, consumer)
    cluster.broker.refuses[UPDATE] = 16
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.commit_sync(None, cluster.stage.now))
    assert len(cluster.requests(UPDATE)) == 2


def test_a_commit_in_broadcasting_waits_for_the_file(cluster: Cluster) -> None:
    file = File()
    cluster.put("T", b"a")
    consumer = polling(cluster, "T", file=file, message_model=MessageModel.BROADCASTING)
    poll(cluster, consumer)
    assert file.main is None
    cluster.stage.run(consumer.commit_sync([Q0], cluster.stage.now))
    assert b'"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:1' in (file.main or b"")


def test_nothing_is_committed_before_it_is_known_where_a_queue_begins(cluster: Cluster) -> None:
    cluster.broker.offsets["T", 0] = 7
    cluster.broker.ignores.add(RequestCode.QUERY_CONSUMER_OFFSET)
    consumer = polling(cluster, "T")
    consumer.commit(None, True, cluster.stage.now)
    cluster.stage.run(consumer.commit_sync([Q0], cluster.stage.now))
    cluster.stage.settle()
    assert cluster.broker.offsets == {("T", 0): 7}


class Shelf:
    """Where an application keeps offsets itself."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}

    def read(self, group: str, queue: MessageQueue) -> int | None:
        return self.kept.get(queue)

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.kept |= offsets


def test_an_application_may_keep_the_offsets_itself(cluster: Cluster) -> None:
    shelf = Shelf()
    shelf.kept[Q0] = 2
    cluster.put("T", *numbers(5))
    cluster.stage.begin()
    consumer = LitePullConsumerCore(
        cluster.stage.node, LitePullSettings("g", consume_from_where=FIRST), "face", offset_storage=shelf
    )
    consumer.subscribe("T", "*", "TAG", None, 0)
    cluster.start(consumer)
    assert poll(cluster, consumer) == numbers(3, 2)
    ticket = cluster.stage.start(consumer.commit_sync(None, cluster.stage.now))
    cluster.stage.advance(10)  # both queues are saved at once; who comes second waits to see that
    ticket.result()
    assert shelf.kept == {Q0: 5, Q1: 0}
    assert not cluster.requests(UPDATE) + cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET)


def test_what_is_committed_can_be_asked_for_any_queue(cluster: Cluster) -> None:
    cluster.broker.offsets["U", 0] = 9
    consumer = polling(cluster, "T")
    cluster.topic("U", 2)
    assert cluster.stage.run(consumer.committed(queue_of("U"), 0)) == 9
    assert cluster.stage.run(consumer.committed(queue_of("U", 1), 0)) is None
    assert queue_of("U") not in consumer.offsets(), "it is none of ours"
    cluster.broker.refuses[RequestCode.QUERY_CONSUMER_OFFSET] = 2
    with pytest.raises(BrokerError):
        cluster.stage.run(consumer.committed(queue_of("U"), 0))


# --- trouble


def test_a_queue_that_lost_its_beginning_goes_on_behind_the_gap(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2: at the offset that the broker names, and what is cached is polled all the same."""
    cluster.put("T", *numbers(5))
    consumer = assigned(cluster, Q0, pull_threshold_for_queue=4)
    cluster.put("T", *numbers(45, 5))
    cluster.broker.minimum["T", 0] = 40
    assert poll(cluster, consumer) == numbers(5)
    assert poll(cluster, consumer) == [], "this one makes room"
    assert poll_all(cluster, consumer) == numbers(10, 40)
    assert consumer.offsets()[Q0] == 50
    assert any("has no offset 5, going on at 40" in line for line in cluster.stage.node.notices)


def test_a_queue_that_became_shorter_begins_again_where_it_ends(cluster: Cluster) -> None:
    """CON-03: the corrected offset is what is stored, and what was polled before does not move it."""
    cluster.put("T", *numbers(30))
    consumer = assigned(cluster, Q0)
    assert len(poll_all(cluster, consumer)) == 30
    assert consumer.offsets()[Q0] == 30
    del cluster.broker.queues["T", 0][12:]
    cluster.release(cluster.broker, lambda held: True)
    assert consumer.offsets()[Q0] == 12
    cluster.put("T", b"new")
    assert poll(cluster, consumer) == []
    cluster.advance(1_000)
    assert poll_all(cluster, consumer) == [b"new"]
    assert consumer.offsets()[Q0] == 13


def test_what_was_not_polled_is_pulled_again_from_the_shorter_queue(cluster: Cluster) -> None:
    cluster.put("T", *numbers(30))
    consumer = assigned(cluster, Q0)
    assert poll(cluster, consumer) == numbers(10)
    assert poll(cluster, consumer, 1) == [b"10"]
    del cluster.broker.queues["T", 0][25:]
    cluster.release(cluster.broker, lambda held: True)
    cluster.advance(1_000)
    assert poll_all(cluster, consumer) == numbers(15, 10), "from the first that was not confirmed"


def test_a_correction_never_passes_what_was_not_committed(cluster: Cluster) -> None:
    cluster.put("T", *numbers(30))
    consumer = assigned(cluster, Q0, auto_commit=False)
    cluster.stage.run(consumer.commit_sync({Q0: 3}, cluster.stage.now))
    assert len(poll_all(cluster, consumer)) == 30
    del cluster.broker.queues["T", 0][12:]
    cluster.release(cluster.broker, lambda held: True)
    cluster.advance(1_000)
    assert consumer.offsets()[Q0] == 3


def test_operators_can_move_the_group(cluster: Cluster) -> None:
    """Java's lite pull consumer does not hear of a reset and later undoes it."""
    cluster.put("T", *numbers(30))
    consumer = polling(cluster, "T")
    assert len(poll_all(cluster, consumer)) == 30
    body = ResetOffsets({Q0: 28}).to_json()
    fields = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
    cluster.stage.request(cluster.broker.address, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body, oneway=True)
    assert cluster.broker.offsets["T", 0] == 28
    assert poll_all(cluster, consumer) == numbers(2, 28)


def test_a_message_that_cannot_be_read_becomes_a_dead_letter(cluster: Cluster) -> None:
    """It neither gets lost nor holds the queue up, and no offset passes it before a broker has it."""
    cluster.put("T", b"good")
    cluster.put("T", b"not deflated", sys_flag=1)
    cluster.put("T", b"behind")
    cluster.broker.refuses[RequestCode.CONSUMER_SEND_MSG_BACK] = 1
    consumer = assigned(cluster, Q0)
    assert poll_all(cluster, consumer) == [b"good", b"behind"]
    assert consumer.offsets()[Q0] == 1
    del cluster.broker.refuses[RequestCode.CONSUMER_SEND_MSG_BACK]
    cluster.advance(1_000)
    (sent,) = cluster.broker.sent_back
    assert (sent["group"], sent["delayLevel"]) == ("g", "-1")
    poll(cluster, consumer)
    assert consumer.offsets()[Q0] == 3


def test_in_broadcasting_it_is_skipped_and_told(cluster: Cluster) -> None:
    cluster.put("T", b"not deflated", sys_flag=1)
    cluster.put("T", b"behind")
    consumer = polling(cluster, "T", file=File(), message_model=MessageModel.BROADCASTING)
    assert poll_all(cluster, consumer) == [b"behind"]
    assert any(
        "whose body cannot be read: the body is no" in line and line.endswith("is skipped")
        for line in cluster.stage.node.notices
    )


def test_a_broker_that_is_busy_is_asked_again_soon(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2: code 215 after 20 ms, other failures after a second."""
    consumer = assigned(cluster, Q0)
    cluster.broker.refuses[RequestCode.PULL_MESSAGE] = 215
    cluster.put("T", b"a")
    assert poll(cluster, consumer) == [b"a"]
    count = len(pulls(cluster))
    cluster.stage.advance(60)
    assert len(pulls(cluster)) == count + 3
    cluster.broker.refuses[RequestCode.PULL_MESSAGE] = 2
    cluster.stage.advance(20)
    count = len(pulls(cluster))
    cluster.stage.advance(2_000)
    assert len(pulls(cluster)) == count + 2
