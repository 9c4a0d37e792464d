"""Admin clients and their servers: several of them, none at all, and calls that end early."""

from __future__ import annotations

import socket

import pytest

from mqproto import Message, MessageQueue
from mqproto.errors import (
    CallExpired,
    InvalidSetting,
    NoNameServer,
    NoRoute,
    PartlyFailed,
    StateError,
)
from tests.adapters.clients.test_admin import Operator, member
from tests.adapters.conftest import World
from tests.adapters.harness import Anyio, Proxy


def test_two_brokers_and_two_name_servers(world: World) -> None:
    module = world.runtime.module
    names = [world.start(module.NameServer).address for _ in range(2)]
    world.namesrv = ";".join(names)
    brokers = [
        world.start(module.Broker, world.namesrv, settings={"brokerName": name, "brokerClusterName": "pair"}).address
        for name in "ab"
    ]
    operator = Operator(world)
    assert operator(operator.topics.create, world.topic, cluster="pair", read_queues=2, write_queues=2) == sorted(
        brokers
    )
    assert [queue.broker_name for queue in operator(operator.topics.stats, world.topic)] == ["a", "a", "b", "b"]
    producer = world.producer()
    queues = [MessageQueue(world.topic, name, number) for name in "ab" for number in range(2)]
    sent = [
        producer.send(Message(world.topic, queue.broker_name.encode(), keys="all"), queue=queue) for queue in queues
    ]
    found = operator(operator.messages.by_key, world.topic, "all")
    assert {one.msg_id for one in found} == {one.msg_id for one in sent}
    assert {one.broker_name for one in found} == {"a", "b"}
    consumer, collector = member(world)
    collector.wait(4)
    assert len(operator(operator.groups.connection, world.group).connections) == 1
    consumer.close()
    progress = operator(operator.groups.progress, world.group, world.topic)
    assert {one.queue: one.consumer_offset for one in progress.queues} == dict.fromkeys(queues, 1)
    reset = operator(operator.offsets.reset_by_time, world.group, world.topic, 0)
    assert (reset.offsets, reset.committed) == (dict.fromkeys(queues, 0), tuple(brokers))
    assert operator(operator.name_servers.wipe_write_perm, "a").keys() == set(names)
    with pytest.raises(PartlyFailed) as failed:
        operator(operator.brokers.update_config, {"noSuchKey": "1"}, cluster="pair")
    assert [one.place for one in failed.value.failures] == brokers
    operator(operator.topics.delete, world.topic, "pair")
    with pytest.raises(NoRoute):
        operator(operator.topics.route, world.topic)


def test_only_while_it_runs(world: World) -> None:
    make = world.runtime.module.Admin
    admin = world.runtime.call(make, world.namesrv)
    with pytest.raises(StateError):
        world.runtime.call(admin.topics.names)
    proxy = Proxy(world.runtime, admin)
    proxy.start()
    assert "TBW102" in world.runtime.call(admin.topics.names)
    proxy.close()
    proxy.close()
    with pytest.raises(StateError):
        world.runtime.call(admin.topics.names)
    with pytest.raises(InvalidSetting):
        world.runtime.call(make, world.namesrv, timeout_ms=0)
    with pytest.raises(InvalidSetting, match="no such setting"):
        world.runtime.call(make, world.namesrv, colour="red")
    with pytest.raises(InvalidSetting, match="as they travel"):
        world.runtime.call(make, world.namesrv, namespace="space")


def test_servers_that_are_not_there(world: World) -> None:
    nobody = world.start(world.runtime.module.Admin, "127.0.0.1:1", timeout_ms=2_000)._target
    with pytest.raises(NoNameServer):
        world.runtime.call(nobody.topics.names)
    nowhere = world.start(world.runtime.module.Admin, "")._target
    with pytest.raises(NoNameServer):
        world.runtime.call(nowhere.name_servers.configs)
    hasty = world.start(world.runtime.module.Admin, world.namesrv, timeout_ms=50)._target
    assert hasty._core.topics._calls.timeout_ms == 50
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(CallExpired):
        world.runtime.call(hasty.brokers.runtime, f"127.0.0.1:{silent.getsockname()[1]}")


def test_it_may_share_an_instance_with_a_producer(world: World) -> None:
    producer = world.producer(instance_name="shared")
    operator = Operator(world, instance_name="shared")
    assert operator.proxy.client_id == producer.client_id
    assert operator.proxy._target._node is producer._target._node
    operator.proxy.close()
    assert producer.send(Message(world.topic, b"goes on")).msg_id
    again = Operator(world, instance_name="shared")
    producer.close()
    assert world.topic in again(again.topics.names)


def test_an_operation_that_is_cancelled(world: World) -> None:
    if not isinstance(world.runtime, Anyio):
        pytest.skip("threads and greenlets cannot be cancelled like this")
    import anyio

    admin = world.start(world.runtime.module.Admin, world.namesrv)._target

    async def give_up(address: str) -> bool:
        with anyio.move_on_after(0.05) as scope:
            await admin.brokers.runtime(address)
        return bool(scope.cancelled_caught)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert world.runtime.call(give_up, f"127.0.0.1:{silent.getsockname()[1]}")
    assert "TBW102" in world.runtime.call(admin.topics.names)
