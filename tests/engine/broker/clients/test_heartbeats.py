"""Heartbeats, members, notices, unregistration, silence (docs/protocol/broker.md 2.7, 2.8, 3)."""

from __future__ import annotations

import json

import pytest

from mqproto.message import MessageQueue
from mqproto.wire.bodies import (
    ConsumerConnection,
    ConsumerIds,
    LockAnswer,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from mqproto.wire.codes import Language
from tests.engine.broker.harness import Peer, World, heartbeat


def members(peer: Peer, group: str = "G") -> list[str]:
    answer = peer.ask(38, {"consumerGroup": group})
    return ConsumerIds.from_json(answer.body).client_ids if answer.code == 0 else []


def notices(peer: Peer) -> list[str]:
    """Groups whose change was told to a peer since the last reading."""
    found = peer.read()
    assert all((one.code, one.is_oneway, one.is_response) == (40, True, False) for one in found), found
    return [one.fields["consumerGroup"] for one in found]


class TestHeartbeat:
    def test_a_consumer_registers(self, world: World, peer: Peer) -> None:
        peer.tell(34, None, heartbeat())
        first, second = peer.read()
        assert (first.code, first.fields) == (40, {"consumerGroup": "G"}), "the new one is told too"
        assert (second.code, second.is_response, second.remark) == (0, True, None)
        assert members(peer) == ["c1"]
        config = world.broker.topics.find("%RETRY%G")
        assert config is not None
        assert (config.read_queues, config.perm, config.sys_flag) == (1, 6, 0)
        assert "G" in world.broker.subscription_groups.table

    def test_a_retry_topic_of_a_unit(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat(unitMode=True))
        config = world.broker.topics.find("%RETRY%G")
        assert config is not None
        assert config.sys_flag == 2

    def test_who_came_is_told_to_all(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        other = world.connect()
        other.heartbeat(heartbeat("c2"))
        assert notices(peer) == ["G"]
        assert members(peer) == ["c1", "c2"]
        other.heartbeat(heartbeat("c2"))
        assert notices(peer) == []

    def test_a_group_that_wants_no_notices(self, peer: Peer) -> None:
        peer.ask(200, None, b'{"groupName":"G","notifyConsumerIdsChangedEnable":false}')
        peer.tell(34, None, heartbeat())
        assert [one.code for one in peer.read()] == [0]

    def test_a_broker_that_gives_no_notices(self) -> None:
        peer = World(notify_consumer_ids_changed_enable=False).connect()
        peer.tell(34, None, heartbeat())
        assert [one.code for one in peer.read()] == [0]

    def test_without_automatic_groups_the_member_counts_all_the_same(self) -> None:
        world = World(auto_create_subscription_group=False)
        peer = world.connect()
        peer.heartbeat(heartbeat())
        assert members(peer) == ["c1"]
        assert world.broker.topics.find("%RETRY%G") is None

    def test_ordinals_and_texts_and_what_is_left_out(self, peer: Peer) -> None:
        """C++: enums as ordinals, versions as texts, no producers, a consumer without subscriptions."""
        body = (
            b'{"clientID":"7-127.0.0.1@x","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"G",'
            b'"messageModel":1,'
            b'"subscriptionDataSet":[{"codeSet":[0,0],"subString":"a || b",'
            b'"subVersion":"17","tagsSet":["a","b"],"topic":"T"}]},'
            b'{"consumeFromWhere":0,"consumeType":0,"groupName":"P","messageModel":1}]}\n'
        )
        assert peer.heartbeat(body).code == 0
        assert members(peer) == ["7-127.0.0.1@x"]
        assert members(peer, "P") == ["7-127.0.0.1@x"]

    @pytest.mark.parametrize(
        "body",
        [
            heartbeat(consumeType="PUSH"),
            heartbeat(messageModel=7),
            heartbeat(consumeFromWhere=None),
            heartbeat(groups=("",)),
            heartbeat(client=""),
            b"",
            b"{",
            b"[]",
            b'{"clientID":"c1","consumerDataSet":{}}',
        ],
    )
    def test_what_is_no_heartbeat_registers_nothing(self, world: World, peer: Peer, body: bytes) -> None:
        """COD-10."""
        answer = peer.ask(34, None, body)
        assert answer.code == 1
        assert answer.remark
        assert world.broker.client_registry.consumers == {}
        assert peer.heartbeat(heartbeat()).code == 0

    def test_one_bad_consumer_registers_none_of_them(self, world: World, peer: Peer) -> None:
        body = json.loads(heartbeat(groups=("G", "H")))
        body["consumerDataSet"][1]["consumeType"] = "PUSH"
        assert peer.ask(34, None, json.dumps(body).encode()).code == 1
        assert world.broker.client_registry.consumers == {}

    def test_different_subscriptions_of_one_group_are_noted(self, world: World, peer: Peer) -> None:
        """REB-03."""
        peer.heartbeat(heartbeat())
        other = world.connect()
        subscription = {"topic": "T", "subString": "a", "subVersion": 2}
        other.heartbeat(heartbeat("c2", subscriptionDataSet=[subscription]))
        (notice,) = world.broker.notices
        assert "c1" in notice
        assert "c2" in notice


class TestAllProducers:
    def test_who_produces(self, world: World, peer: Peer) -> None:
        assert peer.ask(328).body == b'{"data":{}}'
        world.advance(500)
        peer.heartbeat(heartbeat("c1", (), ("P", 'Q"')), version=401, language=9)
        world.connect("192.0.2.4:7").heartbeat(heartbeat("c2", (), ("P",)))
        world.advance(1000)
        body = peer.ask(328).body
        first = ProducerInfo("c1", "/192.0.2.3:40000", Language.GO, 401, world.wall - 1000)
        second = ProducerInfo("c2", "/192.0.2.4:7", Language.JAVA, 407, world.wall - 1000)
        table = ProducerTable({"P": [first, second], 'Q"': [first]})
        assert ProducerTable.from_json(body) == table
        assert body == table.to_json()

    def test_many_producers_are_told_in_slices(self, world: World, peer: Peer) -> None:
        for number in range(200):
            world.connect().heartbeat(heartbeat(f"client-{number}", (), ("P",)))
        peer.tell(328)
        assert peer.read() == []
        world.advance(0)
        (answer,) = peer.read()
        assert len(ProducerTable.from_json(answer.body).producers["P"]) == 200


class TestLeaving:
    def test_unregistering(self, world: World, peer: Peer) -> None:
        other = world.connect()
        peer.heartbeat(heartbeat(producers=("P",)))
        other.heartbeat(heartbeat("c2"))
        peer.read()
        assert peer.ask(35, {"clientID": "c1", "consumerGroup": "G", "producerGroup": ""}).code == 0
        assert notices(other) == ["G"]
        assert members(other) == ["c2"]
        assert peer.ask(204, {"producerGroup": "P"}).code == 0
        assert peer.ask(35, {"clientID": "c1", "producerGroup": "P"}).code == 0
        answer = peer.ask(204, {"producerGroup": "P"})
        assert (answer.code, answer.remark) == (1, "the producer group[P] not exist")

    def test_an_unknown_group(self, peer: Peer) -> None:
        assert peer.ask(35, {"clientID": "c1", "consumerGroup": "nobody"}).code == 0
        answer = peer.ask(38, {"consumerGroup": "nobody"})
        assert (answer.code, answer.remark) == (1, "no consumer for this group, nobody")

    def test_a_closed_link(self, world: World, peer: Peer) -> None:
        """Go never unregisters: only the closed connection says that it left."""
        other = world.connect()
        peer.heartbeat(heartbeat(groups=("G", "H")))
        other.heartbeat(heartbeat("c2"))
        peer.close()
        assert notices(other) == ["G"]
        assert members(other) == ["c2"]
        assert "H" not in world.broker.client_registry.consumers

    def test_silence(self, world: World, peer: Peer) -> None:
        """A member without a heartbeat for 120 s is dropped and its link closed, and the others are told."""
        other = world.connect()
        peer.heartbeat(heartbeat())
        other.heartbeat(heartbeat("c2"))
        notices(peer)
        for _ in range(4):
            world.advance(30_000 - 1)
            other.heartbeat(heartbeat("c2"))
            peer.ask(30, {"topic": "T", "queueId": "0"})
        assert not peer.ended()
        world.advance(4)
        assert peer.ended()
        assert notices(other) == ["G"]
        assert members(other) == ["c2"]

    def test_an_idle_link_is_closed_after_120_seconds(self, world: World, peer: Peer) -> None:
        world.advance(60_000)
        peer.ask(30, {"topic": "T", "queueId": "0"})
        world.advance(119_999)
        assert not peer.ended()
        world.advance(1)
        assert peer.ended()
        assert [one.reason for one in world.hang_ups] == ["idle"]
        assert world.broker.next_deadline() is None


class TestConnections:
    def test_consumers_and_producers(self, peer: Peer) -> None:
        peer.heartbeat(heartbeat(producers=("P",)), language=9, version=317)
        consumers = ConsumerConnection.from_json(peer.ask(203, {"consumerGroup": "G"}).body)
        (connection,) = consumers.connections
        assert (connection.client_id, connection.address, connection.version) == ("c1", "192.0.2.3:40000", 317)
        assert connection.language is not None
        assert connection.language.name == "GO"
        assert set(consumers.subscriptions) == {"T"}
        producers = ProducerConnection.from_json(peer.ask(204, {"producerGroup": "P"}).body)
        assert [one.client_id for one in producers.connections] == ["c1"]

    def test_nobody(self, peer: Peer) -> None:
        answer = peer.ask(203, {"consumerGroup": "G"})
        assert (answer.code, answer.remark) == (206, "the consumer group[G] not online")


class TestCheck:
    @pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("", 0), ("SQL92", 1)])
    def test_expression_types(self, peer: Peer, kind: str, code: int) -> None:
        body = {
            "clientId": "c1",
            "group": "G",
            "subscriptionData": {"topic": "T", "subString": "a", "expressionType": kind},
        }
        assert peer.ask(46, None, json.dumps(body).encode()).code == code

    def test_no_body(self, peer: Peer) -> None:
        assert peer.ask(46).code == 0


class TestLocks:
    def ask(self, peer: Peer, code: int, client: str, *queues: int) -> list[int]:
        found = [{"brokerName": "broker-a", "queueId": queue, "topic": "T"} for queue in queues]
        answer = peer.ask(code, None, json.dumps({"consumerGroup": "G", "clientId": client, "mqSet": found}).encode())
        assert answer.code == 0
        if code == 42:
            assert answer.body == b""
            return []
        granted = LockAnswer.from_json(answer.body).queues
        assert all(queue == MessageQueue("T", "broker-a", queue.queue_id) for queue in granted)
        return [queue.queue_id for queue in granted]

    def test_lock_and_unlock(self, world: World, peer: Peer) -> None:
        assert self.ask(peer, 41, "one", 0, 1) == [0, 1]
        assert self.ask(peer, 41, "two", 1, 2) == [2]
        self.ask(peer, 42, "one", 1)
        assert self.ask(peer, 41, "two", 0, 1) == [1]
        world.advance(60_001)
        other = world.connect()
        assert self.ask(other, 41, "two", 0) == [0]

    def test_broken_bodies(self, peer: Peer) -> None:
        assert peer.ask(41, None, b"{").code == 1
        assert peer.ask(41, None, b'{"mqSet":[{"queueId":"x"}]}').code == 1
