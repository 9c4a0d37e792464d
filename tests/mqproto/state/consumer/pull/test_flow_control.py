"""When the pull loops of a lite pull consumer wait: pauses and flow control."""

from __future__ import annotations

import pytest

from mqproto.errors import StateError
from tests.mqproto.state.consumers import numbers
from tests.mqproto.state.lite_pulls import Q0, Q1, assigned, poll, poll_all, polling, pulls
from tests.mqproto.state.scripted_broker import Cluster, queue_of


def test_a_paused_queue_is_not_pulled_but_what_is_cached_is_polled(cluster: Cluster) -> None:
    """docs/protocol/client.md 5.2."""
    cluster.put("T", *numbers(3))
    consumer = polling(cluster, "T")
    consumer.pause([Q0])
    cluster.put("T", b"3")  # the pull that waits brings this one
    cluster.put("T", b"4")
    cluster.put("T", b"other", queue_id=1)
    assert sorted(poll_all(cluster, consumer)) == [b"0", b"1", b"2", b"3", b"other"]
    cluster.advance(30_000)
    assert poll(cluster, consumer) == []
    consumer.resume([Q0, Q1], cluster.stage.now)
    cluster.stage.settle()
    assert poll(cluster, consumer) == [b"4"]
    with pytest.raises(StateError):
        consumer.pause([queue_of("U")])
    with pytest.raises(StateError):
        consumer.resume([queue_of("U")], 0)


def test_a_full_queue_is_pulled_again_when_messages_are_done(cluster: Cluster) -> None:
    cluster.put("T", *numbers(100))
    consumer = assigned(cluster, Q0, pull_threshold_for_queue=15)
    assert pulls(cluster) == [0, 10]
    poll(cluster, consumer)
    assert pulls(cluster) == [0, 10], "polled is not done"
    poll(cluster, consumer)
    assert pulls(cluster) == [0, 10, 20]


def test_a_full_consumer_pulls_again_when_few_enough_messages_wait(cluster: Cluster) -> None:
    cluster.put("T", *numbers(100))
    cluster.put("T", *numbers(100, 100), queue_id=1)
    consumer = assigned(cluster, Q0, Q1, pull_threshold_for_all=25)
    assert (pulls(cluster), pulls(cluster, 1)) == ([0, 10], [0, 10]), "both were on their way when 20 messages waited"
    bodies = poll(cluster, consumer)
    assert (pulls(cluster), pulls(cluster, 1)) == ([0, 10], [0, 10])
    bodies += poll(cluster, consumer)
    assert len(pulls(cluster)) + len(pulls(cluster, 1)) > 4
    assert sorted(bodies + poll_all(cluster, consumer)) == sorted(numbers(200)), "and nothing has waited for a timer"


def test_room_for_all_is_room_for_each(cluster: Cluster) -> None:
    """A queue that others have held up goes on as soon as few enough messages wait, not only when its own are done."""
    cluster.put("T", *numbers(100))
    consumer = assigned(cluster, Q0, Q1, pull_threshold_for_all=15)
    cluster.put("T", *numbers(5, 100), queue_id=1)
    assert pulls(cluster, 1) == [0], "the first pull was waiting; 25 messages hold the next one up"
    assert poll(cluster, consumer) == numbers(10)
    assert pulls(cluster, 1) == [0, 5]


def test_a_seek_makes_room(cluster: Cluster) -> None:
    cluster.put("T", *numbers(100))
    consumer = assigned(cluster, Q0, Q1, pull_threshold_for_all=15)
    cluster.put("T", *numbers(5, 100), queue_id=1)
    cluster.stage.run(consumer.seek(Q0, 100, cluster.stage.now))
    assert pulls(cluster, 1) == [0, 5]


def test_a_pause_ends_with_the_assignment(cluster: Cluster) -> None:
    consumer = assigned(cluster, Q0, Q1)
    consumer.pause([Q0])
    consumer.assign([Q1], cluster.stage.now)
    consumer.assign([Q0, Q1], cluster.stage.now)
    cluster.stage.settle()
    cluster.put("T", *numbers(3))
    cluster.put("T", *numbers(3, 3))
    assert poll_all(cluster, consumer) == numbers(6)


def test_a_wide_span_holds_a_queue_up(cluster: Cluster) -> None:
    cluster.put("T", *numbers(100))
    assigned(cluster, Q0, consume_max_span=15)
    assert pulls(cluster) == [0, 10]


def test_a_queue_that_goes_makes_room_for_others(cluster: Cluster) -> None:
    cluster.put("T", *numbers(100))
    cluster.put("T", *numbers(100, 100), queue_id=1)
    consumer = assigned(cluster, Q0, Q1, pull_threshold_for_all=25)
    before = len(pulls(cluster, 1))
    consumer.assign([Q1], cluster.stage.now)
    cluster.stage.settle()
    assert len(pulls(cluster, 1)) > before
