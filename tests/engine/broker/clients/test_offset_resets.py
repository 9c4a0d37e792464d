"""INVOKE_BROKER_TO_RESET_OFFSET 222 and what clients are told by 220 (docs/protocol/broker.md 2.19; REB-08)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.wire.bodies import ResetOffsets
from mqproto.wire.fastjson import loads
from tests.engine.broker.harness import WALL, Peer, World, heartbeat


def consumer(world: World, client: str = "c1", **options: Any) -> Peer:
    peer = world.connect()
    peer.heartbeat(heartbeat(client), **options)
    return peer


def fill(world: World, peer: Peer, times: tuple[int, ...] = (2000, 3000, 3000, 4000)) -> None:
    """A topic of two queues: queue 0 has a message of each time, queue 1 one message of the time 2500."""
    fields = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
    peer.ask(17, fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"})
    for time, queue in sorted([*((time, "0") for time in times), (2500, "1")]):
        world.advance(time - world.now)
        peer.send("T", e=queue)


def commit(peer: Peer, queue: int, offset: int, group: str = "G") -> None:
    peer.ask(15, {"consumerGroup": group, "topic": "T", "queueId": str(queue), "commitOffset": str(offset)})


def committed(world: World, group: str = "G") -> dict[int, int]:
    return dict(world.broker.offsets.of(group, "T"))


def reset(peer: Peer, time: int, force: str = "true", **changes: str) -> Command:
    """Times are those of the world; -1 is the end."""
    timestamp = time if time < 0 else WALL + time
    fields = {"topic": "T", "group": "G", "timestamp": str(timestamp), "isForce": force} | changes
    return peer.ask(222, {name: value for name, value in fields.items() if value != "-"}, language=0)


def offsets(answer: Command) -> dict[int, int]:
    assert answer.code == 0, answer
    table = ResetOffsets.from_json(answer.body).offsets
    assert {(queue.topic, queue.broker_name) for queue in table} == {("T", "broker-a")}
    return {queue.queue_id: offset for queue, offset in table.items()}


class TestByTime:
    @pytest.mark.parametrize(
        ("time", "expected"),
        [
            (0, {0: 0, 1: 0}),
            (2000, {0: 0, 1: 0}),
            (2001, {0: 1, 1: 0}),
            (3000, {0: 1, 1: 1}),
            (4001, {0: 4, 1: 1}),
            (-1, {0: 4, 1: 1}),
        ],
    )
    def test_all_members_are_told(self, world: World, peer: Peer, time: int, expected: dict[int, int]) -> None:
        fill(world, peer)
        commit(peer, 0, 2)
        commit(peer, 1, 1)
        clients = [consumer(world, name) for name in ("c1", "c2")]
        for client in clients:
            client.read()
        answer = reset(peer, time)
        assert offsets(answer) == expected
        for client in clients:
            (told,) = client.read()
            assert (told.code, told.is_oneway, offsets(Command(0, body=told.body))) == (220, True, expected)
            timestamp = str(time if time < 0 else WALL + time)
            assert told.fields == {"topic": "T", "group": "G", "timestamp": timestamp, "isForce": "false"}
        assert committed(world) == {0: 2, 1: 1}, "the clients commit, not the broker"

    def test_without_force_nobody_skips_messages(self, world: World, peer: Peer) -> None:
        fill(world, peer)
        commit(peer, 0, 2)
        commit(peer, 1, 1)
        consumer(world)
        assert offsets(reset(peer, -1, "false")) == {0: 2, 1: 1}
        assert offsets(reset(peer, 2001, "false")) == {0: 1, 1: 0}

    def test_queues_that_the_group_never_touched(self, world: World, peer: Peer) -> None:
        """A queue that was added is no reason to leave the others where they are."""
        fill(world, peer)
        commit(peer, 0, 2)
        consumer(world)
        assert offsets(reset(peer, -1, "false")) == {0: 2, 1: 1}

    def test_cpp_gets_a_list(self, world: World, peer: Peer) -> None:
        """Each client gets the form that it reads, whoever asks."""
        fill(world, peer)
        commit(peer, 0, 2)
        java, cpp, go = consumer(world), consumer(world, "c2", language=1), consumer(world, "c3", language=9)
        for client in (java, cpp, go):
            client.read()
        reset(peer, -1)
        entries = [{"brokerName": "broker-a", "offset": 4, "queueId": 0, "topic": "T"}]
        entries += [{"brokerName": "broker-a", "offset": 1, "queueId": 1, "topic": "T"}]
        (told,) = cpp.read()
        assert loads(bytes(told.body)) == {"offsetTable": entries}
        (by_map,) = java.read()
        (also,) = go.read()
        assert by_map.body == also.body
        assert bytes(by_map.body).startswith(b'{"offsetTable":{{')
        fields = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
        peer.ask(222, fields, language=1)
        assert [client.read()[0].body == by_map.body for client in (java, cpp, go)] == [True, False, False]

    def test_the_golden_form(self, world: World, peer: Peer) -> None:
        fill(world, peer)
        commit(peer, 0, 1)
        consumer(world)
        body = reset(peer, -1).body
        assert body == (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:4,{"brokerName":"broker-a","queueId":1,"topic":"T"}:1}}'
        )

    def test_many_members_are_told_in_slices(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.broker.clients.offset_resets._CLIENTS_OF_A_SLICE", 1)
        fill(world, peer)
        commit(peer, 0, 1)
        clients = [consumer(world, f"c{number}") for number in range(4)]
        for client in clients:
            client.read()
        peer.tell(222, {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"})
        assert [len(client.read()) for client in clients] == [1, 0, 0, 0]
        clients[2].close()
        world.advance(0)
        assert [[one.code for one in client.read()] for client in clients] == [[40], [40, 220], [], [40, 220]]
        assert [answer.code for answer in peer.read()] == [0]

    def test_a_member_that_reads_nothing_is_left_out(self, world: World, peer: Peer) -> None:
        fill(world, peer)
        commit(peer, 0, 1)
        client = consumer(world)
        client.read()
        client.link.unsent += 5 << 20
        assert reset(peer, -1).code == 0
        client.link.unsent -= 5 << 20
        assert client.read() == []
        assert any("c1" in notice for notice in world.broker.notices)

    def test_queues_that_have_to_be_read_from_the_disk(self) -> None:
        world = World(store={"cold_read_distance": 1})
        peer = world.connect()
        fill(world, peer)
        commit(peer, 0, 1)
        consumer(world)
        world.hold_jobs = True
        peer.tell(222, {"topic": "T", "group": "G", "timestamp": str(WALL + 2001), "isForce": "true"})
        assert peer.read() == []
        world.run_held()
        (answer,) = peer.read()
        assert offsets(answer) == {0: 1, 1: 0}

    def test_members_that_leave_while_the_disk_is_read(self) -> None:
        world = World(store={"cold_read_distance": 1})
        peer = world.connect()
        fill(world, peer)
        commit(peer, 0, 1)
        client = consumer(world)
        world.hold_jobs = True
        peer.tell(222, {"topic": "T", "group": "G", "timestamp": str(WALL + 2001), "isForce": "true"})
        client.close()
        world.run_held()
        assert [answer.code for answer in peer.read()] == [206]

    def test_many_queues_are_read_by_jobs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However near they are: looking all of them up would hold up everybody else."""
        monkeypatch.setattr("mqproto.engine.store.reads.cold_reads._QUEUES_AT_ONCE", 1)
        monkeypatch.setattr("mqproto.engine.broker.core.waiting_reads.QUEUES_OF_A_READ", 1)
        world = World()
        peer = world.connect()
        fill(world, peer)
        commit(peer, 0, 1)
        consumer(world)
        assert offsets(reset(peer, 2001)) == {0: 1, 1: 0}
        monkeypatch.setattr("mqproto.engine.broker.core.waiting_reads.QUEUES_OF_A_READ", 2)
        world.hold_jobs = True
        peer.tell(222, {"topic": "T", "group": "G", "timestamp": str(WALL + 2001), "isForce": "true"})
        assert len(world.jobs) == 1
        world.run_held()
        assert offsets(peer.read()[0]) == {0: 1, 1: 0}

    @pytest.mark.parametrize(
        ("changes", "code", "remark"),
        [
            ({"topic": "U"}, 1, "[reset-offset] reset offset failed, no topic in this broker. topic=U"),
            ({"group": "H"}, 1, "THe consumer group <H> not exist"),
            ({"group": "OFF"}, 206, "Consumer not online, so can not reset offset, Group: OFF Topic: T Timestamp: -1"),
            ({"timestamp": "-2"}, 1, "timestamp = [-2] value invalid"),
            ({"timestamp": "x"}, 1, "timestamp"),
            ({"timestamp": str(1 << 63)}, 1, "timestamp"),
            ({"topic": "-"}, 1, "topic"),
            ({"group": "-"}, 1, "group"),
            ({"queueId": "1.5"}, 1, "queueId"),
            ({"offset": "now"}, 1, "offset"),
        ],
    )
    def test_what_is_refused(self, world: World, peer: Peer, changes: dict[str, str], code: int, remark: str) -> None:
        fill(world, peer)
        commit(peer, 0, 1)
        commit(peer, 0, 1, "OFF")
        client = consumer(world)
        client.read()
        answer = reset(peer, -1, **changes)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert client.read() == []

    def test_when_one_member_is_too_old_nobody_is_told(self, world: World, peer: Peer) -> None:
        fill(world, peer)
        commit(peer, 0, 1)
        clients = [consumer(world), consumer(world, "c2", version=27)]
        for client in clients:
            client.read()
        answer = reset(peer, -1)
        assert (answer.code, answer.remark) == (1, "the client does not support this feature. version=V3_0_6")
        assert [client.read() for client in clients] == [[], []]


class TestOneQueue:
    """What 5.x asks: one queue, which the broker moves itself, so that nobody has to be online."""

    @pytest.mark.parametrize(
        ("time", "changes", "expected"),
        [
            (0, {"offset": "3"}, 3),
            (0, {"offset": "4"}, 4),
            (0, {"offset": "0"}, 0),
            (3000, {"offset": "-1"}, 1),
            (3000, {}, 1),
            (-1, {}, 4),
        ],
    )
    def test_offline(self, world: World, peer: Peer, time: int, changes: dict[str, str], expected: int) -> None:
        fill(world, peer)
        peer.pull("T", "G")
        commit(peer, 0, 2)
        assert offsets(reset(peer, time, queueId="0", **changes)) == {0: expected}
        assert committed(world) == {0: expected}

    def test_online(self, world: World, peer: Peer) -> None:
        fill(world, peer)
        client = consumer(world)
        client.read()
        assert offsets(reset(peer, 0, queueId="1", offset="1")) == {1: 1}
        (told,) = client.read()
        assert (told.code, offsets(Command(0, body=told.body))) == (220, {1: 1})
        assert committed(world) == {1: 1}

    @pytest.mark.parametrize(
        ("changes", "code", "remark"),
        [
            ({"offset": "5"}, 1, "Target offset 5 not in consume queue range [0-4]"),
            ({"offset": "-7"}, 1, "Target offset -7 not in consume queue range [0-4]"),
            ({"queueId": "2"}, 1, "queueId[2] is illegal, topic:[T]"),
            ({"queueId": "2147483647"}, 1, "is illegal"),
            ({"group": "H"}, 26, "Group H does not exist"),
            ({"topic": "U"}, 1, "no topic in this broker"),
        ],
    )
    def test_what_is_refused(self, world: World, peer: Peer, changes: dict[str, str], code: int, remark: str) -> None:
        fill(world, peer)
        peer.pull("T", "G")
        answer = reset(peer, 0, **({"queueId": "0"} | changes))
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert committed(world) == {}
