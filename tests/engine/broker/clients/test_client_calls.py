"""What operators ask clients through the broker: 223, 307, 309 (docs/protocol/broker.md 2.12, 2.19, 2.20; ADM-03)."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.message import MessageQueue
from mqproto.wire.bodies import ConsumerStatus
from mqproto.wire.record import decode_record
from tests.engine.broker.harness import Peer, World, heartbeat

INFO = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}


def consumer(world: World, client: str = "c1", *, version: int = 407, group: str = "G") -> Peer:
    peer = world.connect()
    peer.heartbeat(heartbeat(client, (group,)), version=version)
    return peer


def asked(peer: Peer) -> Command:
    """The one request that a client got, besides notices."""
    (request,) = [one for one in peer.read() if one.code != 40]
    assert not request.is_response
    assert not request.is_oneway
    return request


class TestOneClient:
    def test_the_answer_of_the_client_is_the_answer(self, world: World, peer: Peer) -> None:
        client = consumer(world)
        peer.tell(307, INFO | {"bname": "broker-a"})
        assert peer.read() == []
        request = asked(client)
        assert (request.code, request.fields) == (307, INFO | {"bname": "broker-a"})
        client.answer(request, 1, body=b"{no json", fields={"a": "b"})
        (answer,) = peer.read()
        assert (answer.code, answer.opaque, answer.body, answer.fields) == (1, peer.opaque, b"{no json", {})

    def test_remarks_come_along(self, world: World, peer: Peer) -> None:
        client = consumer(world)
        peer.tell(307, INFO)
        client.answer(asked(client), 9, remark="why")
        (answer,) = peer.read()
        assert (answer.code, answer.remark) == (9, "why")

    def test_the_member_with_that_client_id_is_asked(self, world: World, peer: Peer) -> None:
        clients = {name: consumer(world, name) for name in ("c1", "c2", "c3")}
        for client in clients.values():
            client.read()
        peer.tell(307, INFO | {"clientId": "c2"})
        assert [name for name, client in clients.items() if client.read()] == ["c2"]

    def test_a_client_that_does_not_answer_holds_up_nobody(self, world: World, peer: Peer) -> None:
        silent, other = consumer(world), consumer(world, "c2")
        peer.tell(307, INFO)
        late = asked(silent)
        other.read()
        peer.tell(307, INFO | {"clientId": "c2"})
        other.answer(asked(other), body=b"{}")
        assert [answer.body for answer in peer.read()] == [b"{}"]
        world.advance(9999)
        assert peer.read() == []
        world.advance(1)
        (answer,) = peer.read()
        assert (answer.code, answer.remark) == (207, "consumer <G> <c1> Timeout: no answer within 10000 ms")
        silent.answer(late, body=b"{}")
        assert peer.read() == [], "a late answer is dropped"

    def test_a_client_that_leaves_meanwhile(self, world: World, peer: Peer) -> None:
        """ADM-03: a clean error at once."""
        client = consumer(world)
        peer.tell(307, INFO)
        client.close()
        (answer,) = peer.read()
        assert (answer.code, answer.remark) == (1, "invoke consumer <G> <c1> Exception: its connection is closed")
        assert peer.ask(307, INFO).remark == "The Consumer <G> <c1> not online"

    def test_an_asker_that_leaves_meanwhile(self, world: World, peer: Peer) -> None:
        client = consumer(world)
        for _ in range(3):
            peer.tell(307, INFO)
        requests = [one for one in client.read() if one.code == 307]
        peer.close()
        for request in requests:
            client.answer(request, body=b"{}")
        assert world.connect().ask(30, {"topic": "T", "queueId": "0"}).code == 0

    @pytest.mark.parametrize(
        ("fields", "remark"),
        [
            (INFO | {"consumerGroup": "H"}, "The Consumer <H> <c1> not online"),
            (INFO | {"clientId": "c9"}, "The Consumer <G> <c9> not online"),
            (
                INFO | {"clientId": "old"},
                "The Consumer <old> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
            ),
            ({"consumerGroup": "G"}, "clientId"),
            ({"clientId": "c1"}, "consumerGroup"),
            ({}, "consumerGroup"),
        ],
    )
    def test_what_cannot_be_passed_on(self, world: World, peer: Peer, fields: dict[str, str], remark: str) -> None:
        clients = [consumer(world), consumer(world, "old", version=61)]
        for client in clients:
            client.read()
        answer = peer.ask(307, fields)
        assert answer.code == 1
        assert remark in (answer.remark or "")
        assert [client.read() for client in clients] == [[], []]

    def test_an_asker_has_so_many_requests_under_way(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mqproto.engine.broker.clients.client_calls._OF_A_LINK_MAX", 2)
        client = consumer(world)
        for _ in range(3):
            peer.tell(307, INFO)
        (answer,) = peer.read()
        assert (answer.code, answer.opaque) == (2, peer.opaque)
        world.connect().tell(307, INFO)
        requests = [one for one in client.read() if one.code == 307]
        assert len(requests) == 3
        client.answer(requests[0])
        assert [one.code for one in peer.read()] == [0]
        peer.tell(307, INFO)
        assert peer.read() == []

    def test_a_client_that_reads_nothing_is_asked_nothing_more(self, world: World, peer: Peer) -> None:
        client = consumer(world)
        peer.send("T", bytes(2_000_000))
        msg_id = peer.send("T", bytes(3_000_000)).fields["msgId"]
        fields = {"consumerGroup": "G", "clientId": "c1", "msgId": msg_id}
        for _ in range(2):
            peer.tell(309, fields)
        assert peer.read() == []
        assert peer.ask(309, fields).code == 2
        client.read()
        peer.tell(309, fields)
        assert peer.read() == []

    def test_calls_in_all_are_bounded(self, world: World, peer: Peer) -> None:
        client = consumer(world)
        client.read()
        world.broker.calls.limit = 1
        peer.tell(307, INFO)
        assert peer.ask(307, INFO).code == 2
        client.answer(asked(client))
        assert [answer.code for answer in peer.read()] == [0]
        peer.tell(307, INFO)
        assert peer.read() == []


class TestConsumeDirectly:
    def test_the_message_goes_along(self, world: World, peer: Peer) -> None:
        msg_id = peer.send("T", b"paid", "KEYS\x01k\x02").fields["msgId"]
        client = consumer(world)
        peer.tell(309, {"consumerGroup": "G", "clientId": "c1", "msgId": msg_id, "brokerName": "another"})
        request = asked(client)
        assert request.fields == {"consumerGroup": "G", "clientId": "c1", "msgId": msg_id, "brokerName": "broker-a"}
        message = decode_record(request.body)
        assert (message.topic, message.body, message.keys) == ("T", b"paid", ["k"])
        client.answer(request, body=b'{"consumeResult":"CR_SUCCESS"}')
        (answer,) = peer.read()
        assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')

    def test_messages_on_the_disk(self) -> None:
        """The member is looked for once the message is there."""
        world = World(store={"cold_read_distance": 1})
        peer = world.connect()
        msg_id = peer.send("T", b"old").fields["msgId"]
        peer.send("T", b"new")
        client = consumer(world)
        world.hold_jobs = True
        peer.tell(309, {"consumerGroup": "G", "clientId": "c1", "msgId": msg_id})
        assert client.read() == []
        world.run_held()
        assert decode_record(asked(client).body).body == b"old"

    @pytest.mark.parametrize(
        ("changes", "remark"),
        [
            ({"msgId": None}, "no message id"),
            ({"msgId": "7F000001"}, "no message id"),
            ({"msgId": "Z" * 32}, "no message id"),
            ({"msgId": "C000020200002A9F00000000000000AA"}, "can not find message by the offset, 170"),
            ({"msgId": "C000020200002A9FFFFFFFFFFFFFFFFF"}, "can not find message by the offset, -1"),
            ({"clientId": None}, "The Consumer <G> <None> not online"),
            ({"clientId": "c9"}, "The Consumer <G> <c9> not online"),
            ({"consumerGroup": None}, "consumerGroup"),
        ],
    )
    def test_what_cannot_be_passed_on(
        self, world: World, peer: Peer, changes: dict[str, str | None], remark: str
    ) -> None:
        client = consumer(world)
        client.read()
        fields = {"consumerGroup": "G", "clientId": "c1", "msgId": peer.send().fields["msgId"]} | changes
        answer = peer.ask(309, {name: value for name, value in fields.items() if value is not None})
        assert answer.code == 1
        assert remark in (answer.remark or "")
        assert client.read() == []


class TestStatuses:
    ASK = {"topic": "T", "group": "G"}  # noqa: RUF012 - nobody changes it

    def test_what_all_clients_tell(self, world: World, peer: Peer) -> None:
        clients = [consumer(world, name) for name in ("c1", "c2", "c3")]
        for client in clients:
            client.read()
        peer.tell(223, self.ASK)
        for number, client in enumerate(clients[:2]):
            request = asked(client)
            assert (request.code, request.fields) == (221, self.ASK)
            client.answer(
                request, body=b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:%d}}' % number
            )
        assert peer.read() == []
        clients[2].close()
        (answer,) = peer.read()
        queue = MessageQueue("T", "b", 0)
        assert (answer.code, ConsumerStatus.from_json(answer.body).by_client) == (
            0,
            {"c1": {queue: 0}, "c2": {queue: 1}},
        )

    def test_one_client(self, world: World, peer: Peer) -> None:
        clients = [consumer(world, name) for name in ("c1", "c2")]
        for client in clients:
            client.read()
        peer.tell(223, self.ASK | {"clientAddr": "c2"})
        assert clients[0].read() == []
        clients[1].answer(asked(clients[1]), body=b'{"messageQueueTable":{}}')
        (answer,) = peer.read()
        assert ConsumerStatus.from_json(answer.body).by_client == {"c2": {}}

    def test_those_that_fail_or_are_silent_are_left_out(self, world: World, peer: Peer) -> None:
        clients = [consumer(world, name) for name in ("c1", "c2", "c3")]
        for client in clients:
            client.read()
        peer.tell(223, self.ASK)
        clients[0].answer(asked(clients[0]), 1)
        clients[1].answer(asked(clients[1]), body=b"[")
        world.advance(5000)
        (answer,) = peer.read()
        assert ConsumerStatus.from_json(answer.body).by_client == {}
        assert any("c2" in notice for notice in world.broker.notices)

    def test_many_are_asked_a_part_at_a_time(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.broker.clients.client_calls._AT_A_TIME", 2)
        clients = [consumer(world, f"c{number}") for number in range(5)]
        for client in clients:
            client.read()
        peer.tell(223, self.ASK)
        rounds = []
        while waiting := [(client, found[0]) for client in clients if (found := client.read())]:
            rounds.append(len(waiting))
            for client, request in waiting:
                client.answer(request, body=b"{}")
        assert rounds == [2, 2, 1]
        (answer,) = peer.read()
        assert len(ConsumerStatus.from_json(answer.body).by_client) == 5

    def test_an_asker_that_leaves_meanwhile(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.broker.clients.client_calls._AT_A_TIME", 1)
        clients = [consumer(world, name) for name in ("c1", "c2")]
        for client in clients:
            client.read()
        peer.tell(223, self.ASK)
        peer.close()
        clients[0].answer(asked(clients[0]), body=b"{}")
        assert clients[1].read() == [], "nobody wants to know any more"

    def test_what_was_told_is_bounded(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.broker.clients.client_calls._AT_A_TIME", 1)
        monkeypatch.setattr("mqproto.engine.broker.clients.client_calls._ANSWERS_MAX", 2)
        clients = [consumer(world, name) for name in ("c1", "c2")]
        for client in clients:
            client.read()
        peer.tell(223, self.ASK)
        clients[0].answer(asked(clients[0]), body=b"{}")
        (answer,) = peer.read()
        assert list(ConsumerStatus.from_json(answer.body).by_client) == ["c1"]
        assert clients[1].read() == []

    def test_what_cannot_be_asked(self, world: World, peer: Peer) -> None:
        answer = peer.ask(223, self.ASK)
        assert (answer.code, answer.remark) == (1, "No Any Consumer online in the consumer group: [G]")
        clients = [consumer(world), consumer(world, "old", version=27)]
        for client in clients:
            client.read()
        answer = peer.ask(223, self.ASK)
        assert (answer.code, answer.remark) == (1, "the client does not support this feature. version=V3_0_6")
        assert [client.read() for client in clients] == [[], []]
        for missing in ("topic", "group"):
            answer = peer.ask(223, {name: value for name, value in self.ASK.items() if name != missing})
            assert answer.code == 1
            assert missing in (answer.remark or "")
