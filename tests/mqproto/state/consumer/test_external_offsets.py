"""Offsets that the application keeps itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mqproto.errors import ClientError
from mqproto.message import MessageQueue
from mqproto.state.consumer.external_offsets import ExternalOffsets
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow, Sleep, Work
from mqproto.state.node.contract import Job
from mqproto.wire.bodies import MessageModel
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.consumers import FIRST
from tests.mqproto.state.scripted_broker import Cluster, queue_of

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


class Storage:
    """A table, with switches for trouble."""

    def __init__(self, **offsets: int) -> None:
        self.held: dict[MessageQueue, object] = {}
        self.saves: list[dict[MessageQueue, int]] = []
        self.failure: Exception | None = None

    def read(self, group: str, queue: MessageQueue) -> int | None:
        assert group == "g"
        if self.failure is not None:
            raise self.failure
        return self.held.get(queue)  # type: ignore[return-value]  # tests put wrong ones there

    def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        assert group == "g"
        if self.failure is not None:
            raise self.failure
        self.saves.append(dict(offsets))
        self.held |= offsets


def job_of(flow: Flow[object]) -> Job:
    effect = next(flow)
    assert isinstance(effect, Work)
    return effect.job


def ended(flow: Flow[object], failure: Exception | None = None) -> object:
    with pytest.raises(StopIteration) as stop:
        flow.send((failure, 7))
    return stop.value.value


def read(store: ExternalOffsets, queue: MessageQueue = Q0) -> int | None:
    flow = store.fetch(queue, 5)
    job_of(flow).run()
    with pytest.raises(StopIteration) as stop:
        flow.send((None, 7))
    offset: int | None
    offset, now = stop.value.value
    assert now == 7
    return offset


def save(flow: Flow[None]) -> None:
    job_of(flow).run()
    ended(flow)


def saving(store: ExternalOffsets, queue: MessageQueue, offset: int) -> Flow[None]:
    store.update(queue, offset)
    return store.persist([queue], 0)


def test_the_storage_is_asked_where_to_begin_and_told_what_changed() -> None:
    storage = Storage()
    storage.held[Q0] = 3
    store = ExternalOffsets("g", storage, print)
    assert (read(store), read(store, Q1)) == (3, None)
    store.update(Q0, 3)
    store.update(Q1, 0)
    save(store.persist([Q0, Q1], 0))
    assert storage.saves == [{Q1: 0}], "the other is what was read"
    with pytest.raises(StopIteration):
        next(store.persist([Q0, Q1], 0))
    for _ in range(2):
        flow = store.keep(Q1, 9, 0)
        job_of(flow).run()
        assert flow.send((None, 1)) == Sleep(0)
        ended(flow)
    assert storage.saves[1:] == [{Q1: 9}, {Q1: 9}], "after it was given up somebody else may have saved it"


def test_one_save_at_a_time_and_the_last_offsets_win() -> None:
    storage = Storage()
    store = ExternalOffsets("g", storage, print)
    first = saving(store, Q0, 6)
    job_of(first).run()
    for offset in (7, 8):
        with pytest.raises(StopIteration):
            next(saving(store, Q0, offset))
    with pytest.raises(StopIteration) as stop:
        next(store.fetch(Q0, 5))
    assert stop.value.value == (8, 5), "what is on its way counts"
    effect = first.send((None, 1))
    assert isinstance(effect, Work)
    effect.job.run()
    ended(first)
    assert storage.saves == [{Q0: 6}, {Q0: 8}]


def test_what_cannot_be_saved_is_saved_later() -> None:
    storage = Storage()
    told: list[str] = []
    store = ExternalOffsets("g", storage, told.append)
    flow = saving(store, Q0, 6)
    job_of(flow)
    ended(flow, OSError("full"))
    assert told == ["group g: the offset storage failed, offsets are saved later: OSError('full')"]
    store.update(Q1, 1)
    save(store.persist([Q1], 0))
    assert storage.saves == [{Q0: 6, Q1: 1}]


def test_a_commit_waits_until_the_offset_is_saved_and_tells_why_it_is_not() -> None:
    storage = Storage()
    store = ExternalOffsets("g", storage, print)
    first, second = saving(store, Q0, 1), store.commit(Q0, 2, 0)
    job_of(first).run()
    assert next(second) == Sleep(10)
    effect = first.send((None, 5))
    assert isinstance(effect, Work)
    effect.job.run()
    ended(first)
    assert second.send((None, 10)) == Sleep(10)
    assert ended(second) == (None, 7)
    assert storage.saves == [{Q0: 1}, {Q0: 2}]
    third = store.commit(Q0, 3, 0)
    job_of(third)
    assert third.send((OSError("full"), 1)) == Sleep(0)
    failure, _ = ended(third)  # type: ignore[misc]
    assert "full" in str(failure)  # type: ignore[has-type]


@pytest.mark.parametrize("answer", [-1, True, "7", 7.0, 2**63])
def test_answers_that_are_no_offsets(answer: object) -> None:
    storage = Storage()
    storage.held[Q0] = answer
    with pytest.raises(ClientError, match="an offset or None expected"):
        job_of(ExternalOffsets("g", storage, print).fetch(Q0, 0)).run()


def test_a_question_that_fails() -> None:
    flow = ExternalOffsets("g", Storage(), print).fetch(Q0, 0)
    job_of(flow)
    with pytest.raises(ClientError, match="KeyError"):
        flow.send((KeyError("x"), 1))


@pytest.mark.parametrize("model", list(MessageModel))
def test_a_consumer_begins_where_the_storage_says_and_saves_there_alone(cluster: Cluster, model: MessageModel) -> None:
    storage = Storage()
    storage.held[queue_of("T", 0)] = 1
    storage.failure = OSError("not yet")
    cluster.stage.begin()
    settings = ConsumerSettings(group="g", consume_from_where=FIRST, message_model=model)
    consumer = PushConsumerCore(cluster.stage.node, settings, "l", offset_storage=storage)
    consumer.subscribe("T", now=0)
    cluster.put("T", b"old", b"new")
    cluster.start(consumer)
    cluster.advance(3_000)
    assert (cluster.tasks, any("not yet" in line for line in cluster.stage.node.notices)) == ([], True)
    storage.failure = None
    cluster.advance(2_000)
    assert cluster.bodies == [b"new"]
    cluster.answer_all()
    cluster.advance(10_000)
    assert storage.held[queue_of("T", 0)] == 2
    assert cluster.requests(RequestCode.QUERY_CONSUMER_OFFSET) == []
    assert cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []
