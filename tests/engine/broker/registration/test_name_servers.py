"""Registration with name servers (docs/protocol/broker.md 1.6)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.engine import slices
from mqproto.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig
from mqproto.wire.ids import body_crc
from tests.engine.broker.harness import Peer, World
from tests.engine.broker.registering import IDENTITY, TWO, make, registered, taken, topics, version


def test_everything_is_told_when_a_link_comes_up() -> None:
    world = make(TWO)
    assert [dial.link.address for dial in world.dials] == TWO.split(";")
    server = world.open_dialled()
    request = taken(server)
    assert (request.code, request.is_oneway) == (103, False)
    assert request.fields == IDENTITY | {
        "haServerAddr": "192.0.2.2:10912",
        "compressed": "false",
        "bodyCrc32": str(body_crc(request.body)),
    }
    assert {"TBW102", "broker-a", "DefaultCluster", "SELF_TEST_TOPIC", "DefaultCluster_REPLY_TOPIC"} <= topics(request)


def test_a_broker_serves_before_anybody_has_answered() -> None:
    world = make()
    assert world.connect().send().code == 0


def test_a_new_topic_is_told_at_once_and_alone() -> None:
    world = make()
    server = registered(world)
    world.connect().send("New")
    request = taken(server)
    assert topics(request) == {"New"}
    assert version(request) == world.broker.topics.version


def test_topics_of_one_read_are_told_together() -> None:
    world = make()
    server = registered(world)
    peer = world.connect()
    fields = (
        {"a": "p", "b": name, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"} for name in ("A", "B")
    )
    peer.feed(b"".join(peer.frame(310, one, b"x") for one in fields))
    assert topics(taken(server)) == {"A", "B"}


def test_before_the_first_answer_a_new_topic_means_everything() -> None:
    """The trap of increments: a name server that knows nothing yet must not get one topic under the version of all."""
    world = make()
    server = world.open_dialled()
    first = taken(server)
    world.connect().send("New")
    assert server.read() == [], "one after the other"
    server.answer(first)
    second = taken(server)
    assert topics(second) == topics(first) | {"New"}
    server.answer(second)
    assert server.read() == []
    world.connect().send("Newer")
    assert topics(taken(server)) == {"Newer"}


def test_everything_waits_for_a_refused_registration_too() -> None:
    world = make()
    server = world.open_dialled()
    first = taken(server)
    world.connect().send("New")
    server.answer(first, 1)
    second = taken(server)
    assert "New" in topics(second)
    server.answer(second, 1)
    assert server.read() == [], "until its time comes"


def test_after_a_refused_increment_everything_is_told_under_a_new_version() -> None:
    world = make()
    server = registered(world)
    world.connect().send("New")
    increment = taken(server)
    told = version(increment)
    server.answer(increment, 1)
    full = taken(server)
    assert "TBW102" in topics(full)
    assert "New" in topics(full)
    assert version(full) != told


def test_every_period() -> None:
    world = make()
    server = registered(world)
    world.advance(29_999)
    assert server.read() == []
    world.advance(1)
    assert "TBW102" in topics(taken(server))


@pytest.mark.parametrize(("period", "used"), [(1000, 10_000), (15_000, 15_000), (3_600_000, 60_000)])
def test_the_period_is_bounded(period: int, used: int) -> None:
    world = make(register_name_server_period=period)
    server = registered(world)
    world.advance(used - 1)
    assert server.read() == []
    world.advance(1)
    assert len(server.read()) == 1


class TestUnforced:
    @pytest.mark.parametrize(("changed", "told"), [("false", False), ("true", True)])
    def test_only_when_the_version_differs(self, changed: str, told: bool) -> None:
        world = make(force_register=False)
        server = registered(world)
        world.advance(30_000)
        question = taken(server)
        assert (question.code, question.fields) == (322, IDENTITY)
        assert DataVersion.from_json(question.body) == world.broker.topics.version
        server.answer(question, 0, {"changed": changed})
        assert [one.code for one in server.read()] == ([103] if told else [])

    def test_when_the_question_fails(self) -> None:
        world = make(force_register=False)
        server = registered(world)
        world.advance(30_000)
        server.answer(taken(server), 1)
        assert taken(server).code == 103


class TestLinks:
    def test_a_lost_link_is_made_again_at_once_and_everything_told(self) -> None:
        world = make()
        server = registered(world)
        server.close()
        world.advance(0)
        again = world.open_dialled()
        assert "TBW102" in topics(taken(again))
        assert any("192.0.2.1:9876" in notice for notice in world.broker.notices)

    def test_who_cannot_be_reached_is_tried_with_growing_pauses(self) -> None:
        world = make()
        pauses = []
        for _ in range(7):
            dial = world.dials.pop(0)
            begin = world.now
            world.broker.closed(dial.link, "refused", world.now)
            world.act()
            world.advance_until(lambda: bool(world.dials))
            pauses.append(world.now - begin)
        assert pauses == [0, 500, 1000, 2000, 4000, 8000, 8000]

    def test_one_that_does_not_answer_is_dialled_anew(self) -> None:
        world = make()
        server = world.open_dialled()
        server.read()
        world.advance(6000)
        assert server.ended()
        assert len(world.dials) == 1

    def test_one_that_speaks_no_protocol_is_dropped(self) -> None:
        world = make()
        server = world.open_dialled()
        server.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert server.ended()
        world.advance(0)
        assert len(world.dials) == 1

    def test_a_refused_registration_is_noted_and_tried_again_at_its_time(self) -> None:
        world = make()
        server = world.open_dialled()
        server.answer(taken(server), 1)
        assert any("refused" in notice for notice in world.broker.notices)
        assert server.read() == []
        world.advance(30_000)
        assert taken(server).code == 103

    def test_requests_of_a_name_server_are_answered(self) -> None:
        world = make()
        server = registered(world)
        server.feed(server.frame(905, {}, b""))
        answer = taken(server)
        assert (answer.code, answer.is_response) == (3, True)


class TestOrder:
    def test_ordered_topics_are_taken_over(self) -> None:
        world = make()
        world.connect().send("T")
        before = world.broker.topics.version.counter
        server = world.open_dialled()
        server.answer(taken(server), 0, None, b'{"table":{"T":"broker-a:4"}}')
        config = world.broker.topics.find("T")
        assert config is not None
        assert config.order
        assert world.broker.topics.version.counter == before + 1
        world.advance(30_000)
        server.answer(taken(server), 0, None, b'{"table":{}}')
        assert not config.order

    def test_the_first_name_server_of_the_list_that_says_something_speaks_for_all(self) -> None:
        """Two that disagree would change topics back and forth with each registration."""
        world = make(TWO)
        world.connect().send("T")
        config = world.broker.topics.find("T")
        assert config is not None
        one, two = world.open_dialled(), world.open_dialled()
        two.answer(taken(two), 0, None, b'{"table":{"T":"broker-a:4"}}')
        ordered = [config.order]  # the first one has not said anything yet
        for _ in range(2):  # at the second time of what the other one has changed
            one.answer(taken(one), 0, None, b'{"table":{}}')
        ordered.append(config.order)
        counter = world.broker.topics.version.counter
        for _ in range(3):
            world.advance(30_000)
            one.answer(taken(one), 0, None, b'{"table":{}}')
            two.answer(taken(two), 0, None, b'{"table":{"T":"broker-a:4"}}')
        assert world.broker.topics.version.counter == counter
        one.close()
        world.advance(30_000)
        two.answer(taken(two), 0, None, b'{"table":{"T":"broker-a:4"}}')
        ordered.append(config.order)
        assert ordered == [True, False, True]

    def test_an_answer_without_a_table_says_nothing(self) -> None:
        world = make()
        before = world.broker.topics.version.counter
        registered(world)
        assert world.broker.topics.version.counter == before

    def test_a_broken_table_is_noted(self) -> None:
        world = make()
        server = world.open_dialled()
        server.answer(taken(server), 0, None, b"{")
        assert any("no table" in notice for notice in world.broker.notices)


def test_a_broker_that_is_not_fully_open_says_so_of_each_topic() -> None:
    world = make(broker_permission=4)
    request = taken(world.open_dialled())
    table = RegisterBrokerBody.from_json(request.body).topic_table
    assert {config.perm for config in table.topics.values()} == {4}


class TestManyTopics:
    """The body of a large table is made between other requests, and kept."""

    COUNT = 5_000

    def make(self, **settings: Any) -> World:
        world = make(**settings)
        for number in range(self.COUNT):
            config = TopicConfig(f"topic-{number}")
            world.broker.topics.table[config.name] = config
        return world

    @pytest.mark.parametrize("compressed", [False, True])
    def test_slices(self, compressed: bool) -> None:
        world = self.make(compressed_register=compressed, broker_permission=4)
        peer = world.connect()
        server = world.open_dialled()
        answered = 0
        while not (requests := server.read()):
            assert peer.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": "0"}).code != 3
            answered += 1
            assert world.broker.next_deadline() == world.now
            world.broker.timer(world.now)
            world.act()
        assert answered > 15
        assert len(topics(requests[0])) > self.COUNT
        assert requests[0].fields["bodyCrc32"] == str(body_crc(requests[0].body))

    def test_the_body_is_kept_until_something_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = self.make()
        server = world.open_dialled()
        world.advance(0)
        first = taken(server)
        server.answer(first)
        with monkeypatch.context() as patch:
            patch.setattr(RegisterBrokerBody, "json_pieces", lambda _: 1 / 0)
            world.advance(30_000)
            second = taken(server)
        assert second.body == first.body
        server.answer(second)
        world.connect().send("New")
        server.answer(taken(server))
        world.advance(30_000)
        assert "New" in topics(taken(server))

    def test_other_settings_make_another_body(self) -> None:
        world = self.make()
        server = world.open_dialled()
        world.advance(0)
        server.answer(taken(server))
        world.broker.settings.compressed_register = True
        world.advance(30_000)
        assert taken(server).fields["compressed"] == "true"

    def test_what_changes_meanwhile_goes_with_the_next(self) -> None:
        world = self.make()
        server = world.open_dialled()
        world.connect().send("New")
        world.advance(0)
        first = taken(server)
        assert "New" not in topics(first)
        server.answer(first)
        world.advance(0)
        second = taken(server)
        assert "New" in topics(second)
        assert version(second) == world.broker.topics.version

    def test_a_link_that_is_lost_meanwhile_gets_nothing(self) -> None:
        world = self.make()
        server = world.open_dialled()
        server.close()
        world.advance_until(lambda: bool(world.dials))
        again = world.open_dialled()
        world.advance(0)
        assert len(again.read()) == 1

    def test_where_too_much_waits_it_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = self.make()
        monkeypatch.setattr(slices, "WORKS_MAX", 0)
        server = world.open_dialled()
        world.advance(99)
        assert server.read() == []
        monkeypatch.undo()
        world.advance(1)
        assert len(server.read()) == 1


def test_compressed() -> None:
    world = make(compressed_register=True)
    request = taken(world.open_dialled())
    assert request.fields["compressed"] == "true"
    assert request.fields["bodyCrc32"] == str(body_crc(request.body))
    assert "TBW102" in topics(request)


class TestByRequest:
    def create(self, peer: Peer, topic: str = "Made") -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "3",
            "perm": "6",
            "order": "true",
        }
        peer.tell(17, fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"})

    def test_a_topic_is_answered_once_the_name_servers_know(self) -> None:
        world = make(TWO)
        servers = [registered(world), registered(world)]
        peer = world.connect()
        self.create(peer)
        requests = [taken(server) for server in servers]
        assert [topics(request) for request in requests] == [{"Made"}, {"Made"}]
        servers[0].answer(requests[0])
        assert peer.read() == []
        servers[1].answer(requests[1])
        (answer,) = peer.read()
        assert (answer.code, answer.remark) == (0, None)

    def test_or_cannot_be_asked(self) -> None:
        world = make()
        peer = world.connect()
        self.create(peer)
        assert [answer.code for answer in peer.read()] == [0]
        server = registered(world)
        self.create(peer, topic="Other")
        server.close()
        assert [answer.code for answer in peer.read()] == [0]


class TestEnd:
    def test_unregisters_everywhere_first(self) -> None:
        world = make(TWO)
        servers = [registered(world), registered(world)]
        peer = world.connect()
        peer.send()
        for server in servers:
            server.read()
        world.close()
        requests = [taken(server) for server in servers]
        assert [(request.code, request.fields) for request in requests] == [(104, IDENTITY)] * 2
        ended = [world.broker.ended]
        for server, request in zip(servers, requests, strict=True):
            server.answer(request)
            ended.append(world.broker.ended)
        assert ended == [False, False, True]
        assert peer.ended()
        assert all(server.ended() for server in servers)

    def test_a_name_server_that_is_silent_is_not_waited_for_long(self) -> None:
        world = make()
        registered(world)
        world.close()
        world.advance(3000)
        assert world.broker.ended

    def test_without_name_servers_at_once(self, world: World) -> None:
        world.close()
        world.close()
        assert world.broker.ended
        assert world.broker.accept("main", "192.0.2.3:1", "192.0.2.2:10911", world.now) is None
