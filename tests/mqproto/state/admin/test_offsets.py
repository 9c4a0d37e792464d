"""Operations on offsets: groups that are online at one broker and away at another, moves in one direction, copies."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.errors import BrokerError, ClientError, InvalidName, NoClients, NoRoute, PartlyFailed
from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    ConsumerStatus,
    ConsumeStats,
    ConsumeTimeSpans,
    QueueTimeSpan,
    ResetOffsets,
    TopicOffset,
    TopicStats,
)
from mqproto.wire.bodies.statistics import ConsumeOffsets
from tests.mqproto.state.admin.servers import SLAVE, A, B, Servers
from tests.mqproto.state.stage import refused, success

A0, A1, B0, B1 = (MessageQueue("T", broker, queue) for broker in "ab" for queue in range(2))
ONLINE = {"topic": "T", "group": "g", "isForce": "true"}


def consumed(*queues: tuple[MessageQueue, int]) -> bytes:
    return ConsumeStats({queue: ConsumeOffsets(100, offset, 0) for queue, offset in queues}).to_json()


def about(queue: MessageQueue, **more: str) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name, **more}


def test_ends_and_times_are_asked_of_the_master() -> None:
    servers = Servers("T")
    for code, field, value in ((30, "offset", "9"), (31, "offset", "2"), (29, "offset", "5"), (32, "timestamp", "77")):
        servers.answer(A, code, {field: value})
    offsets = servers.core.offsets
    assert [
        servers.run(flow)
        for flow in (offsets.maximum(A1), offsets.minimum(A1), offsets.at_time(A1, 7), offsets.earliest_time(A1))
    ] == [
        9,
        2,
        5,
        77,
    ]
    assert servers.asked(A) == [(30, about(A1)), (31, about(A1)), (29, about(A1, timestamp="7")), (32, about(A1))]
    del servers.brokers["a"].addresses[0]
    servers.add("T")
    with pytest.raises(NoRoute):
        servers.run(offsets.maximum(A0))
    assert servers.asked(SLAVE) == []


def test_what_is_committed() -> None:
    servers = Servers("T")
    servers.answer(A, 14, {"offset": "6"})
    servers.refuse(B, 14, 22)
    offsets = servers.core.offsets
    assert servers.run(offsets.committed("g", A0)) == 6
    assert servers.run(offsets.committed("g", B0)) is None
    servers.refuse(B, 14, 1)
    with pytest.raises(BrokerError):
        servers.run(offsets.committed("g", B0))
    servers.run(offsets.commit("g", A0, 3))
    assert servers.asked(A)[-1] == (15, about(A0, consumerGroup="g", commitOffset="3"))
    with pytest.raises(ClientError, match="negative"):
        servers.run(offsets.commit("g", A0, -1))
    with pytest.raises(InvalidName):
        servers.run(offsets.commit("bad^name", A0, 0))


# --- resets


def test_members_are_told_by_every_broker() -> None:
    servers = Servers("T")
    servers.answer(A, 222, body=ResetOffsets({A0: 4, A1: 5}).to_json())
    servers.answer(B, 222, body=ResetOffsets({B0: 6}).to_json())
    reset = servers.run(servers.core.offsets.reset_by_time("g", "T", 1_000))
    assert (reset.offsets, reset.told, reset.committed) == ({A0: 4, A1: 5, B0: 6}, (A, B), ())
    assert servers.asked(A) == [(222, {**ONLINE, "timestamp": "1000"})]
    servers.run(servers.core.offsets.skip("g", "T"))
    assert servers.asked(B)[-1] == (222, {**ONLINE, "timestamp": "-1"})


def test_where_nobody_is_online_the_offsets_are_stored() -> None:
    servers = Servers("T")
    servers.refuse(A, 222, 206)
    servers.answer(A, 208, body=consumed((A0, 3), (A1, 8), (MessageQueue("U", "a", 0), 1)))
    servers.answer(A, 29, {"offset": "5"})
    servers.answer(B, 222, body=ResetOffsets({B0: 6}).to_json())
    reset = servers.run(servers.core.offsets.reset_by_time("g", "T", 1_000))
    assert (reset.offsets, reset.told, reset.committed) == ({A0: 5, A1: 5, B0: 6}, (B,), (A,))
    stored = [fields for code, fields in servers.asked(A) if code == 15]
    assert stored == [about(queue, consumerGroup="g", commitOffset="5") for queue in (A0, A1)]


def test_without_force_nothing_moves_forward() -> None:
    servers = Servers()
    servers.add("T", "a")
    servers.refuse(A, 222, 206)
    servers.answer(A, 208, body=consumed((A0, 3), (A1, 8)))
    servers.answer(A, 30, {"offset": "5"})
    reset = servers.run(servers.core.offsets.reset_by_time("g", "T", None, force=False))
    assert reset.offsets == {A0: 3, A1: 5}
    assert [fields["queueId"] for code, fields in servers.asked(A) if code == 15] == ["1"]
    assert servers.asked(A)[0][1]["isForce"] == "false"


def test_a_group_that_was_never_there_begins_at_the_start() -> None:
    servers = Servers()
    servers.add("T", "a")
    servers.refuse(A, 222, 206)
    servers.answer(A, 208, body=consumed())
    servers.answer(
        A, 202, body=TopicStats({A0: TopicOffset(2, 9, 0), MessageQueue("T", "a", 7): TopicOffset(1, 1, 0)}).to_json()
    )
    servers.answer(A, 29, {"offset": "4"})
    assert servers.run(servers.core.offsets.reset_by_time("g", "T", 1_000, force=False)).offsets == {A0: 2}
    assert servers.run(servers.core.offsets.reset_by_time("g", "T", 1_000)).offsets == {A0: 4}


def test_a_broker_that_fails_is_named_and_the_others_are_told() -> None:
    servers = Servers("T")
    servers.refuse(A, 222, 1, "THe consumer group <g> not exist")
    servers.answer(B, 222, body=ResetOffsets({B0: 6}).to_json())
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.offsets.reset_by_time("g", "T", 0))
    assert ([one.place for one in failed.value.failures], failed.value.done) == ([A], (B,))
    del servers.brokers["a"].addresses[0]
    servers.add("T")
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.offsets.reset_by_time("g", "T", 0))
    assert [(one.place, type(one.failure)) for one in failed.value.failures] == [("a", NoRoute)]
    with pytest.raises(ClientError, match="before 1970"):
        servers.run(servers.core.offsets.reset_by_time("g", "T", -1))


# --- copies


def test_offsets_are_cloned_without_retries() -> None:
    servers = Servers("T")
    servers.add("%RETRY%g", "a")
    other = MessageQueue("U", "a", 0)
    servers.answer(A, 208, body=consumed((A0, 3), (other, 8), (MessageQueue("%RETRY%g", "a", 0), 1)))
    assert servers.run(servers.core.offsets.clone("g", "h", "T")) == {A0: 3}
    assert servers.asked(A)[-1] == (15, about(A0, consumerGroup="h", commitOffset="3"))
    assert servers.run(servers.core.offsets.clone("g", "h")) == {A0: 3, other: 8}
    with pytest.raises(NoClients, match="nothing of topic V"):
        servers.run(servers.core.offsets.clone("g", "h", "V"))
    with pytest.raises(NoClients):
        servers.run(servers.core.offsets.clone("stranger", "h"))


def test_a_queue_that_cannot_be_cloned_is_named() -> None:
    servers = Servers("T")
    servers.add("%RETRY%g", "a")
    servers.answer(A, 208, body=consumed((A0, 3), (A1, 4)))

    def commit(request: Command) -> bytes:
        return refused(request, 26, "Group h does not exist") if request.fields["queueId"] == "0" else success(request)

    servers.stage.peers[A].answers[15] = commit
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.offsets.clone("g", "h"))
    assert ([one.place for one in failed.value.failures], failed.value.done, failed.value.code) == (
        ["T/a/0"],
        ("T/a/1",),
        26,
    )


# --- what members and brokers say


def test_offsets_in_the_memory_of_members() -> None:
    servers = Servers("T")
    servers.answer(A, 223, body=ConsumerStatus(by_client={"x": {A0: 1}}).to_json())
    servers.answer(B, 223, body=ConsumerStatus(by_client={"x": {B0: 2}, "y": {B1: 3}}).to_json())
    assert servers.run(servers.core.offsets.of_members("g", "T")) == {"x": {A0: 1, B0: 2}, "y": {B1: 3}}
    servers.run(servers.core.offsets.of_members("g", "T", "x"))
    assert servers.asked(A)[-1] == (223, {"topic": "T", "group": "g", "clientAddr": "x"})


def test_time_spans() -> None:
    servers = Servers("T")
    servers.answer(A, 303, body=ConsumeTimeSpans([QueueTimeSpan(A1), QueueTimeSpan(A0)]).to_json())
    servers.answer(B, 303, body=ConsumeTimeSpans([QueueTimeSpan(B0)]).to_json())
    assert [span.queue for span in servers.run(servers.core.offsets.time_spans("g", "T"))] == [A0, A1, B0]
