"""Answers that come twice or late, among the frames of a run of bytes."""

from __future__ import annotations

from random import Random

from mqproto import Message
from mqproto.adapters.simulated import Cluster, SimulatedConditions
from mqproto.adapters.simulated.answers import disturb
from mqproto.codec import Command, encode, encode_response

REQUEST = encode(Command(34, {"x": "1"}, b"body", 1))
ANSWER = encode_response(7, 0, None, b"body")


def test_answers_come_late_and_twice_and_requests_never() -> None:
    now, later = disturb(REQUEST + ANSWER + REQUEST, 1.0, 1.0, 500, Random(1))
    assert now == REQUEST + REQUEST
    assert [frame for _, frame in later] == [ANSWER, ANSWER]
    assert all(1 <= after_ms <= 500 for after_ms, _ in later)


def test_nothing_is_lost_or_changed() -> None:
    random = Random(2)
    for _ in range(50):
        now, later = disturb(ANSWER * 3, 0.3, 0.3, 500, random)
        rest = len(now) // len(ANSWER) + len(later)
        assert rest >= 3
        assert now + b"".join(frame for _, frame in later) == ANSWER * rest
    assert disturb(ANSWER * 3, 0.0, 0.0, 500, random) == (ANSWER * 3, [])


def test_a_send_whose_answer_is_late_fails_in_time_and_the_answer_disturbs_nothing() -> None:
    cluster = Cluster(1)
    producer = cluster.producer("shop", send_msg_timeout=1_000, retry_times_when_send_failed=0)
    producer.send(Message("orders", b"first"))
    cluster.simulator.conditions = SimulatedConditions(late=1.0, late_max=20_000)
    late = [producer.submit(Message("orders", b"%d" % number)) for number in range(20)]
    cluster.run_for(30_000)
    cluster.simulator.conditions = SimulatedConditions()
    cluster.run_for(10_000)
    producer.send(Message("orders", b"last"))
    assert sum(sent.ticket.failure is not None for sent in late) > 5
    assert all(sent.wakes == 1 and sent.ended is not None and sent.ended - sent.begun <= 1_000 for sent in late)
    assert (producer.core.window.messages, len(producer.node.calls)) == (0, 0)
    assert all(link.unsent == 0 for link in cluster.broker.node.links)
