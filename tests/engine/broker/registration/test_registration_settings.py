"""What an operator changes while the broker runs, and what name servers are told of it (docs/protocol/broker.md 1.6,
2.16).
"""

from __future__ import annotations

from typing import Any

from mqproto.engine.broker.registration.name_servers import Registration
from mqproto.wire.bodies import RegisterBrokerBody
from tests.engine.broker.harness import World
from tests.engine.broker.registering import IDENTITY, TWO, make, registered, taken, topics, version


def change(world: World, **settings: Any) -> Registration:
    """An entry of the broker that changes settings; whose methods to call then."""
    world.broker.timer(world.now)
    for name, value in settings.items():
        setattr(world.broker.settings, name, value)
    return world.broker.registration


def test_another_permission_is_told_with_every_topic() -> None:
    world = make(TWO)
    servers = [registered(world), registered(world)]
    before = world.broker.topics.version.counter
    done: list[int] = []
    change(world, broker_permission=4).permission_changed(lambda: done.append(1))
    for server in servers:
        assert done == []
        request = taken(server)
        assert {config.perm for config in RegisterBrokerBody.from_json(request.body).topic_table.topics.values()} == {4}
        assert version(request).counter == before + 1
        server.answer(request)
    assert done == [1]


def test_without_a_name_server_a_permission_is_known_to_all_at_once() -> None:
    world = make()
    done: list[int] = []
    world.broker.registration.permission_changed(lambda: done.append(1))
    assert done == [1]
    world.broker.registration.permission_changed()


def test_a_lost_link_lets_nobody_wait() -> None:
    world = make()
    server = registered(world)
    done: list[int] = []
    world.broker.registration.permission_changed(lambda: done.append(1))
    world.broker.registration.permission_changed(lambda: done.append(2))
    assert done == []
    server.close()
    assert done == [1, 2]


def test_a_name_server_that_is_added_is_told_and_one_that_is_removed_learns_it() -> None:
    world = make(TWO)
    one, two = registered(world), registered(world)
    change(world, namesrv_addr="ns3:9876;192.0.2.1:9876").addresses_changed()
    world.act()
    assert [dial.link.address for dial in world.dials] == ["ns3:9876"]
    assert one.read() == [], "it is known there"
    farewell = taken(two)
    assert (farewell.code, farewell.fields) == (104, IDENTITY)
    two.answer(farewell)
    assert two.ended()
    three = world.open_dialled()
    full = taken(three)
    assert "TBW102" in topics(full)
    three.answer(full)
    world.advance(30_000)
    assert world.dials == [], "nobody dials the one that was left"
    assert [request.code for request in one.read()] == [103]


def test_a_silent_one_that_is_removed_is_not_waited_for() -> None:
    world = make(TWO)
    registered(world), registered(world)
    change(world, namesrv_addr="192.0.2.1:9876").addresses_changed()
    world.advance(3000)
    assert [(hang_up.link.address, hang_up.reason) for hang_up in world.hang_ups] == [
        ("ns2:9876", "no longer a name server of this broker")
    ]


def test_one_that_cannot_be_reached_is_tried_no_more_once_it_is_removed() -> None:
    world = make(TWO)
    for _ in range(2):  # the first pause is none
        world.broker.closed(world.dials.pop().link, "refused", world.now)
        world.advance(0)
    change(world, namesrv_addr="192.0.2.1:9876").addresses_changed()
    registered(world)
    world.advance(20_000)
    assert world.dials == []


def test_the_first_name_server_may_come_while_the_broker_runs_and_the_last_may_go() -> None:
    world = World()
    world.advance(60_000)
    change(world, namesrv_addr="192.0.2.1:9876").addresses_changed()
    world.act()
    server = registered(world)
    world.advance(30_000)
    server.answer(taken(server))
    change(world, namesrv_addr="").addresses_changed()
    server.answer(taken(server))
    assert server.ended()
    world.advance(60_000)
    assert world.dials == []


def test_a_broker_that_ends_takes_no_new_ones() -> None:
    world = make()
    registered(world)
    world.close()
    change(world, namesrv_addr=TWO).addresses_changed()
    world.broker.registration.period_changed()
    world.advance(60_000)
    assert world.dials == []


def test_the_period() -> None:
    world = make()
    server = registered(world)
    world.advance(20_000)
    change(world, register_name_server_period=10_000).period_changed()
    world.advance(9_999)
    assert server.read() == []
    world.advance(1)
    assert len(server.read()) == 1
