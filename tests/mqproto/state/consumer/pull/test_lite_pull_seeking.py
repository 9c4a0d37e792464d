"""Where lite pull consumers begin, and where they go on when they are told to."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import encode_response
from mqproto.errors import ClientError, StateError
from mqproto.wire.bodies import ConsumeFromWhere
from tests.mqproto.state.consumers import numbers
from tests.mqproto.state.lite_pulls import Q0, Q1, assigned, poll, poll_all, polling
from tests.mqproto.state.scripted_broker import Cluster


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, [b"0", b"1", b"2"]),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, []),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, [b"2"]),
    ],
)
def test_where_a_new_group_begins(cluster: Cluster, where: ConsumeFromWhere, expected: list[bytes]) -> None:
    """docs/protocol/client.md 4.3, 5.2."""
    for number, time in enumerate((1_000_000_000_000, 1_600_000_000_000, 1_700_000_001_000)):
        cluster.put("T", b"%d" % number, store_time=time)
    consumer = polling(cluster, "T", consume_from_where=where, consume_timestamp="20231114221320")
    assert poll_all(cluster, consumer) == expected


def test_a_kept_offset_comes_first(cluster: Cluster) -> None:
    cluster.put("T", *numbers(4))
    cluster.broker.offsets["T", 0] = 3
    assert poll_all(cluster, polling(cluster, "T")) == [b"3"]


# --- seeking


def test_seeking_goes_on_there_with_the_next_poll(cluster: Cluster) -> None:
    cluster.put("T", *numbers(30))
    consumer = polling(cluster, "T")
    poll(cluster, consumer)
    cluster.stage.run(consumer.seek(Q0, 25, cluster.stage.now))
    assert poll(cluster, consumer) == numbers(5, 25)
    cluster.stage.run(consumer.seek(Q0, 2, cluster.stage.now))
    assert poll(cluster, consumer) == numbers(10, 2)


def test_with_auto_commit_a_seek_is_committed_by_the_next_poll(cluster: Cluster) -> None:
    cluster.put("T", *numbers(30))
    consumer = polling(cluster, "T")
    poll_all(cluster, consumer)
    cluster.stage.run(consumer.seek(Q0, 2, cluster.stage.now))
    assert consumer.offsets()[Q0] == 30
    poll(cluster, consumer, 1)
    assert consumer.offsets()[Q0] == 2, "it may go down"
    poll(cluster, consumer, 1)
    assert consumer.offsets()[Q0] == 3


def test_without_auto_commit_a_seek_commits_nothing(cluster: Cluster) -> None:
    cluster.put("T", *numbers(30))
    cluster.broker.offsets["T", 0] = 20
    consumer = polling(cluster, "T", auto_commit=False)
    cluster.stage.run(consumer.seek_to_begin(Q0, cluster.stage.now))
    assert len(poll_all(cluster, consumer)) == 30
    cluster.advance(20_000)
    assert cluster.broker.offsets["T", 0] == 20


def test_seeking_to_the_ends(cluster: Cluster) -> None:
    cluster.put("T", *numbers(9))
    cluster.broker.minimum["T", 0] = 4
    consumer = assigned(cluster, Q0)
    cluster.stage.run(consumer.seek_to_end(Q0, cluster.stage.now))
    assert poll_all(cluster, consumer) == []
    cluster.stage.run(consumer.seek_to_begin(Q0, cluster.stage.now))
    assert poll_all(cluster, consumer) == numbers(5, 4)
    wrong: Any
    for wrong in (3, 10, "5", 5.0):
        with pytest.raises(ClientError, match="which has 4 to 9"):
            cluster.stage.run(consumer.seek(Q0, wrong, cluster.stage.now))
    for wrong in (-1, "5", 5.0, None, True):
        with pytest.raises(ClientError, match="can have no offset"):
            cluster.stage.run(consumer.commit_sync({Q0: wrong}, cluster.stage.now))
    with pytest.raises(StateError, match="is not assigned"):
        cluster.stage.run(consumer.seek(Q1, 0, cluster.stage.now))


def test_what_was_handed_out_before_a_seek_moves_nothing_any_more(cluster: Cluster) -> None:
    cluster.put("T", *numbers(30))
    consumer = polling(cluster, "T")
    poll(cluster, consumer)
    cluster.stage.run(consumer.seek(Q0, 5, cluster.stage.now))
    poll(cluster, consumer, 1)
    assert consumer.offsets()[Q0] == 5


def test_an_answer_from_before_a_seek_is_dropped(cluster: Cluster) -> None:
    """CON-17."""
    consumer = polling(cluster, "T")
    stale = cluster.broker.held[0].request
    assert stale.fields["queueId"] == "0"
    cluster.broker.minimum["T", 0] = 0
    cluster.stage.run(consumer.seek_to_begin(Q0, cluster.stage.now))
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "70", "minOffset": "0", "maxOffset": "70"}
    cluster.stage.receive(cluster.broker.address, encode_response(stale.opaque, 19, fields))
    cluster.put("T", b"a")
    assert poll_all(cluster, consumer) == [b"a"]
