"""Answers that are built in slices: the same bytes as at once, between other requests, within limits."""

from __future__ import annotations

import pytest

import mqproto.engine.slices
from mqproto.engine.broker.core import sliced_answers
from mqproto.engine.broker.interfaces.requests import OVERLOAD
from mqproto.engine.slices import OF_AN_OWNER_MAX
from mqproto.wire.bodies import Body, GroupConfig, TopicConfig, TopicTable
from mqproto.wire.codes import SYSTEM_BUSY
from tests.engine.broker.harness import Peer, World


def world_with_topics(count: int = 2000) -> World:
    """A broker with long tables, which were not saved: nothing waits for a disk."""
    world = World()
    core = world.broker
    for number in range(count):
        core.topics.table[f"topic-{number:05d}"] = TopicConfig(f"topic-{number:05d}")
        core.subscription_groups.table[f"group-{number:05d}"] = GroupConfig(f"group-{number:05d}")
        core.offsets.table[f"topic-{number:05d}@group"] = {0: number, 1: number}
    return world


@pytest.mark.parametrize("code", [21, 201, 43])
def test_long_tables(code: int) -> None:
    world = world_with_topics()
    peer = world.connect()
    core = world.broker
    bodies: dict[int, Body] = {
        21: core.topics.as_body(),
        201: core.subscription_groups.as_body(),
        43: core.offsets.as_body(),
    }
    peer.tell(code)
    assert peer.read() == []
    world.advance(0)
    (answer,) = peer.read()
    assert (answer.code, answer.opaque) == (0, peer.opaque)
    assert answer.body == bodies[code].to_json()


def test_other_requests_are_served_between_slices() -> None:
    world = world_with_topics()
    slow, fast = world.connect(), world.connect()
    slow.tell(21)
    turns = 0
    while not slow.link.out:
        assert (world.broker.next_deadline() or 0) <= world.now
        world.broker.timer(world.now)
        assert fast.send("topic-00001").code == 0
        turns += 1
    assert turns > 10
    world.broker.timer(world.now)
    due = world.broker.next_deadline()
    assert due is None or due > world.now


def test_a_topic_that_goes_meanwhile_is_still_in_the_answer() -> None:
    world = world_with_topics()
    peer = world.connect()
    before = len(world.broker.topics.table)
    peer.tell(21)
    world.broker.topics.table.pop("topic-01999")
    world.broker.topics.table["another"] = TopicConfig("another")
    world.advance(0)
    (answer,) = peer.read()
    topics = TopicTable.from_json(answer.body).topics
    assert len(topics) == before
    assert "topic-01999" in topics
    assert "another" not in topics


def test_a_link_that_leaves_is_forgotten() -> None:
    world = world_with_topics()
    peer, other = world.connect(), world.connect()
    peer.tell(21)
    other.tell(21)
    peer.close()
    assert len(world.broker.sliced_answers.work) == 1
    world.advance(0)
    assert len(other.read()) == 1
    assert peer.link.out == []


def test_a_peer_that_takes_nothing_waits_with_further_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_answers, "LINK_UNSENT_MAX", 100_000)
    world = world_with_topics()
    deaf, other = world.connect(), world.connect()
    for _ in range(3):
        deaf.tell(21)
    world.advance(1000)
    assert len(world.broker.sliced_answers.work) == 2
    unsent = deaf.link.unsent
    other.tell(21)
    world.advance(0)
    assert len(other.read()) == 1
    assert deaf.link.unsent == unsent
    assert len(deaf.read()) == 1
    world.advance(1000)
    assert len(deaf.read()) == 1
    world.advance(1000)
    assert len(deaf.read()) == 1
    assert len(world.broker.sliced_answers.work) == 0


def test_too_many_of_one_link() -> None:
    world = world_with_topics(300)
    peer = world.connect()
    for _ in range(OF_AN_OWNER_MAX):
        peer.tell(21)
    answer = peer.ask(21)
    assert (answer.code, answer.remark) == (SYSTEM_BUSY, OVERLOAD)
    answers = []
    while world.broker.sliced_answers.work:
        world.advance(50)
        answers += peer.read()
    assert len(answers) == OF_AN_OWNER_MAX


def test_a_one_way_request_costs_nothing() -> None:
    world = world_with_topics()
    peer = world.connect()
    peer.tell(21, flag=2)
    assert len(world.broker.sliced_answers.work) == 0
    world.advance(0)
    assert peer.read() == []


def test_the_end_comes_with_answers_under_way() -> None:
    world = world_with_topics()
    peer = world.connect()
    peer.tell(21)
    world.close()
    assert world.broker.ended
    assert peer.ended()


def make(peer: Peer, topic: str) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    peer.tell(17, {**fields, "topicFilterType": "SINGLE_TAG"})


def test_long_tables_are_saved_in_slices_and_what_changes_meanwhile_is_saved_next() -> None:
    world = world_with_topics()
    peer = world.connect()
    make(peer, "First")
    world.broker.timer(world.now)
    make(peer, "Second")
    assert peer.read() == []  # there is no answer before the table is saved
    world.advance(0)
    assert [answer.code for answer in peer.read()] == [0, 0]
    world.hold_jobs = True
    make(peer, "Third")
    world.advance(0)
    assert peer.read() == []
    world.run_held()
    assert [answer.code for answer in peer.read()] == [0]
    again = World(files=world.files.process_death(), begin=False)
    assert {"First", "Second", "Third", "topic-00001"} <= again.broker.topics.table.keys()


def test_a_change_that_came_behind_the_first_slice_is_confirmed_by_the_next_save() -> None:
    world = world_with_topics()
    world.hold_jobs = True
    peer = world.connect()
    make(peer, "First")
    first = peer.opaque
    world.broker.timer(world.now)
    make(peer, "Second")
    world.advance(0)
    world.run_held()
    assert [answer.opaque for answer in peer.read()] == [first]
    after_one = World(files=world.files.process_death(), begin=False).broker.topics.table
    assert ("First" in after_one, "Second" in after_one) == (True, False)
    world.advance(0)
    world.run_held()
    assert [answer.opaque for answer in peer.read()] == [peer.opaque]


def test_the_end_waits_for_a_table_that_is_being_saved() -> None:
    world = world_with_topics()
    make(world.connect(), "First")
    world.close()
    ended = [world.broker.ended]
    world.advance(0)
    assert [*ended, world.broker.ended] == [False, True]
    again = World(files=world.files, begin=False)
    assert {"First", "topic-00001"} <= again.broker.topics.table.keys()


def test_tables_are_saved_however_much_clients_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_topics()
    monkeypatch.setattr(mqproto.engine.slices, "WORKS_MAX", 4)
    for _ in range(4):
        world.connect().tell(21)
    peer = world.connect()
    assert peer.ask(21).code == SYSTEM_BUSY
    make(peer, "First")
    world.advance(0)
    assert [answer.code for answer in peer.read()] == [0]
